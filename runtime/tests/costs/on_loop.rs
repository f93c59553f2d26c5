//! The open loop of `rebate reproduce runtime` in virtual time: our loop, the seed's software and its BlueField-2 as
//! their profiles have them, Cache-1, and a clock that every look moves on, so that what spins or polls takes time. A
//! run is a function of its arguments.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{
    Codec, Device, Dialect, EngineFactory, Input, Job, Level, Pool, Task, Virtual, VirtualOptions,
    engines,
};
use policy::{AlwaysSoftware, AsyncOffload, Choice, JobFacts, Policy, Snapshot};
use runtime::core_loop::yield_now;
use runtime::{Core, CoreConfig, CoreLoop};
use units::{ByteCount, Clock, ManualClock, Nanos, Prng};
use workload::{
    ArrivalKind, Arrivals, DeviceProfile, PayloadClass, Preset, SizeDist, Sizes, Values, Weighting,
};

/// What a look at the clock takes, with what is done between two.
const LOOK: Nanos = Nanos(40);

#[derive(Clone, Default)]
struct Looked(ManualClock);

impl Clock for Looked {
    fn now(&self) -> Nanos {
        self.0.advance(LOOK);
        self.0.now()
    }
}

/// A policy whose own work takes time.
struct Weighing {
    inner: Arc<dyn Policy>,
    takes: Nanos,
    clock: Looked,
}

impl Policy for Weighing {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn weighs_costs(&self) -> bool {
        self.inner.weighs_costs()
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        self.clock.0.advance(self.takes);
        self.inner.place(job, snapshot, draw)
    }
}

struct Run {
    core: Core,
    clock: Looked,
    start: Nanos,
    pool: Pool,
    took: RefCell<Vec<Nanos>>,
}

impl Run {
    fn now(&self) -> Nanos {
        self.clock.now().since(self.start)
    }

    /// Submits now; the job is answered by a task of its own.
    fn begin(self: &Rc<Self>, input: Bytes, due: Nanos) {
        let running = self.core.run(job(input, &self.pool));
        let run = Rc::clone(self);
        self.core.spawn(async move {
            running.await;
            run.took.borrow_mut().push(run.now().since(due));
        });
    }
}

/// From due to answered, of each job in the order of the answers.
pub(crate) fn run(
    policy: Arc<dyn Policy>,
    per_second: f64,
    jobs: u32,
    weighing: Nanos,
) -> Vec<Nanos> {
    let (clock, inputs) = (Looked::default(), inputs());
    let devices = ["epyc7542-isal", "bluefield2"].map(|name| emulated(name, &clock)).to_vec();
    // Results are made before; in virtual time that takes none, but it does in a test.
    for policy in [Arc::new(AlwaysSoftware) as _, Arc::new(AsyncOffload { work_bytes_min: 0 }) as _]
    {
        let own = core_loop(&devices, policy, &clock);
        let (core, inputs) = (own.core().clone(), inputs.clone());
        own.block_on(async move {
            let pool = Pool::heap(ByteCount::mib(8));
            for input in inputs {
                core.run(job(input, &pool)).await;
            }
        });
    }
    let policy = Arc::new(Weighing { inner: policy, takes: weighing, clock: clock.clone() });
    let own = core_loop(&devices, policy, &clock);
    let run = Rc::new(Run {
        core: own.core().clone(),
        start: clock.now(),
        clock,
        pool: Pool::heap(ByteCount::mib(8)),
        took: RefCell::default(),
    });
    own.core().spawn(source(Rc::clone(&run), inputs, per_second, jobs));
    own.run();
    run.took.take()
}

/// As the source of `rebate reproduce runtime`: the first of those that are due is submitted right here.
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
            let (own, due, input) = (Rc::clone(&run), next, input(&mut random));
            run.core.spawn(async move { own.begin(input, due) });
            begun += 1;
            next = arrivals.next_due(&mut random);
        }
        run.begin(input(&mut random), first);
        begun += 1;
        yield_now().await;
    }
}

fn core_loop(devices: &[Arc<dyn Device>], policy: Arc<dyn Policy>, clock: &Looked) -> CoreLoop {
    let mut config = crate::common::config(devices.to_vec(), Arc::new(clock.clone()));
    (config.policy, config.job_timeout) = (policy, Nanos::secs(10));
    CoreLoop::new(CoreConfig::new(config)).expect("the devices open")
}

fn emulated(name: &str, clock: &Looked) -> Arc<dyn Device> {
    const ENGINES: &[EngineFactory] = &[engines::libdeflate::engine];
    let profile = DeviceProfile::find(name).expect("compiled in");
    let work_clock = Arc::new(ManualClock::default());
    let clock = Arc::new(clock.clone());
    let options = VirtualOptions { clock, work_clock, ..VirtualOptions::default() };
    Arc::new(Virtual::new(&profile, ENGINES, options).expect("a valid profile"))
}

fn job(input: Bytes, pool: &Pool) -> Box<Job> {
    let output = pool.take(input.len() + input.len() / 8 + 1_024);
    let task = Task::Compress { dialect: Dialect::of(Codec::Deflate), level: Level::Default };
    Box::new(Job::new(task, Input::heap(input), output))
}

/// Html of Cache-1's sizes.
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
