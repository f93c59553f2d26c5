//! A client of one cache that has many requests under way on one connection, and compares every value that it reads.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use harness::{TIMEOUT, poll_for};
use protocol::command::{Store, StoreVerb};
use protocol::response::{ErrorKind, Parse, Response, parse};
use protocol::{Key, request};
use workload::Values;

/// A connection to a cache.
pub(super) struct Client<'a> {
    replies: BufReader<TcpStream>,
    values: &'a Values,
    out: Vec<u8>,
    line: Vec<u8>,
    body: Vec<u8>,
    /// The sets that were sent and not yet answered.
    unanswered: usize,
    refused: u64,
}

impl<'a> Client<'a> {
    /// Connects to a server of this machine.
    pub(super) fn connect(port: u16, values: &'a Values) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(text)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let replies = BufReader::new(stream);
        let (out, line, body) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { replies, values, out, line, body, unanswered: 0, refused: 0 })
    }

    /// Writes records. The last of them may be under way when this returns.
    pub(super) fn set(&mut self, ids: &[u64]) -> Result<(), String> {
        let before = self.unanswered;
        self.unanswered += ids.len();
        for &id in ids {
            let key = key(id);
            let line = Store {
                verb: StoreVerb::Set,
                key: Key::new(key.as_bytes()).map_err(text)?,
                client_flags: 0,
                exptime_s: 0,
                value_bytes: self.values.length(id),
                cas: 0,
                noreply: false,
            };
            request::store(&mut self.out, &line);
            self.values.append_to(id, 0, &mut self.out);
            self.out.extend_from_slice(b"\r\n");
        }
        self.send()?;
        // The server works on these records while the caller makes the next ones.
        self.await_stored(before)
    }

    /// Reads records. Returns the ids that the cache does not hold.
    pub(super) fn get(&mut self, ids: &[u64]) -> Result<Vec<u64>, String> {
        self.await_stored(self.unanswered)?;
        let keys: Vec<String> = ids.iter().map(|id| key(*id)).collect();
        let names: Result<Vec<Key<'_>>, _> =
            keys.iter().map(|key| Key::new(key.as_bytes())).collect();
        request::get(&mut self.out, names.map_err(text)?, false);
        self.send()?;
        let mut missed = Vec::new();
        let mut wanted = ids.iter().copied().zip(&keys);
        while let Some(found) = self.next_value()? {
            loop {
                let (id, key) = wanted.next().ok_or("a value that was not asked for")?;
                if *key == found {
                    self.check(id)?;
                    break;
                }
                missed.push(id);
            }
        }
        missed.extend(wanted.map(|(id, _)| id));
        Ok(missed)
    }

    /// Returns the number of sets that the server refused so far, as memcached now and then does for lack of memory.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns a number of the general statistics.
    pub(super) fn stat(&mut self, wanted: &str) -> Result<f64, String> {
        self.await_stored(self.unanswered)?;
        request::stats(&mut self.out, "");
        self.send()?;
        let mut found = None;
        loop {
            self.read_line()?;
            match parse(&self.line) {
                Parse::Complete { response: Response::Stat { name, value }, .. } => {
                    if name == wanted.as_bytes() {
                        found =
                            std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                    }
                }
                Parse::Complete { response: Response::End, .. } => break,
                _ => return Err(self.unexpected()),
            }
        }
        found.ok_or_else(|| format!("the statistics have no number {wanted}"))
    }

    /// Writes records until the server has trained a dictionary: it then takes less memory for the same records. This
    /// gives up after [`DICTIONARY_WAIT`], because not every kind of records gets a dictionary.
    pub(super) fn await_dictionary(&mut self) -> Result<(), String> {
        let ids: Vec<u64> = (0..SAMPLES).collect();
        self.set(&ids)?;
        let first_bytes = self.stat("bytes")?;
        let is_done = || match self.rewrite(&ids[..SAMPLES_AGAIN]) {
            Ok(bytes) => (bytes < first_bytes).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        poll_for(DICTIONARY_WAIT, is_done).unwrap_or(Ok(()))
    }

    /// Writes records again. Returns the bytes of all items afterwards.
    fn rewrite(&mut self, ids: &[u64]) -> Result<f64, String> {
        self.set(ids)?;
        self.stat("bytes")
    }

    /// Reads the answers to this many sets.
    fn await_stored(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            self.read_line()?;
            match parse(&self.line) {
                Parse::Complete { response: Response::Stored, .. } => {}
                Parse::Complete {
                    response: Response::Error { kind: ErrorKind::Server, .. },
                    ..
                } => self.refused += 1,
                _ => return Err(self.unexpected()),
            }
            self.unanswered -= 1;
        }
        Ok(())
    }

    /// Reads the next value of a get into `body`. Returns its key, or none at the end of the values.
    fn next_value(&mut self) -> Result<Option<String>, String> {
        self.read_line()?;
        let Parse::Complete { response, .. } = parse(&self.line) else {
            return Err(self.unexpected());
        };
        let Response::Value { key, value_bytes, .. } = response else {
            return if response == Response::End { Ok(None) } else { Err(self.unexpected()) };
        };
        if value_bytes > VALUE_BYTES_MAX {
            return Err(self.unexpected());
        }
        let key = String::from_utf8_lossy(key).into_owned();
        self.body.resize(value_bytes as usize + 2, 0);
        self.replies.read_exact(&mut self.body).map_err(text)?;
        Ok(Some(key))
    }

    fn check(&self, id: u64) -> Result<(), String> {
        let value = self.body.strip_suffix(b"\r\n").ok_or("a value without its CR LF")?;
        let checked = self.values.check(id, value);
        checked.map(drop).map_err(|error| format!("the value of {}: {error}", key(id)))
    }

    fn send(&mut self) -> Result<(), String> {
        self.replies.get_mut().write_all(&self.out).map_err(text)?;
        self.out.clear();
        Ok(())
    }

    fn read_line(&mut self) -> Result<(), String> {
        self.line.clear();
        self.replies.read_until(b'\n', &mut self.line).map_err(text)?;
        Ok(())
    }

    fn unexpected(&self) -> String {
        format!("an answer that does not belong there: {}", self.line.escape_ascii())
    }
}

fn key(id: u64) -> String {
    format!("key:{id:07}")
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The records that are written for a dictionary, more than a server needs as samples, and those that show whether it
/// has one.
const SAMPLES: u64 = 2_000;
const SAMPLES_AGAIN: usize = 200;

const DICTIONARY_WAIT: Duration = Duration::from_secs(3);

/// The longest value that a server may answer (bytes), as in memcached's default.
const VALUE_BYTES_MAX: u64 = 1 << 20;
