//! One connection: outgoing bytes, incoming bytes, and the requests in flight in their order. It measures nothing and
//! hands up what was answered.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use protocol::command::{Store, StoreVerb};
use protocol::response::{ErrorKind, Parse, RESPONSE_LINE_BYTES_MAX, Response};
use protocol::{Key, request, response};
use rustix::io::Errno;
use units::Nanos;

use crate::address::Address;
use crate::answer::{Answer, Content, Failure, Outcome};
use crate::source::{Op, Request};
use crate::work::{BACKOFF_FIRST, BACKOFF_LAST};

/// A connection, up or not.
pub(crate) struct Connection {
    pub(crate) address: Address,
    pub(crate) state: State,
    /// How long to wait before the next attempt to reconnect.
    pub(crate) backoff: Nanos,
    /// Whether the engine has this connection on its list of connections to flush.
    pub(crate) dirty: bool,
    in_flight: VecDeque<InFlight>,
    out: Vec<u8>,
    out_sent: usize,
    writable: bool,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    /// The name of the key that an answer should carry.
    wanted: Vec<u8>,
}

/// Whether a connection can be used.
pub(crate) enum State {
    /// Lost. It is opened again at this time.
    Down { retry_at: Nanos },
    /// Being opened. It is given up at this time.
    Opening { socket: OwnedFd, give_up_at: Nanos },
    /// In use.
    Up(OwnedFd),
}

/// A request that was sent and not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    pub(crate) sent: Nanos,
    /// The length of the value that has arrived for it.
    hit_bytes: Option<usize>,
    mismatch: Option<String>,
}

/// Why a connection is of no further use.
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
        }
    }

    /// Tells whether another request may be sent, with fewer than `depth` in flight.
    pub(crate) fn has_room(&self, depth: usize) -> bool {
        matches!(self.state, State::Up(_))
            && self.in_flight.len() < depth
            && self.out.len() - self.out_sent < OUT_BYTES_ENOUGH
    }

    /// Returns when the oldest unanswered request was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Nanos> {
        self.in_flight.front().map(|in_flight| in_flight.sent)
    }

    /// Composes `request`. [`Connection::flush`] writes it.
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

    /// Writes as much as the socket takes and returns the number of bytes.
    pub(crate) fn flush(&mut self) -> Result<usize, Lost> {
        let State::Up(socket) = &self.state else { return Ok(0) };
        let before = self.out_sent;
        while self.writable && self.out_sent < self.out.len() {
            match rustix::io::write(socket, &self.out[self.out_sent..]) {
                Ok(bytes) => self.out_sent += bytes,
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        let written = self.out_sent - before;
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
        } else if self.out_sent >= OUT_BYTES_ENOUGH {
            self.out.drain(..self.out_sent);
            self.out_sent = 0;
        }
        Ok(written)
    }

    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Reads until the socket is empty, or to its end if it is `closing`. Appends the answers and returns the number of
    /// bytes.
    pub(crate) fn receive(
        &mut self,
        closing: bool,
        content: &Content<'_>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, Lost> {
        let mut received = 0;
        loop {
            let State::Up(socket) = &self.state else { return Ok(received) };
            if self.input_end == self.input.len() {
                let room = self.input.len() + INPUT_BYTES_FIRST;
                self.input.resize(room, 0);
            }
            let asked = self.input.len() - self.input_end;
            let bytes = match rustix::io::read(socket, &mut self.input[self.input_end..]) {
                Ok(0) => return Err("closed by the server".to_owned()),
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return Ok(received),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(lost(error)),
            };
            self.input_end += bytes;
            received += bytes;
            self.take_answers(content, answers)?;
            // A short read has emptied the socket. Later bytes, or the end, cause another event.
            if bytes < asked && !closing {
                return Ok(received);
            }
        }
    }

    /// Takes every whole response from the input, and makes room for the rest of a partial one.
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

    /// Moves the remaining bytes to the front, with room for `whole` bytes in all.
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
    pub(crate) fn lose(&mut self, now: Nanos) -> VecDeque<InFlight> {
        self.state = State::Down { retry_at: now + self.backoff };
        self.backoff = Nanos(self.backoff.0 * 2).min(BACKOFF_LAST);
        self.out.clear();
        (self.out_sent, self.input_start, self.input_end) = (0, 0, 0);
        std::mem::take(&mut self.in_flight)
    }

    /// Takes a connected socket into use.
    pub(crate) fn up(&mut self, socket: OwnedFd) {
        self.state = State::Up(socket);
        self.writable = true;
    }

    /// Notes that the connection works, so that a later loss starts with the shortest backoff again.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = BACKOFF_FIRST;
    }
}

impl InFlight {
    /// Takes a value with its CR LF for this request.
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

    /// Returns the outcome that `response`, the last line of an answer, means for this request. It is `None` if the
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
    // A value with another length than was written is wrong bytes. A value longer than any that was written is not even
    // read.
    if value_bytes > max.max(RESPONSE_LINE_BYTES_MAX as u64) {
        return Err(format!("a value of {value_bytes} bytes, more than the {max} ever written"));
    }
    Ok(value_bytes as usize)
}

fn lost(error: Errno) -> Lost {
    std::io::Error::from(error).to_string()
}

fn excerpt(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(EXCERPT_BYTES)].escape_ascii().to_string()
}

/// A connection with this many unsent bytes takes no more requests. A server that does not read must not fill our
/// memory.
const OUT_BYTES_ENOUGH: usize = 256 << 10;
/// The size of the first input buffer. The buffer grows to the largest value that arrives.
const INPUT_BYTES_FIRST: usize = 16 << 10;
const EXCERPT_BYTES: usize = 64;
