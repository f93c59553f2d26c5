//! The stages of a (de)compression: the software codecs, the device, and the hop to a compression service over each
//! transport. Each stage is measured alone and at the pace of the load. Each job passes through the same runtime as in
//! a service, so that its submission and the detection of its end are part of the stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::virtual_device::LATE_SHARE_MAX;
use device::{
    Device, Dialect, Input, Job, Level, Outcome, Pool, Software, Task, Virtual, VirtualOptions,
};
use drivers::{Lane, LaneOptions, Remote, RemoteOptions};
use policy::{AlwaysSoftware, AsyncOffload, Form, FormPolicy, Policy};
use runtime::{Fallback, Limits, RuntimeConfig, TokioRuntime};
use units::{ByteCount, Nanos, Op, SystemClock};
use workload::{DeviceProfile, PayloadClass, SizeDist, Sizes, Values, Weighting};

use super::deployment::Transport;
use drivers::ENGINES;
use harness::TIMEOUT;

/// The time of one stage at one size and op.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stage {
    /// The median (us).
    pub p50_us: f64,
}

/// The dialect and the level of compressed streams.
#[derive(Clone, Copy, Debug)]
struct CodecChoice {
    dialect: Dialect,
    level: Level,
}

/// The dialect and the level that QPL's software path writes.
const PAPER_CODEC: CodecChoice = CodecChoice { dialect: Dialect::IAA, level: Level::Default };

/// The times of one job.
#[derive(Clone, Copy, Debug)]
struct Times {
    total: Nanos,
    service: Nanos,
}

/// Measures jobs of one size and op at one pace.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The size of every value.
    pub value_bytes: ByteCount,
    /// The op of the jobs.
    pub op: Op,
    /// The offered jobs per second.
    pub rate_per_s: f64,
    /// The number of measured jobs.
    pub jobs: usize,
}

impl Probe {
    /// Measures the software codec of \[CacheTax\] on the calling core.
    ///
    /// # Errors
    /// A job failed.
    pub fn software(&self) -> Result<Stage, String> {
        let finished = self.run(None, Arc::new(AlwaysSoftware), PAPER_CODEC)?;
        Ok(Stage::median(&finished, |times| times.total))
    }

    /// Measures the codec that is fastest on this machine for the size, on the calling core.
    ///
    /// # Errors
    /// A job failed.
    pub fn best_software(&self) -> Result<Stage, String> {
        let codec = self.best_codec()?;
        let finished = self.run(None, Arc::new(AlwaysSoftware), codec)?;
        Ok(Stage::median(&finished, |times| times.total))
    }

    /// Measures the software codec of \[CacheTax\] on a core that runs its jobs back to back.
    ///
    /// # Errors
    /// A job failed.
    pub fn busy_software(&self) -> Result<Stage, String> {
        Self { rate_per_s: f64::INFINITY, ..*self }.software()
    }

    /// Measures the virtual device from submission until the runtime sees the end of the job.
    ///
    /// The time is NaN if the emulation was late.
    ///
    /// # Errors
    /// A job failed, or there is no such profile.
    pub fn device(&self) -> Result<Stage, String> {
        let profile = DeviceProfile::find("iaa").map_err(|error| error.to_string())?;
        let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
        let device = Arc::new(device.map_err(|error| error.to_string())?);
        let emulated = Some(Arc::clone(&device) as Arc<dyn Device>);
        let finished = self.run(emulated, Arc::new(OFFLOAD), PAPER_CODEC)?;
        let counters = device.counters();
        // The first round is late, because it computes the results that the device then remembers.
        let late = counters.late.saturating_sub(counters.computed) as f64;
        if late / finished.len() as f64 > LATE_SHARE_MAX {
            return Ok(Stage { p50_us: f64::NAN });
        }
        Ok(Stage::median(&finished, |times| times.total))
    }

    /// Measures the hop to a compression service and back: the whole time of a job there, less its time in the
    /// service's device and in that device's queue.
    ///
    /// # Errors
    /// A job failed.
    pub fn hop(&self, transport: &Transport) -> Result<Stage, String> {
        let device: Arc<dyn Device> = match transport {
            Transport::Grpc(address) => {
                let (timeout, connect_timeout) = (TIMEOUT, TIMEOUT);
                let options = RemoteOptions { timeout, connect_timeout, ..Default::default() };
                let remote = Remote::new(address.clone(), &options);
                Arc::new(remote.map_err(|error| error.to_string())?)
            }
            Transport::Lane(path) => {
                let options = LaneOptions { timeout: TIMEOUT, ..Default::default() };
                Arc::new(Lane::new(path, &options))
            }
        };
        let finished = self.run(Some(device), Arc::new(OFFLOAD), PAPER_CODEC)?;
        Ok(Stage::median(&finished, |times| times.total.since(times.service)))
    }

    /// Makes a service's virtual device compute and remember the results of the load's values, for both ops. No result
    /// then has to be computed during a measurement.
    ///
    /// # Errors
    /// A job failed.
    pub fn warm(value_bytes: ByteCount, transport: &Transport) -> Result<(), String> {
        let probe = Self { value_bytes, op: Op::Compress, rate_per_s: f64::INFINITY, jobs: 0 };
        probe.hop(transport).map(|_| ())
    }

    fn run(
        &self,
        device: Option<Arc<dyn Device>>,
        policy: Arc<dyn Policy>,
        codec: CodecChoice,
    ) -> Result<Vec<Times>, String> {
        let options = tokio::runtime::LocalOptions::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(options);
        let executor = executor.map_err(|error| error.to_string())?;
        executor.block_on(self.measure(device, policy, codec))
    }

    async fn measure(
        &self,
        device: Option<Arc<dyn Device>>,
        policy: Arc<dyn Policy>,
        codec: CodecChoice,
    ) -> Result<Vec<Times>, String> {
        let software: Arc<dyn Device> = Arc::new(Software::new(ENGINES));
        let fallback = if device.is_some() { Fallback::Require } else { Fallback::Prefer };
        let devices: Vec<_> = [software].into_iter().chain(device).collect();
        let runtime = TokioRuntime::start(RuntimeConfig {
            reputation: runtime::Reputation::new(&devices),
            devices,
            policy,
            compress: fallback,
            decompress: fallback,
            job_timeout: Nanos::from(TIMEOUT),
            reprobe_after: Nanos::secs(1),
            clock: Arc::new(SystemClock::new()),
            seed: 0,
            limits: Limits::NONE,
            // As for nearly all jobs in a service, the results are not verified.
            verify_every: None,
            chains: true,
        });
        let runtime = runtime.map_err(|error| error.to_string())?;
        let material = self.material(codec)?;
        let gap = Duration::from_secs_f64(1.0 / self.rate_per_s);
        let pool = Pool::heap(ByteCount::mib(8));
        let mut finished = Vec::with_capacity(self.jobs);
        let mut due = Instant::now();
        // The first round fills the memory of a device, and opens connections that open with their first call.
        for turn in 0..material.len() + self.jobs {
            let job = self.job(&material[turn % material.len()], &pool, codec);
            if !gap.is_zero() {
                due = (due + gap).max(Instant::now());
                wait_until(due);
            }
            let done = runtime.run(job).await;
            if !matches!(done.outcome, Outcome::Done { .. }) {
                return Err(format!("a {} job ended with {:?}", self.op.name(), done.outcome));
            }
            if turn >= material.len() {
                // The job itself is not stored. Its buffer returns to the pool as in a service, so that the next job
                // does not pay for the first access to new memory.
                finished.push(Times { total: done.total, service: done.service });
            }
        }
        Ok(finished)
    }

    /// Returns the inputs for the op: the values of the load, or their compressed streams.
    fn material(&self, codec: CodecChoice) -> Result<Vec<Bytes>, String> {
        let values = values(self.value_bytes)?;
        if self.op == Op::Compress { Ok(values) } else { streams(&values, codec) }
    }

    /// Returns the codec that a frontend with a free choice of codec uses.
    fn best_codec(&self) -> Result<CodecChoice, String> {
        let policy = FormPolicy {
            compress: true,
            codec: None,
            level: Level::Default,
            bytes_min: 0,
            saving_min: 0.0,
            saving_min_spare: 0.0,
            wrap_all: false,
            window_log2: None,
        };
        match values(self.value_bytes)?.first().map(|value| policy.choose(value)) {
            Some(Form::Compressed { dialect, level, .. }) => Ok(CodecChoice { dialect, level }),
            other => Err(format!("values of {} would be stored as {other:?}", self.value_bytes)),
        }
    }

    fn job(&self, input: &Bytes, pool: &Pool, codec: CodecChoice) -> Box<Job> {
        let value_bytes = self.value_bytes.as_usize();
        let CodecChoice { dialect, level } = codec;
        let task = match self.op {
            Op::Compress => Task::Compress { dialect, level },
            _ => Task::Decompress { dialect, original_bytes: value_bytes },
        };
        // The input is a copy, because in a service every input has just been read from a socket.
        let input = Input::heap(Bytes::copy_from_slice(input));
        Box::new(Job::new(task, input, pool.take(value_bytes + STREAM_SLACK_BYTES)))
    }
}

/// Returns the mean size of the values when the software of \[CacheTax\] has compressed them.
///
/// # Errors
/// A value could not be compressed.
pub(super) fn stored_bytes(value_bytes: ByteCount) -> Result<ByteCount, String> {
    let streams = streams(&values(value_bytes)?, PAPER_CODEC)?;
    let all: usize = streams.iter().map(Bytes::len).sum();
    Ok(ByteCount((all / streams.len()) as u64))
}

/// Returns the values of the load.
fn values(value_bytes: ByteCount) -> Result<Vec<Bytes>, String> {
    let sizes = Sizes::new(&SizeDist::Fixed { bytes: value_bytes.0 }, Weighting::Calls);
    let sizes = sizes.map_err(|error| error.to_string())?;
    let values = Values::synthetic(PayloadClass::Html, sizes, value_bytes.as_usize(), SEED);
    let value = |id| {
        let mut value = Vec::new();
        values.append_to(id, 0, &mut value);
        value.into()
    };
    Ok((0..VALUES).map(value).collect())
}

/// Returns the compressed values.
fn streams(values: &[Bytes], codec: CodecChoice) -> Result<Vec<Bytes>, String> {
    let CodecChoice { dialect, level } = codec;
    let bytes = values.first().map_or(0, Bytes::len);
    let mut engines = ENGINES.iter().map(|make| make());
    let engine =
        engines.find(|engine| engine.codec() == dialect.codec && engine.writes(dialect, bytes));
    let mut engine = engine.ok_or_else(|| format!("no engine writes {dialect:?}"))?;
    let stream = |value: &Bytes| {
        let mut stream = vec![0; value.len() + STREAM_SLACK_BYTES];
        let written = engine.compress(dialect, level, value, &mut stream);
        let written = written.map_err(|error| format!("{error:?}"))?;
        stream.truncate(written);
        Ok(stream.into())
    };
    values.iter().map(stream).collect()
}

/// Waits until a job is due. It spins in the last part of the wait, because a service is already at work on
/// the request when it submits the job. Otherwise the job would include the wake-up time of the core.
fn wait_until(due: Instant) {
    let left = |at: Instant| at.saturating_duration_since(Instant::now());
    std::thread::sleep(left(due).saturating_sub(AT_WORK_BEFORE));
    while !left(due).is_zero() {
        std::hint::spin_loop();
    }
}

impl Stage {
    fn median(finished: &[Times], time: impl Fn(&Times) -> Nanos) -> Self {
        let mut times: Vec<u64> = finished.iter().map(|times| time(times).0).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).map_or(0.0, |time| *time as f64 / 1e3);
        Self { p50_us: middle }
    }
}

/// The approximate time that a frontend works on a request before it (de)compresses the value.
const AT_WORK_BEFORE: Duration = Duration::from_micros(100);

/// The policy that sends every job to the only device.
const OFFLOAD: AsyncOffload = AsyncOffload { work_bytes_min: 0 };

/// The number of different values, which is the number of the load's keys.
const VALUES: u64 = 64;

const SEED: u64 = 1;

/// The number of bytes by which compression may enlarge incompressible bytes.
const STREAM_SLACK_BYTES: usize = 1 << 10;
