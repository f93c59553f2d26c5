//! Measures the events per second on one core, for an M/M/8 queue at 80 % load. Arrivals and departures count. The case
//! `stations` composes the stations by hand, as an architecture's model does. The case `network` reads the same queue
//! from a specification. A result is the median of the runs, by the thread's processor time. The mean wait of each run
//! must match Erlang's formula.
//!
//! `--json` prints the rows as JSON, and `--quick` makes short runs. `--only NAME` makes one run of one case without a
//! clock, to count instructions: the difference between `--requests 200000` and `--requests 100000` is the cost of
//! 100,000 requests without the start.
#![allow(missing_docs)]

use std::hint::black_box;
use std::ops::ControlFlow;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use sim::*;

const SERVERS: u32 = 8;
const LOAD: f64 = 0.8;
const SERVICE_NS: f64 = 1_000.0;
/// The mean wait in service times: Erlang's C for eight servers at this load, times the mean wait of the requests that
/// wait.
const WAIT: f64 = 0.2860;
const RUNS: usize = 7;
/// The rate that the design requires of one core.
const BAR_PER_S: f64 = 25e6;

/// Simulates this many requests. Returns the events fired and the mean wait in service times.
type Case = fn(u64) -> (u64, f64);

fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (quick, as_json) = (has("--quick"), has("--json"));
    let requests: u64 = if quick { 100_000 } else { 4_000_000 };
    let cases: [(&str, Case); 2] = [("stations", stations), ("network", network)];
    if let Some(name) = value("--only") {
        let case = cases.iter().find(|(case, _)| *case == name).expect("a case's name").1;
        let count = value("--requests").map_or(100_000, |count| count.parse().expect("a number"));
        let (events, _) = black_box(case(count));
        println!("{name}: {events} events");
        return;
    }
    for (name, case) in cases {
        let mut rates: Vec<f64> = (0..RUNS).map(|_| rate(case, requests, quick)).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let (median, low, high) = (rates[RUNS / 2], rates[0], rates[RUNS - 1]);
        if as_json {
            let row = json!({
                "id": format!("events_per_second.{name}.mm8"), "value": median, "low": low,
                "high": high, "unit": "1/s", "runs": RUNS, "bar": BAR_PER_S,
            });
            println!("{row}");
        } else {
            let [median, low, high] = [median, low, high].map(|rate| rate / 1e6);
            println!("{name:10} {median:6.1} M events/s ({low:.1} to {high:.1})");
        }
    }
}

fn rate(case: Case, requests: u64, quick: bool) -> f64 {
    let start = processor_s();
    let (events, wait) = black_box(case(requests));
    let rate = events as f64 / (processor_s() - start);
    let tolerance = if quick { 0.2 } else { 0.02 };
    assert!(
        (wait / WAIT - 1.0).abs() < tolerance,
        "a mean wait of {wait} service times, not {WAIT}"
    );
    rate
}

/// Returns the value after a flag.
fn value(flag: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)
}

/// Returns the processor time of this thread (s). Other processes on the machine do not add to it.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

struct Queue {
    station: Servers<u32>,
    gaps: Durations,
    services: Durations,
    arrivals: Draws,
    work: Draws,
    next: u32,
    left: u64,
}

#[derive(Clone, Copy)]
enum Event {
    Arrival,
    Departure,
}

impl Model for Queue {
    type Event = Event;

    #[inline]
    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        match event {
            Event::Arrival => {
                agenda.after(self.gaps.draw(&mut self.arrivals), Event::Arrival);
                let service = self.services.draw(&mut self.work);
                self.next = self.next.wrapping_add(1);
                if self.station.offer(agenda.now(), self.next, service, 0) == Offer::Started {
                    agenda.after(service, Event::Departure);
                }
            }
            Event::Departure => {
                if let Some((_, service)) = self.station.release(agenda.now()) {
                    agenda.after(service, Event::Departure);
                }
                self.left -= 1;
                if self.left == 0 {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn stations(requests: u64) -> (u64, f64) {
    let exponential =
        |mean_ns| Durations::new(&DurationSpec::Exponential { mean_ns }).expect("a valid mean");
    let streams = Streams::new(1, 0);
    let mut queue = Queue {
        station: Servers::in_order(SERVERS, usize::MAX),
        gaps: exponential(SERVICE_NS / LOAD / f64::from(SERVERS)),
        services: exponential(SERVICE_NS),
        arrivals: streams.named("arrivals"),
        work: streams.named("work"),
        next: 0,
        left: requests,
    };
    let mut agenda = Agenda::with_capacity(64);
    agenda.at(Picos(0), Event::Arrival);
    run(&mut queue, &mut agenda, u64::MAX);
    let wait_ns = queue.station.counts().wait_ps as f64 * 1e-3 / requests as f64;
    (agenda.fired(), wait_ns / SERVICE_NS)
}

fn network(requests: u64) -> (u64, f64) {
    let spec = format!(
        "sources = [{{ name = 'web', to = 'cpu', arrivals = {{ poisson = {{ per_s = {} }} }} }}]\n\
         [[stations]]\n\
         name = 'cpu'\n\
         does = {{ serve = {{ servers = {SERVERS}, service = {{ exponential = {{ mean_ns = {SERVICE_NS} }} }} }} }}\n",
        LOAD * f64::from(SERVERS) * 1e9 / SERVICE_NS
    );
    let network = Network::new(&toml::from_str(&spec).expect("TOML")).expect("a valid network");
    let streams = Streams::new(1, 0);
    let sample = network.replicate(&streams, Extent::Requests(requests), u64::MAX).expect("ends");
    (sample.events, sample.facts[3] / SERVICE_NS)
}
