//! The manager has one list. The op at its head waits for a PE of its accelerator, and all ops behind it wait too.

use std::collections::VecDeque;

use super::{Discipline, Done, begin_held, release_held};
use crate::accelflow::ids::{Kind, TokenId, Unit};
use crate::accelflow::program::OpStep;
use crate::accelflow::run::{Run, Schedule};
use crate::accelflow::station::Waiting;

/// The manager's list.
#[derive(Debug, Default)]
pub(in crate::accelflow) struct Central(VecDeque<Listed>);

/// An op that waits for a PE of an accelerator.
#[derive(Clone, Copy, Debug)]
struct Listed {
    kind: Kind,
    entry: Waiting,
}

impl Discipline for Central {
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
        run.discipline.0.push_back(Listed { kind: op.kind, entry });
        drain(run, agenda);
    }

    #[inline(always)]
    fn handle(
        run: &mut Run<'_, Self>,
        _: Done,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    ) {
        if release_held(run, unit, token, agenda) {
            drain(run, agenda);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn drain(run: &mut Run<'_, Central>, agenda: &mut Schedule<Central>) {
    while let Some(Listed { kind, entry }) = run.discipline.0.front().copied() {
        let Some(pe) = run.stations[kind].take() else { return };
        run.discipline.0.pop_front();
        begin_held(run, Unit { kind, pe }, entry, agenda);
    }
}
