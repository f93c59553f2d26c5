//! The tests of the RPC engine. All are in one program, because each program more takes time to compile and to link.

mod apart;
mod common;
mod engine;
mod generated;
mod threads;
mod wild;
