//! One generator thread on memcached. It passes due requests to connections with capacity and records the answers. It
//! sleeps until the next due time or the next answer, whichever comes first. Nothing in the loop waits for a server.

use rustix::net::sockopt;
use units::{Clock, Nanos};

use crate::address::Opening;
use crate::answer::{Answer, Failure};
use crate::connection::{Connection, State};
use crate::poller::Poller;
use crate::recorder::Recorder;
use crate::run::Opened;
use crate::source::Request;
use crate::turns::Turns;
use crate::work::{HOUSEKEEPING_EVERY, OPEN_TIMEOUT, Work};

/// The state of one generator thread.
pub(crate) struct Engine<'a> {
    work: Work<'a>,
    connections: Vec<Connection>,
    /// Decides which connection gets the next request of the backlog.
    turns: Turns,
    dirty: Vec<usize>,
    key: Vec<u8>,
    answers: Vec<Answer>,
    poller: Poller,
    next_housekeeping: Nanos,
    has_near: bool,
}

impl<'a> Engine<'a> {
    /// Creates an engine over connections that are up.
    pub(crate) fn new(work: Work<'a>, opened: Vec<Opened>) -> rustix::io::Result<Self> {
        let poller = Poller::new()?;
        let mut connections = Vec::with_capacity(opened.len());
        for (index, Opened { address, socket }) in opened.into_iter().enumerate() {
            poller.add(&socket, index)?;
            connections.push(Connection::new(address, State::Up(socket)));
        }
        let is_near = |connection: &Connection| connection.address.is_near();
        Ok(Self {
            work,
            has_near: connections.iter().any(is_near),
            connections,
            turns: Turns::new(),
            dirty: Vec::new(),
            key: Vec::new(),
            answers: Vec::new(),
            poller,
            next_housekeeping: Nanos(0),
        })
    }

    /// Runs until the end of the phase, and then waits for late answers.
    pub(crate) fn run(mut self) -> rustix::io::Result<Recorder> {
        let mut now = self.now();
        for index in 0..self.connections.len() {
            self.refill(index, now);
        }
        while !self.work.is_finished(now) {
            self.work.take_due(now);
            self.send_backlog(now);
            self.flush_dirty(now);
            now = self.now();
            if self.may_sleep() {
                self.poller.wait(now, self.work.wake_at(self.next_housekeeping))?;
            } else {
                self.poller.forget_events();
            }
            now = self.now();
            self.take_events(now);
            self.take_near(now);
            if now >= self.next_housekeeping {
                self.next_housekeeping = now + HOUSEKEEPING_EVERY;
                self.run_housekeeping(now);
            }
        }
        Ok(self.work.settle())
    }

    fn now(&self) -> Nanos {
        self.work.shared.clock.now()
    }

    /// Passes the backlog in order to connections with capacity.
    fn send_backlog(&mut self, now: Nanos) {
        let depth = self.work.shared.spec.pipeline_max;
        while self.work.has_backlog() {
            let has_capacity = |index: usize| self.connections[index].has_capacity(depth);
            let Some(index) = self.turns.take(self.connections.len(), has_capacity) else { return };
            if let Some(request) = self.work.next_waiting() {
                self.push(index, request, now);
            }
        }
    }

    /// Fills a connection up to its depth in a closed loop or a populate phase. Does nothing in an open loop.
    fn refill(&mut self, index: usize, now: Nanos) {
        let Some(depth) = self.work.depth() else { return };
        while self.connections[index].has_capacity(depth) {
            let Some(request) = self.work.next_now(now) else { return };
            self.push(index, request, now);
        }
    }

    fn push(&mut self, index: usize, request: Request, now: Nanos) {
        let version = self.work.sent(&request);
        let connection = &mut self.connections[index];
        connection.push(request, version, now, &self.work.shared.content, &mut self.key);
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Writes everything that was appended since the last flush, with one write per connection.
    fn flush_dirty(&mut self, now: Nanos) {
        while let Some(index) = self.dirty.pop() {
            self.connections[index].dirty = false;
            self.flush(index, now);
        }
    }

    fn flush(&mut self, index: usize, now: Nanos) {
        match self.connections[index].flush() {
            Ok(bytes) => self.work.recorder.bytes_out += bytes as u64,
            Err(reason) => self.disconnect(index, &reason, now),
        }
    }

    /// Returns whether the thread may wait for sockets and the next due time. It must not while a near connection is
    /// likely to have bytes soon.
    fn may_sleep(&mut self) -> bool {
        !self.has_near || self.connections.iter_mut().all(Connection::may_sleep)
    }

    /// Exchanges bytes on the near connections, on which they come without an event.
    fn take_near(&mut self, now: Nanos) {
        if !self.has_near {
            return;
        }
        for index in 0..self.connections.len() {
            if self.connections[index].is_near() {
                self.flush(index, now);
                self.receive(index, false, now);
                self.turns.open();
                self.refill(index, now);
            }
        }
    }

    fn take_events(&mut self, now: Nanos) {
        for position in 0..self.poller.len() {
            let Some(ready) = self.poller.event(position) else { continue };
            let index = ready.index;
            match self.connections[index].state {
                State::Down { .. } => continue,
                State::Opening { .. } => self.finish_opening(index, now),
                State::Up(_) => {
                    if ready.writable {
                        self.connections[index].set_writable();
                        self.flush(index, now);
                    }
                    // The doorbells of a near connection must be read.
                    let reads_all = ready.closing || self.connections[index].is_near();
                    self.receive(index, reads_all, now);
                }
            }
            self.turns.open();
            self.refill(index, now);
        }
    }

    fn receive(&mut self, index: usize, closing: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        let content = &self.work.shared.content;
        let received = connection.receive(closing, content, &mut self.answers);
        // Answers that arrived before the connection broke still count.
        self.take_answers(index, now);
        match received {
            Ok(bytes) => self.work.recorder.bytes_in += bytes as u64,
            Err(reason) => self.disconnect(index, &reason, now),
        }
    }

    fn take_answers(&mut self, index: usize, now: Nanos) {
        if self.answers.is_empty() {
            return;
        }
        self.connections[index].reset_backoff();
        let mut answers = std::mem::take(&mut self.answers);
        for answer in answers.drain(..) {
            if let Some(fill) = self.work.answered(&answer, now) {
                self.push(index, fill, now);
            }
        }
        self.answers = answers;
    }

    /// Closes a connection. The requests in flight on it fail.
    fn disconnect(&mut self, index: usize, reason: &str, now: Nanos) {
        let connection = &mut self.connections[index];
        let was_up = matches!(connection.state, State::Up(_));
        self.work.recorder.connections.lost += u64::from(was_up);
        let why = Failure { status: None, message: format!("connection lost: {reason}") };
        for in_flight in connection.disconnect(now) {
            self.work.failed(&in_flight.request, &why);
        }
    }

    /// Does the periodic work, which may be slightly delayed: timeouts, reconnects and CPU time.
    fn run_housekeeping(&mut self, now: Nanos) {
        self.work.run_housekeeping(now);
        let timeout = self.work.shared.spec.request_timeout;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            match connection.state {
                State::Up(_) => {
                    if connection.oldest_sent().is_some_and(|sent| now.since(sent) > timeout) {
                        self.disconnect(index, "no answer within the request timeout", now);
                    }
                }
                State::Opening { give_up_at, .. } if now >= give_up_at => self.give_up(index, now),
                State::Down { retry_at } if now >= retry_at => self.reopen(index, now),
                State::Opening { .. } | State::Down { .. } => {}
            }
        }
    }

    fn reopen(&mut self, index: usize, now: Nanos) {
        let opening = self.connections[index].address.open();
        let socket = match opening {
            Ok(Opening::Done(socket) | Opening::Pending(socket)) => socket,
            Err(_) => return self.give_up(index, now),
        };
        // A socket that is connected at once also reports a first event, and that event marks it as up.
        if self.poller.add(&socket, index).is_err() {
            return self.give_up(index, now);
        }
        let give_up_at = now + OPEN_TIMEOUT;
        self.connections[index].state = State::Opening { socket, give_up_at };
    }

    fn finish_opening(&mut self, index: usize, now: Nanos) {
        let opening = State::Down { retry_at: now };
        let state = std::mem::replace(&mut self.connections[index].state, opening);
        let State::Opening { socket, .. } = state else { return };
        match sockopt::socket_error(&socket) {
            Ok(Ok(())) => {
                self.work.recorder.connections.reopened += 1;
                self.connections[index].up(socket);
            }
            Ok(Err(_)) | Err(_) => self.give_up(index, now),
        }
    }

    fn give_up(&mut self, index: usize, now: Nanos) {
        self.work.recorder.connections.failed_attempts += 1;
        self.connections[index].disconnect(now);
    }
}
