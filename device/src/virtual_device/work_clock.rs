//! The CPU time of the calling thread, which measures a virtual device's own work. It tells whether the
//! emulation was too slow or the system ran another thread on the core.

use rustix::time::{ClockId, clock_gettime};
use units::{Clock, Nanos};

/// The CPU time of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadTime;

impl Clock for ThreadTime {
    fn now(&self) -> Nanos {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
