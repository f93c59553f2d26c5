//! Compares event queues with the hold model: the 4-ary heap that the simulator uses, a calendar queue and the standard
//! binary heap. A hold takes the next of the pending events and puts it back an exponential time later. The calendar is
//! in this benchmark and not in the crate because it was slower (docs/decisions/0016-event-queue.md). A result is the
//! median of the runs, by the thread's processor time. The flags are those of `harness::Bench`.
#![allow(missing_docs)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use harness::Bench;
use harness::bench::thread_time;
use sim::{DurationSpec, Durations, FourAry, Streams};

const PENDING: [usize; 5] = [9, 64, 1_024, 8_192, 65_536];

trait Queue {
    fn new() -> Self;
    fn push(&mut self, key: u128, item: u64);
    fn pop(&mut self) -> (u128, u64);
}

/// A function that returns the holds per second with this many pending events, over this many holds.
type Case = fn(usize, u64) -> f64;

fn main() {
    let mut bench = Bench::new("cargo bench -p sim --bench queues", 5);
    let holds = bench.count.unwrap_or(if bench.quick { 20_000 } else { 4_000_000 });
    let cases: [(&str, Case); 3] = [
        ("four_ary", hold::<FourAry<u64>>),
        ("calendar", hold::<Calendar>),
        ("binary", hold::<BinaryHeap<Reverse<(u128, u64)>>>),
    ];
    for pending in PENDING {
        for (name, case) in cases {
            let id = format!("holds_per_second.{name}.{pending}_pending");
            bench.measure(&id, "1/s", None, || case(pending, holds));
        }
    }
    bench.finish();
}

/// Returns the holds per second with `pending` events in the queue, over `holds` holds.
fn hold<Q: Queue>(pending: usize, holds: u64) -> f64 {
    let gap = Durations::new(&DurationSpec::Exponential { mean_ns: 1_000.0 }).expect("valid");
    let mut prng = Streams::new(1, 0).named("hold");
    let (mut queue, mut sequence) = (Q::new(), 0u64);
    let mut schedule = |queue: &mut Q, now: u64| {
        let due = now + gap.draw(&mut prng).0;
        queue.push(u128::from(due) << 64 | u128::from(sequence), sequence);
        sequence += 1;
    };
    (0..pending).for_each(|_| schedule(&mut queue, 0));
    let mut turn = |count: u64| {
        for _ in 0..count {
            let (key, _) = black_box(queue.pop());
            schedule(&mut queue, (key >> 64) as u64);
        }
    };
    turn(holds / 10);
    let start = thread_time();
    turn(holds);
    holds as f64 / (thread_time() - start).as_secs_f64()
}

impl Queue for FourAry<u64> {
    fn new() -> Self {
        Self::with_capacity(0)
    }
    fn push(&mut self, key: u128, item: u64) {
        FourAry::push(self, key, item);
    }
    fn pop(&mut self) -> (u128, u64) {
        FourAry::pop(self).expect("events wait")
    }
}

impl Queue for BinaryHeap<Reverse<(u128, u64)>> {
    fn new() -> Self {
        Self::new()
    }
    fn push(&mut self, key: u128, item: u64) {
        BinaryHeap::push(self, Reverse((key, item)));
    }
    fn pop(&mut self) -> (u128, u64) {
        BinaryHeap::pop(self).expect("events wait").0
    }
}

/// Brown's calendar queue. It has days of equal length, each with a list in descending order. A year has about as many
/// days as there are events, within a factor of two. The length of a day follows the gaps between the next events.
struct Calendar {
    days: Vec<Vec<(u128, u64)>>,
    /// The length of a day is `2^day_log` picoseconds.
    day_log: u32,
    /// The current day, counted from time zero.
    today: u64,
    len: usize,
}

impl Queue for Calendar {
    fn new() -> Self {
        Self { days: vec![Vec::new(); 2], day_log: 20, today: 0, len: 0 }
    }

    fn push(&mut self, key: u128, item: u64) {
        self.insert(key, item);
        self.len += 1;
        if self.len > 2 * self.days.len() {
            self.resize(2 * self.days.len());
        }
    }

    fn pop(&mut self) -> (u128, u64) {
        let year = self.days.len();
        for _ in 0..year {
            let day = &mut self.days[self.today as usize & (year - 1)];
            if let Some(last) = day.last()
                && (last.0 >> 64) as u64 >> self.day_log <= self.today
            {
                let next = day.pop().expect("it is there");
                self.len -= 1;
                if self.len < self.days.len() / 2 && self.days.len() > 2 {
                    self.resize(self.days.len() / 2);
                }
                return next;
            }
            self.today += 1;
        }
        // A whole year has no event, so go to the day of the earliest event.
        let earliest = self.days.iter().filter_map(|day| day.last()).min().expect("events wait");
        self.today = (earliest.0 >> 64) as u64 >> self.day_log;
        self.pop()
    }
}

impl Calendar {
    fn insert(&mut self, key: u128, item: u64) {
        let place = ((key >> 64) as u64 >> self.day_log) as usize & (self.days.len() - 1);
        let day = &mut self.days[place];
        let at = day.iter().rposition(|entry| entry.0 > key).map_or(0, |at| at + 1);
        day.insert(at, (key, item));
    }

    /// Changes the number of days. The new length of a day puts about three of the next events into each day.
    fn resize(&mut self, days: usize) {
        let mut all: Vec<(u128, u64)> = self.days.drain(..).flatten().collect();
        all.sort_unstable();
        let near = &all[..all.len().min(64)];
        if let [first, .., last] = near {
            let span = ((last.0 >> 64) - (first.0 >> 64)) as u64;
            self.day_log = (3 * span / near.len() as u64).max(1).ilog2();
        }
        self.days = vec![Vec::new(); days];
        let now = all.first().map_or(0, |first| (first.0 >> 64) as u64);
        self.today = now >> self.day_log;
        all.into_iter().for_each(|(key, item)| self.insert(key, item));
    }
}
