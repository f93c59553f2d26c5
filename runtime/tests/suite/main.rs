//! The tests of the runtime. They are one program, because each further one takes time to link.
//! `allocations` is apart: it counts what a whole process allocates.

mod chains;
mod common;
mod core_loop;
mod cores;
mod costs;
mod limits;
mod paths;
mod probes;
mod property;
mod qualification;
mod tenants;
mod tickets;
mod tokio_adapter;
mod traces;
mod trust;
