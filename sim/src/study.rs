//! A study runs as many independent replications as the requested precision needs, on the given number of threads, and
//! reports their combined results. The results do not depend on the number of threads. The model defines what a
//! replication simulates. Nothing is printed here.
//!
//! Each interval is a Student's t interval over one number per replication. That number is either the mean or
//! the exact 99th percentile of the replication's requests after the warm-up. The warm-up is found once, by
//! MSER-5 on the mean of the replications before the first check of the precision. A study with a precision
//! repeats the check after every batch of replications, so its intervals cover a little less than 95 %.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use crate::statistics::{Interval, KEPT_MIN, REPLICATIONS_MIN, drift, drifts, mean_of};
use crate::statistics::{quantile, warm_up};
use crate::{End, Picos, Streams};

/// The names of the numbers of a [`Sample`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// A name for each list of response times.
    pub responses: Vec<String>,
    /// A name for each single number.
    pub facts: Vec<String>,
}

/// The measurements of one replication.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The response times (ps) in order of completion, with one list per name.
    pub responses: Vec<Vec<u64>>,
    /// Single numbers, such as a utilisation. Each covers the whole run, including the warm-up.
    pub facts: Vec<f64>,
    /// The number of events that fired.
    pub events: u64,
    /// The simulated time.
    pub duration: Picos,
}

/// The length of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The replication ends when this many requests are done or refused. It estimates the steady state.
    Requests(u64),
    /// The requests that arrive within this time, starting from an empty system. Each of them is simulated to its end.
    /// No steady state is claimed.
    WindowPs(Picos),
}

impl Extent {
    /// Returns whether a replication ends after this many requests that are done or refused. A window ends when its
    /// agenda is empty, so this is false for a window.
    pub(crate) fn is_reached(self, requests: u64) -> bool {
        match self {
            Extent::Requests(count) => requests >= count,
            Extent::WindowPs(_) => false,
        }
    }

    /// Returns a shorter extent for an overloaded model. A run that cannot be steady does not need to fill the memory
    /// to show it.
    pub(crate) fn overloaded(self) -> Self {
        match self {
            Extent::Requests(count) => Extent::Requests(count.min(OVERLOADED_REQUESTS)),
            Extent::WindowPs(_) => self,
        }
    }
}

/// The plan of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The seed. Everything random follows from it.
    pub seed: u64,
    /// The length of each replication.
    pub extent: Extent,
    /// The number of replications before the first check of the precision, and the number added before each further
    /// check.
    pub replications_min: u32,
    /// The maximum number of replications. The study then ends even without the requested precision.
    pub replications_max: u32,
    /// The requested precision. The study ends when half of every interval is at most this fraction of its
    /// value. Without a precision it ends after the first check.
    pub precision: Option<f64>,
    /// The number of threads. The results do not depend on it.
    pub threads: usize,
    /// The maximum number of events in a replication. More events are an error.
    pub events_max: u64,
}

/// A model that can be simulated again and again.
pub trait Simulate: Sync {
    /// Returns the names of a replication's measurements.
    fn names(&self) -> Names;

    /// Returns the reason why there is no steady state, if it is known without a run.
    fn overload(&self) -> Option<String>;

    /// Simulates one replication from an empty system. The sample is a function of the arguments.
    fn replicate(
        &self,
        streams: &Streams,
        extent: Extent,
        events_max: u64,
    ) -> Result<Sample, RunError>;
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            extent: Extent::Requests(100_000),
            replications_min: 10,
            replications_max: 200,
            precision: None,
            threads: 1,
            events_max: 1 << 36,
        }
    }
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key} is {value}; it must be {low} to {high}")]
pub struct BadPlan {
    /// The name of the field.
    pub key: &'static str,
    /// The value of the field.
    pub value: f64,
    /// The smallest value it may have.
    pub low: f64,
    /// The largest value it may have.
    pub high: f64,
}

/// The reason why a replication could not be finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// More requests (and parts of them) are in flight than the specification allows.
    #[error("at {at_ns} ns {limit} requests and parts of requests are under way (`tokens_max`)")]
    TooManyTokens {
        /// The limit.
        limit: usize,
        /// The time at which the limit was exceeded (ns).
        at_ns: u64,
    },
    /// A window, or all windows of a replication together, hold more requests than can be stored.
    #[error(
        "a window, or those of a replication, hold more than {limit} requests; choose a shorter one"
    )]
    TooManyRequests {
        /// The limit.
        limit: u64,
    },
    /// The caller stopped the study.
    #[error("interrupted")]
    Interrupted,
    /// The RPC engine refused a message that the model made.
    #[error("the engine refused a message: {code}")]
    Engine {
        /// The error code of the engine.
        code: rpc::Code,
    },
    /// The plan's `events_max` events fired before the replication was done.
    #[error("{events} events fired and the replication is not done (`events_max`)")]
    EventLimit {
        /// The limit.
        events: u64,
    },
}

impl RunError {
    /// Returns an error if the run has a fault or if it ended at the limit of events.
    pub(crate) fn check(end: End, fault: Option<Self>, events_max: u64) -> Result<(), Self> {
        match (fault, end) {
            (Some(fault), _) => Err(fault),
            (None, End::EventLimit) => Err(Self::EventLimit { events: events_max }),
            (None, End::Stopped | End::Empty) => Ok(()),
        }
    }
}

/// The reason why there is no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// A replication failed.
    #[error("replication {replication}: {error}")]
    Run {
        /// The number of the replication.
        replication: u32,
        /// The error of its run.
        error: RunError,
    },
}

/// The results of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The version of this crate. Another version may give other numbers for the same seed.
    pub version: &'static str,
    /// The seed of the plan.
    pub seed: u64,
    /// The extent of the plan.
    pub extent: Extent,
    /// The number of replications made.
    pub replications: u32,
    /// The number of events that fired in all replications.
    pub events: u64,
    /// The validity of the response times.
    pub verdict: Verdict,
    /// Whether every mean and every percentile has the requested precision. It is none if no precision was requested.
    pub precise: Option<bool>,
    /// The response times.
    pub responses: Vec<Response>,
    /// The single numbers.
    pub facts: Vec<Fact>,
}

/// The validity of a report's response times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// The response times are those of the steady state: warm-ups are cut off and no drift was found.
    Steady,
    /// The response times are those of a window's requests, starting from an empty system.
    Window,
    /// No steady state was found, so no response times are reported, because the percentiles would only reflect the
    /// length of the run. The caller can simulate a window of `window_ps`, the duration of the shortest replication,
    /// instead.
    Refused {
        /// The reason for the refusal.
        reason: String,
        /// True if more work arrives than the system can do. No measurement of such a run is meaningful.
        overload: bool,
        /// The length of the window that can be simulated instead.
        window_ps: Picos,
    },
}

impl Verdict {
    /// Returns the word that tables use.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Steady => "steady",
            Verdict::Window => "window",
            Verdict::Refused { .. } => "refused",
        }
    }
}

/// A response time of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The name of the response.
    pub name: String,
    /// The number of requests after the warm-up.
    pub requests: u64,
    /// The number of requests that are cut off as warm-up.
    pub warm_up: u64,
    /// The mean (ns). It is none if the steady state is refused or a replication has no requests.
    pub mean_ns: Option<Interval>,
    /// The 99th percentile (ns). It is none if the mean is none or if a replication has fewer than [`KEPT_MIN`]
    /// requests.
    pub p99_ns: Option<Interval>,
    #[serde(skip)]
    pub(crate) means_ns: Vec<f64>,
    #[serde(skip)]
    pub(crate) p99s_ns: Vec<f64>,
}

/// A single number of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// The name of the number.
    pub name: String,
    /// The interval over the replications. It is none for an overload, whose runs are cut short.
    pub value: Option<Interval>,
}

/// The difference between one alternative's response times and another's, paired by replication.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The difference of the means (ns).
    pub mean_ns: Interval,
    /// The difference of the 99th percentiles (ns).
    pub p99_ns: Option<Interval>,
}

/// All responses of a report together, with equal weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Across {
    /// The mean of the responses' means (ns).
    pub mean_ns: Interval,
    /// The mean of the responses' 99th percentiles (ns).
    pub p99_ns: Option<Interval>,
}

/// The fraction by which one alternative's response times are below another's, paired by replication.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reduction {
    /// The reduction of the mean of the responses' means.
    pub mean: Interval,
    /// The reduction of the mean of the responses' 99th percentiles.
    pub p99: Option<Interval>,
}

/// A replication, reduced to what the report needs.
struct Reduced {
    responses: Vec<ReducedResponse>,
    facts: Vec<f64>,
    events: u64,
    duration: Picos,
}

/// The warm-up that is cut off one response variable's observations before they count.
struct Cut {
    requests: usize,
    unsteady: bool,
}

struct ReducedResponse {
    kept: usize,
    cut: usize,
    drift: f64,
    mean_ns: Option<f64>,
    p99_ns: Option<f64>,
}

impl Plan {
    /// Simulates `model` until the plan is fulfilled. Any thread may call `progress` with the number of replications
    /// that are done.
    pub fn run(
        &self,
        model: &impl Simulate,
        progress: &(impl Fn(u32) + Sync),
    ) -> Result<Report, StudyError> {
        self.check()?;
        let mut count = self.replications_min;
        let (cuts, mut done) = self.pilot(model, progress)?;
        loop {
            let report = self.report(model, &cuts, &done);
            // If an interval is missing, a replication lacks a number. Further replications do not change this.
            let misses = report.intervals().any(|one| one.is_none());
            let last = misses || count == self.replications_max;
            if last || report.precise != Some(false) {
                return Ok(report);
            }
            let more = count..(count + self.replications_min).min(self.replications_max);
            count = more.end;
            let reduce = |sample| reduce(sample, &cuts);
            done.append(&mut self.replications(model, more, &reduce, progress)?);
        }
    }

    /// Returns an error if a number of the plan is not valid.
    pub fn check(&self) -> Result<(), BadPlan> {
        let check = |key, value: f64, low: f64, high: f64| {
            let fits = value >= low && value <= high;
            if fits { Ok(()) } else { Err(BadPlan { key, value, low, high }) }
        };
        let (least, most) = (f64::from(self.replications_min), f64::from(self.replications_max));
        check("replications_min", least, REPLICATIONS_MIN as f64, PILOTS_MAX)?;
        check("replications_max", most, least, REPLICATIONS_MAX)?;
        match self.extent {
            Extent::Requests(count) => {
                let pilot = (PILOT_REQUESTS_MAX / f64::from(self.replications_min)).floor();
                check("requests", count as f64, 1.0, pilot.clamp(1.0, REQUESTS_MAX as f64))?;
            }
            Extent::WindowPs(window) => check("window_ps", window.0 as f64, 1.0, WINDOW_PS_MAX)?,
        }
        check("precision", self.precision.unwrap_or(PRECISION_MAX), PRECISION_MIN, PRECISION_MAX)?;
        check("threads", self.threads as f64, 1.0, THREADS_MAX)?;
        check("events_max", self.events_max as f64, 1.0, u64::MAX as f64)
    }

    /// Returns each response's warm-up, and the replications from which it was found.
    fn pilot(
        &self,
        model: &impl Simulate,
        progress: &(impl Fn(u32) + Sync),
    ) -> Result<(Vec<Cut>, Vec<Reduced>), StudyError> {
        let range = 0..self.replications_min;
        match self.extent {
            Extent::Requests(_) => {
                let pilot = self.replications(model, range, &|sample| sample, progress)?;
                let cuts = cuts(&pilot);
                let done = pilot.into_iter().map(|one| reduce(one, &cuts)).collect();
                Ok((cuts, done))
            }
            // Nothing is cut off, so each replication can be reduced before the others are done.
            Extent::WindowPs(_) => {
                let none = |_| Cut { requests: 0, unsteady: false };
                let cuts: Vec<Cut> = model.names().responses.into_iter().map(none).collect();
                let done =
                    self.replications(model, range, &|sample| reduce(sample, &cuts), progress)?;
                Ok((cuts, done))
            }
        }
    }

    /// Returns the replications of `range`, in order. Each thread reduces its replications with `keep`.
    fn replications<T: Send>(
        &self,
        model: &impl Simulate,
        range: Range<u32>,
        keep: &(impl Fn(Sample) -> T + Sync),
        progress: &(impl Fn(u32) + Sync),
    ) -> Result<Vec<T>, StudyError> {
        let (next, finished) = (AtomicU32::new(range.start), AtomicU32::new(range.start));
        let failed = AtomicBool::new(false);
        let work = || {
            let mut done = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let replication = next.fetch_add(1, Ordering::Relaxed);
                if replication >= range.end {
                    break;
                }
                let streams = Streams::new(self.seed, replication);
                let sample = model.replicate(&streams, self.extent, self.events_max);
                failed.fetch_or(sample.is_err(), Ordering::Relaxed);
                done.push((replication, sample.map(keep)));
                progress(finished.fetch_add(1, Ordering::Relaxed) + 1);
            }
            done
        };
        let mut all = thread::scope(|scope| {
            let threads = self.threads.min(range.len());
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.flatten().collect::<Vec<_>>()
        });
        // Replications are dispatched in order, so all replications before a failed one are here. The reported error
        // therefore does not depend on the number of threads.
        all.sort_unstable_by_key(|(replication, _)| *replication);
        let kept = all.into_iter().map(|(replication, result)| {
            result.map_err(|error| StudyError::Run { replication, error })
        });
        kept.collect()
    }

    fn report(&self, model: &impl Simulate, cuts: &[Cut], done: &[Reduced]) -> Report {
        let names = model.names();
        let verdict = self.verdict(model, &names, cuts, done);
        let refused = matches!(verdict, Verdict::Refused { .. });
        let named = names.responses.into_iter().enumerate();
        let responses: Vec<Response> = named
            .map(|(index, name)| {
                Response::from_reduced(name, done.iter().map(|one| &one.responses[index]))
            })
            .map(|response| if refused { response.withheld() } else { response })
            .collect();
        let overload = matches!(verdict, Verdict::Refused { overload: true, .. });
        let named = names.facts.into_iter().enumerate();
        let facts = named.map(|(index, name)| {
            let values: Vec<f64> = done.iter().map(|one| one.facts[index]).collect();
            Fact { name, value: Interval::from_replications(&values).filter(|_| !overload) }
        });
        let facts = facts.collect();
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            seed: self.seed,
            extent: self.extent,
            replications: done.len() as u32,
            events: done.iter().map(|one| one.events).sum(),
            verdict,
            precise: None,
            facts,
            responses,
        };
        let within = |one: Option<Interval>, wanted: f64| {
            one.is_some_and(|one| one.relative_half_width() <= wanted)
        };
        report.precise = self.precision.map(|wanted| {
            report.intervals().next().is_some() && report.intervals().all(|one| within(one, wanted))
        });
        report
    }

    fn verdict(
        &self,
        model: &impl Simulate,
        names: &Names,
        cuts: &[Cut],
        done: &[Reduced],
    ) -> Verdict {
        if matches!(self.extent, Extent::WindowPs(_)) {
            return Verdict::Window;
        }
        let window_ps = done.iter().map(|one| one.duration).min().unwrap_or_default();
        if let Some(reason) = model.overload() {
            return Verdict::Refused { reason, overload: true, window_ps };
        }
        for (index, name) in names.responses.iter().enumerate() {
            let drift_of: Vec<f64> = done.iter().map(|one| one.responses[index].drift).collect();
            // A burst can cause a warm-up that ends at half a run. Growth after it is not caused by a burst.
            if drifts(&drift_of) {
                let percent = 100.0 * crate::mean(&drift_of);
                let kept = if cuts[index].unsteady { "the second half of a run" } else { "a run" };
                let reason = format!("{name}: response times grow by {percent:.0} % within {kept}");
                return Verdict::Refused { reason, overload: false, window_ps };
            }
        }
        Verdict::Steady
    }
}

/// Returns each response's warm-up.
fn cuts(pilot: &[Sample]) -> Vec<Cut> {
    let responses = pilot.first().map_or(0, |sample| sample.responses.len());
    let cut = |index: usize| {
        let times = pilot.iter().map(|sample| sample.responses[index].as_slice());
        let (requests, unsteady) = warm_up(&times.collect::<Vec<_>>());
        Cut { requests, unsteady }
    };
    (0..responses).map(cut).collect()
}

fn reduce(sample: Sample, cuts: &[Cut]) -> Reduced {
    let reduce = |(mut times, cut): (Vec<u64>, &Cut)| {
        let cut = cut.requests.min(times.len());
        let kept = &mut times[cut..];
        let drift = drift(kept);
        let mean_ns = (!kept.is_empty()).then(|| mean_of(kept) * 1e-3);
        let p99_ns = (kept.len() >= KEPT_MIN).then(|| quantile(kept, 0.99) as f64 * 1e-3);
        ReducedResponse { kept: kept.len(), cut, drift, mean_ns, p99_ns }
    };
    Reduced {
        responses: sample.responses.into_iter().zip(cuts).map(reduce).collect(),
        facts: sample.facts,
        events: sample.events,
        duration: sample.duration,
    }
}

impl Response {
    fn from_reduced<'a>(
        name: String,
        reduced: impl Iterator<Item = &'a ReducedResponse> + Clone,
    ) -> Self {
        let all = |values: Option<Vec<f64>>| values.unwrap_or_default();
        let means_ns = all(reduced.clone().map(|one| one.mean_ns).collect());
        let p99s_ns = all(reduced.clone().map(|one| one.p99_ns).collect());
        Self {
            name,
            requests: reduced.clone().map(|one| one.kept as u64).sum(),
            warm_up: reduced.map(|one| one.cut as u64).sum(),
            mean_ns: Interval::from_replications(&means_ns),
            p99_ns: Interval::from_replications(&p99s_ns),
            means_ns,
            p99s_ns,
        }
    }

    /// Returns the response without its times.
    fn withheld(self) -> Self {
        Self { mean_ns: None, p99_ns: None, means_ns: Vec::new(), p99s_ns: Vec::new(), ..self }
    }
}

impl Report {
    /// Returns the response called `name`.
    pub fn response(&self, name: &str) -> Option<&Response> {
        self.responses.iter().find(|response| response.name == name)
    }

    /// Returns the value of the fact called `name`.
    pub fn fact(&self, name: &str) -> Option<Interval> {
        self.facts.iter().find(|fact| fact.name == name)?.value
    }

    /// Returns the mean and the percentile of every response. The requested precision applies to these intervals.
    fn intervals(&self) -> impl Iterator<Item = Option<Interval>> {
        self.responses.iter().flat_map(|one| [one.mean_ns, one.p99_ns])
    }

    /// Returns this report's response times minus `other`'s, paired by replication. Reports with the same
    /// seed and extent saw the same arrivals and the same work, so the noise that they share cancels. Returns
    /// none for different seeds or extents, or if one of the reports has no times.
    pub fn difference(&self, other: &Self, response: &str) -> Option<Difference> {
        if (self.seed, self.extent) != (other.seed, other.extent) {
            return None;
        }
        let (ours, theirs) = (self.response(response)?, other.response(response)?);
        let paired = |ours: &[f64], theirs: &[f64]| {
            let pairs = ours.iter().zip(theirs);
            Interval::from_replications(
                &pairs.map(|(ours, theirs)| ours - theirs).collect::<Vec<_>>(),
            )
        };
        let mean_ns = paired(&ours.means_ns, &theirs.means_ns)?;
        Some(Difference { mean_ns, p99_ns: paired(&ours.p99s_ns, &theirs.p99s_ns) })
    }

    /// Returns the averages over all responses, or none if a response has no times.
    pub fn across(&self) -> Option<Across> {
        let mean_ns = Interval::from_replications(&self.averages(|response| &response.means_ns)?)?;
        let p99s = self.averages(|response| &response.p99s_ns);
        Some(Across { mean_ns, p99_ns: p99s.and_then(|p99s| Interval::from_replications(&p99s)) })
    }

    /// Returns every number as a row of a table with its subject, its statistic and its value. The subject is `all` for
    /// the averages over all responses.
    pub fn rows(&self) -> Vec<(&str, &'static str, Option<Interval>)> {
        let mut rows = Vec::new();
        for response in &self.responses {
            rows.push((response.name.as_str(), "mean_ns", response.mean_ns));
            rows.push((response.name.as_str(), "p99_ns", response.p99_ns));
        }
        let across = self.across();
        rows.push(("all", "mean_ns", across.as_ref().map(|across| across.mean_ns)));
        rows.push(("all", "p99_ns", across.and_then(|across| across.p99_ns)));
        rows.extend(self.facts.iter().map(|fact| (fact.name.as_str(), "fact", fact.value)));
        rows
    }

    /// Returns the fraction by which this report's times are below `other`'s, paired as in [`Report::difference`].
    pub fn reduction(&self, other: &Self) -> Option<Reduction> {
        if (self.seed, self.extent) != (other.seed, other.extent) {
            return None;
        }
        let paired = |pick: fn(&Response) -> &Vec<f64>| {
            let (ours, theirs) = (self.averages(pick)?, other.averages(pick)?);
            let pairs = ours.iter().zip(&theirs);
            Interval::from_replications(
                &pairs.map(|(ours, theirs)| 1.0 - ours / theirs).collect::<Vec<_>>(),
            )
        };
        let mean = paired(|response| &response.means_ns)?;
        Some(Reduction { mean, p99: paired(|response| &response.p99s_ns) })
    }

    /// Returns the mean over the responses for each replication, or none if a response lacks a number.
    fn averages(&self, pick: impl Fn(&Response) -> &Vec<f64>) -> Option<Vec<f64>> {
        let lists: Vec<&Vec<f64>> = self.responses.iter().map(pick).collect();
        let count = lists.first()?.len();
        let whole = lists.iter().all(|list| list.len() == count);
        let average =
            |at: usize| lists.iter().map(|list| list[at]).sum::<f64>() / lists.len() as f64;
        whole.then(|| (0..count).map(average).collect())
    }
}

/// The maximum number of requests in one replication. Their response times take 32 MiB.
pub(crate) const REQUESTS_MAX: u64 = 1 << 22;
const OVERLOADED_REQUESTS: u64 = 200;
/// The maximum number of requests before the first check of the precision. Their response times take 512 MiB.
const PILOT_REQUESTS_MAX: f64 = (1u64 << 26) as f64;
/// The longest window (ps). It is half of the clock's range, so that the last request can still end.
const WINDOW_PS_MAX: f64 = (u64::MAX / 2) as f64;
/// The maximum number of pilot replications. Their response times are held until the warm-up is known.
const PILOTS_MAX: f64 = 100.0;
const REPLICATIONS_MAX: f64 = 1e5;
const PRECISION_MIN: f64 = 1e-6;
const PRECISION_MAX: f64 = 1.0;
const THREADS_MAX: f64 = 1_024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_be_carried_out_are_refused() {
        let fault = |plan: Plan| plan.check().expect_err("invalid").to_string();
        assert_eq!(
            fault(Plan { replications_min: 2, ..Plan::default() }),
            "replications_min is 2; it must be 5 to 100"
        );
        assert!(fault(Plan { replications_max: 7, ..Plan::default() }).contains("is 7"));
        assert!(fault(Plan { threads: 0, ..Plan::default() }).contains("threads is 0"));
        assert!(fault(Plan { precision: Some(f64::NAN), ..Plan::default() }).contains("NaN"));
        assert!(
            fault(Plan { extent: Extent::Requests(0), ..Plan::default() }).contains("requests")
        );
        assert_eq!(Plan::default().check(), Ok(()));
        // A hundred of the longest replications would hold more than 3 GB until the warm-up is known.
        let longest = Extent::Requests(REQUESTS_MAX);
        let many = Plan { extent: longest, replications_min: 100, ..Plan::default() };
        assert_eq!(fault(many), "requests is 4194304; it must be 1 to 671088");
        let few = Plan { extent: longest, replications_min: 16, ..Plan::default() };
        assert_eq!(few.check(), Ok(()));
    }

    #[test]
    fn what_has_no_percentile_is_not_precise() {
        let plan = |requests| {
            let extent = Extent::Requests(requests);
            let plan = Plan { extent, precision: Some(0.5), ..Plan::default() };
            plan.run(&Given(|at| 9_000 + at % 7), &|_| {}).expect("a report")
        };
        let long = plan(10_000);
        assert_eq!((long.precise, long.replications), (Some(true), 10));
        let short = plan(KEPT_MIN as u64 - 1);
        assert!(short.responses[0].mean_ns.is_some() && short.responses[0].p99_ns.is_none());
        assert_eq!((short.precise, short.replications), (Some(false), 10), "more would not help");
        let unasked = Plan { extent: Extent::Requests(500), ..Plan::default() };
        assert_eq!(unasked.run(&Given(|at| at % 7), &|_| {}).expect("a report").precise, None);
    }

    /// A model whose response times are the same function of the request's index in every replication.
    struct Given(fn(u64) -> u64);

    impl Simulate for Given {
        fn names(&self) -> Names {
            Names { responses: vec!["web".to_owned()], facts: Vec::new() }
        }

        fn overload(&self) -> Option<String> {
            None
        }

        fn replicate(&self, _: &Streams, extent: Extent, _: u64) -> Result<Sample, RunError> {
            let Extent::Requests(count) = extent else { panic!("a steady state is asked for") };
            let responses = vec![(0..count).map(self.0).collect()];
            Ok(Sample { responses, ..Sample::default() })
        }
    }

    #[test]
    fn a_burst_before_half_a_run_is_no_drift() {
        let plan = Plan { extent: Extent::Requests(10_000), ..Plan::default() };
        let verdict = |of| plan.run(&Given(of), &|_| {}).expect("a report").verdict;
        let burst = |at| if (4_800..4_990).contains(&at) { 90_000 } else { 9_000 + at % 7 };
        assert_eq!(verdict(burst), Verdict::Steady);
        let Verdict::Refused { reason, overload, .. } = verdict(|at| at) else { panic!("grows") };
        assert!(reason.contains("within the second half of a run") && !overload, "{reason}");
    }
}
