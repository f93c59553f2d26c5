//! What the benches of several drivers share: a core for each side, and a waker for the task that waits. It measures
//! nothing.
#![allow(dead_code, reason = "each bench uses its part")]

use std::sync::Arc;
use std::task::Wake;

use rustix::thread::{CpuSet, sched_setaffinity};

/// This thread, and whatever it starts, on that core alone.
pub(crate) fn pin(core: usize) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Wakes the task that waits.
#[derive(Default)]
pub(crate) struct Signal(pub(crate) tokio::sync::Notify);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}
