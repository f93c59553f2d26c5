//! The tests of the RPC engine. They are one program, because each further one takes time to link.

mod apart;
mod common;
mod engine;
mod generated;
mod threads;
mod wild;
