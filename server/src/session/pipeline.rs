//! The requests of one session that are in flight together: which requests these may be, which connection to the stores
//! they take, and how their replies keep the commands' order.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use protocol::command::{Command, Get, Keys};
use protocol::meta::Meta;
use protocol::reply::Reply;
use protocol::{Key, MetaKey};

use super::Session;
use super::connection::OUT_BYTES_MAX;
use super::dispatch::Step;
use super::text::{self, count_cas, count_hit};
use crate::backend::{GetIssue, Issue, MetaItem, Outcome, Written};
use crate::counters::CommandKind;
use crate::long_keys::LONG_BYTES;
use crate::upstream::Traffic;

/// A command that was issued and whose reply is still to be written. Replies keep the commands' order.
pub(super) struct Pending<'a> {
    pub(super) since: Instant,
    pub(super) issued: Issued<'a>,
}

pub(super) enum Issued<'a> {
    Get(Get<'a>, GetIssue),
    Store {
        issue: Issue<Outcome<Written>>,
        is_cas: bool,
        noreply: bool,
        /// The key of an add.
        added: Option<Key<'a>>,
    },
    Delete {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
    },
    Touch {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
    },
    MetaGet(Meta<'a>, Issue<Option<MetaItem>>),
}

/// The load that a command puts on the connection to a store.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// The number of keys whose values are requested.
    pub(super) keys: usize,
    /// The bytes of a request that requests no value.
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
}

impl Issued<'_> {
    const fn is_ready(&self) -> bool {
        match self {
            Issued::Get(_, issue) => matches!(issue, GetIssue::Here(_)),
            Issued::Store { issue, .. } => matches!(issue, Issue::Ready(_)),
            Issued::Delete { issue, .. } | Issued::Touch { issue, .. } => {
                matches!(issue, Issue::Ready(_))
            }
            Issued::MetaGet(_, issue) => matches!(issue, Issue::Ready(_)),
        }
    }

    const fn kind(&self) -> CommandKind {
        match self {
            Issued::Get(..) | Issued::MetaGet(..) => CommandKind::Get,
            Issued::Store { .. } => CommandKind::Set,
            Issued::Delete { .. } | Issued::Touch { .. } => CommandKind::Other,
        }
    }
}

impl Session {
    /// Issues commands as they come and settles them in order.
    pub(super) async fn serve_batch(&mut self, input: &[u8]) -> io::Result<(usize, Step)> {
        let mut pending: VecDeque<Pending<'_>> = VecDeque::new();
        let mut position = 0;
        let step = loop {
            if position == input.len() || self.closing {
                break Step::Consumed(position);
            }
            match self.serve_one(&input[position..], &mut pending).await {
                Step::Consumed(bytes) => position += bytes,
                other => break other,
            }
            if pending.len() >= self.pending_max() || self.out.len() >= OUT_BYTES_MAX {
                self.settle_all(&mut pending).await;
                self.flush().await?;
            }
        };
        self.settle_all(&mut pending).await;
        Ok((position, step))
    }

    /// Returns the number of requests that may be in flight. It is one if slow clients have used up the worker's budget
    /// by not receiving answers. One connection can then make the server hold only one value.
    pub(super) fn pending_max(&self) -> usize {
        if self.context.is_short_of_memory() { 1 } else { PENDING_MAX }
    }

    /// Settles a command at once if it is ready and nothing is before it. Otherwise the command waits its turn.
    pub(super) async fn push<'a>(
        &mut self,
        next: Pending<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        if pending.is_empty() && next.issued.is_ready() {
            self.settle_one(next).await;
        } else {
            pending.push_back(next);
        }
    }

    pub(super) async fn settle_all(&mut self, pending: &mut VecDeque<Pending<'_>>) {
        while let Some(next) = pending.pop_front() {
            self.settle_one(next).await;
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.clear();
        }
    }

    /// Returns the connection to the stores for a command. None means that everything in flight has to be settled
    /// first, because it must take effect first or because there is no room beside it.
    pub(super) fn admit(
        &mut self,
        command: &Command<'_>,
        Load { keys, request_bytes }: Load,
        nothing_under_way: bool,
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
                window.admit(
                    keys,
                    request_bytes,
                    nothing_under_way,
                    &self.context.interactive_load,
                )?
            }
        };
        let is_in_order = match &mut self.under_way {
            Some(under_way) => under_way.add_command(command),
            None => true,
        };
        is_in_order.then_some(traffic)
    }

    /// Does the same as `admit`, after settling everything in flight.
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

    /// Returns the connection to the stores for a request while nothing else is in flight. `keys` is the number of
    /// values that the request asks for, and `request_bytes` is what it sends.
    pub(super) fn traffic_alone(&mut self, keys: usize, request_bytes: usize) -> Traffic {
        let window = self.window.as_mut();
        let load = &self.context.interactive_load;
        window.map_or(Traffic::Interactive, |window| window.alone(keys, request_bytes, load))
    }

    /// Records that an answer came for `keys`, with values of this many bytes.
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

    /// Returns the number of the next keys of a get that may be requested at once. It is small if the value of one of
    /// them is known to be long.
    pub(super) fn keys_at_once(&self, keys: Keys<'_>) -> usize {
        let Some(window) = &self.window else { return text::KEYS_AT_ONCE };
        let keys_max = window.keys_max();
        let next = keys.split_at(keys_max).0.map(Key::bytes);
        let is_long = self.context.long_keys.contains_any(next);
        if is_long { keys_max.min(LONG_AT_ONCE) } else { keys_max }
    }

    pub(super) async fn settle_one(&mut self, pending: Pending<'_>) {
        self.answered = None;
        let kind = pending.issued.kind();
        self.settle(pending.issued).await;
        self.record(kind, pending.since);
    }

    pub(super) fn record(&mut self, kind: CommandKind, since: Instant) {
        let now = Instant::now();
        self.context.counters.durations[kind as usize].record(now.duration_since(since).into());
        self.answered = Some(now);
    }

    pub(super) async fn settle(&mut self, issued: Issued<'_>) {
        match issued {
            Issued::Get(get, issue) => self.reply_get(&get, issue).await,
            Issued::MetaGet(meta, issue) => self.reply_meta_get(&meta, issue).await,
            Issued::Store { issue, is_cas, noreply, added } => {
                let outcome = issue.written().await;
                if let (Ok(Written::NotStored), Some(key)) = (&outcome, added) {
                    self.context.look_after_add(&MetaKey::from(key)).await;
                }
                if is_cas {
                    count_cas(&self.context.counters.commands, &outcome);
                }
                self.reply_written(outcome, noreply);
            }
            Issued::Delete { issue, noreply } => {
                let outcome = issue.was_there().await;
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

/// The number of keys of one get that are requested at once if one of them has a long value.
const LONG_AT_ONCE: usize = 4;

/// The most requests of one connection that are in flight to the stores at once.
const PENDING_MAX: usize = 64;

/// The expected bytes of a request without a value and of its answer.
const LINE_BYTES: usize = 256;
