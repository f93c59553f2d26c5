//! The interface through which NetCore submits frames and takes answers, each with the number of
//! its owner. This module also has the engine and its data page for the layouts that run them on
//! NetCore's thread. It does not use sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rpc::{Address, Code, DataPage, Engine, Functions, Interface, Limits, api, wire};

/// An engine and its application, wherever the engine's halves run.
pub(super) trait Engines {
    /// Returns whether another frame can be submitted.
    fn has_capacity(&self) -> bool;

    /// Returns whether submitted frames are still unanswered.
    fn is_busy(&self) -> bool;

    /// Submits a frame, which includes its head and is not longer than a buffer. Call it only if
    /// [`Engines::has_capacity`] returns true.
    fn submit(&mut self, owner: usize, frame: &[u8]);

    /// Advances the part of the engines and the application that runs on this thread. Returns
    /// whether anything moved.
    fn turn(&mut self) -> bool;

    /// Passes an answer with the number of its owner to `to`. Returns false if there was no answer.
    fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool;

    /// Returns whether the engine and the application can still answer.
    fn is_alive(&self) -> bool;
}

/// The application, on this thread or on another thread behind mailboxes.
pub(super) trait Application {
    /// Moves requests from the engine to the application, and responses in the other direction.
    /// Returns whether anything moved.
    fn turn(&mut self, engine: &mut Engine, page: &mut DataPage) -> bool;

    /// Notifies the application that the engine has finished with a response.
    fn released(&mut self, page: &mut DataPage, response: Address);

    /// Returns whether the application can still answer.
    fn is_alive(&self) -> bool {
        true
    }
}

/// The answer to a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// A frame to send. It is empty if the caller expects no answer.
    Frame(&'a [u8]),
    /// A frame to send, which reports a refusal to the caller.
    Refusal(&'a [u8]),
    /// There is no answer, because the message's header cannot be read or the refusal does not fit
    /// into a buffer. The connection is then unusable.
    None,
}

/// The engine on NetCore's thread, with an application.
pub(super) struct SingleEngine<A> {
    exchange: Exchange,
    app: A,
    /// The stopwatch, if the time per frame is measured.
    stopwatch: Option<Stopwatch>,
}

/// Measures the time of frames from submission to answer. It includes words, buffers, engine and
/// application.
struct Stopwatch {
    /// The time of all frames together (ns).
    took_ns: Arc<AtomicU64>,
    /// The time at which the frame in flight was submitted.
    begun: Instant,
}

impl<A: Application> SingleEngine<A> {
    /// Creates the engine. If `took_ns` is given, the time of each frame is added to it, and at
    /// most one frame may be in flight.
    pub(super) fn new(exchange: Exchange, app: A, took_ns: Option<Arc<AtomicU64>>) -> Self {
        let stopwatch = took_ns.map(|took_ns| Stopwatch { took_ns, begun: Instant::now() });
        Self { exchange, app, stopwatch }
    }
}

impl<A: Application> Engines for SingleEngine<A> {
    fn has_capacity(&self) -> bool {
        self.exchange.owners.len() < self.exchange.depth
    }

    fn is_busy(&self) -> bool {
        !self.exchange.owners.is_empty()
    }

    fn submit(&mut self, owner: usize, frame: &[u8]) {
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.begun = Instant::now();
        }
        self.exchange.submit(owner, frame);
    }

    fn turn(&mut self) -> bool {
        self.exchange.turn(&mut self.app)
    }

    fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        let Some(Stopwatch { took_ns, begun }) = &self.stopwatch else {
            return self.exchange.take(to);
        };
        self.exchange.take(&mut |owner, answer| {
            took_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
            to(owner, answer);
        })
    }

    fn is_alive(&self) -> bool {
        self.app.is_alive()
    }
}

pub(super) struct Exchange {
    pub(super) engine: Engine,
    pub(super) page: DataPage,
    /// The free buffers for packets. `frames` are the free buffers for frames.
    packets: Vec<Address>,
    frames: Vec<Address>,
    /// The packets in flight, each with its buffer, owner and length.
    owners: Vec<(Address, usize, usize)>,
    depth: usize,
    buffer_bytes: usize,
}

impl Exchange {
    /// Creates an engine with capacity for `depth` packets of at most `buffer_bytes`.
    pub(super) fn new(functions: Arc<dyn Functions>, depth: usize, buffer_bytes: usize) -> Self {
        let limits = Limits { depth, flights: depth, field_bytes_max: buffer_bytes };
        let mut page = DataPage::default();
        let packets = (0..depth).map(|_| page.map(buffer_bytes)).collect();
        let frames = (0..depth).map(|_| page.map(buffer_bytes)).collect();
        Self {
            engine: Engine::new(limits, functions),
            page,
            packets,
            frames,
            owners: Vec::new(),
            depth,
            buffer_bytes,
        }
    }

    /// Submits a frame, which includes its head and is not longer than a buffer. The engine must
    /// have capacity for it.
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

    /// Steps engine and application until neither moves. Returns whether anything moved. Profiles
    /// find the RPC layer, including the business logic, by the name of this function.
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

    /// Passes the next answer with the number of its owner to `to`. Returns false if there is no
    /// answer.
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
            refusal(message, done.code, self.buffer_bytes, |answer| to(owner, answer));
        }
        true
    }
}

/// Calls `to` with the answer to a packet that the engine refused. The answer names the function.
/// It is [`Answer::None`] if it would not fit into `buffer_bytes`.
pub(super) fn refusal(
    packet: Option<&[u8]>,
    code: Code,
    buffer_bytes: usize,
    to: impl FnOnce(Answer<'_>),
) {
    let frame_bytes = packet.map_or(0, <[u8]>::len) + REFUSAL_BYTES;
    let mut frame = vec![0; frame_bytes.min(buffer_bytes)];
    let length = packet.and_then(|bytes| wire::refusal(bytes, code, &mut frame));
    to(length.map_or(Answer::None, |length| Answer::Refusal(&frame[..length])));
}

/// An upper bound of the size of a refusal without the function's name (bytes). The name is part of
/// the refused message.
const REFUSAL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use rpc::idl::{Interpreter, parse};
    use rpc::services::unique_id::UniqueIdService;
    use rpc::{Record, Reply, call};

    use super::super::four_thread::FourThread;
    use super::super::handlers::Handler;
    use super::super::inline::Inline;
    use super::super::mailbox::back_off;
    use super::super::two_thread::TwoThread;
    use super::*;

    struct Seven;

    impl Handler for Seven {
        fn handle(&mut self, _: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
            let block = reply.body.block(1)?;
            reply.body.set(block, 0, 7);
            Ok(block)
        }
    }

    /// Counts the oneway requests. Answers other requests with the count.
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
        let two_thread = TwoThread::start(noted(), &mut two, DEPTH, ROOM, None).expect("it starts");
        let four_thread =
            FourThread::start(&functions, noted(), DEPTH, ROOM, [None; 3]).expect("it starts");
        let mut layouts: [Box<dyn Engines>; 3] = [
            Box::new(SingleEngine::new(one, inline, None)),
            Box::new(SingleEngine::new(two, two_thread, None)),
            Box::new(four_thread),
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
                        back_off(idle);
                    }
                    let (owner, frame) = answer.expect("the caller is told");
                    assert_eq!((owner, frame.is_empty()), (7, function == NOTE));
                    if function == COUNT {
                        // The count is in front of the struct's last byte.
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
        let mut single_engine = SingleEngine::new(exchange, app, None);
        let mut frame = [0; 256];
        let length = call::frame(&UniqueIdService, 0, 3, &mut frame, |args| args.block(3));
        let length = length.expect("room");
        for (bytes, refused) in [(&frame[..length], false), (&frame[..length - 1], true)].repeat(9)
        {
            let mut bytes = bytes.to_vec();
            let message_bytes = (bytes.len() - 4) as u32;
            bytes[..4].copy_from_slice(&message_bytes.to_be_bytes());
            assert!(single_engine.has_capacity());
            single_engine.submit(11, &bytes);
            single_engine.turn();
            let answered = single_engine.take(&mut |owner, answer| {
                assert_eq!(owner, 11);
                let is_refusal = matches!(answer, Answer::Refusal(_));
                assert_eq!(is_refusal, refused, "{answer:?}");
            });
            assert!(answered);
        }
        assert!(!single_engine.is_busy());
    }

    #[test]
    fn a_frame_is_timed_from_submission_to_answer() {
        let took_ns = Arc::<AtomicU64>::default();
        let mut exchange = Exchange::new(Arc::new(UniqueIdService), 1, 1024);
        let app = Inline::new(Box::new(Seven), &mut exchange, 1024);
        let mut single_engine = SingleEngine::new(exchange, app, Some(Arc::clone(&took_ns)));
        let mut frame = [0; 256];
        let length = call::frame(&UniqueIdService, 0, 3, &mut frame, |args| args.block(3));
        let frame = &frame[..length.expect("room")];
        let (mut told_ns, part) = (0, Duration::from_millis(2));
        for round in 1..=3 {
            single_engine.submit(11, frame);
            thread::sleep(part);
            single_engine.turn();
            thread::sleep(part);
            assert!(single_engine.take(&mut |_, _| {
                told_ns = took_ns.load(Ordering::Relaxed);
                thread::sleep(part);
            }));
            assert_eq!(took_ns.load(Ordering::Relaxed), told_ns, "sending is the network's");
            assert!(u128::from(told_ns) >= 2 * round * part.as_nanos(), "{round}: {told_ns} ns");
            assert!(!single_engine.turn() && !single_engine.take(&mut |_, _| {}));
        }
    }

    /// Answers with the generation of the functions that received the request.
    struct Generation;

    impl Handler for Generation {
        fn handle(&mut self, call: &Record<'_>, reply: &mut Reply<'_>) -> Result<usize, Code> {
            let block = reply.body.block(1)?;
            reply.body.set(block, 0, call.generation.into());
            Ok(block)
        }
    }

    fn functions(idl: &str) -> Arc<dyn Functions> {
        Arc::new(Interpreter::new(parse(idl).expect("valid")))
    }

    fn called(functions: &dyn Functions, function: u32) -> Vec<u8> {
        let mut frame = vec![0; 256];
        let length = call::frame(functions, function, 3, &mut frame, |args| args.block(0));
        frame.truncate(length.expect("room"));
        frame
    }

    #[test]
    fn a_request_finishes_on_the_service_that_received_it() {
        const DEPTH: usize = 3;
        const ROOM: usize = 1_024;
        let old = functions("service Old { i64 first() }");
        let exchange = || Exchange::new(Arc::clone(&old), DEPTH, ROOM);
        let (mut inline, mut two_thread) = (exchange(), exchange());
        let handler = || Box::new(Generation);
        let app = Inline::new(handler(), &mut inline, ROOM);
        loaded_under_a_request(inline, app, &*old);
        let app =
            TwoThread::start(handler(), &mut two_thread, DEPTH, ROOM, None).expect("it starts");
        loaded_under_a_request(two_thread, app, &*old);
    }

    fn loaded_under_a_request(
        mut exchange: Exchange,
        mut app: impl Application,
        old: &dyn Functions,
    ) {
        // In the new service the same numbers belong to other functions.
        let new = functions("service New { void first(1: required i32 of) i32 second() }");
        exchange.submit(0, &called(old, 0));
        while exchange.engine.in_flight() == 0 {
            app.turn(&mut exchange.engine, &mut exchange.page);
            exchange.engine.step_rx(&mut exchange.page);
        }
        assert_eq!(exchange.engine.load(Arc::clone(&new)), 2);
        exchange.submit(1, &called(&*new, 1));
        exchange.submit(2, &called(old, 0));
        let mut answers = [const { None }; 3];
        let mut idle = 0;
        while !exchange.owners.is_empty() {
            exchange.turn(&mut app);
            exchange.take(&mut |owner, answer| {
                answers[owner] = match answer {
                    Answer::Frame(frame) => Some(frame.to_vec()),
                    _ => None,
                };
            });
            idle += 1;
            back_off(idle);
        }
        let generation = |functions: &dyn Functions, function, frame: &Option<Vec<u8>>| {
            let (frame, mut into) = (frame.as_ref().expect("answered"), [0; 64]);
            match call::answer(functions, function, 3, frame, &mut into) {
                Ok(call::Answer::Result(result)) => result.get(0),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(generation(old, 0, &answers[0]), Some(1));
        assert_eq!(generation(&*new, 1, &answers[1]), Some(2));
        assert_eq!(answers[2], None, "a new first() has an argument: refused");
        assert_eq!(exchange.engine.generations(), 1, "nobody needs the old one any more");
    }

    #[test]
    fn a_response_to_nobody_is_given_up_after_one_refusal() {
        let mut exchange = Exchange::new(Arc::new(UniqueIdService), 2, 1024);
        let mut app = Inline::new(Box::new(Seven), &mut exchange, 1024);
        let frame = called(&*functions("service S { i64 ComposeUniqueId() }"), 0);
        exchange.submit(1, &frame);
        app.turn(&mut exchange.engine, &mut exchange.page);
        while exchange.engine.step_rx(&mut exchange.page).is_some() {}
        // This has the effect of an answer by another engine.
        (0..100).for_each(|token| exchange.engine.retire(token));
        let mut moves = 0;
        let mut moved = true;
        while moved {
            moves += 1;
            assert!(moves < 100, "refusals are refused without end");
            moved = app.turn(&mut exchange.engine, &mut exchange.page);
            moved |= exchange.engine.step_rx(&mut exchange.page).is_some();
            moved |= exchange.engine.step_tx(&mut exchange.page).is_some();
        }
        exchange.submit(2, &frame);
        exchange.turn(&mut app);
        let mut answered = None;
        exchange.take(&mut |owner, answer| {
            answered = Some((owner, matches!(answer, Answer::Frame(_))));
        });
        assert_eq!(answered, Some((2, true)), "the next is answered");
    }
}
