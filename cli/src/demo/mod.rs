//! `rebate demo`: compares Rebate with memcached on records, then compression off and on with the same memory and load,
//! then monolith and microservices, in software and with a virtual accelerator. It runs on this machine and needs no
//! setup. It starts the servers as separate processes, so that the system reports the cost of each.

mod memory;
mod page;
mod records;
mod services;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use load::{LoadSpec, Pace, Phase};
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, Preset, Sizes, Weighting};

use crate::terminal::{
    CliError, byte_count, check_writable, print_json, print_line, stop_on_signal, write_file,
};
use experiments::compression::{Comparison, Sample, Side, Variant, item_overhead_bytes};
use experiments::records::RecordComparison;
use experiments::testbed::Backing;
use harness::{Progress, memcached_is_here};
use serde::Serialize;
use services::Services;

const EXAMPLES: &str = "Examples:
  rebate demo
  rebate demo --preset cachelib-kvcache-reg,twitter-c53 --memory 128MiB --duration 20s
  rebate demo --runs 5 --json > demo.json
  rebate demo --store embedded --report /tmp/demo.html
  rebate demo --part records --json

If memcached is on the PATH, it stores the items behind `rebate serve`. Otherwise Rebate's embedded store does. \
Presets are published workloads; the folder specs/workloads has all of them.";

/// The flags of `rebate demo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Parts of the demo.
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',',
          default_values_t = [Part::Records, Part::Presets, Part::Services])]
    part: Vec<Part>,
    /// Memory of each cache in the part `records` (1MiB to 64GiB).
    #[arg(long, default_value = "32MiB", value_name = "SIZE", value_parser = byte_count)]
    records_memory: ByteCount,
    /// Workloads of the comparison: names of presets, or files.
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',',
          default_values_t = [String::from("cachelib-cdn"), String::from("twitter-c12")])]
    preset: Vec<String>,
    /// Memory of the cache, the same with compression off and on.
    #[arg(long, default_value = "64MiB", value_parser = byte_count)]
    memory: ByteCount,
    /// Size of all values together, as a multiple of --memory.
    #[arg(long, default_value_t = 8.0, value_name = "FACTOR")]
    working_set: f64,
    /// Duration of each measurement.
    #[arg(long, default_value = "6s")]
    duration: Nanos,
    /// Duration of the load before each measurement.
    #[arg(long, default_value = "3s")]
    warmup: Nanos,
    /// Requests per second. The default moves about 60 MB/s of values, with 500 to 10000 requests per second.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Number of measurements with compression off and on, in turn (1 to 100). The table shows medians.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Store of the items.
    #[arg(long, value_enum, default_value_t = Hold::Auto)]
    store: Hold,
    /// File for the page with the figures.
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

/// The results of all measurements.
#[derive(Default, Serialize)]
struct Results {
    records: Option<RecordComparison>,
    memory: Vec<Comparison>,
    services: Option<Services>,
}

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Rebate and memcached in the same memory, with small values.
    Records,
    /// Compression off and on in the same memory, with published workloads.
    Presets,
    /// Monolith and microservices, in software and with a virtual accelerator.
    Services,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hold {
    /// memcached if it is on the PATH, otherwise embedded.
    Auto,
    /// Separate memcached processes with compression off and on.
    Memcached,
    /// Rebate's embedded store.
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
        let valid = ByteCount::mib(1)..=ByteCount::mib(64 << 10);
        if !valid.contains(&self.records_memory) {
            let text =
                format!("--records-memory is {}; valid is 1MiB to 64GiB", self.records_memory);
            return Err(CliError::Usage(text));
        }
        check_writable("--report", &self.report)?;
        let backing = match self.store {
            Hold::Embedded => Backing::Embedded,
            Hold::Memcached => Backing::Memcached,
            Hold::Auto if memcached_is_here() => Backing::Memcached,
            Hold::Auto => Backing::Embedded,
        };
        let specs: Vec<LoadSpec> =
            self.preset.iter().map(|name| self.spec(name)).collect::<Result<_, _>>()?;
        let stop = stop_on_signal()?;
        let bar = DemoProgress::new(self.steps(specs.len()));
        let mut results = Results::default();
        if self.has(Part::Records) {
            let step = |name: &str, step: usize, fraction| bar.show_records(name, step, fraction);
            let records = RecordComparison::measure(self.records_memory, step, &stop);
            results.records = Some(records.map_err(CliError::Failed)?);
        }
        if self.has(Part::Presets) && !stop.load(Ordering::Relaxed) {
            if !self.json {
                bar.0.suspend(|| print_line(backing_sentence(backing)));
            }
            results.memory = self.compare_presets(&specs, backing, &bar, &stop)?;
        }
        if self.has(Part::Services) && !stop.load(Ordering::Relaxed) {
            let step = |what: &str| bar.step(what);
            results.services = Services::measure(backing, step, &stop).map_err(CliError::Failed)?;
        }
        bar.0.end();
        if stop.load(Ordering::Relaxed) {
            eprintln!("rebate: stopped; finished comparisons follow");
        }
        Ok(results)
    }

    /// Measures compression off and on with each preset. Once `stop` is set, the result has the finished comparisons.
    fn compare_presets(
        &self,
        specs: &[LoadSpec],
        backing: Backing,
        bar: &DemoProgress,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Comparison>, CliError> {
        let mut comparisons = Vec::new();
        for spec in specs {
            let mut comparison = Comparison::new(spec, backing, self.memory);
            for run in 0..self.runs * 2 {
                // Off and on alternate, so that drift of the machine affects both.
                let side = if run % 2 == 0 { Side::Off } else { Side::On };
                bar.begin(comparison.preset(), side);
                let sample = self.measure(spec, side, backing, bar, stop);
                if stop.load(Ordering::Relaxed) {
                    // Ctrl-C also reaches the servers, so the numbers of this side mean nothing.
                    return Ok(comparisons);
                }
                comparison.add(side, sample?);
            }
            comparisons.push(comparison);
        }
        Ok(comparisons)
    }

    fn has(&self, part: Part) -> bool {
        self.part.contains(&part)
    }

    /// Returns the length of the progress bar.
    fn steps(&self, presets: usize) -> u64 {
        let part = |part, steps| if self.has(part) { steps } else { 0 };
        part(Part::Records, RecordComparison::steps() as u64 * STEP_STEPS)
            + part(Part::Presets, (presets * self.runs * 2) as u64 * SIDE_STEPS)
            + part(Part::Services, Services::STEPS as u64 * STEP_STEPS)
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
        let Results { records, memory, services } = results;
        let html = page::report(records.as_ref(), memory, services.as_ref()).html();
        write_file("--report", &self.report, html)?;
        if self.json {
            print_json(results)?;
        } else {
            records.iter().for_each(|records| print_line(&records::table(records)));
            memory.iter().for_each(|comparison| print_line(&memory::table(comparison)));
            services.iter().for_each(|services| print_line(&services.table()));
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

/// A progress bar over the whole demo: every kind of records on every cache, all runs of every preset with compression
/// off and on, and the comparison of services. It appears on stderr and only on a terminal.
struct DemoProgress(Progress);

impl DemoProgress {
    fn new(steps: u64) -> Self {
        Self(Progress::new(steps))
    }

    /// Shows how much of a step of the comparison of records is done.
    fn show_records(&self, name: &str, step: usize, fraction: f64) {
        self.0.set_part(name.to_owned());
        self.0.set_position(((step as f64 + fraction) * STEP_STEPS as f64) as u64);
    }

    /// Shows that a step of the last part, the comparison of services, begins.
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

/// The progress of a step of the comparison of records or services, which takes about a quarter of the time of a side.
const STEP_STEPS: u64 = 250;
