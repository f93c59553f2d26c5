//! Turns jobs into requests, and answers into completions. The service is not trusted. A result is copied to the
//! job's output only if the job allows its size, and every status becomes an error that says who must act.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::LoginFile;
use api::v1::run_response::Outcome as Answer;
use api::v1::{self, RunManyRequest, RunRequest, RunResponse};
use bytes::Bytes;
use device::{Class, Completion, DeviceError, Job, Level, Outcome, Task};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Uri;
use tonic::{Code, Request, Status};
use units::{ByteCount, Clock, Nanos};

use super::RemoteOptions;

/// The part that all requests to a service have in common.
#[derive(Clone)]
pub(super) struct Format {
    origin: Uri,
    timeout: Duration,
    timeout_header: MetadataValue<Ascii>,
    work_bytes_max: ByteCount,
    clock: Arc<dyn Clock>,
    login: Option<Arc<LoginFile>>,
    /// The calls that the service refused because of the login. All queues of the device share it.
    logins_refused: Arc<AtomicU64>,
}

impl Format {
    pub(super) fn new(origin: Uri, options: &RemoteOptions) -> Self {
        let RemoteOptions { timeout, work_bytes_max, .. } = *options;
        let clock = Arc::clone(&options.clock);
        let timeout_header = timeout_header(timeout);
        let (login, logins_refused) = (options.login.clone(), Arc::default());
        Self { origin, timeout, timeout_header, work_bytes_max, clock, login, logins_refused }
    }

    pub(super) fn origin(&self) -> &Uri {
        &self.origin
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn timed<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("grpc-timeout", self.timeout_header.clone());
        if let Some(login) = &self.login {
            login.current().authorize(&mut request);
        }
        request
    }

    pub(super) fn logins_refused(&self) -> u64 {
        self.logins_refused.load(Ordering::Relaxed)
    }

    /// Counts a call that the service refused because of the login, or because there is none. Returns why it did, or
    /// `None` for any other answer.
    pub(super) fn login_refused(&self, status: &Status) -> Option<String> {
        if !is_login_refused(status) {
            return None;
        }
        self.logins_refused.fetch_add(1, Ordering::Relaxed);
        let message = status.message();
        Some(match &self.login {
            Some(login) => {
                format!("it refuses the login of user {:?}: {message}", login.current().user())
            }
            None => format!("it wants a login, and there is none: {message}"),
        })
    }

    pub(super) fn request(&self, job: &Job) -> Request<RunRequest> {
        let mut request = self.timed(self.message(job));
        if let Some(left) = self.less_than_timeout(job) {
            request.metadata_mut().insert("grpc-timeout", timeout_header(left));
        }
        request
    }

    /// Returns one request for several jobs.
    pub(super) fn many<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> Request<RunManyRequest> {
        self.timed(RunManyRequest { jobs: jobs.map(|job| self.message(job)).collect() })
    }

    /// Returns whether the job may share a call with other jobs. It must be short, so that the others do not
    /// wait long for its answer. Its deadline must not be earlier than the timeout of the call.
    pub(super) fn may_share(&self, job: &Job) -> bool {
        job.work_bytes() <= SHARED_WORK_BYTES_MAX && self.less_than_timeout(job).is_none()
    }

    fn message(&self, job: &Job) -> RunRequest {
        let (op, level) = match job.task {
            Task::Compress { level, .. } => (v1::Op::Compress, self::level(level)),
            Task::Decompress { .. } => (v1::Op::Decompress, v1::Level::Default),
            // The API has no such op, so the capabilities refuse the job before this.
            Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy
            | Task::Function(_) => (v1::Op::Unspecified, v1::Level::Default),
        };
        let dialect = job.task.dialect();
        let window_log2 = dialect.and_then(|dialect| dialect.window_log2);
        let class = match job.class {
            Class::LatencyCritical => v1::Class::LatencyCritical,
            Class::Batch => v1::Class::Batch,
        };
        RunRequest {
            op: op.into(),
            codec: dialect.map_or(0, |dialect| dialect.codec.grpc_number()),
            // Any wider window contains every value as a whole.
            window_log2: window_log2.unwrap_or(0).min(WINDOW_LOG2_MAX).into(),
            level: level.into(),
            output_bytes: self.output_bytes(job),
            tenant: job.tenant.0.into(),
            class: class.into(),
            traceparent: job.trace.as_ref().map_or_else(String::new, |trace| trace.to_string()),
            payload: job.input.bytes().clone(),
        }
    }

    /// Returns the time until the job's deadline if it is shorter than the timeout of all calls.
    fn less_than_timeout(&self, job: &Job) -> Option<Duration> {
        let left = Duration::from(job.deadline?.since(self.clock.now()));
        Some(left).filter(|left| *left < self.timeout)
    }

    /// Returns the size of the longest answer that is accepted (bytes).
    pub(super) fn answer_bytes_max(&self, job: &Job) -> usize {
        self.output_bytes(job) as usize + api::wire::MESSAGE_SLACK_BYTES
    }

    /// Returns the exact size of the result (bytes), or for a compression the largest size that fits.
    pub(super) fn output_bytes(&self, job: &Job) -> u32 {
        let exact = job.task.output_bytes(job.input.len());
        let bytes =
            exact.unwrap_or_else(|| output_capacity(job).min(self.work_bytes_max.as_usize()));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// Returns the error of a job that no service could complete.
pub(super) fn misfit(job: &Job) -> Option<DeviceError> {
    let misfits =
        job.task.output_bytes(job.input.len()).is_some_and(|exact| exact > output_capacity(job));
    misfits.then_some(DeviceError::InvalidInput("the output buffer has no room for the result"))
}

/// Returns the completion of a job from the service's answer.
pub(super) fn completion(mut job: Box<Job>, answer: Result<RunResponse, Status>) -> Completion {
    let (outcome, service) = match answer {
        Ok(response) => {
            let service = Nanos(response.service_ns.saturating_add(response.queueing_ns));
            (outcome(&mut job, &response), service)
        }
        Err(status) => (Outcome::Failed(error(&status)), Nanos(0)),
    };
    Completion { job, outcome, service }
}

fn outcome(job: &mut Job, response: &RunResponse) -> Outcome {
    let fault = |what| Outcome::Failed(DeviceError::Fault(what));
    let is_compress = matches!(job.task, Task::Compress { .. });
    match response.outcome() {
        Answer::Done => take(job, &response.payload),
        Answer::DoesNotFit if is_compress => Outcome::DoesNotFit,
        Answer::InvalidInput if !is_compress => {
            Outcome::Failed(DeviceError::InvalidInput("the service says it is no valid stream"))
        }
        Answer::Fault => fault("the service failed the job"),
        Answer::Busy => Outcome::Failed(DeviceError::Busy),
        _ => fault("the service gave an outcome that this job cannot have"),
    }
}

fn take(job: &mut Job, result: &Bytes) -> Outcome {
    let (offset, output_bytes) = (job.output_offset, result.len());
    let exact = job.task.output_bytes(job.input.len());
    let expected = exact.map_or(output_bytes > 0, |exact| output_bytes == exact);
    let end = offset.saturating_add(output_bytes);
    if !expected || end > job.output.capacity() {
        return Outcome::Failed(DeviceError::Fault("the service's result has another size"));
    }
    if offset == 0 {
        job.output.adopt(result.clone());
    } else {
        job.output.space()[offset..end].copy_from_slice(result);
        job.output.set_len(end);
    }
    Outcome::Done { output_bytes }
}

/// Returns the error of a job that has no answer. The error says who must act.
fn error(status: &Status) -> DeviceError {
    // A status that the service did not send describes a failure of the connection.
    let of_connection = status.source().is_some();
    match status.code() {
        Code::ResourceExhausted => DeviceError::Busy,
        _ if of_connection => DeviceError::Lost,
        Code::Unavailable => DeviceError::Lost,
        Code::DeadlineExceeded => DeviceError::Timeout,
        Code::InvalidArgument => DeviceError::Fault("the service refused the job as invalid"),
        _ if is_login_refused(status) => {
            DeviceError::Misconfigured(format!("it refuses the login: {}", status.message()))
        }
        Code::Unimplemented => {
            let what = "it is no compression service";
            DeviceError::Misconfigured(format!("{what}: {}", status.message()))
        }
        _ => DeviceError::Fault("the call failed"),
    }
}

/// Returns whether the service refuses every call of this caller.
fn is_login_refused(status: &Status) -> bool {
    let is_about_login = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
    is_about_login && status.source().is_none()
}

/// Returns the space for the result (bytes).
fn output_capacity(job: &Job) -> usize {
    job.output.capacity().saturating_sub(job.output_offset)
}

fn level(level: Level) -> v1::Level {
    match level {
        Level::Fast => v1::Level::Fast,
        Level::Default => v1::Level::Default,
        Level::High => v1::Level::High,
    }
}

/// Returns the value of the `grpc-timeout` header, with at most eight digits as gRPC over HTTP/2 requires.
fn timeout_header(timeout: Duration) -> MetadataValue<Ascii> {
    let text = match timeout.as_micros() {
        micros if micros <= TIMEOUT_COUNT_MAX => format!("{}u", micros.max(1)),
        micros => format!("{}m", (micros / 1_000).min(TIMEOUT_COUNT_MAX)),
    };
    MetadataValue::try_from(text).expect("digits and a letter are ASCII")
}

/// The largest job that shares a call with other jobs (bytes). The size of a job is the larger of its input and, for a
/// decompression, its result. A job of this size takes some tens of microseconds, which is about the cost of a call of
/// its own.
const SHARED_WORK_BYTES_MAX: usize = 16 << 10;

const TIMEOUT_COUNT_MAX: u128 = 99_999_999;

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
}
