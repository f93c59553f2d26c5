//! The open-loop load of `rebate reproduce runtime` in virtual time, with the sizes of Cache-1. It runs on
//! our loop, with the device profiles of software and of the BlueField-2 of \[OffloadSched\]. Every reading
//! of the clock advances it, so that spinning and polling take time. The machine can also pause at random. A
//! run is a function of its arguments.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{
    Codec, Device, Dialect, EngineFactory, Input, Job, Level, Pool, Task, Virtual, VirtualOptions,
    engines,
};
use parking_lot::Mutex;
use policy::{AlwaysSoftware, AsyncOffload, Policy};
use runtime::core_loop::yield_now;
use runtime::{Core, CoreConfig, CoreLoop};
use units::{ByteCount, Clock, ManualClock, Nanos, Prng};
use workload::{
    ArrivalKind, Arrivals, DeviceProfile, PayloadClass, Preset, SizeDist, Sizes, Values, Weighting,
};

/// The time of a reading of the clock, including the work between two readings.
const READ_TIME: Nanos = Nanos(40);

#[derive(Clone, Default)]
struct SlowClock {
    clock: ManualClock,
    pauses: Arc<Mutex<Option<Pauses>>>,
}

impl Clock for SlowClock {
    fn now(&self) -> Nanos {
        self.clock.advance(READ_TIME);
        if let Some(pauses) = &mut *self.pauses.lock() {
            pauses.take(&self.clock);
        }
        self.clock.now()
    }
}

/// The pauses of the machine, at random times.
pub(crate) struct Pauses {
    at: Nanos,
    random: Prng,
}

impl Pauses {
    /// The pauses per second, by their length (ns), measured over thirty seconds with `what_pauses_the_machine_makes`,
    /// class 2c, 2026-11-22. Longer pauses are left out, because they occur less than once per second.
    pub(crate) const MEASURED: [(f64, Range<u64>); 8] = [
        (70.0, 500..2_000),
        (120.0, 2_000..5_000),
        (160.0, 5_000..10_000),
        (127.0, 10_000..15_000),
        (87.0, 15_000..20_000),
        (30.0, 20_000..30_000),
        (11.0, 30_000..50_000),
        (3.0, 50_000..100_000),
    ];

    fn from(now: Nanos) -> Self {
        let mut pauses = Self { at: now, random: Prng::new(2) };
        pauses.draw_next(now);
        pauses
    }

    fn per_second() -> f64 {
        Self::MEASURED.iter().map(|(per_second, _)| per_second).sum()
    }

    fn draw_next(&mut self, now: Nanos) {
        let gap_s = -(1.0 - self.random.unit()).ln() / Self::per_second();
        self.at = now + Nanos((gap_s * 1e9) as u64);
    }

    /// Advances the clock by all pauses that have begun by now.
    fn take(&mut self, clock: &ManualClock) {
        while self.at <= clock.now() {
            let mut left = self.random.unit() * Self::per_second();
            let class = Self::MEASURED.iter().find(|(share, _)| {
                left -= share;
                left < 0.0
            });
            let (_, range) = class.unwrap_or(&Self::MEASURED[0]);
            clock.advance(Nanos(range.start + self.random.below(range.end - range.start)));
            self.draw_next(clock.now());
        }
    }
}

struct Run {
    core: Core,
    clock: SlowClock,
    /// The time that a request takes in addition to its job.
    takes: Nanos,
    start: Nanos,
    pool: Pool,
    took: RefCell<Vec<Nanos>>,
}

impl Run {
    fn now(&self) -> Nanos {
        self.clock.now().since(self.start)
    }

    /// Submits a request now. A new task waits for its job.
    fn begin(self: &Rc<Self>, input: Bytes, due: Nanos) {
        self.clock.clock.advance(self.takes);
        let running = self.core.run(job(input, &self.pool));
        let run = Rc::clone(self);
        self.core.spawn(async move {
            running.await;
            run.took.borrow_mut().push(run.now().since(due));
        });
    }
}

/// The parameters of a run, except for its policy.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) per_second: f64,
    pub(crate) jobs: u32,
    /// The core time to place a job, and for a request's other work that reads no clock.
    pub(crate) takes: Nanos,
    /// Whether the machine pauses.
    pub(crate) pauses: bool,
}

/// Returns, for each job, the time from its due time to its answer, in the order of the answers.
pub(crate) fn run(policy: Arc<dyn Policy>, load: Load) -> Vec<Nanos> {
    let (clock, inputs) = (SlowClock::default(), inputs());
    let devices = ["epyc7542-isal", "bluefield2"].map(|name| emulated(name, &clock)).to_vec();
    // The results are computed in advance. This takes no virtual time, but it takes real time.
    for policy in [Arc::new(AlwaysSoftware) as _, Arc::new(AsyncOffload { work_bytes_min: 0 }) as _]
    {
        let core_loop = core_loop(&devices, policy, &clock);
        let (core, inputs) = (core_loop.core().clone(), inputs.clone());
        core_loop.block_on(async move {
            let pool = Pool::heap(ByteCount::mib(8));
            for input in inputs {
                core.run(job(input, &pool)).await;
            }
        });
    }
    *clock.pauses.lock() = load.pauses.then(|| Pauses::from(clock.clock.now()));
    let core_loop = core_loop(&devices, policy, &clock);
    let run = Rc::new(Run {
        core: core_loop.core().clone(),
        takes: load.takes,
        start: clock.now(),
        clock,
        pool: Pool::heap(ByteCount::mib(8)),
        took: RefCell::default(),
    });
    core_loop.core().spawn(source(Rc::clone(&run), inputs, load.per_second, load.jobs));
    core_loop.run();
    run.took.take()
}

/// Submits requests like the source of `rebate reproduce runtime`: the source itself submits the first of the due
/// requests.
async fn source(run: Rc<Run>, inputs: Vec<Bytes>, per_second: f64, jobs: u32) {
    let mut arrivals = Arrivals::new(ArrivalKind::Poisson, per_second, 0.0);
    let mut random = Prng::new(1);
    let input = |random: &mut Prng| inputs[random.below(inputs.len() as u64) as usize].clone();
    let (mut begun, mut next) = (0, arrivals.next_due(&mut random));
    while begun < jobs {
        while run.now() < next {
            yield_now().await;
        }
        let (first, now) = (next, run.now());
        next = arrivals.next_due(&mut random);
        while next <= now {
            let (shared, due, input) = (Rc::clone(&run), next, input(&mut random));
            run.core.spawn(async move { shared.begin(input, due) });
            begun += 1;
            next = arrivals.next_due(&mut random);
        }
        run.begin(input(&mut random), first);
        begun += 1;
        yield_now().await;
    }
}

fn core_loop(devices: &[Arc<dyn Device>], policy: Arc<dyn Policy>, clock: &SlowClock) -> CoreLoop {
    let mut config = crate::common::config(devices.to_vec(), Arc::new(clock.clone()));
    (config.policy, config.job_timeout) = (policy, Nanos::secs(10));
    CoreLoop::new(CoreConfig::new(config)).expect("the devices open")
}

fn emulated(name: &str, clock: &SlowClock) -> Arc<dyn Device> {
    const ENGINES: &[EngineFactory] = &[engines::libdeflate::engine];
    let profile = DeviceProfile::find(name).expect("compiled in");
    let work_clock = Arc::new(ManualClock::default());
    let clock = Arc::new(clock.clone());
    let options = VirtualOptions { clock, work_clock, ..VirtualOptions::default() };
    Arc::new(Virtual::new(&profile, ENGINES, options).expect("a valid profile"))
}

fn job(input: Bytes, pool: &Pool) -> Box<Job> {
    let output = pool.take(input.len() + input.len() / 8 + 1_024);
    let task = Task::Compress { dialect: Dialect::new(Codec::Deflate), level: Level::Default };
    Box::new(Job::new(task, Input::heap(input), output))
}

/// Returns inputs of HTML with the sizes of Cache-1.
fn inputs() -> Vec<Bytes> {
    const STOCK_BYTES: usize = 1 << 20;
    const INPUTS: usize = 512;
    let fixed = SizeDist::Fixed { bytes: STOCK_BYTES as u64 };
    let stock = Sizes::new(&fixed, Weighting::Calls).expect("a size");
    let mut bytes = Vec::with_capacity(STOCK_BYTES);
    Values::synthetic(PayloadClass::Html, stock, STOCK_BYTES, 1).append_to(0, 0, &mut bytes);
    let (bytes, mut random) = (Bytes::from(bytes), Prng::new(1));
    let preset = Preset::find("accelerometer-cache1").expect("compiled in");
    let sizes = Sizes::new(&preset.value_bytes.value, Weighting::Calls).expect("valid");
    let input = |index: usize| {
        let length = sizes.at((index as f64 + 0.5) / INPUTS as f64);
        let start = random.below((bytes.len() - length) as u64 + 1) as usize;
        bytes.slice(start..start + length)
    };
    (0..INPUTS).map(input).collect()
}
