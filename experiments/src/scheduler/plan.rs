//! The measured cells, their number of runs and their duration.

use units::{ByteCount, Nanos};

use super::Options;
use crate::base::Problem;

/// The cells of `reproduce scheduler`.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) sizes: Vec<ByteCount>,
    /// The offered loads, as shares of the highest load that the best static policy answers at a size.
    pub(super) loads: Vec<f64>,
    pub(super) runs: usize,
    pub(super) warmup: Nanos,
    pub(super) duration: Nanos,
    /// The time for which a cell is loaded before its first run, so that the scheduler sees the new load.
    pub(super) settle: Nanos,
}

impl Plan {
    /// Makes a plan from the options. The default is the whole grid.
    ///
    /// # Errors
    /// An option is out of range.
    pub(super) fn new(options: &Options) -> Result<Self, Problem> {
        let base = if options.measurement.quick { Self::quick() } else { Self::whole() };
        let plan = Self {
            runs: options.measurement.runs.unwrap_or(base.runs),
            sizes: if options.sizes.is_empty() { base.sizes } else { options.sizes.clone() },
            duration: options.measurement.duration.unwrap_or(base.duration),
            ..base
        };
        plan.check().map_err(Problem::Usage)?;
        Ok(plan)
    }

    fn whole() -> Self {
        Self {
            sizes: SIZES.map(ByteCount).to_vec(),
            loads: vec![0.1, 0.3, 0.5, 0.7, 0.85],
            runs: 5,
            warmup: Nanos::millis(150),
            duration: Nanos::secs(1),
            settle: Nanos::secs(3),
        }
    }

    fn quick() -> Self {
        Self {
            sizes: [SIZES[0], SIZES[2]].map(ByteCount).to_vec(),
            loads: vec![0.1, 0.7],
            runs: 1,
            duration: Nanos::millis(500),
            settle: Nanos::secs(1),
            ..Self::whole()
        }
    }

    fn check(&self) -> Result<(), String> {
        let bad = |flag: &str, value: &dyn std::fmt::Display, valid: &str| {
            Err(format!("{flag} is {value}; valid is {valid}"))
        };
        let (lowest, highest) = (ByteCount(SIZES[0]), ByteCount::kib(256));
        if let Some(size) = self.sizes.iter().find(|size| !(lowest..=highest).contains(*size)) {
            return bad("--sizes", size, &format!("{} to 256KiB", SIZES[0]));
        }
        if !(1..=100).contains(&self.runs) {
            return bad("--runs", &self.runs, "1 to 100");
        }
        let (least, most) = (Nanos::millis(100), Nanos::secs(60));
        if !(least..=most).contains(&self.duration) {
            return bad("--duration", &format!("{} ns", self.duration.0), "100ms to 60s");
        }
        Ok(())
    }
}

/// The value sizes (bytes). They start at the smallest size that compression shrinks enough to be stored compressed.
/// Each size is four times the previous one.
const SIZES: [u64; 5] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
