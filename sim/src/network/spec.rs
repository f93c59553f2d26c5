//! A network as data: sources, stations and routes. The caller reads it from a file, and [`super::Network::new`] checks
//! it.

use serde::{Deserialize, Serialize};
use workload::SizeDist;

use crate::{ArrivalSpec, DurationSpec};

/// A network of stations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// The sources of requests. Each source has its own response times.
    pub sources: Vec<SourceSpec>,
    /// The stations that requests go to.
    pub stations: Vec<StationSpec>,
    /// The maximum number of requests and forked parts in flight. More of them end the run with an error.
    #[serde(default = "tokens_max")]
    pub tokens_max: usize,
}

/// One source of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The name, which is unique among sources.
    pub name: String,
    /// The arrivals of requests.
    pub arrivals: ArrivalSpec,
    /// The station at which the requests arrive.
    pub to: String,
    /// The priority at stations with the discipline `priority`. The smallest number goes first.
    #[serde(default)]
    pub priority: u8,
    /// The time from a request's arrival to its deadline (ns). At stations with the discipline `deadline` the earliest
    /// deadline goes first, and requests without a deadline go last.
    #[serde(default)]
    pub deadline_ns: Option<f64>,
}

/// One station.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationSpec {
    /// The name, which is unique among stations.
    pub name: String,
    /// The station's effect on a request.
    pub does: StationKind,
    /// The routes of requests from this station. Without a route, the requests are done.
    #[serde(default)]
    pub next: Vec<RouteSpec>,
}

/// The kinds of stations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum StationKind {
    /// A station of servers with one queue.
    Serve {
        /// The number of servers.
        servers: u32,
        /// The time that a server takes for a request.
        service: DurationSpec,
        /// The order of waiting requests.
        #[serde(default)]
        discipline: Discipline,
        /// The maximum number of waiting requests, or none without a limit.
        #[serde(default)]
        waiting_max: Option<usize>,
        /// The station that gets a request for which there is no space. Without it, the request is refused.
        #[serde(default)]
        overflow: Option<String>,
    },
    /// A delay without a queue, so requests do not compete.
    Delay {
        /// The length of the delay.
        time: DurationSpec,
    },
    /// A link that sends one message after another.
    Link {
        /// The bandwidth of the link.
        bytes_per_s: u64,
        /// The time from the end of sending to the arrival of the last byte.
        latency_ns: f64,
        /// The number of bytes that a request sends.
        bytes: SizeDist,
        /// The maximum number of bytes that may wait, or none without a limit. A request for which there is
        /// no space is refused.
        #[serde(default)]
        buffer_bytes: Option<u64>,
    },
    /// A part of the request goes to each of these stations and continues there until it is done. When all parts are
    /// done, the request continues from here.
    Fork {
        /// The stations where the parts begin. A name may occur several times.
        branches: Vec<String>,
    },
}

/// The order of waiting requests. Equal requests go in the order of arrival at the station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// The request that arrived first goes first.
    #[default]
    Fifo,
    /// The smallest `priority` goes first.
    Priority,
    /// The earliest deadline goes first.
    Deadline,
}

/// A route from a station.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// The name of a station, or `done`.
    pub to: String,
    /// The fraction of requests that take this route. The shares of a station sum to 1.
    #[serde(default = "all")]
    pub share: f64,
}

/// Returns the default limit of requests in flight. It is enough for a queue at the highest steady load, and
/// the requests take 64 MiB.
const fn tokens_max() -> usize {
    1 << 20
}

const fn all() -> f64 {
    1.0
}
