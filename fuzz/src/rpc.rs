//! Tests the RPC engine with any words on any interface, any packets and any responses, while buffers are lent and
//! returned. Nothing may panic, and no more requests may be in flight than the limit. A packet that no random word
//! touched must be reported once. The interpreter must read a packet as generated code does, and writing it again must
//! give the same bytes.

#[path = "../../rpc/tests/suite/common/both.rs"]
mod both;

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use both::{Both, Which};
use rpc::idl::{Interpreter, parse};
use rpc::services::post_storage::PostStorageService;
use rpc::{Address, Code, Command, DataPage, Engine, Interface, Limits, Record, Reply};

#[derive(Arbitrary, Debug)]
pub(super) enum Input<'a> {
    Actions(Vec<Action<'a>>),
    Struct { function: u8, answer: bool, wire: &'a [u8] },
    Block { function: u8, answer: bool, block: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
pub(super) enum Action<'a> {
    Word { interface: u8, word: u64 },
    Packet { header: bool, bytes: &'a [u8] },
    Read { app: bool },
    Respond { bytes: &'a [u8] },
    Refuse,
    Step { app: bool },
    Take { app: bool },
    Lend { buffer: u8 },
    PutBack,
    Load,
}

pub(super) fn fuzz(input: Input<'_>) {
    match input {
        Input::Actions(actions) => act(&actions),
        Input::Struct { function, answer, wire } => {
            let which = Which { function: function.into(), answer };
            let Ok(block) = both().read(which, wire, FIELD_BYTES_MAX) else { return };
            let Ok(back) = both().write(which, &block) else { return };
            let again = both().read(which, &back, FIELD_BYTES_MAX).expect("ours");
            let twice = both().write(which, &again);
            assert_eq!(twice.as_ref(), Ok(&back), "a struct has one encoding");
        }
        Input::Block { function, answer, block } => {
            let _ = both().write(Which { function: function.into(), answer }, block);
        }
    }
}

static TABLE: LazyLock<Interpreter> =
    LazyLock::new(|| Interpreter::new(parse(rpc::services::IDL[1].1).expect("valid")));

fn both() -> Both<'static> {
    Both { generated: &PostStorageService, interpreter: &*TABLE }
}

/// An engine with its buffers, and the counts of what happened.
struct Driven {
    engine: Engine,
    page: DataPage,
    packet: Address,
    response: Address,
    frame: Address,
    /// App.Recv buffers that the engine does not have. They are listed so that no request overwrites another.
    records: Vec<Address>,
    /// All requests that the application has received.
    requests: Vec<Vec<u8>>,
    started: usize,
    reported: usize,
}

fn act(actions: &[Action<'_>]) {
    let mut page = DataPage::default();
    let buffers = [(); 5].map(|()| page.map(4_096));
    let [packet, response, frame, records @ ..] = buffers;
    let limits = Limits { depth: 2, flights: 2, field_bytes_max: 500 };
    let mut driven = Driven {
        engine: Engine::new(limits, Arc::new(PostStorageService)),
        page,
        packet,
        response,
        frame,
        records: records.to_vec(),
        requests: Vec::new(),
        started: 0,
        reported: 0,
    };
    let mut lent: Vec<(Address, Box<[u8]>)> = Vec::new();
    for action in actions {
        match *action {
            Action::Word { interface, word } => {
                let _ = driven.engine.issue(INTERFACES[usize::from(interface) % 4], word);
            }
            Action::Packet { header, bytes } => driven.send(header, bytes),
            Action::Read { app } => driven.read(app),
            Action::Respond { bytes } => {
                let Some(place) = driven.page.bytes_mut(response) else { continue };
                let length = bytes.len().min(place.len());
                place[..length].copy_from_slice(&bytes[..length]);
                driven.respond(length);
            }
            Action::Refuse => driven.refuse(driven.requests.len().wrapping_sub(1)),
            Action::Step { app: true } => drop(driven.engine.step_tx(&mut driven.page)),
            Action::Step { app: false } => drop(driven.engine.step_rx(&mut driven.page)),
            Action::Take { app } => drop(driven.take(app)),
            Action::Lend { buffer } => {
                let at = buffers[usize::from(buffer) % buffers.len()];
                lent.extend(driven.page.lend(at).map(|bytes| (at, bytes)));
            }
            Action::PutBack => {
                if let Some((at, bytes)) = lent.pop() {
                    assert!(driven.page.put_back(at, bytes));
                }
            }
            Action::Load => {
                let _ = driven.engine.load(Arc::new(TABLE.clone()));
            }
        }
        assert!(driven.engine.in_flight() <= 2 && driven.engine.generations() <= 3);
    }
    // The effects of a random word are not counted.
    if !actions.iter().any(|action| matches!(action, Action::Word { .. })) {
        lent.into_iter().for_each(|(at, bytes)| assert!(driven.page.put_back(at, bytes)));
        driven.drain();
    }
}

impl Driven {
    fn send(&mut self, header: bool, bytes: &[u8]) {
        let message = if header { [HEADER, bytes].concat() } else { bytes.to_vec() };
        let whole = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
        let Some(place) = self.page.bytes_mut(self.packet) else { return };
        let length = whole.len().min(place.len());
        place[..length].copy_from_slice(&whole[..length]);
        let words = [Command::SendNetBuf(self.packet), Command::SendNetLen(length as u64)];
        self.started += usize::from(self.issue(&words));
    }

    fn read(&mut self, app: bool) {
        if !app {
            self.issue(&[Command::DpdkNetFlag(self.frame)]);
        } else if let Some(record) = self.records.pop()
            && !self.issue(&[Command::AppReadyFlag(record)])
        {
            self.records.push(record);
        }
    }

    fn take(&mut self, app: bool) -> Option<Code> {
        if !app {
            let done = self.engine.take(Interface::NetResp)?;
            self.reported += usize::from(done.about == self.packet);
            return Some(done.code);
        }
        let done = self.engine.take(Interface::AppRecv)?;
        // A buffer from a random word does not belong to this test.
        if !self.records.contains(&done.buffer) && self.records.len() < 2 {
            self.records.push(done.buffer);
        }
        let record = self.page.bytes(done.buffer).and_then(|bytes| bytes.get(..done.length));
        if let Some(record) = record.filter(|_| done.code == Code::Done) {
            self.requests.push(record.to_vec());
        }
        Some(done.code)
    }

    /// Refuses one of the received requests, if there is a request with this index.
    fn refuse(&mut self, request: usize) {
        let Some(bytes) = self.requests.get(request) else { return };
        let Some(place) = self.page.bytes_mut(self.response) else { return };
        let reply = Record::read(bytes).and_then(|record| Reply::to(&record, place).ok());
        let Some(length) = reply.map(|reply| reply.refuse(Code::QueueFull)) else { return };
        self.respond(length);
    }

    fn respond(&mut self, length: usize) {
        let words = [Command::SendAppBuf(self.response), Command::SendAppResp(length as u64)];
        self.issue(&words);
    }

    /// Answers all requests again and again. Checks that each started packet was reported once.
    fn drain(&mut self) {
        for round in 0..4 * self.requests.len() + 64 {
            self.read(true);
            self.read(false);
            while self.engine.step_rx(&mut self.page).is_some() {}
            while self.engine.step_tx(&mut self.page).is_some() {}
            while self.take(true).is_some() | self.take(false).is_some() {}
            self.refuse(round % self.requests.len().max(1));
        }
        assert_eq!((self.reported, self.engine.in_flight()), (self.started, 0), "lost");
    }

    /// Returns whether the engine accepted all words.
    fn issue(&mut self, words: &[Command]) -> bool {
        words.iter().all(|word| self.engine.issue(word.interface(), word.word()).is_ok())
    }
}

const INTERFACES: [Interface; 4] =
    [Interface::NetRecv, Interface::AppRecv, Interface::AppResp, Interface::NetResp];
const HEADER: &[u8] = b"\x80\x01\0\x01\0\0\0\x09StorePost\0\0\0\x01";
/// The longest field (bytes). It exceeds a fuzzer's first strings, so shorter and longer strings occur.
const FIELD_BYTES_MAX: usize = 1_000;
