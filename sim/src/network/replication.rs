//! Simulates one replication of a network. A request is a token. A forked request is a waiting token while
//! its parts, which are also tokens, are in flight. The service time is drawn when a token arrives at a
//! station, so that networks with more servers or another discipline get the same work in the same order.
//! Completions come before arrivals at the same time.

use std::ops::ControlFlow;

use slab::Slab;

use super::{Discipline, Goal, Kind, Network};
use crate::arrivals;
use crate::study::{Extent, REQUESTS_MAX, RunError, Sample};
use crate::{Agenda, Draws, Link, Model, Offer, Picos, Servers, Streams, run};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A station has finished with a token.
    Finish { station: u16, token: u32 },
    /// The next request of a source arrives.
    Arrive { source: u16 },
}

#[derive(Clone, Copy, Debug)]
struct Token {
    born: Picos,
    /// The request to which this part belongs, or [`WHOLE`].
    parent: u32,
    /// The number of parts that are not done.
    parts: u32,
    source: u16,
    /// The station where the request forked.
    fork: u16,
    /// Whether the token or a part of it was refused.
    refused: bool,
}

struct Replication<'a> {
    network: &'a Network,
    sources: Vec<arrivals::Source>,
    stations: Vec<Station>,
    tokens: Slab<Token>,
    /// The tokens that move to another station now. The list is empty between events.
    moving: Vec<(u32, Goal)>,
    responses: Vec<Vec<u64>>,
    done: u64,
    extent: Extent,
    fault: Option<RunError>,
}

struct Station {
    state: State,
    work: Draws,
    routes: Draws,
}

enum State {
    Serve(Servers<u32>),
    Link { link: Link, refused: u64, offered: u64 },
    Stateless,
}

pub(super) fn replicate(
    network: &Network,
    streams: &Streams,
    extent: Extent,
    events_max: u64,
) -> Result<Sample, RunError> {
    let mut replication = Replication::new(network, streams, extent);
    let mut agenda = Agenda::with_capacity(AGENDA_CAPACITY);
    for source in 0..network.sources.len() {
        replication.schedule_arrival(source as u16, &mut agenda);
    }
    let end = run(&mut replication, &mut agenda, events_max);
    RunError::check(end, replication.fault.take(), events_max)?;
    Ok(replication.sample(&agenda))
}

impl Model for Replication<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        match event {
            Event::Finish { station, token } => self.finish(station, token, agenda),
            Event::Arrive { source } => self.arrive(source, agenda),
        }
        while let Some((token, goal)) = self.moving.pop() {
            match goal {
                Goal::Station(station) => self.enter(station, token, agenda),
                Goal::Done => self.complete(token, agenda.now()),
            }
        }
        if self.extent.is_reached(self.done) || self.fault.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl<'a> Replication<'a> {
    fn new(network: &'a Network, streams: &Streams, extent: Extent) -> Self {
        let sources = network.sources.iter();
        let each = match extent {
            Extent::Requests(count) => count.min(REQUESTS_MAX) as usize / network.sources.len(),
            Extent::WindowPs(_) => 0,
        };
        Self {
            network,
            responses: sources.clone().map(|_| Vec::with_capacity(each)).collect(),
            sources: sources.map(|one| one.arrivals.start(streams, &one.name)).collect(),
            stations: network.stations.iter().map(|one| Station::new(one, streams)).collect(),
            tokens: Slab::new(),
            moving: Vec::new(),
            done: 0,
            extent,
            fault: None,
        }
    }

    fn schedule_arrival(&mut self, source: u16, agenda: &mut Agenda<Event>) {
        let place = usize::from(source);
        let gap = self.network.sources[place].arrivals.gap(&mut self.sources[place]);
        let due = agenda.now() + gap;
        match self.extent {
            Extent::WindowPs(window) if due >= window => {}
            _ => agenda.at_priority(due, ARRIVALS_LAST, Event::Arrive { source }),
        }
    }

    fn arrive(&mut self, source: u16, agenda: &mut Agenda<Event>) {
        self.schedule_arrival(source, agenda);
        let born = agenda.now();
        let token = Token { born, parent: WHOLE, parts: 0, source, fork: 0, refused: false };
        let to = self.network.sources[usize::from(source)].to;
        self.send(token, to, born);
    }

    /// Adds a new token and sends it to a station.
    fn send(&mut self, token: Token, to: u16, now: Picos) {
        if self.tokens.len() >= self.network.tokens_max {
            let limit = self.network.tokens_max;
            self.fault = Some(RunError::TooManyTokens { limit, at_ns: now.0 / 1_000 });
            self.moving.clear();
            return;
        }
        let key = self.tokens.insert(token) as u32;
        self.moving.push((key, Goal::Station(to)));
    }

    fn finish(&mut self, station: u16, token: u32, agenda: &mut Agenda<Event>) {
        if let State::Serve(servers) = &mut self.stations[usize::from(station)].state
            && let Some((next, service)) = servers.release(agenda.now())
        {
            agenda.after(service, Event::Finish { station, token: next });
        }
        let goal = self.goal(station);
        self.moving.push((token, goal));
    }

    /// Returns the next destination of a token at `station`.
    fn goal(&mut self, station: u16) -> Goal {
        let (place, network) = (usize::from(station), self.network);
        match network.stations[place].next.as_slice() {
            [] => Goal::Done,
            [(_, only)] => *only,
            several => {
                let u = self.stations[place].routes.unit();
                let chosen = several.partition_point(|(upto, _)| *upto <= u);
                several[chosen.min(several.len() - 1)].1
            }
        }
    }

    fn enter(&mut self, station: u16, token: u32, agenda: &mut Agenda<Event>) {
        let (place, network) = (usize::from(station), self.network);
        let here = &mut self.stations[place];
        let now = agenda.now();
        let finish = Event::Finish { station, token };
        match (&network.stations[place].kind, &mut here.state) {
            (Kind::Serve { service, discipline, overflow, .. }, State::Serve(servers)) => {
                let service = service.draw(&mut here.work);
                let rank = match discipline {
                    Discipline::Fifo => 0,
                    ranked => ranked.rank(network, &self.tokens[token as usize]),
                };
                match servers.offer(now, token, service, rank) {
                    Offer::Started => agenda.after(service, finish),
                    Offer::Waiting => {}
                    Offer::Refused => match overflow {
                        Some(overflow) => self.moving.push((token, Goal::Station(*overflow))),
                        None => self.refuse(token),
                    },
                }
            }
            (Kind::Link { bytes, .. }, State::Link { link, refused, offered }) => {
                *offered += 1;
                match link.send(now, bytes.at(here.work.unit()) as u64) {
                    Some(arrival) => agenda.at(arrival, finish),
                    None => {
                        *refused += 1;
                        self.refuse(token);
                    }
                }
            }
            (Kind::Fork(branches), _) => self.fork(station, token, branches, now),
            (Kind::Delay(time), _) => agenda.after(time.draw(&mut here.work), finish),
            (Kind::Serve { .. } | Kind::Link { .. }, _) => {
                unreachable!("a station's state is of its kind")
            }
        }
    }

    fn fork(&mut self, station: u16, token: u32, branches: &[u16], now: Picos) {
        let whole = &mut self.tokens[token as usize];
        (whole.fork, whole.parts) = (station, branches.len() as u32);
        let part = Token { parent: token, parts: 0, ..*whole };
        // Moving tokens are taken from the end, so the first branch is entered first.
        for branch in branches.iter().rev() {
            self.send(part, *branch, now);
        }
    }

    fn refuse(&mut self, token: u32) {
        self.tokens[token as usize].refused = true;
        self.moving.push((token, Goal::Done));
    }

    /// Ends a token. A whole request is counted, and after the last part the forked request continues.
    fn complete(&mut self, token: u32, now: Picos) {
        let Token { born, parent, source, refused, .. } = self.tokens.remove(token as usize);
        if parent == WHOLE {
            self.done += 1;
            if !refused {
                self.responses[usize::from(source)].push(now.since(born).0);
            }
            if self.done > REQUESTS_MAX {
                self.fault = Some(RunError::TooManyRequests { limit: REQUESTS_MAX });
            }
            return;
        }
        let whole = &mut self.tokens[parent as usize];
        whole.parts -= 1;
        whole.refused |= refused;
        if whole.parts == 0 {
            let (fork, refused) = (whole.fork, whole.refused);
            let goal = if refused { Goal::Done } else { self.goal(fork) };
            self.moving.push((parent, goal));
        }
    }

    fn sample(self, agenda: &Agenda<Event>) -> Sample {
        let duration = agenda.now();
        let stations = self.stations.iter().zip(&self.network.stations);
        let facts = stations.flat_map(|(state, station)| state.facts(&station.kind, duration));
        let facts = facts.collect();
        Sample { facts, responses: self.responses, events: agenda.fired(), duration }
    }
}

impl Discipline {
    /// Returns the rank of a token. The smallest rank goes first.
    fn rank(self, network: &Network, token: &Token) -> u64 {
        let source = &network.sources[usize::from(token.source)];
        match self {
            Discipline::Fifo => 0,
            Discipline::Priority => u64::from(source.priority),
            Discipline::Deadline => source.deadline.map_or(u64::MAX, |due| (token.born + due).0),
        }
    }
}

impl Station {
    fn new(station: &super::Station, streams: &Streams) -> Self {
        let state = match &station.kind {
            Kind::Serve { servers, discipline, waiting_max, .. } => {
                let waiting_max = waiting_max.unwrap_or(usize::MAX);
                State::Serve(match discipline {
                    Discipline::Fifo => Servers::in_order(*servers, waiting_max),
                    _ => Servers::ranked(*servers, waiting_max),
                })
            }
            Kind::Link { bytes_per_s, latency, buffer_bytes, .. } => {
                let link = Link::new(*bytes_per_s, *latency, *buffer_bytes);
                State::Link { link, refused: 0, offered: 0 }
            }
            Kind::Delay(_) | Kind::Fork(_) => State::Stateless,
        };
        let stream = |what: &str| streams.named(&format!("{what}.{}", station.name));
        Self { state, work: stream("work"), routes: stream("routes") }
    }

    /// Returns the facts in the order of [`Kind::facts`].
    fn facts(&self, kind: &Kind, duration: Picos) -> Vec<f64> {
        let fraction = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let time_ps = duration.0 as f64;
        match (&self.state, kind) {
            (State::Serve(station), Kind::Serve { servers, .. }) => {
                let counts = station.counts();
                let offered = counts.offered as f64;
                let begun = counts.offered - counts.refused - station.waiting() as u64;
                vec![
                    fraction(counts.service_ps as f64, time_ps * f64::from(*servers)),
                    fraction(counts.waited as f64, offered),
                    fraction(counts.refused as f64, offered),
                    fraction(counts.wait_ps as f64 * 1e-3, begun as f64),
                ]
            }
            (State::Link { link, refused, offered }, _) => vec![
                fraction(link.sending_ps() as f64, time_ps),
                fraction(*refused as f64, *offered as f64),
            ],
            _ => Vec::new(),
        }
    }
}

/// The parent of a token that is a whole request.
const WHOLE: u32 = u32::MAX;
/// The priority of arrivals. They come after the completions of the same time, which may free what an arrival needs.
const ARRIVALS_LAST: u8 = 255;
/// The initial capacity (events). It grows once or twice in the few runs that have more scheduled events.
const AGENDA_CAPACITY: usize = 1_024;
