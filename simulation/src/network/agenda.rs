//! The events of the network in the order of their times, and what each of them does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::pipe::{Pipe, Segment};
use super::{End, GIVEN_UP_AFTER, Host, Pair, State};

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A segment of a connection arrives, that this end has sent.
    Arrival(u64, usize),
    /// The writes of this end are no longer blocked.
    Unblocked(u64, usize),
    /// The systems of both ends give the connection up.
    GiveUp(u64),
}

/// Events at equal times happen in the order in which they were scheduled.
#[derive(Default)]
pub(super) struct Agenda {
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

impl State {
    pub(super) fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub(super) fn schedule(&mut self, at_ms: u64, event: Event) {
        self.agenda.scheduled += 1;
        self.agenda.events.push(Reverse((at_ms, self.agenda.scheduled, event)));
        self.wake.notify_one();
    }

    /// Does what is due, and returns the time of the next event.
    pub(super) fn deliver_due(&mut self) -> Option<Instant> {
        let now_ms = self.now_ms();
        loop {
            let Reverse((at_ms, _, event)) = *self.agenda.events.peek()?;
            if at_ms > now_ms {
                return Some(self.start + Duration::from_millis(at_ms));
            }
            self.agenda.events.pop();
            match event {
                Event::Arrival(id, from) => self.arrive(id, from),
                Event::Unblocked(id, end) => {
                    if let Some(pair) = self.connections.get_mut(&id) {
                        pair.ends[end].wake();
                    }
                }
                Event::GiveUp(id) => self.give_up(id),
            }
        }
    }

    /// Draws whether something with this probability happens.
    pub(super) fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.unit() < share
    }

    pub(super) fn draw_delay_ms(&mut self) -> u64 {
        let weather = self.weather;
        if weather.delay_max_ms == 0 || !self.happens(weather.delayed) {
            return 0;
        }
        1 + self.random.below(weather.delay_max_ms)
    }

    /// Sends a segment from an end.
    pub(super) fn send(&mut self, id: u64, from: usize, segment: Segment) {
        let at_ms = self.now_ms() + self.draw_delay_ms();
        if let Some(pair) = self.connections.get_mut(&id) {
            let at_ms = pair.pipes[from].send(at_ms, segment);
            self.schedule(at_ms, Event::Arrival(id, from));
        }
    }

    pub(super) fn begin_connection(
        &mut self,
        client: Host,
        server: Host,
        to: SocketAddr,
        told: oneshot::Sender<io::Result<()>>,
    ) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.next_port = self.next_port.checked_add(1).unwrap_or(10_000);
        let from = SocketAddr::new(client.ip(), self.next_port);
        let mut ends = [End::new(client, from), End::new(server, to)];
        ends[0].connecting = Some(told);
        // The server's end is open once somebody has it.
        ends[1].is_open = false;
        let pipes = [Pipe::default(), Pipe::default()];
        self.connections.insert(id, Pair { ends, pipes, is_lost: false });
        self.send(id, 0, Segment::Open);
        id
    }

    /// Delivers the segments of an end that are due, unless the direction is cut.
    fn arrive(&mut self, id: u64, from: usize) {
        let now_ms = self.now_ms();
        loop {
            let Some(pair) = self.connections.get_mut(&id) else { return };
            if pair.is_lost {
                return;
            }
            let direction = (pair.ends[from].host, pair.ends[1 - from].host);
            if self.silent.contains(&direction.1) {
                let again_ms = now_ms + 1 + self.random.below(RETRANSMIT_MS_MAX);
                return self.schedule(again_ms, Event::Arrival(id, from));
            }
            if let Some(until_ms) = self.cut.get(&direction).copied() {
                if now_ms < until_ms {
                    // The sender tries again some time after the end of the cut.
                    let again_ms = until_ms + self.random.below(RETRANSMIT_MS_MAX);
                    return self.schedule(again_ms, Event::Arrival(id, from));
                }
                self.cut.remove(&direction);
            }
            let Some(pair) = self.connections.get_mut(&id) else { return };
            match pair.pipes[from].next(now_ms) {
                Err(_) => return,
                Ok(segment) => self.take(id, from, segment),
            }
        }
    }

    /// Handles a segment at the end that it reaches.
    fn take(&mut self, id: u64, from: usize, segment: Segment) {
        let Some(pair) = self.connections.get_mut(&id) else { return };
        let to = 1 - from;
        match segment {
            Segment::Open => self.open(id),
            Segment::Accepted | Segment::Refused => {
                let refused = matches!(segment, Segment::Refused);
                let answer =
                    if refused { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) };
                if let Some(told) = pair.ends[to].connecting.take() {
                    let _ = told.send(answer);
                }
                if refused {
                    pair.ends[to].failure = Some(io::ErrorKind::ConnectionRefused);
                    self.forget_if_over(id);
                }
            }
            Segment::Bytes(bytes) => {
                if pair.ends[to].is_open {
                    pair.pipes[from].arrive(&bytes);
                    pair.ends[to].wake();
                } else {
                    // Nobody has this connection any more.
                    self.send(id, to, Segment::Reset);
                }
            }
            Segment::End => {
                pair.pipes[from].has_ended = true;
                pair.ends[to].wake();
                self.forget_if_over(id);
            }
            Segment::Reset => {
                pair.ends[to].failure.get_or_insert(io::ErrorKind::ConnectionReset);
                pair.pipes[to].drop_in_flight();
                // A client whose attempt was not answered yet learns it too.
                if let Some(told) = pair.ends[to].connecting.take() {
                    let _ = told.send(Err(io::ErrorKind::ConnectionReset.into()));
                }
                pair.ends[to].wake();
                self.forget_if_over(id);
            }
        }
    }

    fn open(&mut self, id: u64) {
        let Some(pair) = self.connections.get_mut(&id) else { return };
        let (from, to) = (pair.ends[0].address, pair.ends[1].address);
        match self.listeners.get_mut(&to) {
            Some(listener) => {
                pair.ends[1].is_open = true;
                listener.waiting.push_back((id, from));
                if let Some(waker) = listener.waker.take() {
                    waker.wake();
                }
                self.trace.note(format_args!("connection {id}: {from} -> {to}"));
                self.send(id, 1, Segment::Accepted);
            }
            None => self.send(id, 1, Segment::Refused),
        }
    }

    fn give_up(&mut self, id: u64) {
        let Some(pair) = self.connections.get_mut(&id) else { return };
        for end in &mut pair.ends {
            end.failure.get_or_insert(io::ErrorKind::TimedOut);
            end.wake();
        }
        self.forget_if_over(id);
    }

    pub(super) fn reset(&mut self, id: u64) {
        let Some(pair) = self.connections.get_mut(&id) else { return };
        for end in 0..2 {
            pair.pipes[end].drop_in_flight();
            pair.ends[end].failure.get_or_insert(io::ErrorKind::ConnectionReset);
            if let Some(told) = pair.ends[end].connecting.take() {
                let _ = told.send(Err(io::ErrorKind::ConnectionReset.into()));
            }
            pair.ends[end].wake();
        }
        self.trace.note(format_args!("connection {id}: reset"));
        self.forget_if_over(id);
    }

    pub(super) fn between(&self, one: Host, other: Host) -> Vec<u64> {
        let hosts = |pair: &Pair| (pair.ends[0].host, pair.ends[1].host);
        let is_between = |pair: &Pair| {
            let hosts = hosts(pair);
            hosts == (one, other) || hosts == (other, one)
        };
        let found = self.connections.iter().filter(|(_, pair)| is_between(pair));
        found.map(|(id, _)| *id).collect()
    }

    /// Closes an end, because its owner has dropped it.
    pub(super) fn close(&mut self, id: u64, end: usize) {
        let Some(pair) = self.connections.get_mut(&id) else { return };
        let this = &mut pair.ends[end];
        this.is_open = false;
        this.connecting = None;
        this.read_waker = None;
        this.write_waker = None;
        let has_failed = this.failure.is_some();
        let is_silent = self.silent.contains(&this.host);
        let has_shut_down = this.has_shut_down;
        let has_unread = pair.pipes[1 - end].held_bytes() > 0;
        if is_silent {
            let at_ms = self.now_ms() + GIVEN_UP_AFTER.as_millis() as u64;
            self.schedule(at_ms, Event::GiveUp(id));
        } else if !has_failed {
            if has_unread {
                self.send(id, end, Segment::Reset);
            } else if !has_shut_down {
                self.send(id, end, Segment::End);
            }
        }
        self.forget_if_over(id);
    }

    /// Forgets a connection that nobody has any more.
    fn forget_if_over(&mut self, id: u64) {
        let is_over = self.connections.get(&id).is_some_and(|pair| {
            let has_left = |end: &End| !end.is_open;
            pair.ends.iter().all(has_left) && pair.ends[0].connecting.is_none()
        });
        if is_over {
            self.connections.remove(&id);
        }
    }
}

/// The longest time from the end of a cut until a segment is sent again (ms).
const RETRANSMIT_MS_MAX: u64 = 200;
