//! The counters that only a QPL device has. Most importantly, they tell which path ran the jobs.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Jobs that an IAA accepted.
    Hardware,
    /// Jobs that the library ran on the calling core.
    Software,
    /// Submissions that found every work queue busy.
    RefusedBusy,
    /// Jobs with several steps that found every work queue busy between two steps.
    BusyMidway,
    /// Jobs that failed because a page was missing.
    PageFault,
    /// Compressed results that did not decompress to their input.
    VerifyFailed,
    /// Jobs whose buffers were leaked when their queue was dropped, because the device did not release them.
    Leaked,
}

/// The counts since the start over all queues of a device.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicU64; NAMES.len()]);

impl Counters {
    pub(super) fn add(&self, count: Count) {
        self.0[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn named(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        NAMES.into_iter().zip(counts).collect()
    }
}

/// The names, in the order of [`Count`].
const NAMES: [&str; 7] = [
    "jobs_hardware",
    "jobs_software",
    "refused_busy",
    "busy_midway",
    "page_faults",
    "verify_failed",
    "leaked",
];
