//! A network of stations. It is checked once and then simulated any number of times, from any number of threads.

mod check;
mod replication;
mod spec;

pub use spec::{Discipline, NetworkSpec, RouteSpec, SourceSpec, StationKind, StationSpec};

use workload::Sizes;

use crate::study::{Extent, Names, RunError, Sample, Simulate};
use crate::{Arrivals, BadValue, Durations, Picos, Streams};

/// A checked network.
#[derive(Clone, Debug)]
pub struct Network {
    sources: Vec<Source>,
    stations: Vec<Station>,
    tokens_max: usize,
    /// The rate of requests at each station, if no request is refused.
    rates_per_ns: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Source {
    name: String,
    arrivals: Arrivals,
    to: u16,
    priority: u8,
    deadline: Option<Picos>,
}

#[derive(Clone, Debug)]
struct Station {
    name: String,
    kind: Kind,
    /// The routes of requests, with cumulative shares. An empty list means that requests are done here.
    next: Vec<(f64, Goal)>,
}

#[derive(Clone, Debug)]
enum Kind {
    Serve {
        servers: u32,
        service: Durations,
        discipline: Discipline,
        waiting_max: Option<usize>,
        overflow: Option<u16>,
    },
    Delay(Durations),
    Link {
        bytes_per_s: u64,
        latency: Picos,
        bytes: Box<Sizes>,
        buffer_bytes: Option<u64>,
    },
    Fork(Vec<u16>),
}

/// The destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Station(u16),
    Done,
}

impl Network {
    /// Checks `spec` and makes a network from it.
    pub fn new(spec: &NetworkSpec) -> Result<Self, BadValue> {
        check::network(spec)
    }

    /// Returns each station's offered load as a multiple of its capacity, if no request is refused. It is
    /// none for delays and forks.
    pub fn loads(&self) -> Vec<(&str, Option<f64>)> {
        let load = |(station, rate): (&Station, &f64)| match &station.kind {
            Kind::Serve { servers, service, .. } => {
                Some(rate * service.mean_ns() / f64::from(*servers))
            }
            Kind::Link { bytes_per_s, bytes, .. } => {
                Some(rate * bytes.mean_bytes() * 1e9 / *bytes_per_s as f64)
            }
            Kind::Delay(_) | Kind::Fork(_) => None,
        };
        let rated = self.stations.iter().zip(&self.rates_per_ns);
        rated.map(|pair| (pair.0.name.as_str(), load(pair))).collect()
    }

    /// Solves the traffic equations by iteration. Each round adds the requests that have visited one station
    /// more. Returns none if some requests still move after the last round.
    fn settled_rates(&self) -> Option<Vec<f64>> {
        let mut moving = vec![0.0; self.stations.len()];
        for source in &self.sources {
            moving[usize::from(source.to)] += 1.0 / source.arrivals.mean_gap_ns();
        }
        let mut rates = moving.clone();
        for _ in 0..STEPS_MAX {
            let mut next = vec![0.0; moving.len()];
            for (station, rate) in self.stations.iter().zip(&moving) {
                if let Kind::Fork(branches) = &station.kind {
                    branches.iter().for_each(|branch| next[usize::from(*branch)] += rate);
                }
                let mut below = 0.0;
                for (upto, goal) in &station.next {
                    if let Goal::Station(to) = goal {
                        next[usize::from(*to)] += rate * (upto - below);
                    }
                    below = *upto;
                }
            }
            let settles = |(more, rate): (&f64, &f64)| more.is_finite() && *more <= rate * 1e-12;
            let settled = next.iter().zip(&rates).all(settles);
            rates.iter_mut().zip(&next).for_each(|(rate, more)| *rate += more);
            moving = next;
            if settled {
                return Some(rates);
            }
        }
        None
    }

    /// Returns whether a station of the network may refuse a request or send it elsewhere.
    fn refuses(&self) -> bool {
        self.stations.iter().any(|station| match &station.kind {
            Kind::Serve { waiting_max, .. } => waiting_max.is_some(),
            Kind::Link { buffer_bytes, .. } => buffer_bytes.is_some(),
            Kind::Delay(_) | Kind::Fork(_) => false,
        })
    }
}

impl Simulate for Network {
    fn names(&self) -> Names {
        let facts = self.stations.iter().flat_map(|station| {
            let fact = |what: &&str| format!("{}.{what}", station.name);
            station.kind.facts().iter().map(fact).collect::<Vec<_>>()
        });
        Names {
            responses: self.sources.iter().map(|source| source.name.clone()).collect(),
            facts: facts.collect(),
        }
    }

    /// Returns a text that names an overloaded station, if there is one. Returns none if the network can
    /// refuse requests, because the loads are then not known.
    fn overload(&self) -> Option<String> {
        if self.refuses() {
            return None;
        }
        let over = self.loads().into_iter().find(|(_, load)| load.is_some_and(|load| load >= 1.0));
        over.map(|(name, load)| {
            let load = load.unwrap_or_default();
            format!("station {name} is offered {load:.3} times what it can do")
        })
    }

    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError> {
        replication::replicate(self, streams, extent, events_max)
    }
}

impl Kind {
    /// Returns the names of a station's single numbers, in the order in which a replication returns them.
    fn facts(&self) -> &'static [&'static str] {
        match self {
            Kind::Serve { .. } => &["utilisation", "waited", "refused", "wait_ns"],
            Kind::Link { .. } => &["utilisation", "refused"],
            Kind::Delay(_) | Kind::Fork(_) => &[],
        }
    }
}

/// The maximum number of stations on a route. A request that moves on is assumed to move forever.
const STEPS_MAX: usize = 100_000;
