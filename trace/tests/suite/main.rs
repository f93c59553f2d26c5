//! The tests of the trace language. All are in one program, because each program more takes time to compile and to link.

mod accelflow;
mod common;
mod draw;
mod faults;
mod properties;
