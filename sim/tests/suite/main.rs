//! The tests of the simulator. All are in one program, because each program more takes time to compile and to link.

mod accelflow;
mod arcalis;
mod closed_forms;
mod common;
mod statistics;
