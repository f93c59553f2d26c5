//! Turns jobs into requests, and answers into completions. The service is not trusted. A result is copied to the
//! job's output only if the job allows its size, and every status becomes an error that says who must act.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::LoginFile;
use api::v1::run_response::Outcome as Answer;
use api::v1::{RunManyRequest, RunRequest, RunResponse};
use bytes::Bytes;
use device::{Completion, DeviceError, Job, Outcome, Task};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Uri;
use tonic::{Code, Request, Status};
use units::{ByteCount, Clock, Nanos};

use super::RemoteOptions;
use crate::asked::{self, Sizes, UnknownKeys, Which};

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
    pub(super) unknown_keys: Arc<UnknownKeys>,
}

impl Format {
    pub(super) fn new(name: &str, origin: Uri, options: &RemoteOptions) -> Self {
        let RemoteOptions { timeout, work_bytes_max, .. } = *options;
        let clock = Arc::clone(&options.clock);
        let timeout_header = timeout_header(timeout);
        let (login, logins_refused) = (options.login.clone(), Arc::default());
        let unknown_keys = Arc::new(UnknownKeys::new(name));
        Self {
            origin,
            timeout,
            timeout_header,
            work_bytes_max,
            clock,
            login,
            logins_refused,
            unknown_keys,
        }
    }

    pub(super) fn origin(&self) -> &Uri {
        &self.origin
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
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

    /// Returns whether the job may share a call with other jobs. It must be short, so that the others do not wait long
    /// for its answer, and of a kind that every service has. Its deadline must not be earlier than the timeout of the
    /// call.
    pub(super) fn may_share(&self, job: &Job) -> bool {
        let is_plain = !job.task.is_cipher() && job.chain.is_none();
        is_plain
            && job.work_bytes() <= SHARED_WORK_BYTES_MAX
            && self.less_than_timeout(job).is_none()
    }

    fn message(&self, job: &Job) -> RunRequest {
        let payload = job.input.bytes().clone();
        let (keys, now) = (&self.unknown_keys, || self.clock.now());
        let message = asked::message(job, self.output_bytes(job), payload, keys, now);
        message.expect("the queue takes no other jobs")
    }

    /// Returns the time until the job's deadline if it is shorter than the timeout of all calls.
    fn less_than_timeout(&self, job: &Job) -> Option<Duration> {
        let left = Duration::from(job.deadline?.since(self.clock.now()));
        Some(left).filter(|left| *left < self.timeout)
    }

    /// Returns the size of the longest answer that is accepted (bytes).
    pub(super) fn answer_bytes_max(&self, job: &Job) -> usize {
        self.results_bytes(job) + api::wire::MESSAGE_SLACK_BYTES
    }

    /// Returns the size of the results in the longest answer (bytes).
    pub(super) fn results_bytes(&self, job: &Job) -> usize {
        let first_bytes = self.output_bytes(job) as usize;
        let follow = job.chain.as_ref().and_then(|chain| chain.next_follow());
        // A seal is little longer than its stream.
        first_bytes + follow.map_or(0, |follow| follow.work_bytes().max(first_bytes))
    }

    fn output_bytes(&self, job: &Job) -> u32 {
        asked::output_bytes_max(job, self.work_bytes_max.as_usize())
    }
}

/// Returns the completion of a job from the service's answer.
pub(super) fn completion(mut job: Box<Job>, answer: Result<RunResponse, Status>) -> Completion {
    // A service from before there were ciphers.
    let is_too_old = answer.as_ref().is_err_and(|status| lacks_ciphers(&job, status));
    if is_too_old {
        let outcome = Outcome::Failed(DeviceError::Busy);
        return Completion { job, outcome, service: Nanos(0) };
    }
    let (outcome, service) = match answer {
        Ok(response) => {
            let service = Nanos(response.service_ns.saturating_add(response.queueing_ns));
            (outcome(&mut job, &response), service)
        }
        Err(status) => (Outcome::Failed(error(&status)), Nanos(0)),
    };
    Completion { job, outcome, service }
}

/// Returns whether the service refuses the job because it does not know ciphers.
fn lacks_ciphers(job: &Job, status: &Status) -> bool {
    job.task.is_cipher() && status.code() == Code::InvalidArgument
}

/// Returns whether the answer says that the service does not have a key.
pub(super) fn lacks_key(job: &Job, answer: &Result<RunResponse, Status>) -> bool {
    match answer {
        Ok(answer) => {
            let is_unknown = answer.outcome() == Answer::UnknownKey && job.task.is_cipher();
            is_unknown || (answer.follow_key_unknown && job.chain.is_some())
        }
        Err(status) => lacks_ciphers(job, status),
    }
}

fn outcome(job: &mut Job, response: &RunResponse) -> Outcome {
    let fault = |what| Outcome::Failed(DeviceError::Fault(what));
    let is_compress = matches!(job.task, Task::Compress { .. });
    match response.outcome() {
        Answer::Done => {
            let service = Nanos(response.first_service_ns);
            let first = response.first_result.as_ref().map(|first| (first.len(), service));
            let sizes = Sizes { first, last: response.payload.len() };
            asked::take_results(job, sizes, |job, which| {
                put(
                    job,
                    match which {
                        Which::First => response.first_result.as_ref(),
                        Which::Last => Some(&response.payload),
                    },
                )
            })
        }
        Answer::DoesNotFit if is_compress => Outcome::DoesNotFit,
        Answer::InvalidInput if asked::may_be_invalid(&job.task) => {
            Outcome::Failed(DeviceError::InvalidInput("the service says it is no valid input"))
        }
        Answer::Fault => fault("the service failed the job"),
        Answer::Busy => Outcome::Failed(DeviceError::Busy),
        Answer::UnknownKey if job.task.is_cipher() => Outcome::Failed(DeviceError::Busy),
        _ => fault("the service gave an outcome that this job cannot have"),
    }
}

/// Writes a result into the job's output.
fn put(job: &mut Job, result: Option<&Bytes>) -> bool {
    let Some(result) = result else { return false };
    match job.output_offset {
        0 => job.output.adopt(result.clone()),
        offset => {
            let end = offset + result.len();
            job.output.space()[offset..end].copy_from_slice(result);
            job.output.set_len(end);
        }
    }
    true
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
