//! Watchers: clients that see what the server does, one line for each event (`watch`). Every watcher has a buffer of
//! its own, which its session sends. A watcher that reads too slowly loses lines, and nobody waits for it. An event
//! that nobody watches costs one read of an atomic number.

mod line;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use store::Embedded;
use store::embedded::{Evicted, EvictionObserver};
use tokio::sync::Notify;

use crate::config::ServerConfig;
use crate::counters::Counters;

pub(crate) use line::{ConnectionEvent, StoreEvent};

/// A set of kinds of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(u8);

impl Events {
    /// Lookups of keys.
    pub(crate) const FETCHERS: Self = Self(1);
    /// Storage commands.
    pub(crate) const MUTATIONS: Self = Self(1 << 1);
    /// Items that the embedded store evicts.
    pub(crate) const EVICTIONS: Self = Self(1 << 2);
    /// Connections that are opened and closed.
    pub(crate) const CONNECTIONS: Self = Self(1 << 3);
    /// Items that clients delete.
    pub(crate) const DELETIONS: Self = Self(1 << 4);
    /// The kinds of memcached that never happen here.
    const NONE: Self = Self(0);

    /// Returns the kind of events with memcached's name.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"fetchers" => Self::FETCHERS,
            b"mutations" => Self::MUTATIONS,
            b"evictions" => Self::EVICTIONS,
            b"connevents" => Self::CONNECTIONS,
            b"deletions" => Self::DELETIONS,
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => Self::NONE,
            _ => return None,
        })
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The watchers of a server.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// The events that any watcher wants.
    wanted: AtomicU8,
    /// The number of the last event. Watchers can restore the order of events by their numbers.
    last: AtomicU64,
    list: RwLock<Vec<Arc<Watcher>>>,
    buffer_bytes: usize,
    /// False if clients may not watch.
    is_allowed: bool,
}

/// The reason why a client cannot watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWatcher {
    NotAllowed,
    TooMany,
}

impl Watchers {
    /// Creates the list of watchers, who see what an embedded store evicts.
    pub(crate) fn open(config: &ServerConfig, embedded: Option<&Arc<Embedded>>) -> Arc<Self> {
        let watchers = Arc::new(Self::new(config.watch, config.watcher_bytes.0 as usize));
        if let Some(store) = embedded {
            store.observe_evictions(Arc::clone(&watchers) as _);
        }
        watchers
    }

    /// Creates the list of watchers, whose buffers have `buffer_bytes` each.
    fn new(is_allowed: bool, buffer_bytes: usize) -> Self {
        Self {
            wanted: AtomicU8::new(0),
            last: AtomicU64::new(0),
            list: RwLock::default(),
            buffer_bytes,
            is_allowed,
        }
    }

    pub(crate) const fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Returns whether a watcher wants any of these events.
    #[inline]
    pub(crate) fn want(&self, events: Events) -> bool {
        self.wanted.load(Ordering::Relaxed) & events.0 != 0
    }

    /// Adds a watcher until the returned value is dropped. `counters` count its lines.
    pub(crate) fn add(
        self: &Arc<Self>,
        events: Events,
        counters: &Arc<Counters>,
    ) -> Result<Watching, NoWatcher> {
        if !self.is_allowed {
            return Err(NoWatcher::NotAllowed);
        }
        let mut list = self.list.write();
        if list.len() >= WATCHERS_MAX {
            return Err(NoWatcher::TooMany);
        }
        let watcher = Arc::new(Watcher {
            events,
            buffer_bytes: self.buffer_bytes,
            lines: Mutex::default(),
            woken: Notify::new(),
            counters: Arc::clone(counters),
        });
        watcher.put(b"OK\r\n");
        list.push(Arc::clone(&watcher));
        self.set_wanted(&list);
        counters.commands.log_watchers.up();
        Ok(Watching { watchers: Arc::clone(self), watcher })
    }

    fn set_wanted(&self, list: &[Arc<Watcher>]) {
        let wanted = list.iter().fold(Events::NONE, |all, watcher| all.and(watcher.events));
        self.wanted.store(wanted.0, Ordering::Relaxed);
    }

    /// Gives every watcher of `events` a line, of which `write` appends everything behind the time and the number.
    #[cold]
    fn tell(&self, events: Events, write: impl FnOnce(&mut Vec<u8>)) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut text = Vec::with_capacity(LINE_BYTES_EXPECTED);
        line::begin(&mut text, number);
        write(&mut text);
        text.push(b'\n');
        for watcher in self.list.read().iter().filter(|watcher| watcher.events.meet(events)) {
            watcher.offer(&text);
        }
    }

    /// Tells watchers what a lookup of a key has found.
    pub(crate) fn fetched(&self, key: &[u8], lookup: Lookup, descriptor: i32) {
        self.tell(Events::FETCHERS, |out| line::fetched(out, key, lookup, descriptor));
    }

    /// Tells watchers the outcome of a storage command.
    pub(crate) fn stored(&self, event: &StoreEvent<'_>, descriptor: i32) {
        self.tell(Events::MUTATIONS, |out| line::stored(out, event, descriptor));
    }

    /// Tells watchers that a client has deleted an item. The length of its value is unknown in front of memcached
    /// servers.
    pub(crate) fn deleted(&self, key: &[u8], command: &str, value_bytes: Option<usize>) {
        self.tell(Events::DELETIONS, |out| line::deleted(out, key, command, value_bytes));
    }

    /// Tells watchers that a connection was opened or closed.
    pub(crate) fn connection(&self, event: &ConnectionEvent<'_>) {
        if self.want(Events::CONNECTIONS) {
            self.tell(Events::CONNECTIONS, |out| line::connection(out, event));
        }
    }
}

impl EvictionObserver for Watchers {
    fn evicted(&self, item: &Evicted<'_>) {
        if self.want(Events::EVICTIONS) {
            self.tell(Events::EVICTIONS, |out| line::evicted(out, item));
        }
    }
}

/// What a lookup of a key has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Missing,
    /// An item whose value has so many bytes.
    Found(usize),
    Flushed,
    Expired,
}

impl From<Option<usize>> for Lookup {
    fn from(value_bytes: Option<usize>) -> Self {
        value_bytes.map_or(Self::Missing, Self::Found)
    }
}

/// One client that watches, and the lines that it has not received yet.
#[derive(Debug)]
struct Watcher {
    events: Events,
    buffer_bytes: usize,
    lines: Mutex<Lines>,
    /// Wakes the session when there is a first line, and when half of the buffer is full.
    woken: Notify,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Lines {
    bytes: VecDeque<u8>,
    /// The number of lines that were lost since the last one that was not.
    skipped: u64,
}

impl Watcher {
    /// Appends a line, or counts it as lost if the buffer is full.
    fn offer(&self, text: &[u8]) {
        let mut lines = self.lines.lock();
        let needed = text.len() + SKIPPED_BYTES_MAX;
        if lines.bytes.len() + needed > self.buffer_bytes {
            lines.skipped += 1;
            self.counters.commands.log_watcher_skipped.up();
            return;
        }
        let before = lines.bytes.len();
        let skipped = std::mem::take(&mut lines.skipped);
        if skipped > 0 {
            lines.bytes.extend(format!("skipped={skipped}\n").as_bytes());
        }
        lines.bytes.extend(text);
        self.counters.commands.log_watcher_sent.up();
        let half = self.buffer_bytes / 2;
        if before == 0 || (before < half && lines.bytes.len() >= half) {
            self.woken.notify_one();
        }
    }

    fn put(&self, text: &[u8]) {
        self.lines.lock().bytes.extend(text);
        self.woken.notify_one();
    }
}

/// A client's subscription, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    watcher: Arc<Watcher>,
}

impl Watching {
    /// Waits until there are lines or, with `is_patient`, until half of the buffer is full.
    pub(crate) async fn wait(&self, is_patient: bool) {
        loop {
            let bytes = self.watcher.lines.lock().bytes.len();
            if bytes > 0 && (!is_patient || bytes >= self.watcher.buffer_bytes / 2) {
                return;
            }
            self.watcher.woken.notified().await;
        }
    }

    /// Moves at most `bytes_max` bytes to the end of `out`.
    pub(crate) fn take(&self, out: &mut Vec<u8>, bytes_max: usize) {
        let mut lines = self.watcher.lines.lock();
        let bytes = lines.bytes.len().min(bytes_max);
        out.extend(lines.bytes.drain(..bytes));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut list = self.watchers.list.write();
        list.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
        self.watchers.set_wanted(&list);
        self.watcher.counters.commands.log_watchers.down();
    }
}

/// The most watchers, as in memcached.
const WATCHERS_MAX: usize = 20;

/// The length of most lines (bytes).
const LINE_BYTES_EXPECTED: usize = 256;

/// The bytes that are kept free for a line that tells how many lines were lost.
const SKIPPED_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn watchers() -> (Arc<Watchers>, Arc<Counters>) {
        (Arc::new(Watchers::new(true, 4 << 10)), Arc::default())
    }

    fn read(watching: &Watching) -> String {
        let mut out = Vec::new();
        watching.take(&mut out, usize::MAX);
        String::from_utf8(out).expect("lines are text")
    }

    #[test]
    fn only_watched_events_are_wanted() {
        let (watchers, counters) = watchers();
        assert!(!watchers.want(Events::FETCHERS));
        let watching = watchers.add(Events::FETCHERS, &counters).expect("one watcher");
        assert!(watchers.want(Events::FETCHERS) && !watchers.want(Events::MUTATIONS));
        watchers.fetched(b"a", Lookup::Found(3), 7);
        watchers.deleted(b"a", "delete", Some(3));
        let text = read(&watching);
        let (first, rest) = text.split_once("\r\n").expect("the answer");
        assert_eq!(first, "OK");
        let expected = " gid=1 type=item_get key=a status=found clsid=1 cfd=7 size=3\n";
        assert!(rest.starts_with("ts=") && rest.ends_with(expected), "{rest}");
        drop(watching);
        assert!(!watchers.want(Events::FETCHERS));
        assert_eq!(counters.commands.log_watchers.read(), 0);
    }

    #[test]
    fn a_full_buffer_loses_lines_and_says_how_many() {
        let (watchers, counters) = watchers();
        let watching = watchers.add(Events::FETCHERS, &counters).expect("one watcher");
        for _ in 0..1_000 {
            watchers.fetched(b"a", Lookup::Missing, 7);
        }
        let before = read(&watching);
        assert!(before.len() <= 4 << 10, "{} bytes", before.len());
        let received = before.lines().count() - 1;
        watchers.fetched(b"b", Lookup::Missing, 7);
        let after = read(&watching);
        assert!(after.starts_with(&format!("skipped={}\nts=", 1_000 - received)), "{after}");
        assert_eq!(counters.commands.log_watcher_skipped.read(), 1_000 - received as u64);
        assert_eq!(counters.commands.log_watcher_sent.read(), received as u64 + 1);
    }

    #[test]
    fn watchers_are_limited() {
        let (watchers, counters) = watchers();
        let add = || watchers.add(Events::EVICTIONS, &counters);
        let mut all: Vec<_> = (0..WATCHERS_MAX).map(|_| add().expect("a place")).collect();
        assert_eq!(add().err(), Some(NoWatcher::TooMany));
        all.pop();
        assert!(add().is_ok());
        let forbidden = Arc::new(Watchers::new(false, 4 << 10));
        assert_eq!(forbidden.add(Events::EVICTIONS, &counters).err(), Some(NoWatcher::NotAllowed));
    }
}
