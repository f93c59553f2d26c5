//! Tests the fallback from a failing device before it is needed. One runtime has a device that fails every
//! job, another has a device that is lost. In both, software must return correct results for all jobs, with
//! the reason recorded. These runtimes are created for the test and dropped, so none of their jobs is in a
//! server's counters.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use device::{
    Capabilities, Device, DeviceError, FaultPlan, Faulty, Job, Level, Outcome, Pool, RefusedReason,
    Task,
};
use policy::{AsyncOffload, Reason};
use units::{ByteCount, Nanos};

use super::Problem;
use super::timeout::{BoundedStepClock, Timeout};
use super::trip::{Line, fitting, job, task_of};
use crate::blocking::BlockingRuntime;
use crate::config::{RuntimeConfig, StartError};
use crate::entry::Finished;

/// Runs every kind of job that the capabilities name, on a runtime over `software` and `device`. The device is made to
/// fail, and then to be lost. The test waits for each job at most for `timeout`.
///
/// # Errors
/// The first job that does not return as it should.
pub fn fallback(
    device: &Arc<dyn Device>,
    can: &Capabilities,
    software: &Arc<dyn Device>,
    sample: &Bytes,
    timeout: Duration,
) -> Result<(), Problem> {
    let mut oracle = Line::open(software.as_ref(), timeout)?;
    let cases = cases(can, software.capabilities(), &mut oracle, &fitting(can, sample))?;
    let faults = [
        (FaultPlan { fail_every: 1, ..FaultPlan::default() }, Reason::DeviceFault),
        (FaultPlan { lose_every: 1, ..FaultPlan::default() }, Reason::DeviceLost),
    ];
    for (plan, reason) in faults {
        let failing: Arc<dyn Device> = Arc::new(Faulty::new(Arc::clone(device), plan));
        let devices = vec![Arc::clone(software), failing];
        let mut runtime = open(devices, timeout)?;
        for case in &cases {
            let finished = case.run(&mut runtime, timeout);
            case.check(finished, reason, timeout, &mut oracle)?;
        }
    }
    Ok(())
}

fn open(devices: Vec<Arc<dyn Device>>, timeout: Duration) -> Result<BlockingRuntime, Problem> {
    let policy = Arc::new(AsyncOffload { work_bytes_min: 0 });
    let clock = Arc::new(BoundedStepClock::new(timeout));
    let config = RuntimeConfig {
        job_timeout: Nanos::from(timeout),
        ..RuntimeConfig::new(devices, policy, clock)
    };
    BlockingRuntime::open(config).map_err(|error| match error {
        StartError::Open(_, error) => Problem::Open(error),
        error => Problem::Fallback(error.to_string()),
    })
}

/// One job and its expected result.
struct FallbackCase {
    task: Task,
    input: Bytes,
    /// The expected bytes. The stream of a compression must decompress to them.
    expected: Bytes,
}

/// Returns a job of every kind that the capabilities name and that software also supports.
fn cases(
    can: &Capabilities,
    home: &Capabilities,
    oracle: &mut Line,
    sample: &Bytes,
) -> Result<Vec<FallbackCase>, Problem> {
    let both = |task: &Task, bytes: usize| can.accepts(task, bytes) && home.accepts(task, bytes);
    let mut all = Vec::new();
    for dialect in can.writes.iter().chain(&can.reads).copied() {
        let compress = Task::Compress { dialect, level: Level::Default };
        let decompress = Task::Decompress { dialect, original_bytes: sample.len() };
        if !home.accepts(&compress, sample.len()) {
            continue;
        }
        let (stream, _) = oracle.run(compress.clone(), sample.clone())?;
        for (task, input) in [(compress, sample.clone()), (decompress, stream)] {
            let is_new = all.iter().all(|other: &FallbackCase| other.task != task);
            if is_new && both(&task, sample.len()) {
                all.push(FallbackCase { task, input, expected: sample.clone() });
            }
        }
    }
    for kernel in &can.kernels {
        let task = task_of(*kernel);
        if both(&task, sample.len()) {
            let (expected, _) = oracle.run(task.clone(), sample.clone())?;
            all.push(FallbackCase { task, input: sample.clone(), expected });
        }
    }
    Ok(all)
}

impl FallbackCase {
    fn job(&self) -> Box<Job> {
        job(&Pool::heap(ByteCount(0)), self.task.clone(), self.input.clone())
    }

    fn run(&self, runtime: &mut BlockingRuntime, timeout: Duration) -> Finished {
        let mut left = Timeout::new(timeout);
        loop {
            let finished = runtime.run_blocking(self.job());
            // Another process may fill a shared queue for a while.
            if finished.path.reason != Reason::QueueFull || left.is_over() {
                return finished;
            }
            left.pause();
        }
    }

    fn check(
        &self,
        finished: Finished,
        reason: Reason,
        timeout: Duration,
        oracle: &mut Line,
    ) -> Result<(), Problem> {
        let op = self.task.op().name();
        let Finished { job, outcome, path, .. } = finished;
        // The job did not take the path that is tested.
        match path.reason {
            Reason::Timeout => return Err(Problem::Late { op, timeout }),
            Reason::QueueFull => {
                return Err(Problem::Refused { op, reason: RefusedReason::Full });
            }
            // The device itself was lost, and not by the plan that is tested.
            Reason::DeviceLost if reason != Reason::DeviceLost => {
                return Err(Problem::Failed { op, error: DeviceError::Lost });
            }
            _ => {}
        }
        let broken = |why: String| Problem::Fallback(format!("{op}: {why}"));
        if (path.device, path.reason) != (0, reason) {
            let (device, ran) = (path.device, path.reason.name());
            let should = reason.name();
            return Err(broken(format!("ran on device {device} for {ran}, not 0 for {should}")));
        }
        let Outcome::Done { output_bytes } = outcome else {
            return Err(broken(format!("{outcome:?}")));
        };
        let mut result = job.output.freeze(0..output_bytes);
        if let Task::Compress { dialect, .. } = self.task {
            let task = Task::Decompress { dialect, original_bytes: self.expected.len() };
            result = oracle.run(task, result).map_err(|error| broken(error.to_string()))?.0;
        }
        match result == self.expected {
            true => Ok(()),
            false => Err(broken("something else comes out".to_owned())),
        }
    }
}
