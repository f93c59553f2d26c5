//! A list of the manager's for each accelerator, first in, first out.

use std::collections::VecDeque;

use super::{Discipline, Done, begin_held, release_held};
use crate::accelflow::ids::{ByKind, Kind, TokenId, Unit};
use crate::accelflow::program::OpStep;
use crate::accelflow::run::{Run, Schedule};
use crate::accelflow::station::Waiting;

/// The lists.
#[derive(Debug, Default)]
pub(in crate::accelflow) struct PerType(ByKind<VecDeque<Waiting>>);

impl Discipline for PerType {
    type Event = Done;

    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        entry: Waiting,
        _: bool,
        agenda: &mut Schedule<Self>,
    ) {
        run.counts.ops[op.kind] += 1;
        run.discipline.0[op.kind].push_back(entry);
        begin_first(run, op.kind, agenda);
    }

    fn handle(
        run: &mut Run<'_, Self>,
        _: Done,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    ) {
        if release_held(run, unit, token, agenda) {
            begin_first(run, unit.kind, agenda);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.iter().all(VecDeque::is_empty)
    }
}

/// An op came or a PE is free, so at most one op begins.
fn begin_first(run: &mut Run<'_, PerType>, kind: Kind, agenda: &mut Schedule<PerType>) {
    if run.discipline.0[kind].is_empty() {
        return;
    }
    if let Some(pe) = run.stations[kind].take()
        && let Some(entry) = run.discipline.0[kind].pop_front()
    {
        begin_held(run, Unit { kind, pe }, entry, agenda);
    }
}
