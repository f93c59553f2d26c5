//! Computes when a job completes. The inputs are the engines, the entries of the work queues and the pace of the
//! whole device, which all queues share. The module only does arithmetic on times that callers give. It reads no
//! clock, so that the simulator and the machine of the tests can use it too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;
use units::Nanos;
use workload::Accelerator;

/// The current load of a device. The lock is held for a few additions and heap operations.
pub struct Timeline {
    entries_total: usize,
    state: Mutex<State>,
}

struct State {
    /// The time when each engine becomes free.
    engines: Vec<Nanos>,
    /// The earliest time at which the next job may start.
    next_start: Nanos,
    /// The times when the jobs in flight complete. Each job holds an entry until then.
    in_flight: BinaryHeap<Reverse<Nanos>>,
    /// The number of entries reserved for jobs whose cost is not yet known.
    reserved: usize,
}

/// The time that one job takes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The time on an engine.
    pub engine: Nanos,
    /// The time after this job's start until the device can start another job.
    pub interval: Nanos,
}

impl Timeline {
    /// Makes an idle device of this profile.
    pub fn new(profile: &Accelerator) -> Self {
        Self::idle(profile.engines.value as usize, profile.entries_total.value as usize)
    }

    /// Makes an idle device with this many engines and entries.
    pub(crate) fn idle(engines: usize, entries_total: usize) -> Self {
        let state = State {
            engines: vec![Nanos(0); engines],
            next_start: Nanos(0),
            in_flight: BinaryHeap::with_capacity(entries_total),
            reserved: 0,
        };
        Self { entries_total, state: Mutex::new(state) }
    }

    /// Reserves an entry for a job that arrives at `arrival`, and returns whether an entry was free. The caller calls
    /// [`Timeline::admit`] when it knows the cost of the job.
    pub fn reserve(&self, arrival: Nanos) -> bool {
        let mut state = self.state.lock();
        while state.in_flight.peek().is_some_and(|Reverse(due)| *due <= arrival) {
            state.in_flight.pop();
        }
        let free = state.in_flight.len() + state.reserved < self.entries_total;
        state.reserved += usize::from(free);
        free
    }

    /// Starts the job that reserved an entry for `arrival`, and returns the time when it completes.
    pub fn admit(&self, arrival: Nanos, cost: Cost) -> Nanos {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.reserved -= 1;
        let engine = state.engines.iter_mut().min().expect("a profile has an engine or more");
        let start = arrival.max(*engine).max(state.next_start);
        let due = start + cost.engine;
        *engine = due;
        state.next_start = start + cost.interval;
        state.in_flight.push(Reverse(due));
        due
    }

    /// Returns the time when a job that arrives at `arrival` would complete. It starts no job.
    pub(crate) fn would_complete(&self, arrival: Nanos, cost: Cost) -> Nanos {
        let state = self.state.lock();
        let engine = state.engines.iter().min().expect("a profile has an engine or more");
        arrival.max(*engine).max(state.next_start) + cost.engine
    }
}
