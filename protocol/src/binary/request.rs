//! Composes requests of the binary protocol, for clients. A request is a flat record: a header of 24 bytes with all
//! lengths, then extras of a fixed layout, then the key, then the value.

use super::{Deadline, HEADER_BYTES, REQUEST_MAGIC};
use crate::command::StoreVerb;
use crate::counter::Direction;
use crate::key::Key;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Asks for an item. If `quiet`, a miss has no answer.
    Get {
        /// The key.
        key: Key<'a>,
        /// Whether a miss has no answer.
        quiet: bool,
    },
    /// Asks for an item and sets its expiry.
    GetAndTouch {
        /// The key.
        key: Key<'a>,
        /// The new expiry (s).
        exptime_s: u32,
    },
    /// Sets the expiry of an item.
    Touch {
        /// The key.
        key: Key<'a>,
        /// The new expiry (s).
        exptime_s: u32,
    },
    /// Stores a value, which follows the request.
    Store(Store<'a>),
    /// Deletes an item.
    Delete {
        /// The key.
        key: Key<'a>,
        /// The version that the item must have, or 0.
        cas: u64,
    },
    /// Changes a number.
    Arithmetic {
        /// The direction.
        direction: Direction,
        /// The key.
        key: Key<'a>,
        /// The amount.
        delta: u64,
    },
    /// Asks for a page of statistics. Its answers end with one that has neither name nor value.
    Stat {
        /// The name of the page, or nothing for the main page.
        page: &'a [u8],
    },
    /// Removes all items.
    Flush {
        /// The time until then (s). 0 is at once.
        delay_s: u32,
    },
    /// Asks for an answer and nothing else.
    Noop,
    /// Asks for the version of the server.
    Version,
}

/// The fields of a storage request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// What to do. [`StoreVerb::Cas`] is a set with a version.
    pub verb: StoreVerb,
    /// The key.
    pub key: Key<'a>,
    /// The client flags. An append or prepend keeps those of the item.
    pub client_flags: u32,
    /// The expiry (s), likewise.
    pub exptime_s: u32,
    /// The version that the item must have, or 0.
    pub cas: u64,
    /// The length of the value (bytes).
    pub value_bytes: u32,
}

impl Request<'_> {
    /// Appends the request up to its value. Its answers repeat `opaque`.
    pub fn append_to(&self, out: &mut Vec<u8>, opaque: u32, deadline: Deadline) {
        let mut extras = [0; EXTRAS_BYTES_MAX];
        let (opcode, extras, key, cas, value_bytes) = match self {
            Request::Get { key, quiet } => {
                (if *quiet { 0x09 } else { 0x00 }, &[][..], key.bytes(), 0, 0)
            }
            Request::GetAndTouch { key, exptime_s } => {
                (0x1d, words(&mut extras, &[*exptime_s]), key.bytes(), 0, 0)
            }
            Request::Touch { key, exptime_s } => {
                (0x1c, words(&mut extras, &[*exptime_s]), key.bytes(), 0, 0)
            }
            Request::Store(store) => {
                let Store { verb, key, client_flags, exptime_s, cas, value_bytes } = store;
                let extras = match verb {
                    StoreVerb::Append | StoreVerb::Prepend => &[],
                    _ => words(&mut extras, &[*client_flags, *exptime_s]),
                };
                (opcode(*verb), extras, key.bytes(), *cas, *value_bytes)
            }
            Request::Delete { key, cas } => (0x04, &[][..], key.bytes(), *cas, 0),
            Request::Arithmetic { direction, key, delta } => {
                let opcode = match direction {
                    Direction::Increment => 0x05,
                    Direction::Decrement => 0x06,
                };
                let (high, low) = ((delta >> 32) as u32, *delta as u32);
                let extras = words(&mut extras, &[high, low, 0, 0, DO_NOT_CREATE]);
                (opcode, extras, key.bytes(), 0, 0)
            }
            Request::Stat { page } => (0x10, &[][..], *page, 0, 0),
            Request::Flush { delay_s: 0 } => (0x08, &[][..], &[][..], 0, 0),
            Request::Flush { delay_s } => (0x08, words(&mut extras, &[*delay_s]), &[][..], 0, 0),
            Request::Noop => (0x0a, &[][..], &[][..], 0, 0),
            Request::Version => (0x0b, &[][..], &[][..], 0, 0),
        };
        let key_bytes = u16::try_from(key.len()).unwrap_or(u16::MAX);
        let key = &key[..usize::from(key_bytes)];
        let body_bytes = (extras.len() + key.len()) as u32 + value_bytes;
        out.reserve(HEADER_BYTES + extras.len() + key.len());
        out.extend_from_slice(&[REQUEST_MAGIC, opcode]);
        out.extend_from_slice(&key_bytes.to_be_bytes());
        out.extend_from_slice(&[extras.len() as u8, 0]);
        out.extend_from_slice(&deadline.bytes());
        out.extend_from_slice(&body_bytes.to_be_bytes());
        out.extend_from_slice(&opaque.to_be_bytes());
        out.extend_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
    }
}

const fn opcode(verb: StoreVerb) -> u8 {
    match verb {
        StoreVerb::Set | StoreVerb::Cas => 0x01,
        StoreVerb::Add => 0x02,
        StoreVerb::Replace => 0x03,
        StoreVerb::Append => 0x0e,
        StoreVerb::Prepend => 0x0f,
    }
}

/// Writes words to the front of `extras` and returns them.
fn words<'e>(extras: &'e mut [u8; EXTRAS_BYTES_MAX], words: &[u32]) -> &'e [u8] {
    for (space, word) in extras.chunks_exact_mut(4).zip(words) {
        space.copy_from_slice(&word.to_be_bytes());
    }
    &extras[..words.len() * 4]
}

/// The most extras of a request: those of a counter (bytes).
const EXTRAS_BYTES_MAX: usize = 20;

/// The expiry in an increment or decrement that creates no item.
const DO_NOT_CREATE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::binary::{Command, Parse, parse};
    use crate::parse::Limits;

    #[test]
    fn the_server_reads_what_a_client_composes() {
        let key = Key::new(b"some:key").expect("a key");
        let store = |verb, cas| {
            let (client_flags, exptime_s, value_bytes) = (7, 60, 5);
            Request::Store(Store { verb, key, client_flags, exptime_s, cas, value_bytes })
        };
        let requests = [
            Request::Get { key, quiet: false },
            Request::Get { key, quiet: true },
            Request::GetAndTouch { key, exptime_s: 9 },
            Request::Touch { key, exptime_s: 9 },
            store(StoreVerb::Set, 0),
            store(StoreVerb::Add, 0),
            store(StoreVerb::Replace, 0),
            store(StoreVerb::Append, 0),
            store(StoreVerb::Prepend, 0),
            store(StoreVerb::Cas, 77),
            Request::Delete { key, cas: 5 },
            Request::Arithmetic { direction: Direction::Increment, key, delta: 1 << 40 },
            Request::Arithmetic { direction: Direction::Decrement, key, delta: 3 },
            Request::Stat { page: b"settings" },
            Request::Flush { delay_s: 0 },
            Request::Flush { delay_s: 9 },
            Request::Noop,
            Request::Version,
        ];
        for (number, request) in requests.iter().enumerate() {
            let mut out = Vec::new();
            let deadline = Deadline::after(number as u64, Duration::from_secs(1));
            request.append_to(&mut out, number as u32, deadline);
            let parsed = parse(&out, &Limits::default());
            let Parse::Packet { packet, consumed } = parsed else {
                panic!("{request:?}: {parsed:?}")
            };
            let head = packet.head;
            assert_eq!((head.opaque, head.deadline), (number as u32, deadline), "{request:?}");
            assert_eq!(consumed, out.len(), "{request:?}");
            assert!(same(request, &packet.command), "{request:?}: {:?}", packet.command);
            let is_quiet = matches!(request, Request::Get { quiet: true, .. });
            assert_eq!(packet.head.quiet, is_quiet, "{request:?}");
        }
    }

    /// Returns whether a command says what a request says.
    fn same(request: &Request<'_>, command: &Command<'_>) -> bool {
        match (*request, *command) {
            (Request::Get { key, .. }, Command::Get { key: parsed, touch_exptime_s, .. }) => {
                key.bytes() == parsed && touch_exptime_s.is_none()
            }
            (
                Request::GetAndTouch { key, .. },
                Command::Get { key: parsed, touch_exptime_s, .. },
            ) => key.bytes() == parsed && touch_exptime_s == Some(9),
            (Request::Touch { key, .. }, Command::Touch { key: parsed, exptime_s }) => {
                key.bytes() == parsed && exptime_s == 9
            }
            (Request::Store(store), Command::Store(parsed)) => {
                let is_edit = matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend);
                let expected = if is_edit { (0, 0) } else { (7, 60) };
                (store.verb, store.key.bytes(), store.cas) == (parsed.verb, parsed.key, parsed.cas)
                    && (parsed.client_flags, parsed.exptime_s) == expected
                    && parsed.value_bytes == 5
            }
            (Request::Delete { key, cas }, Command::Delete { key: parsed, cas: version }) => {
                key.bytes() == parsed && cas == version
            }
            (Request::Arithmetic { direction, key, delta }, Command::Arithmetic(parsed)) => {
                (direction, key.bytes(), delta) == (parsed.direction, parsed.key, parsed.delta)
                    && parsed.exptime_s.is_none()
            }
            (Request::Stat { page }, Command::Stat { page: parsed }) => page == parsed,
            (Request::Flush { delay_s }, Command::Flush { delay_s: parsed }) => {
                i64::from(delay_s) == i64::from(parsed)
            }
            (Request::Noop, Command::Noop) | (Request::Version, Command::Version) => true,
            _ => false,
        }
    }
}
