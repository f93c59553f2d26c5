//! The tests of the equations. They are one program, because each further one takes time to link.

mod accelerometer;
mod cost_queue;
mod oracle;
mod properties;
