//! Runs the engine's halves in two engines while functions change. Every request is taken over,
//! answered by the functions that received it, and reported once. All packets are valid. The `wild`
//! test also sends invalid packets.

use std::collections::VecDeque;
use std::sync::Arc;

use rpc::idl::{Interpreter, parse};
use rpc::wire::Wire;
use rpc::{
    Address, Code, DataPage, Engine, Flight, Functions, Interface, Limits, Record, Reply, api, call,
};
use units::Prng;

const DEPTH: usize = 3;

struct Apart {
    prng: Prng,
    rx: Engine,
    tx: Engine,
    page: DataPage,
    /// The packet buffers that neither engine holds.
    packets: Vec<Address>,
    records: Vec<Address>,
    response: Address,
    frame: Address,
    /// The requests that were exported and not yet imported. `retiring` holds the token and
    /// packet of each answered request that is still in flight in the receiving engine.
    flying: VecDeque<Flight>,
    retiring: Vec<(u64, Address)>,
    requests: Vec<Vec<u8>>,
    generation: u32,
    sent: usize,
    answered: usize,
    refused: usize,
}

/// Returns a service whose function has another name in each generation.
fn functions(generation: u32) -> Arc<dyn Functions> {
    let idl = format!("service S {{ i64 f{generation}() }}");
    Arc::new(Interpreter::new(parse(&idl).expect("valid")))
}

impl Apart {
    fn new(seed: u64) -> Self {
        let mut page = DataPage::default();
        let [packets, records] =
            [(); 2].map(|()| (0..DEPTH).map(|_| page.map(256)).collect::<Vec<_>>());
        let [response, frame] = [(); 2].map(|()| page.map(256));
        let limits = Limits { depth: DEPTH, flights: DEPTH, field_bytes_max: 64 };
        let engine = || Engine::new(limits, functions(1));
        let mut apart = Self {
            prng: Prng::new(seed),
            rx: engine(),
            tx: engine(),
            page,
            packets,
            records,
            response,
            frame,
            flying: VecDeque::new(),
            retiring: Vec::new(),
            requests: Vec::new(),
            generation: 1,
            sent: 0,
            answered: 0,
            refused: 0,
        };
        apart.await_refusal();
        apart
    }

    fn await_refusal(&mut self) {
        api::net_call_engine_read(&mut self.rx, Address::default()).expect("one such read");
    }

    fn act(&mut self) {
        match self.prng.below(40) {
            0 => self.load(),
            1 => self.settle(),
            2..9 => self.send(),
            9..16 => self.read(),
            16..25 => drop(self.rx.step_rx(&mut self.page)),
            25..30 => self.take(),
            30..35 => self.respond(),
            _ => self.retire(),
        }
    }

    fn send(&mut self) {
        let Some(packet) = self.packets.pop() else { return };
        let place = self.page.bytes_mut(packet).expect("never lent");
        let functions = functions(self.generation);
        let length = call::frame(&*functions, 0, 1, place, |args| args.block(0)).expect("room");
        api::net_call_engine_write(&mut self.rx, packet, length).expect("a buffer each");
        self.sent += 1;
    }

    fn load(&mut self) {
        self.generation += 1;
        let new = functions(self.generation);
        assert_eq!(self.tx.load_ahead(Arc::clone(&new)), self.generation);
        assert_eq!(self.rx.load(new), self.generation);
        assert!(self.rx.generations() <= DEPTH + 1);
    }

    fn read(&mut self) {
        let Some(record) = self.records.pop() else { return };
        api::app_call_engine_read(&mut self.rx, record).expect("a buffer each");
    }

    fn take(&mut self) {
        if let Some(done) = self.rx.take(Interface::NetResp) {
            assert_eq!(done.code, Code::UnknownFunction, "sent before a load, read after");
            self.refused += 1;
            self.packets.push(done.about);
            self.await_refusal();
        }
        let Some(done) = self.rx.take(Interface::AppRecv) else { return };
        let record = &self.page.bytes(done.buffer).expect("mapped")[..done.length];
        let token = Record::read(record).expect("a record").token;
        self.requests.push(record.to_vec());
        self.records.push(done.buffer);
        self.flying.push_back(self.rx.export(token).expect("in flight"));
    }

    fn import(&mut self) {
        for flight in self.flying.drain(..) {
            assert!(self.tx.import(flight), "{flight:?}");
        }
    }

    fn respond(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        self.import();
        let any = self.prng.below(self.requests.len() as u64) as usize;
        let request = self.requests.swap_remove(any);
        let record = Record::read(&request).expect("a record");
        let place = self.page.bytes_mut(self.response).expect("never lent");
        let mut reply = Reply::to(&record, place).expect("room");
        let block = reply.body.block(1).expect("room");
        reply.body.set(block, 0, 7);
        let length = reply.seal(block);
        api::net_call_engine_read(&mut self.tx, self.frame).expect("one at a time");
        api::app_call_engine_write(&mut self.tx, self.response, length).expect("one at a time");
        while self.tx.step_tx(&mut self.page).is_some() {}
        let done = self.tx.take(Interface::NetResp).expect("a frame");
        assert_eq!(done.code, Code::Done);
        let frame = &self.page.bytes(self.frame).expect("mapped")[..done.length];
        let message = Wire::framed(frame, 64).and_then(|mut wire| wire.message());
        let name = format!("f{}", record.generation);
        assert_eq!(message.map(|message| message.name), Ok(name.as_bytes()));
        self.answered += 1;
        self.retiring.push((record.token, done.about));
    }

    fn retire(&mut self) {
        let Some((token, packet)) = self.retiring.pop() else { return };
        self.rx.retire(token);
        self.packets.push(packet);
    }

    /// Takes over the requests in flight once the receiving engine holds only the current service.
    /// The transmitting engine can then drop its old services, as a driver does.
    fn settle(&mut self) {
        if self.rx.generations() == 1 {
            self.import();
            self.tx.all_arrived();
            assert_eq!(self.tx.generations(), 1);
        }
    }
}

#[test]
fn requests_are_answered_by_their_own_functions() {
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..20 {
        let mut apart = Apart::new(seed);
        for _ in 0..2_000 {
            apart.act();
        }
        for _ in 0..10 * DEPTH {
            apart.read();
            while apart.rx.step_rx(&mut apart.page).is_some() {}
            apart.take();
            apart.respond();
            apart.retire();
        }
        apart.settle();
        assert_eq!(apart.answered + apart.refused, apart.sent, "seed {seed}");
        assert_eq!((apart.rx.in_flight(), apart.tx.in_flight()), (0, 0), "seed {seed}");
        assert_eq!((apart.rx.generations(), apart.tx.generations()), (1, 1), "seed {seed}");
        (answered, refused) = (answered + apart.answered, refused + apart.refused);
    }
    assert!(answered > 500 && refused > 100, "{answered} answered, {refused} refused");
}
