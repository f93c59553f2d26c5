//! The compression service for other processes. A call contains one or several jobs for this worker's
//! runtime, which chooses the device. Invalid requests, and requests above the limits, are refused before
//! memory is allocated for them.

use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

use api::v1::compression_server::Compression;
use api::v1::run_response::Outcome as Answer;
use api::v1::{
    DescribeRequest, DescribeResponse, DeviceDescription, EchoRequest, EchoResponse,
    RunManyRequest, RunManyResponse, RunRequest, RunResponse,
};
use api::wire::{JOBS_BYTES_MAX, JOBS_PER_CALL_MAX};
use bytes::Bytes;
use device::{Device, Dialect, Input, Waiting};
use futures_util::future::join_all;
use runtime::Finished;
use send_wrapper::SendWrapper;
use tonic::{Request, Response, Status};
use units::ByteCount;

use super::call::Call;
use crate::access::Rights;
use crate::asked_job::{AskedJob, Begun, JobOutcome, NotAJob};
use crate::context::WorkerContext;
use crate::job_stages;
use crate::values::ResultMemory;

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
        let max = self.0.limits.item_bytes_max;
        if u64::from(response_bytes) > max.0 {
            return Err(Status::invalid_argument(format!(
                "response_bytes is {}; valid is 0 to {max} (store.item_bytes_max)",
                ByteCount(response_bytes.into())
            )));
        }
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
    let asked = Requested::read(&context, request.into_inner(), &call)?;
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
        let jobs = jobs.len();
        let problem = format!("the number of jobs is {jobs}; valid is {valid}");
        return Err(Status::invalid_argument(problem));
    }
    // All requests are checked first, so that no job of a refused call begins.
    let asked = jobs.into_iter().map(|request| Requested::read(&context, request, &call));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let output_bytes: usize = asked.iter().map(Requested::results_bytes_max).sum();
    if output_bytes > JOBS_BYTES_MAX {
        let valid = format!("0 to {JOBS_BYTES_MAX}");
        let problem = format!("output_bytes of all jobs is {output_bytes}; valid is {valid}");
        return Err(Status::invalid_argument(problem));
    }
    // All jobs begin before the first one is awaited.
    let begun: Vec<_> = asked.into_iter().map(|job| job.begin(&context, &call)).collect();
    let answers = join_all(begun.into_iter().map(|job| async {
        match job {
            Ok(job) => job.await,
            Err(_) => RunResponse { outcome: Answer::Busy.into(), ..RunResponse::default() },
        }
    }))
    .await;
    Ok(RunManyResponse { answers })
}

/// A job of a call with its payload, or none if this process does not have the key.
struct Requested(Option<(AskedJob, Bytes)>);

impl Requested {
    fn read(context: &WorkerContext, mut request: RunRequest, call: &Call) -> Result<Self, Status> {
        let payload = std::mem::take(&mut request.payload);
        let may_cipher = || call.caller.check("cipher", Rights::CIPHER_SERVICE, []).is_ok();
        match AskedJob::read(context, &request, payload.len(), may_cipher) {
            Ok(job) => Ok(Self(Some((job, payload)))),
            Err(NotAJob::UnknownKey) => Ok(Self(None)),
            Err(NotAJob::Invalid(why)) => Err(Status::invalid_argument(why)),
        }
    }

    /// Returns the size of all results together (bytes).
    fn results_bytes_max(&self) -> usize {
        self.0.as_ref().map_or(0, |(job, _)| job.results_bytes_max())
    }

    /// Begins the job and returns a future of its completion, or an error if there is no capacity.
    fn begin(
        self,
        context: &Rc<WorkerContext>,
        call: &Call,
    ) -> Result<impl Future<Output = RunResponse> + use<>, Status> {
        let begun = match self.0 {
            None => None,
            Some((asked, payload)) => {
                let permit = JobPermit::take(context)?;
                call.charge.grow(asked.results_bytes_max())?;
                let (output_bytes_max, front_bytes) =
                    (asked.output_bytes_max, asked.front_bytes(0));
                let follow_key_unknown = asked.follow_key_unknown;
                let pool = context.values.pool();
                let output = pool.take_heap(front_bytes + output_bytes_max);
                let memory = ResultMemory::Heap(pool.clone());
                let mut job = asked.into_job(Input::heap(payload), output, (memory, front_bytes));
                (job.tenant, job.deadline) = (call.tenant, call.deadline);
                let since = Instant::now();
                let trace = job.trace.as_deref().copied();
                let trace = trace.filter(|_| context.recorder.takes_asked(since));
                // If the call is dropped (deadline or client), the job continues without it.
                let begun = Begun::new(&context.runtime, job);
                Some((begun, permit, (trace, since), (output_bytes_max, follow_key_unknown)))
            }
        };
        Ok(async move {
            let Some((begun, permit, (trace, since), (output_bytes_max, key_unknown))) = begun
            else {
                let outcome = Answer::UnknownKey.into();
                return RunResponse { outcome, ..RunResponse::default() };
            };
            let finished = begun.finished().await;
            if let Some(trace) = trace {
                job_stages::record_asked(&permit.0.recorder, trace, JOB, since, &finished);
            }
            let response = response(&permit.0, finished, output_bytes_max);
            RunResponse { follow_key_unknown: key_unknown, ..response }
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

fn response(context: &WorkerContext, finished: Finished, output_bytes_max: usize) -> RunResponse {
    let (path, service, total) = (finished.path, finished.service, finished.total);
    let none = |answer| (answer, None, Bytes::new());
    let (answer, first, payload) = match JobOutcome::new(finished, output_bytes_max) {
        JobOutcome::Done { first, output, part } => (Answer::Done, first, output.freeze(part)),
        JobOutcome::DoesNotFit => none(Answer::DoesNotFit),
        JobOutcome::InvalidInput => none(Answer::InvalidInput),
        JobOutcome::Busy | JobOutcome::Fault => none(Answer::Fault),
    };
    let first_service_ns = first.as_ref().map_or(0, |(_, service)| service.0);
    RunResponse {
        outcome: answer.into(),
        device: context.devices[path.device].name().to_owned(),
        placement: path.placement.name().to_owned(),
        reason: path.reason.name().to_owned(),
        service_ns: service.0,
        queueing_ns: total.since(service).0,
        first_result: first.map(|(first, _)| first),
        first_service_ns,
        follow_key_unknown: false,
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
