//! A network as data: sources, stations, routes. The caller reads it from a file; [`super::Network::new`] checks it.

use serde::{Deserialize, Serialize};
use workload::SizeDist;

use crate::{ArrivalSpec, DurationSpec};

/// A network of stations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// The sources of requests. Each source has response times of its own.
    pub sources: Vec<SourceSpec>,
    /// The stations that requests go to.
    pub stations: Vec<StationSpec>,
    /// Requests, and parts of forked ones, that may be under way at once; more end the run with an error.
    #[serde(default = "tokens_max")]
    pub tokens_max: usize,
}

/// One source of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// Its name, among sources.
    pub name: String,
    /// The arrivals of requests.
    pub arrivals: ArrivalSpec,
    /// The station that they come to.
    pub to: String,
    /// The priority at stations with the discipline `priority`. The smaller goes first.
    #[serde(default)]
    pub priority: u8,
    /// The time after its arrival at which a request is due (ns). At stations with the discipline `deadline` the
    /// earliest due goes first; a request without a deadline goes last.
    #[serde(default)]
    pub deadline_ns: Option<f64>,
}

/// One station.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationSpec {
    /// Its name, among stations.
    pub name: String,
    /// The station's effect on a request.
    pub does: StationKind,
    /// The routes of requests from here. No route means that they are done.
    #[serde(default)]
    pub next: Vec<RouteSpec>,
}

/// The kinds of stations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StationKind {
    /// Servers behind one queue.
    Serve {
        /// The number of servers.
        servers: u32,
        /// The time that one server takes for a request.
        service: DurationSpec,
        /// The order of waiting requests.
        #[serde(default)]
        discipline: Discipline,
        /// The most requests that may wait; without it, any number.
        #[serde(default)]
        waiting_max: Option<usize>,
        /// The station to which a request goes that finds no place; without it, the request is refused.
        #[serde(default)]
        overflow: Option<String>,
    },
    /// A time that requests do not compete for.
    Delay {
        /// The length of the delay.
        time: DurationSpec,
    },
    /// A link: one message after another.
    Link {
        /// Its bandwidth.
        bytes_per_s: u64,
        /// The time from the last byte's sending to its arrival.
        latency_ns: f64,
        /// The bytes that a request sends.
        bytes: SizeDist,
        /// The bytes that may wait; without it, any number. A request that finds no place is refused.
        #[serde(default)]
        buffer_bytes: Option<u64>,
    },
    /// A part of the request goes to each of these stations, and on from there until it is done; when all parts are,
    /// the request goes on from here.
    Fork {
        /// The stations where the parts begin. One name may come several times.
        branches: Vec<String>,
    },
}

/// The order of waiting requests. Equals go in order of arrival at the station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// The first that came goes first.
    #[default]
    Fifo,
    /// The smallest `priority` goes first.
    Priority,
    /// The earliest deadline goes first.
    Deadline,
}

/// One way on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// A station, or `done`.
    pub to: String,
    /// The fraction of requests that go there; the shares of a station sum to 1.
    #[serde(default = "all")]
    pub share: f64,
}

/// Returns room for as many requests as a queue reaches at the highest load that a steady state takes; 64 MiB.
const fn tokens_max() -> usize {
    1 << 20
}

const fn all() -> f64 {
    1.0
}
