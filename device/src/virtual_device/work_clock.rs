//! The time that the calling thread has run. A virtual device's own work is measured with it, so that a thread that the
//! system took off its core is told from an emulation that is too slow.

use rustix::time::{ClockId, clock_gettime};
use units::{Clock, Nanos};

/// The CPU time of the thread that asks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadTime;

impl Clock for ThreadTime {
    fn now(&self) -> Nanos {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
