//! What a network is, as data: sources, stations, routes. Reading it from a file is the caller's; checking it is
//! [`super::Network::new`]'s.

use serde::{Deserialize, Serialize};
use workload::SizeDist;

use crate::{ArrivalSpec, DurationSpec};

/// A network of stations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Where requests come from. Each source has response times of its own.
    pub sources: Vec<SourceSpec>,
    /// Where they go.
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
    /// When requests come.
    pub arrivals: ArrivalSpec,
    /// The station that they come to.
    pub to: String,
    /// At stations with the discipline `priority` the smaller goes first.
    #[serde(default)]
    pub priority: u8,
    /// At stations with the discipline `deadline` the request that is due first goes first: this long after it came
    /// (ns). Without it a request goes last.
    #[serde(default)]
    pub deadline_ns: Option<f64>,
}

/// One station.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationSpec {
    /// Its name, among stations.
    pub name: String,
    /// What it does to a request.
    pub does: StationKind,
    /// Where requests go from here; nothing means that they are done.
    #[serde(default)]
    pub next: Vec<RouteSpec>,
}

/// What a station does to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StationKind {
    /// Servers behind one queue.
    Serve {
        /// How many.
        servers: u32,
        /// How long one takes for a request.
        service: DurationSpec,
        /// Who goes first.
        #[serde(default)]
        discipline: Discipline,
        /// How many may wait; without it, any number.
        #[serde(default)]
        waiting_max: Option<usize>,
        /// Where a request goes that finds no place; without it, the request is refused.
        #[serde(default)]
        overflow: Option<String>,
    },
    /// Time that nobody competes for.
    Delay {
        /// How long.
        time: DurationSpec,
    },
    /// A link: one message after another.
    Link {
        /// Its bandwidth.
        bytes_per_s: u64,
        /// From the last byte's sending to its arrival.
        latency_ns: f64,
        /// What a request sends.
        bytes: SizeDist,
        /// Bytes that may wait; without it, any number. A request that finds no place is refused.
        #[serde(default)]
        buffer_bytes: Option<u64>,
    },
    /// A part of the request goes to each of these stations, and on from there until it is done; when all parts are,
    /// the request goes on from here.
    Fork {
        /// Where the parts begin; one name may come several times.
        branches: Vec<String>,
    },
}

/// Who of those waiting goes first; equals go in order of arrival at the station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Who came first.
    #[default]
    Fifo,
    /// Who has the smallest `priority`.
    Priority,
    /// Who is due first.
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

/// Room for as many requests as a queue reaches at the highest load that a steady state takes; 64 MiB.
const fn tokens_max() -> usize {
    1 << 20
}

const fn all() -> f64 {
    1.0
}
