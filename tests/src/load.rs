//! A background load that checks every answer. A value is a function of its key and version, so wrong bytes are
//! recognised at once. The load measures nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use units::Prng;

use crate::payload::text;
use crate::{Client, TIMEOUT, poll_for};

/// Connections that set and get without pause until the load is stopped.
#[derive(Debug)]
pub struct Load {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

/// The observations of the load.
#[derive(Debug, Default)]
pub struct Tally {
    stop: AtomicBool,
    good: AtomicU64,
    errors: AtomicU64,
    lost: AtomicU64,
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

    /// Waits until `count` more requests have been answered correctly.
    ///
    /// # Panics
    /// The answers do not come in time.
    pub fn await_good(&self, count: u64) {
        self.await_more("good answers", &self.tally.good, count);
    }

    /// Waits until `count` more requests have been answered with `SERVER_ERROR`.
    ///
    /// # Panics
    /// The answers do not come in time.
    pub fn await_errors(&self, count: u64) {
        self.await_more("SERVER_ERROR answers", &self.tally.errors, count);
    }

    /// Returns the number of requests answered with `SERVER_ERROR`, and the number of gets that did not
    /// return the value last stored. Both must be zero unless a store was lost.
    pub fn missed(&self) -> (u64, u64) {
        (self.tally.errors.load(Ordering::SeqCst), self.tally.lost.load(Ordering::SeqCst))
    }

    /// Stops the load and returns the errors that no fault may cause, such as wrong bytes.
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
            poll_for(3 * TIMEOUT, || (counter.load(Ordering::SeqCst) >= wanted).then_some(()));
        let seen = counter.load(Ordering::SeqCst);
        assert!(reached.is_some(), "{seen} {what}, not {wanted}; {:?}", self.tally);
    }
}

impl Tally {
    fn drive(&self, addr: SocketAddr, seed: u64) {
        let Ok(mut client) = Client::connect(addr) else {
            return self.blame("no connection at the start".to_owned());
        };
        client.deadline = TIMEOUT;
        let mut prng = Prng::new(seed);
        // The version that each key must have. A key has none if its last set was not answered correctly.
        let mut versions = HashMap::new();
        while !self.stop.load(Ordering::SeqCst) {
            // Each connection has its own keys, so that it knows which versions it may find.
            let key = format!("load_{seed}_{}", prng.below(KEYS));
            let done = if prng.below(3) == 0 {
                let version = prng.below(1_000);
                versions.remove(&key);
                let answer = client.set(&key, &value(&key, version)).and_then(stored);
                answer.map(|()| Ok(_ = versions.insert(key, version)))
            } else {
                let found = client.get(&key);
                if let (Ok(found), Some(version)) = (&found, versions.get(&key)) {
                    let lost = found.as_deref() != Some(&value(&key, *version)[..]);
                    self.lost.fetch_add(lost.into(), Ordering::SeqCst);
                }
                found.map(|found| check(&key, found.as_deref()))
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

    /// Counts an error line. A fault behind the server may cause only `SERVER_ERROR` lines.
    fn fault(&self, line: &str) {
        if line.starts_with("SERVER_ERROR ") {
            self.errors.fetch_add(1, Ordering::SeqCst);
            // A client backs off after an error. Without this pause the load would only measure how fast errors are
            // made.
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

/// Returns a version of a key's value, which contains key and version. Odd versions do not compress.
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

/// Checks that a found value is a version of the key's value. Accepts a miss, see [`Load::missed`].
///
/// # Errors
/// A description of what is wrong with the value.
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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Runs a server that accepts every value and stores none.
    fn forget(mut stream: TcpStream) -> Option<()> {
        let mut input = BufReader::new(stream.try_clone().ok()?);
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok()?;
            let mut words = line.split_whitespace();
            let answer = match words.next()? {
                "set" => {
                    let mut value = vec![0; words.last()?.parse::<usize>().ok()? + 2];
                    input.read_exact(&mut value).ok()?;
                    "STORED\r\n"
                }
                _ => "END\r\n",
            };
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }

    #[test]
    fn a_stored_value_that_is_gone_is_missed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || forget(stream));
            }
        });
        let load = Load::start(addr);
        load.await_good(1_000);
        let (errors, lost) = load.missed();
        assert!(errors == 0 && lost > 0, "{errors} errors, {lost} lost");
        assert!(load.stop().is_empty(), "a miss is no wrong answer by itself");
    }

    #[test]
    fn a_changed_byte_is_wrong() {
        let mut found = value("a", 7);
        assert_eq!(check("a", Some(&found)), Ok(()));
        assert!(check("b", Some(&found)).is_err());
        found[100] ^= 1;
        assert!(check("a", Some(&found)).is_err());
    }
}
