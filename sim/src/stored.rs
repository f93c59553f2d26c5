//! A report in a form that a file can store and another process of the same build can read. Every number keeps its last
//! bit. The replications' numbers are included, because differences are computed from them. The form is not meant for
//! human readers.

use serde::{Deserialize, Serialize};

use crate::Interval;
use crate::study::{Extent, Fact, Report, Response, Verdict};

/// A report that can be stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredReport {
    seed: u64,
    extent: Extent,
    replications: u32,
    events: u64,
    verdict: Verdict,
    precise: Option<bool>,
    responses: Vec<StoredResponse>,
    facts: Vec<(String, Option<[u64; 3]>)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredResponse {
    name: String,
    requests: u64,
    warm_up: u64,
    mean: Option<[u64; 3]>,
    p99: Option<[u64; 3]>,
    means: Vec<u64>,
    p99s: Vec<u64>,
}

impl From<&Report> for StoredReport {
    fn from(report: &Report) -> Self {
        let all = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect();
        let response = |one: &Response| StoredResponse {
            name: one.name.clone(),
            requests: one.requests,
            warm_up: one.warm_up,
            mean: one.mean_ns.map(bits),
            p99: one.p99_ns.map(bits),
            means: all(&one.means_ns),
            p99s: all(&one.p99s_ns),
        };
        Self {
            seed: report.seed,
            extent: report.extent,
            replications: report.replications,
            events: report.events,
            verdict: report.verdict.clone(),
            precise: report.precise,
            responses: report.responses.iter().map(response).collect(),
            facts: report
                .facts
                .iter()
                .map(|fact| (fact.name.clone(), fact.value.map(bits)))
                .collect(),
        }
    }
}

impl From<StoredReport> for Report {
    fn from(stored: StoredReport) -> Self {
        let all = |numbers: Vec<u64>| numbers.into_iter().map(f64::from_bits).collect();
        let response = |one: StoredResponse| Response {
            name: one.name,
            requests: one.requests,
            warm_up: one.warm_up,
            mean_ns: one.mean.map(interval),
            p99_ns: one.p99.map(interval),
            means_ns: all(one.means),
            p99s_ns: all(one.p99s),
        };
        let fact =
            |(name, value): (String, Option<[u64; 3]>)| Fact { name, value: value.map(interval) };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seed: stored.seed,
            extent: stored.extent,
            replications: stored.replications,
            events: stored.events,
            verdict: stored.verdict,
            precise: stored.precise,
            responses: stored.responses.into_iter().map(response).collect(),
            facts: stored.facts.into_iter().map(fact).collect(),
        }
    }
}

fn bits(interval: Interval) -> [u64; 3] {
    [interval.value, interval.ci95[0], interval.ci95[1]].map(f64::to_bits)
}

fn interval(bits: [u64; 3]) -> Interval {
    let [value, low, high] = bits.map(f64::from_bits);
    Interval { value, ci95: [low, high] }
}
