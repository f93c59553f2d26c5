//! `rebate sim`: simulates a specification under several architectures and prints the results that the runs support.
//! Keys of the specification may be set and swept. The same seed gives the same bytes, whatever the number of threads.
//! The crate `sim` defines the meaning of a run.

mod csv;
mod page;
mod show;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use harness::Progress;
use serde_json::json;
use sim::accelflow::Architecture;
use sim::arcalis::Attachment;
use sim::relief::Orchestrator;
use sim::{
    Assignment, BadPlan, Entries, Plan, Recordings, Report, Response, Sweep, System, SystemError,
    sweep,
};

use self::csv::Csv;
use crate::terminal::{CliError, check_writable, print_line, write_file};
use experiments::inputs;

/// The flags of `rebate sim`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sim {
    /// Specification: steady, window, production, arcalis, arcalis-dagger, arcalis-measured, relief, or a file in
    /// the same form.
    #[arg(long, value_name = "FILE")]
    spec: String,
    /// Set a key of the specification to another value.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Assignment>,
    /// Simulate once for each of these values of a key. Several sweeps give all combinations.
    #[arg(long, value_name = "KEY=A,B,C")]
    sweep: Vec<Sweep>,
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', help = architecture_help())]
    architecture: Vec<String>,
    /// Seed of all random draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of independent replications, 5 to 100.
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: u32,
    /// Add replications, up to 20 times --runs, until half the width of each interval is at most this
    /// fraction of its value.
    #[arg(long, value_name = "FRACTION")]
    precision: Option<f64>,
    /// Number of threads, which does not change the results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Also write a CSV file with one row for each number.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Keep the complete studies in the file of --csv and simulate only the others.
    #[arg(long, requires = "csv")]
    resume: bool,
    /// Also write a page with figures to this file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only list every key with its value and the source of the value.
    #[arg(long)]
    sources: bool,
}

fn architecture_help() -> String {
    let accelflow = Architecture::ALL.map(Architecture::name).join(", ");
    let compared = Architecture::COMPARED.map(Architecture::name).join(", ");
    let arcalis = Attachment::ALL.map(Attachment::name).join(", ");
    let relief = Orchestrator::ALL.map(Orchestrator::name).join(", ");
    format!(
        "Architectures to simulate, or all. For AccelFlow's server (steady, window, production): {accelflow}; \
         default: {compared}. For Arcalis: {arcalis}; default: all. For RELIEF's applications: \
         {relief}; default: all"
    )
}

impl From<SystemError> for CliError {
    fn from(error: SystemError) -> Self {
        match error {
            SystemError::Invalid(text) => Self::Usage(text),
            SystemError::Failed(text) => Self::Failed(text),
        }
    }
}

/// The result of one architecture.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) architecture: &'static str,
    pub(crate) report: Report,
}

impl Sim {
    /// Simulates and prints the results.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        let entries = entries(&self.spec, &self.set)?;
        if self.sources {
            for (key, value, kind, source) in entries.sources() {
                print_line(&format!("{key} = {value}  # {kind}: {source}"));
            }
            return Ok(());
        }
        let points = sim::points(&self.sweep)
            .map_err(|problem| CliError::Usage(format!("--sweep: {problem}")))?;
        let specs = self.specs(&entries, &points)?;
        let architectures = match specs.first() {
            Some((spec, _)) => spec
                .architectures(&self.architecture)
                .map_err(|problem| CliError::Usage(format!("--architecture {problem}")))?,
            None => Vec::new(),
        };
        if let Some(path) = &self.report {
            check_writable("--report", path)?;
        }
        let mut csv = match &self.csv {
            None => None,
            Some(path) => Some(Csv::open(path, &self.sweep, self.resume).map_err(CliError::Usage)?),
        };
        let cases = cases(&points, &specs, &architectures);
        let started = Instant::now();
        let found = self.simulate(&cases, &mut csv)?;
        self.finish(&entries, found, started.elapsed())
    }

    /// Returns the system to simulate at each point, with the hash that identifies its inputs in a table.
    fn specs(
        &self,
        entries: &Entries,
        points: &[Vec<Assignment>],
    ) -> Result<Vec<(System, u64)>, CliError> {
        let mut known = Recordings::default();
        let spec = |point: &Vec<Assignment>| {
            let entries = sim::set(entries.clone(), point, &mut known, &sim::file_text);
            let entries = entries.map_err(CliError::Usage)?;
            let spec = System::read(&entries).map_err(CliError::Usage)?;
            self.plan(&spec).check().map_err(|bad| CliError::Usage(flagged(&bad)))?;
            let inputs = match self.csv {
                Some(_) => inputs(&entries, self.precision).map_err(CliError::Failed)?,
                None => 0,
            };
            Ok((spec, inputs))
        };
        points.iter().map(spec).collect()
    }

    /// Simulates the studies that the table lacks, and shows each point as soon as it is done.
    fn simulate(&self, cases: &[Case<'_>], csv: &mut Option<Csv>) -> Result<Summary, CliError> {
        let is_left = |case: &&Case<'_>| {
            !csv.as_ref().is_some_and(|csv| csv.has(&self.here(case), case.architecture))
        };
        let (left, done): (Vec<_>, Vec<_>) = cases.iter().partition(is_left);
        let mut kept: BTreeMap<usize, Kept> = BTreeMap::new();
        for case in done {
            let point = kept.entry(case.at).or_insert_with(|| (case.point.to_vec(), Vec::new()));
            point.1.push(case.architecture);
        }
        let kept_count = cases.len() - left.len();
        let runs = u64::from(self.runs);
        let bar = Progress::delayed(cases.len() as u64 * runs);
        bar.advance((cases.len() - left.len()) as u64 * runs);
        let study = |index: usize| {
            let case = left[index];
            bar.set_part(study_name(case.point, case.architecture));
            let plan = self.plan(case.spec);
            Ok(case.spec.simulate(case.architecture, &plan, &|_| bar.advance(1))?)
        };
        let found = Summary { kept, kept_count, ..Summary::default() };
        let mut results =
            Results { sim: self, bar: &bar, csv, found, outcomes: Vec::new(), result: Ok(()) };
        let take = |index: usize, report: Result<Report, CliError>| {
            let is_last = left.get(index + 1).is_none_or(|next| next.at != left[index].at);
            results.take(left[index], report, is_last)
        };
        sweep::in_order(left.len(), sweep::workers(self.threads(), self.runs), study, take);
        bar.end();
        let Results { csv, found, result, .. } = results;
        result?;
        csv.as_mut().map_or(Ok(()), Csv::sync).map_err(CliError::Failed)?;
        Ok(found)
    }

    /// Returns the key of a case's numbers in a table.
    fn here<'a>(&'a self, case: &Case<'a>) -> StudyKey<'a> {
        let (seed, runs) = (self.seed, self.runs);
        StudyKey { spec: &self.spec, point: case.point, seed, runs, inputs: case.inputs }
    }

    fn threads(&self) -> usize {
        let cores = thread::available_parallelism().map_or(1, |threads| threads.get().min(1_024));
        self.threads.unwrap_or(cores)
    }

    fn plan(&self, spec: &System) -> Plan {
        let more = if self.precision.is_some() { RUNS_MORE } else { 1 };
        Plan {
            seed: self.seed,
            extent: spec.extent(),
            replications_min: self.runs,
            replications_max: self.runs.saturating_mul(more),
            precision: self.precision,
            threads: self.threads(),
            ..Plan::default()
        }
    }

    /// Writes the page and prints the totals. The rates depend on this machine and moment, so they appear
    /// only in the output for programs and on stderr.
    fn finish(&self, entries: &Entries, found: Summary, wall: Duration) -> Result<(), CliError> {
        if let Some(path) = &self.report {
            let title = format!("rebate sim: {}", entries.name);
            let how = format!(
                "{} Seed {}, {} replications or more.",
                entries.about, self.seed, self.runs
            );
            let page = page::report(&title, &how, &found.rows, found.kept_count).html();
            write_file("--report", path, page)?;
        }
        let wall_s = wall.as_secs_f64().max(1e-9);
        let totals = &found.totals;
        let (events, requests) = (totals.events as f64 / wall_s, totals.requests as f64 / wall_s);
        if self.json {
            let kept: Vec<_> = found.kept.values().map(show::kept_json).collect();
            let all = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "spec": entries.name,
                "about": entries.about,
                "seed": self.seed,
                "precision": self.precision,
                "results": found.shown,
                "kept": kept,
                "events_per_second": events,
                "requests_per_second": requests,
            });
            print_line(&format!("{all:#}"));
            return Ok(());
        }
        if !found.kept.is_empty() {
            let (points, path) = (found.kept.len(), self.csv.as_deref().unwrap_or(Path::new("")));
            let path = path.display();
            print_line(&format!("Points that were in {path} already, not shown: {points}."));
        }
        if std::io::stderr().is_terminal() {
            eprintln!("{:.1} s, {:.0} simulated requests/s", wall_s, requests);
        }
        Ok(())
    }
}

/// Formats a plan's error with the flag or key that caused it.
fn flagged(bad: &BadPlan) -> String {
    let flags = [
        ("replications_min", "--runs"),
        ("precision", "--precision"),
        ("threads", "--threads"),
        ("requests", "run.requests (with so many --runs)"),
        ("window_ps", "run.window_us (in ps)"),
    ];
    let flag = flags.into_iter().find(|(key, _)| *key == bad.key).map_or(bad.key, |(_, flag)| flag);
    BadPlan { key: flag, ..bad.clone() }.to_string()
}

/// A point, and the architectures whose results at this point a table already has.
type Kept = (Vec<Assignment>, Vec<&'static str>);

/// The output that is printed at the end.
#[derive(Debug, Default)]
struct Summary {
    shown: Vec<serde_json::Value>,
    rows: Vec<page::Row>,
    /// The points whose studies are all in a table already, so that their results are not shown.
    kept: BTreeMap<usize, Kept>,
    /// The number of studies that a table already had.
    kept_count: usize,
    totals: Totals,
}

/// One study of a sweep: a point and an architecture.
struct Case<'a> {
    /// The index of the point in the sweep.
    at: usize,
    point: &'a [Assignment],
    spec: &'a System,
    inputs: u64,
    architecture: &'static str,
}

/// Lists all architectures at the first point, then at the second, and so on.
fn cases<'a>(
    points: &'a [Vec<Assignment>],
    specs: &'a [(System, u64)],
    architectures: &[&'static str],
) -> Vec<Case<'a>> {
    let cases_at =
        |(at, (point, (spec, inputs))): (usize, (&'a Vec<Assignment>, &'a (System, u64)))| {
            let case = move |architecture: &&'static str| Case {
                at,
                point,
                spec,
                inputs: *inputs,
                architecture,
            };
            architectures.iter().map(case).collect::<Vec<_>>()
        };
    points.iter().zip(specs).enumerate().flat_map(cases_at).collect()
}

/// Collects the results of the studies.
struct Results<'a> {
    sim: &'a Sim,
    bar: &'a Progress,
    csv: &'a mut Option<Csv>,
    found: Summary,
    /// The outcomes of the point in progress.
    outcomes: Vec<Outcome>,
    result: Result<(), CliError>,
}

impl Results<'_> {
    /// Adds the next study's report. After the last study of a point it shows the point.
    fn take(
        &mut self,
        case: &Case<'_>,
        report: Result<Report, CliError>,
        is_last: bool,
    ) -> ControlFlow<()> {
        if let Err(problem) = report.and_then(|report| self.add(case, report)) {
            self.result = Err(problem);
            return ControlFlow::Break(());
        }
        if is_last {
            let outcomes = std::mem::take(&mut self.outcomes);
            let kept = self.found.kept.remove(&case.at).map_or(Vec::new(), |(_, kept)| kept);
            if self.sim.json {
                self.found.shown.push(show::json(case.point, &outcomes, &kept));
            } else {
                let mut lines = show::lines(case.spec, case.point, &outcomes, self.sim.precision);
                lines.extend(show::kept(&kept));
                self.bar.suspend(|| lines.iter().for_each(|line| print_line(line)));
            }
        }
        ControlFlow::Continue(())
    }

    fn add(&mut self, case: &Case<'_>, report: Report) -> Result<(), CliError> {
        // A study may take more replications than planned.
        self.bar.expect_more(u64::from(report.replications.saturating_sub(self.sim.runs)));
        self.found.totals.add(&report);
        let outcome = Outcome { architecture: case.architecture, report };
        if let Some(csv) = self.csv {
            csv.write(&self.sim.here(case), &outcome).map_err(CliError::Failed)?;
        }
        if self.sim.report.is_some() {
            self.found.rows.push(page::Row::new(case.point, &outcome));
        }
        self.outcomes.push(outcome);
        Ok(())
    }
}

/// The key of a study's numbers in a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StudyKey<'a> {
    pub(crate) spec: &'a str,
    pub(crate) point: &'a [Assignment],
    pub(crate) seed: u64,
    pub(crate) runs: u32,
    /// A hash of the other inputs: the value of every key of the specification, its recording, the precision, and this
    /// build. It is 0 if no table is written.
    pub(crate) inputs: u64,
}

#[derive(Debug, Default)]
struct Totals {
    events: u64,
    requests: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.events += report.events;
        let count = |response: &Response| response.requests + response.warm_up;
        self.requests += report.responses.iter().map(count).sum::<u64>();
    }
}

/// Returns the entries of a specification with these keys set. The specification is built in or a file.
///
/// # Errors
/// The problem and its place in the specification.
pub(crate) fn entries(spec: &str, set: &[Assignment]) -> Result<Entries, CliError> {
    sim::read_entries(spec, set, &sim::file_text).map_err(CliError::Usage)
}

fn study_name(point: &[Assignment], architecture: &str) -> String {
    let point: Vec<String> = point.iter().map(Assignment::to_string).collect();
    format!("{} {architecture}", point.join(" ")).trim().to_owned()
}

/// The greatest number of replications for a requested precision, as a multiple of `--runs`.
const RUNS_MORE: u32 = 20;

const EXAMPLES: &str = "Examples:
  rebate sim --spec steady
  rebate sim --spec window --architecture all --runs 20
  rebate sim --spec steady --sweep load.total_per_s=5000,10000,15000 --csv loads.csv
  rebate sim --spec steady --architecture accelflow --sweep hardware.pes=2,4,8,16 --json
  rebate sim --spec steady --set load.process=bursty --set hardware.chiplets=4
  rebate sim --spec steady --set load.process=recorded --set load.recording=times.txt
  rebate sim --spec steady --sweep load.total_per_s=5000,10000,15000 --report loads.html
  rebate sim --spec arcalis --sweep run.workload=memc_low,memc_high
  rebate sim --spec arcalis --architecture near-cache --sweep attachment.near_cache_ns=5,400,700
  rebate sim --spec relief --sweep run.application=canny,deblur,gru,harris,lstm
  rebate sim --spec steady --sources

Exit codes: 0 done, 1 the simulation failed, 2 bad usage or specification.";
