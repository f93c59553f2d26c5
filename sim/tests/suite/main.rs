//! The tests of the simulator. They are one program, because each further one takes time to link.

mod accelflow;
mod arcalis;
mod closed_forms;
mod common;
mod statistics;
