//! Processes under test: this program and memcached, started on ports that are free, asked what they cost, pinned where
//! the machine allows, and ended when dropped. It knows the machine, and nothing of what is measured.

mod awake;
mod machine;
mod port;
mod process;

pub use awake::Awake;
pub use machine::{CoreTime, Machine};
pub use port::Port;
pub use process::{
    PATIENCE, Process, Spent, free_path, memcached_is_here, metrics, start_memcached,
};
