//! The stages of requests in which jobs run, and the jobs that other processes ask for and record.

use std::time::Instant;

use device::Job;
use policy::Reason;
use runtime::{Finished, TokioRuntime};
use telemetry::timeline::{self, Detail, Kind, OpenStage};
use telemetry::{Recorder, Started};
use units::TraceContext;

/// Runs a job of the current request.
pub(crate) async fn run(runtime: &TokioRuntime, mut job: Box<Job>) -> Finished {
    let stage = open(&mut job);
    let finished = runtime.run(job).await;
    close(stage, &finished);
    finished
}

/// Runs a job of the current request in software, because a device failed it.
pub(crate) async fn run_again(runtime: &TokioRuntime, job: Box<Job>) -> Finished {
    run_in_software(runtime, job, Reason::DeviceFault).await
}

/// Runs a job in software for this reason.
pub(crate) async fn run_in_software(
    runtime: &TokioRuntime,
    mut job: Box<Job>,
    reason: Reason,
) -> Finished {
    let stage = open(&mut job);
    let finished = runtime.run_in_software(job, reason).await;
    close(stage, &finished);
    finished
}

/// Opens the stage in which a job runs with the ops of its chain.
#[inline]
pub(crate) fn open(job: &mut Job) -> OpenStage {
    let stage = timeline::open(Kind::Job(job.task.op()));
    if stage.is_recorded() {
        job.trace = stage.context().map(Box::new);
    }
    stage
}

/// Closes the stage of a job that has finished.
#[inline]
pub(crate) fn close(stage: OpenStage, finished: &Finished) {
    stage.close_with(|| detail(finished));
}

/// Records a job that another process has asked for at `since`, and records too.
pub(crate) fn record_asked(
    recorder: &Recorder,
    caller: TraceContext,
    command: &'static str,
    since: Instant,
    finished: &Finished,
) {
    let started = Started { at: since, command, key: &[] };
    let mut timeline = recorder.begin_for(&started, caller);
    let now = Instant::now();
    timeline.add(Kind::Job(finished.job.task.op()), since, now, detail(finished));
    recorder.end(*timeline, now, String::new);
}

fn detail(Finished { path, service, .. }: &Finished) -> Detail {
    Detail::Job {
        device: path.device,
        placement: path.placement.name(),
        reason: path.reason.name(),
        service: *service,
    }
}
