//! The stages of a (de)compression, each measured alone and at the pace of the load: the software codec, the device,
//! the hop to a compression service. Each goes through the same runtime as in a service, so that what it takes to
//! submit a job and to learn of its end is part of the stage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::virtual_device::LATE_SHARE_MAX;
use device::{
    Device, Dialect, Input, Job, Level, Outcome, Pool, Software, Task, Virtual, VirtualOptions,
};
use drivers::remote::{Remote, RemoteOptions};
use policy::{AlwaysSoftware, AsyncOffload, Policy};
use runtime::{Fallback, RuntimeConfig, TokioRuntime};
use units::{ByteCount, Nanos, Op, SystemClock};
use workload::{DeviceProfile, PayloadClass, SizeDist, Sizes, Values, Weighting};

use crate::devices::ENGINES;

/// One stage at one size and op.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stage {
    /// The median (us).
    pub(crate) p50_us: f64,
}

/// What one job took.
#[derive(Clone, Copy, Debug)]
struct Times {
    total: Nanos,
    service: Nanos,
}

/// Jobs of one size, measured at one pace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) value_bytes: ByteCount,
    pub(crate) op: Op,
    pub(crate) rate_per_s: f64,
    pub(crate) jobs: usize,
}

impl Probe {
    /// What the seed's software codec takes, on the calling core.
    ///
    /// # Errors
    /// That a job failed.
    pub(crate) fn software(&self) -> Result<Stage, String> {
        let finished = self.run(None, Arc::new(AlwaysSoftware))?;
        Ok(Stage::of(&finished, |own| own.total))
    }

    /// What the seed's software codec takes of a core that does nothing else.
    ///
    /// # Errors
    /// That a job failed.
    pub(crate) fn busy_software(&self) -> Result<Stage, String> {
        Self { rate_per_s: f64::INFINITY, ..*self }.software()
    }

    /// What the virtual device takes, from submission until its end is seen.
    ///
    /// Not a number where the emulation was late.
    ///
    /// # Errors
    /// That a job failed, or that there is no such profile.
    pub(crate) fn device(&self) -> Result<Stage, String> {
        let profile = DeviceProfile::find("iaa").map_err(|error| error.to_string())?;
        let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
        let device = Arc::new(device.map_err(|error| error.to_string())?);
        let finished = self.run(Some(Arc::clone(&device) as Arc<dyn Device>), Arc::new(OFFLOAD))?;
        let counters = device.counters();
        // The first round makes what is remembered, and is late for it.
        let late = counters.late.saturating_sub(counters.computed) as f64;
        if late / finished.len() as f64 > LATE_SHARE_MAX {
            return Ok(Stage { p50_us: f64::NAN });
        }
        Ok(Stage::of(&finished, |own| own.total))
    }

    /// What the way to a compression service and back takes: all of a remote job but its time in the service's
    /// device and before it.
    ///
    /// # Errors
    /// That a job failed.
    pub(crate) fn hop(&self, service: &api::Address) -> Result<Stage, String> {
        let device = Remote::new(service.clone(), &RemoteOptions::default());
        let device = device.map_err(|error| error.to_string())?;
        let finished = self.run(Some(Arc::new(device)), Arc::new(OFFLOAD))?;
        Ok(Stage::of(&finished, |own| own.total.since(own.service)))
    }

    fn run(
        &self,
        device: Option<Arc<dyn Device>>,
        policy: Arc<dyn Policy>,
    ) -> Result<Vec<Times>, String> {
        let options = tokio::runtime::LocalOptions::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(options);
        let executor = executor.map_err(|error| error.to_string())?;
        executor.block_on(self.measure(device, policy))
    }

    async fn measure(
        &self,
        device: Option<Arc<dyn Device>>,
        policy: Arc<dyn Policy>,
    ) -> Result<Vec<Times>, String> {
        let software: Arc<dyn Device> = Arc::new(Software::new(ENGINES));
        let fallback = if device.is_some() { Fallback::Require } else { Fallback::Prefer };
        let runtime = TokioRuntime::start(RuntimeConfig {
            devices: [software].into_iter().chain(device).collect(),
            policy,
            compress: fallback,
            decompress: fallback,
            job_timeout: Nanos::secs(1),
            reprobe_after: Nanos::secs(1),
            clock: Arc::new(SystemClock::new()),
            seed: 0,
        });
        let runtime = runtime.map_err(|error| error.to_string())?;
        let material = self.material()?;
        let gap = Duration::from_secs_f64(1.0 / self.rate_per_s);
        let pool = Pool::heap(ByteCount::mib(8));
        let mut finished = Vec::with_capacity(self.jobs);
        let mut due = Instant::now();
        // The first round fills what a device remembers and opens what connects with its first call.
        for turn in 0..material.len() + self.jobs {
            let job = self.job(&material[turn % material.len()], &pool);
            if !gap.is_zero() {
                due = (due + gap).max(Instant::now());
                wait_until(due);
            }
            let done = runtime.run(job).await;
            if !matches!(done.outcome, Outcome::Done { .. }) {
                return Err(format!("a {} job ended with {:?}", self.op.name(), done.outcome));
            }
            if turn >= material.len() {
                // Not the job itself: its buffer goes back to the pool, as it does in a service, and the next
                // job does not pay for memory that was never touched.
                finished.push(Times { total: done.total, service: done.service });
            }
        }
        Ok(finished)
    }

    /// The op's inputs: values as the load has them, or what they compress to.
    fn material(&self) -> Result<Vec<Bytes>, String> {
        let sizes = Sizes::new(&SizeDist::Fixed { bytes: self.value_bytes.0 }, Weighting::Calls);
        let sizes = sizes.map_err(|error| error.to_string())?;
        let values =
            Values::synthetic(PayloadClass::Html, sizes, self.value_bytes.as_usize(), SEED);
        let mut engine = (ENGINES[0])();
        let value = |id| {
            let mut value = Vec::new();
            values.append_to(id, 0, &mut value);
            if self.op == Op::Compress {
                return Ok(value.into());
            }
            let mut stream = vec![0; value.len() + STREAM_SLACK_BYTES];
            let level = Level::Default;
            let written = engine.compress(Dialect::IAA, level, &value, &mut stream);
            let written = written.map_err(|error| format!("{error:?}"))?;
            stream.truncate(written);
            Ok(stream.into())
        };
        (0..VALUES).map(value).collect()
    }

    fn job(&self, input: &Bytes, pool: &Pool) -> Box<Job> {
        let value_bytes = self.value_bytes.as_usize();
        let task = match self.op {
            Op::Compress => Task::Compress { dialect: Dialect::IAA, level: Level::Default },
            _ => Task::Decompress { dialect: Dialect::IAA, original_bytes: value_bytes },
        };
        // A copy of its own: in a service every input has just been read from a socket.
        let input = Input::heap(Bytes::copy_from_slice(input));
        Box::new(Job::new(task, input, pool.take(value_bytes + STREAM_SLACK_BYTES)))
    }
}

/// A service that comes to a job has been at work on its request for a while: the last part of the wait is spent
/// awake, so that the job does not pay for a core that has just been asleep.
fn wait_until(due: Instant) {
    let left = |at: Instant| at.saturating_duration_since(Instant::now());
    std::thread::sleep(left(due).saturating_sub(AT_WORK_BEFORE));
    while !left(due).is_zero() {
        std::hint::spin_loop();
    }
}

impl Stage {
    fn of(finished: &[Times], time: impl Fn(&Times) -> Nanos) -> Self {
        let mut times: Vec<u64> = finished.iter().map(|own| time(own).0).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).map_or(0.0, |time| *time as f64 / 1e3);
        Self { p50_us: middle }
    }
}

/// About what a frontend does on a request before its value is (de)compressed.
const AT_WORK_BEFORE: Duration = Duration::from_micros(100);

/// Every job goes to the one device.
const OFFLOAD: AsyncOffload = AsyncOffload { work_bytes_min: 0 };

/// As many different values as the load has keys.
const VALUES: u64 = 64;

const SEED: u64 = 1;

/// What a stream of incompressible bytes is longer by.
const STREAM_SLACK_BYTES: usize = 1 << 10;
