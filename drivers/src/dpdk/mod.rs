//! Drives compression devices of DPDK (compressdev): BlueField, QAT, Octeon, and the software drivers over ISA-L and
//! zlib. The software drivers run without hardware, huge pages or privileges. The module is built only with the
//! feature `dpdk`, through a C shim. It does raw deflate, stateless, with one operation per job. It has no other
//! algorithm and no checksums, and it does not batch.

mod arguments;
mod eal;
mod memory;
mod names;
mod outcome;
mod port;
mod queue;
mod sys;
mod transforms;
mod windows;

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use device::{Capabilities, Codec, Device, DeviceError, Dialect, Pool, Queue, Waiting};
use units::{ByteCount, Nanos};

pub use eal::Eal;
use port::{Port, QUEUE_DEPTH};
use queue::DpdkQueue;

/// The environment variable with the operator's arguments for DPDK, separated by spaces.
pub const ARGUMENTS_VARIABLE: &str = "REBATE_DPDK_ARGS";

/// The options of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DpdkOptions {
    /// The number of queues that can be open at once, bounded by the device. The default is a little more
    /// than one per processor. Only the first open of a device in a process applies this option.
    pub queue_pairs: Option<NonZeroU16>,
    /// True if a software device gets only DPDK's own memory, like hardware. Data in other memory is copied.
    pub registered_only: bool,
}

/// A compression device of DPDK (compressdev).
#[derive(Debug)]
pub struct Dpdk {
    port: Arc<Port>,
    name: String,
    capabilities: Capabilities,
    limits: Limits,
}

/// The limits that come from the device's mbufs.
#[derive(Clone, Copy, Debug)]
struct Limits {
    chains: bool,
    registered_only: bool,
    /// The number of mbufs of one queue.
    segments: u32,
}

impl Dpdk {
    /// Opens the device called `name`, which is a driver such as `compress_isal` or a PCI address such as
    /// `0000:03:00.0`. DPDK's driver may give that device another name. The name of the returned device is `dpdk-`
    /// and `name`.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`]: there is no such device, or it does not start.
    pub fn open(eal: Eal, name: &str, options: DpdkOptions) -> Result<Self, DeviceError> {
        let port = Port::open(eal, name, options.queue_pairs.map(NonZeroU16::get))?;
        let work_bytes_max = if port.chains { CHAIN_BYTES_MAX } else { SEGMENT_BYTES_MAX };
        let mut limits = Limits {
            chains: port.chains,
            registered_only: options.registered_only || port.hardware,
            segments: 0,
        };
        // Every slot has one segment for the input, one for the output, and those that may follow the input. There
        // are also segments for one job of the largest size.
        let largest = 2 * (stream_bytes_max(work_bytes_max.as_usize(), limits) / SEGMENT_BYTES + 1);
        limits.segments = (QUEUE_DEPTH * SEGMENTS_OF_A_JOB + largest) as u32;
        let capabilities = Capabilities {
            writes: if port.compresses { writes(&port) } else { Vec::new() },
            reads: if port.decompresses { vec![reads(&port)] } else { Vec::new() },
            kernels: Vec::new(),
            dictionaries: false,
            work_bytes_max,
            queue_depth: QUEUE_DEPTH,
            waiting: Waiting::Polled { expected: if port.hardware { EXPECTED } else { Nanos(0) } },
        };
        Ok(Self { name: format!("dpdk-{name}"), port, capabilities, limits })
    }

    /// Returns a pool of DPDK's own memory. The device reads and writes its buffers without a copy.
    pub fn pool(&self) -> &Pool {
        &self.port.pool
    }
}

impl Device for Dpdk {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let port = Arc::clone(&self.port);
        Ok(Box::new(DpdkQueue::open(port, self.capabilities.clone(), self.limits)?))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.port.counters;
        vec![
            ("copies", counters.copies.load(Ordering::Relaxed)),
            ("copied_bytes", counters.copied_bytes.load(Ordering::Relaxed)),
            ("abandoned_jobs", counters.abandoned_jobs.load(Ordering::Relaxed)),
        ]
    }
}

/// Returns deflate without a stated window, and deflate with the narrow windows that the device supports.
fn writes(port: &Port) -> Vec<Dialect> {
    let deflate = |window| Dialect { codec: Codec::Deflate, window_log2: Some(window) };
    let mut all = vec![Dialect::new(Codec::Deflate)];
    if port.windows.min < port.windows.max {
        let iaa = Dialect::IAA.window_log2.filter(|iaa| port.windows.within(*iaa) <= *iaa);
        all.extend(iaa.map(deflate));
        all.push(deflate(port.windows.min));
        all.dedup();
    }
    all
}

fn reads(port: &Port) -> Dialect {
    let window = Some(port.windows.max).filter(|window| *window < DEFLATE_WINDOW);
    Dialect { codec: Codec::Deflate, window_log2: window }
}

/// Returns the size of the longest stream for this much work (bytes), at most one segment without chains.
fn stream_bytes_max(work_bytes: usize, limits: Limits) -> usize {
    let longest = work_bytes + work_bytes / 8 + 1_024;
    if limits.chains { longest } else { longest.min(SEGMENT_BYTES_MAX.as_usize()) }
}

/// The largest job of a device with chained mbufs. It limits a queue to some hundreds of mbufs.
const CHAIN_BYTES_MAX: ByteCount = ByteCount::mib(16);

/// The most bytes in one mbuf. In a chain, the shim puts `SEGMENT_BYTES` into each mbuf.
const SEGMENT_BYTES_MAX: ByteCount = ByteCount(65_535);
const SEGMENT_BYTES: usize = 60_000;

/// The number of segments of a small job: its input, its output, and three spill segments behind them.
const SEGMENTS_OF_A_JOB: usize = 5;

/// The expected time of a small job on hardware. The published times of QAT are 5 to 27 µs.
const EXPECTED: Nanos = Nanos(5_000);

/// Deflate's own window (log2 bytes).
const DEFLATE_WINDOW: u8 = 15;
