//! Policies that place the jobs of the machine in virtual time (`device::machine`), without a runtime.

use device::TenantId;
use device::machine::{
    Accelerator, Arrival, Done as DoneWith, Engines, Host, Load, POLL, SOFTWARE, SWITCH,
};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
use units::{Clock, ManualClock, Nanos, Op, Prng};

use crate::estimator::Estimator;

pub(crate) type Done = DoneWith<Ran>;

/// The place and the times of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) choice: Choice,
    /// The time from the placement to the end of the work.
    pub(crate) took_ns: u64,
    /// The core time, without the times before and after the placement.
    pub(crate) core_ns: u64,
}

struct Flight {
    arrival: Arrival,
    ran: Ran,
    submitted: Nanos,
    depth: usize,
    ready: Nanos,
}

struct Station {
    is: Accelerator,
    engines: Engines,
    in_flight: Vec<Flight>,
}

/// The estimates that the policy sees.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Knows {
    /// The policy sees estimates learnt from completions, like in a runtime.
    Lagging,
    /// The policy sees the exact times of the current job.
    Truth,
}

struct Machine<'a> {
    policy: &'a dyn Policy,
    knows: Knows,
    clock: ManualClock,
    last_poll: Nanos,
    stations: Vec<Station>,
    estimator: Estimator,
    draws: Prng,
}

/// Runs every job of the load, and returns them in the order of completion.
pub(crate) fn run(
    policy: &dyn Policy,
    knows: Knows,
    devices: &[Accelerator],
    load: &Load,
) -> Vec<Done> {
    let station =
        |is: &Accelerator| Station { is: *is, engines: Engines::new(is), in_flight: vec![] };
    let clock = ManualClock::default();
    let mut machine = Machine {
        policy,
        knows,
        clock: clock.clone(),
        last_poll: Nanos(0),
        stations: devices.iter().map(station).collect(),
        estimator: Estimator::new(devices.len() + 1),
        draws: Prng::new(12),
    };
    device::machine::run(&mut machine, &clock, load)
}

impl Host for Machine<'_> {
    type Job = Ran;
    type Result = Ran;

    fn start(&mut self, arrival: &Arrival, waiting: usize) -> Option<Ran> {
        let choice = self.place(arrival, waiting);
        let (bytes, submitted) = (arrival.bytes, self.clock.now());
        if choice.device() == 0 {
            let took = SOFTWARE.at(bytes) * arrival.factor();
            self.clock.advance(Nanos(took as u64));
            self.estimator.learn_host(0, bytes, took);
            return Some(Ran { choice, took_ns: took as u64, core_ns: took as u64 });
        }
        let station = &mut self.stations[choice.device() - 1];
        let depth = station.in_flight.len();
        assert!(depth < station.is.queue_depth, "{choice:?}");
        let setup = station.is.setup.at(bytes);
        self.clock.advance(Nanos(setup as u64));
        let now = self.clock.now();
        let ready = station.engines.submit(now, occupied(&station.is, choice.device(), arrival));
        if choice.placement == Placement::Sync {
            self.clock.advance(ready.since(now));
            let took_ns = self.clock.now().since(submitted).0;
            let took = took_ns as f64;
            self.estimator.learn_host(choice.device(), bytes, setup);
            self.estimator.learn(choice.device(), bytes, (took, took), depth);
            return Some(Ran { choice, took_ns, core_ns: took_ns });
        }
        let core_ns = (now.since(submitted) + SWITCH + SWITCH).0;
        self.estimator.learn_host(choice.device(), bytes, core_ns as f64);
        let ran = Ran { choice, took_ns: ready.since(submitted).0, core_ns };
        station.in_flight.push(Flight { arrival: *arrival, ran, submitted, depth, ready });
        None
    }

    fn poll(&mut self, finished: &mut Vec<(Arrival, Ran)>) {
        self.clock.advance(POLL);
        let now = self.clock.now();
        for (index, station) in self.stations.iter_mut().enumerate() {
            let mut ready: Vec<_> =
                station.in_flight.extract_if(.., |flight| flight.ready <= now).collect();
            ready.sort_by_key(|flight| flight.ready);
            for flight in ready {
                let since = |at: Nanos| at.since(flight.submitted).0 as f64;
                let took = (since(self.last_poll), since(now));
                self.estimator.learn(index + 1, flight.arrival.bytes, took, flight.depth);
                finished.push((flight.arrival, flight.ran));
            }
        }
        self.last_poll = now;
    }

    fn end(&mut self, ran: Ran) -> Ran {
        ran
    }
}

/// Returns the time of the job on an engine (ns).
fn occupied(is: &Accelerator, device: usize, arrival: &Arrival) -> f64 {
    let slowed_by = if device == 1 { arrival.slowed_by } else { 1.0 };
    is.occupied.at(arrival.bytes) * arrival.factor() * slowed_by
}

impl Machine<'_> {
    fn place(&mut self, arrival: &Arrival, waiting: usize) -> Choice {
        let now = self.clock.now();
        let states = self.states(arrival, now);
        let facts = JobFacts {
            op: Op::Compress,
            dialect: None,
            work_bytes: arrival.bytes,
            class: arrival.class,
            tenant: TenantId(0),
            time_left: arrival.deadline.map(|deadline| deadline.since(now)),
            last: self.estimator.last(arrival.bytes),
        };
        self.estimator.arrived(now.0 as f64);
        let snapshot = Snapshot { devices: &states, waiting, gap: self.estimator.gap() };
        let choice = self.policy.place(&facts, &snapshot, self.draws.bits());
        if choice.reason != Reason::Probe {
            self.estimator.remember(arrival.bytes, (choice.device(), choice.placement));
        }
        choice
    }

    fn states(&self, arrival: &Arrival, now: Nanos) -> Vec<DeviceState> {
        let state = |device: usize, depth, capacity| {
            let (estimated, host) = match self.knows {
                Knows::Lagging => self.estimator.estimate(device, arrival.bytes, depth),
                Knows::Truth => self.truth(device, arrival, now),
            };
            DeviceState { eligible: true, healthy: true, depth, capacity, estimated, host }
        };
        let others = self.stations.iter().enumerate();
        let others =
            others.map(|(index, is)| state(index + 1, is.in_flight.len(), is.is.queue_depth));
        std::iter::once(state(0, 0, 1)).chain(others).collect()
    }

    fn truth(
        &self,
        device: usize,
        arrival: &Arrival,
        now: Nanos,
    ) -> (Option<Nanos>, Option<Nanos>) {
        if device == 0 {
            let software = Nanos((SOFTWARE.at(arrival.bytes) * arrival.factor()) as u64);
            return (Some(software), Some(software));
        }
        let Station { is, engines, .. } = &self.stations[device - 1];
        let setup = Nanos(is.setup.at(arrival.bytes) as u64);
        let ready = engines.would_end(now + setup, occupied(is, device, arrival));
        (Some(ready.since(now)), Some(setup + SWITCH + SWITCH))
    }
}
