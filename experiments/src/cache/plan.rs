//! The measured points, their number of runs and their duration. The module has values only.

use harness::Machine;
use units::{ByteCount, Nanos};

use super::{Options, Part};
use crate::base::Problem;
use crate::testbed::{Configuration, StoreRoute};

/// The points of `reproduce cache`.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The configurations that are measured, in the order of [`Configuration::all`].
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) parts: Vec<Part>,
    pub(crate) sizes: Vec<ByteCount>,
    /// The shares of gets (percent).
    pub(crate) gets: Vec<u32>,
    /// The offered load of the size sweep (1/s).
    pub(crate) rate_per_s: f64,
    /// The offered loads of the load sweep (1/s).
    pub(crate) loads_per_s: Vec<f64>,
    pub(crate) runs: usize,
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
    /// The number of jobs in the measurement of each stage alone.
    pub(crate) stage_jobs: usize,
    /// The precision of the knee, as a share of the knee.
    pub(crate) knee_precision: f64,
}

impl Plan {
    /// Makes a plan from the options. The defaults are those of \[CacheTax\].
    ///
    /// # Errors
    /// An option is out of range; the text names it.
    pub(crate) fn new(options: &Options, machine: &Machine) -> Result<Self, Problem> {
        let plan = if options.measurement.quick { Self::quick() } else { Self::whole(machine) };
        let mut plan = Self {
            configurations: configurations(&options.configurations).map_err(Problem::Usage)?,
            parts: if options.parts.is_empty() { plan.parts } else { options.parts.clone() },
            sizes: if options.sizes.is_empty() { plan.sizes } else { options.sizes.clone() },
            gets: if options.gets.is_empty() { plan.gets } else { options.gets.clone() },
            loads_per_s: if options.loads.is_empty() {
                plan.loads_per_s
            } else {
                options.loads.clone()
            },
            rate_per_s: options.rate.unwrap_or(plan.rate_per_s),
            runs: options.measurement.runs.unwrap_or(plan.runs),
            duration: options.measurement.duration.unwrap_or(plan.duration),
            ..plan
        };
        plan.check().map_err(Problem::Usage)?;
        // The search for the highest load goes upwards from the first.
        plan.loads_per_s.sort_by(f64::total_cmp);
        Ok(plan)
    }

    /// Returns the sweeps of \[CacheTax\], extended to larger values. Figure 2 of the paper is at 64 KiB.
    fn whole(machine: &Machine) -> Self {
        let few_cores = machine.class.trim_end_matches('c').parse().unwrap_or(1) < PAPER_CORES_MIN;
        Self {
            configurations: Vec::new(),
            parts: Part::ALL.into(),
            sizes: (0..10).map(|log2| ByteCount::kib(1 << log2)).collect(),
            gets: vec![0, 50, 90, 100],
            rate_per_s: if few_cores { FEW_CORES_RATE_PER_S } else { PAPER_RATE_PER_S },
            loads_per_s: (1..=7).map(|thousands| f64::from(thousands) * 1e3).collect(),
            runs: 5,
            warmup: Nanos::millis(300),
            duration: Nanos::secs(1),
            stage_jobs: 500,
            knee_precision: 0.1,
        }
    }

    fn quick() -> Self {
        Self {
            configurations: Vec::new(),
            parts: Part::ALL.into(),
            sizes: vec![ByteCount::kib(4), ByteCount::kib(64)],
            gets: vec![90],
            rate_per_s: FEW_CORES_RATE_PER_S,
            loads_per_s: vec![500.0, 1_000.0],
            runs: 1,
            warmup: Nanos::millis(200),
            duration: Nanos::millis(500),
            stage_jobs: 100,
            knee_precision: 1.0,
        }
    }

    /// Returns whether the plan has a part.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Returns the configurations that reach the store by this route.
    pub(crate) fn by_route(&self, route: StoreRoute) -> impl Iterator<Item = Configuration> + '_ {
        self.configurations
            .iter()
            .copied()
            .filter(move |configuration| configuration.route == route)
    }

    /// Returns whether a configuration is measured.
    pub(crate) fn measures(&self, configuration: Configuration) -> bool {
        self.configurations.contains(&configuration)
    }

    /// Returns the mixes that the criteria use and this plan measures, as shares of gets (percent).
    pub(crate) fn criteria_gets(&self) -> impl Iterator<Item = u32> + '_ {
        CRITERIA_GETS.into_iter().filter(|gets| self.gets.contains(gets))
    }

    fn check(&self) -> Result<(), String> {
        let bad = |flag: &str, value: &dyn std::fmt::Display, valid: &str| {
            Err(format!("{flag} is {value}; valid is {valid}"))
        };
        let (lowest, highest) = (ByteCount::kib(1), ByteCount::kib(512));
        if let Some(size) = self.sizes.iter().find(|size| !(lowest..=highest).contains(*size)) {
            return bad("--sizes", size, "1KiB to 512KiB");
        }
        if let Some(share) = self.gets.iter().find(|share| **share > 100) {
            return bad("--gets", share, "0 to 100");
        }
        let loads = self.loads_per_s.iter().chain([&self.rate_per_s]);
        if let Some(load) = loads.into_iter().find(|load| !(1.0..=1e6).contains(*load)) {
            return bad("--rate or --loads", load, "1 to 1000000");
        }
        if !(1..=100).contains(&self.runs) {
            return bad("--runs", &self.runs, "1 to 100");
        }
        let (least, most) = (Nanos::millis(100), Nanos::secs(600));
        if !(least..=most).contains(&self.duration) {
            return bad("--duration", &format!("{} ns", self.duration.0), "100ms to 600s");
        }
        Ok(())
    }
}

/// Returns the configurations with these ids, or all if there are no ids.
fn configurations(ids: &[String]) -> Result<Vec<Configuration>, String> {
    let all: Vec<Configuration> =
        StoreRoute::ALL.into_iter().flat_map(Configuration::all).collect();
    if let Some(id) = ids.iter().find(|id| Configuration::named(id).is_none()) {
        let valid: Vec<String> = all.iter().map(|configuration| configuration.id()).collect();
        return Err(format!("--configurations is {id}; valid are {}", valid.join(", ")));
    }
    let is_asked_for =
        |configuration: &Configuration| ids.is_empty() || ids.contains(&configuration.id());
    Ok(all.into_iter().filter(is_asked_for).collect())
}

/// The offered load of \[CacheTax\] in the size sweep, its figure 1 (1/s).
pub(super) const PAPER_RATE_PER_S: f64 = 4_000.0;

/// The offered load with few cores (1/s). With fewer cores than services, the paper's load would show only queueing at
/// the larger sizes.
const FEW_CORES_RATE_PER_S: f64 = 500.0;
const PAPER_CORES_MIN: usize = 8;

/// The shares of gets that criteria use (percent).
const CRITERIA_GETS: [u32; 2] = [90, 50];
