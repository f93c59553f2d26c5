//! The manager has a list for each accelerator, first in, first out.

use std::collections::VecDeque;

use super::{Discipline, Done, begin_held, release_held};
use crate::accelflow::ids::{ByKind, TokenId, Unit};
use crate::accelflow::program::OpStep;
use crate::accelflow::run::{Run, Schedule};
use crate::accelflow::station::Waiting;

/// The manager's list for each accelerator.
#[derive(Debug, Default)]
pub(in crate::accelflow) struct PerType(ByKind<VecDeque<Waiting>>);

impl Discipline for PerType {
    type Event = Done;

    #[inline(always)]
    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        entry: Waiting,
        _: bool,
        agenda: &mut Schedule<Self>,
    ) {
        run.counts.ops[op.kind] += 1;
        match run.stations[op.kind].take() {
            Some(pe) => begin_held(run, Unit { kind: op.kind, pe }, entry, agenda),
            None => run.discipline.0[op.kind].push_back(entry),
        }
    }

    #[inline(always)]
    fn handle(
        run: &mut Run<'_, Self>,
        _: Done,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    ) {
        if release_held(run, unit, token, agenda)
            && let Some(entry) = run.discipline.0[unit.kind].pop_front()
            && let Some(pe) = run.stations[unit.kind].take()
        {
            begin_held(run, Unit { pe, ..unit }, entry, agenda);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }
}
