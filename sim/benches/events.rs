//! Measures the events per second on one core, for an M/M/8 queue at 80 % load. Arrivals and departures count. The case
//! `stations` composes the stations by hand, as an architecture's model does. The case `network` reads the same queue
//! from a specification. A result is the median of the runs, by the thread's processor time. The mean wait of each run
//! must match Erlang's formula.
//!
//! The flags are those of `harness::Bench`. `--count=N` sets the number of requests.
#![allow(missing_docs)]

use std::hint::black_box;
use std::ops::ControlFlow;

use harness::bench::thread_time;
use harness::{Bench, Limit};
use sim::*;

const SERVERS: u32 = 8;
const LOAD: f64 = 0.8;
const SERVICE_NS: f64 = 1_000.0;
/// The mean wait in service times: Erlang's C for eight servers at this load, times the mean wait of the requests that
/// wait.
const WAIT: f64 = 0.2860;
/// The required rate of `stations` on one core (events per second).
const RATE_MIN: Limit = Limit::AtLeast(25e6);

/// A function that simulates this many requests and returns the events and the mean wait in service times.
type Case = fn(u64) -> (u64, f64);

fn main() {
    let mut bench = Bench::new("cargo bench -p sim --bench events", 7);
    let requests = bench.count.unwrap_or(if bench.quick { 100_000 } else { 4_000_000 });
    let cases: [(&str, Case, Option<Limit>); 2] =
        [("stations", stations, Some(RATE_MIN)), ("network", network, None)];
    for (name, case, limit) in cases {
        let tolerance = if bench.quick { 0.2 } else { 0.02 };
        let id = format!("events_per_second.{name}.mm8");
        bench.measure(&id, "1/s", limit, || rate(case, requests, tolerance));
    }
    bench.finish();
}

fn rate(case: Case, requests: u64, tolerance: f64) -> f64 {
    let start = thread_time();
    let (events, wait) = black_box(case(requests));
    let rate = events as f64 / (thread_time() - start).as_secs_f64();
    assert!(
        (wait / WAIT - 1.0).abs() < tolerance,
        "a mean wait of {wait} service times, not {WAIT}"
    );
    rate
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
