//! One connection: outgoing bytes, incoming bytes, and the requests in flight in their order. The module
//! returns the answers to its caller.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use drivers::near::{NearClient, NearGreeting};
use protocol::command::{Store, StoreVerb};
use protocol::response::{ErrorKind, Parse, RESPONSE_LINE_BYTES_MAX, Response};
use protocol::{Key, request, response};
use tls::{Session, Wire};
use units::Nanos;

use crate::address::{Address, Endpoint};
use crate::answer::{Answer, Content, Failure, Outcome};
use crate::source::{Op, Request};
use crate::work::{BACKOFF_FIRST, BACKOFF_LAST};

/// A connection of the generator. It may be up, opening or down.
pub(crate) struct Connection {
    pub(crate) address: Address,
    pub(crate) state: State,
    /// The wait before the next attempt to reconnect.
    pub(crate) backoff: Nanos,
    /// True if the connection is on the engine's list of connections to flush.
    pub(crate) dirty: bool,
    in_flight: VecDeque<InFlight>,
    out: Vec<u8>,
    out_sent: usize,
    writable: bool,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    /// The buffer for the name of the key that an answer should have.
    wanted: Vec<u8>,
    /// The session of a connection with TLS. It begins with the first bytes.
    session: Option<Box<Session>>,
    /// The memory that is shared with the server of a near connection. It begins with the first bytes.
    near: Option<Near>,
    /// The bytes that were sent when the handshake ended, and that no flush has counted.
    sent_aside: usize,
}

/// The state of the memory that is shared with a server.
enum Near {
    Greeting(NearGreeting),
    Up(Box<NearClient>),
}

/// The state of a connection.
pub(crate) enum State {
    /// The connection is lost. It is opened again at `retry_at`.
    Down { retry_at: Nanos },
    /// The connection is being opened. The attempt ends at `give_up_at`.
    Opening { socket: OwnedFd, give_up_at: Nanos },
    /// The connection is in use.
    Up(OwnedFd),
}

/// A request that was sent and not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    pub(crate) sent: Nanos,
    /// The length of the value that has arrived for the request.
    hit_bytes: Option<usize>,
    mismatch: Option<String>,
}

/// The reason why a connection can no longer be used.
pub(crate) type Lost = String;

impl Connection {
    pub(crate) fn new(address: Address, state: State) -> Self {
        Self {
            address,
            state,
            backoff: BACKOFF_FIRST,
            dirty: false,
            in_flight: VecDeque::new(),
            out: Vec::new(),
            out_sent: 0,
            writable: true,
            input: Vec::new(),
            input_start: 0,
            input_end: 0,
            wanted: Vec::new(),
            session: None,
            near: None,
            sent_aside: 0,
        }
    }

    /// Returns whether the connection is up and can take another request. It may have at most `depth` requests in
    /// flight.
    pub(crate) fn has_capacity(&self, depth: usize) -> bool {
        matches!(self.state, State::Up(_))
            && self.in_flight.len() < depth
            && self.out.len() - self.out_sent < OUT_BYTES_ENOUGH
    }

    /// Returns the time at which the oldest unanswered request was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Nanos> {
        self.in_flight.front().map(|in_flight| in_flight.sent)
    }

    /// Appends `request` to the outgoing bytes. [`Connection::flush`] writes them.
    pub(crate) fn push(
        &mut self,
        request: Request,
        version: u32,
        now: Nanos,
        content: &Content<'_>,
        key: &mut Vec<u8>,
    ) {
        key.clear();
        content.keys.append_to(request.id, key);
        let key = Key::new(key).expect("generated names are valid keys");
        match request.op {
            Op::Get => request::get(&mut self.out, [key], false),
            Op::Set | Op::Fill => {
                let line = Store {
                    verb: StoreVerb::Set,
                    key,
                    client_flags: 0,
                    exptime_s: content.exptime_s,
                    value_bytes: content.values.length(request.id),
                    cas: 0,
                    noreply: false,
                };
                request::store(&mut self.out, &line);
                content.values.append_to(request.id, version, &mut self.out);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        let in_flight = InFlight { request, sent: now, hit_bytes: None, mismatch: None };
        self.in_flight.push_back(in_flight);
    }

    /// Writes as many bytes as the socket accepts and returns their number.
    pub(crate) fn flush(&mut self) -> Result<usize, Lost> {
        if !self.is_ready()? {
            return Ok(0);
        }
        let State::Up(socket) = &self.state else { return Ok(0) };
        let before = self.out_sent;
        while self.writable && self.out_sent < self.out.len() {
            let rest = &self.out[self.out_sent..];
            let sent = match (&mut self.session, &mut self.near) {
                (Some(session), _) => session.write(&[IoSlice::new(rest)], &Descriptor(socket)),
                (None, Some(Near::Up(near))) => near.try_write(&[IoSlice::new(rest)]),
                (None, _) => rustix::io::write(socket, rest).map_err(io::Error::from),
            };
            match sent {
                Ok(bytes) => self.out_sent += bytes,
                // A near connection gets room without an event.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_near() => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        let written = self.out_sent - before + std::mem::take(&mut self.sent_aside);
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
        } else if self.out_sent >= OUT_BYTES_ENOUGH {
            self.out.drain(..self.out_sent);
            self.out_sent = 0;
        }
        Ok(written)
    }

    /// Returns whether this is an open connection through shared memory.
    pub(crate) const fn is_near(&self) -> bool {
        matches!((&self.state, &self.address.endpoint), (State::Up(_), Endpoint::Near(_)))
    }

    /// Returns whether the thread may sleep until an event of this connection.
    pub(crate) fn may_sleep(&mut self) -> bool {
        let (waits, for_room) = (!self.in_flight.is_empty(), self.out_sent < self.out.len());
        match &mut self.near {
            Some(Near::Up(near)) => near.may_sleep(waits, for_room),
            Some(Near::Greeting(_)) | None => true,
        }
    }

    /// Returns whether shared memory can be used. Begins and continues the greeting until then.
    fn is_greeted(&mut self) -> Result<bool, Lost> {
        let problem = |error: io::Error| error.to_string();
        let State::Up(socket) = &self.state else { return Ok(false) };
        let near = match &mut self.near {
            Some(Near::Up(_)) => return Ok(true),
            Some(Near::Greeting(greeting)) => greeting,
            none => {
                let socket = socket.try_clone().map_err(problem)?;
                let greeting = NearGreeting::begin(socket.into()).map_err(problem)?;
                *none = Some(Near::Greeting(greeting));
                return Ok(false);
            }
        };
        let Some(client) = near.finish().map_err(problem)? else { return Ok(false) };
        self.near = Some(Near::Up(Box::new(client)));
        Ok(true)
    }

    /// Returns whether bytes can be exchanged. Begins and continues the handshake of TLS until then.
    fn is_ready(&mut self) -> Result<bool, Lost> {
        if self.is_near() {
            return self.is_greeted();
        }
        let (State::Up(socket), Endpoint::Tls { host, .. }) = (&self.state, &self.address.endpoint)
        else {
            return Ok(true);
        };
        let problem = |error: io::Error| error.to_string();
        if self.session.is_none() {
            let client = tls::outgoing().map_err(problem)?;
            let session = client.session(host, tls::Application::Plain).map_err(problem)?;
            self.session = Some(Box::new(session));
        }
        let Some(session) = &mut self.session else { return Ok(false) };
        if !session.is_handshaking() {
            return Ok(true);
        }
        match session.handshake(&Descriptor(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(false)
            }
            ended => ended.map_err(problem),
        }
    }

    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Reads until the socket is empty. If the peer is `closing` the connection, it reads until the end. Appends the
    /// answers and returns the number of bytes.
    pub(crate) fn receive(
        &mut self,
        closing: bool,
        content: &Content<'_>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, Lost> {
        let mut received = 0;
        if self.is_near() && !self.is_ready()? {
            return Ok(0);
        }
        if let Some(Near::Up(near)) = self.near.as_mut().filter(|_| closing) {
            near.read_doorbells();
        }
        if self.session.as_ref().is_some_and(|session| session.is_handshaking()) {
            if !self.is_ready()? {
                return Ok(0);
            }
            // Requests have waited for the end of the handshake.
            self.sent_aside = self.flush()?;
        }
        loop {
            let State::Up(socket) = &self.state else { return Ok(received) };
            if self.input_end == self.input.len() {
                let length = self.input.len() + INPUT_BYTES_FIRST;
                self.input.resize(length, 0);
            }
            let asked = self.input.len() - self.input_end;
            let space = &mut self.input[self.input_end..];
            let read = match (&mut self.session, &mut self.near) {
                (Some(session), _) => session.read(space, &Descriptor(socket)),
                (None, Some(Near::Up(near))) => near.try_read(space),
                (None, _) => rustix::io::read(socket, space).map_err(io::Error::from),
            };
            let bytes = match read {
                Ok(0) => return Err("closed by the server".to_owned()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            self.input_end += bytes;
            received += bytes;
            self.take_answers(content, answers)?;
            // A short read has emptied the socket. Later bytes or the end of the connection cause another event.
            if bytes < asked && !closing && self.session.is_none() {
                return Ok(received);
            }
        }
    }

    /// Takes every complete response from the input, and makes space for the rest of a partial response.
    fn take_answers(
        &mut self,
        content: &Content<'_>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Lost> {
        let mut missing = 0;
        while self.input_start < self.input_end {
            let input = &self.input[self.input_start..self.input_end];
            let (response, consumed) = match response::parse(input) {
                Parse::Incomplete => break,
                Parse::Complete { response, consumed } => (response, consumed),
                Parse::Malformed(error) => return Err(error.to_string()),
            };
            let Some(front) = self.in_flight.front_mut() else {
                return Err(format!("an answer to no request: {}", excerpt(input)));
            };
            if let Response::Value { key, value_bytes, .. } = response {
                let length = bounded(value_bytes, content)?;
                let end = consumed + length + 2;
                if input.len() < end {
                    missing = end;
                    break;
                }
                front.take_value(key, &input[consumed..end], content, &mut self.wanted)?;
                self.input_start += end;
                continue;
            }
            let outcome = front.outcome(&response).ok_or_else(|| {
                format!("an answer to another command: {}", excerpt(&input[..consumed]))
            })?;
            answers.push(Answer { request: front.request, sent: front.sent, outcome });
            self.in_flight.pop_front();
            self.input_start += consumed;
        }
        self.compact(missing);
        Ok(())
    }

    /// Moves the remaining bytes to the front of a buffer with space for at least `whole` bytes.
    fn compact(&mut self, whole: usize) {
        if self.input_start > 0 {
            self.input.copy_within(self.input_start..self.input_end, 0);
            self.input_end -= self.input_start;
            self.input_start = 0;
        }
        if self.input.len() < whole {
            self.input.resize(whole, 0);
        }
    }

    /// Drops the socket and returns the requests that were in flight.
    pub(crate) fn disconnect(&mut self, now: Nanos) -> VecDeque<InFlight> {
        (self.session, self.near) = (None, None);
        self.state = State::Down { retry_at: now + self.backoff };
        self.backoff = Nanos(self.backoff.0 * 2).min(BACKOFF_LAST);
        self.out.clear();
        (self.out_sent, self.input_start, self.input_end) = (0, 0, 0);
        std::mem::take(&mut self.in_flight)
    }

    /// Starts to use a connected socket.
    pub(crate) fn up(&mut self, socket: OwnedFd) {
        self.state = State::Up(socket);
        self.writable = true;
    }

    /// Records that the connection works, so that the next loss starts with the shortest backoff again.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = BACKOFF_FIRST;
    }
}

impl InFlight {
    /// Accepts a value and its CR LF as the answer to this request.
    fn take_value(
        &mut self,
        key: &[u8],
        body: &[u8],
        content: &Content<'_>,
        wanted: &mut Vec<u8>,
    ) -> Result<(), Lost> {
        let Some(value) = body.strip_suffix(b"\r\n") else {
            return Err("a value without its CR LF".to_owned());
        };
        if self.request.op != Op::Get || self.hit_bytes.is_some() {
            return Err("a value that was not asked for".to_owned());
        }
        self.hit_bytes = Some(value.len());
        if content.verify {
            wanted.clear();
            content.keys.append_to(self.request.id, wanted);
            let checked = content.values.check(self.request.id, value);
            self.mismatch = if wanted.as_slice() == key {
                checked.err().map(|mismatch| mismatch.to_string())
            } else {
                Some(format!("the value of key {}", excerpt(key)))
            };
        }
        Ok(())
    }

    /// Returns the outcome of this request according to `response`, the last line of an answer. Returns `None` if the
    /// response answers another command.
    fn outcome(&mut self, response: &Response<'_>) -> Option<Outcome> {
        match (self.request.op, response) {
            (_, Response::Error { kind, message }) => {
                let kind = match kind {
                    ErrorKind::Unknown => "ERROR",
                    ErrorKind::Client => "CLIENT_ERROR",
                    ErrorKind::Server => "SERVER_ERROR",
                };
                let message = String::from_utf8_lossy(message);
                Some(error(format!("{kind} {message}").trim_end()))
            }
            (Op::Get, Response::End) => Some(match (self.hit_bytes, self.mismatch.take()) {
                (None, _) => Outcome::Miss,
                (Some(_), Some(mismatch)) => Outcome::Wrong(mismatch),
                (Some(value_bytes), None) => Outcome::Hit { value_bytes },
            }),
            (Op::Set | Op::Fill, Response::Stored) => Some(Outcome::Stored),
            (Op::Set | Op::Fill, Response::NotStored) => Some(error("NOT_STORED")),
            _ => None,
        }
    }
}

fn error(line: &str) -> Outcome {
    Outcome::Error(Failure { status: None, message: line.to_owned() })
}

fn bounded(value_bytes: u64, content: &Content<'_>) -> Result<usize, Lost> {
    let max = content.value_bytes_max as u64;
    // A value whose length differs from the written one counts as wrong bytes. A value longer than any written value is
    // not even read.
    if value_bytes > max.max(RESPONSE_LINE_BYTES_MAX as u64) {
        return Err(format!("a value of {value_bytes} bytes, more than the {max} ever written"));
    }
    Ok(value_bytes as usize)
}

/// The socket under a session.
struct Descriptor<'s>(&'s OwnedFd);

impl Wire for Descriptor<'_> {
    fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, space)?)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, slices)?)
    }
}

fn excerpt(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(EXCERPT_BYTES)].escape_ascii().to_string()
}

/// The number of unsent bytes from which on a connection takes no more requests. The limit prevents a server that does
/// not read from filling our memory.
const OUT_BYTES_ENOUGH: usize = 256 << 10;
/// The size of the first input buffer. The buffer grows to the largest value that arrives.
const INPUT_BYTES_FIRST: usize = 16 << 10;
const EXCERPT_BYTES: usize = 64;
