//! Intel IAA through Intel QPL, a library that is opened at run time. There are three devices for the library's three
//! paths: hardware, software, and automatic. The automatic path falls back to software without reporting it, so it is
//! refused on a machine with an IAA. The driver counts which path ran each job. It adds no fallback and no retry to
//! the library's choices, and it uses no canned tables, filters or streams.

mod abi;
mod counters;
mod library;
mod outcome;
mod plan;
mod queue;
mod slot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{
    Capabilities, Completion, Device, DeviceError, Dialect, Input, Job, Kernel, Level, Outcome,
    Polynomial, Pool, Queue, Refused, RefusedReason, Task, Waiting,
};
use units::{ByteCount, Nanos, limits};

use abi::{flag, level, operation, path};
use counters::Counters;
use library::Api;
use outcome::Asked;
use queue::QplQueue;
use slot::{Request, Slot};

pub use library::LIBRARY_VARIABLE;

/// The library's path that a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// An IAA runs the jobs. Without an IAA they do not run.
    Hardware,
    /// The calling core runs the jobs.
    Software,
    /// The library chooses. This path is only for machines without an IAA, where the calling core runs each
    /// job inside its submission. With an IAA it is unsafe: QPL 1.6.0 may report a job as done in software
    /// while the device still works on it.
    Auto,
}

impl Path {
    /// Every path.
    pub const ALL: [Path; 3] = [Path::Hardware, Path::Software, Path::Auto];

    /// Returns the name of the device that uses this path.
    pub const fn device(self) -> &'static str {
        match self {
            Path::Hardware => "qpl-hardware",
            Path::Software => "qpl-software",
            Path::Auto => "qpl-auto",
        }
    }

    const fn raw(self) -> u32 {
        match self {
            Path::Hardware => path::HARDWARE,
            Path::Software => path::SOFTWARE,
            Path::Auto => path::AUTO,
        }
    }
}

/// The IAA devices from which the library may choose (`QPL_DEVICE_NUMA_ID_*` in qpl/c_api/defs.h, 1.6.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumaNode {
    /// The devices of the submitting thread's socket. Before QPL 1.6 these are the devices of its NUMA node.
    #[default]
    Socket,
    /// The devices of the submitting thread's NUMA node. This needs QPL 1.6 or later.
    Current,
    /// Any device. This needs QPL 1.6 or later.
    Any,
    /// The devices of this node.
    Node(u16),
}

impl NumaNode {
    fn raw(self) -> i32 {
        match self {
            NumaNode::Socket => -1,
            NumaNode::Current => -2,
            NumaNode::Any => -3,
            NumaNode::Node(node) => node.into(),
        }
    }
}

/// The error for a text that is not the name of a [`NumaNode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotANode(pub String);

impl fmt::Display for NotANode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no NUMA node; give socket, current, any or a node's number", self.0)
    }
}

impl std::error::Error for NotANode {}

impl FromStr for NumaNode {
    type Err = NotANode;

    fn from_str(text: &str) -> Result<Self, NotANode> {
        match text {
            "socket" => Ok(NumaNode::Socket),
            "current" => Ok(NumaNode::Current),
            "any" => Ok(NumaNode::Any),
            number => number.parse().map(NumaNode::Node).map_err(|_| NotANode(text.to_owned())),
        }
    }
}

/// The Huffman code of compressed streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Huffman {
    /// A code made for the data. It has the better ratio. Devices of the first generation need a second pass for it.
    #[default]
    Dynamic,
    /// Deflate's own fixed code.
    Fixed,
}

/// The options of a QPL device.
#[derive(Clone, Debug)]
pub struct QplOptions {
    /// The library's file. If it is none, [`LIBRARY_VARIABLE`] names the library. If that is unset too, the loader
    /// searches for `libqpl.so`.
    pub library: Option<PathBuf>,
    /// The NUMA node whose devices the library may use.
    pub numa: NumaNode,
    /// The Huffman code of compressed streams.
    pub huffman: Huffman,
    /// True if the device decompresses every result of its compression and compares it with the input. This finds a
    /// fault of the device before the result is stored, and costs about one decompression. The software path has no
    /// device that could be faulty, so it never verifies. The automatic path verifies up to 32 KiB, because above
    /// that QPL 1.6.0's software rejects its own right results.
    pub verify: bool,
    /// The most jobs in one queue. Each job takes 189 kB (hardware) or 831 kB (automatic) for as long as the queue
    /// lives.
    pub queue_depth: NonZeroUsize,
    /// The largest input and output of a job on a path that may use a device (bytes). It must be the
    /// `max_transfer_size` of the device's work queue, which Linux sets to 2 MiB by default. The driver does not send
    /// larger jobs. If a work queue refuses a job for its size, the device is taken out of use.
    pub transfer_bytes_max: ByteCount,
}

impl Default for QplOptions {
    fn default() -> Self {
        Self {
            library: None,
            numa: NumaNode::default(),
            huffman: Huffman::default(),
            verify: true,
            queue_depth: const { NonZeroUsize::new(32).expect("above zero") },
            transfer_bytes_max: ByteCount::mib(2),
        }
    }
}

/// A device that uses one path of the library.
pub struct Qpl {
    shared: Arc<Shared>,
}

impl Qpl {
    /// Opens the library. Runs one job of each kind on the path and checks the results.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`]: there is no library, it is not QPL, the path cannot be used here, results are
    /// wrong, or the path is automatic and there is an IAA.
    pub fn open(path: Path, options: &QplOptions) -> Result<Self, DeviceError> {
        let api = Api::open(options.library.as_deref()).map_err(|error| named(path, error))?;
        Self::over(Arc::new(api), path, options).map_err(|error| named(path, error))
    }

    fn over(api: Arc<Api>, path: Path, options: &QplOptions) -> Result<Self, DeviceError> {
        if path == Path::Auto {
            // This check precedes the first job. One release of 1.6.0 reports a job as over while a device still
            // works on it (fixed later under the same version number). Older releases refuse the check.
            match Slot::new(&api, path::HARDWARE, options.numa.raw()) {
                Ok(_) => return Err(DeviceError::Misconfigured(AUTO_WITH_HARDWARE.to_owned())),
                Err(error) => {
                    let name = path.device();
                    tracing::warn!("{name}: the library runs every job in software: {error}");
                }
            }
        }
        let probe = Arc::new(Shared::new(Arc::clone(&api), path, options, KERNELS.to_vec()));
        let kernels = check(&probe)?;
        Ok(Self { shared: Arc::new(Shared::new(api, path, options, kernels)) })
    }

    /// Returns the library's version.
    pub fn version(&self) -> &str {
        &self.shared.api.version
    }

    /// Returns the path that the device uses.
    pub fn path(&self) -> Path {
        self.shared.path
    }
}

impl Device for Qpl {
    fn name(&self) -> &str {
        self.shared.path.device()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(QplQueue::open(Arc::clone(&self.shared))?))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.counters.named()
    }
}

/// The state that all queues of the device share.
struct Shared {
    api: Arc<Api>,
    path: Path,
    numa_id: i32,
    compress_flags: u32,
    /// The largest input of a compression that is verified (bytes).
    verified_bytes_max: usize,
    transfer_bytes_max: usize,
    capabilities: Capabilities,
    counters: Counters,
    /// The statuses that were already logged.
    warned: Mutex<Vec<u32>>,
}

impl Shared {
    fn new(api: Arc<Api>, path: Path, options: &QplOptions, kernels: Vec<Kernel>) -> Self {
        let work_bytes_max = match path {
            Path::Software => limits::ITEM_BYTES_MAX_HIGHEST,
            Path::Hardware | Path::Auto => {
                options.transfer_bytes_max.min(limits::ITEM_BYTES_MAX_HIGHEST)
            }
        };
        let expected = if path == Path::Software { Nanos(0) } else { HARDWARE_EXPECTED };
        let dynamic = if options.huffman == Huffman::Dynamic { flag::DYNAMIC_HUFFMAN } else { 0 };
        let verified_bytes_max = match path {
            Path::Hardware if options.verify => usize::MAX,
            Path::Auto if options.verify => SOFTWARE_VERIFIED_BYTES_MAX,
            _ => 0,
        };
        let capabilities = Capabilities {
            writes: vec![Dialect::IAA],
            reads: vec![Dialect::IAA],
            kernels,
            dictionaries: false,
            work_bytes_max,
            queue_depth: options.queue_depth.get(),
            waiting: Waiting::Polled { expected },
        };
        Self {
            api,
            path,
            numa_id: options.numa.raw(),
            compress_flags: WHOLE | dynamic,
            verified_bytes_max,
            transfer_bytes_max: work_bytes_max.as_usize(),
            capabilities,
            counters: Counters::default(),
            warned: Mutex::default(),
        }
    }

    /// Logs a status and its meaning when it first occurs. Outcomes do not contain the number.
    fn warn_once(&self, status: u32, what: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < WARNED_MAX && !warned.contains(&status) {
            warned.push(status);
            tracing::warn!("{}: {what}; said once", self.path.device());
        }
    }

    fn slot(&self) -> Result<Slot, DeviceError> {
        Slot::new(&self.api, self.path.raw(), self.numa_id)
    }

    fn accepts(&self, job: &Job) -> bool {
        self.capabilities.accepts(&job.task, job.work_bytes())
            && job.input.len() <= self.transfer_bytes_max
    }

    /// Returns the job as a request to the library, with the job's own input and output. If the result needs
    /// no space, the output is the slot's spare byte, because the library accepts no empty output.
    fn request(&self, job: &mut Job, slot: &mut Slot, asked: Asked) -> Request {
        let mut request = Request {
            operation: operation::CRC64,
            flags: WHOLE,
            level: level::DEFAULT,
            crc64_polynomial: 0,
            input: job.input.as_ptr(),
            input_bytes: count(job.input.len()),
            output: slot.spare(),
            output_bytes: 1,
        };
        let output_bytes = match asked {
            Asked::Compress { capacity_bytes } => capacity_bytes,
            Asked::Decompress { original_bytes, .. } => original_bytes,
            Asked::Checksum { .. } => 0,
        };
        if output_bytes > 0 {
            let space = &mut job.output.space()[job.output_offset..][..output_bytes];
            self.touch(space);
            request.output = space.as_mut_ptr();
            request.output_bytes = count(output_bytes);
        }
        match job.task {
            Task::Compress { level, .. } => {
                request.operation = operation::COMPRESS;
                let verified = job.input.len() <= self.verified_bytes_max;
                request.flags = self.compress_flags | if verified { 0 } else { flag::OMIT_VERIFY };
                request.level = self.level(level);
            }
            Task::Checksum { polynomial } => {
                request.flags |= flag::CRC64_INVERT | flag::CRC64_REFLECT;
                request.crc64_polynomial = polynomial_bits(polynomial);
            }
            _ => request.operation = operation::DECOMPRESS,
        }
        request
    }

    /// Returns the library's level. Hardware has only the default level, and another level would make the
    /// automatic path run in software.
    fn level(&self, asked: Level) -> u32 {
        match (self.path, asked) {
            (Path::Software, Level::High) => level::HIGH,
            _ => level::DEFAULT,
        }
    }

    /// Touches every page of the output. A device that meets a missing page fails the job, or waits 9 µs per page for
    /// the kernel. Fresh memory of a pool has no pages yet.
    fn touch(&self, space: &mut [u8]) {
        if self.path != Path::Software {
            space.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 0);
            // The last byte may lie in a page that no step touched.
            space.last_mut().into_iter().for_each(|byte| *byte = 0);
        }
    }
}

/// Returns the size as a 32-bit number, as the library requires. `accepts` limits every size to 1 GiB.
fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the polynomial in the library's form: the highest power comes first, at the top of 64 bits.
const fn polynomial_bits(polynomial: Polynomial) -> u64 {
    match polynomial {
        Polynomial::Crc32c => 0x1EDC_6F41 << 32,
        Polynomial::Crc64 => 0x42F0_E1EB_A9EA_3693,
    }
}

/// Runs a job of each kind on the path. Returns the checksums that the path supports.
fn check(probe: &Arc<Shared>) -> Result<Vec<Kernel>, DeviceError> {
    let mut queue = QplQueue::open(Arc::clone(probe))?;
    let text = Bytes::from(CHECK_TEXT.repeat(100));
    let stream = run(&mut queue, compress(), text.clone())?;
    let original_bytes = text.len();
    let read = run(&mut queue, Task::Decompress { dialect: Dialect::IAA, original_bytes }, stream)?;
    if read != text {
        return Err(wrong("its compression does not give back what went in"));
    }
    let mut kernels = KERNELS.to_vec();
    kernels.retain(|kernel| {
        let (polynomial, expected) = match kernel {
            Kernel::Crc32c => (Polynomial::Crc32c, &CRC32C_OF_DIGITS[..]),
            _ => (Polynomial::Crc64, &CRC64_OF_DIGITS[..]),
        };
        let digits = Bytes::from_static(b"123456789");
        let got = run(&mut queue, Task::Checksum { polynomial }, digits);
        got.is_ok_and(|got| got[..] == *expected)
    });
    Ok(kernels)
}

fn compress() -> Task {
    Task::Compress { dialect: Dialect::IAA, level: Level::Default }
}

fn run(queue: &mut QplQueue, task: Task, input: Bytes) -> Result<Bytes, DeviceError> {
    let output = Pool::heap(ByteCount(0)).take(2 * CHECK_TEXT.len() * 100);
    let mut job = Box::new(Job::new(task, Input::heap(input), output));
    let give_up = Instant::now() + CHECK_WAIT;
    loop {
        let over = Instant::now() > give_up;
        job = match queue.try_submit(job) {
            Ok(()) => {
                let completion = finished(queue, give_up)?;
                match completion.outcome {
                    Outcome::Done { output_bytes } => {
                        return Ok(completion.job.output.freeze(0..output_bytes));
                    }
                    Outcome::DoesNotFit => return Err(wrong("text does not shrink")),
                    Outcome::Failed(DeviceError::Busy) if !over => completion.job,
                    Outcome::Failed(error) => return Err(wrong(&error.to_string())),
                }
            }
            // Another process may keep a shared work queue full for a while.
            Err(Refused { job, reason: RefusedReason::Full }) if !over => job,
            Err(refused) if refused.reason == RefusedReason::Full => {
                return Err(wrong(&format!("its work queues stay full for {CHECK_WAIT:?}")));
            }
            Err(refused) => return Err(wrong(&format!("refused ({:?})", refused.reason))),
        };
        thread::yield_now();
    }
}

/// Waits for the only job in flight and returns its completion.
fn finished(queue: &mut QplQueue, give_up: Instant) -> Result<Completion, DeviceError> {
    let mut done = Vec::new();
    while queue.poll(&mut done) == 0 {
        if Instant::now() > give_up {
            return Err(wrong("a job does not come back"));
        }
    }
    done.pop().ok_or_else(|| wrong("a job does not come back"))
}

fn wrong(what: &str) -> DeviceError {
    DeviceError::Misconfigured(format!("the first jobs failed: {what}"))
}

/// Adds the name of the device to the error.
fn named(path: Path, error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Misconfigured(what) => {
            DeviceError::Misconfigured(format!("{}: {what}", path.device()))
        }
        other => other,
    }
}

/// The flags for a stream that is processed as a whole in one call.
const WHOLE: u32 = flag::FIRST | flag::LAST;

/// The largest input that the software path may verify (bytes). Above this size, QPL 1.6.0's software was
/// measured to reject valid streams: it verifies in a buffer of this size and loses its history at the
/// buffer's end.
const SOFTWARE_VERIFIED_BYTES_MAX: usize = 32 << 10;

/// The time of a 4 KiB job on one device with one job at a time (QPL's own benchmark page; specs/devices/iaa.toml).
const HARDWARE_EXPECTED: Nanos = Nanos(3_200);

/// The most statuses that are logged.
const WARNED_MAX: usize = 32;

const AUTO_WITH_HARDWARE: &str = "there is an IAA, and with one QPL's automatic path is not safe \
                                  in every release of 1.6.0, nor there before; use qpl-hardware: \
                                  Rebate itself falls back to software";

/// The smallest page of x86-64.
const PAGE_BYTES: usize = 4_096;

/// The library's kernels other than deflate. The first jobs check which of them work.
const KERNELS: [Kernel; 2] = [Kernel::Crc32c, Kernel::Crc64];

const CHECK_TEXT: &[u8] = b"a rose is a rose is a rose, as the first of devices would have it. ";
const CHECK_WAIT: Duration = Duration::from_secs(1);

/// The published check values of CRC-32C and CRC-64/XZ, which are the checksums of `123456789`.
const CRC32C_OF_DIGITS: [u8; 4] = 0xE306_9283_u32.to_le_bytes();
const CRC64_OF_DIGITS: [u8; 8] = 0x995D_C9BB_DF19_39FA_u64.to_le_bytes();
