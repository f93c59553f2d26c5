//! One generator thread: takes up requests when they are due, gives them to connections with room,
//! and notes the answers. It sleeps until the next due time or the next answer, whichever comes
//! first; nothing in the loop waits for a server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::sockopt;
use units::{Clock, Nanos, SystemClock};

use crate::address::Opening;
use crate::connection::{Answer, Connection, Content, Outcome, State};
use crate::poller::Poller;
use crate::recorder::Recorder;
use crate::source::{Op, Request, Source};

/// What all threads of a phase share.
pub(crate) struct Shared<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) limits: Limits,
    pub(crate) clock: SystemClock,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) counters: Counters,
}

/// Bounds of one thread's work.
pub(crate) struct Limits {
    pub(crate) pipeline_max: usize,
    pub(crate) backlog_max: usize,
    pub(crate) request_timeout: Nanos,
    pub(crate) set_on_miss: bool,
    /// No request is due from here on.
    pub(crate) end: Nanos,
}

/// What the threads have done so far, for the progress display.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) answered: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// One thread's state.
pub(crate) struct Engine<'a> {
    shared: &'a Shared<'a>,
    source: Source,
    connections: Vec<Connection>,
    /// Requests that were due while no connection had room.
    backlog: VecDeque<Request>,
    /// The connection to try first for the next request.
    cursor: usize,
    /// Whether some connection may have room; spares looking at all of them when none has.
    room: bool,
    dirty: Vec<usize>,
    in_flight: usize,
    version: u32,
    key: Vec<u8>,
    answers: Vec<Answer>,
    poller: Poller,
    next_housekeeping: Nanos,
    last_answer: Nanos,
    recorder: Recorder,
}

impl<'a> Engine<'a> {
    /// An engine over connections that are up.
    pub(crate) fn new(
        shared: &'a Shared<'a>,
        source: Source,
        connections: Vec<Connection>,
        recorder: Recorder,
    ) -> rustix::io::Result<Self> {
        let poller = Poller::new()?;
        for (index, connection) in connections.iter().enumerate() {
            if let State::Up(socket) = &connection.state {
                poller.add(socket, index)?;
            }
        }
        Ok(Self {
            shared,
            source,
            connections,
            backlog: VecDeque::new(),
            cursor: 0,
            room: true,
            dirty: Vec::new(),
            in_flight: 0,
            version: 0,
            key: Vec::new(),
            answers: Vec::new(),
            poller,
            next_housekeeping: Nanos(0),
            last_answer: shared.clock.now(),
            recorder,
        })
    }

    /// Runs to the end of the phase, plus the wait for stragglers.
    pub(crate) fn run(mut self) -> rustix::io::Result<Recorder> {
        let mut now = self.shared.clock.now();
        for index in 0..self.connections.len() {
            self.refill(index, now);
        }
        while !self.shared.stop.load(Ordering::Relaxed) && !self.is_finished(now) {
            self.take_due(now);
            self.send_backlog(now);
            self.flush_dirty(now);
            now = self.shared.clock.now();
            self.poller.wait(now, self.wake_at())?;
            now = self.shared.clock.now();
            self.take_events(now);
            if now >= self.next_housekeeping {
                self.next_housekeeping = now + HOUSEKEEPING_EVERY;
                self.keep_house(now);
            }
        }
        self.settle();
        Ok(self.recorder)
    }

    fn is_finished(&self, now: Nanos) -> bool {
        let idle = self.in_flight == 0 && self.backlog.is_empty();
        let patience = self.shared.limits.request_timeout;
        match &self.source {
            // Stored all, or the server has been silent for longer than any request may take.
            Source::Populate { ids, .. } => {
                let silent = now.since(self.last_answer) > patience + patience;
                (ids.is_empty() && idle) || silent
            }
            Source::Open(open) if open.next_due() < self.shared.limits.end => false,
            Source::Open(_) | Source::Closed { .. } => {
                let end = self.shared.limits.end;
                now >= end && (idle || now >= end + patience.min(DRAIN_MAX))
            }
        }
    }

    fn wake_at(&self) -> Nanos {
        let end = self.shared.limits.end;
        match &self.source {
            Source::Open(open) if open.next_due() < end => {
                open.next_due().min(self.next_housekeeping)
            }
            _ => self.next_housekeeping,
        }
    }

    /// Takes up every request that is due.
    fn take_due(&mut self, now: Nanos) {
        let Source::Open(open) = &mut self.source else { return };
        let end = self.shared.limits.end;
        while open.next_due() <= now && open.next_due() < end {
            let request = open.take();
            self.recorder.offered(&request, now, true);
            if self.backlog.len() < self.shared.limits.backlog_max {
                self.backlog.push_back(request);
            } else {
                self.recorder.not_sent(&request);
            }
        }
    }

    /// Gives the backlog to connections with room, in order.
    fn send_backlog(&mut self, now: Nanos) {
        while self.room && !self.backlog.is_empty() {
            let Some(index) = self.connection_with_room() else {
                self.room = false;
                return;
            };
            if let Some(request) = self.backlog.pop_front() {
                self.push(index, request, now);
            }
        }
    }

    fn connection_with_room(&mut self) -> Option<usize> {
        let (count, depth) = (self.connections.len(), self.shared.limits.pipeline_max);
        let tried = (0..count).map(|step| (self.cursor + step) % count);
        let found = tried.into_iter().find(|&index| self.connections[index].has_room(depth));
        self.cursor = found.map_or(self.cursor, |index| (index + 1) % count);
        found
    }

    /// Tops a connection up with requests that do not come by the clock.
    fn refill(&mut self, index: usize, now: Nanos) {
        let (Source::Closed { depth, .. } | Source::Populate { depth, .. }) = self.source else {
            return;
        };
        while now < self.shared.limits.end && self.connections[index].has_room(depth) {
            let Some(request) = self.source.next_now(now) else { return };
            self.recorder.offered(&request, now, false);
            self.push(index, request, now);
        }
    }

    fn push(&mut self, index: usize, request: Request, now: Nanos) {
        self.version = self.version.wrapping_add(u32::from(request.op != Op::Get));
        let connection = &mut self.connections[index];
        connection.push(request, self.version, now, &self.shared.content, &mut self.key);
        self.in_flight += 1;
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Writes everything composed since the last flush: one write for all that a connection was
    /// given.
    fn flush_dirty(&mut self, now: Nanos) {
        while let Some(index) = self.dirty.pop() {
            self.connections[index].dirty = false;
            self.flush(index, now);
        }
    }

    fn flush(&mut self, index: usize, now: Nanos) {
        match self.connections[index].flush() {
            Ok(bytes) => self.recorder.bytes_out += bytes as u64,
            Err(reason) => self.lose(index, &reason, now),
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
                    self.receive(index, ready.closing, now);
                }
            }
            self.room = true;
            self.refill(index, now);
        }
    }

    fn receive(&mut self, index: usize, closing: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        let received = connection.receive(closing, &self.shared.content, &mut self.answers);
        // Answers that came before the connection broke still count.
        self.take_answers(index, now);
        match received {
            Ok(bytes) => self.recorder.bytes_in += bytes as u64,
            Err(reason) => self.lose(index, &reason, now),
        }
    }

    fn take_answers(&mut self, index: usize, now: Nanos) {
        if self.answers.is_empty() {
            return;
        }
        self.connections[index].reset_backoff();
        self.last_answer = now;
        let (mut answers, mut failed) = (std::mem::take(&mut self.answers), 0);
        let count = answers.len();
        self.in_flight -= count;
        let fill = self.shared.limits.set_on_miss && now < self.shared.limits.end;
        for answer in answers.drain(..) {
            self.recorder.answered(&answer, now);
            failed += u64::from(matches!(answer.outcome, Outcome::Error(_) | Outcome::Wrong(_)));
            if fill && answer.outcome == Outcome::Miss {
                let request = Request { op: Op::Fill, id: answer.request.id, intended: now };
                self.recorder.offered(&request, now, false);
                self.push(index, request, now);
            }
        }
        self.answers = answers;
        let counters = &self.shared.counters;
        counters.answered.fetch_add(count as u64 - failed, Ordering::Relaxed);
        counters.failed.fetch_add(failed, Ordering::Relaxed);
    }

    /// Gives a connection up, with what was in flight on it.
    fn lose(&mut self, index: usize, reason: &str, now: Nanos) {
        let connection = &mut self.connections[index];
        let was_up = matches!(connection.state, State::Up(_));
        let in_flight = connection.lose(now);
        self.in_flight -= in_flight.len();
        self.recorder.connections.lost += u64::from(was_up);
        self.shared.counters.failed.fetch_add(in_flight.len() as u64, Ordering::Relaxed);
        for request in in_flight {
            self.recorder.failed(&request.request, reason);
        }
    }

    /// What need not be exact: timeouts, reconnects, CPU time.
    fn keep_house(&mut self, now: Nanos) {
        self.recorder.watch_cpu(now);
        let timeout = self.shared.limits.request_timeout;
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            match connection.state {
                State::Up(_) => {
                    if connection.oldest_sent().is_some_and(|sent| now.since(sent) > timeout) {
                        self.lose(index, "no answer within the request timeout", now);
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
        // Even a socket that is connected at once brings its first event, which takes it into use.
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
                self.recorder.connections.reopened += 1;
                self.connections[index].up(socket);
            }
            Ok(Err(_)) | Err(_) => self.give_up(index, now),
        }
    }

    fn give_up(&mut self, index: usize, now: Nanos) {
        self.recorder.connections.failed_attempts += 1;
        self.connections[index].lose(now);
    }

    /// Counts what the end of the phase leaves behind.
    fn settle(&mut self) {
        for request in self.backlog.drain(..) {
            self.recorder.not_sent(&request);
        }
        if let Source::Populate { ids, .. } = &self.source {
            self.recorder.unsent += ids.end - ids.start;
        }
        let now = self.shared.clock.now();
        for connection in &mut self.connections {
            for request in connection.lose(now) {
                let counts = self.recorder.counts(&request.request);
                self.recorder.unanswered += u64::from(counts);
            }
        }
    }
}

/// Bounds how late the stop flag, a timeout or a retry is noticed.
const HOUSEKEEPING_EVERY: Nanos = Nanos::millis(10);
/// Stragglers of a long request timeout are not worth a longer run.
const DRAIN_MAX: Nanos = Nanos::secs(5);
const OPEN_TIMEOUT: Nanos = Nanos::secs(1);
