//! Starts processes under test, this program and memcached, on free ports; reads their CPU time; pins them where the
//! machine allows; and ends them when they are dropped. It knows the machine and nothing of what is measured.

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
