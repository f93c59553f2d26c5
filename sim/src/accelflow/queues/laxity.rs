//! RELIEF as its public code has it (`benchmarks/scheduler/sw/runtime.c` of Sacusa/gem5-SALAM at 0f057711, the commit
//! that AccelFlow cites). It differs from RELIEF as AccelFlow describes it (`orchestrators/relief.rs`): the manager
//! keeps a list of ready ops for each accelerator, least laxity first; an op that could take its producer's output from
//! its scratchpad may go ahead; and DMA interrupts the manager as well. A PE is held while it loads, computes and
//! writes back, and until the manager has seen to each.
//!
//! The code does two things that this model does not: an output that is written back may still be taken from the
//! scratchpad as long as nothing is written over it (with eight PEs and other work waiting it mostly is); and arguments
//! come one by one (an op here has one).

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

/// The lists.
#[derive(Debug)]
pub(in crate::accelflow) struct Laxity(ByKind<Laxities<Listed>>);

/// A ready op.
#[derive(Clone, Copy, Debug)]
struct Listed {
    token: TokenId,
    /// The time at which its payload is where it is taken from.
    ready: Picos,
    /// The accelerator from whose scratchpad that is; none for memory.
    from: Option<Kind>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::accelflow) enum PeEvent {
    /// A payload that the manager had moved is in the scratchpad of a PE.
    Loaded,
    /// A PE is done.
    Done,
    /// The manager has seen that a PE is done.
    Retired,
    /// The output of a PE is in memory.
    Written,
    /// The manager has seen that the output is in memory.
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

    /// An op's payload comes from elsewhere: from memory.
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

    /// The manager is at least interrupted for what loads an op's payload.
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

/// Returns when the op that the token is at is due, and what it is expected to take.
fn due(run: &Run<'_, Laxity>, token: TokenId) -> Due {
    let op = run.op(token);
    Due { at: run.tokens[token].born + op.due, runtime: op.pe }
}

/// Lets free PEs begin with what is first.
fn launch(run: &mut Run<'_, Laxity>, kind: Kind, agenda: &mut Schedule<Laxity>) {
    while !run.discipline.0[kind].is_empty()
        && let Some(pe) = run.stations[kind].take()
    {
        let Some(listed) = run.discipline.0[kind].pop() else { return };
        let bytes = run.drawn(listed.token, run.tokens[listed.token].at, kind).bytes;
        let start = agenda.now().max(listed.ready);
        let payload = |site: Kind| Payload { site: site.into(), ready: start };
        let landed = match listed.from {
            Some(from) => run.fabric.carry(payload(from), kind.into(), bytes),
            None => {
                let there = run.fabric.read(bytes, agenda.now(), start);
                run.fabric.carry(payload(kind), kind.into(), bytes).max(there)
            }
        };
        run.counts.moving += landed.since(start);
        let (unit, token) = (Unit { kind, pe }, listed.token);
        agenda.at(landed, Event::Pe { event: PeEvent::Loaded, unit, token });
    }
}

/// Interrupts the manager now. Returns when it has seen to it.
#[inline(always)]
fn interrupt(run: &mut Run<'_, Laxity>, time: Picos, now: Picos) -> Picos {
    run.interrupt_manager(time, now, now)
}

/// The payload is in the scratchpad: the manager starts the PE.
#[inline(always)]
fn loaded(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    let start = interrupt(run, run.model.manager_dma, agenda.now());
    let point = run.drawn(token, run.tokens[token].at, unit.kind);
    let span = Span { start, end: start + point.scale(run.op(token).pe) };
    let end = run.occupy(unit, Waiting { token, turn: 0, ready: start }, span);
    agenda.at(end, Event::Pe { event: PeEvent::Done, unit, token });
}

/// The PE has computed: the manager is told, and the PE waits for it.
#[inline(always)]
fn computed(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    if run.ends_service(unit, token, agenda) {
        let time = run.handoff(token).time;
        let seen = interrupt(run, time, agenda.now());
        agenda.at(seen, Event::Pe { event: PeEvent::Retired, unit, token });
    }
}

/// The manager looks at what follows: it takes the output at once, or the output is written back.
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
        let landed = run.fabric.carry(payload, Site::CORES, bytes);
        run.counts.moving += landed.since(now);
        if let Some(listed) = run.discipline.0[next].at_mut(place.at) {
            (listed.ready, listed.from) = (landed, None);
        }
        agenda.at(landed, Event::Pe { event: PeEvent::Written, unit, token });
    }
    if next != kind {
        launch(run, next, agenda);
    }
}

/// The output is in memory: once the manager knows, the PE is free.
fn written(run: &mut Run<'_, Laxity>, unit: Unit, token: TokenId, agenda: &mut Schedule<Laxity>) {
    let seen = interrupt(run, run.model.manager_dma, agenda.now());
    agenda.at(seen, Event::Pe { event: PeEvent::Free, unit, token });
}
