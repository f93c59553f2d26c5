//! The answers of the binary protocol. Values are not copied here: after the header of a value the
//! caller appends the value itself. This module respects quiet packets: it writes nothing if the
//! client does not want the answer.

use super::command::Head;
use super::{HEADER_BYTES, RESPONSE_MAGIC};

/// The status of an answer that is not a success, with memcached's text unless it has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Status {
    NotFound,
    Exists,
    TooLarge,
    InvalidArguments,
    NotStored,
    NonNumeric,
    /// The client is nobody that may use the server, or its password is wrong.
    AuthFailure,
    /// The client may not do this. memcached has no such status.
    Denied,
    UnknownCommand,
    OutOfMemory,
    /// A store refused the command. memcached has no such status.
    Internal,
    /// The client sends more than its quota. memcached has no such status.
    OverQuota,
    /// A store did not answer. memcached has no such status.
    Temporary,
    /// The deadline of the request is over. memcached knows no deadlines.
    Late,
    /// The bytes are not a packet. memcached closes the connection without an answer; Rebate first
    /// says why.
    BadMagic,
}

impl Status {
    /// Returns the number of the status.
    pub const fn code(self) -> u16 {
        match self {
            Status::NotFound => 0x01,
            Status::Exists => 0x02,
            Status::TooLarge => 0x03,
            Status::InvalidArguments | Status::BadMagic => 0x04,
            Status::NotStored => 0x05,
            Status::NonNumeric => 0x06,
            Status::AuthFailure => 0x20,
            Status::Denied => 0x24,
            Status::UnknownCommand => 0x81,
            Status::OutOfMemory => 0x82,
            Status::Internal => 0x84,
            Status::OverQuota => 0x85,
            Status::Temporary | Status::Late => 0x86,
        }
    }

    /// Returns the text.
    pub const fn text(self) -> &'static str {
        match self {
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::InvalidArguments => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NonNumeric => "Non-numeric server-side value for incr or decr",
            Status::AuthFailure => "Auth failure.",
            Status::Denied => "Permission denied",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory allocating item",
            Status::Internal => "Internal error",
            Status::OverQuota => "Over quota",
            Status::Temporary => "Temporary failure",
            Status::Late => "The deadline is over",
            Status::BadMagic => "Invalid magic",
        }
    }
}

/// The item of a hit, whose value follows its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The key, if the answer contains it.
    pub key: Option<&'a [u8]>,
    /// The client flags.
    pub client_flags: u32,
    /// The CAS.
    pub cas: u64,
    /// The length of the value (bytes). It is zero in the answer to a touch.
    pub value_bytes: usize,
}

/// Appends the answer to a hit of get, gat or touch, up to its value. Hits are answered even if the
/// packet is quiet.
pub fn hit(out: &mut Vec<u8>, head: Head, item: &Hit<'_>) {
    let key = item.key.unwrap_or_default();
    let extras = item.client_flags.to_be_bytes();
    let lengths = Lengths {
        extras: extras.len() as u8,
        key: key.len() as u16,
        body: (extras.len() + key.len() + item.value_bytes) as u32,
    };
    header(out, head, 0, lengths, item.cas);
    out.extend_from_slice(&extras);
    out.extend_from_slice(key);
}

/// Appends the answer to a miss of get, gat or touch. With `key` it contains the key instead of a
/// text, as for getk and gatk. A quiet miss is not answered.
pub fn miss(out: &mut Vec<u8>, head: Head, key: Option<&[u8]>) {
    if head.quiet {
        return;
    }
    match key {
        None => refused(out, head, Status::NotFound),
        Some(key) => {
            let lengths = Lengths { extras: 0, key: key.len() as u16, body: key.len() as u32 };
            header(out, head, Status::NotFound.code(), lengths, 0);
            out.extend_from_slice(key);
        }
    }
}

/// Appends the answer to a command that is done and returns nothing but the CAS of the item, which
/// is zero if there is no item. With a quiet packet it appends nothing.
pub fn done(out: &mut Vec<u8>, head: Head, cas: u64) {
    success(out, head, cas, &[]);
}

/// Appends the answer to increment and decrement. With a quiet packet it appends nothing.
pub fn number(out: &mut Vec<u8>, head: Head, value: u64, cas: u64) {
    success(out, head, cas, &value.to_be_bytes());
}

/// Appends an answer that is a text, as those to version and to the commands for authentication.
pub fn text(out: &mut Vec<u8>, head: Head, text: &str) {
    success(out, head, 0, text.as_bytes());
}

/// Appends one line of a page of statistics. [`end_of_stats`] must follow the last one.
pub fn stat(out: &mut Vec<u8>, head: Head, name: &str, value: &str) {
    let key = u16::try_from(name.len()).unwrap_or(u16::MAX);
    let name = &name.as_bytes()[..usize::from(key)];
    header(out, head, 0, Lengths { extras: 0, key, body: (name.len() + value.len()) as u32 }, 0);
    out.extend_from_slice(name);
    out.extend_from_slice(value.as_bytes());
}

/// Appends the empty packet that ends a page of statistics.
pub fn end_of_stats(out: &mut Vec<u8>, head: Head) {
    stat(out, head, "", "");
}

/// Appends an error with its usual text, even if the packet is quiet.
pub fn refused(out: &mut Vec<u8>, head: Head, status: Status) {
    failed(out, head, status, status.text());
}

/// Appends an error with another text, even if the packet is quiet.
pub fn failed(out: &mut Vec<u8>, head: Head, status: Status, text: &str) {
    let body = u32::try_from(text.len()).unwrap_or(0);
    header(out, head, status.code(), Lengths { extras: 0, key: 0, body }, 0);
    out.extend_from_slice(&text.as_bytes()[..body as usize]);
}

/// The lengths of the parts of an answer (bytes). `body` includes the other two and the value.
struct Lengths {
    extras: u8,
    key: u16,
    body: u32,
}

fn success(out: &mut Vec<u8>, head: Head, cas: u64, body: &[u8]) {
    if !head.quiet {
        header(out, head, 0, Lengths { extras: 0, key: 0, body: body.len() as u32 }, cas);
        out.extend_from_slice(body);
    }
}

fn header(out: &mut Vec<u8>, head: Head, status: u16, lengths: Lengths, cas: u64) {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = RESPONSE_MAGIC;
    bytes[1] = head.opcode;
    bytes[2..4].copy_from_slice(&lengths.key.to_be_bytes());
    bytes[4] = lengths.extras;
    bytes[6..8].copy_from_slice(&status.to_be_bytes());
    bytes[8..12].copy_from_slice(&lengths.body.to_be_bytes());
    bytes[12..16].copy_from_slice(&head.opaque.to_be_bytes());
    bytes[16..24].copy_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(&bytes);
}
