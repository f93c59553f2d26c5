//! The RPC engine: any words on any interface, any packets and any responses, with memory that comes and goes. Nothing
//! panics, no more is in flight than may be, and a packet that generated code reads is read the same by the interpreter
//! and comes back as the bytes it has.

#![no_main]

#[path = "../../rpc/tests/common/both.rs"]
mod both;

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use both::{Both, Which};
use libfuzzer_sys::fuzz_target;
use rpc::idl::{Interpreter, parse};
use rpc::services::post_storage::PostStorageService;
use rpc::{Address, Code, Command, DataPage, Engine, Interface, Limits, Record, Reply};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Actions(Vec<Action<'a>>),
    Struct { function: u8, answer: bool, wire: &'a [u8] },
    Block { function: u8, answer: bool, block: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
enum Action<'a> {
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

fuzz_target!(|input: Input<'_>| {
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
});

static TABLE: LazyLock<Interpreter> =
    LazyLock::new(|| Interpreter::new(parse(rpc::services::IDL[1].1).expect("valid")));

fn both() -> Both<'static> {
    Both { generated: &PostStorageService, interpreter: &*TABLE }
}

fn act(actions: &[Action<'_>]) {
    let mut page = DataPage::default();
    let buffers = [(); 4].map(|()| page.map(4_096));
    let [packet, record, response, frame] = buffers;
    let limits = Limits { depth: 2, flights: 2, field_bytes_max: 500 };
    let mut engine = Engine::new(limits, Arc::new(PostStorageService));
    let mut lent: Vec<(Address, Box<[u8]>)> = Vec::new();
    let mut request = None;
    for action in actions {
        match *action {
            Action::Word { interface, word } => {
                let _ = engine.issue(INTERFACES[usize::from(interface) % 4], word);
            }
            Action::Packet { header, bytes } => {
                let message = if header { [HEADER, bytes].concat() } else { bytes.to_vec() };
                let whole = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
                let Some(place) = page.bytes_mut(packet) else { continue };
                let length = whole.len().min(place.len());
                place[..length].copy_from_slice(&whole[..length]);
                issue(
                    &mut engine,
                    &[Command::SendNetBuf(packet), Command::SendNetLen(length as u64)],
                );
            }
            Action::Read { app: true } => issue(&mut engine, &[Command::AppReadyFlag(record)]),
            Action::Read { app: false } => issue(&mut engine, &[Command::DpdkNetFlag(frame)]),
            Action::Respond { bytes } => {
                let Some(place) = page.bytes_mut(response) else { continue };
                let length = bytes.len().min(place.len());
                place[..length].copy_from_slice(&bytes[..length]);
                respond(&mut engine, response, length);
            }
            Action::Refuse => {
                let Some(length) = request.take() else { continue };
                let length = refuse(&mut page, record, length, response);
                respond(&mut engine, response, length.unwrap_or(0));
            }
            Action::Step { app: true } => {
                let _ = engine.step_tx(&mut page);
            }
            Action::Step { app: false } => {
                let _ = engine.step_rx(&mut page);
            }
            Action::Take { app: true } => {
                let done = engine.take(Interface::AppRecv);
                request = done.filter(|done| done.code == Code::Done).map(|done| done.length);
            }
            Action::Take { app: false } => {
                let _ = engine.take(Interface::NetResp);
            }
            Action::Lend { buffer } => {
                let at = buffers[usize::from(buffer) % 4];
                lent.extend(page.lend(at).map(|bytes| (at, bytes)));
            }
            Action::PutBack => {
                if let Some((at, bytes)) = lent.pop() {
                    assert!(page.put_back(at, bytes));
                }
            }
            Action::Load => {
                let _ = engine.load(Arc::new(TABLE.clone()));
            }
        }
        assert!(engine.in_flight() <= 2 && engine.generations() <= 3);
    }
}

/// Writes a refusal of the request in `record` to `response`.
fn refuse(page: &mut DataPage, record: Address, length: usize, to: Address) -> Option<usize> {
    let mut place = page.lend(to)?;
    let bytes = page.bytes(record).and_then(|bytes| bytes.get(..length));
    let reply = bytes.and_then(Record::read).and_then(|record| Reply::to(&record, &mut place).ok());
    let length = reply.map(|reply| reply.refuse(Code::QueueFull));
    page.put_back(to, place);
    length
}

fn respond(engine: &mut Engine, response: Address, length: usize) {
    issue(engine, &[Command::SendAppBuf(response), Command::SendAppResp(length as u64)]);
}

fn issue(engine: &mut Engine, commands: &[Command]) {
    for command in commands {
        let _ = engine.issue(command.interface(), command.word());
    }
}

const INTERFACES: [Interface; 4] =
    [Interface::NetRecv, Interface::AppRecv, Interface::AppResp, Interface::NetResp];
const HEADER: &[u8] = b"\x80\x01\0\x01\0\0\0\x09StorePost\0\0\0\x01";
/// Longer than what a fuzzer writes at first, so that a string may be too long and need not.
const FIELD_BYTES_MAX: usize = 1_000;
