//! Parses the lines of meta commands with the flags of memcached 1.6.38 and the checks of 1.6.18. The order
//! of the checks is memcached's too, because it decides the answer to a line with several errors.
//! The flags that 1.6.18 does not have (`E` and `x`) are for the store, which may refuse them.
//! Errors of meta commands are never silent.

use crate::command::{Command, MetaArithmetic, MetaSet, StoreVerb};
use crate::counter::Direction;
use crate::key::{Key, MetaKey};
use crate::meta::{Flags, Letters, Meta, MetaFlags};
use crate::number;
use crate::parse::Limits;
use crate::refusal::{BAD_FORMAT, ERROR, Refusal, TOO_LARGE};
use crate::tokens::Tokens;

pub(crate) type Outcome<'a> = Result<Command<'a>, Refusal<'a>>;

/// Parses `mg key flags*`.
pub(crate) fn get<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let (key, rest) = key(arguments)?;
    refuse_many(rest, FLAGS_MAX, b"CLIENT_ERROR options flags are too long\r\n")?;
    let meta = flags(key, rest).map_err(Refusal::line)?;
    refuse_long_opaque(&meta.flags)?;
    Ok(Command::MetaGet(meta))
}

/// Parses `md key flags*`.
pub(crate) fn delete<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let meta = without_detail(arguments)?;
    refuse_long_opaque(&meta.flags)?;
    Ok(Command::MetaDelete(meta))
}

/// Parses `ma key flags*`.
pub(crate) fn arithmetic<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let meta = without_detail(arguments)?;
    let direction = match meta.flags.mode {
        None | Some(b'I' | b'+') => Direction::Increment,
        Some(b'D' | b'-') => Direction::Decrement,
        Some(_) => return Err(Refusal::line(b"CLIENT_ERROR invalid mode for ma M token\r\n")),
    };
    refuse_long_opaque(&meta.flags)?;
    Ok(Command::MetaArithmetic(MetaArithmetic { meta, direction }))
}

/// Parses `ms key length flags*`.
pub(crate) fn set<'a>(arguments: Tokens<'a>, limits: &Limits) -> Outcome<'a> {
    let (key, mut rest) = key(arguments)?;
    let all = rest;
    let length = rest.next().ok_or(Refusal::line(BAD_FORMAT))?;
    refuse_many(all, FLAGS_MAX, FLAGS_TOO_LONG)?;
    let value_bytes = value_bytes(length).ok_or(Refusal::line(BAD_FORMAT))?;
    let swallow = |refusal: Refusal<'a>| refusal.swallowing(value_bytes as u64 + 2);

    let meta = flags(key, rest).map_err(|reply| swallow(Refusal::line(reply)))?;
    let verb = match meta.flags.mode {
        None | Some(b'S') => StoreVerb::Set,
        Some(b'E') => StoreVerb::Add,
        Some(b'A') => StoreVerb::Append,
        Some(b'P') => StoreVerb::Prepend,
        Some(b'R') => StoreVerb::Replace,
        Some(_) => {
            let reply = b"CLIENT_ERROR invalid mode for ms M token\r\n";
            return Err(swallow(Refusal::line(reply)));
        }
    };
    refuse_long_opaque(&meta.flags).map_err(swallow)?;
    let verb = match verb {
        StoreVerb::Set | StoreVerb::Replace if meta.flags.compare.is_some() => StoreVerb::Cas,
        _ => verb,
    };
    if !limits.fit(meta.key.bytes().len(), meta.flags.client_flags, value_bytes) {
        let key = meta.key.into_bytes();
        return Err(swallow(Refusal::line(TOO_LARGE)).unlinking(Some(key)));
    }
    Ok(Command::MetaSet(MetaSet { meta, verb, value_bytes }))
}

/// Parses `me key [b]`.
pub(crate) fn debug<'a>(mut arguments: Tokens<'a>) -> Outcome<'a> {
    let bad = || Refusal::line(BAD_FORMAT);
    let key = arguments.next().and_then(Key::from_token).ok_or_else(bad)?;
    let key = match arguments.next() {
        Some(b"b") => MetaKey::from_base64(key).ok_or_else(bad)?,
        _ => MetaKey::from_key(key),
    };
    Ok(Command::MetaDebug { key })
}

/// Parses a value's length as memcached does. It must not be negative, and together with CR LF it
/// must fit into a C `int`.
pub(crate) fn value_bytes(token: &[u8]) -> Option<usize> {
    number::signed_32(token)
        .filter(|&len| (0..=i32::MAX - 2).contains(&len))
        .map(|len| len as usize)
}

/// The maximum number of arguments after the key. memcached splits a meta line into at most 20
/// tokens, including its end.
const FLAGS_MAX: usize = 17;

/// The maximum length of flag `O` with its opaque (bytes).
const OPAQUE_BYTES_MAX: usize = 32;

const FLAGS_TOO_LONG: &[u8] = b"CLIENT_ERROR options flags too long\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";

/// The flags whose argument is not read. `P` and `L` belong to the
/// proxy and are ignored.
const PLAIN: Letters = Letters::from_text(b"lOPLkstcfvhuqIx");

fn key<'a>(mut arguments: Tokens<'a>) -> Result<(Key<'a>, Tokens<'a>), Refusal<'a>> {
    let token = arguments.next().ok_or(Refusal::line(ERROR))?;
    let key = Key::from_token(token).ok_or(Refusal::line(BAD_FORMAT))?;
    Ok((key, arguments))
}

/// Parses the arguments of md and ma, which give the same answer for every error of a flag.
fn without_detail<'a>(arguments: Tokens<'a>) -> Result<Meta<'a>, Refusal<'a>> {
    let (key, rest) = key(arguments)?;
    refuse_many(rest, FLAGS_MAX, FLAGS_TOO_LONG)?;
    let reply = b"CLIENT_ERROR invalid or duplicate flag\r\n";
    flags(key, rest).map_err(|_| Refusal::line(reply))
}

fn refuse_many<'a>(
    arguments: Tokens<'_>,
    max: usize,
    reply: &'static [u8],
) -> Result<(), Refusal<'a>> {
    // Every token but the last takes at least two bytes with its space, so most lines need no
    // counting.
    let few = arguments.token_bytes_max() < 2 * max;
    if !few && arguments.take(max + 1).count() > max { Err(Refusal::line(reply)) } else { Ok(()) }
}

fn refuse_long_opaque<'a>(flags: &MetaFlags<'_>) -> Result<(), Refusal<'a>> {
    match flags.argument(b'O') {
        Some(opaque) if opaque.len() >= OPAQUE_BYTES_MAX => {
            Err(Refusal::line(b"CLIENT_ERROR opaque token too long\r\n"))
        }
        _ => Ok(()),
    }
}

/// Parses the flags and decodes the key if `b` is given. A duplicate or unknown flag stops the
/// parsing. Otherwise the last error is the answer. An invalid `F` repeats the previous error, or
/// gives `BAD_FORMAT` if there was none.
fn flags<'a>(key: Key<'a>, rest: Tokens<'a>) -> Result<Meta<'a>, &'static [u8]> {
    let mut meta = Meta {
        key: MetaKey::from_key(key),
        flags: MetaFlags { all: Flags(rest), ..MetaFlags::default() },
    };
    let mut error = None;
    for (letter, argument) in Flags(rest) {
        if letter >= 127 || meta.flags.has(letter) {
            return Err(b"CLIENT_ERROR duplicate flag\r\n");
        }
        meta.flags.seen.insert(letter);
        let read = match letter {
            b'b' => match MetaKey::from_base64(key) {
                Some(decoded) => {
                    meta.key = decoded;
                    Ok(())
                }
                None => Err(&b"CLIENT_ERROR error decoding key\r\n"[..]),
            },
            letter if PLAIN.contains(letter) => Ok(()),
            letter => argument_of(letter, argument, &mut meta.flags, error.unwrap_or(BAD_FORMAT))?,
        };
        error = read.err().or(error);
    }
    match error {
        None => Ok(meta),
        Some(reply) => Err(reply),
    }
}

/// Parses one flag with an argument. The outer error stops the parsing. `earlier` is the answer to
/// an invalid `F`.
fn argument_of(
    letter: u8,
    argument: &[u8],
    flags: &mut MetaFlags<'_>,
    earlier: &'static [u8],
) -> Result<Result<(), &'static [u8]>, &'static [u8]> {
    fn read<T>(slot: &mut T, value: Option<T>, reply: &'static [u8]) -> Result<(), &'static [u8]> {
        *slot = value.ok_or(reply)?;
        Ok(())
    }
    let signed = || number::signed_32(argument).map(Some);
    let unsigned = || number::unsigned_64(argument);
    Ok(match letter {
        b'T' => read(&mut flags.exptime_s, signed(), BAD_TOKEN),
        b'N' => read(&mut flags.vivify_exptime_s, signed(), BAD_TOKEN),
        b'R' => read(&mut flags.recache_s, signed(), BAD_TOKEN),
        b'F' => read(&mut flags.client_flags, number::unsigned_32(argument), earlier),
        b'C' => read(&mut flags.compare, unsigned().map(Some), BAD_TOKEN),
        b'E' => read(&mut flags.given_cas, unsigned().map(Some), BAD_TOKEN),
        b'J' => {
            read(&mut flags.initial, unsigned(), b"CLIENT_ERROR invalid numeric initial value\r\n")
        }
        b'D' => read(&mut flags.delta, unsigned(), b"CLIENT_ERROR invalid numeric delta value\r\n"),
        b'M' => match argument {
            [mode] => read(&mut flags.mode, Some(Some(*mode)), BAD_FORMAT),
            _ => Err(b"CLIENT_ERROR incorrect length for M token\r\n"),
        },
        _ => return Err(b"CLIENT_ERROR invalid flag\r\n"),
    })
}
