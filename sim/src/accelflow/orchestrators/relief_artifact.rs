//! RELIEF as its public code has it (`benchmarks/scheduler/sw/runtime.c` of Sacusa/gem5-SALAM at 0f057711, the commit
//! that AccelFlow cites). It differs from RELIEF as AccelFlow describes it (`relief.rs`): the manager keeps a list of
//! ready ops for each accelerator, least laxity first; an op that could take its producer's output from its scratchpad
//! may go ahead; and DMA interrupts the manager as well. A PE is held while it loads, computes and writes back, and
//! until the manager has seen to each.
//!
//! The code does two things that this model does not: an output that is written back may still be taken from the
//! scratchpad as long as nothing is written over it (with eight PEs and other work waiting it mostly is); and arguments
//! come one by one (an op here has one).

use super::{Orchestrator, Queues, relief};
use crate::accelflow::program::{Continuation, Step};
use crate::accelflow::run::{Event, Run};
use crate::accelflow::station::Waiting;
use crate::accelflow::topology::CORES;
use crate::laxity::Due;
use crate::{Agenda, Picos};

pub(super) const ORCHESTRATOR: Orchestrator =
    Orchestrator { queues: Queues::Laxity, after: relief::after };

/// A ready op.
#[derive(Clone, Copy, Debug)]
pub(in crate::accelflow) struct Listed {
    token: u32,
    /// The time at which its payload is where it is taken from.
    ready: Picos,
    /// The accelerator from whose scratchpad that is; none for memory.
    from: Option<u8>,
}

impl Run<'_> {
    /// An op's payload comes from elsewhere: from memory.
    pub(in crate::accelflow) fn list(
        &mut self,
        token: u32,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) {
        let (kind, due) = self.due(token);
        let listed = Listed { token, ready, from: None };
        self.ready[usize::from(kind)].insert(listed, due, agenda.now(), false);
        self.launch(kind, agenda);
    }

    /// The accelerator of the op that the token is at, when it is due and what it is expected to take.
    fn due(&self, token: u32) -> (u8, Due) {
        let (op, state) = (self.op(token), self.tokens[token as usize]);
        (op.kind, Due { at: state.born + op.due, runtime: op.pe })
    }

    /// Lets free PEs begin with what is first.
    fn launch(&mut self, kind: u8, agenda: &mut Agenda<Event>) {
        let index = usize::from(kind);
        while !self.ready[index].is_empty()
            && let Some(pe) = self.stations[index].take()
        {
            let Some(listed) = self.ready[index].pop() else { return };
            let at = self.tokens[listed.token as usize].at;
            let bytes = self.drawn(listed.token, at, kind).bytes;
            let start = agenda.now().max(listed.ready);
            let landed = match listed.from {
                Some(place) => self.fabric.carry(usize::from(place), index, bytes, start),
                None => {
                    let there = self.fabric.read(bytes, agenda.now(), start);
                    self.fabric.carry(index, index, bytes, start).max(there)
                }
            };
            self.counts.moving += landed.since(start);
            agenda.at(landed, Event::Loaded { kind, pe, token: listed.token });
        }
    }

    /// An interrupt: when the manager has seen to it.
    fn interrupt(&mut self, time: Picos, now: Picos) -> Picos {
        self.manager_free = self.manager_free.max(now) + time;
        self.counts.manager_busy += time;
        self.counts.deciding += self.manager_free.since(now);
        self.manager_free
    }

    /// The payload is in the scratchpad: the manager starts the PE.
    pub(in crate::accelflow) fn loaded(
        &mut self,
        kind: u8,
        pe: u8,
        token: u32,
        agenda: &mut Agenda<Event>,
    ) {
        let start = self.interrupt(self.model.manager_dma, agenda.now());
        let point = self.drawn(token, self.tokens[token as usize].at, kind);
        let compute = point.scale(self.op(token).pe);
        let entry = Waiting { token, place: 0, ready: start };
        self.compute(kind, pe, entry, (start, start + compute), agenda);
    }

    /// The PE has computed: the manager is told, and the PE waits for it.
    pub(in crate::accelflow) fn computed(
        &mut self,
        kind: u8,
        pe: u8,
        token: u32,
        agenda: &mut Agenda<Event>,
    ) {
        let op = self.op(token);
        let handoff = op.after[usize::from(self.carries_large(token, op))];
        let seen = self.interrupt(handoff.time, agenda.now());
        agenda.at(seen, Event::Retired { kind, pe, token });
    }

    /// The manager looks at what follows: it takes the output at once, or the output is written back.
    pub(in crate::accelflow) fn retired(
        &mut self,
        kind: u8,
        pe: u8,
        token: u32,
        agenda: &mut Agenda<Event>,
    ) {
        let now = agenda.now();
        let op = self.op(token);
        let next = match (op.continuation, self.step_behind(token)) {
            (Continuation::On, Step::Op(next)) => next.kind,
            _ => {
                let clear = self.after_op(token, op, usize::from(kind), now, agenda);
                agenda.at(clear, Event::Written { kind, pe });
                return;
            }
        };
        self.tokens[token as usize].at += 1;
        let index = usize::from(next);
        let idle = self.stations[index].idle() + usize::from(next == kind);
        let due = self.due(token).1;
        let listed = Listed { token, ready: now, from: Some(kind) };
        let place = self.ready[index].insert(listed, due, now, idle > 0);
        self.counts.ops[index] += 1;
        if place.is_ahead || place.at < idle {
            self.counts.forwards += 1;
            self.stations[usize::from(kind)].give(pe);
            self.launch(kind, agenda);
        } else {
            let at = self.tokens[token as usize].at;
            let bytes = self.drawn(token, at, next).bytes;
            let landed = self.fabric.carry(usize::from(kind), CORES, bytes, now);
            self.counts.moving += landed.since(now);
            if let Some(listed) = self.ready[index].at_mut(place.at) {
                (listed.ready, listed.from) = (landed, None);
            }
            agenda.at(landed, Event::Written { kind, pe });
        }
        if next != kind {
            self.launch(next, agenda);
        }
    }

    /// The output is in memory: once the manager knows, the PE is free.
    pub(in crate::accelflow) fn written(&mut self, kind: u8, pe: u8, agenda: &mut Agenda<Event>) {
        let seen = self.interrupt(self.model.manager_dma, agenda.now());
        agenda.at(seen, Event::Free { kind, pe });
    }

    /// A PE is free.
    pub(in crate::accelflow) fn relaunch(&mut self, kind: u8, pe: u8, agenda: &mut Agenda<Event>) {
        self.stations[usize::from(kind)].give(pe);
        self.launch(kind, agenda);
    }
}
