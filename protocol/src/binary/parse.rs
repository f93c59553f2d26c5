//! Parses bytes into a [`Packet`]. The parser keeps no state and never reads beyond the key, so a
//! session can read a value into any buffer. The order of the checks is memcached's, because it
//! decides the answer to a packet with several errors.

use units::limits::KEY_BYTES_MAX;

use super::command::{Arithmetic, Command, Head, Packet, Sasl, Store};
use super::reply::Status;
use super::{Deadline, HEADER_BYTES, REQUEST_MAGIC};
use crate::command::StoreVerb;
use crate::counter::Direction;
use crate::parse::Limits;

/// The result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The bytes contain no whole header with extras and key yet. Read more.
    Incomplete,
    /// A packet.
    Packet {
        /// The packet. Its value, if it has one, starts at `consumed`.
        packet: Packet<'a>,
        /// The length of the header, the extras and the key.
        consumed: usize,
    },
    /// The bytes are not a packet that is served. The refusal says what to do.
    Refused {
        /// The answer, and the number of bytes to discard.
        refusal: Refusal<'a>,
        /// The length of the header, or of all input if the connection closes.
        consumed: usize,
    },
}

/// The refusal of a packet. A session acts on it in this order: it drops the item, answers, discards
/// bytes, and continues or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The part of the packet that the answer repeats.
    pub head: Head,
    /// The answer. Refusals are answered even if the packet is quiet.
    pub status: Status,
    /// The number of bytes to discard after the consumed ones, because they belong to the packet.
    pub swallow_bytes: u64,
    /// Whether the connection ends once the answer is written.
    pub close: bool,
    /// The key of an item to drop. memcached drops the old item if its new value is too large, so
    /// that the old value is not read any more.
    pub unlink: Option<&'a [u8]>,
}

impl<'a> Refusal<'a> {
    /// Builds a refusal that answers and discards `swallow_bytes` bytes.
    pub const fn skipping(head: Head, status: Status, swallow_bytes: u64) -> Self {
        Self { head, status, swallow_bytes, close: false, unlink: None }
    }

    /// Builds a refusal that answers and ends the connection.
    pub const fn closing(head: Head, status: Status) -> Self {
        Self { head, status, swallow_bytes: 0, close: true, unlink: None }
    }
}

/// Parses one packet from the front of `input`, up to its value.
///
/// As in memcached, a get with touch and a stat may claim a longer body than they have. The rest is
/// then parsed as the next packet.
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parse<'a> {
    match input.first() {
        None => return Parse::Incomplete,
        Some(&REQUEST_MAGIC) => {}
        Some(_) => {
            let refusal = Refusal::closing(Head::default(), Status::BadMagic);
            return Parse::Refused { refusal, consumed: input.len() };
        }
    }
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Parse::Incomplete;
    };
    let header = Header::new(header);
    let claimed = header.extras_bytes + header.key_bytes;
    let (verb, quiet) = verb(header.opcode);
    let Header { opcode, opaque, deadline, .. } = header;
    let head = Head { opcode, quiet, opaque, deadline };
    let refused = |refusal: Refusal<'a>| {
        let consumed = if refusal.close { input.len() } else { HEADER_BYTES };
        Parse::Refused { refusal, consumed }
    };
    if claimed > header.body_bytes {
        return refused(Refusal::closing(head, Status::UnknownCommand));
    }
    if header.key_bytes > KEY_BYTES_MAX {
        return refused(Refusal::closing(head, Status::InvalidArguments));
    }
    let Some(verb) = verb else {
        return refused(Refusal::skipping(head, Status::UnknownCommand, header.body_bytes as u64));
    };
    if !verb.allows(&header) {
        return refused(Refusal::closing(head, Status::InvalidArguments));
    }
    if rest.len() < claimed {
        return Parse::Incomplete;
    }
    let (extras, rest) = rest.split_at(header.extras_bytes);
    let body =
        Body { extras, key: &rest[..header.key_bytes], value_bytes: header.body_bytes - claimed };
    let consumed = HEADER_BYTES + claimed;
    match verb.command(&header, &body, limits) {
        Ok(command) => Parse::Packet { packet: Packet { head, command }, consumed },
        Err(refused) => {
            let refusal = Refusal {
                unlink: refused.unlink,
                ..Refusal::skipping(head, refused.status, body.value_bytes as u64)
            };
            Parse::Refused { refusal, consumed }
        }
    }
}

/// The fields of a request's header that are used. The data type is not.
struct Header {
    opcode: u8,
    key_bytes: usize,
    extras_bytes: usize,
    /// The length of extras, key and value.
    body_bytes: usize,
    opaque: u32,
    cas: u64,
    deadline: Deadline,
}

impl Header {
    fn new(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [_, opcode, key_high, key_low, extras_bytes, _, d0, d1, rest @ ..] = *bytes;
        let [b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = rest;
        Self {
            opcode,
            key_bytes: usize::from(u16::from_be_bytes([key_high, key_low])),
            extras_bytes: usize::from(extras_bytes),
            body_bytes: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            opaque: u32::from_be_bytes([o0, o1, o2, o3]),
            cas: u64::from_be_bytes(cas),
            deadline: Deadline::from_bytes([d0, d1]),
        }
    }
}

/// The parts of a packet behind its header. The value itself is not among them.
struct Body<'a> {
    extras: &'a [u8],
    key: &'a [u8],
    value_bytes: usize,
}

/// A packet whose value is discarded.
struct Refused<'a> {
    status: Status,
    unlink: Option<&'a [u8]>,
}

/// What a packet asks for, without regard to whether it is quiet.
#[derive(Clone, Copy)]
enum Verb {
    Get { with_key: bool },
    GetAndTouch { with_key: bool },
    Touch,
    Store(StoreVerb),
    Delete,
    Arithmetic(Direction),
    Flush,
    Stat,
    Noop,
    Version,
    Quit,
    SaslList,
    SaslBegin,
    SaslStep,
}

/// Returns the verb of an opcode, and whether it is quiet. memcached has no verb for the opcode of
/// verbosity (0x1b) either.
fn verb(opcode: u8) -> (Option<Verb>, bool) {
    let loud = |verb| (Some(verb), false);
    let quiet = |verb| (Some(verb), true);
    match opcode {
        0x00 => loud(Verb::Get { with_key: false }),
        0x01 => loud(Verb::Store(StoreVerb::Set)),
        0x02 => loud(Verb::Store(StoreVerb::Add)),
        0x03 => loud(Verb::Store(StoreVerb::Replace)),
        0x04 => loud(Verb::Delete),
        0x05 => loud(Verb::Arithmetic(Direction::Increment)),
        0x06 => loud(Verb::Arithmetic(Direction::Decrement)),
        0x07 => loud(Verb::Quit),
        0x08 => loud(Verb::Flush),
        0x09 => quiet(Verb::Get { with_key: false }),
        0x0a => loud(Verb::Noop),
        0x0b => loud(Verb::Version),
        0x0c => loud(Verb::Get { with_key: true }),
        0x0d => quiet(Verb::Get { with_key: true }),
        0x0e => loud(Verb::Store(StoreVerb::Append)),
        0x0f => loud(Verb::Store(StoreVerb::Prepend)),
        0x10 => loud(Verb::Stat),
        0x11 => quiet(Verb::Store(StoreVerb::Set)),
        0x12 => quiet(Verb::Store(StoreVerb::Add)),
        0x13 => quiet(Verb::Store(StoreVerb::Replace)),
        0x14 => quiet(Verb::Delete),
        0x15 => quiet(Verb::Arithmetic(Direction::Increment)),
        0x16 => quiet(Verb::Arithmetic(Direction::Decrement)),
        0x17 => quiet(Verb::Quit),
        0x18 => quiet(Verb::Flush),
        0x19 => quiet(Verb::Store(StoreVerb::Append)),
        0x1a => quiet(Verb::Store(StoreVerb::Prepend)),
        0x1c => loud(Verb::Touch),
        0x1d => loud(Verb::GetAndTouch { with_key: false }),
        0x1e => quiet(Verb::GetAndTouch { with_key: false }),
        0x20 => loud(Verb::SaslList),
        0x21 => loud(Verb::SaslBegin),
        0x22 => loud(Verb::SaslStep),
        0x23 => loud(Verb::GetAndTouch { with_key: true }),
        0x24 => quiet(Verb::GetAndTouch { with_key: true }),
        _ => (None, false),
    }
}

impl Verb {
    /// Returns whether the verb may have a header with these lengths.
    const fn allows(self, header: &Header) -> bool {
        let Header { key_bytes, extras_bytes, body_bytes, .. } = *header;
        let has_value = body_bytes > key_bytes + extras_bytes;
        match self {
            Verb::Get { .. } | Verb::Delete => key_bytes > 0 && extras_bytes == 0 && !has_value,
            Verb::GetAndTouch { .. } | Verb::Touch => key_bytes > 0 && extras_bytes == 4,
            Verb::Store(StoreVerb::Append | StoreVerb::Prepend) => {
                key_bytes > 0 && extras_bytes == 0
            }
            Verb::Store(_) => key_bytes > 0 && extras_bytes == 8,
            Verb::Arithmetic(_) => key_bytes > 0 && extras_bytes == 20 && !has_value,
            Verb::Flush => key_bytes == 0 && (extras_bytes == 0 || extras_bytes == 4) && !has_value,
            Verb::Stat => extras_bytes == 0,
            Verb::Noop | Verb::Version | Verb::Quit | Verb::SaslList => body_bytes == 0,
            Verb::SaslBegin | Verb::SaslStep => key_bytes > 0 && extras_bytes == 0,
        }
    }

    /// Builds the command of a packet whose lengths [`Self::allows`] has checked.
    fn command<'a>(
        self,
        header: &Header,
        body: &Body<'a>,
        limits: &Limits,
    ) -> Result<Command<'a>, Refused<'a>> {
        let Body { extras, key, value_bytes } = *body;
        let cas = header.cas;
        Ok(match self {
            Verb::Get { with_key } => Command::Get { key, with_key, touch_exptime_s: None },
            Verb::GetAndTouch { with_key } => {
                Command::Get { key, with_key, touch_exptime_s: Some(exptime_s(word(extras, 0))) }
            }
            Verb::Touch => Command::Touch { key, exptime_s: exptime_s(word(extras, 0)) },
            Verb::Store(verb) => return store(verb, cas, body, limits).map(Command::Store),
            Verb::Delete => Command::Delete { key, cas },
            Verb::Arithmetic(direction) => Command::Arithmetic(Arithmetic {
                direction,
                key,
                delta: double_word(extras, 0),
                initial: double_word(extras, 8),
                exptime_s: Some(word(extras, 16)).filter(|s| *s != DO_NOT_CREATE).map(exptime_s),
                cas,
            }),
            Verb::Flush => {
                let delay_s = if extras.is_empty() { 0 } else { word(extras, 0) };
                Command::Flush { delay_s: i32::try_from(delay_s).unwrap_or(i32::MAX) }
            }
            Verb::Stat => Command::Stat { page: key },
            Verb::Noop => Command::Noop,
            Verb::Version => Command::Version,
            Verb::Quit => Command::Quit,
            Verb::SaslList => Command::Sasl(Sasl::ListMechanisms),
            Verb::SaslBegin | Verb::SaslStep if value_bytes > SASL_VALUE_BYTES_MAX => {
                return Err(Refused { status: Status::UnknownCommand, unlink: None });
            }
            Verb::SaslBegin => Command::Sasl(Sasl::Begin { mechanism: key, value_bytes }),
            Verb::SaslStep => Command::Sasl(Sasl::Step { mechanism: key, value_bytes }),
        })
    }
}

/// Builds a storage command. An append or prepend has no extras.
fn store<'a>(
    verb: StoreVerb,
    cas: u64,
    body: &Body<'a>,
    limits: &Limits,
) -> Result<Store<'a>, Refused<'a>> {
    let Body { extras, key, value_bytes } = *body;
    let (client_flags, exptime) =
        if extras.is_empty() { (0, 0) } else { (word(extras, 0), word(extras, 4)) };
    if !limits.fit(key.len(), client_flags, value_bytes) {
        let unlink = (verb == StoreVerb::Set).then_some(key);
        return Err(Refused { status: Status::TooLarge, unlink });
    }
    let verb = match verb {
        StoreVerb::Append | StoreVerb::Prepend => verb,
        _ if cas != 0 => StoreVerb::Cas,
        _ => verb,
    };
    Ok(Store { verb, key, client_flags, exptime_s: exptime_s(exptime), value_bytes, cas })
}

/// Returns an expiry as text commands express it. Times in the packet are unsigned. Those above
/// 2^31 - 1 are dates from 2038 on, which text commands cannot express, so they become "never".
fn exptime_s(time_s: u32) -> i32 {
    i32::try_from(time_s).unwrap_or(0)
}

fn word(extras: &[u8], at: usize) -> u32 {
    extras[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn double_word(extras: &[u8], at: usize) -> u64 {
    extras[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The expiry in an increment or decrement that creates no item.
const DO_NOT_CREATE: u32 = u32::MAX;

/// The length of the longest message of an authentication (bytes).
const SASL_VALUE_BYTES_MAX: usize = 4_096;
