//! The tests of the trace language. They are one program, because each further one takes time to link.

mod accelflow;
mod common;
mod draw;
mod faults;
mod properties;
