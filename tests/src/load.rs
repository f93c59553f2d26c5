//! A background load whose every answer is checked: a value is a function of its key and version, so wrong
//! bytes are known when they are seen. It measures nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use units::Prng;

use crate::payload::text;
use crate::{Client, PATIENCE, poll_for};

/// Connections that set and get without pause until they are told to stop.
#[derive(Debug)]
pub struct Load {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

/// What the load has seen.
#[derive(Debug, Default)]
pub struct Tally {
    stop: AtomicBool,
    good: AtomicU64,
    errors: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

const KEYS: u64 = 50;
const CONNECTIONS: u64 = 4;

impl Load {
    /// Starts the load against `addr`.
    pub fn start(addr: SocketAddr) -> Self {
        let tally = Arc::new(Tally::default());
        let start = |seed| {
            let tally = Arc::clone(&tally);
            thread::spawn(move || tally.drive(addr, seed))
        };
        let threads = (0..CONNECTIONS).map(start).collect();
        Self { tally, threads }
    }

    /// Waits until `count` more requests have been answered as they should.
    ///
    /// # Panics
    /// If they are not within our patience.
    pub fn await_good(&self, count: u64) {
        self.await_more("good answers", &self.tally.good, count);
    }

    /// Waits until `count` more requests have been answered by `SERVER_ERROR`.
    ///
    /// # Panics
    /// If they are not within our patience.
    pub fn await_errors(&self, count: u64) {
        self.await_more("SERVER_ERROR answers", &self.tally.errors, count);
    }

    /// Stops the load; returns everything that no fault excuses: wrong bytes, lost connections, odd answers.
    pub fn stop(self) -> Vec<String> {
        self.tally.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            if thread.join().is_err() {
                self.tally.blame("a connection of the load panicked".to_owned());
            }
        }
        std::mem::take(&mut *self.tally.wrong.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn await_more(&self, what: &str, counter: &AtomicU64, count: u64) {
        let wanted = counter.load(Ordering::SeqCst) + count;
        let reached =
            poll_for(3 * PATIENCE, || (counter.load(Ordering::SeqCst) >= wanted).then_some(()));
        let seen = counter.load(Ordering::SeqCst);
        assert!(reached.is_some(), "{seen} {what}, not {wanted}; {:?}", self.tally);
    }
}

impl Tally {
    fn drive(&self, addr: SocketAddr, seed: u64) {
        let Ok(mut client) = Client::connect(addr) else {
            return self.blame("no connection at the start".to_owned());
        };
        client.deadline = PATIENCE;
        let mut prng = Prng::new(seed);
        while !self.stop.load(Ordering::SeqCst) {
            // Keys are a connection's own, so that it knows which versions it may find.
            let key = format!("load_{seed}_{}", prng.below(KEYS));
            let done = if prng.below(3) == 0 {
                client.set(&key, &value(&key, prng.below(1_000))).and_then(stored).map(Ok)
            } else {
                client.get(&key).map(|found| check(&key, found.as_deref()))
            };
            match done {
                Ok(Ok(())) => _ = self.good.fetch_add(1, Ordering::SeqCst),
                Ok(Err(wrong)) => self.blame(wrong),
                Err(line) => self.fault(&line),
            }
            if self.blamed() > 20 {
                return;
            }
        }
    }

    /// An answer that is no answer: only a clear server error may come of a fault behind the server.
    fn fault(&self, line: &str) {
        if line.starts_with("SERVER_ERROR ") {
            self.errors.fetch_add(1, Ordering::SeqCst);
            // A client backs off; without this the load would only measure how fast errors are made.
            thread::sleep(Duration::from_millis(1));
        } else {
            self.blame(line.to_owned());
        }
    }

    fn blame(&self, wrong: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(wrong);
    }

    fn blamed(&self) -> usize {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The value of a key's version: it names both, and half of all versions do not compress well.
pub fn value(key: &str, version: u64) -> Vec<u8> {
    let mut value = format!("{key} {version} ").into_bytes();
    let length = 10 + (version as usize * 37) % 8_000;
    if version.is_multiple_of(2) {
        value.extend(text(length));
    } else {
        value.extend(crate::payload::random(length));
    }
    value
}

/// Whether a found value is one of the key's versions; a miss always may be.
///
/// # Errors
/// What is wrong with it.
pub fn check(key: &str, found: Option<&[u8]>) -> Result<(), String> {
    let Some(found) = found else { return Ok(()) };
    let head = String::from_utf8_lossy(&found[..found.len().min(64)]).into_owned();
    let version = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    match version {
        Some(version) if value(key, version) == found => Ok(()),
        _ => Err(format!("wrong bytes for {key}: {head:?} ({} bytes)", found.len())),
    }
}

fn stored(line: String) -> Result<(), String> {
    if line == "STORED" { Ok(()) } else { Err(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_wrong() {
        let mut found = value("a", 7);
        assert_eq!(check("a", Some(&found)), Ok(()));
        assert!(check("b", Some(&found)).is_err());
        found[100] ^= 1;
        assert!(check("a", Some(&found)).is_err());
    }
}
