//! An accelerator that is not there: the timing and the limits of a device profile, the results of
//! a software codec. A job completes when the profile says, and its submission costs the calling
//! core what the profile says; what the emulation costs beyond that is counted, and so is every
//! completion that it made late. It proves nothing about hardware and says so in its name.
//!
//! A profile of software on a stated core is emulated too: such a job is done on the calling core
//! when its submission returns, and all of its time was spent there.
//!
//! - A result is made once, by the calling core, and remembered in a table of bounded size; what
//!   was compressed is remembered as the result of its decompression too. A result that has to be
//!   made during a measurement is counted as `computed`, and as `late` if it was not ready in time.
//! - The kernels beside the codec are made each time, and count as `computed`: to know an input again
//!   by its hash takes a core about as long, and a ciphertext depends on key and nonce too.
//! - Submissions of one queue with no poll between them go out together, at the price that the
//!   profile has for that, if it has one.
//! - It refuses what the hardware would refuse: any op that the profile has no time for, any codec
//!   but deflate, streams that may reach further back than the window, inputs and outputs above the
//!   largest transfer, jobs above the entries of its work queues. A stream that reaches further than
//!   its dialect promises is not found out: the software codec reads it.
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
use std::sync::atomic::AtomicU64;
use std::task::Waker;

use units::{ByteCount, Clock, SystemClock};
use workload::DeviceProfile;

pub use counters::{LATE_SHARE_MAX, VirtualCounters};
pub use timeline::{Cost, Timeline};

use crate::codec::{Codec, Dialect, EngineFactory, Level};
use crate::engines::EngineSet;
use crate::job::{DeviceError, Task};
use crate::kernels::Kernel;
use crate::queue::{Capabilities, Device, Queue, Waiting};
use counters::Counters;
use queue::VirtualQueue;
use table::Table;
use work_clock::ThreadTime;

/// An accelerator emulated from a profile.
pub struct Virtual {
    name: String,
    factories: Vec<EngineFactory>,
    shared: Arc<Shared>,
}

/// The options that the profile leaves open.
#[derive(Clone)]
pub struct VirtualOptions {
    /// Memory for remembered results, of all queues together.
    pub table_bytes_max: ByteCount,
    /// The clock on which jobs complete and submissions are spent.
    pub clock: Arc<dyn Clock>,
    /// The clock of the calling thread's work.
    pub work_clock: Arc<dyn Clock>,
    /// The seed from which the profile's page faults are drawn, if jobs meet any. Each queue has its own draws.
    pub page_faults: Option<u64>,
}

impl Default for VirtualOptions {
    /// A table of 256 MiB, the machine's clocks and no page faults.
    fn default() -> Self {
        Self {
            table_bytes_max: ByteCount::mib(256),
            clock: Arc::new(SystemClock::new()),
            work_clock: Arc::new(ThreadTime),
            page_faults: None,
        }
    }
}

impl Virtual {
    /// Makes the device of `profile`, called `virtual-` and the profile's name. The engines of `factories` make its
    /// results.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] when the profile compresses and no engine writes deflate within its window, or it
    /// decompresses and none reads deflate, or page faults are asked for and it has none.
    pub fn new(
        profile: &DeviceProfile,
        factories: &[EngineFactory],
        options: VirtualOptions,
    ) -> Result<Self, DeviceError> {
        let name = format!("virtual-{}", profile.name);
        let capabilities = capabilities(profile);
        check(profile, factories, &options, &capabilities)
            .map_err(|problem| DeviceError::Misconfigured(format!("{name}: {problem}")))?;
        let shared = Shared {
            profile: profile.clone(),
            capabilities,
            clock: options.clock,
            work_clock: options.work_clock,
            timeline: profile.accelerator.as_ref().map(Timeline::new),
            table: Table::new(options.table_bytes_max),
            counters: Counters::default(),
            page_faults: options.page_faults,
            queues: AtomicU64::new(0),
        };
        Ok(Self { name, factories: factories.to_vec(), shared: Arc::new(shared) })
    }

    /// Returns the counts up to now, over all queues.
    pub fn counters(&self) -> VirtualCounters {
        self.shared.counters.snapshot()
    }

    /// Returns the profile that it follows.
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

    fn runs_own_code(&self) -> bool {
        true
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let set = EngineSet::open(&self.factories);
        Ok(Box::new(VirtualQueue::new(Arc::clone(&self.shared), set)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Virtual::counters(self).named().to_vec()
    }
}

/// The state that all queues of the device share.
struct Shared {
    profile: DeviceProfile,
    capabilities: Capabilities,
    clock: Arc<dyn Clock>,
    work_clock: Arc<dyn Clock>,
    /// None for software on a core.
    timeline: Option<Timeline>,
    table: Table,
    counters: Counters,
    page_faults: Option<u64>,
    /// Queues opened up to now.
    queues: AtomicU64,
}

impl Shared {
    /// Returns the one dialect that all streams of the device are in.
    fn dialect(&self) -> Dialect {
        dialect(&self.profile)
    }

    fn transfer_bytes_max(&self) -> usize {
        self.capabilities.work_bytes_max.as_usize()
    }
}

fn dialect(profile: &DeviceProfile) -> Dialect {
    let window = profile.window_log2.as_ref().and_then(|figure| u8::try_from(figure.value).ok());
    Dialect { codec: Codec::Deflate, window_log2: window }
}

/// Returns the dialects that a device of that window takes. A window as wide as the codec's own is also none.
fn dialects(profile: &DeviceProfile) -> Vec<Dialect> {
    let narrowed = dialect(profile);
    let plain = Dialect::new(Codec::Deflate);
    let widest = narrowed.window_log2 == Some(DEFLATE_WINDOW_LOG2);
    [plain].into_iter().filter(|_| widest).chain([narrowed]).collect()
}

fn capabilities(profile: &DeviceProfile) -> Capabilities {
    let some = |has: bool| if has { dialects(profile) } else { Vec::new() };
    let kernels = [
        (Kernel::AesGcm, &profile.encrypt),
        (Kernel::Crc32c, &profile.crc32c),
        (Kernel::Crc64, &profile.crc64),
        (Kernel::Copy, &profile.copy),
    ];
    let (queue_depth, waiting) = match &profile.accelerator {
        None => (CORE_QUEUE_DEPTH, Waiting::Inline),
        Some(accelerator) => {
            let waiting = Waiting::Polled { expected: profile.expected_poll() };
            (accelerator.entries_total.value as usize, waiting)
        }
    };
    Capabilities {
        writes: some(profile.compress.is_some()),
        reads: some(profile.decompress.is_some()),
        kernels: kernels
            .into_iter()
            .filter_map(|(kernel, op)| op.as_ref().map(|_| kernel))
            .collect(),
        work_bytes_max: ByteCount(profile.transfer_bytes_max.value),
        queue_depth,
        waiting,
    }
}

fn check(
    profile: &DeviceProfile,
    factories: &[EngineFactory],
    options: &VirtualOptions,
    capabilities: &Capabilities,
) -> Result<(), String> {
    let dialect = dialect(profile);
    let bytes = capabilities.work_bytes_max.as_usize();
    let software = EngineSet::open(factories).capabilities(1, Waiting::Inline);
    let compress = Task::Compress { dialect, level: Level::Default };
    if !capabilities.writes.is_empty() && !software.accepts(&compress, bytes) {
        let window = dialect.window_log2.unwrap_or(DEFLATE_WINDOW_LOG2);
        return Err(format!("no engine of this build writes deflate within 2^{window} bytes"));
    }
    let decompress = Task::Decompress { dialect, original_bytes: bytes };
    if !capabilities.reads.is_empty() && !software.accepts(&decompress, bytes) {
        return Err("no engine of this build reads deflate".to_owned());
    }
    if options.page_faults.is_some() && profile.fault_tail.is_none() {
        return Err("page faults are asked for and the profile has no fault_tail".to_owned());
    }
    Ok(())
}

/// No deflate stream reaches further back.
const DEFLATE_WINDOW_LOG2: u8 = 15;

/// The queue depth of a core. Its jobs are done as they come, so this only bounds the jobs that an owner who does not
/// poll can pile up.
const CORE_QUEUE_DEPTH: usize = 64;

#[cfg(test)]
mod tests;
