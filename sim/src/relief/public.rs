//! RELIEF as its public code implements it (`benchmarks/scheduler/sw/runtime.c` of Sacusa/gem5-SALAM at 0f057711, read,
//! not copied). There is one manager, which is interrupted when an accelerator has loaded an argument, computed or
//! stored. Each kind of accelerator has a list ordered by laxity. A task may go ahead of others if it can take its
//! producer's output from the scratchpad where it was made, or work on it there. An output that all its consumers take
//! at once is not stored. An accelerator has one task from the load of its first argument to the end of its store.

use super::graph::Input;
use super::run::{Doing, Event, Run, Work};
use super::spec::{COLOCATES, CONVOLUTION};
use crate::laxity::{Due, Place};
use crate::{Agenda, Picos};

impl Run<'_> {
    /// Adds a ready task to the list of its accelerator.
    pub(super) fn list(&mut self, work: Work, ahead: bool, now: Picos) -> Place {
        let task = self.task(work);
        let due = Due { at: self.born(work) + task.due, runtime: task.runtime };
        self.lists[usize::from(task.accelerator)].insert(work, due, now, ahead)
    }

    /// Occupies the manager with an accelerator's interrupt, and schedules its end.
    pub(super) fn interrupt(&mut self, unit: u16, agenda: &mut Agenda<Event>) {
        let costs = self.model.spec.manager;
        let computed = self.units[usize::from(unit)].doing == Doing::Computes;
        let time = if computed { costs.completion } else { costs.dma };
        self.manager_free = self.manager_free.max(agenda.now()) + time;
        self.counts.manager_busy += time;
        agenda.at(self.manager_free, Event::Seen { unit });
    }

    pub(super) fn seen(&mut self, unit: u16, agenda: &mut Agenda<Event>) {
        let state = &self.units[usize::from(unit)];
        let (Some(work), doing) = (state.running, state.doing) else { return };
        match doing {
            Doing::Loads { argument, from } => {
                if let Some((unit, half)) = from {
                    self.units[usize::from(unit)].reads[usize::from(half)] -= 1;
                }
                self.load(unit, work, argument + 1, agenda);
            }
            Doing::Computes => self.retire(unit, work, agenda),
            Doing::Stores => self.stored(unit, work, agenda),
            Doing::Nothing => {}
        }
        self.launch(agenda);
    }

    /// Lets idle accelerators begin the first tasks of their lists.
    pub(super) fn launch(&mut self, agenda: &mut Agenda<Event>) {
        for kind in 0..self.lists.len() as u8 {
            let mut unit = self.units_of(kind).start;
            while unit < self.units_of(kind).end {
                let Some(work) = self.lists[usize::from(kind)].first().copied() else { break };
                if self.units[unit].running.is_none() && self.begins(unit as u16, work, agenda) {
                    self.lists[usize::from(kind)].pop();
                }
                unit += 1;
            }
        }
    }

    /// Starts a task on an accelerator. Returns false while the half of the scratchpad that the task would write to is
    /// being read.
    fn begins(&mut self, unit: u16, work: Work, agenda: &mut Agenda<Event>) -> bool {
        let beside = match self.location_of(work, 0) {
            Some((at, half)) if self.task(work).accelerator == CONVOLUTION && at == unit => half,
            _ => self.units[usize::from(unit)].half,
        };
        let half = beside ^ 1;
        if self.units[usize::from(unit)].reads[usize::from(half)] > 0 {
            return false;
        }
        let state = &mut self.units[usize::from(unit)];
        state.half = half;
        state.results[usize::from(half)] = Some(work);
        state.running = Some(work);
        self.state(work).started = true;
        self.counts.tasks += 1;
        self.load(unit, work, 0, agenda);
        true
    }

    /// Returns the accelerator and scratchpad half that still hold an argument, or none if it is in memory.
    fn location_of(&mut self, work: Work, argument: usize) -> Option<(u16, u8)> {
        let Some(Input::Task(task)) = self.task(work).inputs.get(argument).copied() else {
            return None;
        };
        let producer = Work { task, ..work };
        let (unit, half) = self.state(producer).made?;
        let holds = self.units[usize::from(unit)].results[usize::from(half)] == Some(producer);
        holds.then_some((unit, half))
    }

    /// Loads the arguments from `first` on, one after the other. After the last one the accelerator computes.
    fn load(&mut self, unit: u16, work: Work, first: u8, agenda: &mut Agenda<Event>) {
        let (task, now) = (self.task(work), agenda.now());
        for argument in first..task.inputs.len() as u8 {
            let input = task.inputs[usize::from(argument)];
            let bytes = self.model.spec.graph.bytes(input);
            let from = self.location_of(work, usize::from(argument));
            if from.is_some() {
                self.counts.forwards += 1;
            }
            let colocates = COLOCATES[usize::from(task.accelerator)];
            if from.is_some_and(|(at, _)| at == unit && colocates) {
                continue;
            }
            let end = match from {
                Some((at, half)) => {
                    self.units[usize::from(at)].reads[usize::from(half)] += 1;
                    let direct = self.model.spec.moves.direct_ps_per_byte;
                    now + Picos((f64::from(bytes) * direct + 0.5) as u64)
                }
                None => self.memory.carry(u64::from(bytes), now),
            };
            self.does(unit, Doing::Loads { argument, from }, end, agenda);
            return;
        }
        self.does(unit, Doing::Computes, now + task.compute, agenda);
    }

    fn does(&mut self, unit: u16, doing: Doing, end: Picos, agenda: &mut Agenda<Event>) {
        let instances = self.model.spec.instances as usize;
        let kind = usize::from(unit) / instances;
        self.counts.busy[kind] += end.since(agenda.now());
        self.units[usize::from(unit)].doing = doing;
        agenda.at(end, Event::Done { unit });
    }

    /// Handles the end of a computation: tasks that waited only for it become ready. The output is stored unless all of
    /// its consumers take it at once.
    fn retire(&mut self, unit: u16, work: Work, agenda: &mut Agenda<Event>) {
        let (task, now) = (self.task(work), agenda.now());
        let half = self.units[usize::from(unit)].half;
        self.state(work).made = Some((unit, half));
        let mut ready: Vec<(Work, i128)> = Vec::with_capacity(task.children.len());
        for child in &task.children {
            let child = Work { task: *child, ..work };
            let state = self.state(child);
            state.left -= 1;
            if state.left == 0 {
                let task = self.task(child);
                ready.push((child, i128::from(task.due.0) - i128::from(task.runtime.0)));
            }
        }
        ready.sort_by_key(|(_, latest)| *latest);
        let mut given = [0; super::spec::ACCELERATORS.len()];
        let mut takers = Vec::with_capacity(ready.len());
        for (child, _) in ready {
            let kind = self.task(child).accelerator;
            let idle = self.idle(kind, unit);
            let place = self.list(child, given[usize::from(kind)] < idle, now);
            given[usize::from(kind)] += usize::from(place.is_ahead);
            takers.push((child, place.is_ahead));
        }
        // A list may have changed for tasks that were inserted earlier.
        let at_once = takers.iter().filter(|(child, is_ahead)| {
            let kind = self.task(*child).accelerator;
            let idle = self.idle(kind, unit);
            *is_ahead || self.lists[usize::from(kind)].is_within(idle, child)
        });
        if at_once.count() == task.children.len() && !task.children.is_empty() {
            let state = &mut self.units[usize::from(unit)];
            (state.running, state.doing) = (None, Doing::Nothing);
        } else {
            self.counts.writes += 1;
            let end = self.memory.carry(u64::from(task.out_bytes), now);
            self.does(unit, Doing::Stores, end, agenda);
        }
    }

    /// Returns the number of free accelerators of a kind. The accelerator `done` counts as free.
    fn idle(&self, kind: u8, done: u16) -> usize {
        let is_idle =
            |unit: &usize| *unit == usize::from(done) || self.units[*unit].running.is_none();
        self.units_of(kind).filter(is_idle).count()
    }

    fn stored(&mut self, unit: u16, work: Work, agenda: &mut Agenda<Event>) {
        let state = &mut self.units[usize::from(unit)];
        (state.running, state.doing) = (None, Doing::Nothing);
        if self.task(work).children.is_empty() {
            self.complete(work.slot, agenda);
        }
    }
}
