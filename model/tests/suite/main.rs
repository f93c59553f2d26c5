//! The tests of the equations. All are in one program, because each program more takes time to compile and to link.

mod accelerometer;
mod cost_queue;
mod oracle;
mod properties;
