//! The replies of a server. Values are not copied here: after a header the caller appends the value
//! and CR LF itself. This module respects `q`: it writes nothing if the client does not want the
//! reply. The error lines are in [`crate::refusal`].

use crate::key::MetaKey;
use crate::meta::Meta;
use crate::number::write as write_number;

/// The fixed reply lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Reply {
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    Ok,
    /// `END`, the last line of the answers to get, gets, gat, gats and stats.
    End,
    /// The answer to `stats reset`.
    Reset,
    /// The answer to mn.
    MetaNoop,
    /// The answer to me if there is no item.
    MetaMiss,
}

impl Reply {
    /// Returns the whole line.
    pub const fn line(self) -> &'static [u8] {
        match self {
            Reply::Stored => b"STORED\r\n",
            Reply::NotStored => b"NOT_STORED\r\n",
            Reply::Exists => b"EXISTS\r\n",
            Reply::NotFound => b"NOT_FOUND\r\n",
            Reply::Deleted => b"DELETED\r\n",
            Reply::Touched => b"TOUCHED\r\n",
            Reply::Ok => b"OK\r\n",
            Reply::End => b"END\r\n",
            Reply::Reset => b"RESET\r\n",
            Reply::MetaNoop => b"MN\r\n",
            Reply::MetaMiss => b"EN\r\n",
        }
    }
}

/// The facts about an item that the return flags of mg and ma may request. They describe the item
/// before the command changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFacts {
    /// `s`, and the length in a `VA` line: the length of the logical value (bytes).
    pub value_bytes: usize,
    /// `c`: the CAS.
    pub cas: u64,
    /// `f`: the client flags.
    pub client_flags: u32,
    /// `t`: the time until the item expires (seconds); none if it never expires.
    pub ttl_s: Option<u32>,
    /// `l`: the time since the last access (seconds).
    pub idle_s: u32,
    /// `h`: whether the item was read since it was stored.
    pub fetched: bool,
    /// Whether the item was stored with a key in base64, which decides the form of `k`. If the
    /// store does not remember this, pass the request's [`MetaKey::is_binary`].
    pub binary_key: bool,
    /// `W`: whether this client won the right to refresh the item.
    pub won: bool,
    /// `X`: whether the item is stale.
    pub stale: bool,
    /// `Z`: whether another client won the right to refresh the item before.
    pub already_won: bool,
}

/// The outcomes of ms, md and ma. For mg see [`meta_hit`] and [`meta_miss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaOutcome {
    /// `HD`: the command is done. This is the nominal outcome, for which `q` suppresses the answer.
    Done,
    /// `NF`: there is no such item.
    NotFound,
    /// `NS`: the value was not stored.
    NotStored,
    /// `EX`: the CAS differs.
    Exists,
}

impl MetaOutcome {
    /// Returns the outcome's two letters.
    pub const fn code(self) -> &'static [u8; 2] {
        match self {
            MetaOutcome::Done => b"HD",
            MetaOutcome::NotFound => b"NF",
            MetaOutcome::NotStored => b"NS",
            MetaOutcome::Exists => b"EX",
        }
    }
}

/// Appends the line in front of a value: `VALUE key flags length [cas]`.
pub fn value_header(
    out: &mut Vec<u8>,
    key: &[u8],
    client_flags: u32,
    value_bytes: usize,
    cas: Option<u64>,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    write_number(out, client_flags);
    out.push(b' ');
    write_number(out, value_bytes);
    if let Some(cas) = cas {
        out.push(b' ');
        write_number(out, cas);
    }
    out.extend_from_slice(CRLF);
}

/// Appends the answer to incr and decr.
pub fn number(out: &mut Vec<u8>, value: u64) {
    write_number(out, value);
    out.extend_from_slice(CRLF);
}

/// Appends the answer to version.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends one line of stats. [`Reply::End`] must follow the last line.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(CRLF);
}

/// Appends mg's answer for an item. If the client requested `v`, the value and CR LF must follow.
pub fn meta_hit(out: &mut Vec<u8>, meta: &Meta<'_>, facts: &ItemFacts) {
    status_of_item(out, meta, facts.value_bytes);
    return_flags(out, meta, facts.binary_key, |out, letter| match letter {
        b's' => flag(out, b's', facts.value_bytes),
        b'c' => flag(out, b'c', facts.cas),
        b'f' => flag(out, b'f', facts.client_flags),
        b't' => ttl(out, facts.ttl_s),
        b'l' => flag(out, b'l', facts.idle_s),
        b'h' => flag(out, b'h', u8::from(facts.fetched)),
        _ => {}
    });
    for (fact, text) in [(facts.already_won, b" Z"), (facts.stale, b" X"), (facts.won, b" W")] {
        if fact {
            out.extend_from_slice(text);
        }
    }
    out.extend_from_slice(CRLF);
}

/// Appends mg's answer for a missing item. With `q` it appends nothing.
pub fn meta_miss(out: &mut Vec<u8>, meta: &Meta<'_>) {
    if !meta.flags.is_quiet() {
        outcome(out, meta, b"EN", |_, _| {});
    }
}

/// Appends ms's answer. `cas` is the CAS of the stored item, or zero if nothing was stored. `value_bytes` is the length
/// of the whole value for the flag `s`, or none if the store does not answer this flag, as memcached before 1.6.3x.
pub fn meta_set(
    out: &mut Vec<u8>,
    meta: &Meta<'_>,
    result: MetaOutcome,
    cas: u64,
    value_bytes: Option<usize>,
) {
    if result != MetaOutcome::Done || !meta.flags.is_quiet() {
        outcome(out, meta, result.code(), |out, letter| match (letter, value_bytes) {
            (b'c', _) => flag(out, b'c', cas),
            (b's', Some(bytes)) => flag(out, b's', bytes),
            _ => {}
        });
    }
}

/// Appends the answer to an `md` command (meta delete). Also appends the answer to an `ma` command (meta arithmetic)
/// that changed no number, because the item is missing, was not stored, or has another CAS.
pub fn meta_outcome(out: &mut Vec<u8>, meta: &Meta<'_>, result: MetaOutcome) {
    if result != MetaOutcome::Done || !meta.flags.is_quiet() {
        outcome(out, meta, result.code(), |_, _| {});
    }
}

/// Appends ma's whole answer, including the new number if the client requested it. An item that flag `N`
/// created (`created`) is answered even with `q`. Only the CAS and the remaining time of `facts` are used.
pub fn meta_number(
    out: &mut Vec<u8>,
    meta: &Meta<'_>,
    value: u64,
    created: bool,
    facts: &ItemFacts,
) {
    if meta.flags.is_quiet() && !created {
        return;
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value).as_bytes();
    status_of_item(out, meta, digits.len());
    return_flags(out, meta, meta.key.is_binary(), |out, letter| match letter {
        b'c' => flag(out, b'c', facts.cas),
        b't' => ttl(out, facts.ttl_s),
        _ => {}
    });
    out.extend_from_slice(CRLF);
    if meta.flags.wants_value() {
        out.extend_from_slice(digits);
        out.extend_from_slice(CRLF);
    }
}

/// Appends me's answer for an item. `item_bytes` is the item's size with all overhead. memcached
/// computes `exp` as now minus the expiry, so a remaining time is negative. An item that never
/// expires has -1.
pub fn meta_debug(
    out: &mut Vec<u8>,
    key: &MetaKey<'_>,
    facts: &ItemFacts,
    slab_class: u32,
    item_bytes: usize,
) {
    out.extend_from_slice(b"ME ");
    key.write(out, facts.binary_key);
    out.extend_from_slice(b" exp=");
    write_number(out, facts.ttl_s.map_or(-1, |ttl_s| -i64::from(ttl_s)));
    out.extend_from_slice(b" la=");
    write_number(out, facts.idle_s);
    out.extend_from_slice(b" cas=");
    write_number(out, facts.cas);
    out.extend_from_slice(if facts.fetched { b" fetch=yes cls=" } else { b" fetch=no cls=" });
    write_number(out, slab_class);
    out.extend_from_slice(b" size=");
    write_number(out, item_bytes);
    out.extend_from_slice(CRLF);
}

const CRLF: &[u8] = b"\r\n";

/// Appends `VA length` if the client requested the value, otherwise `HD`.
fn status_of_item(out: &mut Vec<u8>, meta: &Meta<'_>, value_bytes: usize) {
    if meta.flags.wants_value() {
        out.extend_from_slice(b"VA ");
        write_number(out, value_bytes);
    } else {
        out.extend_from_slice(b"HD");
    }
}

/// Appends the answer of a command that returns no item. It has the return flags `O` and `k`, and those that `fact`
/// writes.
fn outcome(out: &mut Vec<u8>, meta: &Meta<'_>, code: &[u8; 2], fact: impl Fn(&mut Vec<u8>, u8)) {
    out.extend_from_slice(code);
    return_flags(out, meta, meta.key.is_binary(), fact);
    out.extend_from_slice(CRLF);
}

/// Appends the return flags in the client's order. `fact` writes the flags that depend on an item.
fn return_flags(
    out: &mut Vec<u8>,
    meta: &Meta<'_>,
    binary_key: bool,
    fact: impl Fn(&mut Vec<u8>, u8),
) {
    for (letter, argument) in meta.flags.iter() {
        match letter {
            b'O' => {
                out.extend_from_slice(b" O");
                out.extend_from_slice(argument);
            }
            b'k' => {
                out.extend_from_slice(b" k");
                meta.key.write(out, binary_key);
                if binary_key {
                    out.extend_from_slice(b" b");
                }
            }
            _ => fact(out, letter),
        }
    }
}

fn flag(out: &mut Vec<u8>, letter: u8, value: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', letter]);
    write_number(out, value);
}

fn ttl(out: &mut Vec<u8>, ttl_s: Option<u32>) {
    flag(out, b't', ttl_s.map_or(-1, i64::from));
}
