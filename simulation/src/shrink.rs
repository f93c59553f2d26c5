//! Finds fewer faults with which a run still fails.

use crate::run::Outcome;
use crate::scenario::Scenario;

/// Takes out one fault after the other for as long as the run fails. Returns the indexes of the faults that are left,
/// and the outcome with them.
pub fn shrink(
    scenario: &Scenario,
    failed: Outcome,
    mut run: impl FnMut(&Scenario) -> Outcome,
) -> (Vec<usize>, Outcome) {
    let mut kept: Vec<usize> = (0..scenario.faults.len()).collect();
    let mut outcome = failed;
    let mut place = 0;
    while place < kept.len() {
        let mut fewer = kept.clone();
        fewer.remove(place);
        let mut tried = scenario.clone();
        tried.keep_faults(&fewer);
        let result = run(&tried);
        if result.problems.is_empty() {
            place += 1;
        } else {
            kept = fewer;
            outcome = result;
        }
    }
    (kept, outcome)
}
