//! A machine in virtual time, on which the tests of other crates place jobs. It has one core with a run queue and a
//! load of random jobs. A [`Host`] places the jobs and polls the devices. The times are similar to those of
//! BlueField-2. Nothing is measured and no data is needed: a run is a function of its arguments.

use std::collections::VecDeque;
use std::ops::Range;

use units::{Clock, ManualClock, Nanos, Prng};
use workload::{ArrivalKind, Arrivals};

use crate::job::Class;
use crate::virtual_device::{Cost, Timeline};

/// The core's time for a request before the placement of its job.
const BEFORE: Nanos = Nanos(150);
/// The core's time for a request after its job.
const AFTER: Nanos = Nanos(100);
/// The core's time to switch between tasks.
pub const SWITCH: Nanos = Nanos(40);
/// The core's time for a poll. The host adds it to the clock, because only the host knows when a device is polled.
pub const POLL: Nanos = Nanos(30);
/// The time between two polls.
pub const POLL_EVERY: Nanos = Nanos(1_000);

/// The maximum relative deviation of a job's time from its line, up or down, because of its content.
pub const SPREAD: f64 = 0.2;

/// The time of a job as a linear function of its size.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The time of an empty job.
    pub fixed_ns: f64,
    /// The time of each byte.
    pub ns_per_byte: f64,
}

impl Line {
    /// Returns the time of a job of this size (ns).
    pub fn at(self, bytes: usize) -> f64 {
        self.fixed_ns + self.ns_per_byte * bytes as f64
    }
}

/// ISA-L on the core, which takes 20 us for 8 KiB.
pub const SOFTWARE: Line = Line { fixed_ns: 1_500.0, ns_per_byte: 2.25 };

/// The properties of a device.
#[derive(Clone, Copy, Debug)]
pub struct Accelerator {
    /// The number of engines.
    pub engines: usize,
    /// The largest number of jobs that are inside.
    pub queue_depth: usize,
    /// The core's time for a submission.
    pub setup: Line,
    /// The time of a job on one engine.
    pub occupied: Line,
    /// The time of the path to the device, and of the path back. The job holds no engine during this time.
    pub way: Nanos,
}

/// An accelerator like BlueField-2. Setup takes 0.4 to 2.8 us. The latency equals software's near 256 B and is half of
/// it at 8 KiB. Each engine processes about 1.1 GB/s, which matches the published async throughputs. One engine
/// saturates at 425,000 jobs per second.
pub const BLUEFIELD: Accelerator = Accelerator {
    engines: 1,
    queue_depth: 256,
    setup: Line { fixed_ns: 360.0, ns_per_byte: 0.03 },
    occupied: Line { fixed_ns: 150.0, ns_per_byte: 0.9 },
    way: Nanos(700),
};

/// The engines of one device. The timeline is that of emulated devices, which the simulator uses too.
pub struct Engines {
    way: Nanos,
    timeline: Timeline,
}

impl Engines {
    /// Makes an idle device.
    pub fn new(accelerator: &Accelerator) -> Self {
        let timeline = Timeline::idle(accelerator.engines, accelerator.queue_depth);
        Self { way: accelerator.way, timeline }
    }

    /// Starts a job that the core submits at `now`, and returns the time when it is back. The caller ensures that there
    /// is room in the queue.
    pub fn submit(&self, now: Nanos, occupied_ns: f64) -> Nanos {
        assert!(self.timeline.reserve(now + self.way), "the queue has no room");
        self.timeline.admit(now + self.way, cost(occupied_ns)) + self.way
    }

    /// Returns the time when a job would be back.
    pub fn would_end(&self, now: Nanos, occupied_ns: f64) -> Nanos {
        self.timeline.would_complete(now + self.way, cost(occupied_ns)) + self.way
    }
}

fn cost(occupied_ns: f64) -> Cost {
    Cost { engine: Nanos(occupied_ns as u64), interval: Nanos(0) }
}

/// A load with Poisson arrivals of Cache-1-like sizes.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of jobs.
    pub jobs: usize,
    /// The mean number of arrivals per second.
    pub per_second: f64,
    /// The share of the jobs that are batch jobs.
    pub batch: f64,
    /// The indices of the jobs during which the first device is slow, and the factor by which its times grow.
    pub slow: Option<(Range<usize>, f64)>,
    /// The deadline of every job, counted from its arrival.
    pub deadline: Option<Nanos>,
}

/// One job of a load.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The position in the load.
    pub index: usize,
    /// The time of the arrival.
    pub at: Nanos,
    /// The size.
    pub bytes: usize,
    /// The service class.
    pub class: Class,
    /// The deadline, if the job has one.
    pub deadline: Option<Nanos>,
    /// How slow the value's content makes the job: 0 the fastest, 0.5 as long as the job's size says, 1 the slowest.
    pub content: f64,
    /// The factor by which the first device's times grow.
    pub slowed_by: f64,
}

impl Arrival {
    /// Returns the factor by which the content changes the job's time.
    pub fn factor(&self) -> f64 {
        1.0 + SPREAD * (2.0 * self.content - 1.0)
    }
}

impl Load {
    /// Makes a load of equal jobs without deadlines.
    pub fn new(jobs: usize, per_second: f64) -> Self {
        Self { jobs, per_second, batch: 0.0, slow: None, deadline: None }
    }

    fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        let mut due = Arrivals::new(ArrivalKind::Poisson, self.per_second, 0.0);
        let mut draws = Prng::new(SEED);
        (0..self.jobs).map(move |index| {
            let at = due.next_due(&mut draws);
            let bytes = cache_1(draws.unit(), draws.unit());
            let is_batch = draws.unit() < self.batch;
            let class = if is_batch { Class::Batch } else { Class::LatencyCritical };
            let deadline = self.deadline.map(|left| at + left);
            let slow = self.slow.as_ref().filter(|(jobs, _)| jobs.contains(&index));
            let slowed_by = slow.map_or(1.0, |(_, by)| *by);
            Arrival { index, at, bytes, class, deadline, content: draws.unit(), slowed_by }
        })
    }
}

/// Returns a Cache-1-like size, distributed log-uniformly within steps. Few sizes are below 256 B, 85 % take less than
/// 10 us in software, and the mean is 2.4 KB.
fn cache_1(step: f64, within: f64) -> usize {
    const STEPS: [(f64, f64); 9] = [
        (0.00, 64.0),
        (0.05, 256.0),
        (0.20, 512.0),
        (0.45, 1_024.0),
        (0.67, 2_048.0),
        (0.85, 3_700.0),
        (0.95, 8_192.0),
        (0.99, 16_384.0),
        (1.00, 32_768.0),
    ];
    let at = STEPS.iter().rposition(|(share, _)| *share <= step).unwrap_or(0);
    let (low, high) = (STEPS[at].1, STEPS[at + 1].1);
    (low * (high / low).powf(within)) as usize
}

const SEED: u64 = 11;

/// The code under test, which places jobs. It shares the clock of the machine and adds the times of jobs and polls.
pub trait Host {
    /// A job that has finished.
    type Job;
    /// The result of a job, besides its latency.
    type Result;

    /// Starts a job while `waiting` others wait for the core. Returns the job if it is finished, and none if a poll
    /// will return it.
    fn start(&mut self, arrival: &Arrival, waiting: usize) -> Option<Self::Job>;

    /// Polls the devices, and adds the jobs that have finished.
    fn poll(&mut self, finished: &mut Vec<(Arrival, Self::Job)>);

    /// Takes the result of a finished job.
    fn end(&mut self, job: Self::Job) -> Self::Result;
}

/// One job and its result.
#[derive(Clone, Copy, Debug)]
pub struct Done<R> {
    /// The job.
    pub job: Arrival,
    /// The time from the arrival to the end.
    pub latency_ns: u64,
    /// The host's result.
    pub result: R,
}

/// Runs every job of the load, and returns them in the order of completion.
pub fn run<H: Host>(host: &mut H, clock: &ManualClock, load: &Load) -> Vec<Done<H::Result>> {
    let mut arrivals = load.arrivals().peekable();
    let mut done = Vec::with_capacity(load.jobs);
    // A turn of the core begins a job, or continues after a job that a poll found.
    let mut turns: VecDeque<(Arrival, Option<H::Job>)> = VecDeque::new();
    let (mut inside, mut finished, mut next_poll) = (0, Vec::new(), Nanos(0));
    while done.len() < load.jobs {
        let now = clock.now();
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            turns.push_back((arrival, None));
        }
        if inside > 0 && now >= next_poll {
            host.poll(&mut finished);
            inside -= finished.len();
            turns.extend(finished.drain(..).map(|(arrival, job)| (arrival, Some(job))));
            next_poll = clock.now() + POLL_EVERY;
        }
        let Some((arrival, resumed)) = turns.pop_front() else {
            let poll = (inside > 0).then_some(next_poll);
            let then = arrivals.peek().map(|arrival| arrival.at).into_iter().chain(poll).min();
            clock.advance(then.expect("jobs are left").since(clock.now()));
            continue;
        };
        clock.advance(if resumed.is_some() { SWITCH } else { BEFORE });
        if let Some(job) = resumed.or_else(|| host.start(&arrival, turns.len())) {
            clock.advance(AFTER);
            let latency_ns = clock.now().since(arrival.at).0;
            done.push(Done { job: arrival, latency_ns, result: host.end(job) });
        } else {
            clock.advance(SWITCH);
            inside += 1;
        }
    }
    done
}

/// Returns the jobs without the first tenth of the load, in which the policy learns.
pub fn settled<R>(done: &[Done<R>]) -> impl Iterator<Item = &Done<R>> {
    done.iter().filter(|one| one.job.index >= done.len() / 10)
}

/// Returns the 99th percentile of the latencies (us).
pub fn p99_us<'a, R: 'a>(done: impl Iterator<Item = &'a Done<R>>) -> f64 {
    let mut all: Vec<_> = done.map(|one| one.latency_ns).collect();
    all.sort_unstable();
    all[(all.len() - 1) * 99 / 100] as f64 / 1e3
}
