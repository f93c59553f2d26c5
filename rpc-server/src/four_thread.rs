//! The layout with four threads: the engine's halves run on two threads between NetCore and
//! AppCore. Each of these two threads has an engine and steps only one half of it. RxEngine sends
//! the [`Flight`] of a request to TxEngine before it sends the request to AppCore. RxEngine ends
//! the flight when NetCore reuses the packet's buffer for another packet. NetCore receives refusals
//! from RxEngine and answers from TxEngine, so it reads two mailboxes. NetCore counts a packet's
//! buffer as free when the packet is answered and RxEngine has returned the buffer.

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
use super::mailbox::{Buffer, Doorbell, Mail, Outbox, Worker, mailbox};

/// A message from RxEngine to NetCore: the packet's buffer, the packet's outcome, or both.
struct Packet {
    at: Address,
    bytes: Option<Box<[u8]>>,
    code: Option<Code>,
}

/// A message from TxEngine to NetCore: the result of a read of Net.Resp, with its buffer.
type Frame = (Completion, Box<[u8]>);

/// NetCore's side of the layout.
pub(super) struct FourThread {
    rx: Outbox<Mail>,
    tx: Outbox<Mail>,
    packets: Receiver<Packet>,
    frames: Receiver<Frame>,
    slots: Vec<PacketSlot>,
    /// The threads of RxEngine, TxEngine and AppCore. They end in this order.
    workers: [Worker; 3],
}

/// A packet's buffer. While `bytes` is none, RxEngine has the bytes.
struct PacketSlot {
    at: Address,
    bytes: Option<Box<[u8]>>,
    /// The owner and the length (bytes) of the packet. It is none once the packet is answered.
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
    /// The packet and the token of each flight that TxEngine has.
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

impl FourThread {
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
        let doorbells = [(); 3].map(|()| Arc::new(Doorbell::default()));
        let [rx_doorbell, tx_doorbell, app_doorbell] = &doorbells;
        // A message names one of `depth` buffers or the length of its content, so there are never
        // more than four messages per buffer.
        let capacity = 4 * depth;
        let (net_to_rx, rx_net) = mailbox(capacity, Some(rx_doorbell));
        let (app_to_rx, rx_app) = mailbox(capacity, Some(rx_doorbell));
        let (net_to_tx, tx_net) = mailbox(capacity, Some(tx_doorbell));
        let (app_to_tx, tx_app) = mailbox(capacity, Some(tx_doorbell));
        // TxEngine checks for flights when their responses arrive, so a flight needs no doorbell.
        let (rx_to_tx, flights) = mailbox(capacity, None);
        let (rx_to_app, app_rx) = mailbox(capacity, Some(app_doorbell));
        let (tx_to_app, app_tx) = mailbox(capacity, Some(app_doorbell));
        let (rx_to_net, packets) = mailbox(capacity, None);
        let (tx_to_net, frames) = mailbox(capacity, None);

        let (mut rx_page, mut tx_page) = (DataPage::default(), DataPage::default());
        let packet_buffers = lent(&mut rx_page, depth, buffer_bytes);
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
        let [rx_doorbell, tx_doorbell, app_doorbell] = doorbells;
        let workers = [
            Worker::start("rpc-rx", rx_core, rx_doorbell, move || rx.turn())?,
            Worker::start("rpc-tx", tx_core, tx_doorbell, move || tx.turn())?,
            Worker::start("rpc-app", app_core, app_doorbell, move || app.turn())?,
        ];
        let slot = |(at, bytes)| PacketSlot { at, bytes: Some(bytes), owner: None };
        let slots = packet_buffers.into_iter().map(slot).collect();
        Ok(Self { rx: net_to_rx, tx: net_to_tx, packets, frames, slots, workers })
    }

    fn slot(&mut self, at: Address) -> &mut PacketSlot {
        let slot = self.slots.iter_mut().find(|slot| slot.at == at);
        slot.expect("only our packets are told of")
    }

    fn take_frame(&mut self, to: &mut dyn FnMut(usize, Answer<'_>)) -> bool {
        let Some((done, bytes)) = self.frames.pop() else { return false };
        debug_assert_eq!(done.code, Code::Done, "refusals come from RxEngine or go to AppCore");
        if done.code == Code::Done {
            let owner = self.slot(done.about).owner.take();
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
        let slot = self.slot(at);
        if bytes.is_some() {
            slot.bytes = bytes;
        }
        let Some(code) = code else { return true };
        let owner = slot.owner.take();
        debug_assert!(owner.is_some(), "packet {at:?} was answered before");
        let Some((owner, length)) = owner else { return true };
        if code == Code::Done {
            // The packet needs no answer.
            to(owner, Answer::Frame(&[]));
            return true;
        }
        let bytes = slot.bytes.as_deref().unwrap_or_default();
        refusal(bytes.get(..length), code, bytes.len(), |answer| to(owner, answer));
        true
    }
}

impl Engines for FourThread {
    fn has_capacity(&self) -> bool {
        self.slots.iter().any(PacketSlot::is_free)
    }

    fn is_busy(&self) -> bool {
        !self.slots.iter().all(PacketSlot::is_free)
    }

    fn submit(&mut self, owner: usize, frame: &[u8]) {
        let slot = self.slots.iter_mut().find(|slot| slot.is_free());
        let slot = slot.expect("there is room");
        let mut bytes = slot.bytes.take().expect("a free place has its buffer");
        bytes[..frame.len()].copy_from_slice(frame);
        slot.owner = Some((owner, frame.len()));
        let at = slot.at;
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

impl PacketSlot {
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
                self.retire(at);
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

    /// Ends the flight of the earlier packet in the buffer `packet`. NetCore reuses the buffer only
    /// after that packet was answered.
    fn retire(&mut self, packet: Address) {
        if let Some(place) = self.flying.iter().position(|(at, _)| *at == packet) {
            let (_, token) = self.flying.swap_remove(place);
            self.engine.retire(token);
        }
    }

    fn deliver(&mut self, done: Completion) {
        let Some(bytes) = self.page.lend(done.buffer) else { return };
        let recv = (done.buffer, bytes);
        if done.code != Code::Done {
            return self.to_app.send(Delivery::Unread(recv));
        }
        let token = recv.1.get(..done.length).and_then(Record::read).map(|record| record.token);
        if let Some(flight) = token.and_then(|token| self.engine.export(token)) {
            self.flying.push((flight.packet(), flight.token()));
            self.to_tx.send(flight);
        }
        self.to_app.send(Delivery::Request(recv, done.length));
    }

    /// Starts a read of Net.Resp without a buffer. It completes only when a packet is refused.
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
            // The flight of this response was sent before the application had the request, so the
            // flight has arrived.
            while let Some(flight) = self.flights.pop() {
                // Without the flight its caller would wait forever.
                let is_taken = self.engine.import(flight);
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

    /// Maps `depth` buffers for frames and starts a read of Net.Resp with each of them.
    fn map_frames(&mut self, depth: usize, frame_bytes: usize) {
        for _ in 0..depth {
            let at = self.page.map(frame_bytes);
            let read = api::net_call_engine_read(&mut self.engine, at);
            read.expect("no more reads than the engine's depth");
        }
    }

    /// Starts a read of App.Recv without a buffer. It completes only when a response is refused.
    fn await_refusal(&mut self) {
        let read = api::app_call_engine_read(&mut self.engine, Address::default());
        read.expect("one such read at a time");
    }
}

/// Stores a message's buffer in the page and issues the message's word to the engine.
fn issue(engine: &mut Engine, page: &mut DataPage, mail: Mail) {
    let is_back = mail.buffer.is_none_or(|(at, bytes)| page.put_back(at, bytes));
    debug_assert!(is_back, "a buffer comes back where it was lent");
    let issued = engine.issue(mail.word.interface(), mail.word.word());
    issued.expect("no more words than the engine's depth, and what completes is taken at once");
}
