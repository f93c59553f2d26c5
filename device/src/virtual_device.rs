//! An accelerator that does not exist. It has the timing and the limits of a device profile and the results of a
//! software codec. A job completes when the profile says, and its submission costs the calling core what the profile
//! says. The device counts what the emulation costs beyond that, and every completion that the emulation made late.
//! It proves nothing about hardware, and its name says so.
//!
//! A profile can also describe software on a stated core. A job of such a device completes on the calling
//! core before its submission returns, and all of its time is spent there.
//!
//! - The calling core makes a result once. A table of bounded size remembers it, and also remembers the input of a
//!   compression as the result of its decompression. A result that must be made during a measurement counts as
//!   `computed`, and as `late` if it was not ready in time.
//! - Other kernels and functions run for every job, which counts as `computed`. Hashing an input to look up a result
//!   would take a core about as long, and a ciphertext also depends on key and nonce.
//! - Submissions of one queue without a poll between them are a batch. They cost the profile's batch price,
//!   if the profile has one.
//! - The device refuses what the hardware would refuse: an op without a time in the profile, any codec but deflate, a
//!   stream that may reach further back than the window, an input or output above the largest transfer, and more jobs
//!   than its work queues have entries. It does not detect a stream that reaches further than its dialect promises,
//!   because the software codec reads such a stream.
//! - A job moves along its chain ([`crate::Chain`]) where the profile has the succession. Each op waits for its own
//!   engines, the profile says how long it takes to hand over, and only the first op pays the trip. If the next engines
//!   are full, the job comes back as it is then.
//! - The levels are those of a software codec. The hardware has one level and always writes within its window.
//! - A completion is late when the emulation's own work delayed it by more than the device's own spread
//!   (`late_after_ns`). A completion that is later because the system ran another thread on the core counts as
//!   `preempted`. That delay would have affected any submitter.
//! - A hash of 128 bits identifies inputs. A hostile client could find collisions, so the device is for measurements
//!   and not for serving.

mod counters;
mod queue;
mod stations;
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
use crate::queue::{Capabilities, Device, Queue, Successions, Waiting};
use counters::Counters;
use queue::VirtualQueue;
use stations::Stations;
use table::Table;
use work_clock::ThreadTime;

/// An accelerator emulated from a profile.
pub struct Virtual {
    name: String,
    factories: Vec<EngineFactory>,
    shared: Arc<Shared>,
}

/// The options that the profile does not decide.
#[derive(Clone)]
pub struct VirtualOptions {
    /// The largest size of the table of remembered results, which all queues share.
    pub table_bytes_max: ByteCount,
    /// The clock that decides when jobs complete and how long submissions take.
    pub clock: Arc<dyn Clock>,
    /// The clock that measures the work of the calling thread.
    pub work_clock: Arc<dyn Clock>,
    /// The seed of the profile's page faults, or none if jobs have no page faults. Each queue draws its own sequence.
    pub page_faults: Option<u64>,
}

impl Default for VirtualOptions {
    /// Returns a table of 256 MiB, the machine's clocks and no page faults.
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
    /// Makes the device of `profile`. Its name is `virtual-` and the profile's name. The engines of `factories` make
    /// its results.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] in three cases: the profile compresses and no engine writes deflate within its
    /// window; the profile decompresses and no engine reads deflate; page faults are requested and the profile has
    /// none.
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
            successions: successions(profile),
            clock: options.clock,
            work_clock: options.work_clock,
            stations: Stations::new(profile),
            table: Table::new(options.table_bytes_max),
            counters: Counters::default(),
            page_faults: options.page_faults,
            queues: AtomicU64::new(0),
        };
        Ok(Self { name, factories: factories.to_vec(), shared: Arc::new(shared) })
    }

    /// Returns the counts of all queues since the start.
    pub fn counters(&self) -> VirtualCounters {
        self.shared.counters.snapshot()
    }

    /// Returns the profile that the device follows.
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

    fn successions(&self) -> Successions {
        self.shared.successions.clone()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Virtual::counters(self).named().to_vec()
    }
}

/// The state that all queues of the device share.
struct Shared {
    profile: DeviceProfile,
    capabilities: Capabilities,
    successions: Successions,
    clock: Arc<dyn Clock>,
    work_clock: Arc<dyn Clock>,
    /// The occupation of the accelerator, or none for software on a core.
    stations: Option<Stations>,
    table: Table,
    counters: Counters,
    page_faults: Option<u64>,
    /// The number of queues opened since the start.
    queues: AtomicU64,
}

impl Shared {
    /// Returns the dialect of all streams that the device writes.
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

/// Returns the dialects that the device accepts. If its window is as wide as the codec's own, a dialect without a
/// stated window is accepted too.
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
        (Kernel::Serialize, &profile.serialize),
        (Kernel::Deserialize, &profile.deserialize),
        (Kernel::Rpc, &profile.rpc),
        (Kernel::LoadBalance, &profile.load_balance),
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
        dictionaries: false,
        work_bytes_max: ByteCount(profile.transfer_bytes_max.value),
        queue_depth,
        waiting,
    }
}

fn successions(profile: &DeviceProfile) -> Successions {
    let Some(chains) = &profile.chains else { return Successions::None };
    let pairs = chains.successions.value.iter().map(|pair| (pair.first, pair.second));
    Successions::Pairs(pairs.collect())
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

/// The window of deflate itself (log2 bytes). No deflate stream reaches further back.
const DEFLATE_WINDOW_LOG2: u8 = 15;

/// The queue depth of a core. A core completes each job within its submission, so this only bounds the completions
/// that wait for a poll.
const CORE_QUEUE_DEPTH: usize = 64;

#[cfg(test)]
mod tests;
