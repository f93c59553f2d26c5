//! The number and the length of the slices. The module has values only.

use units::Nanos;

use crate::accelerometer::Options;
use crate::base::Problem;

/// The number and the length of the slices of an A/B run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The number of rounds. Each round has interleaved slices of both sides.
    pub(super) rounds: usize,
    /// The approximate length of a slice.
    pub(super) slice: Nanos,
}

impl Plan {
    /// Makes a plan from the options.
    ///
    /// # Errors
    /// An option is out of range; the text names it.
    pub(super) fn new(options: &Options) -> Result<Self, Problem> {
        let (rounds, slice) = if options.measurement.quick { QUICK } else { WHOLE };
        let plan = Self {
            rounds: options.measurement.runs.unwrap_or(rounds),
            slice: options.measurement.duration.unwrap_or(slice),
        };
        plan.check().map_err(Problem::Usage)?;
        Ok(plan)
    }

    fn check(self) -> Result<(), String> {
        if !(1..=200).contains(&self.rounds) {
            return Err(format!("--runs is {}; valid is 1 to 200", self.rounds));
        }
        if !(Nanos::millis(1)..=Nanos::secs(5)).contains(&self.slice) {
            return Err(format!("--duration is {} ns; valid is 1ms to 5s", self.slice.0));
        }
        Ok(())
    }
}

/// The rounds and the slice length of a quick run. Six rounds are enough for an interval.
const QUICK: (usize, Nanos) = (6, Nanos::millis(10));
const WHOLE: (usize, Nanos) = (31, Nanos::millis(150));
