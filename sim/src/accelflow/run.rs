//! One run: requests come, make the steps of their programs, and are done. Stations decide who waits; this decides what
//! happens next. An op costs one event where its dispatcher hands over, two where a manager or a core does.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::AccelFlow;
use super::cores::{CoreJob, Cores, What};
use super::counts::Counts;
use super::fabric::Fabric;
use super::orchestrators::{Listed, Queues, Via};
use super::program::{Continuation, OpStep, Step};
use super::sizes::{SizePoint, SizeTable};
use super::spec::Order;
use super::station::{NOBODY, Pe, Shape, Station, Taken, Waiting};
use super::topology::{CORES, KINDS};
use crate::draws::ln;
use crate::laxity::Laxities;
use crate::study::{Extent, REQUESTS_MAX, RunError};
use crate::{Agenda, Draws, Model, Picos, Streams, arrivals};

#[cfg(test)]
mod tests;
mod traces;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A service's next request comes.
    Arrive { service: u16 },
    /// A PE is done.
    Done { kind: u8, pe: u8, token: u32 },
    /// A PE that waited for an output entry is free.
    Free { kind: u8, pe: u8 },
    /// A core is done.
    Core { what: What, token: u32 },
    /// The manager has decided what follows.
    Decided { token: u32 },
    /// A payload that the manager had moved is in the scratchpad of a PE.
    Loaded { kind: u8, pe: u8, token: u32 },
    /// The manager has seen that a PE is done.
    Retired { kind: u8, pe: u8, token: u32 },
    /// The output of a PE is in memory.
    Written { kind: u8, pe: u8 },
    /// The answer to what was sent is here.
    Answer { token: u32 },
    /// A core knows that a trace has ended.
    Notified { token: u32 },
    /// A core knows that no answer came in time.
    Failed { token: u32 },
}

/// A request, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) born: Picos,
    /// The key of its draws, which is the same for all architectures.
    key: u64,
    /// A core's time as a multiple of the mean.
    app: f64,
    /// The request that this is a part of, or [`WHOLE`].
    parent: u32,
    /// Parts under way.
    parts: u32,
    pub(super) at: u16,
    /// The step that its last draws were for, and they.
    drawn: u16,
    hash: u64,
    point: SizePoint,
    service: u16,
    tenant: u16,
    /// Its tenant's live traces count it.
    traced: bool,
    failed: bool,
}

pub(super) struct Run<'a> {
    pub(super) model: &'a AccelFlow,
    extent: Extent,
    sources: Vec<(arrivals::Source, Draws)>,
    pub(super) tokens: Vec<Token>,
    /// Places of tokens that are no more.
    vacant: Vec<u32>,
    pub(super) stations: [Station; KINDS.len()],
    /// The manager's one list, where there is one.
    central: VecDeque<(u8, Waiting)>,
    /// The manager's lists by laxity, where there are such.
    pub(super) ready: Vec<Laxities<Listed>>,
    cores: Cores,
    pub(super) fabric: Fabric,
    pub(super) manager_free: Picos,
    tenants: Vec<Tenant>,
    pub(super) responses: Vec<Vec<u64>>,
    pub(super) counts: Counts,
    pub(super) fault: Option<RunError>,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    live: u32,
    /// Traces that may not start yet, and where their payloads are.
    held: VecDeque<(u32, usize)>,
}

impl Model for Run<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        let now = agenda.now();
        match event {
            Event::Arrive { service } => self.arrive(service, agenda),
            Event::Done { kind, pe, token } => self.done(kind, pe, token, agenda),
            Event::Free { kind, pe } => self.free(kind, pe, agenda),
            Event::Core { what, token } => self.core_done(what, token, agenda),
            Event::Decided { token } => {
                let op = self.op(token);
                self.after_op(token, op, usize::from(op.kind), now, agenda);
            }
            Event::Loaded { kind, pe, token } => self.loaded(kind, pe, token, agenda),
            Event::Retired { kind, pe, token } => self.retired(kind, pe, token, agenda),
            Event::Written { kind, pe } => self.written(kind, pe, agenda),
            Event::Answer { token } => self.answer(token, agenda),
            Event::Failed { token } => self.fail(token, agenda),
            Event::Notified { token } => {
                self.tokens[token as usize].at += 1;
                self.end_trace(token, agenda);
                self.advance(token, CORES, now, agenda);
            }
        }
        if self.extent.is_reached(self.counts.requests) || self.fault.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl<'a> Run<'a> {
    /// A run from empty; `window` tells the streams of several windows apart.
    pub(super) fn new(
        model: &'a AccelFlow,
        streams: &Streams,
        extent: Extent,
        window: u32,
    ) -> Self {
        let hardware = &model.spec.hardware;
        let hardware_queues = model.queues == Queues::Hardware;
        let shape = Shape {
            pes: hardware.pes,
            entries: if hardware_queues { hardware.input_entries } else { usize::MAX },
            overflow_max: hardware.overflow_entries,
            output_entries: hardware.output_entries,
            ranked: hardware_queues && model.spec.dispatcher.discipline != Order::Fifo,
            // The manager chooses a PE before it has data moved there.
            awaits_data: hardware_queues,
        };
        let sources = model.spec.services.iter().zip(&model.arrivals).map(|(service, arrivals)| {
            let name = if window == 0 {
                service.name.clone()
            } else {
                format!("{}.{window}", service.name)
            };
            (arrivals.start(streams, &name), streams.named(&format!("work.{name}")))
        });
        Self {
            model,
            extent,
            sources: sources.collect(),
            tokens: Vec::with_capacity(TOKENS_CAPACITY),
            vacant: Vec::with_capacity(TOKENS_CAPACITY),
            stations: std::array::from_fn(|_| Station::new(shape)),
            central: VecDeque::new(),
            ready: vec![Laxities::new(); KINDS.len()],
            cores: Cores::new(hardware.cores),
            fabric: Fabric::new(&model.spec, &model.topology),
            manager_free: Picos(0),
            tenants: vec![Tenant::default(); model.spec.tenants.count as usize],
            responses: vec![Vec::new(); model.spec.services.len()],
            counts: Counts::default(),
            fault: None,
        }
    }

    pub(super) fn start(&mut self, agenda: &mut Agenda<Event>) {
        for service in 0..self.sources.len() {
            self.schedule_arrival(service as u16, agenda);
        }
    }

    /// Ends the books.
    pub(super) fn close(&mut self, agenda: &Agenda<Event>) {
        self.counts.duration = agenda.now();
        self.counts.events = agenda.fired();
        self.counts.engines_busy = self.fabric.engines_busy;
        self.counts.links_busy = self.fabric.links_busy;
    }

    fn schedule_arrival(&mut self, service: u16, agenda: &mut Agenda<Event>) {
        let index = usize::from(service);
        let time = agenda.now() + self.model.arrivals[index].gap(&mut self.sources[index].0);
        let comes = match self.extent {
            Extent::Requests(_) => true,
            Extent::WindowPs(window) => time <= window,
        };
        if comes {
            agenda.at_priority(time, ARRIVALS_LAST, Event::Arrive { service });
        }
    }

    fn arrive(&mut self, service: u16, agenda: &mut Agenda<Event>) {
        self.schedule_arrival(service, agenda);
        let draws = &mut self.sources[usize::from(service)].1;
        let key = draws.below(u64::MAX);
        let app = self.model.app.as_ref().map_or(1.0, |app| app.draw(draws).as_ns() * 1e-6);
        let token = Token {
            born: agenda.now(),
            key,
            app,
            parent: WHOLE,
            parts: 0,
            at: self.model.starts[usize::from(service)],
            drawn: NOT_DRAWN,
            hash: 0,
            point: SizePoint::default(),
            service,
            tenant: (key % u64::from(self.model.spec.tenants.count)) as u16,
            traced: false,
            failed: false,
        };
        if let Some(token) = self.add(token, agenda) {
            // A request comes in at TCP, without a core.
            let tcp = 0;
            self.advance(token, tcp, agenda.now(), agenda);
        }
    }

    fn add(&mut self, token: Token, agenda: &Agenda<Event>) -> Option<u32> {
        let limit = self.model.spec.tokens_max;
        if self.live() >= limit {
            let at_ns = agenda.now().0 / 1_000;
            self.fault = Some(RunError::TooManyTokens { limit, at_ns });
            return None;
        }
        if let Some(place) = self.vacant.pop() {
            self.tokens[place as usize] = token;
            return Some(place);
        }
        self.tokens.push(token);
        Some(self.tokens.len() as u32 - 1)
    }

    /// Requests and parts of requests under way.
    fn live(&self) -> usize {
        self.tokens.len() - self.vacant.len()
    }

    /// The step that the token is at.
    fn step(&self, token: u32) -> &'a Step {
        &self.model.steps[usize::from(self.tokens[token as usize].at)]
    }

    /// The step after the token's.
    pub(super) fn step_behind(&self, token: u32) -> &'a Step {
        let state = &self.tokens[token as usize];
        &self.model.steps[usize::from(state.at) + 1]
    }

    pub(super) fn op(&self, token: u32) -> &'a OpStep {
        match self.step(token) {
            Step::Op(op) => op,
            _ => unreachable!("who waits for an accelerator, a manager or an answer is at an op"),
        }
    }

    /// The token stands at a step, its payload at `place`. When an output entry that held it is clear.
    fn advance(
        &mut self,
        token: u32,
        place: usize,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) -> Picos {
        let model = self.model;
        let state = &mut self.tokens[token as usize];
        match &model.steps[usize::from(state.at)] {
            Step::Core { .. } | Step::Op(_) | Step::Notify if model.queues == Queues::None => {
                self.run_on_core(token, agenda);
            }
            Step::Core { ps, submits_ps } => {
                let time = Picos((ps * state.app + submits_ps + 0.5) as u64);
                state.at += 1;
                self.offer_core(CoreJob { token, what: What::Segment, time }, agenda);
            }
            Step::Op(op) => return self.submit(token, op, place, ready, agenda),
            Step::Fork { arms, .. } => return self.fork(token, arms, place, ready, agenda),
            Step::Notify if place == CORES => {
                state.at += 1;
                return self.advance(token, CORES, ready, agenda);
            }
            Step::Notify => return self.notify(token, place, ready, agenda),
            Step::Arrive => self.join(token, agenda),
            Step::Done => self.complete(token, agenda),
        }
        ready
    }

    /// The token's parts begin.
    fn fork(
        &mut self,
        token: u32,
        arms: &[u16],
        place: usize,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) -> Picos {
        let whole = self.tokens[token as usize];
        self.tokens[token as usize].parts = arms.len() as u32;
        let mut clear = ready;
        for (arm, start) in (1..).zip(arms) {
            let key = crate::streams::mix(whole.key ^ arm);
            let (drawn, traced) = (NOT_DRAWN, false);
            let part = Token { key, parent: token, parts: 0, at: *start, drawn, traced, ..whole };
            let Some(part) = self.add(part, agenda) else { return clear };
            clear = clear.max(self.advance(part, place, ready, agenda));
        }
        clear
    }

    /// Without accelerators a core goes on until the request ends, forks or waits.
    fn run_on_core(&mut self, token: u32, agenda: &mut Agenda<Event>) {
        let state = self.tokens[token as usize];
        let steps = &self.model.steps;
        let (mut at, mut ps) = (state.at, 0.0);
        loop {
            match &steps[usize::from(at)] {
                Step::Core { ps: own_ps, .. } => ps += own_ps * state.app,
                Step::Op(op) => {
                    ps += op.cpu_ps * state.draw(at, op.kind, &self.model.sizes).1.factor();
                    if op.continuation == Continuation::Await
                        && self.model.spec.work.remote_ns > 0.0
                    {
                        break;
                    }
                }
                Step::Notify => {}
                Step::Fork { .. } | Step::Arrive | Step::Done => break,
            }
            at += 1;
        }
        self.tokens[token as usize].at = at;
        let time = Picos((ps + 0.5) as u64);
        self.offer_core(CoreJob { token, what: What::Segment, time }, agenda);
    }

    fn offer_core(&mut self, job: CoreJob, agenda: &mut Agenda<Event>) {
        self.counts.cores_busy += job.time;
        if job.what == What::Visit {
            self.counts.visits += job.time;
        }
        if self.cores.offer(job) {
            agenda.after(job.time, Event::Core { what: job.what, token: job.token });
        }
    }

    fn core_done(&mut self, what: What, token: u32, agenda: &mut Agenda<Event>) {
        if let Some(next) = self.cores.release() {
            agenda.after(next.time, Event::Core { what: next.what, token: next.token });
        }
        let now = agenda.now();
        match what {
            What::System => {}
            What::Segment => match self.step(token) {
                Step::Op(_) if self.model.queues == Queues::None => {
                    // It has sent something and waits for the answer.
                    self.tokens[token as usize].at += 1;
                    self.wait(token, now, agenda);
                }
                _ => {
                    self.advance(token, CORES, now, agenda);
                }
            },
            What::Visit | What::Fallback => {
                self.after_op(token, self.op(token), CORES, now, agenda);
            }
        }
    }

    /// The size of the token's own step or the one behind it, drawn once.
    #[inline(always)]
    pub(super) fn drawn(&mut self, token: u32, at: u16, kind: u8) -> SizePoint {
        let state = &mut self.tokens[token as usize];
        if state.drawn != at {
            (state.hash, state.point) = state.draw(at, kind, &self.model.sizes);
            state.drawn = at;
        }
        state.point
    }

    /// A core, a message or an accelerator brings the payload of `op`.
    #[inline(always)]
    fn submit(
        &mut self,
        token: u32,
        op: &'a OpStep,
        place: usize,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) -> Picos {
        if op.begins && self.held(token, place) {
            return ready;
        }
        let to = usize::from(op.kind);
        let mut landed = ready;
        if place != to {
            let bytes = self.drawn(token, self.tokens[token as usize].at, op.kind).bytes;
            let inline = bytes.min(self.model.spec.hardware.inline_bytes);
            landed = self.fabric.carry(place, to, inline, ready);
            self.counts.moving += landed.since(ready);
        }
        self.enqueue(token, op, landed, place == CORES, agenda);
        landed
    }

    /// An op waits for a PE of its accelerator, or takes one.
    #[inline(always)]
    fn enqueue(
        &mut self,
        token: u32,
        op: &'a OpStep,
        ready: Picos,
        by_core: bool,
        agenda: &mut Agenda<Event>,
    ) {
        self.counts.ops[usize::from(op.kind)] += 1;
        if self.model.queues == Queues::Central {
            self.central.push_back((op.kind, Waiting { token, place: 0, ready }));
            self.drain_central(agenda);
            return;
        }
        if self.model.queues == Queues::Laxity {
            self.list(token, ready, agenda);
            return;
        }
        let rank = self.rank(token, op);
        let station = &mut self.stations[usize::from(op.kind)];
        let entry = Waiting { token, place: station.allocate(), ready };
        match station.offer(entry, rank, !by_core) {
            Taken::Pe(pe) => self.begin(op, pe, entry, agenda),
            Taken::Instead(pe) => {
                self.displace(op.kind, pe);
                self.begin(op, pe, entry, agenda);
            }
            Taken::Waits => {}
            Taken::Overflows => self.counts.overflows += 1,
            Taken::Refused => self.fall_back(token, op, by_core, agenda),
        }
    }

    /// Returns the rank of a ready op. The smaller one goes first.
    #[inline(always)]
    fn rank(&self, token: u32, op: &OpStep) -> u64 {
        let state = &self.tokens[token as usize];
        match self.model.spec.dispatcher.discipline {
            Order::Fifo => 0,
            Order::Priority => {
                u64::from(self.model.spec.services[usize::from(state.service)].priority)
            }
            Order::Deadline => (state.born + op.due).0,
        }
    }

    /// Another op's data lands before that of the op which a PE was given to: this one waits again.
    #[inline(never)]
    fn displace(&mut self, kind: u8, pe: u8) {
        let entry = self.stations[usize::from(kind)].displace(pe);
        let rank = self.rank(entry.token, self.op(entry.token));
        self.stations[usize::from(kind)].put_back(rank, entry);
    }

    /// The op finds no place and runs on a core.
    fn fall_back(&mut self, token: u32, op: &OpStep, by_core: bool, agenda: &mut Agenda<Event>) {
        self.counts.fallbacks[usize::from(op.kind)] += 1;
        let factor = self.drawn(token, self.tokens[token as usize].at, op.kind).factor();
        let tries = if by_core { self.model.spec.hardware.enqueue } else { Picos(0) };
        let time = Picos((op.cpu_ps * factor + 0.5) as u64) + tries;
        self.offer_core(CoreJob { token, what: What::Fallback, time }, agenda);
    }

    /// The head of the manager's one list waits for a PE of its kind, and so do those behind it.
    fn drain_central(&mut self, agenda: &mut Agenda<Event>) {
        while let Some((kind, entry)) = self.central.front().copied() {
            let Some(pe) = self.stations[usize::from(kind)].take() else { return };
            self.central.pop_front();
            self.begin(self.op(entry.token), pe, entry, agenda);
        }
    }

    /// A PE begins with an entry, once its data has landed: load, compute.
    #[inline(never)]
    fn begin(&mut self, op: &OpStep, pe: u8, entry: Waiting, agenda: &mut Agenda<Event>) {
        let hardware = &self.model.spec.hardware;
        let at = self.tokens[entry.token as usize].at;
        let point = self.drawn(entry.token, at, op.kind);
        let now = agenda.now();
        let start = now.max(entry.ready);
        let inline = point.bytes.min(hardware.inline_bytes);
        let load = hardware.scratchpad + hardware.scratchpad_pace.time(inline);
        let mut end = start + load + point.scale(op.pe);
        if point.bytes > inline {
            let there = self.fabric.read(point.bytes - inline, now, start);
            end += there.since(start);
        }
        // Under a manager a PE is held while its data comes.
        let from = if self.model.queues == Queues::Hardware { start } else { now };
        self.compute(op.kind, pe, entry, (from, end), agenda);
    }

    /// A PE computes what was drawn last for the token, from a start to an end or somewhat longer.
    #[inline(always)]
    pub(super) fn compute(
        &mut self,
        kind: u8,
        pe: u8,
        entry: Waiting,
        (start, mut end): (Picos, Picos),
        agenda: &mut Agenda<Event>,
    ) {
        let hardware = &self.model.spec.hardware;
        let state = &self.tokens[entry.token as usize];
        let (hash, tenant) = (state.hash, state.tenant);
        let station = &mut self.stations[usize::from(kind)];
        if station.pes[usize::from(pe)].tenant != tenant {
            end += hardware.wipe;
        }
        if hardware.tlb_misses.has(hash) {
            end += hardware.tlb_walk;
        }
        if hardware.page_faults.is_any() && hardware.page_faults.has(crate::streams::mix(hash)) {
            end += hardware.page_fault;
        }
        station.give_to(pe, entry, tenant, (start, end));
        agenda.at(end, Event::Done { kind, pe, token: entry.token });
    }

    /// Counts what a PE has done, which is certain only now.
    #[inline(always)]
    fn count(&mut self, kind: u8, pe: &Pe, agenda: &mut Agenda<Event>) {
        let hardware = &self.model.spec.hardware;
        let hash = self.tokens[pe.token as usize].hash;
        self.counts.pes_busy[usize::from(kind)] += pe.end.since(pe.start);
        self.counts.wipes += u64::from(pe.tenant != pe.tenant_before);
        self.counts.tlb_misses += u64::from(hardware.tlb_misses.has(hash));
        if hardware.page_faults.is_any() && hardware.page_faults.has(crate::streams::mix(hash)) {
            self.counts.page_faults += 1;
            let time = hardware.page_fault;
            self.offer_core(CoreJob { token: NOBODY, what: What::System, time }, agenda);
        }
    }

    #[inline(always)]
    fn free(&mut self, kind: u8, pe: u8, agenda: &mut Agenda<Event>) {
        if self.model.queues == Queues::Laxity {
            self.relaunch(kind, pe, agenda);
            return;
        }
        let station = &mut self.stations[usize::from(kind)];
        if self.model.queues == Queues::Central {
            station.give(pe);
            self.drain_central(agenda);
        } else if let Some(next) = station.release(pe, agenda.now()) {
            self.begin(self.op(next.token), pe, next, agenda);
        }
    }

    /// A PE is done: its output needs an entry, and somebody decides what follows.
    fn done(&mut self, kind: u8, pe: u8, token: u32, agenda: &mut Agenda<Event>) {
        let served = &mut self.stations[usize::from(kind)].pes[usize::from(pe)];
        if (served.token, served.end) != (token, agenda.now()) {
            // It was displaced before its start, and is done at another time.
            return;
        }
        let was = *served;
        served.token = NOBODY;
        self.count(kind, &was, agenda);
        if self.model.queues == Queues::Laxity {
            self.computed(kind, pe, token, agenda);
            return;
        }
        let (now, index) = (agenda.now(), usize::from(kind));
        let deposit = self.stations[index].deposit(now);
        let op = self.op(token);
        let handoff = &op.after[usize::from(self.carries_large(token, op))];
        let clear = match handoff.via {
            Via::Dispatcher => {
                let station = &mut self.stations[index];
                let end = station.dispatcher_free.max(deposit) + handoff.time;
                station.dispatcher_free = end;
                self.counts.dispatches += 1;
                self.counts.instructions += u64::from(handoff.instructions);
                self.counts.deciding += end.since(now);
                if op.next.is_some() {
                    // Most ops are followed by one: no look at what else could follow.
                    self.tokens[token as usize].at += 1;
                    self.submit(token, self.op(token), index, end, agenda)
                } else {
                    self.after_op(token, op, index, end, agenda)
                }
            }
            Via::Manager => {
                self.manager_free = self.manager_free.max(deposit) + handoff.time;
                self.counts.manager_busy += handoff.time;
                self.counts.deciding += self.manager_free.since(now);
                agenda.at(self.manager_free, Event::Decided { token });
                self.manager_free
            }
            Via::Core => {
                self.counts.deciding += handoff.time;
                let (what, time) = (What::Visit, handoff.time);
                self.offer_core(CoreJob { token, what, time }, agenda);
                deposit
            }
        };
        if self.model.queues == Queues::Hardware {
            self.stations[index].cleared(clear);
        }
        if deposit > now {
            agenda.at(deposit, Event::Free { kind, pe });
        } else {
            self.free(kind, pe, agenda);
        }
    }

    /// Returns whether the payload that the token's op hands on does not fit an entry.
    #[inline(always)]
    pub(super) fn carries_large(&mut self, token: u32, op: &OpStep) -> bool {
        let at = self.tokens[token as usize].at;
        let carried = match op.next {
            Some(next) => self.drawn(token, at + 1, next),
            None => self.drawn(token, at, op.kind),
        };
        carried.bytes > self.model.spec.hardware.inline_bytes
    }

    /// Does what follows the op that the token is at. Returns when the output entry is clear.
    pub(super) fn after_op(
        &mut self,
        token: u32,
        op: &'a OpStep,
        place: usize,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) -> Picos {
        let state = &mut self.tokens[token as usize];
        match op.continuation {
            Continuation::On => {
                state.at += 1;
                self.advance(token, place, ready, agenda)
            }
            Continuation::Await => {
                state.at += 1;
                self.wait(token, ready, agenda);
                ready
            }
            Continuation::Notify if place == CORES => {
                state.at += 1;
                self.end_trace(token, agenda);
                self.advance(token, CORES, ready, agenda)
            }
            Continuation::Notify => self.notify(token, place, ready, agenda),
        }
    }

    /// The payload goes from an accelerator to memory, and a core is told. When the output entry is clear.
    fn notify(
        &mut self,
        token: u32,
        place: usize,
        ready: Picos,
        agenda: &mut Agenda<Event>,
    ) -> Picos {
        let at = self.tokens[token as usize].at;
        let bytes = self.drawn(token, at, place as u8).bytes;
        let inline = bytes.min(self.model.spec.hardware.inline_bytes);
        let landed = self.fabric.carry(place, CORES, inline, ready) + self.model.notify;
        self.counts.moving += landed.since(ready);
        agenda.at(landed, Event::Notified { token });
        landed
    }

    /// A part is through; with the last one the request goes on, or ends if one has failed.
    fn join(&mut self, token: u32, agenda: &mut Agenda<Event>) {
        let part = self.tokens[token as usize];
        self.vacant.push(token);
        let whole = &mut self.tokens[part.parent as usize];
        whole.parts -= 1;
        whole.failed |= part.failed;
        if whole.parts > 0 {
            return;
        }
        if whole.failed {
            self.fail(part.parent, agenda);
            return;
        }
        if let Step::Fork { join, .. } = &self.model.steps[usize::from(whole.at)] {
            whole.at = *join;
        }
        self.end_trace(part.parent, agenda);
        self.advance(part.parent, CORES, agenda.now(), agenda);
    }

    fn complete(&mut self, token: u32, agenda: &Agenda<Event>) {
        let state = self.tokens[token as usize];
        self.vacant.push(token);
        let time = agenda.now().since(state.born);
        let service = usize::from(state.service);
        self.counts.requests += 1;
        self.counts.failed += u64::from(state.failed);
        self.counts.missed += u64::from(state.failed || time > self.model.due[service]);
        // The response of a failed request counts too: its caller has waited so long for nothing.
        self.responses[service].push(time.0);
        if self.counts.requests > REQUESTS_MAX {
            self.fault = Some(RunError::TooManyRequests { limit: REQUESTS_MAX });
        }
    }
}

impl Token {
    /// The size for the op at step `at`, with the hash it is drawn by.
    #[inline]
    fn draw(&self, at: u16, kind: u8, sizes: &[SizeTable; KINDS.len()]) -> (u64, SizePoint) {
        let hash =
            crate::streams::mix(self.key.wrapping_add(u64::from(at).wrapping_mul(STEP_STRIDE)));
        (hash, sizes[usize::from(kind)].draw(hash))
    }
}

/// The step of a token for which nothing was drawn yet.
const NOT_DRAWN: u16 = u16::MAX;
/// The parent of a token that is no part of another.
const WHOLE: u32 = u32::MAX;
/// After what else happens at the same time, which may free what an arrival needs.
const ARRIVALS_LAST: u8 = 255;
const TOKENS_CAPACITY: usize = 1_024;
/// Odd, so that steps have different draws.
const STEP_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
