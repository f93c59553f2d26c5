//! An accelerator that is not there: the timing and the limits of a device profile, the results of
//! a software codec. A job completes when the profile says, and its submission costs the calling
//! core what the profile says; what the emulation costs beyond that is counted, and so is every
//! completion that it made late. It proves nothing about hardware and says so in its name.
//!
//! - A result is made once, by the calling core, and remembered in a table of bounded size; what
//!   was compressed is remembered as the result of its decompression too. A result that has to be
//!   made during a measurement is counted as `computed`, and as `late` if it was not ready in time.
//! - It refuses what the hardware would refuse: any codec but deflate, streams that may reach
//!   further back than the window, inputs and outputs above the largest transfer, jobs above the
//!   entries of its work queues. A stream that reaches further than its dialect promises is not
//!   found out: the software codec reads it.
//! - Levels are a software codec's: the hardware has one, and always writes within its window.
//! - A completion is late when the emulation's own work made it later than the device's own spread
//!   (`late_after_ns`). One that is later because the system ran something else on the core is
//!   counted as `preempted`: it would have met any submitter.
//! - Inputs are known again by a hash of 128 bits that a hostile client could defeat. It is for
//!   measurements, not for serving.

mod counters;
mod queue;
mod table;
mod timeline;
mod work_clock;

use std::sync::Arc;
use std::task::Waker;

use units::{ByteCount, Clock, SystemClock};
use workload::DeviceProfile;

pub use counters::{LATE_SHARE_MAX, VirtualCounters};

use crate::codec::{Codec, Dialect, EngineFactory, Level};
use crate::engines::EngineSet;
use crate::job::{DeviceError, Task};
use crate::queue::{Capabilities, Device, Queue, Waiting};
use counters::Counters;
use queue::VirtualQueue;
use table::Table;
use timeline::Timeline;
use work_clock::ThreadTime;

/// An accelerator emulated from a profile.
pub struct Virtual {
    name: String,
    factories: Vec<EngineFactory>,
    shared: Arc<Shared>,
}

/// What the profile leaves open.
#[derive(Clone)]
pub struct VirtualOptions {
    /// Memory for remembered results, of all queues together.
    pub table_bytes_max: ByteCount,
    /// The time that jobs complete on and that submissions are spent on.
    pub clock: Arc<dyn Clock>,
    /// The time that the calling thread has worked.
    pub work_clock: Arc<dyn Clock>,
}

impl Default for VirtualOptions {
    /// A table of 256 MiB and the machine's clocks.
    fn default() -> Self {
        Self {
            table_bytes_max: ByteCount::mib(256),
            clock: Arc::new(SystemClock::new()),
            work_clock: Arc::new(ThreadTime),
        }
    }
}

impl Virtual {
    /// The device of `profile`, called `virtual-` and the profile's name; `factories` make its
    /// results.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] when no engine writes deflate within the profile's window, or
    /// none reads deflate, or the profile asks for page faults, which are not emulated.
    pub fn new(
        profile: &DeviceProfile,
        factories: &[EngineFactory],
        options: VirtualOptions,
    ) -> Result<Self, DeviceError> {
        let name = format!("virtual-{}", profile.name);
        let capabilities = capabilities(profile);
        check(profile, factories, &capabilities)
            .map_err(|problem| DeviceError::Misconfigured(format!("{name}: {problem}")))?;
        let shared = Shared {
            profile: profile.clone(),
            capabilities,
            clock: options.clock,
            work_clock: options.work_clock,
            timeline: Timeline::new(profile),
            table: Table::new(options.table_bytes_max),
            counters: Counters::default(),
        };
        Ok(Self { name, factories: factories.to_vec(), shared: Arc::new(shared) })
    }

    /// What it did up to now, over all queues.
    pub fn counters(&self) -> VirtualCounters {
        self.shared.counters.snapshot()
    }

    /// The profile that it follows.
    pub fn profile(&self) -> &DeviceProfile {
        &self.shared.profile
    }
}

impl Device for Virtual {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let set = EngineSet::open(&self.factories);
        Ok(Box::new(VirtualQueue::new(Arc::clone(&self.shared), set)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Virtual::counters(self).named().to_vec()
    }
}

/// What all queues of the device share.
struct Shared {
    profile: DeviceProfile,
    capabilities: Capabilities,
    clock: Arc<dyn Clock>,
    work_clock: Arc<dyn Clock>,
    timeline: Timeline,
    table: Table,
    counters: Counters,
}

impl Shared {
    /// The one dialect that the device writes and reads.
    fn dialect(&self) -> Dialect {
        dialect(&self.profile)
    }

    fn transfer_bytes_max(&self) -> usize {
        self.capabilities.work_bytes_max.as_usize()
    }
}

fn dialect(profile: &DeviceProfile) -> Dialect {
    let window = u8::try_from(profile.window_log2.value).ok();
    Dialect { codec: Codec::Deflate, window_log2: window }
}

fn capabilities(profile: &DeviceProfile) -> Capabilities {
    Capabilities {
        writes: vec![dialect(profile)],
        reads: vec![dialect(profile)],
        kernels: Vec::new(),
        work_bytes_max: ByteCount(profile.transfer_bytes_max.value),
        queue_depth: profile.entries_total.value as usize,
        waiting: Waiting::Polled { expected: profile.expected_poll() },
    }
}

fn check(
    profile: &DeviceProfile,
    factories: &[EngineFactory],
    own: &Capabilities,
) -> Result<(), String> {
    let dialect = dialect(profile);
    let bytes = own.work_bytes_max.as_usize();
    let software = EngineSet::open(factories).capabilities(1, Waiting::Inline);
    if !software.accepts(&Task::Compress { dialect, level: Level::Default }, bytes) {
        let window = profile.window_log2.value;
        return Err(format!("no engine of this build writes deflate within 2^{window} bytes"));
    }
    if !software.accepts(&Task::Decompress { dialect, original_bytes: bytes }, bytes) {
        return Err("no engine of this build reads deflate".to_owned());
    }
    if profile.fault_tail.applied {
        return Err("fault_tail.applied is true; page faults are not emulated".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
