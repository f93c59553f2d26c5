//! Computes when a job completes. The inputs are the engines, the entries of the work queues and the pace of the
//! whole device, which all queues share. The module only does arithmetic on times that callers give. It reads no
//! clock, so that a simulator can use it too.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;
use units::Nanos;
use workload::Accelerator;

/// The occupation of a device. The lock is held for a few additions and one heap operation.
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
    inside: BinaryHeap<Reverse<Nanos>>,
    /// The number of entries reserved for jobs whose cost is not yet known.
    reserved: usize,
}

/// The time that one job takes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The time on an engine.
    pub engine: Nanos,
    /// The time until the device starts another job.
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

    /// Reserves an entry for a job that arrives at `arrival`, and returns whether an entry was free. The caller calls
    /// [`Timeline::admit`] when it knows the cost of the job.
    pub fn reserve(&self, arrival: Nanos) -> bool {
        let mut state = self.state.lock();
        while state.inside.peek().is_some_and(|Reverse(due)| *due <= arrival) {
            state.inside.pop();
        }
        let free = state.inside.len() + state.reserved < self.entries_total;
        state.reserved += usize::from(free);
        free
    }

    /// Returns the time when the job completes that reserved an entry for `arrival`.
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
