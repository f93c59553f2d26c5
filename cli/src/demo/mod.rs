//! `rebate demo`: compares compression off and on with the same memory and load, then monolith and microservices, in
//! software and with a virtual accelerator. It runs on this machine and needs no setup. It starts the servers as
//! separate processes, so that the system reports the cost of each. It measures and compares. It does not judge the
//! numbers and stores nothing.

mod comparison;
mod page;
mod services;
mod variant;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use load::{LoadSpec, Pace, Phase};
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, Preset, Sizes, Weighting};

use crate::terminal::{CliError, byte_count, print_json, print_line, stop_on_signal, write_file};
use comparison::{Comparison, Side};
use experiments::testbed::Backing;
use harness::{Progress, memcached_is_here};
use serde::Serialize;
use services::Services;
use variant::{Sample, Variant, item_overhead_bytes};

const EXAMPLES: &str = "Examples:
  rebate demo
  rebate demo --preset cachelib-kvcache-reg,twitter-c53 --memory 128MiB --duration 20s
  rebate demo --runs 5 --json > demo.json
  rebate demo --store embedded --report /tmp/demo.html

With memcached on the PATH its servers are real memcached behind `rebate serve`; otherwise rebate's embedded store. \
`rebate load --help` says what presets are; all of them: specs/workloads.";

/// The flags of `rebate demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// The workloads to compare under, by name or file.
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',',
          default_values_t = [String::from("cachelib-cdn"), String::from("twitter-c12")])]
    preset: Vec<String>,
    /// The cache's memory, the same for both sides.
    #[arg(long, default_value = "64MiB", value_parser = byte_count)]
    memory: ByteCount,
    /// How many times the memory all values together are.
    #[arg(long, default_value_t = 8.0, value_name = "FACTOR")]
    working_set: f64,
    /// How long each side is measured.
    #[arg(long, default_value = "6s")]
    duration: Nanos,
    /// How long each side is loaded before it is measured.
    #[arg(long, default_value = "3s")]
    warmup: Nanos,
    /// Requests per second; without it as many as move about 60 MB/s, at most 10000.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How often both sides are measured, in turn; the table has medians.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// What holds the items.
    #[arg(long, value_enum, default_value_t = Hold::Auto)]
    store: Hold,
    /// Where the page with the figures goes.
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
    /// The results for programs.
    #[arg(long)]
    json: bool,
}

/// The results of all measurements.
#[derive(Serialize)]
struct Results {
    memory: Vec<Comparison>,
    services: Option<Services>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hold {
    /// memcached if it is on the PATH, else embedded.
    Auto,
    /// A memcached process behind each side.
    Memcached,
    /// The store inside the process.
    Embedded,
}

impl Demo {
    /// Runs the comparison and shows it.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        self.show(&self.compare()?)
    }

    fn compare(&self) -> Result<Results, CliError> {
        if !(1..=100).contains(&self.runs) {
            return Err(CliError::Usage(format!("--runs is {}; valid is 1 to 100", self.runs)));
        }
        let backing = match self.store {
            Hold::Embedded => Backing::Embedded,
            Hold::Memcached => Backing::Memcached,
            Hold::Auto if memcached_is_here() => Backing::Memcached,
            Hold::Auto => Backing::Embedded,
        };
        let specs: Vec<LoadSpec> =
            self.preset.iter().map(|name| self.spec(name)).collect::<Result<_, _>>()?;
        let stop = stop_on_signal()?;
        let bar = DemoProgress::new(specs.len() * self.runs * 2, Services::STEPS);
        if !self.json {
            print_line(backing_sentence(backing));
        }
        let mut comparisons = Vec::new();
        for spec in &specs {
            let mut comparison = Comparison::new(spec, backing, self.memory);
            for run in 0..self.runs * 2 {
                // Off and on alternate, so that drift of the machine affects both.
                let side = if run % 2 == 0 { Side::Off } else { Side::On };
                bar.begin(comparison.preset(), side);
                let sample = self.measure(spec, side, backing, &bar, &stop);
                if stop.load(Ordering::Relaxed) {
                    // Ctrl-C also reaches the servers, so the numbers of this side mean nothing.
                    bar.0.end();
                    eprintln!("rebate: stopped; finished comparisons follow");
                    return Ok(Results { memory: comparisons, services: None });
                }
                comparison.add(side, sample?);
            }
            comparisons.push(comparison);
        }
        let step = |what: &str| bar.step(what);
        let services = Services::measure(backing, step, &stop).map_err(CliError::Failed)?;
        bar.0.end();
        if services.is_none() {
            eprintln!("rebate: stopped; finished comparisons follow");
        }
        Ok(Results { memory: comparisons, services })
    }

    fn measure(
        &self,
        spec: &LoadSpec,
        side: Side,
        backing: Backing,
        bar: &DemoProgress,
        stop: &Arc<AtomicBool>,
    ) -> Result<Sample, CliError> {
        let variant = Variant::start(side, backing, self.memory).map_err(CliError::Failed)?;
        let spec = LoadSpec { targets: vec![variant.address().clone()], ..spec.clone() };
        let mut before = None;
        let report = load::run(
            &spec,
            |progress| {
                bar.show(progress);
                if before.is_none() && progress.phase == Phase::Measure {
                    before = Some(variant.cpu_s());
                }
            },
            stop,
        );
        let report = report.map_err(|error| CliError::Failed(error.to_string()))?;
        if report.wrong.count > 0 {
            return Err(CliError::Failed(format!("{} values read were wrong", report.wrong.count)));
        }
        let cpu_s = variant.cpu_s() - before.unwrap_or(0.0);
        let stats = variant.stats().map_err(CliError::Failed)?;
        let key_bytes = Sizes::new(&spec.key_bytes, Weighting::Calls);
        let key_bytes = key_bytes.map_or(0.0, |sizes| sizes.mean_bytes());
        let overhead_bytes = item_overhead_bytes(backing) as f64 + key_bytes;
        Ok(Sample::new(&report, cpu_s, &stats, overhead_bytes))
    }

    fn spec(&self, name: &str) -> Result<LoadSpec, CliError> {
        let usage = |error: String| CliError::Usage(error);
        let preset = Preset::find(name).map_err(|error| usage(error.to_string()))?;
        let mut spec = LoadSpec::new(Vec::new());
        spec.apply(&preset);
        let sizes = Sizes::new(&spec.value_bytes, Weighting::Calls);
        let mean_bytes = sizes.map_err(|error| usage(error.to_string()))?.mean_bytes();
        let working_set = self.memory.0 as f64 * self.working_set;
        spec.keys = (working_set / mean_bytes).clamp(1_000.0, 20e6) as u64;
        let rate = self.rate.unwrap_or((BYTES_PER_S / mean_bytes).clamp(500.0, 10_000.0));
        spec.pace = Pace::Open { rate_per_s: rate, arrivals: ArrivalKind::Poisson };
        spec.duration = self.duration;
        spec.warmup = self.warmup;
        spec.set_on_miss = true;
        Ok(spec)
    }

    fn show(&self, results: &Results) -> Result<(), CliError> {
        let html = page::report(&results.memory, results.services.as_ref()).html();
        write_file("--report", &self.report, html)?;
        if self.json {
            print_json(results)?;
        } else {
            results.memory.iter().for_each(|comparison| print_line(&comparison.table()));
            results.services.iter().for_each(|services| print_line(&services.table()));
            print_line(&format!("wrote {}", self.report.display()));
        }
        Ok(())
    }
}

const fn backing_sentence(backing: Backing) -> &'static str {
    match backing {
        Backing::Memcached => "items are held by memcached processes (found on the PATH)",
        Backing::Embedded => "items are held by rebate's embedded store",
    }
}

/// A progress bar over all sides of all presets. It appears on stderr and only on a terminal.
struct DemoProgress(Progress);

impl DemoProgress {
    fn new(sides: usize, steps: usize) -> Self {
        Self(Progress::new((sides as u64 * SIDE_STEPS) + steps as u64 * STEP_STEPS))
    }

    /// Shows that one of the steps after the sides begins.
    fn step(&self, what: &str) {
        self.0.set_part(what.to_owned());
        self.0.set_message("");
        self.0.advance(STEP_STEPS);
    }

    fn begin(&self, preset: &str, side: Side) {
        self.0.set_part(format!("{preset} {}", side.name()));
    }

    fn show(&self, progress: &load::Progress) {
        let (start, message) = match progress.phase {
            Phase::Populate => (0.0, "filling"),
            Phase::WarmUp => (0.3, "warming up"),
            Phase::Measure => (0.5, "measuring"),
        };
        let share = if progress.phase == Phase::Measure { 0.5 } else { 0.25 };
        let side = self.0.position() / SIDE_STEPS;
        let within = ((start + share * progress.fraction) * SIDE_STEPS as f64) as u64;
        let end = progress.phase == Phase::Measure && progress.fraction >= 1.0;
        let position = if end { (side + 1) * SIDE_STEPS } else { side * SIDE_STEPS + within };
        self.0.set_position(position.max(self.0.position()));
        self.0.set_message(message);
    }
}

/// The bytes of values moved per second unless a rate is given. One core can move far more without compression.
const BYTES_PER_S: f64 = 60e6;

const SIDE_STEPS: u64 = 1_000;

/// The size of a step of the second part. It takes about a quarter of the time of a side.
const STEP_STEPS: u64 = 250;
