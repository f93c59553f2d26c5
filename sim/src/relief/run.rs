//! One run: requests arrive, their tasks become ready when their inputs are there, and accelerators do them. The
//! orchestrator decides everything else (`public.rs`, `accelflow.rs`). This file has what both orchestrators share.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::spec::{ACCELERATORS, MoveCosts};
use super::{Applications, Orchestrator};
use crate::laxity::Laxities;
use crate::study::{Extent, REQUESTS_MAX, RunError, Sample};
use crate::{Agenda, Model, Picos, Streams, arrivals};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request arrives.
    Arrive,
    /// An accelerator has finished a move or a computation.
    Done { unit: u16 },
    /// The manager has handled the interrupt of an accelerator.
    Seen { unit: u16 },
    /// All inputs of a task are in its accelerator's input queue.
    TransferDone { work: Work },
    /// A request's last output is in memory.
    Written { slot: u32 },
}

/// A task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) slot: u32,
    pub(super) task: u16,
}

/// The state of a task that is or was in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// The number of tasks that this task waits for.
    pub(super) left: u16,
    pub(super) started: bool,
    /// The accelerator and the half of its scratchpad in which the output was made.
    pub(super) made: Option<(u16, u8)>,
    /// The time at which all inputs of the task are in the queue.
    pub(super) ready: Picos,
}

/// One accelerator.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    pub(super) running: Option<Work>,
    pub(super) doing: Doing,
    /// The half of the scratchpad to which the output goes.
    pub(super) half: u8,
    /// The tasks whose outputs are in the two halves of the scratchpad.
    pub(super) results: [Option<Work>; 2],
    /// The number of outputs that are being read from each half.
    pub(super) reads: [u32; 2],
}

/// What an accelerator does for its current task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doing {
    #[default]
    Nothing,
    /// The accelerator loads an argument from memory or from a scratchpad half that still holds it.
    Loads {
        argument: u8,
        from: Option<(u16, u8)>,
    },
    Computes,
    Stores,
}

pub(super) struct Run<'a> {
    pub(super) model: &'a Applications,
    extent: Extent,
    source: Option<arrivals::Source>,
    /// The arrival time of each slot's request. It is `None` for a free slot.
    born: Vec<Option<Picos>>,
    free: Vec<u32>,
    /// The states of the tasks, by slot and task.
    states: Vec<State>,
    pub(super) units: Vec<Unit>,
    pub(super) lists: Vec<Laxities<Work>>,
    pub(super) queues: Vec<VecDeque<Work>>,
    pub(super) memory: Memory,
    pub(super) manager_free: Picos,
    pub(super) counts: Counts,
    response: Vec<u64>,
    pub(super) fault: Option<RunError>,
}

/// The memory. The time at which it is free is known in advance, so a move needs no event of its own.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    costs: MoveCosts,
    free: Picos,
    busy: Picos,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) tasks: u64,
    pub(super) forwards: u64,
    pub(super) writes: u64,
    missed: u64,
    pub(super) manager_busy: Picos,
    pub(super) busy: [Picos; ACCELERATORS.len()],
}

impl Memory {
    /// Moves bytes from or to memory, beginning at `start`, at the speed of the slower of the DMA engine and
    /// the memory. Returns the time at which the move is done.
    pub(super) fn carry(&mut self, bytes: u64, start: Picos) -> Picos {
        let of = |ps_per_byte: f64| Picos((bytes as f64 * ps_per_byte + 0.5) as u64);
        let busy = of(self.costs.memory_ps_per_byte);
        self.free = self.free.max(start) + busy;
        self.busy += busy;
        self.free.max(start + of(self.costs.dma_ps_per_byte))
    }
}

impl Model for Run<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        match (event, self.model.orchestrator) {
            (Event::Arrive, _) => {
                self.schedule_arrival(agenda);
                self.begin(agenda);
            }
            (Event::Done { unit }, Orchestrator::Relief) => self.interrupt(unit, agenda),
            (Event::Done { unit }, Orchestrator::AccelFlow) => self.finish_task(unit, agenda),
            (Event::Seen { unit }, _) => self.seen(unit, agenda),
            (Event::TransferDone { work }, _) => self.transfer_done(work, agenda),
            (Event::Written { slot }, _) => self.complete(slot, agenda),
        }
        if self.extent.is_reached(self.counts.requests) || self.fault.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Applications, streams: &Streams, extent: Extent) -> Self {
        let spec = &model.spec;
        let units = ACCELERATORS.len() * spec.instances as usize;
        let name = &spec.application;
        Self {
            model,
            extent,
            source: model.arrivals.as_ref().map(|arrivals| arrivals.start(streams, name)),
            born: Vec::new(),
            free: Vec::new(),
            states: Vec::new(),
            units: vec![Unit::default(); units],
            lists: vec![Laxities::new(); ACCELERATORS.len()],
            queues: vec![VecDeque::new(); ACCELERATORS.len()],
            memory: Memory { costs: spec.moves, free: Picos(0), busy: Picos(0) },
            manager_free: Picos(0),
            counts: Counts::default(),
            response: Vec::new(),
            fault: None,
        }
    }

    pub(super) fn start(&mut self, agenda: &mut Agenda<Event>) {
        if self.source.is_some() {
            self.schedule_arrival(agenda);
        } else {
            (0..self.model.spec.in_flight()).for_each(|_| agenda.at(Picos(0), Event::Arrive));
        }
    }

    fn schedule_arrival(&mut self, agenda: &mut Agenda<Event>) {
        if let (Some(arrivals), Some(source)) = (&self.model.arrivals, &mut self.source) {
            let time = agenda.now() + arrivals.gap(source);
            self.arrive_at(time, agenda);
        }
    }

    /// Schedules the arrival of a request, unless the window is over. Requests in flight are simulated to their end.
    fn arrive_at(&self, time: Picos, agenda: &mut Agenda<Event>) {
        let comes = match self.extent {
            Extent::Requests(_) => true,
            Extent::WindowPs(window) => time <= window,
        };
        if comes {
            agenda.at(time, Event::Arrive);
        }
    }

    /// Begins a request: takes a slot and starts the tasks that wait for no other task.
    fn begin(&mut self, agenda: &mut Agenda<Event>) {
        let tasks = &self.model.spec.graph.tasks;
        let limit = self.model.spec.tokens_max;
        if self.free.is_empty() && self.born.len() >= limit {
            let at_ns = agenda.now().0 / 1_000;
            self.fault = Some(RunError::TooManyTokens { limit, at_ns });
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.born.push(None);
            self.states.resize(self.born.len() * tasks.len(), State::default());
            self.born.len() as u32 - 1
        });
        self.born[slot as usize] = Some(agenda.now());
        for (index, task) in tasks.iter().enumerate() {
            let work = Work { slot, task: index as u16 };
            let of_tasks =
                |input: &&super::graph::Input| matches!(input, super::graph::Input::Task(_));
            let left = task.inputs.iter().filter(of_tasks).count() as u16;
            *self.state(work) = State { left, ready: agenda.now(), ..State::default() };
        }
        for index in 0..tasks.len() {
            let work = Work { slot, task: index as u16 };
            if self.state(work).left == 0 {
                self.becomes_ready(work, agenda);
            }
        }
    }

    /// Starts a task that waits for no other task.
    fn becomes_ready(&mut self, work: Work, agenda: &mut Agenda<Event>) {
        match self.model.orchestrator {
            Orchestrator::Relief => {
                self.list(work, false, agenda.now());
                self.launch(agenda);
            }
            Orchestrator::AccelFlow => self.fetch(work, agenda),
        }
    }

    pub(super) fn state(&mut self, work: Work) -> &mut State {
        let tasks = self.model.spec.graph.tasks.len();
        &mut self.states[work.slot as usize * tasks + usize::from(work.task)]
    }

    /// Returns the arrival time of a task's request.
    pub(super) fn born(&self, work: Work) -> Picos {
        self.born[work.slot as usize].unwrap_or_default()
    }

    pub(super) fn task(&self, work: Work) -> &'a super::graph::Task {
        &self.model.spec.graph.tasks[usize::from(work.task)]
    }

    /// Returns the indexes of the accelerators of a kind.
    pub(super) fn units_of(&self, kind: u8) -> std::ops::Range<usize> {
        let instances = self.model.spec.instances as usize;
        usize::from(kind) * instances..(usize::from(kind) + 1) * instances
    }

    /// Completes a request whose last output has reached its destination.
    pub(super) fn complete(&mut self, slot: u32, agenda: &mut Agenda<Event>) {
        let Some(born) = self.born[slot as usize].take() else { return };
        let time = agenda.now().since(born);
        let last = self.model.spec.graph.tasks.iter().map(|task| task.due).max();
        self.free.push(slot);
        self.counts.requests += 1;
        self.counts.missed += u64::from(time > last.unwrap_or_default());
        self.response.push(time.0);
        if self.counts.requests > REQUESTS_MAX {
            self.fault = Some(RunError::TooManyRequests { limit: REQUESTS_MAX });
        }
        if self.source.is_none() {
            self.arrive_at(agenda.now(), agenda);
        }
    }

    /// Returns the measurements. Facts are in the order of the model's names.
    pub(super) fn sample(self, agenda: &Agenda<Event>) -> Sample {
        let duration = agenda.now();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let busy = |part: Picos, of: u32| share(part.0 as f64, duration.0 as f64 * f64::from(of));
        let of = |part: u64, whole: u64| share(part as f64, whole as f64);
        let counts = &self.counts;
        let mut facts = vec![
            share(counts.requests as f64, duration.as_ns() * 1e-9),
            busy(counts.manager_busy, 1),
            busy(self.memory.busy, 1),
            of(counts.forwards, counts.tasks),
            of(counts.writes, counts.tasks),
            of(counts.missed, counts.requests),
            of(agenda.fired(), counts.requests),
        ];
        facts.extend(counts.busy.iter().map(|part| busy(*part, self.model.spec.instances)));
        Sample { responses: vec![self.response], facts, events: agenda.fired(), duration }
    }
}
