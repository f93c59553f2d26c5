//! Simulates the runtime's open loop. Requests are due at random times on one core with software and one device, and
//! the policy is the one that the runtime ships. The experiment `rebate reproduce runtime` compares this model with the
//! runtime on the same profiles. Agreement of the two makes the simulator's other results more credible.
//!
//! The core does one thing at a time. It first handles the completions that it found and then the requests that are
//! due, and it polls for completions once per interval. A job in software and a job that the core waits for keep the
//! core busy. Any other job costs the core only its submission. The device is the timeline of the emulated device, with
//! the same profile. A policy that uses costs gets the true costs, as from a runtime that has learnt them. Probes and
//! page faults are left out. The caller specifies the cost of the runtime's own work.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::virtual_device::{Cost, Timeline};
use device::{Class, Codec, Dialect, TenantId};
use policy::{DeviceState, JobFacts, Placement, Policy, Snapshot};
use units::{Nanos, Op, Prng};
use workload::{ArrivalKind, Arrivals, DeviceProfile};

use crate::Picos;
use crate::agenda::{Agenda, Model, run};

/// The parameters of the simulated loop.
#[derive(Clone)]
pub struct RuntimeModel {
    /// The policy that decides where a job runs.
    pub policy: Arc<dyn Policy>,
    /// The profile of software on the core, which has no accelerator.
    pub software: DeviceProfile,
    /// The profile of the device.
    pub device: DeviceProfile,
    /// The sizes of the jobs (bytes), each equally likely. Every job is a compression.
    pub sizes_bytes: Vec<u64>,
    /// The number of requests that are due per second, at random (Poisson) times.
    pub rate_per_s: f64,
    /// The time during which requests are due.
    pub window: Nanos,
    /// Requests due before this time are not counted.
    pub warm_up: Nanos,
    /// The time after the window in which a request may still be answered. A request that is answered later counts as
    /// not answered, and a request that has not begun by then is not begun.
    pub grace: Nanos,
    /// The shortest time between two polls for completed jobs.
    pub poll_interval: Nanos,
    /// The core's time for a request before the request runs in software or is submitted. It is added to the
    /// costs of the profiles.
    pub place: Nanos,
    /// The core's time for a submission while the device is already busy. It is the cost of the emulation.
    pub emulate: Nanos,
    /// The core's time for a completed job, after the core has found the completion.
    pub completion: Nanos,
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeRun {
    /// The latencies of the requests due after the warm-up, from the due time until the answer or the drop (ns),
    /// ascending.
    pub latency_ns: Vec<u64>,
    /// The number of requests answered in the window or its grace, divided by the number of requests due in the window.
    pub achieved: f64,
    /// The share of the requests that went to the device.
    pub offloaded: f64,
}

impl RuntimeRun {
    /// Returns the latency that this share of the requests does not exceed (us), or none without requests.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        let last = self.latency_ns.len().checked_sub(1)?;
        let rank = (share * self.latency_ns.len() as f64).ceil().max(1.0) as usize - 1;
        Some(self.latency_ns[rank.min(last)] as f64 / 1e3)
    }
}

impl RuntimeModel {
    /// Simulates one run. Everything random follows from the seed.
    ///
    /// # Panics
    /// Panics without sizes, if a profile has no compression, or if the device has no accelerator. The caller ensures
    /// that they exist.
    pub fn run(&self, seed: u64) -> RuntimeRun {
        let accelerator = self.device.accelerator.as_ref().expect("a device has an accelerator");
        let mut arrivals = Arrivals::new(ArrivalKind::Poisson, self.rate_per_s, 0.0);
        let mut random = Prng::new(seed);
        let mut machine = Machine {
            plan: self,
            timeline: Timeline::new(accelerator),
            entries: accelerator.entries_total.value as usize,
            is_busy: false,
            due: VecDeque::new(),
            completed: VecDeque::new(),
            found: VecDeque::new(),
            next_poll: Nanos(0),
            is_idle: true,
            in_flight: 0,
            backlog_until: Nanos(0),
            burst: 0,
            gap: Gap::default(),
            last: [None; CLASSES],
            draws: Prng::new(seed ^ DRAWS),
            log: Log::default(),
        };
        let mut agenda = Agenda::with_capacity(1 << 10);
        let mut next = arrivals.next_due(&mut random);
        while next < self.window {
            let size = random.below(self.sizes_bytes.len() as u64) as usize;
            agenda
                .at(picos(next), Event::Due(Request { due: next, bytes: self.sizes_bytes[size] }));
            next = arrivals.next_due(&mut random);
        }
        run(&mut machine, &mut agenda, u64::MAX);
        machine.log.finish()
    }
}

#[derive(Clone, Copy)]
struct Request {
    due: Nanos,
    bytes: u64,
}

#[derive(Clone, Copy)]
enum Event {
    /// A request is due.
    Due(Request),
    /// The core has finished its current work, which may complete a request.
    Free(Option<Request>),
    /// The device has completed a request.
    Completed(Request),
    /// The idle core polls for completions.
    Poll,
}

/// The core, the device and the waiting requests.
struct Machine<'a> {
    plan: &'a RuntimeModel,
    timeline: Timeline,
    entries: usize,
    is_busy: bool,
    due: VecDeque<Request>,
    completed: VecDeque<Request>,
    /// The completed requests that the core knows of.
    found: VecDeque<Request>,
    next_poll: Nanos,
    /// Whether the core has done nothing but poll since it was last free.
    is_idle: bool,
    in_flight: usize,
    /// The time at which the device would have finished its current jobs.
    backlog_until: Nanos,
    /// The number of submissions since the core last polled for completions.
    burst: u64,
    gap: Gap,
    last: [Option<(usize, Placement)>; CLASSES],
    draws: Prng,
    log: Log,
}

impl Model for Machine<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        let now = nanos(agenda.now());
        match event {
            Event::Due(request) => {
                self.log.offered += 1;
                self.due.push_back(request);
            }
            Event::Completed(request) => self.completed.push_back(request),
            Event::Poll => {}
            Event::Free(done) => {
                self.is_busy = false;
                if let Some(request) = done {
                    self.answered(request, now);
                }
            }
        }
        if !self.is_busy {
            self.next(now, agenda);
        }
        ControlFlow::Continue(())
    }
}

impl Machine<'_> {
    /// Starts the core's next work. Completions come before requests that are due.
    fn next(&mut self, now: Nanos, agenda: &mut Agenda<Event>) {
        let poll = self.poll_after(now);
        if poll <= now {
            self.next_poll = now + self.plan.poll_interval;
            self.burst = 0;
            self.in_flight -= self.completed.len();
            self.found.append(&mut self.completed);
        }
        if let Some(request) = self.found.pop_front() {
            return self.keep(now + self.plan.completion, Some(request), agenda);
        }
        while let Some(request) = self.due.pop_front() {
            if now <= self.plan.window + self.plan.grace {
                return self.place(request, now, agenda);
            }
            self.log.waited(self.plan, request, now);
        }
        self.is_idle = true;
        if !self.completed.is_empty() {
            agenda.at(picos(poll), Event::Poll);
        }
    }

    /// Returns the time at which the core next polls for completions. A poll that became due while the core
    /// was busy happens at once. An idle core polls at every interval.
    fn poll_after(&mut self, now: Nanos) -> Nanos {
        if self.is_idle && self.next_poll < now {
            let interval_ns = self.plan.poll_interval.0.max(1);
            let late = now.since(self.next_poll).0;
            self.next_poll += Nanos(late.div_ceil(interval_ns) * interval_ns);
        }
        self.next_poll.max(now)
    }

    fn place(&mut self, request: Request, now: Nanos, agenda: &mut Agenda<Event>) {
        self.gap.placed(now);
        let class = class(request.bytes);
        let arrival = now + self.plan.place;
        let choice = {
            let states = self.states(request.bytes, arrival);
            let snapshot =
                Snapshot { devices: &states, waiting: self.due.len(), gap: self.gap.known() };
            let job = JobFacts {
                op: Op::Compress,
                dialect: Some(Dialect::new(Codec::Deflate)),
                work_bytes: request.bytes as usize,
                class: Class::LatencyCritical,
                tenant: TenantId::default(),
                time_left: None,
                last: self.last[class],
            };
            self.plan.policy.place(&job, &snapshot, self.draws.bits())
        };
        self.last[class] = Some((choice.device(), choice.placement));
        let submit = self.plan.device.submit_nth(request.bytes, self.burst + 1);
        let arrived = arrival + submit;
        let is_offloaded = choice.placement != Placement::Software
            && self.in_flight < self.entries
            && self.timeline.reserve(arrived);
        if !is_offloaded {
            return self.keep(arrival + self.software(request.bytes), Some(request), agenda);
        }
        self.burst += 1;
        self.log.offloaded += 1;
        let done = self.admit(request.bytes, arrived);
        if choice.placement == Placement::Sync {
            let until = done.max(arrived + self.plan.emulate) + self.plan.completion;
            return self.keep(until, Some(request), agenda);
        }
        self.in_flight += 1;
        agenda.at(picos(done), Event::Completed(request));
        self.keep(arrived + self.plan.emulate, None, agenda);
    }

    /// Returns the time at which the device completes a job that arrives at `arrived`.
    fn admit(&mut self, bytes: u64, arrived: Nanos) -> Nanos {
        let op = self.plan.device.compress().expect("the device compresses");
        // Published latencies include the submission of a single job.
        let engine = op.latency(bytes).since(self.plan.device.submit(bytes));
        let done = self.timeline.admit(arrived, Cost { engine, interval: op.interval(bytes) });
        self.backlog_until = self.backlog_until.max(done.since(engine)) + op.interval(bytes);
        done
    }

    /// Returns the states of software and the device as the policy sees them.
    fn states(&self, bytes: u64, now: Nanos) -> [DeviceState; 2] {
        let op = self.plan.device.compress().expect("the device compresses");
        let software = self.software(bytes);
        let waits = self.backlog_until.since(now);
        let state = |depth, capacity, estimated, host| DeviceState {
            eligible: true,
            healthy: true,
            depth,
            capacity,
            estimated: Some(estimated),
            host: Some(host),
        };
        let submit = self.plan.device.submit_nth(bytes, self.burst + 1);
        let host = submit + self.plan.emulate + self.plan.completion;
        let latency = op.latency(bytes) + waits + self.plan.completion;
        [
            state(0, usize::MAX, software, software),
            state(self.in_flight, self.entries, latency, host),
        ]
    }

    fn software(&self, bytes: u64) -> Nanos {
        self.plan.software.compress().expect("software compresses").latency(bytes)
    }

    /// Keeps the core busy until `until`. A request in `done` is answered at that time.
    fn keep(&mut self, until: Nanos, done: Option<Request>, agenda: &mut Agenda<Event>) {
        (self.is_busy, self.is_idle) = (true, false);
        agenda.at(picos(until), Event::Free(done));
    }

    fn answered(&mut self, request: Request, now: Nanos) {
        self.log.in_window += usize::from(now <= self.plan.window + self.plan.grace);
        self.log.waited(self.plan, request, now);
    }
}

/// The mean time between jobs, smoothed in the same way as in the runtime.
#[derive(Default)]
struct Gap {
    before: Option<Nanos>,
    mean_ns: Option<f64>,
}

impl Gap {
    fn placed(&mut self, now: Nanos) {
        if let Some(before) = self.before.replace(now) {
            let gap_ns = now.since(before).0 as f64;
            let mean = self.mean_ns.get_or_insert(gap_ns);
            *mean += (gap_ns - *mean) * GAP_SHARE;
        }
    }

    fn known(&self) -> Option<Nanos> {
        self.mean_ns.map(|mean_ns| Nanos(mean_ns as u64))
    }
}

#[derive(Default)]
struct Log {
    offered: usize,
    offloaded: usize,
    in_window: usize,
    latency_ns: Vec<u64>,
}

impl Log {
    fn waited(&mut self, plan: &RuntimeModel, request: Request, until: Nanos) {
        if request.due >= plan.warm_up {
            self.latency_ns.push(until.since(request.due).0);
        }
    }

    fn finish(mut self) -> RuntimeRun {
        self.latency_ns.sort_unstable();
        let of_offered = |count: usize| count as f64 / self.offered.max(1) as f64;
        let (achieved, offloaded) = (of_offered(self.in_window), of_offered(self.offloaded));
        RuntimeRun { latency_ns: self.latency_ns, achieved, offloaded }
    }
}

/// Returns the size class of a job. A policy that stays with its last choice treats all sizes of a class alike.
fn class(bytes: u64) -> usize {
    (bytes.max(1).ilog2() as usize).min(CLASSES - 1)
}

const fn picos(time: Nanos) -> Picos {
    Picos::nanos(time.0)
}

const fn nanos(time: Picos) -> Nanos {
    Nanos(time.0 / 1_000)
}

const CLASSES: usize = 32;
/// The weight of a new gap in the mean. The mean covers about a hundred jobs.
const GAP_SHARE: f64 = 0.01;
/// Separates the seed of the policy's draws from the seed of the arrivals.
const DRAWS: u64 = 0x9e37_79b9;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(policy: Arc<dyn Policy>, rate_per_s: f64) -> RuntimeModel {
        let find = |name| DeviceProfile::find(name).expect("compiled in");
        RuntimeModel {
            policy,
            software: find("epyc7542-isal"),
            device: find("bluefield2"),
            sizes_bytes: vec![8 << 10],
            rate_per_s,
            window: Nanos::millis(2_000),
            warm_up: Nanos::millis(100),
            grace: Nanos::millis(1),
            poll_interval: Nanos(0),
            place: Nanos(0),
            emulate: Nanos(0),
            completion: Nanos(0),
        }
    }

    #[test]
    fn an_idle_core_takes_what_the_profiles_say() {
        let software = plan(Arc::new(policy::AlwaysSoftware), 10.0).run(1);
        let profile = DeviceProfile::find("epyc7542-isal").expect("compiled in");
        let alone_us = profile.compress().expect("compresses").latency(8 << 10).0 as f64 / 1e3;
        assert_eq!(software.quantile_us(0.5), Some(alone_us));
        assert_eq!((software.achieved, software.offloaded), (1.0, 0.0));
        let offloaded = plan(Arc::new(policy::AsyncOffload { work_bytes_min: 0 }), 10.0).run(1);
        let device = DeviceProfile::find("bluefield2").expect("compiled in");
        let alone_us = device.compress().expect("compresses").latency(8 << 10).0 as f64 / 1e3;
        assert_eq!(offloaded.quantile_us(0.5), Some(alone_us));
        assert_eq!(offloaded.offloaded, 1.0);
    }

    /// Compares the mean wait with the Pollaczek-Khinchine formula for one core and constant service.
    #[test]
    fn a_half_loaded_core_waits_as_theory_says() {
        let profile = DeviceProfile::find("epyc7542-isal").expect("compiled in");
        let service_ns = profile.compress().expect("compresses").latency(8 << 10).0 as f64;
        let plan = RuntimeModel {
            window: Nanos::secs(60),
            ..plan(Arc::new(policy::AlwaysSoftware), 0.5e9 / service_ns)
        };
        let found = plan.run(7);
        let mean_ns = found.latency_ns.iter().sum::<u64>() as f64 / found.latency_ns.len() as f64;
        let expected_ns = service_ns * (1.0 + 0.5 / (2.0 * (1.0 - 0.5)));
        assert!((mean_ns / expected_ns - 1.0).abs() < 0.02, "{mean_ns} {expected_ns}");
    }

    #[test]
    fn past_saturation_what_is_late_is_counted_and_not_made() {
        let found = plan(Arc::new(policy::AlwaysSoftware), 200_000.0).run(3);
        assert!(found.achieved < 0.5, "{}", found.achieved);
        let due = found.latency_ns.len() as f64;
        assert!((due / (200_000.0 * 1.9) - 1.0).abs() < 0.02, "{due}");
        assert_eq!(found, plan(Arc::new(policy::AlwaysSoftware), 200_000.0).run(3));
    }

    #[test]
    fn a_load_aware_policy_leaves_a_full_core() {
        let least = Arc::new(policy::LeastLatency { inline_bytes_max: 256 << 10 });
        let profile = DeviceProfile::find("epyc7542-isal").expect("compiled in");
        let service_ns = profile.compress().expect("compresses").latency(8 << 10).0 as f64;
        let busy = plan(least, 0.9e9 / service_ns).run(5);
        let software = plan(Arc::new(policy::AlwaysSoftware), 0.9e9 / service_ns).run(5);
        assert!(busy.quantile_us(0.99) < software.quantile_us(0.99));
        assert!(busy.offloaded > 0.1, "{}", busy.offloaded);
    }
}
