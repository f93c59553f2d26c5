//! The link to one store service. Each request is a separate call, and all calls share one HTTP/2 connection. Calls in
//! flight together take effect in any order, so a request that needs the effect of another waits for it first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use api::v1::ExecuteRequest;
use api::v1::store_client::StoreClient;
use api::{Address, Connection};
use bytes::Bytes;
use tokio::sync::Mutex;
use tonic::{Code, Request, Status};

use super::answer::{Answer, LinkError, LinkFault};
use super::health::Health;
use super::reader::{Reader, Unreadable};
use super::{Expect, Limits, Slot, Timing};
use crate::budget::Permit;
use crate::counters::Stage;
use crate::reply_buffer::ReplyBuffer;

/// A worker's calls to one store service.
pub(crate) struct Service {
    address: Address,
    name: String,
    client: RefCell<Option<Client>>,
    /// The number of connections so far.
    opened: Cell<u64>,
    /// Allows one attempt to connect at a time.
    connecting: Mutex<()>,
    health: Health,
    timing: Cell<Timing>,
    limits: Limits,
    /// The reader of answers. It reads one answer at a time, and never waits within an answer.
    reader: RefCell<Reader>,
}

/// An open connection and its number.
#[derive(Clone)]
struct Client {
    number: u64,
    connection: Connection,
    calls: StoreClient<Connection>,
    /// The time of the last answer on this connection.
    answered: Rc<Cell<Option<Instant>>>,
}

impl Service {
    pub(super) fn new(address: Address, timing: Timing, limits: Limits) -> Self {
        Self {
            name: format!("grpc://{address}"),
            address,
            client: RefCell::default(),
            opened: Cell::new(0),
            connecting: Mutex::default(),
            health: Health::default(),
            timing: Cell::new(timing),
            reader: RefCell::new(Reader::new(&limits)),
            limits,
        }
    }

    pub(super) fn set_timing(&self, timing: Timing) {
        self.timing.set(timing);
    }

    pub(super) fn request(
        self: &Rc<Self>,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        if let Some(why) = self.health.down(self.limits.clock.now()) {
            return Slot::answered(Err(LinkError { fault: LinkFault::Down(why) }));
        }
        self.send(expect, false, granted, compose)
    }

    /// Sends a probe to the service, even while requests are not sent because the service is down.
    pub(super) fn probe(self: &Rc<Self>) -> Slot {
        self.send(Expect::Noop, true, None, super::compose_probe)
    }

    pub(super) fn answers(&self) -> u64 {
        self.health.answers()
    }

    fn send(
        self: &Rc<Self>,
        expect: Expect,
        is_probe: bool,
        mut granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        let mut out = ReplyBuffer::default();
        compose(&mut out);
        let parts = out.into_parts();
        let slot = Slot::default();
        let owed = Owed { service: Rc::clone(self), slot: Some(slot.clone()) };
        tokio::task::spawn_local(async move {
            let answer = owed.service.ask(expect, is_probe, &mut granted, parts).await;
            owed.pay(answer);
        });
        slot
    }

    /// Makes one call, connecting if necessary, within the time that a request may take.
    async fn ask(
        &self,
        expect: Expect,
        is_probe: bool,
        granted: &mut Option<Permit>,
        parts: Vec<Bytes>,
    ) -> Result<Answer, LinkFault> {
        let begun = Instant::now();
        let limit = self.timing.get().request;
        let due = begun + limit;
        let client = self.client(due, is_probe).await?;
        let called = tokio::time::timeout_at(due.into(), self.call(&client, parts, due)).await;
        match called {
            Ok(Ok(parts)) => {
                self.health.mark_up(self.limits.clock.now());
                let stages = &self.limits.counters.stages;
                stages[Stage::Store as usize].record(begun.elapsed().into());
                self.read(expect, granted, parts)
            }
            Ok(Err(status)) if status.code() != Code::DeadlineExceeded => {
                self.give_up(&client, None);
                Err(fault(&client, &status))
            }
            Ok(Err(_)) | Err(_) => {
                self.limits.counters.commands.upstream_timeouts.up();
                // A service that answers other calls is not down; this call may wait for the service's store.
                if client.answered.get().is_none_or(|answered| answered < begun) {
                    let why = format!("no answer within {} ms", limit.as_millis());
                    self.give_up(&client, Some(why));
                }
                Err(LinkFault::TimedOut(limit))
            }
        }
    }

    /// Makes a call. A service that has no memory for a call does nothing of it, so the call is repeated while there is
    /// time.
    async fn call(
        &self,
        client: &Client,
        parts: Vec<Bytes>,
        due: Instant,
    ) -> Result<Vec<Bytes>, Status> {
        let mut pause = PAUSE_MIN;
        loop {
            let mut request = Request::new(ExecuteRequest { parts: parts.clone() });
            let left = due.saturating_duration_since(Instant::now());
            request.set_timeout(left - left / WORD_SHARE);
            let answered = client.calls.clone().execute(request).await;
            if answered.as_ref().err().is_none_or(|status| is_its_own(client, status)) {
                client.answered.set(Some(Instant::now()));
            }
            match answered {
                Err(status)
                    if status.code() == Code::ResourceExhausted && Instant::now() + pause < due =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                answered => return answered.map(|response| response.into_inner().parts),
            }
        }
    }

    /// Returns the open connection, or a new one if it opens before the call is due.
    async fn client(&self, due: Instant, is_probe: bool) -> Result<Client, LinkFault> {
        if let Some(client) = self.open() {
            return Ok(client);
        }
        let _alone = self.connecting.lock().await;
        if let Some(client) = self.open() {
            return Ok(client);
        }
        let down = self.health.down(self.limits.clock.now());
        if let Some(why) = down.filter(|_| !is_probe) {
            return Err(LinkFault::Down(why));
        }
        let due = due.min(Instant::now() + self.timing.get().connect);
        let opening = Connection::open(&self.address);
        let opened = tokio::time::timeout_at(due.into(), opening).await;
        let why = match (opened, api::wire::origin(&self.address)) {
            (Ok(Ok(connection)), Ok(origin)) => {
                self.limits.counters.commands.upstream_connects.up();
                let number = self.opened.get() + 1;
                self.opened.set(number);
                let message_bytes_max = self.limits.held_bytes_max.as_usize();
                let calls = StoreClient::with_origin(connection.clone(), origin)
                    .max_decoding_message_size(message_bytes_max);
                let client = Client { number, connection, calls, answered: Rc::default() };
                *self.client.borrow_mut() = Some(client.clone());
                return Ok(client);
            }
            (Ok(Err(error)), _) => error.to_string(),
            (_, Err(status)) => status.message().to_owned(),
            (Err(_), _) => "connection timed out".to_owned(),
        };
        self.mark_down(why.clone());
        Err(LinkFault::Down(why))
    }

    fn open(&self) -> Option<Client> {
        self.client.borrow().as_ref().filter(|client| !client.connection.is_closed()).cloned()
    }

    /// Drops the connection if it has ended. With a reason it drops the connection in any case and marks the service
    /// down.
    fn give_up(&self, client: &Client, why: Option<String>) {
        let mut current = self.client.borrow_mut();
        // A connection that was already dropped needs no second report.
        if current.as_ref().is_none_or(|current| current.number != client.number) {
            return;
        }
        if why.is_some() || client.connection.is_closed() {
            *current = None;
        }
        if let Some(why) = why {
            self.mark_down(why);
        }
    }

    fn mark_down(&self, why: String) {
        if self.health.is_down() {
            tracing::debug!(service = self.name, error = why, "store service is still down");
        } else {
            tracing::warn!(service = self.name, error = why, "store service is down");
        }
        self.health.mark_down(why, self.timing.get(), self.limits.clock.now());
    }

    /// Returns the one answer that the parts form.
    fn read(
        &self,
        expect: Expect,
        granted: &mut Option<Permit>,
        parts: Vec<Bytes>,
    ) -> Result<Answer, LinkFault> {
        let mut reader = self.reader.borrow_mut();
        let answer = read(&mut reader, expect, granted, &parts);
        if answer.is_err() {
            *reader = Reader::new(&self.limits);
        }
        answer.map_err(LinkFault::from)
    }
}

fn read(
    reader: &mut Reader,
    expect: Expect,
    granted: &mut Option<Permit>,
    parts: &[Bytes],
) -> Result<Answer, Unreadable> {
    let mut answer = None;
    for part in parts {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let space = reader.space();
            let bytes = rest.len().min(space.len());
            space[..bytes].copy_from_slice(&rest[..bytes]);
            rest = &rest[bytes..];
            reader.filled(bytes);
            // Nothing is expected behind an answer.
            let expect = if answer.is_none() { Some(expect) } else { None };
            answer = reader.next(expect, granted)?.or(answer);
        }
    }
    match answer {
        Some(answer) if reader.is_empty() => Ok(answer),
        Some(_) => Err("more than one answer".into()),
        None => Err("an answer that is not whole".into()),
    }
}

fn fault(client: &Client, status: &Status) -> LinkFault {
    let code = status.code();
    let message = status.message();
    if is_its_own(client, status) {
        return LinkFault::Refused(format!("{message} ({code:?})"));
    }
    LinkFault::Lost(message.to_owned())
}

/// Returns whether the status comes from the service and not from this end of the connection.
fn is_its_own(client: &Client, status: &Status) -> bool {
    std::error::Error::source(status).is_none() && !client.connection.is_closed()
}

/// The answer that a session waits for. The session gets an answer even if there is a defect here.
struct Owed {
    service: Rc<Service>,
    slot: Option<Slot>,
}

impl Owed {
    fn pay(mut self, answer: Result<Answer, LinkFault>) {
        if let Some(slot) = self.slot.take() {
            slot.answer(answer.map_err(|fault| self.service.failed(fault)));
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let fault = LinkFault::Lost("a defect ended the call".to_owned());
            slot.answer(Err(self.service.failed(fault)));
        }
    }
}

impl Service {
    fn failed(&self, fault: LinkFault) -> LinkError {
        self.limits.counters.commands.upstream_errors.up();
        // A service that is down has been reported already.
        if !matches!(fault, LinkFault::Down(_)) && self.health.may_report(self.limits.clock.now()) {
            tracing::warn!(service = self.name, error = %fault, "a request to the store service failed");
        }
        LinkError { fault }
    }
}

/// The share of a call's time that is left for the service's message that the time was too short: one part in this
/// many. A caller that gets the message knows that the service lives.
const WORD_SHARE: u32 = 8;

/// The first pause before a service that is out of memory is called again. Later pauses are longer.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest of these pauses.
const PAUSE_MAX: Duration = Duration::from_millis(50);
