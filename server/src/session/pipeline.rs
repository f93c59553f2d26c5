//! The requests of a session that are in flight together: which requests may be, which connection to the
//! stores they use, and how replies keep the order of commands.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use protocol::Key;
use protocol::command::{Command, Get, Keys, Store};
use protocol::meta::Meta;
use protocol::reply::Reply;
use telemetry::timeline::Timeline;

use super::Session;
use super::connection::OUT_BYTES_MAX;
use super::dispatch::{Step, Wire};
use super::order::Effect;
use super::packets::PacketIssue;
use super::reply_to::ReplyTo;
use super::text::{self, count_hit};
use crate::backend::{GetIssue, Issue, MetaItem, Outcome, Written};
use crate::counters::CommandKind;
use crate::errors::FailedCommand;
use crate::long_keys::LONG_BYTES;
use crate::upstream::Traffic;

/// An issued command whose reply is not yet written.
pub(super) struct Pending<'a> {
    pub(super) since: Instant,
    pub(super) issued: Issued<'a>,
    /// Where the time of the request has gone so far, if that is recorded.
    pub(super) timeline: Option<Box<Timeline>>,
}

pub(super) enum Issued<'a> {
    Get(Get<'a>, GetIssue),
    Store {
        issue: Issue<Outcome<Written>>,
        store: Store<'a>,
    },
    Delete {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
        key: Key<'a>,
        /// The length that the value had, if watchers want to know it.
        bytes_before: Option<usize>,
    },
    Touch {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
    },
    MetaGet(Meta<'a>, Issue<Option<MetaItem>>),
    /// A packet of the binary protocol, or a call.
    Packet(ReplyTo, PacketIssue<'a>),
}

/// The load that a command puts on the connection to a store.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// The number of keys whose values are requested.
    pub(super) keys: usize,
    /// The size of a request that requests no value (bytes).
    request_bytes: usize,
}

impl Load {
    pub(super) fn new(command: &Command<'_>, value_bytes: usize) -> Self {
        let keys = match command {
            Command::Get(get) if !get.keys.is_one() => get.keys.count(),
            Command::Get(_) | Command::MetaGet(_) => 1,
            Command::Store(_) => return Self { keys: 0, request_bytes: value_bytes },
            _ => return Self { keys: 0, request_bytes: LINE_BYTES },
        };
        Self { keys, request_bytes: 0 }
    }

    /// Returns the load of a command on one item.
    pub(super) const fn of_item(is_value_wanted: bool, value_bytes: Option<usize>) -> Self {
        let request_bytes = match value_bytes {
            Some(bytes) => bytes,
            None if is_value_wanted => 0,
            None => LINE_BYTES,
        };
        Self { keys: is_value_wanted as usize, request_bytes }
    }
}

impl Issued<'_> {
    const fn is_ready(&self) -> bool {
        match self {
            Issued::Get(_, issue) => matches!(issue, GetIssue::Local(_)),
            Issued::Store { issue, .. } => issue.is_ready(),
            Issued::Delete { issue, .. } | Issued::Touch { issue, .. } => issue.is_ready(),
            Issued::MetaGet(_, issue) => issue.is_ready(),
            Issued::Packet(_, issue) => issue.is_ready(),
        }
    }

    const fn command(&self) -> FailedCommand {
        match self {
            Issued::Get(get, _) if get.touch_exptime_s.is_some() => FailedCommand::Gat,
            Issued::Get(..) => FailedCommand::Get,
            Issued::MetaGet(..) => FailedCommand::MetaGet,
            Issued::Store { .. } => FailedCommand::Set,
            Issued::Delete { .. } => FailedCommand::Delete,
            Issued::Touch { .. } => FailedCommand::Touch,
            Issued::Packet(_, issue) => issue.command(),
        }
    }

    const fn kind(&self) -> CommandKind {
        match self {
            Issued::Get(..) | Issued::MetaGet(..) => CommandKind::Get,
            Issued::Store { .. } => CommandKind::Set,
            Issued::Delete { .. } | Issued::Touch { .. } => CommandKind::Other,
            Issued::Packet(_, issue) => issue.kind(),
        }
    }
}

impl Session {
    /// Issues the commands of `input` and writes their replies in order.
    pub(super) async fn serve_batch<W: Wire>(&mut self, input: &[u8]) -> io::Result<(usize, Step)> {
        let mut pending: VecDeque<Pending<'_>> = VecDeque::new();
        let mut position = 0;
        // A near client reads the first answers while this session writes the next ones.
        let out_bytes_max = if self.is_near() { NEAR_OUT_BYTES_MAX } else { OUT_BYTES_MAX };
        let step = loop {
            if position == input.len() || self.closing {
                break Step::Consumed(position);
            }
            match W::serve_one(self, &input[position..], &mut pending).await {
                Step::Consumed(bytes) => position += bytes,
                other => break other,
            }
            if pending.len() >= self.pending_max() || self.out.len() >= out_bytes_max {
                self.settle_all(&mut pending).await;
                self.flush().await?;
            }
        };
        // Most clients send one request at a time, which is answered by now.
        if !pending.is_empty() || self.in_flight.is_some() {
            self.settle_all(&mut pending).await;
        }
        Ok((position, step))
    }

    /// Returns the number of requests that may be in flight. It is 1 if memory is short, so that a client
    /// that does not read its answers makes the server hold only one value.
    pub(super) fn pending_max(&self) -> usize {
        if self.context.is_short_of_memory() { 1 } else { PENDING_MAX }
    }

    /// Settles a command at once if it is the first, and is ready or the only one. Otherwise queues it.
    pub(super) async fn push<'a>(
        &mut self,
        next: Pending<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        if pending.is_empty() && (self.is_last || next.issued.is_ready()) {
            self.settle_one(next).await;
            if let Some(in_flight) = &mut self.in_flight {
                in_flight.clear();
            }
        } else {
            pending.push_back(next);
        }
    }

    pub(super) async fn settle_all(&mut self, pending: &mut VecDeque<Pending<'_>>) {
        if self.is_recorded && !pending.is_empty() {
            self.rest_timeline();
        }
        if let Some(first) = pending.pop_front() {
            self.settle_one(first).await;
        }
        while let Some(mut next) = pending.pop_front() {
            if let Some(timeline) = &mut next.timeline {
                timeline.add_order(Instant::now());
            }
            self.settle_one(next).await;
        }
        if self.resting.is_some() {
            self.continue_timeline();
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.clear();
        }
    }

    /// Returns the connection to the stores for a command. `None` means that everything in flight must be
    /// settled first, for the order of effects or for the limit.
    pub(super) fn admit(
        &mut self,
        command: &Command<'_>,
        Load { keys, request_bytes }: Load,
        is_idle: bool,
    ) -> Option<Traffic> {
        let traffic = match &mut self.window {
            None => Traffic::Interactive,
            Some(window) => {
                let long_bytes = match command {
                    Command::Get(get) => self.context.long_bytes(get.keys.map(Key::bytes)),
                    Command::MetaGet(meta) => self.context.long_bytes([meta.key.bytes()]),
                    _ => 0,
                };
                let request_bytes = request_bytes + long_bytes;
                window.admit(keys, request_bytes, is_idle, &self.context.interactive_load)?
            }
        };
        let is_in_order = match &mut self.in_flight {
            Some(in_flight) => in_flight.add_command(command),
            None => true,
        };
        is_in_order.then_some(traffic)
    }

    /// Like `admit`, for a command on one item.
    pub(super) fn admit_item(
        &mut self,
        key: &[u8],
        effect: Effect,
        Load { keys, request_bytes }: Load,
        is_idle: bool,
    ) -> Option<Traffic> {
        let traffic = match &mut self.window {
            None => Traffic::Interactive,
            Some(window) => {
                let long_bytes = if keys > 0 { self.context.long_bytes([key]) } else { 0 };
                let request_bytes = request_bytes + long_bytes;
                window.admit(keys, request_bytes, is_idle, &self.context.interactive_load)?
            }
        };
        let is_in_order = match &mut self.in_flight {
            Some(in_flight) => in_flight.add([key], effect),
            None => true,
        };
        is_in_order.then_some(traffic)
    }

    /// Settles everything in flight and then admits the command like `admit`.
    #[cold]
    pub(super) async fn admit_after(
        &mut self,
        command: &Command<'_>,
        load: Load,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Traffic {
        self.settle_all(pending).await;
        self.admit(command, load, true).unwrap_or(Traffic::Bulk)
    }

    /// Returns the connection to the stores for a request while nothing else is in flight. `keys` is the
    /// number of requested values, and `request_bytes` is the size of the request.
    pub(super) fn traffic_alone(&mut self, keys: usize, request_bytes: usize) -> Traffic {
        let window = self.window.as_mut();
        let load = &self.context.interactive_load;
        window.map_or(Traffic::Interactive, |window| window.alone(keys, request_bytes, load))
    }

    /// Records an answer for `keys` keys with values of `bytes` in total.
    pub(super) fn learn(&mut self, keys: usize, bytes: usize) {
        if let Some(window) = &mut self.window {
            window.learn(keys, bytes, &self.context.interactive_load);
        }
    }

    /// Records the length of a key's value, if there are links to stores.
    #[inline]
    pub(super) fn note_length(&self, key: &[u8], value_bytes: usize) {
        let known = &self.context.long_keys;
        if self.window.is_some() && (value_bytes >= LONG_BYTES || !known.is_empty()) {
            known.note(key, value_bytes);
        }
    }

    /// Returns how many of the next keys of a get may be requested at once: few if a value is known to be
    /// long.
    pub(super) fn keys_at_once(&self, keys: Keys<'_>) -> usize {
        let Some(window) = &self.window else { return text::KEYS_AT_ONCE };
        let keys_max = window.keys_max();
        let next = keys.split_at(keys_max).0.map(Key::bytes);
        let is_long = self.context.long_keys.contains_any(next);
        if is_long { keys_max.min(LONG_AT_ONCE) } else { keys_max }
    }

    pub(super) async fn settle_one(&mut self, pending: Pending<'_>) {
        self.answered = None;
        self.command = pending.issued.command();
        let kind = pending.issued.kind();
        self.resume_timeline(pending.timeline);
        self.settle(pending.issued).await;
        self.record(kind, pending.since);
    }

    /// Returns when the session turned to the next command: when it had answered the one before, if nothing has come in
    /// between. This saves a reading of the clock for each command of a pipeline.
    pub(super) fn turned(&self) -> Instant {
        self.answered.unwrap_or_else(Instant::now)
    }

    pub(super) fn record(&mut self, kind: CommandKind, since: Instant) {
        let now = Instant::now();
        self.context.counters.durations[kind as usize].record(now.duration_since(since).into());
        self.answered = Some(now);
        if self.is_recorded {
            self.answer_is_ready();
        }
    }

    pub(super) async fn settle(&mut self, issued: Issued<'_>) {
        match issued {
            Issued::Get(get, issue) => self.reply_get(&get, issue).await,
            Issued::MetaGet(meta, issue) => self.reply_meta_get(&meta, issue).await,
            // The future is boxed, so that sessions that speak text do not reserve memory for it.
            Issued::Packet(to, issue) => Box::pin(self.settle_packet(to, issue)).await,
            Issued::Store { issue, store } => self.settle_store(issue, &store).await,
            Issued::Delete { issue, noreply, key, bytes_before } => {
                let outcome = issue.was_there().await;
                if let Ok(true) = outcome {
                    self.note_deleted(&key, "delete", bytes_before);
                }
                let commands = &self.context.counters.commands;
                count_hit(&outcome, &commands.delete_hits, &commands.delete_misses);
                self.reply_found(outcome, Reply::Deleted, noreply);
            }
            Issued::Touch { issue, noreply } => {
                let outcome = issue.was_there().await;
                let commands = &self.context.counters.commands;
                commands.cmd_touch.up();
                count_hit(&outcome, &commands.touch_hits, &commands.touch_misses);
                self.reply_found(outcome, Reply::Touched, noreply);
            }
        }
    }
}

/// The number of keys of a get that are requested at once if any has a long value.
const LONG_AT_ONCE: usize = 4;

/// The maximum number of requests of one connection in flight to the stores.
const PENDING_MAX: usize = 64;

/// The number of bytes of replies after which they are written to a near client. The buffer of an idle connection holds
/// them with one more short answer.
const NEAR_OUT_BYTES_MAX: usize = 3 << 10;

/// The expected size of a request without a value and its answer (bytes).
const LINE_BYTES: usize = 256;
