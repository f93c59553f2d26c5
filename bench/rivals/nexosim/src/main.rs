//! Simulates the M/M/8 queue of `sim/benches/events.rs` in NeXosim, for comparison: exponential gaps and service times,
//! 80 % load, one thread (`with_num_threads(1)`, its single-threaded executor). An event is an arrival or a departure.
//! There are two cases. In `station`, one model schedules its own arrivals and departures, which is the cheapest way in
//! NeXosim. In `ports`, a source's output sends each arrival to the station's input, as NeXosim's documentation
//! teaches. The program checks the mean wait of every run against Erlang's formula. It prints one row of JSON per case:
//! the median rate of the runs, by the thread's processor time. `--quick` simulates fewer requests.
//! `python3 bench/rivals/mm8.py` runs it beside our simulator.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nexosim::model::{Context, Model, schedulable};
use nexosim::ports::Output;
use nexosim::simulation::{ExecutionError, Mailbox, SimInit};
use nexosim::time::MonotonicTime;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

type Problem = Box<dyn Error>;

const SERVERS: u32 = 8;
const LOAD: f64 = 0.8;
/// The mean service time. NeXosim counts whole nanoseconds, so rounding would distort much shorter times.
const SERVICE_NS: f64 = 1e6;
/// The mean wait of a request in service times: Erlang's C, times the mean wait of requests that wait.
const WAIT: f64 = 0.2860;
const RUNS: usize = 7;

fn main() -> Result<(), Problem> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let requests: u64 = if quick { 50_000 } else { 1_000_000 };
    for (name, ports) in [("station", false), ("ports", true)] {
        let mut rates = Vec::with_capacity(RUNS);
        for seed in 0..RUNS as u64 {
            rates.push(rate(ports, requests, seed, if quick { 0.2 } else { 0.05 })?);
        }
        rates.sort_unstable_by(f64::total_cmp);
        let (median, low, high) = (rates[RUNS / 2], rates[0], rates[RUNS - 1]);
        println!(
            "{{\"id\": \"events_per_second.nexosim_{name}.mm8\", \"value\": {median}, \"low\": {low}, \
             \"high\": {high}, \"unit\": \"1/s\", \"runs\": {RUNS}, \"version\": \"1.0.0\"}}"
        );
    }
    Ok(())
}

/// Returns the arrivals plus departures per second of this thread's CPU time.
fn rate(ports: bool, requests: u64, seed: u64, tolerance: f64) -> Result<f64, Problem> {
    let wait_ns = Arc::new(AtomicU64::new(0));
    let station = Station::new(requests, seed, !ports, Arc::clone(&wait_ns));
    let mailbox = Mailbox::new();
    let mut bench = SimInit::with_num_threads(1);
    if ports {
        let mut source =
            Source { draws: Draws::new(!seed), left: requests, out: Output::default() };
        source.out.connect(Station::arrive, &mailbox);
        bench = bench.add_model(source, Mailbox::new(), "source");
    }
    let mut simulation = bench.add_model(station, mailbox, "station").init(MonotonicTime::EPOCH)?;
    let start = processor_s();
    match simulation.run() {
        Ok(()) | Err(ExecutionError::Halted) => {}
        Err(error) => return Err(error.into()),
    }
    let rate = 2.0 * requests as f64 / (processor_s() - start);
    let wait = wait_ns.load(Ordering::Relaxed) as f64 / requests as f64 / SERVICE_NS;
    if (wait / WAIT - 1.0).abs() > tolerance {
        return Err(format!("a mean wait of {wait} service times, not {WAIT}").into());
    }
    Ok(rate)
}

#[derive(Serialize, Deserialize)]
struct Source {
    #[serde(skip, default = "Draws::none")]
    draws: Draws,
    left: u64,
    out: Output<()>,
}

#[Model]
impl Source {
    #[nexosim(init)]
    async fn start(&mut self, cx: &Context<Self>) {
        self.next(cx);
    }

    #[nexosim(schedulable)]
    async fn arrive(&mut self, _: (), cx: &Context<Self>) {
        self.next(cx);
        self.out.send(()).await;
    }

    fn next(&mut self, cx: &Context<Self>) {
        if self.left > 0 {
            self.left -= 1;
            let gap = self.draws.time(SERVICE_NS / LOAD / f64::from(SERVERS));
            cx.schedule_event(gap, schedulable!(Self::arrive), ()).expect("a time to come");
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Station {
    #[serde(skip, default = "Draws::none")]
    draws: Draws,
    /// True if the station schedules its arrivals itself.
    alone: bool,
    left: u64,
    busy: u32,
    /// The arrival times of the waiting requests.
    waiting: VecDeque<MonotonicTime>,
    wait_ns: u64,
    departures_left: u64,
    #[serde(skip)]
    total_wait_ns: Arc<AtomicU64>,
}

#[Model]
impl Station {
    #[nexosim(init)]
    async fn start(&mut self, cx: &Context<Self>) {
        if self.alone {
            self.next(cx);
        }
    }

    #[nexosim(schedulable)]
    fn own_arrival(&mut self, _: (), cx: &Context<Self>) {
        self.next(cx);
        self.arrive((), cx);
    }

    pub fn arrive(&mut self, _: (), cx: &Context<Self>) {
        if self.busy == SERVERS {
            self.waiting.push_back(cx.time());
        } else {
            self.busy += 1;
            self.serve(cx);
        }
    }

    #[nexosim(schedulable)]
    fn depart(&mut self, _: (), cx: &Context<Self>) {
        match self.waiting.pop_front() {
            Some(came) => {
                self.wait_ns += cx.time().duration_since(came).as_nanos() as u64;
                self.serve(cx);
            }
            None => self.busy -= 1,
        }
        self.departures_left -= 1;
        if self.departures_left == 0 {
            self.total_wait_ns.store(self.wait_ns, Ordering::Relaxed);
        }
    }

    fn serve(&mut self, cx: &Context<Self>) {
        let service = self.draws.time(SERVICE_NS);
        cx.schedule_event(service, schedulable!(Self::depart), ()).expect("a time to come");
    }

    fn next(&mut self, cx: &Context<Self>) {
        if self.left > 0 {
            self.left -= 1;
            let gap = self.draws.time(SERVICE_NS / LOAD / f64::from(SERVERS));
            cx.schedule_event(gap, schedulable!(Self::own_arrival), ()).expect("a time to come");
        }
    }
}

impl Station {
    fn new(requests: u64, seed: u64, alone: bool, total_wait_ns: Arc<AtomicU64>) -> Self {
        Self {
            draws: Draws::new(seed),
            alone,
            left: requests,
            busy: 0,
            waiting: VecDeque::with_capacity(1_024),
            wait_ns: 0,
            departures_left: requests,
            total_wait_ns,
        }
    }
}

struct Draws(Xoshiro256PlusPlus);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns draws for a model that is restored from a saved state, which this benchmark never does.
    fn none() -> Self {
        Self::new(0)
    }

    /// Returns an exponential time of at least 1 ns, because NeXosim refuses events at the current time.
    fn time(&mut self, mean_ns: f64) -> Duration {
        let unit: f64 = Exp1.sample(&mut self.0);
        Duration::from_nanos((unit * mean_ns) as u64 + 1)
    }
}

/// Returns the CPU time of this thread (s), which other processes do not affect.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
