//! The compression service for other processes. A call contains one or several jobs for this worker's
//! runtime, which chooses the device. Invalid requests, and requests above the limits, are refused before
//! memory is allocated for them.

use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

use api::v1::compression_server::Compression;
use api::v1::run_response::Outcome as Answer;
use api::v1::{
    self, DescribeRequest, DescribeResponse, DeviceDescription, EchoRequest, EchoResponse,
    RunManyRequest, RunManyResponse, RunRequest, RunResponse,
};
use api::wire::{JOBS_BYTES_MAX, JOBS_PER_CALL_MAX};
use bytes::Bytes;
use device::{
    Class, Codec, Device, DeviceError, Dialect, Input, Job, Level, Outcome, Task, Waiting,
};
use runtime::Finished;
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};
use units::{ByteCount, TraceContext};

use super::call::Call;
use crate::context::WorkerContext;
use crate::job_stages;

/// The compression service of one worker thread.
pub(super) struct CompressionService(SendWrapper<Rc<WorkerContext>>);

impl CompressionService {
    pub(super) fn new(context: SendWrapper<Rc<WorkerContext>>) -> Self {
        Self(context)
    }
}

#[tonic::async_trait]
impl Compression for CompressionService {
    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(run(context, request)).await.map(Response::new)
    }

    async fn run_many(
        &self,
        request: Request<RunManyRequest>,
    ) -> Result<Response<RunManyResponse>, Status> {
        let context = Rc::clone(&self.0);
        SendWrapper::new(run_many(context, request)).await.map(Response::new)
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        let devices = self.0.devices.iter().map(|device| describe(device.as_ref())).collect();
        let work_bytes_max = self.0.limits.item_bytes_max.0;
        Ok(Response::new(DescribeResponse { devices, work_bytes_max }))
    }

    async fn echo(
        &self,
        mut request: Request<EchoRequest>,
    ) -> Result<Response<EchoResponse>, Status> {
        refuse_while_draining(&self.0)?;
        let call = Call::from_request(&mut request)?;
        let response_bytes = request.get_ref().response_bytes;
        within(&self.0, "response_bytes", response_bytes)?;
        call.charge.grow(response_bytes as usize)?;
        let payload = Bytes::from(vec![0; response_bytes as usize]);
        Ok(Response::new(EchoResponse { payload }))
    }
}

async fn run(
    context: Rc<WorkerContext>,
    mut request: Request<RunRequest>,
) -> Result<RunResponse, Status> {
    refuse_while_draining(&context)?;
    let call = Call::from_request(&mut request)?;
    let asked = Asked::read(&context, request.into_inner())?;
    Ok(asked.begin(&context, &call)?.await)
}

async fn run_many(
    context: Rc<WorkerContext>,
    mut request: Request<RunManyRequest>,
) -> Result<RunManyResponse, Status> {
    refuse_while_draining(&context)?;
    let call = Call::from_request(&mut request)?;
    let jobs = request.into_inner().jobs;
    if !(1..=JOBS_PER_CALL_MAX).contains(&jobs.len()) {
        let valid = format!("1 to {JOBS_PER_CALL_MAX}");
        return Err(invalid("the number of jobs", jobs.len(), &valid));
    }
    // All requests are checked first, so that no job of a refused call begins.
    let asked = jobs.into_iter().map(|request| Asked::read(&context, request));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let output_bytes: usize = asked.iter().map(|job| job.output_bytes_max).sum();
    if output_bytes > JOBS_BYTES_MAX {
        let valid = format!("0 to {JOBS_BYTES_MAX}");
        return Err(invalid("output_bytes of all jobs", output_bytes, &valid));
    }
    // All jobs begin before the first one is awaited.
    let begun: Vec<_> = asked.into_iter().map(|job| job.begin(&context, &call)).collect();
    let mut answers = Vec::with_capacity(begun.len());
    for job in begun {
        answers.push(match job {
            Ok(job) => job.await,
            Err(_) => RunResponse { outcome: Answer::Busy.into(), ..RunResponse::default() },
        });
    }
    Ok(RunManyResponse { answers })
}

/// A requested job with valid parameters.
struct Asked {
    task: Task,
    class: Class,
    output_bytes_max: usize,
    payload: Bytes,
    /// The trace of the request that needs the job, if its caller records it.
    trace: Option<TraceContext>,
}

impl Asked {
    fn read(context: &WorkerContext, request: RunRequest) -> Result<Self, Status> {
        let task = task(&request)?;
        let class = class(&request)?;
        check_tenant(&request)?;
        within(context, "output_bytes", request.output_bytes)?;
        if let Task::Compress { .. } = task {
            within(context, "the payload's size", request.payload.len())?;
        }
        let output_bytes_max = request.output_bytes as usize;
        let trace = request.traceparent.parse::<TraceContext>().ok();
        let trace = trace.filter(|trace| trace.is_sampled);
        let trace = trace.filter(|_| context.recorder.takes_asked(Instant::now()));
        Ok(Self { task, class, output_bytes_max, payload: request.payload, trace })
    }

    /// Begins the job and returns a future of its completion, or an error if there is no capacity.
    fn begin(
        self,
        context: &Rc<WorkerContext>,
        call: &Call,
    ) -> Result<impl Future<Output = RunResponse> + use<>, Status> {
        let permit = JobPermit::take(context)?;
        let since = Instant::now();
        let Self { task, class, output_bytes_max, payload, trace } = self;
        call.charge.grow(output_bytes_max)?;
        let output = context.values.pool().take_heap(output_bytes_max);
        let mut job = Job::new(task, Input::heap(payload), output);
        (job.tenant, job.class, job.deadline) = (call.tenant, class, call.deadline);
        job.trace = trace.map(Box::new);
        // If the call is dropped (deadline or client), the job continues without it.
        let run = context.runtime.run(Box::new(job));
        Ok(async move {
            let finished = run.await;
            if let Some(trace) = trace {
                let recorder = &permit.0.recorder;
                job_stages::record_asked(recorder, trace, JOB, since, &finished);
            }
            response(&permit.0, finished, output_bytes_max)
        })
    }
}

/// The name of a job of another process in traces.
const JOB: &str = "Compression/Run";

/// A permit to run one job of another process. It counts towards `runtime.jobs_max`.
struct JobPermit(Rc<WorkerContext>);

impl JobPermit {
    fn take(context: &Rc<WorkerContext>) -> Result<Self, Status> {
        let (jobs, max) = (context.jobs.get(), context.config.runtime.jobs_max);
        if jobs >= max {
            return Err(Status::resource_exhausted(format!(
                "this worker has {jobs} jobs under way and may have {max} (runtime.jobs_max)"
            )));
        }
        context.jobs.set(jobs + 1);
        Ok(Self(Rc::clone(context)))
    }
}

impl Drop for JobPermit {
    fn drop(&mut self) {
        self.0.jobs.set(self.0.jobs.get() - 1);
    }
}

fn refuse_while_draining(context: &WorkerContext) -> Result<(), Status> {
    match context.is_draining() {
        true => Err(Status::unavailable("this process is draining")),
        false => Ok(()),
    }
}

fn within(
    context: &WorkerContext,
    what: &str,
    bytes: impl TryInto<u64> + Copy,
) -> Result<(), Status> {
    let max = context.limits.item_bytes_max;
    let bytes = bytes.try_into().unwrap_or(u64::MAX);
    match bytes <= max.0 {
        true => Ok(()),
        false => {
            Err(invalid(what, ByteCount(bytes), &format!("0 to {max} (store.item_bytes_max)")))
        }
    }
}

fn invalid(what: &str, value: impl std::fmt::Display, valid: &str) -> Status {
    Status::invalid_argument(format!("{what} is {value}; valid is {valid}"))
}

fn task(request: &RunRequest) -> Result<Task, Status> {
    let dialect = dialect(request)?;
    let valid_ops = "1 (compress) or 2 (decompress)";
    match v1::Op::try_from(request.op) {
        Ok(v1::Op::Compress) => Ok(Task::Compress { dialect, level: level(request)? }),
        Ok(v1::Op::Decompress) => {
            Ok(Task::Decompress { dialect, original_bytes: request.output_bytes as usize })
        }
        Ok(v1::Op::Unspecified) | Err(_) => Err(invalid("op", request.op, valid_ops)),
    }
}

fn dialect(request: &RunRequest) -> Result<Dialect, Status> {
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

fn level(request: &RunRequest) -> Result<Level, Status> {
    let valid = "0 (default), 1 (fast) or 2 (high)";
    match v1::Level::try_from(request.level) {
        Ok(v1::Level::Default) => Ok(Level::Default),
        Ok(v1::Level::Fast) => Ok(Level::Fast),
        Ok(v1::Level::High) => Ok(Level::High),
        Err(_) => Err(invalid("level", request.level, valid)),
    }
}

fn class(request: &RunRequest) -> Result<Class, Status> {
    match v1::Class::try_from(request.class) {
        Ok(v1::Class::LatencyCritical) => Ok(Class::LatencyCritical),
        Ok(v1::Class::Batch) => Ok(Class::Batch),
        Err(_) => Err(invalid("class", request.class, "0 (latency-critical) or 1 (batch)")),
    }
}

/// Checks the range of the tenant id in a request. The id is otherwise ignored, because the whole connection
/// of the caller is one tenant here.
fn check_tenant(request: &RunRequest) -> Result<(), Status> {
    match u16::try_from(request.tenant) {
        Ok(_) => Ok(()),
        Err(_) => Err(invalid("tenant", request.tenant, "0 to 65535")),
    }
}

fn response(context: &WorkerContext, finished: Finished, output_bytes_max: usize) -> RunResponse {
    let Finished { job, outcome, path, service, total } = finished;
    let (answer, payload) = match outcome {
        // A buffer may be longer than requested, so the result may be too long.
        Outcome::Done { output_bytes } if output_bytes <= output_bytes_max => {
            (Answer::Done, job.output.freeze(0..output_bytes))
        }
        Outcome::Done { .. } | Outcome::DoesNotFit => (Answer::DoesNotFit, Bytes::new()),
        Outcome::Failed(DeviceError::InvalidInput(_)) => (Answer::InvalidInput, Bytes::new()),
        Outcome::Failed(_) => (Answer::Fault, Bytes::new()),
    };
    RunResponse {
        outcome: answer.into(),
        device: context.devices[path.device].name().to_owned(),
        placement: path.placement.name().to_owned(),
        reason: path.reason.name().to_owned(),
        service_ns: service.0,
        queueing_ns: total.since(service).0,
        payload,
    }
}

fn describe(device: &dyn Device) -> DeviceDescription {
    let can = device.capabilities();
    let names = |dialects: &[Dialect]| dialects.iter().map(dialect_name).collect();
    let waiting = match can.waiting {
        Waiting::Inline => "inline",
        Waiting::Polled { .. } => "polled",
        Waiting::Signalled => "signalled",
    };
    DeviceDescription {
        name: device.name().to_owned(),
        writes: names(&can.writes),
        reads: names(&can.reads),
        work_bytes_max: can.work_bytes_max.0,
        queue_depth: can.queue_depth as u64,
        waiting: waiting.to_owned(),
    }
}

/// Returns the name of a dialect, such as `deflate` or `deflate/4KiB`.
fn dialect_name(dialect: &Dialect) -> String {
    let codec = dialect.codec.name();
    match dialect.window_log2 {
        None => codec.to_owned(),
        Some(log2) => {
            let window = ByteCount(1u64.checked_shl(log2.into()).unwrap_or(u64::MAX));
            format!("{codec}/{window}")
        }
    }
}

/// The base-2 logarithm of the largest window, which is twice the size of the largest item.
const WINDOW_LOG2_MAX: u8 = 31;
