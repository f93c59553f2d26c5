//! The accelerators have finite input queues. An op that finds no free entry goes to the overflow area. If the overflow
//! area is full too, the op falls back to a core. A PE takes entries whose data has arrived, in the dispatcher's order,
//! and leaves its output in an entry of the output queue.

use super::Discipline;
use crate::Picos;
use crate::accelflow::cores::{CoreJob, What};
use crate::accelflow::demand::Demand;
use crate::accelflow::ids::{TokenId, Unit};
use crate::accelflow::program::OpStep;
use crate::accelflow::run::{Event, Run, Schedule};
use crate::accelflow::spec::{self, Order, Spec};
use crate::accelflow::station::{Shape, Taken, Waiting};

/// The discipline has no lists, because the stations contain the queues.
#[derive(Debug, Default)]
pub(in crate::accelflow) struct Hardware;

#[derive(Clone, Copy, Debug)]
pub(in crate::accelflow) enum PeEvent {
    /// A PE is done.
    Done,
    /// A PE that waited for an output entry becomes free.
    Free,
}

impl Discipline for Hardware {
    type Event = PeEvent;

    fn shape(spec: &Spec) -> Shape {
        let hardware = &spec.hardware;
        Shape {
            pes: hardware.pes,
            entries: hardware.input_entries,
            overflow_max: hardware.overflow_entries,
            output_entries: hardware.output_entries,
            ranked: spec.dispatcher.discipline != Order::Fifo,
        }
    }

    #[inline(always)]
    fn enqueue(
        run: &mut Run<'_, Self>,
        op: &OpStep,
        mut entry: Waiting,
        by_core: bool,
        agenda: &mut Schedule<Self>,
    ) {
        run.counts.ops[op.kind] += 1;
        let (kind, rank) = (op.kind, rank(run, entry.token, op));
        let station = &mut run.stations[kind];
        entry.turn = station.allocate();
        match station.offer(entry, rank, !by_core) {
            Taken::Pe(pe) => begin(run, op, Unit { kind, pe }, entry, agenda),
            Taken::Instead(pe) => {
                displace(run, Unit { kind, pe });
                begin(run, op, Unit { kind, pe }, entry, agenda);
            }
            Taken::Waits => {}
            Taken::Overflows => run.counts.overflows += 1,
            Taken::Refused => fall_back(run, entry.token, op, by_core, agenda),
        }
    }

    #[inline(always)]
    fn handle(
        run: &mut Run<'_, Self>,
        event: PeEvent,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<Self>,
    ) {
        match event {
            PeEvent::Done => done(run, unit, token, agenda),
            PeEvent::Free => free(run, unit, agenda),
        }
    }

    /// Returns an error text if the manager is overloaded, or if the cores cannot do the ops that exceed the
    /// accelerators' capacity.
    fn overloaded(demand: &Demand, hardware: &spec::Hardware) -> Option<String> {
        let pes = f64::from(hardware.pes);
        let loads = demand.accelerators.iter().zip(demand.instead.iter());
        let fallen = loads.map(|(load, instead)| instead * f64::max(0.0, 1.0 - pes / load));
        demand.over_servers(fallen.sum(), hardware)
    }
}

/// Returns the rank of an op. PEs take the ready op with the smallest rank first.
#[inline(always)]
fn rank(run: &Run<'_, Hardware>, token: TokenId, op: &OpStep) -> u64 {
    let state = &run.tokens[token];
    match run.model.spec.dispatcher.discipline {
        Order::Fifo => 0,
        Order::Priority => u64::from(run.model.spec.services[usize::from(state.service)].priority),
        Order::Deadline => (state.born + op.due).0,
    }
}

/// Takes the PE away from an op that has not started, because another op's data arrives earlier. The displaced
/// op waits again.
#[inline(never)]
fn displace(run: &mut Run<'_, Hardware>, unit: Unit) {
    let entry = run.stations[unit.kind].displace(unit.pe);
    let rank = rank(run, entry.token, run.op(entry.token));
    run.stations[unit.kind].put_back(rank, entry);
}

/// Runs an op on a core because no queue has space for it.
fn fall_back(
    run: &mut Run<'_, Hardware>,
    token: TokenId,
    op: &OpStep,
    by_core: bool,
    agenda: &mut Schedule<Hardware>,
) {
    run.counts.fallbacks[op.kind] += 1;
    let factor = run.drawn(token, run.tokens[token].at, op.kind).factor();
    let tries = if by_core { run.model.spec.hardware.enqueue } else { Picos(0) };
    let time = Picos((op.cpu_ps * factor + 0.5) as u64) + tries;
    run.offer_core(CoreJob { token, what: What::Fallback, time }, agenda);
}

/// Lets a PE begin an entry as soon as the entry's data has arrived.
#[inline(never)]
fn begin(
    run: &mut Run<'_, Hardware>,
    op: &OpStep,
    unit: Unit,
    entry: Waiting,
    agenda: &mut Schedule<Hardware>,
) {
    let span = run.service(op, entry, agenda.now());
    let end = run.occupy(unit, entry, span);
    agenda.at(end, Event::Pe { event: PeEvent::Done, unit, token: entry.token });
}

/// Ends an op: its output goes to an entry, and a dispatcher, the manager or a core decides what follows.
#[inline(always)]
fn done(run: &mut Run<'_, Hardware>, unit: Unit, token: TokenId, agenda: &mut Schedule<Hardware>) {
    if !run.ends_service(unit, token, agenda) {
        // The op was displaced before its start and ends at another time.
        return;
    }
    let now = agenda.now();
    let deposit = run.stations[unit.kind].deposit(now);
    let handoff = run.handoff(token);
    let clear = run.decide_next(unit.kind, token, handoff, deposit, agenda);
    run.stations[unit.kind].cleared(clear);
    if deposit > now {
        agenda.at(deposit, Event::Pe { event: PeEvent::Free, unit, token });
    } else {
        free(run, unit, agenda);
    }
}

#[inline(always)]
fn free(run: &mut Run<'_, Hardware>, unit: Unit, agenda: &mut Schedule<Hardware>) {
    if let Some(next) = run.stations[unit.kind].release(unit.pe, agenda.now()) {
        begin(run, run.op(next.token), unit, next, agenda);
    }
}
