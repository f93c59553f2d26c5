//! A compression service on the same host as a device. Its queue is memory that the two processes share. To the
//! service, a lane is another listener ([`LaneServer`]). As with [`crate::remote`], a queue is a connection and never
//! reconnects. When the service ends, the jobs in flight complete as lost, and a caller that wants to try again opens
//! another queue. A lane supports compression, decompression and ciphers, and refuses any other op. It makes no
//! placement and no retries.
//!
//! # Set-up
//! The client connects to the service's Unix socket and sends a greeting of 24 bytes: `REBALANE`, the version and the
//! largest uncompressed side of a job (bytes), each a `u64`. The greeting carries two memfds by `SCM_RIGHTS`: the
//! client's **half** of the shared words, and its **region** of values. The service answers with a greeting of the
//! same form. It hangs up instead if the client's jobs may be larger than the jobs that it accepts. Each side checks
//! that the other runs as the same user or as root. From then on any byte on the socket is a doorbell, and the end of
//! the stream is the end of the lane. All numbers are in the machine's own byte order, because both sides are on one
//! machine.
//!
//! Only the side that made a half or a region can write it. Seals prevent any later mapping for writing, and prevent
//! it from becoming shorter.
//!
//! # A half
//! 20480 bytes, in the same layout on both sides:
//!
//! | offset (bytes) | what |
//! |---|---|
//! | 0 | `tail`, u64: entries written to this half's ring since the start; entry `n` is in slot `n mod 256` |
//! | 64 | `head`, u64: entries of the other half's ring that this side has finished with |
//! | 128 | `asleep`, u64: 0 while this side polls the memory; else the number of its sleep |
//! | 192 | `cpu`, u64: the last processor that this side ran on, plus 1; 0 before it ran |
//! | 4096 | the ring: 256 entries of 64 bytes. The client's ring has jobs, and the service's ring has answers |
//!
//! The number of a sleep is never used again. The publishing side rings once per number.
//!
//! A job has eight u64:
//!
//! | word | what |
//! |---|---|
//! | 0 | the client's mark, returned with the answer |
//! | 1, byte 0 | op: 1 compress, 2 decompress, 3 what a message says |
//! | 1, byte 1 | codec: its number in frames (docs/format.md); 0 with a message |
//! | 1, byte 2 | window (log2 bytes), 255 none; 0 with a message |
//! | 1, byte 3 | level: 0 default, 1 fast, 2 high; 0 for decompress and with a message |
//! | 1, byte 4 | class: 0 latency-critical, 1 batch |
//! | 1, bytes 5 and 6 | the client's own number for the tenant; byte 7 is zero |
//! | 2 | the offset of the input in the client's region (bytes) |
//! | 3, low half | the input's size (bytes) |
//! | 3, high half | the size above which a first result is of no use; for all but compress the exact size (bytes) |
//! | 4 | time left until the client stops waiting (ns), 0 for no limit |
//! | 5 and 6 | the trace of the request that needs the job, high half first; zero if that is not recorded |
//! | 7 | the span of the request that needs the job, or zero |
//!
//! A message is for ciphers, and for ops that follow each other in one trip: it is a `rebate.v1.RunRequest` without a
//! payload (proto/rebate/v1/compression.proto), of at most 2048 bytes. Its sizes are those of the entry, and its class
//! and trace are valid. Then word 5 is the message's offset in the client's region (bytes), word 6 its size (bytes),
//! and word 7 is zero.
//!
//! An answer has eight u64:
//!
//! | word | what |
//! |---|---|
//! | 0 | the job's mark |
//! | 1 | 1 done, 2 does not fit, 3 invalid input, 4 a device failed it, 5 no capacity, 6 no valid job, 7 unknown key |
//! | 2 | the offset of the result in the service's region (bytes) |
//! | 3 | the size of the result (bytes) |
//! | 4 | the time of the job in the service, waiting included (ns) |
//! | 5 | the offset of the first op's result in the service's region (bytes), if an op followed; else zero |
//! | 6 | the size of the first op's result (bytes), or zero if no op followed |
//! | 7 | the time that the first op took (ns), if an op followed; else 1 if it lacked the key, and otherwise zero |
//!
//! # A region
//! The client's region has inputs, and all of its lanes to this service share it. With a pool over it
//! ([`Device::input_memory`]), values are read from their sockets directly to memory that the service reads. The pool
//! leaves a quarter of the region to inputs that are elsewhere and are copied there. The service's region has the
//! results of one lane only.
//!
//! The service may read an input's bytes until it answers. The client may read a result's bytes until its `head`
//! passes the answer. A service holds at most 256 jobs and unread answers of a lane, and disconnects a lane with
//! more. It also disconnects a lane whose region is larger than the largest job that the service accepts requires.

mod doorbell;
mod entry;
mod link;
mod queue;
mod server;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use device::{
    Capabilities, Codec, Device, DeviceError, Dialect, Kernel, Memory, Queue, Successions, Waiting,
};
use units::{ByteCount, Clock, SystemClock, limits};

use link::Link;
use queue::LaneQueue;

use crate::asked::{self, UnknownKeys};
use crate::shared::memory::{BLOCKS_BYTES_MAX, Blocks, Region, UNIT_BYTES};
use crate::shared::socket::Protocol;

pub use device::lane::{
    NoResult, Pause, Problem, RESULT_AT, Request, RequestForm, Results, ServedLane, Taken,
};
pub use doorbell::watch;
pub use server::LaneServer;

/// A compression service on this host.
pub struct Lane {
    name: String,
    path: PathBuf,
    options: LaneOptions,
    /// The memory for inputs, or the reason why it could not be made.
    region: Result<Arc<Region>, std::io::ErrorKind>,
    capabilities: Arc<Capabilities>,
    counts: Arc<Counts>,
    unknown_keys: Arc<UnknownKeys>,
}

/// The options of a lane other than its path.
#[derive(Clone)]
pub struct LaneOptions {
    /// The time limit of the service for each job.
    pub timeout: Duration,
    /// The most jobs in one queue. A lane has space for 256.
    pub queue_depth: usize,
    /// The size of the largest job that the service accepts. The size of a job is the size of its input, or of its
    /// result if the job decompresses.
    pub work_bytes_max: ByteCount,
    /// The clock of the jobs' deadlines.
    pub clock: Arc<dyn Clock>,
    /// The waiting mode. With `Signalled` the lane decides when to poll. With `Polled` its owner polls.
    pub waiting: Waiting,
    /// Whether the service has the keys of this process, and so encrypts and decrypts too.
    pub ciphers: bool,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            queue_depth: queue::DEPTH_MAX,
            work_bytes_max: limits::ITEM_BYTES_MAX_DEFAULT,
            clock: Arc::new(SystemClock::new()),
            waiting: Waiting::Signalled,
            ciphers: false,
        }
    }
}

impl Lane {
    /// Makes a device of the service that listens for lanes at `path`. It does not connect to the service yet. If the
    /// service is absent, the first jobs are refused.
    pub fn new(path: &Path, options: &LaneOptions) -> Self {
        let work_bytes_max = BLOCKS_BYTES_MAX / VALUES_MIN - UNIT_BYTES;
        let work_bytes_max = options.work_bytes_max.as_usize().min(work_bytes_max);
        let dialects = Codec::ALL.map(Dialect::new);
        let capabilities = Capabilities {
            writes: dialects.into_iter().chain([Dialect::IAA]).collect(),
            reads: dialects.to_vec(),
            kernels: if options.ciphers { vec![Kernel::AesGcm] } else { Vec::new() },
            dictionaries: false,
            work_bytes_max: ByteCount(work_bytes_max as u64),
            queue_depth: options.queue_depth.clamp(1, queue::DEPTH_MAX),
            waiting: options.waiting,
        };
        let name = format!("lane-{}", path.display());
        Self {
            path: path.to_owned(),
            options: options.clone(),
            region: Region::new(inputs_bytes(options.work_bytes_max)).map_err(|e| e.kind()),
            capabilities: Arc::new(capabilities),
            counts: Arc::default(),
            unknown_keys: Arc::new(UnknownKeys::new(&name)),
            name,
        }
    }

    /// Connects to the service. Returns none if no service listens now.
    fn connect(&self) -> Result<Option<Arc<Link>>, Problem> {
        let region = self.region.as_ref().map_err(|kind| Problem::Memory((*kind).into()))?;
        let socket = match queue::connect(&self.path) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!("{}: {error}", self.name);
                return Ok(None);
            }
        };
        let work_bytes_max = self.capabilities.work_bytes_max;
        match Link::open(socket, region, work_bytes_max, &self.counts, &self.name) {
            Ok(link) => Ok(Some(Arc::new(link))),
            Err(Problem::Peer(why)) => {
                tracing::warn!("{}: {why}", self.name);
                Ok(None)
            }
            Err(problem) => Err(problem),
        }
    }
}

impl Device for Lane {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let open = || {
            let link = self.connect()?;
            let shared = (link, Arc::clone(&self.unknown_keys));
            LaneQueue::new(Arc::clone(&self.capabilities), &self.options, shared, waker)
        };
        match open() {
            Ok(queue) => Ok(Box::new(queue)),
            Err(problem) => Err(DeviceError::Misconfigured(format!("{}: {problem}", self.name))),
        }
    }

    fn needs_named_keys(&self) -> bool {
        true
    }

    fn successions(&self) -> Successions {
        asked::successions(&self.capabilities)
    }

    fn input_memory(&self) -> Option<Arc<dyn Memory>> {
        let region = self.region.as_ref().ok()?;
        Some(Arc::new(Blocks::with_copy_reserve(region)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counts { opened, lost, doorbells, inputs_in_place, inputs, results } = &*self.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("lanes_opened", read(opened)),
            ("lanes_lost", read(lost)),
            ("bells", read(doorbells)),
            ("inputs_in_place", read(inputs_in_place)),
            ("inputs_copied", read(&inputs.copies)),
            ("inputs_copied_bytes", read(&inputs.bytes)),
            ("results_copied", read(&results.copies)),
            ("results_copied_bytes", read(&results.bytes)),
        ]
    }
}

/// The counters of the client's side of a device's lanes.
#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    lost: AtomicU64,
    /// The number of times that the service was woken.
    doorbells: AtomicU64,
    /// Inputs that the service reads in place.
    inputs_in_place: AtomicU64,
    /// Inputs copied to the client's region.
    inputs: Copied,
    /// Results copied out of the service's region.
    results: Copied,
}

#[derive(Debug, Default)]
struct Copied {
    copies: AtomicU64,
    bytes: AtomicU64,
}

impl Copied {
    fn copied(&self, bytes: usize) {
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What the greetings of lanes say. The version is that of the greeting, the layout and the entries. The number of a
/// greeting is the size of the largest job that the peer may send or accepts (bytes). The size of a job is the size of
/// its input, or of its result if the job decompresses.
const PROTOCOL: Protocol = Protocol { magic: *b"REBALANE", version: 5, name: "lanes" };

/// Returns the size of the result region of a lane whose jobs have at most this size (bytes). Each result
/// also needs the unused bytes in front of it.
fn results_bytes(work_bytes_max: ByteCount) -> usize {
    values_bytes(work_bytes_max, UNIT_BYTES)
}

/// Returns the size of a client's region (bytes). It has space for the inputs of [`LANES_OF_A_CLIENT`] lanes, but at
/// most [`BLOCKS_BYTES_MAX`]. Inputs are values that the client's sessions read from their sockets, and copies of other
/// inputs.
fn inputs_bytes(work_bytes_max: ByteCount) -> usize {
    (values_bytes(work_bytes_max, 0) * LANES_OF_A_CLIENT).min(BLOCKS_BYTES_MAX)
}

/// Returns the space that the values of one lane need (bytes). `padding_bytes` is the number of additional bytes per
/// value.
fn values_bytes(work_bytes_max: ByteCount, padding_bytes: usize) -> usize {
    let largest =
        work_bytes_max.as_usize().saturating_add(padding_bytes).saturating_mul(VALUES_MIN);
    largest.clamp(queue::DEPTH_MAX * (COMMON_BYTES + padding_bytes), BLOCKS_BYTES_MAX)
}

/// A lane has space for at least this many values of the largest size at the same time.
const VALUES_MIN: usize = 4;

/// A client's region has full space for the inputs of this many lanes. If the client has more lanes, all of its lanes
/// share this space.
const LANES_OF_A_CLIENT: usize = 4;

/// The size of the longest message (bytes). It has the key of an item twice, and the name of a tenant.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// The largest value size at which a lane has space for the values of all of its jobs at the same time (bytes). Unused
/// space takes no memory.
const COMMON_BYTES: usize = 64 << 10;
