//! Threads and cores: it finds the cores of this process and keeps a thread on one. It chooses none.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores that the calling thread may run on.
///
/// # Errors
/// The system does not tell.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Keeps the calling thread, and those that it starts, on this core.
///
/// # Errors
/// The kernel's error, for a core that is not there or not this process's.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
