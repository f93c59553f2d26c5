//! One run: the order of events between two cores, the command interface and the two halves of the engine. The engine
//! decides what it does with a word or a message, and the specification says what a byte costs.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rpc::{
    Address, Code, Command, Completion, Engine, Half, Interface, Limits, Record, Reply, State, Step,
};

use super::Arcalis;
use super::arena::{Arena, Port};
use super::counts::{Counts, Stage};
use crate::servers::{Offer, Servers};
use crate::study::{Extent, RunError, Sample};
use crate::{Agenda, Draws, Model, Picos, Streams};

pub(super) struct Run<'a> {
    model: &'a Arcalis,
    extent: Extent,
    engine: Engine,
    arena: Arena,
    net: Servers<NetJob>,
    command: Servers<Item>,
    /// For each half of the engine: whether an event that continues it is scheduled.
    pending: [bool; 2],
    /// The free buffers of each interface, used in turn. The index is the interface's number minus one.
    free: [VecDeque<usize>; 4],
    /// The request in each buffer of Net.Recv.
    requests: Vec<Request>,
    /// The number of bytes in each buffer of App.Resp.
    written: Vec<usize>,
    /// The time at which the application core began to wait for its read.
    waits: Picos,
    /// The record of the request that the application core answers.
    record: Vec<u8>,
    came: u64,
    /// Half of the access time: the time of a word or a result between core and command interface.
    crossing: Picos,
    mix: Draws,
    faults: Draws,
    counts: Counts,
    responses: Vec<Vec<u64>>,
    seen: Option<Seen>,
    /// The reason why the run ended early, if it did.
    pub(super) fault: Option<RunError>,
}

/// A record of what the engine received, did and sent in a run. `words` is indexed by the interface's number
/// minus one, and `states` by half (Rx first).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The packets that arrived, in order.
    pub packets: Vec<Vec<u8>>,
    /// The blocks of the application's results, in order.
    pub results: Vec<Vec<u8>>,
    /// The words that the engine received through each interface, in order.
    pub words: [Vec<u64>; 4],
    /// The states of each half, in order.
    pub states: [Vec<State>; 2],
    /// The frames that the engine sent, in order.
    pub frames: Vec<Vec<u8>>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    function: usize,
    since: Picos,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The network core has done a job.
    Net(NetJob),
    /// A word reaches the command interface.
    Word(Interface, u64),
    /// The command interface has handled an item.
    Command(Item),
    /// An engine half leaves its state.
    Step(usize),
    /// The memory operations of an engine half have completed.
    Back(usize),
    /// The result of a load arrives at its core.
    Loaded(Interface, Completion),
    /// The application core has done a job.
    App(AppJob),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NetJob {
    /// Receives a packet into this buffer.
    Receive(usize),
    /// Sends the frame of this completion.
    Send(Completion),
    /// Touches a page that was not mapped, and repeats the commands.
    Retry(Completion),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AppJob {
    /// Handles the request of this completion.
    Handle(Completion, usize),
    /// Touches a page that was not mapped, and repeats the commands.
    Retry(Completion),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Word(Interface, u64),
    Loaded(Interface, Completion),
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Arcalis, streams: &Streams, extent: Extent) -> Self {
        let spec = &model.spec;
        let buffers = spec.memory.buffers;
        let limits = Limits {
            depth: spec.engine.depth,
            flights: spec.window as usize,
            field_bytes_max: spec.memory.buffer_bytes,
        };
        Self {
            engine: Engine::new(limits, model.service.functions()),
            arena: Arena::new(&spec.memory, spec.engine.cache_bytes),
            net: Servers::in_order(1, usize::MAX),
            command: Servers::in_order(1, usize::MAX),
            pending: [false; 2],
            free: [(); 4].map(|()| (0..buffers).collect()),
            requests: vec![Request::default(); buffers],
            written: vec![0; buffers],
            waits: Picos(0),
            record: Vec::new(),
            came: 0,
            crossing: Picos::from_ns(model.access_ns.unwrap_or(0.0) / 2.0),
            mix: streams.named("mix"),
            faults: streams.named("faults"),
            counts: Counts::default(),
            responses: vec![Vec::new(); spec.mix.len()],
            seen: None,
            fault: None,
            model,
            extent,
        }
    }

    /// Records what the engine sees from now on.
    pub(super) fn watch(&mut self) {
        self.seen = Some(Seen::default());
    }

    pub(super) fn seen(&mut self) -> Seen {
        self.seen.take().unwrap_or_default()
    }

    /// Starts the first read of the application core and lets the first requests arrive.
    pub(super) fn start(&mut self, agenda: &mut Agenda<Event>) {
        self.read_app(agenda);
        (0..self.model.spec.window).for_each(|_| self.arrive(agenda));
    }

    pub(super) fn sample(&mut self, agenda: &Agenda<Event>) -> Sample {
        let duration = agenda.now();
        Sample {
            responses: std::mem::take(&mut self.responses),
            facts: self.counts.facts(duration, self.arena.working_set_bytes()),
            events: agenda.fired(),
            duration,
        }
    }

    /// Lets the next request arrive, unless the extent has no further request.
    fn arrive(&mut self, agenda: &mut Agenda<Event>) {
        let more = match self.extent {
            Extent::Requests(count) => self.came < count,
            Extent::WindowPs(window) => agenda.now() < window,
        };
        if more {
            self.came += 1;
            let buffer = self.buffer(Interface::NetRecv);
            let function = self.model.next(&mut self.mix);
            self.requests[buffer] = Request { function, since: agenda.now() };
            let receive = Picos::from_ns(self.model.spec.net.receive_ns) + self.words(3);
            self.net(NetJob::Receive(buffer), receive, agenda);
        }
    }

    /// Returns the time that a core takes to issue this many words.
    fn words(&self, count: u32) -> Picos {
        Picos::from_ns(self.model.spec.core.command_ns * f64::from(count))
    }

    /// Takes a free buffer. There is always one, because there are at least as many buffers as requests in flight.
    fn buffer(&mut self, interface: Interface) -> usize {
        let free = &mut self.free[interface as usize - 1];
        free.pop_front().expect("buffers are at least as many as requests under way")
    }

    fn put_back(&mut self, interface: Interface, at: Address) {
        self.free[interface as usize - 1].push_back(self.arena.buffer(at));
    }

    /// Returns the address of a buffer for a command to the engine. Unmaps the page of a random share of
    /// these addresses.
    fn hand_out(&mut self, interface: Interface, buffer: usize) -> Address {
        let at = self.arena.address(interface, buffer);
        if self.faults.unit() < self.model.spec.memory.fault_share {
            self.arena.unmap(at);
        }
        at
    }

    fn net(&mut self, job: NetJob, service: Picos, agenda: &mut Agenda<Event>) {
        self.counts.add(Stage::Net, service);
        if self.net.offer(agenda.now(), job, service, 0) == Offer::Started {
            agenda.after(service, Event::Net(job));
        }
    }

    fn command(&mut self, item: Item, agenda: &mut Agenda<Event>) {
        let engine = &self.model.spec.engine;
        let service = Picos::from_ns(engine.cycle_ns * engine.command_cycles);
        self.counts.add(Stage::Command, service);
        if self.command.offer(agenda.now(), item, service, 0) == Offer::Started {
            agenda.after(service, Event::Command(item));
        }
    }

    /// Sends a command's word from a core. The core does not wait for the word.
    fn send(&mut self, command: Command, agenda: &mut Agenda<Event>) {
        agenda.after(self.crossing, Event::Word(command.interface(), command.word()));
    }

    fn write_packet(&mut self, at: Address, agenda: &mut Agenda<Event>) {
        let function = self.requests[self.arena.buffer(at)].function;
        let length = self.model.messages[function].packet.len() as u64;
        self.send(Command::SendNetBuf(at), agenda);
        self.send(Command::SendNetLen(length), agenda);
    }

    fn read_net(&mut self, agenda: &mut Agenda<Event>) {
        let buffer = self.buffer(Interface::NetResp);
        let at = self.hand_out(Interface::NetResp, buffer);
        self.send(Command::DpdkNetFlag(at), agenda);
    }

    fn read_app(&mut self, agenda: &mut Agenda<Event>) {
        let buffer = self.buffer(Interface::AppRecv);
        let at = self.hand_out(Interface::AppRecv, buffer);
        self.send(Command::AppReadyFlag(at), agenda);
        self.waits = agenda.now();
    }

    fn write_response(&mut self, at: Address, agenda: &mut Agenda<Event>) {
        let length = self.written[self.arena.buffer(at)] as u64;
        self.send(Command::SendAppBuf(at), agenda);
        self.send(Command::SendAppResp(length), agenda);
    }

    fn net_done(&mut self, job: NetJob, agenda: &mut Agenda<Event>) {
        if let Some((next, service)) = self.net.release(agenda.now()) {
            agenda.after(service, Event::Net(next));
        }
        match job {
            NetJob::Receive(buffer) => {
                let at = self.hand_out(Interface::NetRecv, buffer);
                let packet = &self.model.messages[self.requests[buffer].function].packet;
                self.arena.bytes_mut(at)[..packet.len()].copy_from_slice(packet);
                if let Some(seen) = &mut self.seen {
                    seen.packets.push(packet.clone());
                }
                self.write_packet(at, agenda);
                self.read_net(agenda);
            }
            NetJob::Send(done) => {
                let Request { function, since } = self.requests[self.arena.buffer(done.about)];
                self.responses[function].push(agenda.now().since(since).0);
                self.counts.done += 1;
                self.put_back(Interface::NetRecv, done.about);
                self.put_back(Interface::NetResp, done.buffer);
                self.arrive(agenda);
            }
            NetJob::Retry(done) => {
                self.arena.touch(done.about);
                if done.about != done.buffer {
                    self.write_packet(done.about, agenda);
                }
                self.send(Command::DpdkNetFlag(done.buffer), agenda);
            }
        }
    }

    /// Handles the result of the network core's read.
    fn net_loaded(&mut self, done: Completion, agenda: &mut Agenda<Event>) {
        match done.code {
            Code::Done => {
                let frame = self.arena.bytes(done.buffer, done.length);
                let function = self.requests[self.arena.buffer(done.about)].function;
                if frame != self.model.messages[function].frame {
                    self.fault = Some(RunError::Engine { code: Code::Malformed });
                }
                if let Some(seen) = &mut self.seen {
                    seen.frames.push(frame.to_vec());
                }
                let send = Picos::from_ns(self.model.spec.net.send_ns);
                self.net(NetJob::Send(done), send, agenda);
            }
            Code::Unmapped => {
                self.counts.faults += 1;
                let fault = self.model.spec.memory.fault;
                self.counts.add(Stage::Fault, fault);
                let service = fault + self.words(3);
                self.net(NetJob::Retry(done), service, agenda);
            }
            code => self.fault = Some(RunError::Engine { code }),
        }
    }

    /// Handles the result of the application core's read.
    fn app_loaded(&mut self, done: Completion, agenda: &mut Agenda<Event>) {
        self.counts.add(Stage::AppWait, agenda.now().since(self.waits));
        let words = self.words(3);
        match done.code {
            Code::Done => {
                self.record.clear();
                self.record.extend_from_slice(self.arena.bytes(done.buffer, done.length));
                let number = Record::read(&self.record).map(|record| record.function);
                let mix = &self.model.spec.mix;
                let function = mix.iter().position(|part| Some(part.function.number()) == number);
                let function = function.expect("requests are of the workload's functions");
                let parts = [
                    (Stage::AppHandler, self.model.handler(function)),
                    (Stage::AppBytes, self.model.bytes(function)),
                    (Stage::AppIssue, words),
                ];
                let mut service = Picos(0);
                for (stage, time) in parts {
                    self.counts.add(stage, time);
                    service += time;
                }
                agenda.after(service, Event::App(AppJob::Handle(done, function)));
            }
            Code::Unmapped => {
                self.counts.faults += 1;
                let fault = self.model.spec.memory.fault;
                self.counts.add(Stage::Fault, fault);
                agenda.after(fault + words, Event::App(AppJob::Retry(done)));
            }
            code => self.fault = Some(RunError::Engine { code }),
        }
    }

    fn app_done(&mut self, job: AppJob, agenda: &mut Agenda<Event>) {
        match job {
            AppJob::Handle(done, function) => {
                let buffer = self.buffer(Interface::AppResp);
                let at = self.hand_out(Interface::AppResp, buffer);
                let result = &self.model.messages[function].result;
                if let Some(seen) = &mut self.seen {
                    seen.results.push(result.clone());
                }
                let record = Record::read(&self.record).expect("it was read before");
                let reply = Reply::to(&record, self.arena.bytes_mut(at));
                let length = reply.and_then(|mut reply| {
                    let place = reply.body.copy(rpc::flat::View::new(result))?;
                    Ok(reply.seal(place))
                });
                self.written[buffer] = length.expect("messages fit buffers, or there is no model");
                self.put_back(Interface::AppRecv, done.buffer);
                self.write_response(at, agenda);
                self.read_app(agenda);
            }
            AppJob::Retry(done) => {
                self.arena.touch(done.about);
                if done.about != done.buffer {
                    self.write_response(done.about, agenda);
                }
                self.send(Command::AppReadyFlag(done.buffer), agenda);
                self.waits = agenda.now();
            }
        }
    }

    fn command_done(&mut self, item: Item, agenda: &mut Agenda<Event>) {
        if let Some((next, service)) = self.command.release(agenda.now()) {
            agenda.after(service, Event::Command(next));
        }
        match item {
            Item::Loaded(interface, done) => {
                agenda.after(self.crossing, Event::Loaded(interface, done));
            }
            Item::Word(interface, word) => {
                if let Some(seen) = &mut self.seen {
                    seen.words[interface as usize - 1].push(word);
                }
                self.engine
                    .issue(interface, word)
                    .expect("no more is under way than the engine holds, and all of it is read");
            }
        }
    }

    /// Moves both halves as far as they can go now, and passes on what they completed.
    fn advance(&mut self, agenda: &mut Agenda<Event>) {
        // If the halves are not decoupled, the end of one half's work can start the other half's.
        for half in [0, 1, 0] {
            while !self.pending[half] && self.step(half, agenda) {}
        }
        for interface in [Interface::AppRecv, Interface::NetResp] {
            while let Some(done) = self.engine.take(interface) {
                self.command(Item::Loaded(interface, done), agenda);
            }
        }
    }

    /// Moves a half to its next state. Returns false if the half has to wait.
    fn step(&mut self, half: usize, agenda: &mut Agenda<Event>) -> bool {
        let idle =
            |half| matches!(self.engine.state(HALVES[half]), State::IdleRecv | State::IdleResp);
        if !self.model.spec.engine.decoupled && idle(half) && !idle(1 - half) {
            return false;
        }
        let mut port = Port { arena: &mut self.arena, half };
        let step = match HALVES[half] {
            Half::Rx => self.engine.step_rx(&mut port),
            Half::Tx => self.engine.step_tx(&mut port),
        };
        let Some(step) = step else { return false };
        if let Some(seen) = &mut self.seen {
            seen.states[half].push(step.to);
        }
        if step.to == State::IdleRecv || step.to == State::IdleResp {
            if let Some(at) = step.released.filter(|_| HALVES[half] == Half::Tx) {
                self.put_back(Interface::AppResp, at);
            }
            return true;
        }
        let event = if step.to == State::Drain { Event::Back(half) } else { Event::Step(half) };
        let time = self.charge(half, &step);
        self.pending[half] = true;
        agenda.after(time, event);
        true
    }

    /// Returns the time that a half spends in its new state.
    fn charge(&mut self, half: usize, step: &Step) -> Picos {
        let (engine, memory) = (&self.model.spec.engine, &self.model.spec.memory);
        let cycles = |count: f64| Picos::from_ns(count * engine.cycle_ns);
        let mut parts: Vec<(Stage, Picos)> = Vec::with_capacity(3);
        match (HALVES[half], step.to) {
            (Half::Rx, State::Busy) => {
                parts.push((Stage::RxHeader, cycles(engine.header_cycles)));
                parts.push((Stage::RxDeserialize, cycles(engine.dispatch_cycles)));
            }
            (Half::Tx, State::Busy) => {
                parts.push((Stage::TxSerialize, cycles(engine.serialize_cycles)));
            }
            (Half::Rx, State::Drain) => {
                let bytes = step.work.loaded_bytes as f64;
                let deserialize = engine.deserialize_cycles_per_byte * bytes;
                let deserialize = engine.deserialize_cycles + deserialize;
                parts.push((Stage::RxHeader, cycles(engine.load_cycles_per_byte * bytes)));
                parts.push((Stage::RxDeserialize, cycles(deserialize)));
            }
            (Half::Tx, State::Drain) => {
                let bytes = step.work.stored_bytes as f64;
                let serialize = cycles(engine.serialize_cycles_per_byte * bytes);
                parts.push((Stage::TxSerialize, serialize));
            }
            (Half::Rx, _) => parts.push((Stage::RxFinish, cycles(engine.finish_cycles))),
            (Half::Tx, _) => parts.push((Stage::TxFinish, cycles(engine.finish_cycles))),
        }
        if step.from == State::Busy {
            let reached = self.arena.reached(half, &step.work);
            self.counts.walks += u64::from(reached.walks);
            let misses = reached.misses * memory.miss_ns / memory.misses_in_flight;
            let time = Picos::from_ns(misses + f64::from(reached.walks) * memory.walk_ns);
            parts.push(([Stage::RxMemory, Stage::TxMemory][half], time));
        }
        let mut all = Picos(0);
        for (stage, time) in parts {
            self.counts.add(stage, time);
            all += time;
        }
        all
    }
}

impl Model for Run<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, agenda: &mut Agenda<Event>) -> ControlFlow<()> {
        match event {
            Event::Net(job) => self.net_done(job, agenda),
            Event::Word(interface, word) => self.command(Item::Word(interface, word), agenda),
            Event::Command(item) => self.command_done(item, agenda),
            Event::Step(half) => self.pending[half] = false,
            Event::Back(half) => {
                self.arena.in_flight[half] = 0;
                self.pending[half] = false;
            }
            Event::Loaded(Interface::NetRecv | Interface::NetResp, done) => {
                self.net_loaded(done, agenda);
            }
            Event::Loaded(_, done) => self.app_loaded(done, agenda),
            Event::App(job) => self.app_done(job, agenda),
        }
        self.advance(agenda);
        if self.fault.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

const HALVES: [Half; 2] = [Half::Rx, Half::Tx];
