//! The link to one store service. Each request is a separate call, and all calls share one HTTP/2 connection.
//! Calls in flight take effect in any order, so a request that depends on another must wait for it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::v1::ExecuteRequest;
use api::v1::store_client::StoreClient;
use api::{Address, Connection, Login};
use bytes::Bytes;
use tokio::sync::Mutex;
use tonic::{Code, Request, Status};
use units::TraceContext;

use super::answer::{Answer, LinkError, LinkFault};
use super::health::{AnswerTimes, Health};
use super::login::LoginRefused;
use super::reader::{Reader, Unreadable};
use super::{Expect, Limits, Slot, Timing};
use crate::budget::Permit;
use crate::counters::Stage;
use crate::members::Member;
use crate::reply_buffer::ReplyBuffer;

/// A worker's calls to one store service.
pub(crate) struct Service {
    address: Address,
    /// The server of the ring, for errors.
    member: Arc<Member>,
    name: String,
    client: RefCell<Option<Client>>,
    /// The number of connections opened so far.
    opened: Cell<u64>,
    /// Allows one attempt to connect at a time.
    connecting: Mutex<()>,
    health: Health,
    times: AnswerTimes,
    timing: Cell<Timing>,
    limits: Limits,
    /// The parser of answers. It always gets complete answers.
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

/// Who makes a call: a probe of this process, or a request, which may be in a trace.
#[derive(Clone, Copy)]
struct Origin {
    is_probe: bool,
    trace: Option<TraceContext>,
}

impl Service {
    pub(super) fn new(
        address: Address,
        member: Arc<Member>,
        timing: Timing,
        limits: Limits,
    ) -> Self {
        Self {
            member,
            name: format!("grpc://{address}"),
            address,
            client: RefCell::default(),
            opened: Cell::new(0),
            connecting: Mutex::default(),
            health: Health::default(),
            times: AnswerTimes::default(),
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
        trace: Option<TraceContext>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        if let Some(why) = self.health.down(self.limits.clock.now()) {
            return Slot::answered(Err(self.error(LinkFault::Down(why))));
        }
        self.send(expect, Origin { is_probe: false, trace }, granted, compose)
    }

    /// Sends a probe to the service, even while the service is considered down.
    pub(super) fn probe(self: &Rc<Self>) -> Slot {
        let probe = Origin { is_probe: true, trace: None };
        self.send(Expect::Noop, probe, None, super::compose_probe)
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    pub(super) fn times(&self) -> &AnswerTimes {
        &self.times
    }

    #[cold]
    fn error(&self, fault: LinkFault) -> LinkError {
        LinkError { fault, server: Some(Arc::clone(&self.member)) }
    }

    fn send(
        self: &Rc<Self>,
        expect: Expect,
        origin: Origin,
        mut granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        let mut out = ReplyBuffer::default();
        compose(&mut out);
        let parts = out.into_parts();
        let slot = Slot::default();
        let owed = Owed { service: Rc::clone(self), slot: Some(slot.clone()) };
        tokio::task::spawn_local(async move {
            let answer = owed.service.ask(expect, origin, &mut granted, parts).await;
            owed.pay(answer);
        });
        slot
    }

    /// Makes one call within the request timeout, and connects first if necessary.
    async fn ask(
        &self,
        expect: Expect,
        Origin { is_probe, trace }: Origin,
        granted: &mut Option<Permit>,
        parts: Vec<Bytes>,
    ) -> Result<Answer, LinkFault> {
        let begun = Instant::now();
        let limit = self.timing.get().request;
        let due = begun + limit;
        let login = self.limits.login.as_ref().map(|login| login.file.current());
        let version = login.as_ref().map_or(0, |login| login.version());
        if let Some(why) = self.health.login().waits(version, self.limits.clock.now()) {
            return Err(LinkFault::Down(why));
        }
        let client = self.client(due, is_probe).await?;
        let call = self.call(&client, login.as_deref(), trace, parts, due);
        let called = tokio::time::timeout_at(due.into(), call).await;
        match called {
            Ok(Ok(parts)) => {
                self.health.mark_up(self.limits.clock.now());
                self.health.login().accepted();
                let (time, stages) = (begun.elapsed().into(), &self.limits.counters.stages);
                stages[Stage::Store as usize].record(time);
                self.times.record(time);
                if !is_probe {
                    self.health.record_success();
                }
                self.read(expect, granted, parts)
            }
            Ok(Err(status)) if is_login_refused(&status, is_probe) => {
                let why = match &login {
                    Some(login) => LoginRefused::new(login, status.message()).to_string(),
                    None => format!("{UNKNOWN}: {}", status.message()),
                };
                self.member.logins_refused.up();
                let now = self.limits.clock.now();
                self.health.login().refused(version, why.clone(), now);
                self.mark_down(why.clone());
                Err(LinkFault::Down(why))
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

    /// Makes a call. Retries it until `due` if the service is out of memory: the call then had no effect.
    async fn call(
        &self,
        client: &Client,
        login: Option<&Login>,
        trace: Option<TraceContext>,
        parts: Vec<Bytes>,
        due: Instant,
    ) -> Result<Vec<Bytes>, Status> {
        let mut pause = PAUSE_MIN;
        loop {
            let mut request = Request::new(ExecuteRequest { parts: parts.clone() });
            let left = due.saturating_duration_since(Instant::now());
            request.set_timeout(left - left / WORD_SHARE);
            if let Some(login) = login {
                login.authorize(&mut request);
            }
            if let Some(trace) = trace.and_then(|trace| trace.to_string().parse().ok()) {
                request.metadata_mut().insert(TraceContext::HEADER, trace);
            }
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

    /// Returns the open connection, or opens a new one before `due`.
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

    /// Drops the connection if it has ended. With `why`, drops it in any case and marks the service down.
    fn give_up(&self, client: &Client, why: Option<String>) {
        let mut current = self.client.borrow_mut();
        // The connection was already dropped and reported.
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

    /// Parses the parts of a response into one answer.
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
        let mut answer = answer.map_err(LinkFault::from)?;
        if let Answer::Error(line) = &mut answer {
            line.server = Some(Arc::clone(&self.member));
        }
        Ok(answer)
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
            // No bytes are expected after the answer.
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

/// Returns whether the service refuses every call. A single command may be denied because of its key or its class, and
/// a probe is neither.
fn is_login_refused(status: &Status, is_probe: bool) -> bool {
    match status.code() {
        Code::Unauthenticated => true,
        Code::PermissionDenied => is_probe,
        _ => false,
    }
}

/// Returns whether the status was sent by the service, and not created at this end of the connection.
fn is_its_own(client: &Client, status: &Status) -> bool {
    std::error::Error::source(status).is_none() && !client.connection.is_closed()
}

/// The obligation to answer a session. Dropping it, such as in a panic, answers with an error.
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
        self.health.record_failures(1);
        // That the service is down was already logged.
        if !matches!(fault, LinkFault::Down(_)) && self.health.may_report(self.limits.clock.now()) {
            tracing::warn!(service = self.name, error = %fault, "a request to the store service failed");
        }
        self.error(fault)
    }
}

/// The reason for which a service is not used that refuses a process without a login.
const UNKNOWN: &str =
    "it does not serve this process: give store.login_file, or a certificate that it knows";

/// The denominator of the share of a call's time that is reserved for the service's timeout response (1 in
/// 8). That response shows that the service works.
const WORD_SHARE: u32 = 8;

/// The first pause before a retry after the service was out of memory. Each later pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause before a retry after the service was out of memory.
const PAUSE_MAX: Duration = Duration::from_millis(50);
