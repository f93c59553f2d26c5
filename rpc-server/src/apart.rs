//! Four threads: the engine's halves on cores of their own, between NetCore and AppCore. Each half is an engine of
//! which only that half is stepped; what is in flight goes from RxEngine to TxEngine before the application hears of
//! it, and has landed when its packet's buffer comes back with the next packet. Frames that are refused come from
//! RxEngine, answers from TxEngine, so NetCore reads two mailboxes and counts a packet's buffer free when both are
//! through.

use std::io;
use std::sync::Arc;

use drivers::mailbox::Receiver;
use rpc::{
    Address, Code, Command, Completion, DataPage, Engine, Flight, Functions, Interface, Limits,
    Record, api,
};

use super::app_core::{AppCore, Delivery, lent, record_bytes};
use super::exchange::{Answer, Engines, refusal};
use super::handlers::Handler;
use super::mailbox::{Bell, Buffer, Mail, Outbox, Worker, mailbox};

/// From RxEngine to NetCore: the packet's buffer, what became of the packet, or both.
struct Packet {
    at: Address,
    bytes: Option<Box<[u8]>>,
    code: Option<Code>,
}

/// From TxEngine to NetCore: what a read of Net.Resp returned, with its buffer.
type Frame = (Completion, Box<[u8]>);

/// NetCore's end.
pub(super) struct Apart {
    rx: Outbox<Mail>,
    tx: Outbox<Mail>,
    packets: Receiver<Packet>,
    frames: Receiver<Frame>,
    places: Vec<Place>,
    /// AppCore last: what the others send it is no longer needed then.
    workers: [Worker; 3],
}

/// A packet's buffer; without its bytes it is at the RxEngine.
struct Place {
    at: Address,
    bytes: Option<Box<[u8]>>,
    /// Whose packet it is, and how long, until it is answered.
    owner: Option<(usize, usize)>,
}

struct RxCore {
    engine: Engine,
    page: DataPage,
    net: Receiver<Mail>,
    app: Receiver<Mail>,
    to_net: Outbox<Packet>,
    to_app: Outbox<Delivery>,
    to_tx: Outbox<Flight>,
    /// Tokens of what TxEngine has, by the packet it came in.
    flying: Vec<(Address, u64)>,
}

struct TxCore {
    engine: Engine,
    page: DataPage,
    net: Receiver<Mail>,
    app: Receiver<Mail>,
    flights: Receiver<Flight>,
    to_net: Outbox<Frame>,
    to_app: Outbox<Delivery>,
}

impl Apart {
    /// Starts RxEngine, TxEngine and AppCore, each on its core.
    pub(super) fn start(
        functions: &Arc<dyn Functions>,
        handler: Box<dyn Handler>,
        depth: usize,
        buffer_bytes: usize,
        cores: [Option<usize>; 3],
    ) -> io::Result<Self> {
        let limits = Limits { depth, flights: depth, field_bytes_max: buffer_bytes };
        let engine = || Engine::new(limits, Arc::clone(functions));
        let bells = [(); 3].map(|()| Arc::new(Bell::default()));
        let [rx_bell, tx_bell, app_bell] = &bells;
        // A message names one of `depth` buffers or a length of what is in it: never more than four a place.
        let places = 4 * depth;
        let (net_to_rx, rx_net) = mailbox(places, Some(rx_bell));
        let (app_to_rx, rx_app) = mailbox(places, Some(rx_bell));
        let (net_to_tx, tx_net) = mailbox(places, Some(tx_bell));
        let (app_to_tx, tx_app) = mailbox(places, Some(tx_bell));
        // Flights are looked for when their responses come, so nobody is woken for one.
        let (rx_to_tx, flights) = mailbox(places, None);
        let (rx_to_app, app_rx) = mailbox(places, Some(app_bell));
        let (tx_to_app, app_tx) = mailbox(places, Some(app_bell));
        let (rx_to_net, packets) = mailbox(places, None);
        let (tx_to_net, frames) = mailbox(places, None);

        let (mut rx_page, mut tx_page) = (DataPage::default(), DataPage::default());
        let own = lent(&mut rx_page, depth, buffer_bytes);
        let reads = lent(&mut rx_page, depth, record_bytes(buffer_bytes));
        let responses = lent(&mut tx_page, depth, record_bytes(buffer_bytes));
        let mut rx = RxCore {
            engine: engine(),
            page: rx_page,
            net: rx_net,
            app: rx_app,
            to_net: rx_to_net,
            to_app: rx_to_app,
            to_tx: rx_to_tx,
            flying: Vec::with_capacity(depth),
        };
        let mut tx = TxCore {
            engine: engine(),
            page: tx_page,
            net: tx_net,
            app: tx_app,
            flights,
            to_net: tx_to_net,
            to_app: tx_to_app,
        };
        rx.await_refusal();
        tx.await_refusal();
        tx.map_frames(depth, buffer_bytes);
        let (mail, deliveries) = (vec![app_to_rx, app_to_tx], vec![app_rx, app_tx]);
        let mut app = AppCore::new(handler, mail, deliveries, (reads, responses));
        let [rx_core, tx_core, app_core] = cores;
        let [rx_bell, tx_bell, app_bell] = bells;
        let workers = [
            Worker::start("rpc-rx", rx_core, rx_bell, move || rx.turn())?,
            Worker::start("rpc-tx", tx_core, tx_bell, move || tx.turn())?,
            Worker::start("rpc-app", app_core, app_bell, move || app.turn())?,
        ];
        let place = |(at, bytes)| Place { at, bytes: Some(bytes), owner: None };
        let places = own.into_iter().map(place).collect();
        Ok(Self { rx: net_to_rx, tx: net_to_tx, packets, frames, places, workers })
    }

    fn place(&mut self, at: Address) -> &mut Place {
        let place = self.places.iter_mut().find(|place| place.at == at);
        place.expect("only our packets are told of")
    }

    fn take_frame(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        let Some((done, bytes)) = self.frames.pop() else { return false };
        debug_assert_eq!(done.code, Code::Done, "refusals come from RxEngine or go to AppCore");
        if done.code == Code::Done {
            let owner = self.place(done.about).owner.take();
            debug_assert!(owner.is_some(), "{done:?} was answered before");
            if let Some((owner, _)) = owner {
                to(owner, bytes.get(..done.length).map_or(Answer::None, Answer::Frame));
            }
        }
        let word = Command::DpdkNetFlag(done.buffer);
        self.tx.send(Mail { word, buffer: Some((done.buffer, bytes)) });
        true
    }

    fn take_packet(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        let Some(Packet { at, bytes, code }) = self.packets.pop() else { return false };
        let place = self.place(at);
        if bytes.is_some() {
            place.bytes = bytes;
        }
        let Some(code) = code else { return true };
        let owner = place.owner.take();
        debug_assert!(owner.is_some(), "packet {at:?} was answered before");
        let Some((owner, length)) = owner else { return true };
        if code == Code::Done {
            // Nobody awaits an answer.
            to(owner, Answer::Frame(&[]));
            return true;
        }
        let bytes = place.bytes.as_deref().unwrap_or_default();
        refusal(bytes.get(..length), code, bytes.len(), |answer| to(owner, answer));
        true
    }
}

impl Engines for Apart {
    fn has_room(&self) -> bool {
        self.places.iter().any(Place::is_free)
    }

    fn is_busy(&self) -> bool {
        !self.places.iter().all(Place::is_free)
    }

    fn submit(&mut self, owner: usize, frame: &[u8]) {
        let place = self.places.iter_mut().find(|place| place.is_free());
        let place = place.expect("there is room");
        let mut bytes = place.bytes.take().expect("a free place has its buffer");
        bytes[..frame.len()].copy_from_slice(frame);
        place.owner = Some((owner, frame.len()));
        let at = place.at;
        self.rx.send(Mail { word: Command::SendNetBuf(at), buffer: Some((at, bytes)) });
        self.rx.send(Mail { word: Command::SendNetLen(frame.len() as u64), buffer: None });
    }

    fn turn(&mut self) -> bool {
        false
    }

    fn take(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        self.take_frame(to) | self.take_packet(to)
    }

    fn is_alive(&self) -> bool {
        self.workers.iter().all(Worker::is_alive)
    }
}

impl Place {
    fn is_free(&self) -> bool {
        self.owner.is_none() && self.bytes.is_some()
    }
}

impl RxCore {
    fn turn(&mut self) -> bool {
        let mut moved = false;
        if let Some(mail) = self.app.pop() {
            moved = true;
            issue(&mut self.engine, &mut self.page, mail);
        }
        if let Some(mail) = self.net.pop() {
            moved = true;
            if let Command::SendNetBuf(at) = mail.word {
                self.land(at);
            }
            issue(&mut self.engine, &mut self.page, mail);
        }
        while let Some(step) = self.engine.step_rx(&mut self.page) {
            moved = true;
            if let Some(at) = step.released {
                let bytes = self.page.lend(at);
                self.to_net.send(Packet { at, bytes, code: None });
            }
        }
        while let Some(done) = self.engine.take(Interface::AppRecv) {
            self.deliver(done);
        }
        while let Some(done) = self.engine.take(Interface::NetResp) {
            self.await_refusal();
            let bytes = self.page.lend(done.about);
            self.to_net.send(Packet { at: done.about, bytes, code: Some(done.code) });
        }
        moved
    }

    /// NetCore uses the buffer again, so what came in it before was answered.
    fn land(&mut self, packet: Address) {
        if let Some(place) = self.flying.iter().position(|(at, _)| *at == packet) {
            let (_, token) = self.flying.swap_remove(place);
            self.engine.landed(token);
        }
    }

    fn deliver(&mut self, done: Completion) {
        let Some(bytes) = self.page.lend(done.buffer) else { return };
        let recv = (done.buffer, bytes);
        if done.code != Code::Done {
            return self.to_app.send(Delivery::Unread(recv));
        }
        let token = recv.1.get(..done.length).and_then(Record::read).map(|record| record.token);
        if let Some(flight) = token.and_then(|token| self.engine.hand_over(token)) {
            self.flying.push((flight.packet(), flight.token()));
            self.to_tx.send(flight);
        }
        self.to_app.send(Delivery::Request(recv, done.length));
    }

    /// A read of Net.Resp whose buffer is none: it completes only with a packet's refusal.
    fn await_refusal(&mut self) {
        let read = api::net_call_engine_read(&mut self.engine, Address::default());
        read.expect("one such read at a time");
    }
}

impl TxCore {
    fn turn(&mut self) -> bool {
        let mut moved = false;
        if let Some(mail) = self.net.pop() {
            moved = true;
            issue(&mut self.engine, &mut self.page, mail);
        }
        if let Some(mail) = self.app.pop() {
            moved = true;
            // Its flight was sent before the application had the request, so it is there.
            while let Some(flight) = self.flights.pop() {
                // Else its caller would wait for ever.
                let is_taken = self.engine.take_over(flight);
                assert!(is_taken, "its place is free here as at the RxEngine, its functions known");
            }
            issue(&mut self.engine, &mut self.page, mail);
        }
        while let Some(step) = self.engine.step_tx(&mut self.page) {
            moved = true;
            if let Some((at, bytes)) = self.lend(step.released) {
                self.to_app.send(Delivery::Free((at, bytes)));
            }
        }
        while let Some(done) = self.engine.take(Interface::NetResp) {
            let bytes = self.page.lend(done.buffer).expect("NetCore has lent it to us");
            self.to_net.send((done, bytes));
        }
        while let Some(done) = self.engine.take(Interface::AppRecv) {
            self.await_refusal();
            if let Some(response) = self.lend(Some(done.about)) {
                self.to_app.send(Delivery::Refused { code: done.code, response, recv: None });
            }
        }
        moved
    }

    fn lend(&mut self, at: Option<Address>) -> Option<Buffer> {
        let at = at?;
        Some((at, self.page.lend(at)?))
    }

    /// Reads of Net.Resp, with a buffer for each.
    fn map_frames(&mut self, depth: usize, frame_bytes: usize) {
        for _ in 0..depth {
            let at = self.page.map(frame_bytes);
            let read = api::net_call_engine_read(&mut self.engine, at);
            read.expect("no more reads than the engine's depth");
        }
    }

    /// A read of App.Recv whose buffer is none: it completes only with a response's refusal.
    fn await_refusal(&mut self) {
        let read = api::app_call_engine_read(&mut self.engine, Address::default());
        read.expect("one such read at a time");
    }
}

/// What came by mail: its buffer into the page, its word to the engine.
fn issue(engine: &mut Engine, page: &mut DataPage, mail: Mail) {
    let is_back = mail.buffer.is_none_or(|(at, bytes)| page.put_back(at, bytes));
    debug_assert!(is_back, "a buffer comes back where it was lent");
    let issued = engine.issue(mail.word.interface(), mail.word.word());
    issued.expect("no more words than the engine's depth, and what completes is taken at once");
}
