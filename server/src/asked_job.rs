//! Jobs that other processes ask for by a message, over gRPC or a lane: checks the message, makes the job, and reads
//! what became of it. It decides nothing about memory.

use std::fmt;
use std::ops::Range;
use std::time::Instant;

use api::v1::follow::Op as FollowOp;
use api::v1::{self, RunRequest};
use bytes::Bytes;
use device::cipher::{KEY_CHECK_BYTES, NONCE_BYTES};
use device::{
    Buffer, Chain, Class, Codec, DeviceError, Dialect, Input, Job, KeyName, Level, Nonce, Outcome,
    TAG_BYTES, Task,
};
use runtime::{Finished, Run, TokioRuntime};
use store::frame::FrameVersion;
use units::limits::{FRAME_HEADER_BYTES_MAX, KEY_BYTES_MAX};
use units::{ByteCount, Nanos, TraceContext};

use crate::context::WorkerContext;
use crate::values::{RequestedFollow, ResultMemory};

/// A job that another process asked for.
pub(crate) struct AskedJob {
    task: Task,
    follow: Option<RequestedFollow>,
    /// Whether nothing follows for lack of the key.
    pub(crate) follow_key_unknown: bool,
    class: Class,
    /// The largest result of the job's own op that is of use (bytes).
    pub(crate) output_bytes_max: usize,
    /// The trace of the request that needs the job, if its caller records it.
    trace: Option<TraceContext>,
}

/// The reason why a message is no job for this process.
#[derive(Debug)]
pub(crate) enum NotAJob {
    /// The caller must send another message.
    Invalid(String),
    /// This process does not have the key, or does not serve ciphers to the caller.
    UnknownKey,
}

impl AskedJob {
    /// Checks a message whose payload has `input_bytes`. `may_cipher` tells whether the caller may use the keys of this
    /// process.
    pub(crate) fn read(
        context: &WorkerContext,
        request: &RunRequest,
        input_bytes: usize,
        may_cipher: impl Fn() -> bool,
    ) -> Result<Self, NotAJob> {
        let keys = Keys { context, may_cipher: &may_cipher };
        let task = task(request, input_bytes, &keys)?;
        let class = class(request)?;
        check_tenant(request)?;
        // A value in its frame may be longer than an item.
        let slack_bytes = if task.is_cipher() { STREAM_SLACK_BYTES } else { 0 };
        let output_bytes_max = request.output_bytes as usize;
        within(context, "output_bytes", output_bytes_max.saturating_sub(slack_bytes))?;
        if let Task::Compress { .. } = task {
            within(context, "the payload's size", input_bytes)?;
        }
        let (follow, follow_key_unknown) = match follow(request, &task, &keys) {
            Err(NotAJob::UnknownKey) => (None, true),
            follow => (follow?, false),
        };
        if let Some(RequestedFollow::OpenFrame { original_bytes }) = follow {
            within(context, "follow.open_frame.original_bytes", original_bytes)?;
        }
        let trace = request.traceparent.parse::<TraceContext>().ok();
        let trace = trace.filter(|trace| trace.is_sampled);
        Ok(Self { task, follow, follow_key_unknown, class, output_bytes_max, trace })
    }

    /// Returns the size of all results together (bytes).
    pub(crate) fn results_bytes_max(&self) -> usize {
        let follow = self.follow.as_ref();
        let first_bytes = self.output_bytes_max;
        first_bytes + follow.map_or(0, |follow| follow.output_bytes_max(first_bytes))
    }

    /// Returns the space that the first result needs in front of it (bytes), at least `front_bytes`.
    pub(crate) fn front_bytes(&self, front_bytes: usize) -> usize {
        match self.follow {
            Some(RequestedFollow::SealStream { .. }) => front_bytes.max(FRAME_HEADER_BYTES_MAX),
            Some(RequestedFollow::OpenFrame { .. }) | None => front_bytes,
        }
    }

    /// Makes the job. The result begins at `front_bytes` of the output. The result of an op that follows goes to
    /// `memory`, and begins at `front_bytes` there too.
    pub(crate) fn into_job(
        self,
        input: Input,
        output: Buffer,
        (memory, front_bytes): (ResultMemory, usize),
    ) -> Box<Job> {
        let mut job = Box::new(Job::new(self.task, input, output));
        job.output_offset = front_bytes;
        job.class = self.class;
        job.trace = self.trace.map(Box::new);
        let follow = self.follow.and_then(|asked| asked.follow(&job, (memory, front_bytes)));
        job.chain = follow.map(|follow| Chain::new(&job, vec![follow]));
        job
    }
}

/// What became of a job that another process asked for.
pub(crate) enum JobOutcome {
    Done {
        /// The result of the job's own op and the time that it took, if an op followed.
        first: Option<(Bytes, Nanos)>,
        /// The buffer with the last result, and its part that is the result.
        output: Buffer,
        part: Range<usize>,
    },
    DoesNotFit,
    InvalidInput,
    Busy,
    Fault,
}

impl JobOutcome {
    /// Returns what became of a job whose own op may have a result of at most `output_bytes_max`.
    pub(crate) fn new(finished: Finished, output_bytes_max: usize) -> Self {
        let Finished { job, outcome, .. } = finished;
        let done = job.chain.as_ref().and_then(|chain| chain.done().first());
        let first = done.map(|step| (step.result.clone(), step.service));
        let first_bytes = match (&outcome, &first) {
            (_, Some((first, _))) => first.len(),
            (Outcome::Done { output_bytes }, None) => *output_bytes,
            (_, None) => 0,
        };
        // A buffer may be longer than requested, so a result may be too long.
        if first_bytes > output_bytes_max {
            return Self::DoesNotFit;
        }
        match (outcome, first) {
            (Outcome::Done { output_bytes }, first) => {
                let part = job.output_offset..job.output_offset + output_bytes;
                Self::Done { first, output: job.output, part }
            }
            // The caller continues from the first result.
            (_, Some((first, _))) => {
                let mut output = job.output;
                output.adopt(first);
                Self::Done { first: None, part: 0..first_bytes, output }
            }
            (Outcome::DoesNotFit, None) => Self::DoesNotFit,
            (Outcome::Failed(DeviceError::InvalidInput(_)), None) => Self::InvalidInput,
            (Outcome::Failed(DeviceError::Busy), None) => Self::Busy,
            (Outcome::Failed(_), None) => Self::Fault,
        }
    }
}

/// A job that has begun, with what follows it.
pub(crate) enum Begun {
    Job(Run),
    Chain(TokioRuntime, Box<Job>),
}

impl Begun {
    /// Begins the job. One with a chain begins at the first poll of [`Begun::finished`].
    pub(crate) fn new(runtime: &TokioRuntime, job: Box<Job>) -> Self {
        match job.chain {
            Some(_) => Self::Chain(runtime.clone(), job),
            None => Self::Job(runtime.run(job)),
        }
    }

    /// Waits for the end of the job and of what follows it. The times are those of all ops.
    pub(crate) async fn finished(self) -> Finished {
        match self {
            Begun::Job(run) => run.await,
            Begun::Chain(runtime, job) => {
                let since = Instant::now();
                let (mut finished, _) = Box::pin(runtime.run_chain(job)).await;
                let done = finished.job.chain.iter().flat_map(|chain| chain.done());
                let before = done.fold(0, |sum: u64, step| sum.saturating_add(step.service.0));
                let service = Nanos(finished.service.0.saturating_add(before));
                let total = Nanos(since.elapsed().as_nanos().try_into().unwrap_or(u64::MAX));
                (finished.service, finished.total) = (service, total.max(service));
                finished
            }
        }
    }
}

/// The keys that the caller may use.
struct Keys<'a> {
    context: &'a WorkerContext,
    may_cipher: &'a dyn Fn() -> bool,
}

impl Keys<'_> {
    /// Returns the task of a cipher.
    fn task(&self, cipher: Option<&v1::Cipher>, encrypts: bool) -> Result<Task, NotAJob> {
        let cipher = cipher.ok_or_else(|| NotAJob::Invalid("cipher is missing".into()))?;
        let check = sized::<KEY_CHECK_BYTES>("cipher.key_check", &cipher.key_check)?;
        let nonce = Nonce(sized::<NONCE_BYTES>("cipher.nonce", &cipher.nonce)?);
        let bytes = cipher.associated.len();
        if bytes > ASSOCIATED_BYTES_MAX {
            let valid = format!("0 to {ASSOCIATED_BYTES_MAX}");
            return Err(invalid("the size of cipher.associated", bytes, &valid));
        }
        let id = u16::try_from(cipher.key_id)
            .map_err(|_| invalid("cipher.key_id", cipher.key_id, "1 to 65535"))?;
        let serves = self.context.config.server.ciphers;
        let key = self.context.values.key(KeyName { id, check }).filter(|_| serves);
        let key = key.filter(|_| (self.may_cipher)()).ok_or(NotAJob::UnknownKey)?;
        let associated = (&cipher.associated[..]).into();
        Ok(match encrypts {
            true => Task::Encrypt { key, nonce, associated },
            false => Task::Decrypt { key, nonce, associated },
        })
    }
}

fn task(request: &RunRequest, input_bytes: usize, keys: &Keys<'_>) -> Result<Task, NotAJob> {
    let valid_ops = "1 (compress), 2 (decompress), 3 (encrypt) or 4 (decrypt)";
    let cipher = request.cipher.as_deref();
    match v1::Op::try_from(request.op) {
        Ok(v1::Op::Compress) => {
            Ok(Task::Compress { dialect: dialect(request)?, level: level(request)? })
        }
        Ok(v1::Op::Decompress) => {
            let original_bytes = request.output_bytes as usize;
            Ok(Task::Decompress { dialect: dialect(request)?, original_bytes })
        }
        Ok(v1::Op::Encrypt) => {
            check_cipher_sizes(request, input_bytes.checked_add(TAG_BYTES))?;
            keys.task(cipher, true)
        }
        Ok(v1::Op::Decrypt) => {
            check_cipher_sizes(request, input_bytes.checked_sub(TAG_BYTES))?;
            keys.task(cipher, false)
        }
        Ok(v1::Op::Unspecified) | Err(_) => Err(invalid("op", request.op, valid_ops)),
    }
}

fn check_cipher_sizes(request: &RunRequest, output_bytes: Option<usize>) -> Result<(), NotAJob> {
    let Some(bytes) = output_bytes else {
        return Err(NotAJob::Invalid(format!("the payload is shorter than a tag ({TAG_BYTES})")));
    };
    match request.output_bytes as usize == bytes {
        true => Ok(()),
        false => Err(invalid("output_bytes", request.output_bytes, &bytes.to_string())),
    }
}

/// Returns what follows the task.
fn follow(
    request: &RunRequest,
    task: &Task,
    keys: &Keys<'_>,
) -> Result<Option<RequestedFollow>, NotAJob> {
    let Some(v1::Follow { op: Some(op) }) = request.follow.as_deref() else { return Ok(None) };
    match (op, task) {
        (FollowOp::SealStream(seal), Task::Compress { .. }) => {
            let version = u8::try_from(seal.frame_version).ok().and_then(FrameVersion::from_number);
            let version = version.ok_or_else(|| {
                invalid("follow.seal_stream.frame_version", seal.frame_version, "1 or 2")
            })?;
            let key_bytes = seal.item_key.len();
            if key_bytes > KEY_BYTES_MAX {
                let valid = format!("0 to {KEY_BYTES_MAX}");
                return Err(invalid("the size of follow.seal_stream.item_key", key_bytes, &valid));
            }
            let task = keys.task(seal.cipher.as_ref(), true)?;
            let item_key = seal.item_key.clone();
            let frame_bytes_max = seal.frame_bytes_max as usize;
            let follow = RequestedFollow::SealStream { item_key, version, frame_bytes_max, task };
            Ok(Some(follow))
        }
        (FollowOp::OpenFrame(open), Task::Decrypt { .. }) => {
            let original_bytes = open.original_bytes as usize;
            Ok(Some(RequestedFollow::OpenFrame { original_bytes }))
        }
        _ => {
            let valid = "seal_stream behind a compression, or open_frame behind a decryption";
            Err(NotAJob::Invalid(format!(
                "follow does not fit op {}; valid is {valid}",
                request.op
            )))
        }
    }
}

fn dialect(request: &RunRequest) -> Result<Dialect, NotAJob> {
    let codec = Codec::from_grpc_number(request.codec).ok_or_else(|| {
        let valid = Codec::ALL.map(|codec| format!("{} ({})", codec.grpc_number(), codec.name()));
        invalid("codec", request.codec, &valid.join(", "))
    })?;
    let window = u8::try_from(request.window_log2).ok().filter(|log2| *log2 <= WINDOW_LOG2_MAX);
    let window = window.ok_or_else(|| {
        invalid("window_log2", request.window_log2, &format!("0 to {WINDOW_LOG2_MAX}"))
    })?;
    Ok(Dialect { codec, window_log2: (window != 0).then_some(window) })
}

fn level(request: &RunRequest) -> Result<Level, NotAJob> {
    let valid = "0 (default), 1 (fast) or 2 (high)";
    match v1::Level::try_from(request.level) {
        Ok(v1::Level::Default) => Ok(Level::Default),
        Ok(v1::Level::Fast) => Ok(Level::Fast),
        Ok(v1::Level::High) => Ok(Level::High),
        Err(_) => Err(invalid("level", request.level, valid)),
    }
}

fn class(request: &RunRequest) -> Result<Class, NotAJob> {
    match v1::Class::try_from(request.class) {
        Ok(v1::Class::LatencyCritical) => Ok(Class::LatencyCritical),
        Ok(v1::Class::Batch) => Ok(Class::Batch),
        Err(_) => Err(invalid("class", request.class, "0 (latency-critical) or 1 (batch)")),
    }
}

/// Checks the range of the tenant id in a request. The id is otherwise ignored, because the whole connection
/// of the caller is one tenant here.
fn check_tenant(request: &RunRequest) -> Result<(), NotAJob> {
    match u16::try_from(request.tenant) {
        Ok(_) => Ok(()),
        Err(_) => Err(invalid("tenant", request.tenant, "0 to 65535")),
    }
}

fn within(context: &WorkerContext, what: &str, bytes: usize) -> Result<(), NotAJob> {
    let max = context.limits.item_bytes_max;
    let bytes = ByteCount(bytes as u64);
    match bytes <= max {
        true => Ok(()),
        false => Err(invalid(what, bytes, &format!("0 to {max} (store.item_bytes_max)"))),
    }
}

fn sized<const N: usize>(what: &str, bytes: &Bytes) -> Result<[u8; N], NotAJob> {
    let problem = || invalid(&format!("the size of {what}"), bytes.len(), &N.to_string());
    bytes[..].try_into().map_err(|_| problem())
}

fn invalid(what: &str, value: impl fmt::Display, valid: &str) -> NotAJob {
    NotAJob::Invalid(format!("{what} is {value}; valid is {valid}"))
}

/// The base-2 logarithm of the largest window, which is twice the size of the largest item.
const WINDOW_LOG2_MAX: u8 = 31;

/// The longest associated data of a cipher (bytes): a header, the name of a tenant, and the key of an item.
const ASSOCIATED_BYTES_MAX: usize = 1 << 10;

/// The bytes by which a compressed stream, or a value in its frame, may be longer than an item.
pub(crate) const STREAM_SLACK_BYTES: usize = 64 << 10;
