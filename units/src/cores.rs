//! Functions that find the cores of this process and pin a thread to a core. The caller chooses the core.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores that the calling thread may run on.
///
/// # Errors
/// The system's error if it does not report the cores.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Pins the calling thread to this core. Threads that it starts later inherit the pin.
///
/// # Errors
/// The kernel's error if the core does not exist or this process may not use it.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
