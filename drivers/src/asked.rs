//! Jobs as messages of the gRPC interface, for services that are reached over gRPC or a lane, and the answers of such
//! services as outcomes. A service is not trusted: a result is used only if the job allows its size, and an op that
//! follows in the service must be the one that follows in this process. This module sends nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use api::v1::{self, RunRequest};
use bytes::Bytes;
use device::{Capabilities, Class, DeviceError, Job, Kernel, Level, Outcome, Successions, Task};
use units::{Nanos, Op};

/// Returns the job as a message with this payload. Returns none for a task that services do not have, and for a cipher
/// whose key has no name.
pub(crate) fn message(
    job: &Job,
    output_bytes: u32,
    payload: Bytes,
    keys: &UnknownKeys,
    now: impl FnOnce() -> Nanos,
) -> Option<RunRequest> {
    let (op, level) = match job.task {
        Task::Compress { level, .. } => (v1::Op::Compress, self::level(level)),
        Task::Decompress { .. } => (v1::Op::Decompress, v1::Level::Default),
        Task::Encrypt { .. } => (v1::Op::Encrypt, v1::Level::Default),
        Task::Decrypt { .. } => (v1::Op::Decrypt, v1::Level::Default),
        Task::Checksum { .. } | Task::Copy | Task::Function(_) => return None,
    };
    let cipher = match job.task.is_cipher() {
        true => Some(Box::new(cipher(&job.task)?)),
        false => None,
    };
    let dialect = job.task.dialect();
    let window_log2 = dialect.and_then(|dialect| dialect.window_log2);
    let class = match job.class {
        Class::LatencyCritical => v1::Class::LatencyCritical,
        Class::Batch => v1::Class::Batch,
    };
    Some(RunRequest {
        op: op.into(),
        codec: dialect.map_or(0, |dialect| dialect.codec.grpc_number()),
        // Any wider window contains every value as a whole.
        window_log2: window_log2.unwrap_or(0).min(WINDOW_LOG2_MAX).into(),
        level: level.into(),
        output_bytes,
        tenant: job.tenant.0.into(),
        class: class.into(),
        traceparent: job.trace.as_ref().map_or_else(String::new, |trace| trace.to_string()),
        cipher,
        follow: follow(job).filter(|_| !keys.are_likely(now())).map(Box::new),
        payload,
    })
}

/// Returns the job as a message without a payload, if only a message can describe it, because it has a key or an op
/// that follows.
pub(crate) fn needed_message(
    job: &Job,
    output_bytes: u32,
    keys: &UnknownKeys,
    now: impl FnOnce() -> Nanos,
) -> Option<RunRequest> {
    if !job.task.is_cipher() && job.chain.is_none() {
        return None;
    }
    let message = message(job, output_bytes, Bytes::new(), keys, now)?;
    (message.cipher.is_some() || message.follow.is_some()).then_some(message)
}

/// Returns the task of a cipher as a message, if its key has a name.
fn cipher(task: &Task) -> Option<v1::Cipher> {
    let (name, nonce, associated) = task.named_cipher()?;
    Some(v1::Cipher::new(name.id, &name.check, &nonce.0, associated.as_slice()))
}

/// Returns what follows the job's op, if it can be described.
fn follow(job: &Job) -> Option<v1::Follow> {
    let follow = job.chain.as_ref()?.next_follow()?;
    let encoded = follow.message()?;
    prost::Message::decode(&encoded[..]).ok()
}

/// The sizes of the results that a service gave (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The result of the job's own op, and the time that the op took, if an op followed.
    pub(crate) first: Option<(usize, Nanos)>,
    /// The last result.
    pub(crate) last: usize,
}

/// The result that is wanted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    First,
    Last,
}

/// Takes the results of a job that is done, and moves the job along its chain if an op followed. `put` writes a result
/// into the job's output behind `output_offset`, and says whether it could.
pub(crate) fn take_results(
    job: &mut Job,
    sizes: Sizes,
    mut put: impl FnMut(&mut Job, Which) -> bool,
) -> Outcome {
    if let Some((first_bytes, service)) = sizes.first {
        if job.chain.as_ref().is_none_or(|chain| chain.next_op().is_none()) {
            return fault(NOTHING_FOLLOWS);
        }
        if let Some(why) = take(job, first_bytes, |job| put(job, Which::First)) {
            return fault(why);
        }
        if !job.advance(first_bytes, service, |_, _| true) {
            return fault(NOTHING_FOLLOWS);
        }
    }
    match take(job, sizes.last, |job| put(job, Which::Last)) {
        Some(why) => fault(why),
        None => Outcome::Done { output_bytes: sizes.last },
    }
}

/// Takes one result, or returns why not.
fn take(
    job: &mut Job,
    output_bytes: usize,
    put: impl FnOnce(&mut Job) -> bool,
) -> Option<&'static str> {
    let exact = job.task.output_bytes(job.input.len());
    let expected = exact.map_or(output_bytes > 0, |exact| output_bytes == exact);
    if !expected || output_bytes > output_capacity(job) {
        return Some("the service's result has another size");
    }
    (!put(job)).then_some("the service's result lies outside of its memory")
}

/// Returns whether the task can have an invalid input.
pub(crate) fn may_be_invalid(task: &Task) -> bool {
    matches!(task, Task::Decompress { .. } | Task::Decrypt { .. })
}

/// Returns the error of a job that no service could complete.
pub(crate) fn misfit(job: &Job) -> Option<DeviceError> {
    let misfits =
        job.task.output_bytes(job.input.len()).is_some_and(|exact| exact > output_capacity(job));
    misfits.then_some(DeviceError::InvalidInput("the output buffer has no room for the result"))
}

/// Returns the exact size of the result (bytes), or for a compression the largest size that fits.
pub(crate) fn output_bytes_max(job: &Job, work_bytes_max: usize) -> u32 {
    let exact = job.task.output_bytes(job.input.len());
    let bytes = exact.unwrap_or_else(|| output_capacity(job).min(work_bytes_max));
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the space for the result (bytes).
fn output_capacity(job: &Job) -> usize {
    job.output.capacity().saturating_sub(job.output_offset)
}

fn fault(what: &'static str) -> Outcome {
    Outcome::Failed(DeviceError::Fault(what))
}

fn level(level: Level) -> v1::Level {
    match level {
        Level::Fast => v1::Level::Fast,
        Level::Default => v1::Level::Default,
        Level::High => v1::Level::High,
    }
}

/// What a device remembers of keys that its service does not have. Its queues share it.
#[derive(Debug)]
pub(crate) struct UnknownKeys {
    /// The device.
    name: String,
    /// The time until which the service is asked for no ciphers (ns), or zero.
    until: AtomicU64,
    /// The time until which the log says nothing more about it (ns), or zero.
    quiet_until: AtomicU64,
}

impl UnknownKeys {
    pub(crate) fn new(name: &str) -> Self {
        let (until, quiet_until) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { name: name.to_owned(), until, quiet_until }
    }

    /// Records that the service does not have a key, and logs it now and then.
    pub(crate) fn record(&self, now: Nanos) {
        self.until.store(now.0.saturating_add(ASK_AGAIN_AFTER.0), Ordering::Relaxed);
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        if quiet_until == 0 || now.0 >= quiet_until {
            let quiet_until = now.0.saturating_add(LOG_EVERY.0);
            self.quiet_until.store(quiet_until, Ordering::Relaxed);
            let name = &self.name;
            tracing::warn!(
                "{name} lacks a key of values.keys, has another secret under its id, or does not \
                 serve ciphers to this process: give it the same keys and server.ciphers = true"
            );
        }
    }

    /// Returns whether the service may have what the task needs: a key of a cipher with a name, which it did not refuse
    /// lately.
    pub(crate) fn allow(&self, task: &Task, now: impl FnOnce() -> Nanos) -> bool {
        !task.is_cipher() || (task.named_cipher().is_some() && !self.are_likely(now()))
    }

    fn are_likely(&self, now: Nanos) -> bool {
        now.0 < self.until.load(Ordering::Relaxed)
    }
}

/// Returns the successions of a service with these capabilities.
pub(crate) fn successions(capabilities: &Capabilities) -> Successions {
    match capabilities.kernels.contains(&Kernel::AesGcm) {
        true => {
            Successions::Pairs(vec![(Op::Compress, Op::Encrypt), (Op::Decrypt, Op::Decompress)])
        }
        false => Successions::None,
    }
}

const NOTHING_FOLLOWS: &str = "the service ran an op that does not follow";

/// The least time between two lines of the log about a service that lacks a key.
const LOG_EVERY: Nanos = Nanos::secs(300);

/// The time for which no cipher goes to a service that did not have a key. Keys are read again every second.
const ASK_AGAIN_AFTER: Nanos = Nanos::secs(10);

/// The widest window that may be requested from a service (log2 bytes).
const WINDOW_LOG2_MAX: u8 = 31;

#[cfg(test)]
mod tests {
    use device::Codec;

    use super::*;

    #[test]
    fn the_numbers_of_codecs_are_those_of_the_interface() {
        for codec in Codec::ALL {
            let known = v1::Codec::try_from(codec.grpc_number()).expect("the interface has it");
            let name = format!("CODEC_{}", codec.name().to_uppercase());
            assert_eq!(known.as_str_name(), name);
        }
    }

    fn job(task: Task) -> Job {
        let pool = device::Pool::heap(units::ByteCount(0));
        Job::new(task, device::Input::heap(Bytes::from_static(b"input")), pool.take(64))
    }

    #[test]
    fn results_that_the_job_does_not_allow_are_faults() {
        let compress =
            Task::Compress { dialect: device::Dialect::new(Codec::Deflate), level: Level::Fast };
        let put = |job: &mut Job, _| {
            job.output.set_len(4);
            true
        };
        let results =
            |first, last| take_results(&mut job(compress.clone()), Sizes { first, last }, put);
        assert_eq!(results(None, 4), Outcome::Done { output_bytes: 4 });
        for (first, last) in [(None, 0), (None, 1 << 20), (Some((4, Nanos(1))), 4)] {
            assert!(matches!(results(first, last), Outcome::Failed(_)), "{first:?}, {last}");
        }
    }

    #[test]
    fn a_service_without_a_key_is_asked_for_no_cipher_for_a_while() {
        let name = device::KeyName { id: 1, check: [0; 8] };
        let key = device::Key::new(&[1; 32]).with_name(name);
        let nonce = device::Nonce([1; 12]);
        let cipher = Task::Encrypt { key, nonce, associated: device::AssociatedData::NONE };
        let (keys, at) = (UnknownKeys::new("service"), Nanos::secs(1));
        assert!(keys.allow(&cipher, || at));
        keys.record(at);
        assert!(!keys.allow(&cipher, || at) && keys.allow(&Task::Copy, || at));
        assert!(keys.allow(&cipher, || Nanos::secs(12)));
        let nameless = device::Key::new(&[1; 32]);
        let task = Task::Encrypt { key: nameless, nonce, associated: device::AssociatedData::NONE };
        assert!(!UnknownKeys::new("other").allow(&task, || at), "nobody else can find it");
    }
}
