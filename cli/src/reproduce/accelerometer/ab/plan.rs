//! How often and how long. Values only.

use units::Nanos;

use crate::reproduce::{Problem, Reproduce};

/// The slices of an A/B run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Of each side, interleaved.
    pub(super) rounds: usize,
    /// How long one is, about.
    pub(super) slice: Nanos,
}

impl Plan {
    /// As the flags say.
    ///
    /// # Errors
    /// The flag that is out of range or says nothing here.
    pub(super) fn new(flags: &Reproduce) -> Result<Self, Problem> {
        let given = [
            ("--rate", flags.rate.is_some()),
            ("--sizes", !flags.sizes.is_empty()),
            ("--gets", !flags.gets.is_empty()),
            ("--loads", !flags.loads.is_empty()),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(Problem::Usage(format!("{flag}: accelerometer has no such thing to vary")));
        }
        let (rounds, slice) = if flags.quick { QUICK } else { WHOLE };
        let plan =
            Self { rounds: flags.runs.unwrap_or(rounds), slice: flags.duration.unwrap_or(slice) };
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
