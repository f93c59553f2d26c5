//! How often and how long. Values only.

use units::Nanos;

use crate::accelerometer::Options;
use crate::base::Problem;

/// The slices of an A/B run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Of each side, interleaved.
    pub(super) rounds: usize,
    /// How long one is, about.
    pub(super) slice: Nanos,
}

impl Plan {
    /// As the options say.
    ///
    /// # Errors
    /// The option that is out of range.
    pub(super) fn new(options: &Options) -> Result<Self, Problem> {
        let (rounds, slice) = if options.quick { QUICK } else { WHOLE };
        let plan = Self {
            rounds: options.runs.unwrap_or(rounds),
            slice: options.duration.unwrap_or(slice),
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

/// Six values have an interval.
const QUICK: (usize, Nanos) = (6, Nanos::millis(10));
const WHOLE: (usize, Nanos) = (31, Nanos::millis(150));
