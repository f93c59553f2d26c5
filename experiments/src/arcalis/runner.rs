//! Simulates the cases that the rows come from. A case has settings of the committed specifications, and each case is
//! simulated once. Every case has the same random seed, so all cases see the same requests. The other files decide
//! which cases a row comes from.

use std::cell::RefCell;
use std::collections::BTreeMap;

use sim::arcalis::Attachment;
use sim::{Assignment, Extent, Report, System};

use crate::base::{Problem, Session, entries, replications, study};

/// The workloads of figure 11.
pub(super) const WORKLOADS: [&str; 7] =
    ["memc_low", "memc_mid", "memc_high", "post_low", "post_mid", "post_high", "unique_id"];
/// The workloads of the service memcached, in ascending order of the share of writes.
pub(super) const MEMC: [&str; 3] = ["memc_low", "memc_mid", "memc_high"];
pub(super) const POST: [&str; 3] = ["post_low", "post_mid", "post_high"];

/// A scenario, an attachment, and the settings that differ from the specification.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    scenario: &'static str,
    attachment: &'static str,
    /// The keys with their values.
    set: Vec<(&'static str, String)>,
}

/// Simulates cases and remembers their reports.
pub(super) struct Runner {
    replications: u32,
    requests: u64,
    session: Session,
    done: RefCell<BTreeMap<Case, Report>>,
}

impl Case {
    /// Returns the case of a workload with the engine near the cache.
    pub(super) fn new(workload: &str) -> Self {
        let set = vec![("run.workload", workload.to_owned())];
        Self { scenario: "arcalis", attachment: Attachment::NearCache.name(), set }
    }

    /// Returns the case of a workload in the scenario of figure 16, with the engine near the cache.
    pub(super) fn dagger(workload: &str) -> Self {
        Self { scenario: "arcalis-dagger", ..Self::new(workload) }
    }

    /// Returns the case of a workload with our own handlers and software, with the engine near the cache.
    pub(super) fn measured(workload: &str) -> Self {
        Self { scenario: "arcalis-measured", ..Self::new(workload) }
    }

    pub(super) fn at(self, attachment: Attachment) -> Self {
        Self { attachment: attachment.name(), ..self }
    }

    pub(super) fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.set.push((key, value.to_string()));
        self
    }
}

impl Runner {
    /// Returns a runner for a whole experiment, or for a quick one.
    ///
    /// # Errors
    /// `runs` is out of range.
    pub(super) fn new(
        quick: bool,
        runs: Option<usize>,
        session: &Session,
    ) -> Result<Self, Problem> {
        let requests = if quick { 2_000 } else { 10_000 };
        Ok(Self::with(replications(runs, quick)?, requests, session))
    }

    /// Returns a runner that makes `replications` replications of `requests` requests for each case. It stops if the
    /// session is interrupted.
    pub(super) fn with(replications: u32, requests: u64, session: &Session) -> Self {
        Self { replications, requests, session: session.clone(), done: RefCell::default() }
    }

    /// Returns a text with the number of replications and requests.
    pub(super) fn extent(&self) -> String {
        format!("{} runs of {} requests each, seed 1", self.replications, self.requests)
    }

    /// Returns the value of the fact `name` in the report of a case.
    pub(super) fn fact(&self, case: &Case, name: &str) -> Result<f64, Problem> {
        let missing = || Problem::Failed(format!("{case:?} has no {name}"));
        Ok(self.report(case)?.fact(name).ok_or_else(missing)?.value)
    }

    /// Returns the throughput of a case (requests per second).
    pub(super) fn per_s(&self, case: &Case) -> Result<f64, Problem> {
        self.fact(case, "throughput_per_s")
    }

    /// Returns the additional time of a request compared with another case (%).
    pub(super) fn slowdown(&self, case: &Case, base: &Case) -> Result<f64, Problem> {
        Ok(100.0 * (self.per_s(base)? / self.per_s(case)? - 1.0))
    }

    /// Returns the throughput of a case divided by that of the same services on one core.
    pub(super) fn speedup(&self, case: &Case) -> Result<f64, Problem> {
        Ok(self.per_s(case)? / self.per_s(&case.clone().at(Attachment::Cpu))?)
    }

    fn report(&self, case: &Case) -> Result<Report, Problem> {
        if let Some(report) = self.done.borrow().get(case) {
            return Ok(report.clone());
        }
        if self.session.is_stopped() {
            return Err(Problem::Failed("interrupted".to_owned()));
        }
        self.session.progress.expect_more(1);
        let set = case.set.iter().map(|(key, value)| Assignment::new(key, value));
        let entries = entries(case.scenario, &set.collect::<Vec<_>>())?;
        let system = System::read(&entries).map_err(Problem::Failed)?;
        let extent = Extent::Requests(self.requests);
        let report = study(&system, case.attachment, self.replications, extent)?;
        self.session.progress.advance(1);
        self.done.borrow_mut().insert(case.clone(), report.clone());
        Ok(report)
    }
}
