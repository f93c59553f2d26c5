//! Parses bytes into a [`Command`]. The parser finds the line and the command, and leaves the body
//! to the session. It keeps no state and never reads beyond the line, so a session can read a value
//! into any buffer.

use memchr::{memchr, memchr2};
use units::ByteCount;
use units::limits::{
    GET_LINE_BYTES_MAX, ITEM_BYTES_MAX_DEFAULT, ITEM_OVERHEAD_BYTES, LINE_BYTES_MAX,
};

use crate::command::{AdminVerb, Command, StoreVerb};
use crate::counter::Direction;
use crate::meta_parse::Outcome;
use crate::refusal::{ERROR, LINE_TOO_LONG, Refusal};
use crate::tokens::Tokens;
use crate::{classic, meta_parse};

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The bytes contain no whole line yet. Read more.
    Incomplete,
    /// A command.
    Command {
        /// The command. Its body, if it has one, starts at `consumed`.
        command: Command<'a>,
        /// The length of the line, including its end.
        consumed: usize,
    },
    /// The line is not a command. The refusal says what to do.
    Refused {
        /// The answer, and the number of bytes to discard.
        refusal: Refusal<'a>,
        /// The length of the line, or of all input if the connection closes.
        consumed: usize,
    },
}

/// The limits that depend on the server's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `-I`: the size of the largest item, including its key and memcached's overhead.
    pub item_bytes_max: ByteCount,
}

impl Default for Limits {
    fn default() -> Self {
        Self { item_bytes_max: ITEM_BYTES_MAX_DEFAULT }
    }
}

impl Limits {
    /// Returns whether an item fits into the limit `-I`, as memcached computes it. Nonzero client
    /// flags take four bytes.
    pub const fn fit(&self, key_bytes: usize, client_flags: u32, value_bytes: usize) -> bool {
        let flags_bytes = if client_flags == 0 { 0 } else { 4 };
        let total = ITEM_OVERHEAD_BYTES + key_bytes + flags_bytes + value_bytes;
        total as u64 <= self.item_bytes_max.0
    }
}

/// Parses one command line from the front of `input`.
///
/// A line ends with LF. A CR before the LF is not part of the line, and a NUL ends the part of the
/// line that is read. Input without a newline closes the connection beyond [`LINE_BYTES_MAX`]
/// bytes, or beyond [`GET_LINE_BYTES_MAX`] bytes for get and gets.
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

/// The maximum number of spaces in front of a long get, as in memcached.
const LEADING_SPACES_MAX: usize = 100;

/// The maximum number of tokens that memcached splits at once. memcached looks for `HTTP/` in the
/// last of these tokens.
const SPLIT_TOKENS_MAX: usize = 23;

/// Returns the part of the first line that memcached reads, and the length of the line with its
/// end.
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
    // A new command also gets its place in `WORDS`.
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

/// Returns the name if it is a command's.
pub fn command_word(name: &[u8]) -> Option<&'static str> {
    WORDS.iter().find(|word| word.as_bytes() == name).copied()
}

/// The names of all commands.
const WORDS: [&str; 34] = [
    "add",
    "append",
    "bget",
    "cache_memlimit",
    "cas",
    "decr",
    "delete",
    "extstore",
    "flush_all",
    "gat",
    "gats",
    "get",
    "gets",
    "incr",
    "lru",
    "lru_crawler",
    "ma",
    "md",
    "me",
    "mg",
    "mn",
    "ms",
    "prepend",
    "quit",
    "refresh_certs",
    "replace",
    "set",
    "shutdown",
    "slabs",
    "stats",
    "touch",
    "verbosity",
    "version",
    "watch",
];

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

/// Refuses an unknown command. An HTTP request line ends the connection. As in memcached, it is
/// recognized only if no family of commands begins with the same letter.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_command() {
        let is_known = |line: String| {
            let parsed = parse(line.as_bytes(), &Limits::default());
            !matches!(parsed, Parse::Refused { refusal, .. } if refusal.reply == ERROR)
        };
        for word in WORDS {
            let lines = ["", " 1", " k 1", " k 0 0 1", " k 0 0 1 1"];
            let is_any = lines.iter().any(|rest| is_known(format!("{word}{rest}\r\n")));
            assert!(is_any, "{word}");
            assert_eq!(command_word(word.as_bytes()), Some(word));
        }
        assert_eq!(command_word(b"nonesuch"), None);
    }
}
