//! Simulates one run: requests arrive, execute the steps of their programs, and end. The discipline decides
//! which op gets a PE and when, and the run decides what happens next. An op costs one event if its
//! dispatcher passes the payload on, and two if a manager or a core does.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::AccelFlow;
use super::branches::chosen;
use super::cores::{CoreJob, Cores, What};
use super::counts::Counts;
use super::fabric::{Fabric, Payload};
use super::ids::{ByKind, Kind, Site, TokenId, Unit};
use super::orchestrators::{Handoff, Via};
use super::program::{Continuation, OpStep, Step};
use super::queues::Discipline;
use super::sizes::SizePoint;
use super::station::{Pe, Span, Station, Waiting};
use super::tokens::{Draw, NOT_DRAWN, Token, Tokens};
use crate::study::{Extent, REQUESTS_MAX, RunError};
use crate::{Agenda, Draws, Model, Picos, Streams, arrivals};

#[cfg(test)]
mod tests;
mod traces;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event<E> {
    /// The next request of a service arrives.
    Arrive { service: u16 },
    /// A PE is done, or another event of the discipline concerns a PE. No variant is larger than this one,
    /// because the event queue copies events.
    Pe { event: E, unit: Unit, token: TokenId },
    /// A core is done.
    Core { what: What, core: u16, token: TokenId },
    /// The manager has decided what follows.
    Decided { token: TokenId },
    /// The answer to a message has arrived.
    Answer { token: TokenId },
    /// A core learns that a trace has ended.
    Notified { token: TokenId },
    /// A core learns that no answer came in time.
    Failed { token: TokenId },
}

/// The agenda of a run under a discipline.
pub(super) type Schedule<D> = Agenda<Event<<D as Discipline>::Event>>;

pub(super) struct Run<'a, D> {
    pub(super) model: &'a AccelFlow,
    pub(super) discipline: D,
    extent: Extent,
    sources: Vec<(arrivals::Source, Draws)>,
    pub(super) tokens: Tokens,
    pub(super) stations: ByKind<Station>,
    cores: Cores,
    pub(super) fabric: Fabric,
    pub(super) manager_free: Picos,
    tenants: Vec<Tenant>,
    responses: Vec<Vec<u64>>,
    pub(super) counts: Counts,
    fault: Option<RunError>,
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    live: u32,
    /// The traces that may not start yet.
    held: VecDeque<Held>,
}

/// A trace that may not start yet, and the place of its payload.
#[derive(Clone, Copy, Debug)]
struct Held {
    token: TokenId,
    site: Site,
}

/// The part of a replication to simulate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window<'a> {
    pub(super) streams: &'a Streams,
    pub(super) extent: Extent,
    /// The number of the window. It separates the random streams of several windows.
    pub(super) number: u32,
    pub(super) events_max: u64,
}

/// The results of a window.
#[derive(Debug)]
pub(super) struct WindowResult {
    pub(super) counts: Counts,
    /// The response times of each service's requests (ps).
    pub(super) responses: Vec<Vec<u64>>,
}

/// Simulates a window from an empty system.
pub(super) fn window<D: Discipline>(
    model: &AccelFlow,
    window: &Window<'_>,
) -> Result<WindowResult, RunError> {
    let mut run = Run::<D>::new(model, window);
    let mut agenda = Agenda::with_capacity(AGENDA_CAPACITY);
    run.start(&mut agenda);
    let end = crate::run(&mut run, &mut agenda, window.events_max);
    RunError::check(end, run.fault.take(), window.events_max)?;
    run.counts.duration = agenda.now();
    run.counts.events = agenda.fired();
    run.counts.engines_busy = run.fabric.engines_busy;
    run.counts.links_busy = run.fabric.links_busy;
    Ok(WindowResult { counts: run.counts, responses: run.responses })
}

impl<D: Discipline> Model for Run<'_, D> {
    type Event = Event<D::Event>;

    fn handle(&mut self, event: Event<D::Event>, agenda: &mut Schedule<D>) -> ControlFlow<()> {
        let now = agenda.now();
        match event {
            Event::Arrive { service } => self.arrive(service, agenda),
            Event::Pe { event, unit, token } => D::handle(self, event, unit, token, agenda),
            Event::Core { what, core, token } => self.core_done(what, core, token, agenda),
            Event::Decided { token } => {
                let op = self.op(token);
                self.after_op(token, op, Payload { site: op.kind.into(), ready: now }, agenda);
            }
            Event::Answer { token } => self.answer(token, agenda),
            Event::Failed { token } => self.fail(token, agenda),
            Event::Notified { token } => {
                self.tokens[token].at += 1;
                self.end_trace(token, agenda);
                self.advance(token, Payload { site: Site::CORES, ready: now }, agenda);
            }
        }
        if self.extent.is_reached(self.counts.requests) || self.fault.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl<'a, D: Discipline> Run<'a, D> {
    fn new(model: &'a AccelFlow, window: &Window<'_>) -> Self {
        let Window { streams, extent, number, .. } = *window;
        let sources = model.spec.services.iter().zip(&model.arrivals).map(|(service, arrivals)| {
            let name = if number == 0 {
                service.name.clone()
            } else {
                format!("{}.{number}", service.name)
            };
            (arrivals.start(streams, &name), streams.named(&format!("work.{name}")))
        });
        Self {
            model,
            discipline: D::default(),
            extent,
            sources: sources.collect(),
            tokens: Tokens::new(),
            stations: ByKind::from_fn(|_| Station::new(D::shape(&model.spec))),
            cores: Cores::new(model.spec.hardware.cores, model.spec.hardware.shares_cores),
            fabric: Fabric::new(&model.spec, &model.topology),
            manager_free: Picos(0),
            tenants: vec![Tenant::default(); model.spec.tenants.count as usize],
            responses: vec![Vec::new(); model.spec.services.len()],
            counts: Counts::default(),
            fault: None,
        }
    }

    fn start(&mut self, agenda: &mut Schedule<D>) {
        for service in 0..self.sources.len() {
            self.schedule_arrival(service as u16, agenda);
        }
    }

    fn schedule_arrival(&mut self, service: u16, agenda: &mut Schedule<D>) {
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

    fn arrive(&mut self, service: u16, agenda: &mut Schedule<D>) {
        self.schedule_arrival(service, agenda);
        let draws = &mut self.sources[usize::from(service)].1;
        let key = draws.below(u64::MAX);
        let app = self.model.app.as_ref().map_or(1.0, |app| app.draw(draws).as_ns() * 1e-6);
        let token = Token {
            born: agenda.now(),
            key,
            app,
            parent: TokenId::NONE,
            parts: 0,
            at: self.model.starts[usize::from(service)],
            drawn: NOT_DRAWN,
            last_draw: Draw::default(),
            service,
            tenant: (key % u64::from(self.model.spec.tenants.count)) as u16,
            core: self.cores.of_key(key),
            traced: false,
            failed: false,
        };
        if let Some(token) = self.add(token, agenda) {
            // A request arrives without the help of a core.
            let payload = Payload { site: Kind::TCP.into(), ready: agenda.now() };
            self.advance(token, payload, agenda);
        }
    }

    fn add(&mut self, token: Token, agenda: &Schedule<D>) -> Option<TokenId> {
        let limit = self.model.spec.tokens_max;
        if self.tokens.live() >= limit {
            let at_ns = agenda.now().0 / 1_000;
            self.fault = Some(RunError::TooManyTokens { limit, at_ns });
            return None;
        }
        Some(self.tokens.add(token))
    }

    /// Returns the step that the token is at.
    #[inline(always)]
    pub(super) fn step(&self, token: TokenId) -> &'a Step {
        &self.model.steps[usize::from(self.tokens[token].at)]
    }

    /// Returns the step after the token's current step.
    pub(super) fn step_behind(&self, token: TokenId) -> &'a Step {
        &self.model.steps[usize::from(self.tokens[token].at) + 1]
    }

    #[inline(always)]
    pub(super) fn op(&self, token: TokenId) -> &'a OpStep {
        match self.step(token) {
            Step::Op(op) => op,
            _ => unreachable!("who waits for an accelerator, a manager or an answer is at an op"),
        }
    }

    /// Executes the token's current step. Returns the time at which its payload's output entry is clear.
    pub(super) fn advance(
        &mut self,
        token: TokenId,
        payload: Payload,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        match self.step(token) {
            Step::Core { .. } | Step::Op(_) | Step::Notify => {
                return D::step(self, token, payload, agenda);
            }
            Step::Fork { arms, .. } => return self.fork(token, arms, payload, agenda),
            Step::Choose { ways, .. } => {
                let state = &mut self.tokens[token];
                state.at = chosen(ways, state.key, state.at);
                return self.advance(token, payload, agenda);
            }
            Step::Jump(to) => {
                self.tokens[token].at = *to;
                return self.advance(token, payload, agenda);
            }
            Step::Arrive => self.join(token, agenda),
            Step::Done => self.complete(token, agenda),
        }
        payload.ready
    }

    /// Executes the token's current step on a server with accelerators. Cores do the application's work, and
    /// accelerators do the ops. Returns the time at which the payload's output entry is clear.
    #[inline(always)]
    pub(super) fn accelerated_step(
        &mut self,
        token: TokenId,
        payload: Payload,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        match self.step(token) {
            Step::Core { ps, submits_ps } => {
                let state = &mut self.tokens[token];
                let time = Picos((ps * state.app + submits_ps + 0.5) as u64);
                state.at += 1;
                self.offer_core(CoreJob { token, what: What::Segment, time }, agenda);
            }
            Step::Op(op) => return self.submit(token, op, payload, agenda),
            Step::Notify => match payload.site.accelerator() {
                Some(from) => return self.notify(token, from, payload.ready, agenda),
                None => {
                    self.tokens[token].at += 1;
                    return self.advance(token, payload, agenda);
                }
            },
            // `advance` handles the other steps itself.
            _ => {}
        }
        payload.ready
    }

    /// Starts the parts of the token. Returns the time at which the output entry of their payload is clear.
    fn fork(
        &mut self,
        token: TokenId,
        arms: &[u16],
        payload: Payload,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        let whole = self.tokens[token];
        self.tokens[token].parts = arms.len() as u32;
        let mut clear = payload.ready;
        for (arm, start) in (1..).zip(arms) {
            let key = crate::streams::mix(whole.key ^ arm);
            let (drawn, traced) = (NOT_DRAWN, false);
            let part = Token { key, parent: token, parts: 0, at: *start, drawn, traced, ..whole };
            let Some(part) = self.add(part, agenda) else { return clear };
            clear = clear.max(self.advance(part, payload, agenda));
        }
        clear
    }

    pub(super) fn offer_core(&mut self, job: CoreJob, agenda: &mut Schedule<D>) {
        self.counts.cores_busy += job.time;
        if job.what == What::Visit {
            self.counts.visits += job.time;
        }
        let core = if job.token == TokenId::NONE {
            // A page fault belongs to no request, so all cores take them in turn.
            self.cores.of_key(self.counts.page_faults << 32)
        } else {
            self.tokens[job.token].core
        };
        if self.cores.offer(core, job, agenda.now()) {
            agenda.after(job.time, Event::Core { what: job.what, core, token: job.token });
        }
    }

    fn core_done(&mut self, what: What, core: u16, token: TokenId, agenda: &mut Schedule<D>) {
        if let Some((next, waited)) = self.cores.release(core, agenda.now()) {
            if next.what == What::Visit {
                // As for the manager, waiting for whoever decides counts as deciding.
                self.counts.deciding += waited;
            }
            agenda.after(next.time, Event::Core { what: next.what, core, token: next.token });
        }
        match what {
            What::System => {}
            What::Segment => D::segment_done(self, token, agenda),
            What::Visit | What::Fallback => {
                let payload = Payload { site: Site::CORES, ready: agenda.now() };
                self.after_op(token, self.op(token), payload, agenda);
            }
        }
    }

    /// Returns the payload size for the op at step `at`: the token's current or next step. It is drawn once.
    #[inline(always)]
    pub(super) fn drawn(&mut self, token: TokenId, at: u16, kind: Kind) -> SizePoint {
        let state = &mut self.tokens[token];
        if state.drawn != at {
            state.last_draw = state.draw(at, kind, &self.model.sizes);
            state.drawn = at;
        }
        state.last_draw.point
    }

    /// Submits the payload of `op`, which comes from a core, a message or an accelerator. Returns the time at
    /// which the payload's output entry is clear.
    #[inline(always)]
    fn submit(
        &mut self,
        token: TokenId,
        op: &'a OpStep,
        payload: Payload,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        if op.begins && self.is_held(token, payload.site) {
            return payload.ready;
        }
        let to = Site::from(op.kind);
        let mut ready = payload.ready;
        if payload.site != to {
            let bytes = self.drawn(token, self.tokens[token].at, op.kind).bytes;
            let inline = bytes.min(self.model.spec.hardware.inline_bytes);
            ready = self.fabric.carry(payload, to, inline);
            self.counts.moving += ready.since(payload.ready);
        }
        let by_core = payload.site == Site::CORES;
        D::enqueue(self, op, Waiting { token, turn: 0, ready }, by_core, agenda);
        ready
    }

    /// Returns the time span in which a PE serves an entry. The PE begins when the data has arrived. It first
    /// loads the data and then computes.
    #[inline(always)]
    pub(super) fn service(&mut self, op: &OpStep, entry: Waiting, now: Picos) -> Span {
        let hardware = &self.model.spec.hardware;
        let at = self.tokens[entry.token].at;
        let point = self.drawn(entry.token, at, op.kind);
        let start = now.max(entry.ready);
        let inline = point.bytes.min(hardware.inline_bytes);
        let load = hardware.scratchpad + hardware.scratchpad_pace.time(inline);
        let mut end = start + load + point.scale(op.pe);
        if point.bytes > inline {
            let there = self.fabric.read(point.bytes - inline, now, start);
            end += there.since(start);
        }
        Span { start, end }
    }

    /// Assigns the entry to the PE for `span` and returns the end of the service. A change of tenant, a TLB
    /// miss or a page fault makes the span longer.
    #[inline(always)]
    pub(super) fn occupy(&mut self, unit: Unit, entry: Waiting, span: Span) -> Picos {
        let hardware = &self.model.spec.hardware;
        let state = &self.tokens[entry.token];
        let (hash, tenant) = (state.last_draw.hash, state.tenant);
        let station = &mut self.stations[unit.kind];
        let Span { start, mut end } = span;
        if station.pes[unit.pe.index()].tenant != tenant {
            end += hardware.wipe;
        }
        if hardware.tlb_misses.has(hash) {
            end += hardware.tlb_walk;
        }
        if hardware.page_faults.is_any() && hardware.page_faults.has(crate::streams::mix(hash)) {
            end += hardware.page_fault;
        }
        station.give_to(unit.pe, entry, tenant, Span { start, end });
        end
    }

    /// Counts the service that a PE has ended. Returns false if no service has ended, because the op was
    /// displaced from the PE before its start.
    #[inline(always)]
    pub(super) fn ends_service(
        &mut self,
        unit: Unit,
        token: TokenId,
        agenda: &mut Schedule<D>,
    ) -> bool {
        let served = &mut self.stations[unit.kind].pes[unit.pe.index()];
        if (served.token, served.end) != (token, agenda.now()) {
            return false;
        }
        let was = *served;
        served.token = TokenId::NONE;
        self.count(unit.kind, &was, agenda);
        true
    }

    #[inline(always)]
    fn count(&mut self, kind: Kind, pe: &Pe, agenda: &mut Schedule<D>) {
        let hardware = &self.model.spec.hardware;
        let hash = self.tokens[pe.token].last_draw.hash;
        self.counts.pes_busy[kind] += pe.end.since(pe.start);
        self.counts.wipes += u64::from(pe.tenant != pe.tenant_before);
        self.counts.tlb_misses += u64::from(hardware.tlb_misses.has(hash));
        if hardware.page_faults.is_any() && hardware.page_faults.has(crate::streams::mix(hash)) {
            self.counts.page_faults += 1;
            let time = hardware.page_fault;
            self.offer_core(CoreJob { token: TokenId::NONE, what: What::System, time }, agenda);
        }
    }

    /// Returns the handoff to the step after the token's op.
    #[inline(always)]
    pub(super) fn handoff(&mut self, token: TokenId) -> &'a Handoff {
        let op = self.op(token);
        &op.after[usize::from(self.carries_large(token, op))]
    }

    /// Lets a dispatcher, the manager or a core decide what follows the token's op. The op's output is in an
    /// output entry from `deposit` on. Returns the time at which the entry is clear.
    #[inline(always)]
    pub(super) fn decide_next(
        &mut self,
        kind: Kind,
        token: TokenId,
        handoff: &Handoff,
        deposit: Picos,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        let now = agenda.now();
        match handoff.via {
            Via::Dispatcher => {
                let station = &mut self.stations[kind];
                let end = station.dispatcher_free.max(deposit) + handoff.time;
                station.dispatcher_free = end;
                self.counts.dispatches += 1;
                self.counts.instructions += u64::from(handoff.instructions);
                self.counts.deciding += end.since(now);
                let (op, payload) = (self.op(token), Payload { site: kind.into(), ready: end });
                if op.next.is_some() {
                    // Another op follows most ops, so this skips the check for other continuations.
                    self.tokens[token].at += 1;
                    self.submit(token, self.op(token), payload, agenda)
                } else {
                    self.after_op(token, op, payload, agenda)
                }
            }
            Via::Manager => {
                let end = self.interrupt_manager(handoff.time, deposit, now);
                agenda.at(end, Event::Decided { token });
                end
            }
            Via::Core => {
                self.counts.deciding += handoff.time;
                let (what, time) = (What::Visit, handoff.time);
                self.offer_core(CoreJob { token, what, time }, agenda);
                deposit
            }
        }
    }

    /// Gives the manager work of length `time` that can start at `ready`. Returns the end of this work.
    #[inline(always)]
    pub(super) fn interrupt_manager(&mut self, time: Picos, ready: Picos, now: Picos) -> Picos {
        self.manager_free = self.manager_free.max(ready) + time;
        self.counts.manager_busy += time;
        self.counts.deciding += self.manager_free.since(now);
        self.manager_free
    }

    /// Returns whether the payload that the token's op passes on is too large for an entry.
    #[inline(always)]
    fn carries_large(&mut self, token: TokenId, op: &OpStep) -> bool {
        let at = self.tokens[token].at;
        let carried = match op.next {
            Some(next) => self.drawn(token, at + 1, next),
            None => self.drawn(token, at, op.kind),
        };
        carried.bytes > self.model.spec.hardware.inline_bytes
    }

    /// Executes what follows the token's op. Returns the time at which the output entry is clear.
    pub(super) fn after_op(
        &mut self,
        token: TokenId,
        op: &'a OpStep,
        payload: Payload,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        match (op.continuation, payload.site.accelerator()) {
            (Continuation::Next, _) => {
                self.tokens[token].at += 1;
                self.advance(token, payload, agenda)
            }
            (Continuation::Await, _) => {
                self.tokens[token].at += 1;
                self.wait(token, payload.ready, agenda);
                payload.ready
            }
            (Continuation::Notify, None) => {
                self.tokens[token].at += 1;
                self.end_trace(token, agenda);
                self.advance(token, payload, agenda)
            }
            (Continuation::Notify, Some(from)) => self.notify(token, from, payload.ready, agenda),
        }
    }

    /// Moves the payload to memory and notifies a core. Returns the time at which the output entry is clear.
    fn notify(
        &mut self,
        token: TokenId,
        from: Kind,
        ready: Picos,
        agenda: &mut Schedule<D>,
    ) -> Picos {
        let bytes = self.drawn(token, self.tokens[token].at, from).bytes;
        let inline = bytes.min(self.model.spec.hardware.inline_bytes);
        let payload = Payload { site: from.into(), ready };
        let arrived = self.fabric.carry(payload, Site::CORES, inline) + self.model.notify;
        self.counts.moving += arrived.since(ready);
        agenda.at(arrived, Event::Notified { token });
        arrived
    }

    /// Ends a part of a request. After the last part the request continues, or it fails if a part has failed.
    fn join(&mut self, token: TokenId, agenda: &mut Schedule<D>) {
        let part = self.tokens[token];
        self.tokens.remove(token);
        let whole = &mut self.tokens[part.parent];
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
        self.advance(part.parent, Payload { site: Site::CORES, ready: agenda.now() }, agenda);
    }

    fn complete(&mut self, token: TokenId, agenda: &Schedule<D>) {
        let state = self.tokens[token];
        self.tokens.remove(token);
        let time = agenda.now().since(state.born);
        let service = usize::from(state.service);
        self.counts.requests += 1;
        self.counts.failed += u64::from(state.failed);
        self.counts.missed += u64::from(state.failed || time > self.model.due[service]);
        // The response time of a failed request counts too, because its caller has waited for that time.
        self.responses[service].push(time.0);
        if self.counts.requests > REQUESTS_MAX {
            self.fault = Some(RunError::TooManyRequests { limit: REQUESTS_MAX });
        }
    }
}

/// The priority of arrivals. They come after other events at the same time, because those may free what an arrival
/// needs.
const ARRIVALS_LAST: u8 = 255;
const AGENDA_CAPACITY: usize = 1_024;
