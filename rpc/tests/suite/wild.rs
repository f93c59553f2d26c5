//! Sends random words, packets and responses, valid and invalid. The engine must never panic, must
//! hold no more than its limits, and must report every packet exactly once.

use std::sync::Arc;

use rpc::flat::Build;
use rpc::idl::{Schema, parse};
use rpc::services::post_storage::PostStorageService;
use rpc::{
    Address, Code, Command, Completion, DataPage, Engine, Interface, Limits, Record, Reply, call,
};
use units::Prng;

const DEPTH: usize = 3;
const BUFFERS: usize = 4;

struct Wild {
    prng: Prng,
    schema: Schema,
    engine: Engine,
    page: DataPage,
    packets: Vec<Address>,
    /// The App.Recv buffers that the engine does not hold. `reading` contains the buffers that it holds.
    records: Vec<Address>,
    reading: Vec<Address>,
    frames: Vec<Address>,
    /// The free App.Resp buffers. `answered` contains the buffers in use, each with the request
    /// that its content answers.
    responses: Vec<Address>,
    answered: Vec<(Address, Vec<u8>)>,
    /// The packets that were started and not yet reported.
    started: Vec<Address>,
    reported: usize,
    requests: Vec<Vec<u8>>,
}

impl Wild {
    fn new(seed: u64) -> Self {
        let mut page = DataPage::default();
        let mut map = |bytes| -> Vec<Address> { (0..BUFFERS).map(|_| page.map(bytes)).collect() };
        let (packets, records) = (map(2_048), map(8_192));
        let (responses, frames) = (map(8_192), map(2_048));
        let limits = Limits { depth: DEPTH, flights: DEPTH, field_bytes_max: 64 };
        Self {
            prng: Prng::new(seed),
            schema: parse(rpc::services::IDL[1].1).expect("valid"),
            engine: Engine::new(limits, Arc::new(PostStorageService)),
            page,
            packets,
            records,
            reading: Vec::new(),
            frames,
            responses,
            answered: Vec::new(),
            started: Vec::new(),
            reported: 0,
            requests: Vec::new(),
        }
    }

    fn one_of(&mut self, list: fn(&Self) -> &Vec<Address>) -> Address {
        let choice = self.prng.below(BUFFERS as u64) as usize;
        list(self)[choice]
    }

    fn act(&mut self) {
        match self.prng.below(10) {
            0 => self.wild_word(),
            1 | 2 => self.send(),
            3 => self.read_frame(),
            4 => self.read_request(),
            5 => self.respond(true),
            6 | 7 => {
                self.engine.step_rx(&mut self.page);
            }
            8 => self.step_tx(),
            _ => self.take(),
        }
        assert!(self.engine.in_flight() <= DEPTH);
    }

    fn read_frame(&mut self) {
        let frame = self.one_of(|wild| &wild.frames);
        let _ = self.engine.issue(Interface::NetResp, Command::DpdkNetFlag(frame).word());
    }

    /// Offers each buffer only once. Otherwise a request could overwrite another request, which
    /// would be an error of the test.
    fn read_request(&mut self) {
        let Some(record) = self.records.pop() else { return };
        let word = Command::AppReadyFlag(record).word();
        let issued = self.engine.issue(Interface::AppRecv, word);
        let list = if issued.is_ok() { &mut self.reading } else { &mut self.records };
        list.push(record);
    }

    fn step_tx(&mut self) {
        let step = self.engine.step_tx(&mut self.page);
        if let Some(response) = step.and_then(|step| step.released) {
            self.answered.retain(|(known, _)| *known != response);
            self.responses.push(response);
        }
    }

    /// Ends the random input and checks that every packet that was started is reported.
    fn drain(&mut self) {
        for _ in 0..500 {
            self.read_frame();
            self.read_request();
            self.respond(false);
            while self.engine.step_rx(&mut self.page).is_some() {}
            (0..4).for_each(|_| self.step_tx());
            self.take();
        }
        assert!(self.started.is_empty(), "never told of: {:?}", self.started);
        assert_eq!(self.engine.in_flight(), 0);
    }

    /// Issues a random word at any interface except Net.Recv, because packets start at Net.Recv and
    /// the test counts them.
    fn wild_word(&mut self) {
        let word = self.prng.bits() >> self.prng.below(64);
        let places = [Interface::AppRecv, Interface::AppResp, Interface::NetResp];
        let interface = places[self.prng.below(3) as usize];
        let _ = self.engine.issue(interface, word);
    }

    fn send(&mut self) {
        let mut bytes = vec![0; 16_384];
        let mut build = Build::new(&mut bytes);
        let function = self.prng.below(3) as u32;
        let args = self.schema.functions[function as usize].args;
        let block = crate::common::random(&self.schema, args, &mut self.prng, &mut build);
        let used = build.used();
        let packet = self.one_of(|wild| &wild.packets);
        let place = self.page.bytes_mut(packet).expect("never lent");
        let args = rpc::flat::View::new(&bytes[block..used]);
        let Ok(length) = call::write(&PostStorageService, function, 1, args, place) else { return };
        for _ in 0..self.prng.below(3) {
            let at = self.prng.below(length as u64) as usize;
            place[at] = self.prng.bits() as u8;
        }
        if self.engine.issue(Interface::NetRecv, Command::SendNetBuf(packet).word()).is_err() {
            return;
        }
        let word = Command::SendNetLen(length as u64).word();
        if self.engine.issue(Interface::NetRecv, word).is_ok() {
            self.started.push(packet);
        }
    }

    fn respond(&mut self, wild: bool) {
        let Some(response) = self.responses.pop() else { return };
        let Some(request) = self.requests.pop() else { return self.responses.push(response) };
        let mut bytes = self.page.lend(response).expect("here");
        let record = Record::read(&request).expect("the engine wrote it");
        let mut reply = Reply::to(&record, &mut bytes).expect("room");
        let result = self.schema.functions[record.function as usize].result;
        let length = if wild && self.prng.below(4) > 0 {
            let block =
                crate::common::random(&self.schema, result, &mut self.prng, &mut reply.body);
            reply.seal(block)
        } else {
            reply.refuse(Code::QueueFull)
        };
        if wild && self.prng.below(4) == 0 {
            // The damage is behind the token, so that the answered request is not in doubt.
            let at = 8 + self.prng.below(192) as usize;
            bytes[at] = self.prng.bits() as u8;
        }
        assert!(self.page.put_back(response, bytes));
        let words = [Command::SendAppBuf(response), Command::SendAppResp(length as u64)];
        let mut issue = |word: Command| self.engine.issue(Interface::AppResp, word.word());
        if words.into_iter().all(|word| issue(word).is_ok()) {
            self.answered.push((response, request));
        } else {
            self.responses.push(response);
            self.requests.push(request);
        }
    }

    fn take(&mut self) {
        let of_app = self.engine.take(Interface::AppRecv);
        let read = of_app.and_then(|done| self.reading.iter().position(|at| *at == done.buffer));
        self.records.extend(read.map(|place| self.reading.swap_remove(place)));
        match of_app {
            Some(Completion { code: Code::Done, length, buffer, .. }) => {
                let record = &self.page.bytes(buffer).expect("mapped")[..length];
                self.requests.push(record.to_vec());
            }
            Some(refused) => {
                let place = self.answered.iter().position(|(at, _)| *at == refused.about);
                let again = place.map(|place| self.answered.swap_remove(place));
                if let Some((response, request)) = again {
                    self.responses.push(response);
                    self.requests.push(request);
                }
            }
            None => {}
        }
        let Some(done) = self.engine.take(Interface::NetResp) else { return };
        let of_words = matches!(done.code, Code::BadOpcode | Code::Unarmed);
        // The subject of a read is its own buffer if the queue of reads was full or the buffer was
        // not mapped.
        if of_words || done.about == done.buffer {
            return;
        }
        let place = self.started.iter().position(|packet| *packet == done.about);
        self.started.remove(place.expect("each packet is told of once"));
        self.reported += 1;
    }
}

#[test]
fn nothing_panics_and_every_packet_is_told_of_once() {
    let mut reported = 0;
    for seed in 0..20 {
        let mut wild = Wild::new(seed);
        for _ in 0..5_000 {
            wild.act();
        }
        wild.drain();
        reported += wild.reported;
    }
    assert!(reported > 2_000, "{reported} packets came back");
}

#[test]
fn any_bytes_are_a_message_or_refused() {
    let mut prng = Prng::new(3);
    let mut bytes = vec![0; 256];
    let mut refused = 0;
    for _ in 0..20_000 {
        let length = prng.below(256) as usize;
        prng.fill(&mut bytes[..length]);
        // Most headers are valid, so that the engine reads what follows them.
        if prng.below(8) > 0 && length > 30 {
            bytes[..4].copy_from_slice(&(length as u32 - 4).to_be_bytes());
            bytes[4..24].copy_from_slice(b"\x80\x01\0\x01\0\0\0\x08ReadPost\0\0\0\x01");
            bytes[24] = [10, 11, 12, 13, 14, 15, 2][prng.below(7) as usize];
        }
        let mut bench = crate::common::Bench::new(Limits::default(), Arc::new(PostStorageService));
        rpc::api::app_call_engine_read(&mut bench.engine, bench.app_recv).expect("taken");
        bench.send(&bytes[..length]);
        bench.settle();
        refused += u32::from(bench.frame().is_some());
    }
    assert!(refused > 10_000);
}
