//! Bytes in, a [`Command`] out: finds the line, names the command, leaves the body to the session.
//! It keeps no state and never looks past the line, so a session reads a value where it wants it.

use memchr::{memchr, memchr2};
use units::ByteCount;
use units::limits::{GET_LINE_BYTES_MAX, ITEM_BYTES_MAX_DEFAULT, LINE_BYTES_MAX};

use crate::command::{AdminVerb, Command, StoreVerb};
use crate::counter::Direction;
use crate::meta_parse::Outcome;
use crate::refusal::{BINARY, ERROR, LINE_TOO_LONG, Refusal};
use crate::tokens::Tokens;
use crate::{classic, meta_parse};

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// No whole line yet: read more.
    Incomplete,
    /// A command.
    Command {
        /// The command. Its body, if it has one, starts at `consumed`.
        command: Command<'a>,
        /// The line's length with its end.
        consumed: usize,
    },
    /// No command, and what to do about it.
    Refused {
        /// The answer, and the bytes to swallow and drop.
        refusal: Refusal<'a>,
        /// The bytes done with; everything, where the connection closes.
        consumed: usize,
    },
}

/// The limits that depend on the server's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `-I`: the largest item, key and memcached's own overhead included.
    pub item_bytes_max: ByteCount,
}

impl Default for Limits {
    fn default() -> Self {
        Self { item_bytes_max: ITEM_BYTES_MAX_DEFAULT }
    }
}

/// Reads one command line from the front of `input`.
///
/// A line ends in LF; one CR before it is no part of it, and a NUL ends what is read of it. Without
/// a newline the connection is given up beyond [`LINE_BYTES_MAX`] bytes, [`GET_LINE_BYTES_MAX`] for
/// get and gets.
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parse<'a> {
    let Some((line, consumed)) = first_line(input) else {
        return without_newline(input);
    };
    match command(line, limits) {
        Ok(command) => Parse::Command { command, consumed },
        Err(refusal) if refusal.close => Parse::Refused { refusal, consumed: input.len() },
        Err(refusal) => Parse::Refused { refusal, consumed },
    }
}

/// The refusal of a connection whose first bytes are `input`, if they are the binary protocol's.
/// Only a connection's first byte tells: later the same byte is the start of an unknown text
/// command.
pub fn refuse_binary(input: &[u8]) -> Option<Refusal<'static>> {
    (input.first() == Some(&BINARY_MAGIC)).then_some(Refusal::closing(BINARY))
}

/// First byte of every request of the binary protocol.
const BINARY_MAGIC: u8 = 0x80;

/// Spaces that may stand before a long get, as memcached allows.
const LEADING_SPACES_MAX: usize = 100;

/// Tokens that memcached splits at once; it looks for `HTTP/` in the last of them.
const SPLIT_TOKENS_MAX: usize = 23;

/// Returns what memcached reads of the first line, and the line's length with its end.
fn first_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr2(b'\n', 0, input)?;
    if input[end] == 0 {
        let newline = end + memchr(b'\n', &input[end..])?;
        return Some((&input[..end], newline + 1));
    }
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn without_newline(input: &[u8]) -> Parse<'_> {
    if input.len() <= LINE_BYTES_MAX {
        return Parse::Incomplete;
    }
    let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
    let name = &input[spaces..];
    let is_get = name.starts_with(b"get ") || name.starts_with(b"gets ");
    if is_get && spaces <= LEADING_SPACES_MAX && input.len() <= GET_LINE_BYTES_MAX {
        return Parse::Incomplete;
    }
    Parse::Refused { refusal: Refusal::closing(LINE_TOO_LONG), consumed: input.len() }
}

fn command<'a>(line: &'a [u8], limits: &Limits) -> Outcome<'a> {
    let mut rest = Tokens::new(line);
    let name = rest.next().unwrap_or_default();
    let store = |verb| classic::store(verb, rest, limits);
    match name {
        b"get" | b"bget" => classic::get(rest, false),
        b"set" => store(StoreVerb::Set),
        b"mg" => meta_parse::get(rest),
        b"ms" => meta_parse::set(rest, limits),
        b"gets" => classic::get(rest, true),
        b"add" => store(StoreVerb::Add),
        b"cas" => store(StoreVerb::Cas),
        b"delete" => classic::delete(rest),
        b"incr" => classic::arithmetic(Direction::Increment, rest),
        b"decr" => classic::arithmetic(Direction::Decrement, rest),
        b"touch" => classic::touch(rest),
        b"gat" => classic::get_and_touch(rest, false),
        b"gats" => classic::get_and_touch(rest, true),
        b"append" => store(StoreVerb::Append),
        b"prepend" => store(StoreVerb::Prepend),
        b"replace" => store(StoreVerb::Replace),
        b"md" => meta_parse::delete(rest),
        b"ma" => meta_parse::arithmetic(rest),
        b"mn" => Ok(Command::MetaNoop),
        b"me" => meta_parse::debug(rest),
        b"stats" => Ok(Command::Stats { arguments: rest }),
        b"version" => Ok(Command::Version),
        b"quit" => Ok(Command::Quit),
        b"flush_all" => classic::flush_all(rest),
        b"verbosity" => classic::verbosity(rest),
        _ => match admin_verb(name) {
            Some(verb) => classic::admin(verb, rest),
            None => Err(unknown(name, line)),
        },
    }
}

fn admin_verb(name: &[u8]) -> Option<AdminVerb> {
    Some(match name {
        b"cache_memlimit" => AdminVerb::CacheMemlimit,
        b"extstore" => AdminVerb::Extstore,
        b"lru" => AdminVerb::Lru,
        b"lru_crawler" => AdminVerb::LruCrawler,
        b"refresh_certs" => AdminVerb::RefreshCerts,
        b"shutdown" => AdminVerb::Shutdown,
        b"slabs" => AdminVerb::Slabs,
        b"watch" => AdminVerb::Watch,
        _ => return None,
    })
}

/// A browser's or a scanner's request line ends the connection; memcached looks for one only where
/// no family of commands begins with the same letter.
fn unknown<'a>(name: &[u8], line: &[u8]) -> Refusal<'a> {
    let of_a_family = match name {
        [] | [_] | [b'm', _] => true,
        [first, ..] => b"gsacidt".contains(first),
    };
    let last = Tokens::new(line).take(SPLIT_TOKENS_MAX).last().unwrap_or_default();
    if !of_a_family && last.starts_with(b"HTTP/") {
        return Refusal::closing(b"");
    }
    Refusal::line(ERROR)
}
