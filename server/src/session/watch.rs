//! The command `watch`, and what this session tells watchers about its client's commands. In front of memcached servers
//! these are the commands of this server's clients and their results, because only the servers see more.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use protocol::command::{Admin, Command, StoreVerb};
use protocol::reply::Reply;
use protocol::{Tokens, refusal};
use store::embedded::Standing;
use tokio::time::{Instant, sleep_until, timeout};

use super::Session;
use super::edit::{Extended, reported_ttl_s};
use crate::access::{Client, Rights, for_each_key};
use crate::backend::{Backend, Failure, Outcome, Written};
use crate::budget::Permit;
use crate::connection_table::{CloseReason, State};
use crate::stream::Stream;
use crate::watchers::{Events, Lookup, NoWatcher, StoreEvent, Watching};

impl Session {
    /// Serves `watch`: from now on, the client gets lines about events until it disconnects.
    pub(super) async fn watch(&mut self, admin: &Admin<'_>) {
        let permit = self.context.budget.try_begin(self.context.watchers.buffer_bytes() as u64);
        let answer: &[u8] = match (events(admin.arguments), permit) {
            (None, _) => refusal::ERROR,
            (Some(events), permit) => {
                match self.context.watchers.add(events, &self.context.counters) {
                    Err(NoWatcher::NotAllowed) => b"CLIENT_ERROR watch commands not allowed\r\n",
                    Err(NoWatcher::TooMany) => b"WATCHER_TOO_MANY log watcher limit reached\r\n",
                    Ok(watching) => match permit {
                        Some(permit) => return self.send_events(&watching, permit).await,
                        None => b"WATCHER_FAILED failed to add log watcher\r\n",
                    },
                }
            }
        };
        if !admin.noreply {
            self.out.text().extend_from_slice(answer);
        }
    }

    /// Sends lines until the client disconnects or loses its right, or the server drains.
    async fn send_events(&mut self, watching: &Watching, _permit: Permit) {
        if !self.flush_or_close().await {
            return;
        }
        self.set_state(State::Watches);
        // Whatever follows the command is not read as commands any more.
        self.closing = true;
        let context = Rc::clone(&self.context);
        let mut lines = Vec::new();
        let mut check_at = Instant::now() + CHECK_RIGHTS_EVERY;
        loop {
            let Ok(stream) = self.stream() else { return };
            let sent = tokio::select! {
                biased;
                () = context.shutdown.begun() => {
                    self.close_reason = CloseReason::Shutdown;
                    return;
                }
                () = sleep_until(check_at) => Ok(0),
                sent = send_some(stream, watching, &mut lines) => sent,
                ended = until_end(stream) => {
                    if ended.is_ok() {
                        self.close_reason = CloseReason::Normal;
                    }
                    return;
                }
            };
            let Ok(bytes) = sent else { return };
            context.counters.commands.bytes_written.add(bytes as u64);
            if let Some(client) = &self.client {
                client.spend_bytes(bytes);
            }
            if Instant::now() >= check_at {
                check_at = Instant::now() + CHECK_RIGHTS_EVERY;
                if !self.may_still_watch() {
                    return;
                }
            }
        }
    }

    /// Returns whether the rules, which may have changed, still allow the client to watch.
    fn may_still_watch(&self) -> bool {
        let check = |client: &Rc<Client>| client.check("watch", Rights::ADMIN, |_| true).is_ok();
        self.client.as_ref().is_none_or(check)
    }

    /// Does the same as [`Self::note_lookup`] for each key of a command.
    #[inline]
    pub(super) fn note_lookups(&self, command: &Command<'_>) {
        if self.context.watchers.want(Events::FETCHERS) {
            for_each_key(command, |key| {
                self.tell_lookup(key);
                true
            });
        }
    }

    /// Tells watchers what the lookup of a key finds in the embedded store, before a command changes it.
    #[inline]
    pub(super) fn note_lookup(&self, key: &[u8]) {
        if self.context.watchers.want(Events::FETCHERS) {
            self.tell_lookup(key);
        }
    }

    /// Does the same as [`Self::note_lookup`] for each of several keys.
    #[inline]
    pub(super) fn note_lookup_of_each<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.context.watchers.want(Events::FETCHERS) {
            keys.for_each(|key| self.tell_lookup(key));
        }
    }

    #[cold]
    fn tell_lookup(&self, key: &[u8]) {
        let lookup = match self.standing(key) {
            None => return,
            Some(Standing::Missing) => Lookup::Missing,
            Some(Standing::Alive(value_bytes)) => Lookup::Found(value_bytes),
            Some(Standing::Flushed) => Lookup::Flushed,
            Some(Standing::Expired) => Lookup::Expired,
        };
        self.context.watchers.fetched(key, lookup, self.descriptor());
    }

    /// Returns what the embedded store has under a key, with the length of the logical value.
    fn standing(&self, key: &[u8]) -> Option<Standing<usize>> {
        let Backend::Local(local) = &self.context.backend else { return None };
        let values = &self.context.values;
        Some(local.standing(key, |stored| values.logical_bytes(stored).unwrap_or(stored.len())))
    }

    /// Tells watchers what a memcached server has found. The length of the value is none if there is no item.
    #[inline]
    pub(super) fn note_answer(&self, key: &[u8], value_bytes: Option<usize>) {
        if self.context.watchers.want(Events::FETCHERS) && self.context.backend.has_links() {
            self.context.watchers.fetched(key, value_bytes.into(), self.descriptor());
        }
    }

    /// Tells watchers the outcome of a storage command.
    #[inline]
    pub(super) fn note_stored(&self, stored: &StoredBy<'_>, outcome: &Outcome<Written>) {
        if self.context.watchers.want(Events::MUTATIONS) {
            self.tell_stored(stored, outcome);
        }
    }

    #[cold]
    fn tell_stored(&self, stored: &StoredBy<'_>, outcome: &Outcome<Written>) {
        let (status, has_memory) = match outcome {
            Ok(Written::Stored { .. }) => ("stored", true),
            Ok(Written::NotStored) => ("not_stored", true),
            Ok(Written::Exists) => ("exists", true),
            Ok(Written::NotFound) => ("not_found", true),
            Err(Failure::OutOfMemory | Failure::OverBudget(_)) => ("no_memory", false),
            // The errors of servers are in the metrics. memcached has no word for them.
            Err(Failure::Link(_) | Failure::Line(_)) => return,
        };
        let event = StoreEvent {
            key: stored.key,
            status,
            command: stored.verb.name(),
            ttl_s: stored.left_s.unwrap_or_else(|| ttl_s(stored.exptime_s)),
            value_bytes: has_memory.then_some(stored.value_bytes),
        };
        self.context.watchers.stored(&event, self.descriptor());
    }

    /// Tells watchers that a value was refused because it is too large.
    #[cold]
    pub(super) fn note_too_large(&self, key: &[u8]) {
        if self.context.watchers.want(Events::MUTATIONS) {
            let status = "too_large";
            let event = StoreEvent { key, status, command: "set", ttl_s: 0, value_bytes: None };
            self.context.watchers.stored(&event, self.descriptor());
        }
    }

    /// Tells watchers that an increment has created a number.
    pub(super) fn note_created(&self, key: &[u8], number: u64, exptime_s: Option<i32>) {
        let value_bytes = number.checked_ilog10().map_or(1, |digits| digits as usize + 1);
        let exptime_s = exptime_s.unwrap_or(0);
        let verb = StoreVerb::Add;
        let stored = StoredBy { key, verb, exptime_s, left_s: None, value_bytes };
        self.note_stored(&stored, &Ok(Written::Stored { cas: 0 }));
    }

    /// Returns the length of the item's value before a deletion, if watchers want to know it.
    #[inline]
    pub(super) fn bytes_before(&self, key: &[u8]) -> Option<usize> {
        if !self.context.watchers.want(Events::DELETIONS) {
            return None;
        }
        match self.standing(key) {
            Some(Standing::Alive(value_bytes)) => Some(value_bytes),
            _ => None,
        }
    }

    /// Tells watchers that an item was deleted. `value_bytes` is the length that its value had, if it is known.
    #[inline]
    pub(super) fn note_deleted(&self, key: &[u8], command: &str, value_bytes: Option<usize>) {
        if self.context.watchers.want(Events::DELETIONS) {
            self.context.watchers.deleted(key, command, value_bytes);
        }
    }

    /// Returns the number by which watchers know this connection, or 0 for a command in memory.
    fn descriptor(&self) -> i32 {
        self.connection.as_ref().map_or(0, |connection| connection.descriptor())
    }

    pub(super) fn set_state(&self, state: State) {
        if let Some(connection) = &self.connection {
            connection.set_state(state);
        }
    }

    /// Serves `stats conns`. The list is sent in parts, so that it takes little memory.
    pub(super) async fn stats_conns(&mut self) {
        let mut after = -1;
        loop {
            let some = self.context.connection_table.some_after(after);
            let Some(last) = some.last() else { break };
            after = last.descriptor();
            for (name, value) in some.iter().flat_map(|connection| connection.facts()) {
                protocol::reply::stat(self.out.text(), &name, &value);
            }
            if !self.flush_or_close().await {
                return;
            }
            self.set_state(State::Serves);
        }
        self.line(Reply::End);
    }
}

/// A storage command and its value.
#[derive(Clone, Copy)]
pub(super) struct StoredBy<'a> {
    pub(super) key: &'a [u8],
    pub(super) verb: StoreVerb,
    pub(super) exptime_s: i32,
    /// The time after which an item that was extended expires (s), which `exptime_s` does not tell.
    pub(super) left_s: Option<u32>,
    pub(super) value_bytes: usize,
}

impl StoredBy<'_> {
    /// Returns the same command with the facts of the item that it has extended.
    pub(super) fn extending(self, extended: &Outcome<Extended>) -> Self {
        match extended {
            Ok(Extended { left_s, value_bytes, .. }) => {
                Self { left_s: *left_s, value_bytes: *value_bytes, ..self }
            }
            Err(_) => self,
        }
    }
}

impl<'a> From<&protocol::command::Store<'a>> for StoredBy<'a> {
    fn from(store: &protocol::command::Store<'a>) -> Self {
        let protocol::command::Store { verb, exptime_s, value_bytes, .. } = *store;
        Self { key: store.key.bytes(), verb, exptime_s, left_s: None, value_bytes }
    }
}

impl<'a> From<&protocol::binary::Store<'a>> for StoredBy<'a> {
    fn from(store: &protocol::binary::Store<'a>) -> Self {
        let protocol::binary::Store { verb, key, exptime_s, value_bytes, .. } = *store;
        Self { key, verb, exptime_s, left_s: None, value_bytes }
    }
}

/// Returns the events that `watch` names, or none if a name is unknown.
fn events(arguments: Tokens<'_>) -> Option<Events> {
    if arguments.is_empty() {
        return Some(Events::FETCHERS);
    }
    let mut all = Events::default();
    for name in arguments {
        all = all.and(Events::named(name)?);
    }
    Some(all)
}

/// Sends the lines that are there, after a short wait for more. Returns the number of bytes sent. If it is cancelled,
/// the rest of `lines` is sent first by the next call.
async fn send_some(stream: &Stream, watching: &Watching, lines: &mut Vec<u8>) -> io::Result<usize> {
    if lines.is_empty() {
        watching.wait(false).await;
        // Under load, one call sends many lines.
        let _ = timeout(GATHER_FOR, watching.wait(true)).await;
        watching.take(lines, SEND_BYTES_MAX);
    }
    loop {
        match stream.try_write(&[IoSlice::new(lines)]) {
            Ok(bytes) => {
                lines.drain(..bytes);
                return Ok(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|task| stream.poll_writable(task)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Discards what the client sends until it has closed the connection.
async fn until_end(stream: &Stream) -> io::Result<()> {
    let mut scratch = [0; 256];
    loop {
        poll_fn(|task| stream.poll_readable(task)).await?;
        match stream.try_read(&mut scratch) {
            Ok(0) => return Ok(()),
            Ok(_) => tokio::task::yield_now().await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the time to live that watchers see (s). For an item that has expired already, memcached's number wraps.
fn ttl_s(exptime_s: i32) -> u32 {
    if exptime_s < 0 { u32::MAX } else { reported_ttl_s(exptime_s).unwrap_or(0) }
}

/// The time for which a first line waits for others.
const GATHER_FOR: Duration = Duration::from_millis(1);

/// The most bytes of one write to a watcher.
const SEND_BYTES_MAX: usize = 16 << 10;

/// The interval at which a watcher's right is checked again.
const CHECK_RIGHTS_EVERY: Duration = Duration::from_secs(1);
