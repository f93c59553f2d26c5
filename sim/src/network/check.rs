//! Turns a specification into a network that can be simulated, or returns the first error, which says what to change.

use std::collections::HashMap;

use super::{Goal, Kind, Network, NetworkSpec, Source, Station, StationKind};
use super::{RouteSpec, STEPS_MAX, SourceSpec, StationSpec};
use crate::durations::{NS_MAX, checked_sizes};
use crate::{Arrivals, BadValue, Durations, Picos};

/// The indexes of stations by name.
type Places<'a> = HashMap<&'a str, u16>;

pub(super) fn network(spec: &NetworkSpec) -> Result<Network, BadValue> {
    BadValue::check("tokens_max", spec.tokens_max as f64, 1.0, TOKENS_MAX)?;
    count("sources", spec.sources.len())?;
    count("stations", spec.stations.len())?;
    unique("sources", spec.sources.iter().map(|source| source.name.as_str()))?;
    let places = unique("stations", spec.stations.iter().map(|station| station.name.as_str()))?;
    let sources = spec
        .sources
        .iter()
        .map(|one| source(one, &places).map_err(|bad| bad.under(&format!("sources.{}", one.name))));
    let stations = spec.stations.iter().map(|one| {
        station(one, &places).map_err(|bad| bad.under(&format!("stations.{}", one.name)))
    });
    let mut network = Network {
        sources: sources.collect::<Result<_, _>>()?,
        stations: stations.collect::<Result<_, _>>()?,
        tokens_max: spec.tokens_max,
        rates_per_ns: Vec::new(),
    };
    overflow_ends(&network)?;
    network.rates_per_ns = network.settled_rates().ok_or_else(|| {
        let valid = format!("every request must be done after {STEPS_MAX} stations");
        BadValue::new("stations.next", "a circle without an end", valid)
    })?;
    Ok(network)
}

fn count(key: &str, count: usize) -> Result<(), BadValue> {
    let valid = || format!("1 to {PLACES_MAX} are needed");
    let fits = (1..=PLACES_MAX).contains(&count);
    if fits { Ok(()) } else { Err(BadValue::new(key, format!("a list of {count}"), valid())) }
}

fn unique<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Result<Places<'a>, BadValue> {
    let mut places = Places::new();
    for (index, name) in names.enumerate() {
        if name.is_empty() || name == DONE || places.insert(name, index as u16).is_some() {
            let valid = format!("names must differ, not be empty and not be {DONE:?}");
            return Err(BadValue::new(&format!("{key}[{index}].name"), name, valid));
        }
    }
    Ok(places)
}

fn place(places: &Places<'_>, key: &str, name: &str) -> Result<u16, BadValue> {
    places.get(name).copied().ok_or_else(|| {
        let mut names: Vec<&str> = places.keys().copied().collect();
        names.sort_unstable();
        names.truncate(NAMES_SHOWN);
        BadValue::new(key, name, format!("it must name a station: {}", names.join(", ")))
    })
}

fn source(spec: &SourceSpec, places: &Places<'_>) -> Result<Source, BadValue> {
    if let Some(deadline_ns) = spec.deadline_ns {
        BadValue::check("deadline_ns", deadline_ns, 0.0, NS_MAX)?;
    }
    Ok(Source {
        name: spec.name.clone(),
        arrivals: Arrivals::new(&spec.arrivals).map_err(|bad| bad.under("arrivals"))?,
        to: place(places, "to", &spec.to)?,
        priority: spec.priority,
        deadline: spec.deadline_ns.map(Picos::from_ns),
    })
}

fn station(spec: &StationSpec, places: &Places<'_>) -> Result<Station, BadValue> {
    Ok(Station {
        name: spec.name.clone(),
        kind: kind(&spec.does, places)?,
        next: routes(&spec.next, places)?,
    })
}

fn kind(spec: &StationKind, places: &Places<'_>) -> Result<Kind, BadValue> {
    match spec {
        StationKind::Serve { servers, service, discipline, waiting_max, overflow } => {
            BadValue::check("does.serve.servers", f64::from(*servers), 1.0, SERVERS_MAX)?;
            if overflow.is_some() && waiting_max.is_none() {
                let valid = "it needs `waiting_max`: an endless queue never overflows";
                return Err(BadValue::new("does.serve.overflow", "given", valid));
            }
            let overflow = overflow.as_ref();
            let overflow = overflow.map(|name| place(places, "does.serve.overflow", name));
            Ok(Kind::Serve {
                servers: *servers,
                service: durations("does.serve.service", service)?,
                discipline: *discipline,
                waiting_max: *waiting_max,
                overflow: overflow.transpose()?,
            })
        }
        StationKind::Delay { time } => Ok(Kind::Delay(durations("does.delay.time", time)?)),
        StationKind::Link { bytes_per_s, latency_ns, bytes, buffer_bytes } => {
            let rate = *bytes_per_s as f64;
            BadValue::check("does.link.bytes_per_s", rate, 1.0, u64::MAX as f64)?;
            BadValue::check("does.link.latency_ns", *latency_ns, 0.0, NS_MAX)?;
            Ok(Kind::Link {
                bytes_per_s: *bytes_per_s,
                latency: Picos::from_ns(*latency_ns),
                bytes: Box::new(checked_sizes("does.link.bytes", bytes)?),
                buffer_bytes: *buffer_bytes,
            })
        }
        StationKind::Fork { branches } => {
            let key = "does.fork.branches";
            count(key, branches.len())?;
            let branches = branches.iter().map(|name| place(places, key, name));
            Ok(Kind::Fork(branches.collect::<Result<_, _>>()?))
        }
    }
}

fn durations(key: &str, spec: &crate::DurationSpec) -> Result<Durations, BadValue> {
    Durations::new(spec).map_err(|bad| bad.under(key))
}

fn routes(spec: &[RouteSpec], places: &Places<'_>) -> Result<Vec<(f64, Goal)>, BadValue> {
    let mut sum = 0.0;
    let mut routes = Vec::with_capacity(spec.len());
    for route in spec {
        BadValue::check("next.share", route.share, 0.0, 1.0)?;
        sum += route.share;
        let goal = if route.to == DONE {
            Goal::Done
        } else {
            Goal::Station(place(places, "next.to", &route.to)?)
        };
        routes.push((sum, goal));
    }
    if !routes.is_empty() && (sum - 1.0).abs() > 1e-9 {
        return Err(BadValue::new("next.share (sum)", sum, "the shares must sum to 1"));
    }
    Ok(routes)
}

/// Checks that overflows do not form a circle. Full stations would otherwise pass a request in a circle without any
/// time passing.
fn overflow_ends(network: &Network) -> Result<(), BadValue> {
    let overflow = |place: u16| match &network.stations[usize::from(place)].kind {
        Kind::Serve { overflow, .. } => *overflow,
        _ => None,
    };
    for start in 0..network.stations.len() as u16 {
        let mut at = overflow(start);
        for _ in 0..network.stations.len() {
            at = at.and_then(overflow);
        }
        if at.is_some() {
            let name = &network.stations[usize::from(start)].name;
            let valid = "overflow must end at a station without one";
            let key = format!("stations.{name}.does.serve.overflow");
            return Err(BadValue::new(&key, "a circle", valid));
        }
    }
    Ok(())
}

/// The name of the route for requests that are done. No station may have this name.
const DONE: &str = "done";
/// The maximum number of sources, of stations, and of branches of a fork.
const PLACES_MAX: usize = 4_096;
const SERVERS_MAX: f64 = 1e6;
/// The maximum number of requests in flight. They take 1 GiB.
const TOKENS_MAX: f64 = (1u64 << 24) as f64;
const NAMES_SHOWN: usize = 8;
