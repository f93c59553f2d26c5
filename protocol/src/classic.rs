//! Parses the lines of text commands. Argument counts, numbers and `noreply` are checked as in
//! memcached 1.6.18 and in its order, because the first check that fails decides the answer.

use std::borrow::Cow;

use units::limits::KEY_BYTES_MAX;

use crate::command::{Admin, AdminVerb, Arithmetic, Command, Get, Keys, Store, StoreVerb};
use crate::counter::Direction;
use crate::key::Key;
use crate::meta_parse::{Outcome, value_bytes};
use crate::number;
use crate::parse::Limits;
use crate::refusal::{BAD_DELETE, BAD_DELTA, BAD_EXPTIME, BAD_FORMAT, ERROR, Refusal, TOO_LARGE};
use crate::tokens::Tokens;

/// Parses `get key+`. One invalid key refuses the whole line, because memcached then discards the
/// hits of earlier keys.
pub(crate) fn get<'a>(arguments: Tokens<'a>, with_cas: bool) -> Outcome<'a> {
    let keys = keys(arguments)?;
    if arguments.is_empty() {
        return Err(Refusal::line(ERROR));
    }
    Ok(Command::Get(Get { keys, with_cas, touch_exptime_s: None }))
}

/// Parses `gat exptime key*`.
pub(crate) fn get_and_touch<'a>(mut arguments: Tokens<'a>, with_cas: bool) -> Outcome<'a> {
    let exptime = arguments.next().ok_or(Refusal::line(ERROR))?;
    let exptime_s = number::signed_32(exptime).ok_or(Refusal::line(BAD_EXPTIME))?;
    let keys = keys(arguments)?;
    Ok(Command::Get(Get { keys, with_cas, touch_exptime_s: Some(exptime_s) }))
}

/// Parses `set key flags exptime length [noreply]`. For `cas`, the CAS comes before `noreply`.
pub(crate) fn store<'a>(verb: StoreVerb, arguments: Tokens<'a>, limits: &Limits) -> Outcome<'a> {
    let needed = if verb == StoreVerb::Cas { 5 } else { 4 };
    let (tokens, count) = split::<6>(arguments, needed, needed + 1)?;
    let noreply = tokens[count - 1] == b"noreply";
    let bad = || Refusal::line(BAD_FORMAT).silent_if(noreply);

    let key = Key::from_token(tokens[0]).ok_or_else(bad)?;
    let client_flags = number::unsigned_32(tokens[1]).ok_or_else(bad)?;
    let exptime_s = number::signed_32(tokens[2]).ok_or_else(bad)?;
    let cas = match verb {
        StoreVerb::Cas => number::unsigned_64(tokens[4]).ok_or_else(bad)?,
        _ => 0,
    };
    let value_bytes = value_bytes(tokens[3]).ok_or_else(bad)?;
    if !limits.fit(key.len(), client_flags, value_bytes) {
        let unlink = (verb == StoreVerb::Set).then_some(Cow::Borrowed(key.bytes()));
        let refusal = Refusal::line(TOO_LARGE).silent_if(noreply);
        return Err(refusal.swallowing(value_bytes as u64 + 2).unlinking(unlink));
    }
    Ok(Command::Store(Store { verb, key, client_flags, exptime_s, value_bytes, cas, noreply }))
}

/// Parses `delete key [0] [noreply]`. The zero is a delay, which only old versions supported.
pub(crate) fn delete<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let (tokens, count) = split::<3>(arguments, 1, 3)?;
    let noreply = count > 1 && tokens[count - 1] == b"noreply";
    let valid = match count {
        1 => true,
        2 => noreply || tokens[1] == b"0",
        _ => noreply && tokens[1] == b"0",
    };
    if !valid {
        return Err(Refusal::line(BAD_DELETE).silent_if(noreply));
    }
    let bad = || Refusal::line(BAD_FORMAT).silent_if(noreply);
    Ok(Command::Delete { key: Key::from_token(tokens[0]).ok_or_else(bad)?, noreply })
}

/// Parses `incr key delta [noreply]`.
pub(crate) fn arithmetic<'a>(direction: Direction, arguments: Tokens<'a>) -> Outcome<'a> {
    let (tokens, noreply) = key_and_number(arguments)?;
    let bad = |reply| Refusal::line(reply).silent_if(noreply);
    let key = Key::from_token(tokens[0]).ok_or_else(|| bad(BAD_FORMAT))?;
    let delta = number::unsigned_64(tokens[1]).ok_or_else(|| bad(BAD_DELTA))?;
    Ok(Command::Arithmetic(Arithmetic { direction, key, delta, noreply }))
}

/// Parses `touch key exptime [noreply]`.
pub(crate) fn touch<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let (tokens, noreply) = key_and_number(arguments)?;
    let bad = |reply| Refusal::line(reply).silent_if(noreply);
    let key = Key::from_token(tokens[0]).ok_or_else(|| bad(BAD_FORMAT))?;
    let exptime_s = number::signed_32(tokens[1]).ok_or_else(|| bad(BAD_EXPTIME))?;
    Ok(Command::Touch { key, exptime_s, noreply })
}

/// Parses `flush_all [delay] [noreply]`.
pub(crate) fn flush_all<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let (tokens, count) = split::<2>(arguments, 0, 2)?;
    let noreply = count > 0 && tokens[count - 1] == b"noreply";
    let delay_s = if count == usize::from(noreply) {
        0
    } else {
        let bad = || Refusal::line(BAD_EXPTIME).silent_if(noreply);
        number::signed_32(tokens[0]).ok_or_else(bad)?
    };
    Ok(Command::FlushAll { delay_s, noreply })
}

/// Parses `verbosity level [noreply]`.
pub(crate) fn verbosity<'a>(arguments: Tokens<'a>) -> Outcome<'a> {
    let (tokens, count) = split::<2>(arguments, 1, 2)?;
    let noreply = tokens[count - 1] == b"noreply";
    let bad = || Refusal::line(BAD_FORMAT).silent_if(noreply);
    Ok(Command::Verbosity { level: number::unsigned_32(tokens[0]).ok_or_else(bad)?, noreply })
}

/// Parses an operator's command. It makes only the checks that memcached makes before it reads the
/// arguments.
pub(crate) fn admin<'a>(verb: AdminVerb, arguments: Tokens<'a>) -> Outcome<'a> {
    let count = arguments.take(3).count();
    let enough = match verb {
        AdminVerb::CacheMemlimit => count == 1 || count == 2,
        AdminVerb::Lru | AdminVerb::Extstore => count > 0,
        _ => true,
    };
    if !enough {
        return Err(Refusal::line(ERROR));
    }
    let may_be_silent = match verb {
        AdminVerb::Shutdown | AdminVerb::LruCrawler => false,
        AdminVerb::Slabs => count > 1 && arguments.take(1).eq([b"automove"]),
        _ => true,
    };
    let noreply = may_be_silent && arguments.ends_in_noreply();
    Ok(Command::Admin(Admin { verb, arguments, noreply }))
}

fn keys<'a>(arguments: Tokens<'a>) -> Result<Keys<'a>, Refusal<'a>> {
    let mut tokens = arguments;
    let short = arguments.token_bytes_max() <= KEY_BYTES_MAX;
    if short || tokens.all(|token| Key::from_token(token).is_some()) {
        Ok(Keys(arguments))
    } else {
        Err(Refusal::line(BAD_FORMAT))
    }
}

fn key_and_number<'a>(arguments: Tokens<'a>) -> Result<([&'a [u8]; 3], bool), Refusal<'a>> {
    let (tokens, count) = split::<3>(arguments, 2, 3)?;
    Ok((tokens, tokens[count - 1] == b"noreply"))
}

/// Splits a line into between `min` and `max` (at most `MAX`) tokens. Returns the tokens and their
/// count. Refuses any other count with `ERROR`.
fn split<'a, const MAX: usize>(
    arguments: Tokens<'a>,
    min: usize,
    max: usize,
) -> Result<([&'a [u8]; MAX], usize), Refusal<'a>> {
    let mut tokens = [&b""[..]; MAX];
    let mut count = 0;
    for token in arguments {
        if count == max {
            return Err(Refusal::line(ERROR));
        }
        tokens[count] = token;
        count += 1;
    }
    if count < min { Err(Refusal::line(ERROR)) } else { Ok((tokens, count)) }
}
