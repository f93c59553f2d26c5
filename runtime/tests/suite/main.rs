//! The tests of the runtime. All are in one program, because each program more takes time to compile and to link.
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
