//! Computes when a job would be done from engines, work-queue entries and the pace of the whole device, which all
//! queues share. It is arithmetic on times that callers give. It reads no clock, so that a simulator can ask it too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;
use units::Nanos;
use workload::Accelerator;

/// The device's occupation. The lock is held for a few additions and one heap operation.
pub struct Timeline {
    entries_total: usize,
    state: Mutex<State>,
}

struct State {
    /// The times when the engines are free.
    engines: Vec<Nanos>,
    /// The earliest time at which the next job starts.
    next_start: Nanos,
    /// The times when the jobs inside are done. Each holds an entry until then.
    inside: BinaryHeap<Reverse<Nanos>>,
    /// The entries of jobs whose time is not yet known.
    reserved: usize,
}

/// The time that one job takes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Time on an engine.
    pub engine: Nanos,
    /// Time until the device starts another job.
    pub interval: Nanos,
}

impl Timeline {
    /// Makes an idle device.
    pub fn new(profile: &Accelerator) -> Self {
        let entries_total = profile.entries_total.value as usize;
        let state = State {
            engines: vec![Nanos(0); profile.engines.value as usize],
            next_start: Nanos(0),
            inside: BinaryHeap::with_capacity(entries_total),
            reserved: 0,
        };
        Self { entries_total, state: Mutex::new(state) }
    }

    /// Takes an entry for a job that arrives at `arrival`, and returns whether there was one. [`Timeline::admit`]
    /// follows, once it is known what the job takes.
    pub fn reserve(&self, arrival: Nanos) -> bool {
        let mut state = self.state.lock();
        while state.inside.peek().is_some_and(|Reverse(due)| *due <= arrival) {
            state.inside.pop();
        }
        let free = state.inside.len() + state.reserved < self.entries_total;
        state.reserved += usize::from(free);
        free
    }

    /// Returns when the job that reserved an entry for `arrival` is done.
    pub fn admit(&self, arrival: Nanos, cost: Cost) -> Nanos {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.reserved -= 1;
        let engine = state.engines.iter_mut().min().expect("a profile has an engine or more");
        let start = arrival.max(*engine).max(state.next_start);
        let due = start + cost.engine;
        *engine = due;
        state.next_start = start + cost.interval;
        state.inside.push(Reverse(due));
        due
    }
}
