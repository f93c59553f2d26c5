//! The requests of a client. The types of keys ensure that a key cannot break a line. A value is
//! not copied here: after the line of a storage command the caller appends the value and CR LF
//! itself.

use crate::command::{Arithmetic, Store, StoreVerb};
use crate::counter::Direction;
use crate::key::{Key, MetaKey};
use crate::number::write as write_number;

/// The command `version`.
pub const VERSION: &[u8] = b"version\r\n";
/// The command `quit`, which ends the connection without an answer.
pub const QUIT: &[u8] = b"quit\r\n";
/// The command `mn`. The server answers `MN` in order, so it marks the end of a run of quiet meta
/// commands.
pub const META_NOOP: &[u8] = b"mn\r\n";

/// Appends a get of all keys in one line, or a gets if `with_cas` is true.
pub fn get<'a>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'a>>, with_cas: bool) {
    out.extend_from_slice(if with_cas { b"gets" } else { b"get" });
    write_keys(out, keys);
}

/// Appends a gat, or a gats if `with_cas` is true. The command reads items and gives each item that
/// it finds a new expiry.
pub fn get_and_touch<'a>(
    out: &mut Vec<u8>,
    exptime_s: i32,
    keys: impl IntoIterator<Item = Key<'a>>,
    with_cas: bool,
) {
    out.extend_from_slice(if with_cas { b"gats " } else { b"gat " });
    write_number(out, exptime_s);
    write_keys(out, keys);
}

/// Appends the line of a storage command. `value_bytes` bytes and CR LF must follow.
pub fn store(out: &mut Vec<u8>, store: &Store<'_>) {
    out.extend_from_slice(store.verb.name().as_bytes());
    write_key(out, store.key);
    for number in [i64::from(store.client_flags), i64::from(store.exptime_s)] {
        out.push(b' ');
        write_number(out, number);
    }
    out.push(b' ');
    write_number(out, store.value_bytes);
    if store.verb == StoreVerb::Cas {
        out.push(b' ');
        write_number(out, store.cas);
    }
    end(out, store.noreply);
}

/// Appends an incr or a decr.
pub fn arithmetic(out: &mut Vec<u8>, arithmetic: &Arithmetic<'_>) {
    out.extend_from_slice(match arithmetic.direction {
        Direction::Increment => b"incr",
        Direction::Decrement => b"decr",
    });
    write_key(out, arithmetic.key);
    out.push(b' ');
    write_number(out, arithmetic.delta);
    end(out, arithmetic.noreply);
}

/// Appends a delete.
pub fn delete(out: &mut Vec<u8>, key: Key<'_>, noreply: bool) {
    out.extend_from_slice(b"delete");
    write_key(out, key);
    end(out, noreply);
}

/// Appends a touch.
pub fn touch(out: &mut Vec<u8>, key: Key<'_>, exptime_s: i32, noreply: bool) {
    out.extend_from_slice(b"touch");
    write_key(out, key);
    out.push(b' ');
    write_number(out, exptime_s);
    end(out, noreply);
}

/// Appends a flush_all that takes effect in `delay_s` seconds.
pub fn flush_all(out: &mut Vec<u8>, delay_s: i32, noreply: bool) {
    out.extend_from_slice(b"flush_all ");
    write_number(out, delay_s);
    end(out, noreply);
}

/// Appends a verbosity command.
pub fn verbosity(out: &mut Vec<u8>, level: u32, noreply: bool) {
    out.extend_from_slice(b"verbosity ");
    write_number(out, level);
    end(out, noreply);
}

/// Appends a stats command, for the page `argument` unless it is empty. Bytes of `argument` that
/// would end the line are omitted.
pub fn stats(out: &mut Vec<u8>, argument: &str) {
    out.extend_from_slice(b"stats");
    if !argument.is_empty() {
        out.push(b' ');
        out.extend(argument.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    }
    end(out, false);
}

/// Begins an mg line.
pub fn meta_get<'o>(out: &'o mut Vec<u8>, key: &MetaKey<'_>) -> MetaLine<'o> {
    MetaLine::begin(out, b"mg ", key, None)
}

/// Begins an ms line. `value_bytes` bytes and CR LF must follow the line.
pub fn meta_set<'o>(out: &'o mut Vec<u8>, key: &MetaKey<'_>, value_bytes: usize) -> MetaLine<'o> {
    MetaLine::begin(out, b"ms ", key, Some(value_bytes))
}

/// Begins an md line.
pub fn meta_delete<'o>(out: &'o mut Vec<u8>, key: &MetaKey<'_>) -> MetaLine<'o> {
    MetaLine::begin(out, b"md ", key, None)
}

/// Begins an ma line.
pub fn meta_arithmetic<'o>(out: &'o mut Vec<u8>, key: &MetaKey<'_>) -> MetaLine<'o> {
    MetaLine::begin(out, b"ma ", key, None)
}

/// Appends an me line.
pub fn meta_debug(out: &mut Vec<u8>, key: &MetaKey<'_>) {
    MetaLine::begin(out, b"me ", key, None).end();
}

/// A meta command whose flags are still being written. memcached accepts each flag once and at most
/// 17 flags (16 for ms). This number includes `b`, which this type writes itself if the key needs
/// it.
#[derive(Debug)]
#[must_use = "the line lacks its end until `end`"]
pub struct MetaLine<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> MetaLine<'o> {
    fn begin(
        out: &'o mut Vec<u8>,
        name: &[u8; 3],
        key: &MetaKey<'_>,
        value_bytes: Option<usize>,
    ) -> Self {
        out.extend_from_slice(name);
        key.write(out, key.is_binary());
        if let Some(value_bytes) = value_bytes {
            out.push(b' ');
            write_number(out, value_bytes);
        }
        if key.is_binary() {
            out.extend_from_slice(b" b");
        }
        Self { out }
    }

    /// Appends a flag without an argument.
    pub fn flag(self, letter: u8) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        self
    }

    /// Appends a flag with an unsigned number: `F`, `C`, `J` or `D`.
    pub fn number(self, letter: u8, value: u64) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        write_number(self.out, value);
        self
    }

    /// Appends a flag with a time in seconds: `T`, `N` or `R`.
    pub fn time(self, letter: u8, time_s: i32) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        write_number(self.out, time_s);
        self
    }

    /// Appends `M` with the letter of a mode.
    pub fn mode(self, mode: u8) -> Self {
        self.out.extend_from_slice(&[b' ', b'M', mode]);
        self
    }

    /// Appends `O` with a number as opaque. The answer repeats the opaque.
    pub fn opaque(self, opaque: u64) -> Self {
        self.number(b'O', opaque)
    }

    /// Ends the line.
    pub fn end(self) {
        end(self.out, false);
    }
}

fn write_keys<'a>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'a>>) {
    for key in keys {
        write_key(out, key);
    }
    end(out, false);
}

fn write_key(out: &mut Vec<u8>, key: Key<'_>) {
    out.push(b' ');
    out.extend_from_slice(&key);
}

fn end(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}
