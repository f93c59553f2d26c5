//! Follows the requests of a server's clients with `watch`, and counts them by class. memcached drops lines for a
//! watcher that is too slow and does not wait for it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Error;
use super::classes::Classes;
use super::link::{Connect, Link};
use super::listing::{Event, Request, RequestKind};
use super::log::{LoggedRequest, RequestLog};
use super::memory::item_bytes;

/// The requests that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Watched {
    /// The requests of each class, by its index.
    pub(super) classes: Vec<Requests>,
    /// The requests that the server did not report.
    pub(super) skipped: u64,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Requests {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
}

impl Watched {
    /// Returns the requests of all classes.
    pub(super) fn total(&self) -> Requests {
        let add = |sum: Requests, one: &Requests| Requests {
            gets: sum.gets + one.gets,
            hits: sum.hits + one.hits,
            sets: sum.sets + one.sets,
        };
        self.classes.iter().fold(Requests::default(), add)
    }

    fn count(&mut self, request: &Request, classes: &Classes, log: &mut RequestLog) {
        let class = classes.index(&request.key).unwrap_or(0);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, Requests::default());
        }
        let counts = &mut self.classes[class];
        match request.kind {
            RequestKind::Hit => {
                counts.gets += 1;
                counts.hits += 1;
            }
            RequestKind::Miss => counts.gets += 1,
            RequestKind::Set => counts.sets += 1,
        }
        let item_bytes = request.value_bytes.map_or(0, |bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(VALUE_BYTES_MAX);
            item_bytes(request.key.len(), bytes, false) as u32
        });
        let (hash, class, kind) = (key_hash(&request.key), class as u16, request.kind);
        log.push(LoggedRequest { hash, item_bytes, class, kind });
    }
}

/// Holds back the last get of each connection. memcached looks a key up before it stores it, and reports this as a get,
/// which is dropped here.
#[derive(Debug, Default)]
struct Held(HashMap<u64, Request>);

impl Held {
    /// Takes a request, and returns the requests that are certain now.
    fn take(&mut self, request: Request) -> impl Iterator<Item = Request> {
        let before = self.0.remove(&request.connection);
        let is_set = request.kind == RequestKind::Set;
        let before = before.filter(|before| !is_set || before.key != request.key);
        let set = if is_set {
            Some(request)
        } else {
            if self.0.len() >= CONNECTIONS_MAX {
                self.0.clear();
            }
            self.0.insert(request.connection, request);
            None
        };
        before.into_iter().chain(set)
    }
}

/// Watches for this long. Returns the server's answer if it does not allow this.
pub(super) fn watch(
    connect: &Connect<'_>,
    time: Duration,
    stop: &AtomicBool,
    classes: &Classes,
    log: &mut RequestLog,
    mut advance: impl FnMut(Duration),
) -> Result<Result<Watched, String>, Error> {
    let mut link = Link::open(connect, stop)?;
    let answer = link.ask("watch fetchers mutations")?;
    if answer != "OK" {
        return Ok(Err(answer));
    }
    let start = Instant::now();
    let mut watched = Watched::default();
    let mut held = Held::default();
    let mut events_left = EVENTS_MAX;
    let mut is_open = true;
    while is_open && start.elapsed() < time && !stop.load(Ordering::Relaxed) && events_left > 0 {
        // The server ends a watch that it cannot serve. What was seen remains valid.
        is_open = link.read_available().is_ok();
        while let Some(line) = link.buffered_line()? {
            match Event::from_watch(&line) {
                Some(Event::Skipped(count)) => {
                    watched.skipped = watched.skipped.saturating_add(count)
                }
                Some(Event::Request(request)) => {
                    held.take(request).for_each(|request| watched.count(&request, classes, log));
                    events_left = events_left.saturating_sub(1);
                }
                None => {}
            }
        }
        advance(start.elapsed());
    }
    held.0.into_values().for_each(|request| watched.count(&request, classes, log));
    Ok(Ok(watched))
}

/// Returns the hash by which keys are followed.
pub(super) fn key_hash(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The largest value that a line may tell of (bytes): memcached's largest item has 1 GiB.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// The most connections whose last get is held back.
const CONNECTIONS_MAX: usize = 1 << 16;

/// The most lines that are read. It bounds the memory of the log.
const EVENTS_MAX: u64 = 4_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::link::Connection;
    use super::super::link::tests::{Endless, GO_ON, Script};
    use super::super::listing::Listed;
    use super::*;

    #[test]
    fn a_lookup_for_a_set_is_no_get() {
        let mut classes = Classes::new(&[], 10, 1);
        for key in [&b"a:1"[..], b"b:1"] {
            let key = key.to_vec();
            classes.add(Listed { key, expires: false, accessed_s: None, item_bytes: 60 }, 96.0);
        }
        let lines = "ts=1.1 gid=1 type=item_get key=a:1 status=found clsid=1 cfd=1 size=1\r\n\
                     ts=1.1 gid=2 type=item_get key=b:1 status=not_found clsid=1 cfd=1 size=1\r\n\
                     ts=1.1 gid=3 type=item_get key=b:1 status=not_found clsid=1 cfd=1 size=1\r\n\
                     ts=1.1 gid=4 type=item_get key=a:1 status=found clsid=1 cfd=9 size=1\r\n\
                     ts=1.1 gid=5 type=item_store key=b:1 status=stored cmd=set ttl=0 clsid=1 cfd=1 size=7\r\n\
                     [skipped: 5]\r\n";
        let script = Script::new(&["OK\r\n", lines]);
        let connect = || Ok(Box::new(script.clone()) as Box<dyn Connection>);
        let mut log = RequestLog::new(1.0);
        let stop = AtomicBool::new(false);
        let time = Duration::from_secs(60);
        let watched = watch(&connect, time, &stop, &classes, &mut log, |_| {}).unwrap().unwrap();
        assert_eq!(watched.classes[0], Requests { gets: 2, hits: 2, sets: 0 });
        assert_eq!(watched.classes[1], Requests { gets: 1, hits: 0, sets: 1 });
        assert_eq!(watched.skipped, 5);
        assert_eq!(watched.total(), Requests { gets: 3, hits: 2, sets: 1 });
        let sizes: Vec<u32> = log.requests.iter().map(|request| request.item_bytes).collect();
        let hit = item_bytes(3, 1, false) as u32;
        assert_eq!(sizes, [hit, 0, item_bytes(3, 7, false) as u32, hit]);
    }

    #[test]
    fn a_server_without_watch_is_no_failure() {
        let script = Script::new(&["ERROR watch is not supported\r\n"]);
        let connect = || Ok(Box::new(script.clone()) as Box<dyn Connection>);
        let stop = AtomicBool::new(false);
        let (classes, mut log) = (Classes::new(&[], 10, 1), RequestLog::new(1.0));
        let time = Duration::from_secs(60);
        let answer = watch(&connect, time, &stop, &classes, &mut log, |_| {}).unwrap();
        assert_eq!(answer, Err("ERROR watch is not supported".to_owned()));
    }

    #[test]
    fn a_server_that_only_talks_ends_with_the_time() {
        for line in [&b"nonsense\n"[..], b"[skipped: 18446744073709551615]\r\n", b"OK\r\n"] {
            let connect = || Ok(Box::new(Endless(line)) as Box<dyn Connection>);
            let (classes, mut log) = (Classes::new(&[], 10, 1), RequestLog::new(1.0));
            let time = Duration::from_millis(20);
            let found = watch(&connect, time, &GO_ON, &classes, &mut log, |_| {}).unwrap();
            assert!(found.is_err() || found == Ok(Watched::default()), "{found:?}");
        }
    }
}
