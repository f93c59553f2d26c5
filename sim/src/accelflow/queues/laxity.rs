//! RELIEF as its public code implements it (`benchmarks/scheduler/sw/runtime.c` of Sacusa/gem5-SALAM at 0f057711, the
//! commit that AccelFlow cites). It differs from RELIEF as AccelFlow describes it (`orchestrators/relief.rs`) in three
//! points. The manager keeps a list of ready ops for each accelerator, ordered by laxity. An op that can take its
//! producer's output from the producer's scratchpad may go ahead of others. DMA interrupts the manager as well. A PE is
//! held while it loads, computes and writes back, and until the manager has handled each of these steps.
//!
//! This model leaves out two behaviours of the code. After an output is written back, the code can still take it from
//! the scratchpad until something overwrites it. With eight PEs and other work waiting it is mostly overwritten. The
//! code also loads arguments one by one, but an op here has only one argument.

use super::Discipline;
use crate::Picos;
use crate::accelflow::AccelFlow;
use crate::accelflow::demand::Demand;
use crate::accelflow::fabric::Payload;
use crate::accelflow::ids::{ByKind, Kind, Site, TokenId, Unit};
use crate::accelflow::program::{Continuation, OpStep, Step};
use crate::accelflow::run::{Event, Run, Schedule};
use crate::accelflow::station::{Span, Waiting};
use crate::laxity::{Due, Laxities};

/// The manager's list for each accelerator.
#[derive(Debug)]
pub(in crate::accelflow) struct Laxity(ByKind<Laxities<Listed>>);

/// A ready op.
#[derive(Clone, Copy, Debug)]
struct Listed {
    token: TokenId,
    /// The time from which the op's payload can be loaded.
    ready: Picos,
    /// The accelerator whose scratchpad has the payload. It is none if the payload is in memory.
    from: Option<Kind>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::accelflow) enum PeEvent {
    /// A payload that the manager moved is in the scratchpad of a PE.
    Loaded,
    /// A PE is done.
    Done,
    /// The manager has handled the end of an op on a PE.
    Retired,
    /// The output of a PE is in memory.
    Written,
    /// The manager has handled the arrival of the output in memory.
    Free,
}

impl Default for Laxity {
    fn default() -> Self {
        Self(ByKind::from_fn(|_| Laxities::new()))
    }
}

impl Discipline for Laxity {
    type Event = PeEvent;

    #[inline(always)]
    fn handle(
        run: &mut Run<'_, Self>,
        event: PeEvent,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    ) {
        match event {
            PeEvent::Loaded => loaded(run, unit, token, agenda),
            PeEvent::Done => computed(run, unit, token, agenda),
            PeEvent::Retired => retired(run, unit, token, agenda),
            PeEvent::Written => written(run, unit, token, agenda),
            PeEvent::Free => {
                run.stations[unit.kind].give(unit.pe);
                launch(run, unit.kind, agenda);
            }
        }
    }

    /// Adds an op to its accelerator's list. The op's payload is in memory, not in another PE's scratchpad.
    #[inline(always)]
    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        entry: Waiting,
        _: bool,
        agenda: &mut Schedule<Self>,
    ) {
        run.counts.ops[op.kind] += 1;
        let due = due(run, entry.token);
        let listed = Listed { token: entry.token, ready: entry.ready, from: None };
        run.discipline.0[op.kind].insert(listed, due, agenda.now(), false);
        launch(run, op.kind, agenda);
    }

    /// Adds the demand of a step. Every op interrupts the manager at least once, for the DMA that loads its payload.
    fn add_demand(model: &AccelFlow, step: &Step, per_ps: f64, demand: &mut Demand) {
        demand.add_accelerated(model, step, per_ps);
        if let Step::Op(_) = step {
            demand.manager += per_ps * model.manager_dma.0 as f64;
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.iter().all(Laxities::is_empty)
    }
}

/// Returns the deadline and the expected runtime of the op at the token's current step.
fn due(run: &Run<'_, Laxity>, token: TokenId) -> Due {
    let op = run.op(token);
    Due { at: run.tokens[token].born + op.due, runtime: op.pe }
}

/// Lets free PEs begin with the first ops of the list.
fn launch(run: &mut Run<'_, Laxity>, kind: Kind, agenda: &mut Schedule<Laxity>) {
    while !run.discipline.0[kind].is_empty()
        && let Some(pe) = run.stations[kind].take()
    {
        let Some(listed) = run.discipline.0[kind].pop() else { return };
        let bytes = run.drawn(listed.token, run.tokens[listed.token].at, kind).bytes;
        let start = agenda.now().max(listed.ready);
        let payload = |site: Kind| Payload { site: site.into(), ready: start };
        let arrived = match listed.from {
            Some(from) => run.fabric.carry(payload(from), kind.into(), bytes),
            None => {
                let there = run.fabric.read(bytes, agenda.now(), start);
                run.fabric.carry(payload(kind), kind.into(), bytes).max(there)
            }
        };
        run.counts.moving += arrived.since(start);
        let (unit, token) = (Unit { kind, pe }, listed.token);
        agenda.at(arrived, Event::Pe { event: PeEvent::Loaded, unit, token });
    }
}

/// Interrupts the manager now. Returns the time at which the manager has handled the interrupt.
#[inline(always)]
fn interrupt(run: &mut Run<'_, Laxity>, time: Picos, now: Picos) -> Picos {
    run.interrupt_manager(time, now, now)
}

/// Handles a payload that has reached the scratchpad: the manager starts the PE.
#[inline(always)]
fn loaded(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    let start = interrupt(run, run.model.manager_dma, agenda.now());
    let point = run.drawn(token, run.tokens[token].at, unit.kind);
    let span = Span { start, end: start + point.scale(run.op(token).pe) };
    let end = run.occupy(unit, Waiting { token, turn: 0, ready: start }, span);
    agenda.at(end, Event::Pe { event: PeEvent::Done, unit, token });
}

/// Handles the end of a computation. The manager is interrupted, and the PE is held until the manager has handled it.
#[inline(always)]
fn computed(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    if run.ends_service(unit, token, agenda) {
        let time = run.handoff(token).time;
        let seen = interrupt(run, time, agenda.now());
        agenda.at(seen, Event::Pe { event: PeEvent::Retired, unit, token });
    }
}

/// Lets the manager decide about the output: the next op takes it at once, or it is written back.
#[inline(always)]
fn retired(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    let now = agenda.now();
    let (op, kind) = (run.op(token), unit.kind);
    let payload = Payload { site: kind.into(), ready: now };
    let next = match (op.continuation, run.step_behind(token)) {
        (Continuation::Next, Step::Op(next)) => next.kind,
        _ => {
            let clear = run.after_op(token, op, payload, agenda);
            agenda.at(clear, Event::Pe { event: PeEvent::Written, unit, token });
            return;
        }
    };
    run.tokens[token].at += 1;
    let idle = run.stations[next].idle() + usize::from(next == kind);
    let due = due(run, token);
    let listed = Listed { token, ready: now, from: Some(kind) };
    let place = run.discipline.0[next].insert(listed, due, now, idle > 0);
    run.counts.ops[next] += 1;
    if place.is_ahead || place.at < idle {
        run.counts.forwards += 1;
        run.stations[kind].give(unit.pe);
        launch(run, kind, agenda);
    } else {
        let bytes = run.drawn(token, run.tokens[token].at, next).bytes;
        let arrived = run.fabric.carry(payload, Site::CORES, bytes);
        run.counts.moving += arrived.since(now);
        if let Some(listed) = run.discipline.0[next].at_mut(place.at) {
            (listed.ready, listed.from) = (arrived, None);
        }
        agenda.at(arrived, Event::Pe { event: PeEvent::Written, unit, token });
    }
    if next != kind {
        launch(run, next, agenda);
    }
}

/// Handles an output that has reached memory. The PE becomes free when the manager has handled it.
fn written(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    let seen = interrupt(run, run.model.manager_dma, agenda.now());
    agenda.at(seen, Event::Pe { event: PeEvent::Free, unit, token });
}
