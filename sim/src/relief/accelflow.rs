//! AccelFlow on RELIEF's applications. Each accelerator has its own input queue, first in, first out. Its
//! output dispatcher follows the graph, and DMA carries the output to the next tasks while the accelerator
//! continues with other work. If an entry holds a pointer, the accelerator that takes the entry loads the
//! data. Queues have no bound here, because an overflow area holds what does not fit. Cores cannot do tasks.

use super::graph::Input;
use super::run::{Doing, Event, Run, Work};
use super::spec::Hold;
use crate::{Agenda, Picos};

impl Run<'_> {
    /// Prepares the entry of a task whose producers are all done. The entry is ready when its content has arrived.
    pub(super) fn fetch(&mut self, work: Work, agenda: &mut Agenda<Event>) {
        let mut ready = self.state(work).ready.max(agenda.now());
        if self.model.spec.hold == Hold::Arguments {
            let bytes = self.in_memory(work);
            ready = ready.max(self.memory.carry(bytes, agenda.now()));
        }
        agenda.at(ready, Event::TransferDone { work });
    }

    /// Returns the bytes of those arguments of a task that are in memory and not produced by another task.
    fn in_memory(&self, work: Work) -> u64 {
        let of = |input: &Input| match input {
            Input::Memory(bytes) => u64::from(*bytes),
            Input::Task(_) => 0,
        };
        self.task(work).inputs.iter().map(of).sum()
    }

    pub(super) fn transfer_done(&mut self, work: Work, agenda: &mut Agenda<Event>) {
        let kind = self.task(work).accelerator;
        self.queues[usize::from(kind)].push_back(work);
        self.take(kind, agenda);
    }

    /// Lets free accelerators take the first entries of their queue.
    fn take(&mut self, kind: u8, agenda: &mut Agenda<Event>) {
        for unit in self.units_of(kind) {
            if self.units[unit].running.is_some() {
                continue;
            }
            let Some(work) = self.queues[usize::from(kind)].pop_front() else { return };
            let (now, task) = (agenda.now(), self.task(work));
            let all = self.model.spec.graph.in_bytes(task);
            let outside = self.in_memory(work);
            let costs = self.model.spec.moves;
            let beside =
                |bytes: u64| Picos((bytes as f64 * costs.scratchpad_ps_per_byte + 0.5) as u64);
            let loaded = match self.model.spec.hold {
                Hold::Pointer => self.memory.carry(all, now),
                Hold::Payload => self.memory.carry(outside, now) + beside(all - outside),
                Hold::Arguments => now + beside(all),
            };
            let end = loaded + task.compute;
            self.counts.busy[usize::from(kind)] += end.since(now);
            let state = &mut self.units[unit];
            (state.running, state.doing) = (Some(work), Doing::Computes);
            agenda.at(end, Event::Done { unit: unit as u16 });
        }
    }

    /// Handles the end of a task: the dispatcher passes the output on, and the accelerator takes the next entry.
    pub(super) fn finish_task(&mut self, unit: u16, agenda: &mut Agenda<Event>) {
        let Some(work) = self.units[usize::from(unit)].running.take() else { return };
        self.counts.tasks += 1;
        let (spec, task) = (&self.model.spec, self.task(work));
        let start = agenda.now() + spec.dispatcher;
        let bytes = u64::from(task.out_bytes);
        let direct = spec.hold != Hold::Pointer && !task.children.is_empty();
        let arrived = if direct {
            self.counts.forwards += 1;
            start + Picos((bytes as f64 * spec.moves.direct_ps_per_byte + 0.5) as u64)
        } else {
            self.counts.writes += 1;
            self.memory.carry(bytes, start)
        };
        for child in &task.children {
            let child = Work { task: *child, ..work };
            let state = self.state(child);
            state.ready = state.ready.max(arrived);
            state.left -= 1;
            if state.left == 0 {
                self.fetch(child, agenda);
            }
        }
        if task.children.is_empty() {
            agenda.at(arrived, Event::Written { slot: work.slot });
        }
        self.take(task.accelerator, agenda);
    }
}
