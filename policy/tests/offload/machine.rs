//! A machine in virtual time on which policies place jobs: one core with a run queue, and devices with engines. The
//! numbers are similar to BlueField-2. The machine processes no data and reads no clock: a run is a function of its
//! arguments.

use std::collections::VecDeque;
use std::ops::Range;

use device::{Class, TenantId};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
use units::{Nanos, Op, Prng};

use crate::estimator::Estimator;
use crate::load::{Arrival, Load, arrivals};

/// The time that a job takes in one arm (ns): `fixed + per_byte * bytes`.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) fixed_ns: f64,
    pub(crate) per_byte_ns: f64,
}

impl Line {
    pub(crate) fn at(self, bytes: usize) -> f64 {
        self.fixed_ns + self.per_byte_ns * bytes as f64
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Accelerator {
    pub(crate) engines: usize,
    pub(crate) queue_depth: usize,
    /// The time of the core for a submission.
    pub(crate) setup: Line,
    /// The time of one engine for a job.
    pub(crate) occupied: Line,
    /// The time of the path to the device and back, for which no engine is held.
    pub(crate) way_ns: f64,
}

/// Setup takes 0.4 to 2.8 us. The latency equals software's near 256 B and is half of it at 8 KiB. Each engine
/// processes about 1.1 GB/s, which matches the published async throughputs.
pub(crate) const BLUEFIELD: Accelerator = Accelerator {
    engines: 1,
    queue_depth: 256,
    setup: Line { fixed_ns: 360.0, per_byte_ns: 0.03 },
    occupied: Line { fixed_ns: 150.0, per_byte_ns: 0.9 },
    way_ns: 1_400.0,
};

/// ISA-L on a core, which takes 20 us for 8 KiB.
pub(crate) const SOFTWARE: Line = Line { fixed_ns: 1_500.0, per_byte_ns: 2.25 };

/// The times of the core (ns): before a placement, after it, for a task switch, for a poll, and between two polls.
const BEFORE_NS: u64 = 150;
const AFTER_NS: u64 = 100;
const SWITCH_NS: u64 = 40;
const POLL_NS: u64 = 30;
const POLL_EVERY_NS: u64 = 1_000;

/// One job and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) index: usize,
    pub(crate) bytes: usize,
    pub(crate) class: Class,
    pub(crate) choice: Choice,
    pub(crate) latency_ns: u64,
    /// The time from the placement to the end of the work.
    pub(crate) took_ns: u64,
    /// The time of the core, without the times before and after the placement.
    pub(crate) core_ns: u64,
}

enum Turn {
    New(Arrival),
    Resume(Done, u64),
}

struct Flight {
    done: Done,
    arrived_ns: u64,
    submitted_ns: u64,
    depth: usize,
    ready_ns: u64,
}

struct Station {
    is: Accelerator,
    engines_free_ns: Vec<u64>,
    inside: Vec<Flight>,
}

impl Station {
    /// Returns the engine for a job submitted now, when that engine finishes, and when the job would be done.
    fn would_end(&self, now: u64, occupied_ns: f64) -> (usize, u64, u64) {
        let there = now + (self.is.way_ns / 2.0) as u64;
        let engines = self.engines_free_ns.iter().enumerate();
        let (engine, free) = engines.min_by_key(|(_, free)| **free).unwrap();
        let engine_ends = there.max(*free) + occupied_ns as u64;
        (engine, engine_ends, engine_ends + (self.is.way_ns / 2.0) as u64)
    }
}

/// The estimates that the policy sees.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Knows {
    /// The policy sees estimates learnt from completions, like in a runtime.
    Lagging,
    /// The policy sees the exact times of the current job.
    Truth,
}

pub(crate) struct Machine<'a> {
    policy: &'a dyn Policy,
    knows: Knows,
    now: u64,
    last_poll: u64,
    next_poll: u64,
    ready: VecDeque<Turn>,
    stations: Vec<Station>,
    estimator: Estimator,
    draws: Prng,
    slow: Option<(Range<usize>, f64)>,
    deadline: Option<Nanos>,
    done: Vec<Done>,
}

/// Runs every job of the load, and returns them in the order of completion.
pub(crate) fn run(
    policy: &dyn Policy,
    knows: Knows,
    devices: &[Accelerator],
    load: &Load,
) -> Vec<Done> {
    let station = |is: &Accelerator| Station {
        is: *is,
        engines_free_ns: vec![0; is.engines],
        inside: Vec::new(),
    };
    let mut machine = Machine {
        policy,
        knows,
        now: 0,
        last_poll: 0,
        next_poll: 0,
        ready: VecDeque::new(),
        stations: devices.iter().map(station).collect(),
        estimator: Estimator::new(devices.len() + 1),
        draws: Prng::new(load.seed + 1),
        slow: load.slow.clone(),
        deadline: load.deadline,
        done: Vec::with_capacity(load.jobs),
    };
    machine.go(&arrivals(load));
    machine.done
}

impl Machine<'_> {
    fn go(&mut self, arrivals: &[Arrival]) {
        let mut next = 0;
        while self.done.len() < arrivals.len() {
            while next < arrivals.len() && arrivals[next].at_ns <= self.now {
                self.ready.push_back(Turn::New(arrivals[next]));
                next += 1;
            }
            let inside = self.stations.iter().any(|station| !station.inside.is_empty());
            if inside && self.now >= self.next_poll {
                self.poll();
            }
            match self.ready.pop_front() {
                Some(Turn::New(arrival)) => self.start(arrival),
                Some(Turn::Resume(done, arrived_ns)) => self.end(done, arrived_ns),
                None => {
                    let arrival = arrivals.get(next).map(|arrival| arrival.at_ns);
                    let poll = inside.then_some(self.next_poll);
                    let then = arrival.into_iter().chain(poll).min().unwrap();
                    self.now = self.now.max(then);
                }
            }
        }
    }

    fn poll(&mut self) {
        self.now += POLL_NS;
        for (index, station) in self.stations.iter_mut().enumerate() {
            let now = self.now;
            let mut ready: Vec<_> =
                station.inside.extract_if(.., |flight| flight.ready_ns <= now).collect();
            ready.sort_by_key(|flight| flight.ready_ns);
            for flight in ready {
                let since = |at: u64| at.saturating_sub(flight.submitted_ns) as f64;
                let took = (since(self.last_poll), since(now));
                self.estimator.learn(index + 1, flight.done.bytes, took, flight.depth);
                self.ready.push_back(Turn::Resume(flight.done, flight.arrived_ns));
            }
        }
        self.last_poll = self.now;
        self.next_poll = self.now + POLL_EVERY_NS;
    }

    fn start(&mut self, arrival: Arrival) {
        self.now += BEFORE_NS;
        let choice = self.place(&arrival);
        let Arrival { index, bytes, class, factor, at_ns } = arrival;
        let done = Done { index, bytes, class, choice, latency_ns: 0, took_ns: 0, core_ns: 0 };
        if choice.device() == 0 {
            let took = SOFTWARE.at(bytes) * factor;
            self.now += took as u64;
            self.estimator.learn_host(0, bytes, took);
            let took = took as u64;
            return self.end(Done { took_ns: took, core_ns: took, ..done }, at_ns);
        }
        let slow = self.slow_by(choice.device(), index);
        let station = &mut self.stations[choice.device() - 1];
        let depth = station.inside.len();
        assert!(depth < station.is.queue_depth, "{choice:?}");
        let submitted_ns = self.now;
        let setup = station.is.setup.at(bytes);
        self.now += setup as u64;
        let occupied = station.is.occupied.at(bytes) * factor * slow;
        let (engine, engine_ends, ready_ns) = station.would_end(self.now, occupied);
        station.engines_free_ns[engine] = engine_ends;
        if choice.placement == Placement::Sync {
            self.now = self.now.max(ready_ns);
            let took = self.now - submitted_ns;
            self.estimator.learn_host(choice.device(), bytes, setup);
            self.estimator.learn(choice.device(), bytes, (took as f64, took as f64), depth);
            return self.end(Done { took_ns: took, core_ns: took, ..done }, at_ns);
        }
        self.now += SWITCH_NS;
        let core_ns = self.now - submitted_ns + SWITCH_NS;
        self.estimator.learn_host(choice.device(), bytes, core_ns as f64);
        let done = Done { took_ns: ready_ns - submitted_ns, core_ns, ..done };
        station.inside.push(Flight { done, arrived_ns: at_ns, submitted_ns, depth, ready_ns });
    }

    fn end(&mut self, done: Done, arrived_ns: u64) {
        self.now += AFTER_NS;
        if done.choice.placement == Placement::Async {
            self.now += SWITCH_NS;
        }
        self.done.push(Done { latency_ns: self.now - arrived_ns, ..done });
    }

    fn place(&mut self, arrival: &Arrival) -> Choice {
        let states = self.states(arrival);
        let facts = JobFacts {
            op: Op::Compress,
            dialect: None,
            work_bytes: arrival.bytes,
            class: arrival.class,
            tenant: TenantId(0),
            time_left: self.deadline.map(|left| left.since(Nanos(self.now - arrival.at_ns))),
            last: self.estimator.last(arrival.bytes),
        };
        self.estimator.arrived(self.now as f64);
        let gap = self.estimator.gap();
        let snapshot = Snapshot { devices: &states, waiting: self.ready.len(), gap };
        let choice = self.policy.place(&facts, &snapshot, self.draws.bits());
        if choice.reason != Reason::Probe {
            self.estimator.remember(arrival.bytes, (choice.device(), choice.placement));
        }
        choice
    }

    fn states(&self, arrival: &Arrival) -> Vec<DeviceState> {
        let bytes = arrival.bytes;
        let state = |device: usize, depth, capacity| {
            let (estimated, host) = match self.knows {
                Knows::Lagging => self.estimator.estimate(device, bytes, depth),
                Knows::Truth => self.truth(device, arrival),
            };
            DeviceState { eligible: true, healthy: true, depth, capacity, estimated, host }
        };
        let others = self.stations.iter().enumerate();
        let others = others.map(|(index, is)| state(index + 1, is.inside.len(), is.is.queue_depth));
        std::iter::once(state(0, 0, 1)).chain(others).collect()
    }

    fn truth(&self, device: usize, arrival: &Arrival) -> (Option<Nanos>, Option<Nanos>) {
        let Arrival { bytes, factor, index, .. } = *arrival;
        let ns = |ns: f64| Some(Nanos(ns as u64));
        if device == 0 {
            let software = ns(SOFTWARE.at(bytes) * factor);
            return (software, software);
        }
        let station = &self.stations[device - 1];
        let setup = station.is.setup.at(bytes);
        let occupied = station.is.occupied.at(bytes) * factor * self.slow_by(device, index);
        let (.., ready) = station.would_end(self.now + setup as u64, occupied);
        (ns((ready - self.now) as f64), ns(setup + 2.0 * SWITCH_NS as f64))
    }

    fn slow_by(&self, device: usize, index: usize) -> f64 {
        match &self.slow {
            Some((during, by)) if device == 1 && during.contains(&index) => *by,
            _ => 1.0,
        }
    }
}
