//! Simulates the cases behind the rows: settings of the committed specifications, each once. Every case has the same
//! random seed, so all see the same requests. The other files say which cases a row comes from.

use std::cell::RefCell;
use std::collections::BTreeMap;

use sim::arcalis::Attachment;
use sim::{Assignment, Extent, Report, System};

use crate::base::{Problem, Session, entries, replications, study};

/// The workloads of figure 11.
pub(super) const WORKLOADS: [&str; 7] =
    ["memc_low", "memc_mid", "memc_high", "post_low", "post_mid", "post_high", "unique_id"];
/// The workloads of one service each, from the fewest writes to the most.
pub(super) const MEMC: [&str; 3] = ["memc_low", "memc_mid", "memc_high"];
pub(super) const POST: [&str; 3] = ["post_low", "post_mid", "post_high"];

/// A scenario, an attachment, and settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    scenario: &'static str,
    attachment: &'static str,
    /// Keys and values.
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

    /// Returns the same in the scenario of figure 16.
    pub(super) fn dagger(workload: &str) -> Self {
        Self { scenario: "arcalis-dagger", ..Self::new(workload) }
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

    /// Returns a runner that makes `replications` runs of `requests` requests for each case, until the session is
    /// interrupted.
    pub(super) fn with(replications: u32, requests: u64, session: &Session) -> Self {
        Self { replications, requests, session: session.clone(), done: RefCell::default() }
    }

    /// Returns how much is simulated, as text.
    pub(super) fn extent(&self) -> String {
        format!("{} runs of {} requests each, seed 1", self.replications, self.requests)
    }

    /// Returns a fact of a case.
    pub(super) fn fact(&self, case: &Case, name: &str) -> Result<f64, Problem> {
        let missing = || Problem::Failed(format!("{case:?} has no {name}"));
        Ok(self.report(case)?.fact(name).ok_or_else(missing)?.value)
    }

    /// Returns the requests per second.
    pub(super) fn per_s(&self, case: &Case) -> Result<f64, Problem> {
        self.fact(case, "throughput_per_s")
    }

    /// Returns how much longer a request takes than in another case (%).
    pub(super) fn slowdown(&self, case: &Case, base: &Case) -> Result<f64, Problem> {
        Ok(100.0 * (self.per_s(base)? / self.per_s(case)? - 1.0))
    }

    /// Returns the throughput as a multiple of that of the services on one core.
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
