//! What NetCore hands frames to and takes answers from, each with the number of who sent it; and the engine with its
//! data page where NetCore's own thread has it. It knows no sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rpc::{Address, Code, DataPage, Engine, Functions, Interface, Limits, api, wire};

/// An engine and what is behind it, wherever its halves run.
pub(super) trait Engines {
    /// Whether another frame can be submitted.
    fn has_room(&self) -> bool;

    /// Whether answers are awaited.
    fn is_busy(&self) -> bool;

    /// Takes a frame, its head included and no longer than a buffer; there has to be room.
    fn submit(&mut self, owner: usize, frame: &[u8]);

    /// Does what this thread has to do; whether anything moved.
    fn turn(&mut self) -> bool;

    /// Hands what there is of answers to `to`, with the number of whom each is for; false if there was nothing.
    fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool;

    /// Whether it can still answer.
    fn is_alive(&self) -> bool;
}

/// Where the application runs: on this thread or behind a mailbox.
pub(super) trait Application {
    /// Moves requests to the application and responses from it; whether anything moved.
    fn turn(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool;

    /// The engine is through with this response.
    fn released(&mut self, page: &mut DataPage, response: Address);

    /// Whether it can still answer.
    fn is_alive(&self) -> bool {
        true
    }
}

/// What a frame was answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A frame to send; empty if none is awaited.
    Frame(&'a [u8]),
    /// The same, and it tells the caller of a refusal.
    Refusal(&'a [u8]),
    /// The message does not say who calls what: the connection is of no more use.
    None,
}

/// The engine on NetCore's thread, with an application.
pub(super) struct Together<A> {
    exchange: Exchange,
    app: A,
    /// How long the engine and the application took, where that is asked for (ns).
    took_ns: Option<Arc<AtomicU64>>,
}

impl<A: Application> Together<A> {
    pub(super) fn new(exchange: Exchange, app: A, took_ns: Option<Arc<AtomicU64>>) -> Self {
        Self { exchange, app, took_ns }
    }
}

impl<A: Application> Engines for Together<A> {
    fn has_room(&self) -> bool {
        self.exchange.owners.len() < self.exchange.depth
    }

    fn is_busy(&self) -> bool {
        !self.exchange.owners.is_empty()
    }

    fn submit(&mut self, owner: usize, frame: &[u8]) {
        self.exchange.submit(owner, frame);
    }

    fn turn(&mut self) -> bool {
        let Some(took_ns) = &self.took_ns else { return self.exchange.turn(&mut self.app) };
        if self.exchange.owners.is_empty() {
            return false;
        }
        let begun = Instant::now();
        let moved = self.exchange.turn(&mut self.app);
        took_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        moved
    }

    fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        self.exchange.take(to)
    }

    fn is_alive(&self) -> bool {
        self.app.is_alive()
    }
}

pub(super) struct Exchange {
    pub(super) engine: Engine,
    pub(super) page: DataPage,
    /// Buffers for packets and frames that nothing lies in.
    packets: Vec<Address>,
    frames: Vec<Address>,
    /// Whose packet lies where, and how long it is.
    owners: Vec<(Address, usize, usize)>,
    depth: usize,
}

impl Exchange {
    /// With room for `depth` packets of at most `buffer_bytes`.
    pub(super) fn new(functions: Arc<dyn Functions>, depth: usize, buffer_bytes: usize) -> Self {
        let limits = Limits { depth, flights: depth, field_bytes_max: buffer_bytes };
        let mut page = DataPage::default();
        let packets = (0..depth).map(|_| page.map(buffer_bytes)).collect();
        // A refusal has to fit whatever the longest message is.
        let frame_bytes = buffer_bytes + REFUSAL_BYTES;
        let frames = (0..depth).map(|_| page.map(frame_bytes)).collect();
        Self {
            engine: Engine::new(limits, functions),
            page,
            packets,
            frames,
            owners: Vec::new(),
            depth,
        }
    }

    /// Takes a frame, its head included and no longer than a buffer; there has to be room.
    pub(super) fn submit(&mut self, owner: usize, frame: &[u8]) {
        let packet = self.packets.pop().expect("there is room, and a buffer for each place");
        let place = self.page.bytes_mut(packet).expect("packets are never lent");
        place[..frame.len()].copy_from_slice(frame);
        self.owners.push((packet, owner, frame.len()));
        let issued = api::net_call_engine_write(&mut self.engine, packet, frame.len());
        issued.expect("no more is written than the engine's depth, and all of it is read");
        let frame = self.frames.pop().expect("a buffer for each packet");
        let issued = api::net_call_engine_read(&mut self.engine, frame);
        issued.expect("one read for each packet, and what it returned is taken");
    }

    /// Steps engine and application until neither moves; whether anything did. A profile finds the RPC layer with the
    /// business logic in it by this function.
    #[inline(never)]
    pub(super) fn turn(&mut self, app: &mut impl Application) -> bool {
        let mut moved = false;
        loop {
            let mut again = app.turn(&mut self.engine, &mut self.page);
            while self.engine.step_rx(&mut self.page).is_some() {
                again = true;
            }
            while let Some(step) = self.engine.step_tx(&mut self.page) {
                again = true;
                if let Some(response) = step.released {
                    app.released(&mut self.page, response);
                }
            }
            moved |= again;
            if !again {
                return moved;
            }
        }
    }

    /// Hands the next answer to `to`, with the number of whom it is for; false if there is none.
    pub(super) fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        let Some(done) = self.engine.take(Interface::NetResp) else { return false };
        self.frames.push(done.buffer);
        let place = self.owners.iter().position(|(packet, ..)| *packet == done.about);
        debug_assert!(place.is_some(), "{done:?} is about no packet of ours");
        let Some(place) = place else { return true };
        let (packet, owner, length) = self.owners.swap_remove(place);
        self.packets.push(packet);
        if done.code == Code::Done {
            let frame = self.page.bytes(done.buffer).and_then(|bytes| bytes.get(..done.length));
            to(owner, frame.map_or(Answer::None, Answer::Frame));
        } else {
            let message = self.page.bytes(packet).and_then(|bytes| bytes.get(..length));
            refusal(message, done.code, |answer| to(owner, answer));
        }
        true
    }
}

/// What a packet that the engine refused is answered with.
pub(super) fn refusal(packet: Option<&[u8]>, code: Code, to: impl FnOnce(Answer<'_>)) {
    let mut frame = vec![0; packet.map_or(0, <[u8]>::len) + REFUSAL_BYTES];
    let length = packet.and_then(|bytes| wire::refusal(bytes, code, &mut frame));
    to(length.map_or(Answer::None, |length| Answer::Refusal(&frame[..length])));
}

/// A refusal repeats the function's name, which is part of the message, and adds less than this.
pub(super) const REFUSAL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use rpc::idl::{Interpreter, parse};
    use rpc::services::unique_id::UniqueIdService;
    use rpc::{Record, Reply, call};

    use super::super::apart::Apart;
    use super::super::handlers::Handler;
    use super::super::inline::Inline;
    use super::super::mailbox::rest;
    use super::super::split::Split;
    use super::*;

    struct Seven;

    impl Handler for Seven {
        fn handle(&mut self, _: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
            let block = reply.body.block(1)?;
            reply.body.set(block, 0, 7);
            Ok(block)
        }
    }

    /// Counts what nobody awaits an answer to, and says how many there were to who does.
    struct Noted(u64);

    impl Handler for Noted {
        fn handle(&mut self, call: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
            self.0 += u64::from(call.function == NOTE);
            let block = reply.body.block(1)?;
            reply.body.set(block, 0, self.0);
            Ok(block)
        }
    }

    const NOTE: u32 = 0;
    const COUNT: u32 = 1;

    #[test]
    fn calls_without_an_answer_are_handled_and_hold_nobody_up() {
        const DEPTH: usize = 2;
        const ROOM: usize = 1_024;
        let schema = parse("service S { oneway void note(1: i64 of) i64 count() }").expect("valid");
        let functions: Arc<dyn Functions> = Arc::new(Interpreter::new(schema));
        let exchange = |depth| Exchange::new(Arc::clone(&functions), depth, ROOM);
        let noted = || Box::new(Noted(0));
        let (mut one, mut two) = (exchange(1), exchange(DEPTH));
        let inline = Inline::new(noted(), &mut one, ROOM);
        let split = Split::start(noted(), &mut two, DEPTH, ROOM, None).expect("it starts");
        let apart = Apart::start(&functions, noted(), DEPTH, ROOM, [None; 3]).expect("it starts");
        let mut layouts: [Box<dyn Engines>; 3] = [
            Box::new(Together::new(one, inline, None)),
            Box::new(Together::new(two, split, None)),
            Box::new(apart),
        ];
        for engines in &mut layouts {
            for round in 1..=50 {
                for function in [NOTE, NOTE, NOTE, COUNT] {
                    let mut frame = [0; 256];
                    let args = |args: &mut rpc::flat::Build<'_>| args.block(1);
                    let length = call::frame(&*functions, function, 3, &mut frame, args);
                    engines.submit(7, &frame[..length.expect("room")]);
                    let mut answer = None;
                    let mut idle = 0;
                    while engines.is_busy() {
                        engines.turn();
                        engines.take(&mut |owner, bytes| {
                            let Answer::Frame(bytes) = bytes else { panic!("{bytes:?}") };
                            answer = Some((owner, bytes.to_vec()));
                        });
                        idle += 1;
                        rest(idle);
                    }
                    let (owner, frame) = answer.expect("the caller is told");
                    assert_eq!((owner, frame.is_empty()), (7, function == NOTE));
                    if function == COUNT {
                        // The number is before the struct's last byte.
                        let count = frame[..frame.len() - 1].last_chunk().copied();
                        assert_eq!(count.map(u64::from_be_bytes), Some(3 * round));
                    }
                }
            }
        }
    }

    #[test]
    fn frames_go_through_engine_and_handler_and_refusals_come_back() {
        let mut exchange = Exchange::new(Arc::new(UniqueIdService), 1, 1024);
        let app = Inline::new(Box::new(Seven), &mut exchange, 1024);
        let mut together = Together::new(exchange, app, None);
        let mut frame = [0; 256];
        let length = call::frame(&UniqueIdService, 0, 3, &mut frame, |args| args.block(3));
        let length = length.expect("room");
        for (bytes, refused) in [(&frame[..length], false), (&frame[..length - 1], true)].repeat(9)
        {
            let mut bytes = bytes.to_vec();
            let message_bytes = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&message_bytes.to_be_bytes());
            assert!(together.has_room());
            together.submit(11, &bytes);
            together.turn();
            let answered = together.take(&mut |owner, answer| {
                assert_eq!(owner, 11);
                let is_refusal = matches!(answer, Answer::Refusal(_));
                assert_eq!(is_refusal, refused, "{answer:?}");
            });
            assert!(answered);
        }
        assert!(!together.is_busy());
    }
}
