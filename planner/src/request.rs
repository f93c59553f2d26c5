//! A request to the planner: the source of the parameters, the values that replace some of them, and the answers. The
//! command line and Python build the same request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Address, LoginFile};
use model::{Provenance, Quantity, Strategy, Symbol, Threading, Variant};
use serde::Serialize;

use crate::answer::{Answer, evaluate};
use crate::profile::ProfileInput;
use crate::query::{Parameter, Query, Sizes};
use crate::scheduler::LiveRequest;
use crate::{device, file, input, profile, scheduler};

/// A request to the planner.
#[derive(Clone, Debug)]
pub struct Request {
    /// The source of the parameters.
    pub source: Source,
    /// Values that replace those from the source.
    pub changes: Changes,
    /// The seed of the draws that give the intervals. The same seed gives the same digits.
    pub seed: u64,
}

/// The source of a service's parameters.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file of parameters (TOML, or the public Accelerometer program's nine lines), or the name of one of [`SPECS`].
    ///
    /// [`SPECS`]: crate::SPECS
    Parameters(PathBuf),
    /// The text of a TOML file of parameters. It cannot name other files.
    Toml(String),
    /// A CPU profile.
    Profile {
        /// Where the profile is.
        input: ProfileInput,
        /// A file with rules that are tried before the built-in rules.
        rules: Option<PathBuf>,
        /// The category to accelerate. Without a category the result is only the report of categories.
        kernel: Option<String>,
        /// The cycles (C) that the host spent while the sizes were counted.
        cycles: Option<f64>,
        /// The number of calls (n) in the period in which the sizes were counted.
        calls: Option<f64>,
    },
    /// The counts of a live scheduler.
    Scheduler {
        /// The scheduler's gRPC address.
        address: Address,
        /// The length of the last period whose counts are used.
        last: Duration,
        /// The login, if the scheduler wants one.
        login: Option<Arc<LoginFile>>,
    },
}

/// Values that replace those from the source. An absent field keeps the source's value.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The name of the threading design.
    pub threading: Option<String>,
    /// The name of the accelerator's place: on-chip, off-chip or remote.
    pub strategy: Option<String>,
    /// The name of the variant of the equations.
    pub variant: Option<String>,
    /// A file with the number of calls by size.
    pub sizes: Option<PathBuf>,
    /// The op whose costs are read from a device profile.
    pub op: Option<String>,
    /// The clock of the host (GHz).
    pub clock_ghz: Option<f64>,
    /// The device profiles whose costs are used. `all` means every profile that has the op.
    pub devices: Vec<String>,
}

/// The answers to a request.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    /// One answer for each query and device.
    pub answers: Vec<Answer>,
    /// The report of categories, if the source is a CPU profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<profile::Report>,
    /// The parts that have no answer because too little is known about them, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The reason why there is a profile but no answer.
    #[serde(skip)]
    pub unanswered: Option<Error>,
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file, a flag or a parameter is wrong. The caller can fix it.
    #[error("{0}")]
    Input(String),
    /// The scheduler did not answer, or knows too little.
    #[error("{0}")]
    Scheduler(String),
}

impl From<String> for Error {
    fn from(problem: String) -> Self {
        Error::Input(problem)
    }
}

impl Request {
    /// Reads the source and evaluates the model. If the model has no answer for a profile, the result still has the
    /// profile's report.
    ///
    /// # Errors
    /// The variant of the error says whether the caller's input or the scheduler has the problem.
    pub fn evaluate(&self) -> Result<Outcome, Error> {
        self.changes.clock_ghz.map(device::checked_ghz).transpose()?;
        let mut outcome = Outcome::default();
        let queries = match &self.source {
            Source::Parameters(path) => input::queries_from(path)?,
            Source::Toml(text) => file::read(text, None)?,
            Source::Profile { input, rules, kernel, cycles, calls } => {
                let read = profile::read(input, rules.as_deref())?;
                outcome.profile = Some(profile::Report::new(&read));
                let query = |kernel: &String| self.profile_query(&read, kernel, *cycles, *calls);
                return match kernel.as_ref().map(query).transpose() {
                    Ok(query) => Ok(self.answer(query, outcome)),
                    Err(problem) => Err(problem.into()),
                };
            }
            Source::Scheduler { address, last, login } => {
                let request = LiveRequest {
                    address,
                    last: *last,
                    login: login.as_deref(),
                    op: self.changes.op.as_deref(),
                    clock_ghz: self.changes.clock_ghz,
                    has_profiles: !self.changes.devices.is_empty(),
                };
                let live = scheduler::queries(&request).map_err(Error::Scheduler)?;
                outcome.left_out = live.left_out;
                live.queries
            }
        };
        for mut query in queries {
            self.changes.apply(&mut query)?;
            outcome.answers.extend(on_devices(query, self.seed, &mut outcome.left_out)?);
        }
        Ok(outcome)
    }

    /// Answers the query about a profile. Without a query it returns the outcome unchanged.
    fn answer(&self, query: Option<Query>, mut outcome: Outcome) -> Outcome {
        let Some(query) = query else { return outcome };
        match on_devices(query, self.seed, &mut outcome.left_out) {
            Ok(answers) => outcome.answers = answers,
            Err(problem) => outcome.unanswered = Some(problem.into()),
        }
        outcome
    }

    fn profile_query(
        &self,
        read: &profile::CpuProfile,
        kernel: &str,
        cycles: Option<f64>,
        calls: Option<f64>,
    ) -> Result<Query, String> {
        let threading = self.changes.threading.as_deref().unwrap_or(Threading::Async.name());
        let mut query = profile::query(read, kernel, threading)?;
        self.changes.apply(&mut query)?;
        for (symbol, value, flag) in
            [(Symbol::C, cycles, "--cycles"), (Symbol::N, calls, "--calls")]
        {
            if let Some(value) = value {
                let quantity = Quantity::exact(value, Provenance::Configured);
                query.parameters.insert(symbol, Parameter::new(quantity, flag));
            }
        }
        if query.stated(Symbol::N).is_some() {
            if query.stated(Symbol::C).is_none() {
                let how = "--cycles says how many the host spent while the sizes were counted";
                return Err(format!("the profile has no cycles (C): {how}"));
            }
            query.notes.push(ONE_WHILE.to_owned());
            if query.devices.is_empty() {
                let problem = "what an offload costs is unknown (o0, L, A): --device NAME";
                return Err(problem.to_owned());
            }
        }
        Ok(query)
    }
}

impl Changes {
    /// Replaces the query's values with those stated here.
    ///
    /// # Errors
    /// A name or a file cannot be used; the error says what is valid.
    pub fn apply(&self, query: &mut Query) -> Result<(), String> {
        let bad = |error: model::BadParameter| error.to_string();
        if let Some(word) = &self.strategy {
            query.put_at(word.parse::<Strategy>().map_err(bad)?);
        }
        if let Some(word) = &self.threading {
            query.design.threading = word.parse::<Threading>().map_err(bad)?;
        }
        if let Some(word) = &self.variant {
            query.design.variant = word.parse::<Variant>().map_err(bad)?;
        }
        if let Some(path) = &self.sizes {
            self.put_sizes(query, path)?;
        }
        if let Some(ghz) = self.clock_ghz {
            (query.clock_ghz, query.clock_source) = (Some(ghz), "as stated");
        }
        if let Some(op) = &self.op {
            query.op.clone_from(op);
        }
        query.devices.extend(self.devices.iter().cloned());
        Ok(())
    }

    fn put_sizes(&self, query: &mut Query, path: &Path) -> Result<(), String> {
        let read = input::sizes_from(path, self.op.as_deref())?;
        let source = Some(format!("{}, {}", path.display(), read.what));
        let (histogram, provenance) = (read.sizes, read.provenance);
        query.sizes = Some(Sizes { histogram, provenance, source });
        query.notes.extend(read.notes);
        query.op = read.op.unwrap_or_else(|| query.op.clone());
        Ok(())
    }
}

/// Evaluates a query with its own costs, and with the costs of each of its devices. If the query itself has no costs,
/// only the devices are evaluated. With `all`, devices that lack the op are left out.
fn on_devices(
    mut query: Query,
    seed: u64,
    left_out: &mut Vec<String>,
) -> Result<Vec<Answer>, String> {
    let devices = std::mem::take(&mut query.devices);
    if query.is_share_alone() && !devices.is_empty() {
        let devices = devices.join(", ");
        query.notes.push(format!("{devices}: what it costs depends on the sizes (--sizes)"));
        return Ok(vec![evaluate(query, seed)?]);
    }
    let mut on_devices = Vec::new();
    for name in &devices {
        if name != ALL {
            on_devices.push(device::with_device(&query, name)?);
            continue;
        }
        for name in device::all_that_offload() {
            match device::with_device(&query, &name) {
                Ok(query) => on_devices.push(query),
                Err(why) => left_out.push(why),
            }
        }
    }
    if !devices.is_empty() && on_devices.is_empty() {
        return Err(std::mem::take(left_out).join("; "));
    }
    let has_costs = query.parameters.contains_key(&Symbol::L);
    let mut answers = Vec::new();
    if devices.is_empty() || has_costs {
        answers.push(evaluate(query, seed)?);
    }
    for query in on_devices {
        answers.push(evaluate(query, seed)?);
    }
    Ok(answers)
}

/// The name that means every device profile.
const ALL: &str = "all";

/// The note that the number of offloads (n) and the host cycles (C) are assumed to cover the same period.
const ONE_WHILE: &str =
    "n (the sizes) and C (the cycles) are taken to be of one and the same while";
