//! A model of memcached 1.6.18: the commands that a ring sends, with their answers byte by byte. `tests/model.rs`
//! compares it with the real one. It has no sockets and no clock: bytes and seconds go in, bytes come out.

mod classic;
mod meta;
mod serve;

use std::collections::BTreeMap;

pub use serve::serve;

/// The items of a server.
#[derive(Debug, Default)]
pub struct Memcached {
    items: BTreeMap<Vec<u8>, Item>,
    last_cas: u64,
    /// The date, in Unix seconds.
    now_s: i64,
    /// The number of commands served.
    pub commands: u64,
}

#[derive(Clone, Debug)]
struct Item {
    value: Vec<u8>,
    client_flags: u32,
    cas: u64,
    /// The date from which the item is expired, or 0 if it never expires.
    expires_s: i64,
    is_stale: bool,
    /// True if a client has been told to recache the stale item.
    is_won: bool,
}

/// The progress of a connection's input.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A command was served. It took this many bytes of the input.
    Served(usize),
    /// The command is not complete.
    Incomplete,
    /// The connection ends.
    Close,
}

impl Memcached {
    /// Sets the date, in Unix seconds.
    pub fn set_time(&mut self, unix_s: i64) {
        self.now_s = unix_s;
    }

    /// Returns the number of items that have not expired.
    pub fn len(&self) -> usize {
        self.items.values().filter(|item| !self.has_expired(item)).count()
    }

    /// Flips a bit of every value in a frame, as memory that fails does. Returns the keys and CAS numbers.
    pub fn flip_bits(&mut self) -> Vec<(Vec<u8>, u64)> {
        let framed = self.items.iter_mut().filter(|(_, item)| item.value.starts_with(FRAME));
        let flip = |(key, item): (&Vec<u8>, &mut Item)| {
            *item.value.last_mut()? ^= 1;
            Some((key.clone(), item.cas))
        };
        framed.filter_map(flip).collect()
    }

    /// Returns the CAS number of an item that has not expired.
    pub fn cas(&self, key: &[u8]) -> Option<u64> {
        self.items.get(key).filter(|item| !self.has_expired(item)).map(|item| item.cas)
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Serves the first command of `input`, and appends its answer to `out`.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Step {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return if input.len() > LINE_BYTES_MAX { Step::Close } else { Step::Incomplete };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let words: Vec<&[u8]> =
            line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let rest = &input[end + 1..];
        let Some(&name) = words.first() else {
            out.extend_from_slice(b"ERROR\r\n");
            return Step::Served(end + 1);
        };
        let taken = match name {
            b"ms" | b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
                match self.take_value(name, &words, rest, out) {
                    Some(taken) => taken,
                    None => return Step::Incomplete,
                }
            }
            b"quit" => return Step::Close,
            _ => {
                self.answer(name, &words, out);
                0
            }
        };
        self.commands += 1;
        Step::Served(end + 1 + taken)
    }

    /// Serves a command with a value, once it is complete. Returns the bytes of the value with its line end.
    fn take_value(
        &mut self,
        name: &[u8],
        words: &[&[u8]],
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let length_at = if name == b"ms" { 2 } else { 4 };
        let Some(bytes) = words.get(length_at).and_then(|word| number::<usize>(word)) else {
            out.extend_from_slice(match words.len() {
                count if count <= length_at => &b"ERROR\r\n"[..],
                _ => b"CLIENT_ERROR bad data chunk\r\n",
            });
            return Some(0);
        };
        let data = rest.get(..bytes + 2)?;
        if !data.ends_with(b"\r\n") {
            out.extend_from_slice(b"CLIENT_ERROR bad data chunk\r\n");
            return Some(bytes + 2);
        }
        let value = &data[..bytes];
        if bytes > VALUE_BYTES_MAX {
            out.extend_from_slice(b"SERVER_ERROR object too large for cache\r\n");
        } else if name == b"ms" {
            self.meta_set(words, value, out);
        } else {
            self.classic_store(name, words, value, out);
        }
        Some(bytes + 2)
    }

    fn answer(&mut self, name: &[u8], words: &[&[u8]], out: &mut Vec<u8>) {
        match name {
            b"get" | b"gets" | b"gat" | b"gats" => self.classic_get(name, words, out),
            b"delete" => self.classic_delete(words, out),
            b"touch" => self.classic_touch(words, out),
            b"incr" | b"decr" => self.classic_count(name, words, out),
            b"mg" => self.meta_get(words, out),
            b"md" => self.meta_delete(words, out),
            b"ma" => self.meta_count(words, out),
            b"mn" => out.extend_from_slice(b"MN\r\n"),
            b"version" => out.extend_from_slice(b"VERSION 1.6.18\r\n"),
            b"flush_all" => {
                self.items.clear();
                out.extend_from_slice(b"OK\r\n");
            }
            b"stats" => {
                let stats = format!("STAT time {}\r\nEND\r\n", self.now_s);
                out.extend_from_slice(stats.as_bytes());
            }
            _ => out.extend_from_slice(b"ERROR\r\n"),
        }
    }

    fn has_expired(&self, item: &Item) -> bool {
        item.expires_s != 0 && item.expires_s <= self.now_s
    }

    /// Returns the item of a key, unless it has expired.
    fn find(&mut self, key: &[u8]) -> Option<&mut Item> {
        if self.items.get(key).is_some_and(|item| self.has_expired(item)) {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }

    /// Returns the date for an expiry time of a command.
    fn expiry(&self, exptime_s: i64) -> i64 {
        match exptime_s {
            0 => 0,
            // Expired at once.
            ..0 => 1,
            1..=THIRTY_DAYS_S => self.now_s + exptime_s,
            _ => exptime_s,
        }
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, client_flags: u32, expires_s: i64) -> u64 {
        let cas = self.next_cas();
        let item = Item { value, client_flags, cas, expires_s, is_stale: false, is_won: false };
        self.items.insert(key.to_vec(), item);
        cas
    }
}

/// Parses a decimal number.
fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The number that an item's value stands for, as memcached reads it.
fn counted(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= 20;
    if is_number { number(value.trim_ascii_end()) } else { None }
}

/// The first bytes of the frames that servers of a ring get.
const FRAME: &[u8] = b"\xfbRb";
const THIRTY_DAYS_S: i64 = 60 * 60 * 24 * 30;
const LINE_BYTES_MAX: usize = 64 << 10;
/// A value that fits into the largest item for every key.
const VALUE_BYTES_MAX: usize = (1 << 20) - 512;
