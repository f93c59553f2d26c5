//! The binary protocol, for servers that accept nothing else, as memcached with SASL does. Links compose text and read
//! text; this module makes packets of what they compose, and text of the packets that come back. Values pass through
//! and are not gathered. Commands that the protocol does not have (most flags of meta commands) are answered by an
//! error, in their turn. The module has no socket.

mod meta;

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::str::FromStr;

use bytes::Bytes;
use meta::{MetaForm, MetaPacket};

use crate::reply_buffer::ReplyBuffer;

/// The header of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    opcode: u8,
    pub(super) key_bytes: usize,
    pub(super) extras_bytes: usize,
    pub(super) status: u16,
    /// The bytes that follow: extras, key and value.
    pub(super) body_bytes: usize,
    opaque: u32,
    cas: u64,
}

impl Header {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns an error if the bytes are no answer of the protocol.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> io::Result<Self> {
        let two = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = Self {
            opcode: bytes[1],
            key_bytes: usize::from(two(2)),
            extras_bytes: usize::from(bytes[4]),
            status: two(6),
            body_bytes: four(8) as usize,
            opaque: four(12),
            cas: u64::from(four(16)) << 32 | u64::from(four(20)),
        };
        if bytes[0] != RESPONSE_MAGIC || header.body_bytes < header.key_bytes + header.extras_bytes
        {
            return Err(malformed("bytes that are no packet"));
        }
        Ok(header)
    }
}

/// Returns the packet of a login with SASL PLAIN (RFC 4616).
pub(super) fn plain(user: &str, password: &str) -> Vec<u8> {
    let message = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
    let mut packet = Vec::new();
    request(&mut packet, SASL_AUTH, &[], b"PLAIN", message.len(), 0, 0);
    packet.extend_from_slice(&message);
    packet
}

/// Returns the packet of a request that has only a key.
pub(super) fn keyed(opcode: u8, key: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    request(&mut packet, opcode, &[], key, 0, 0, 0);
    packet
}

/// Translates between the session's text commands and the binary packets of one connection to a server.
#[derive(Default)]
pub(super) struct Packets {
    /// The packets that are not written yet.
    pub(super) outgoing: ReplyBuffer,
    /// The requests without an answer, in order.
    pending: VecDeque<Pending>,
    /// The number of requests so far, which is the opaque of the next one.
    requests: u32,
    /// The bytes that were read and not translated.
    input: Vec<u8>,
    /// The translated lines that were not taken.
    text: VecDeque<u8>,
    /// The bytes of a value that are still to come.
    value_left: usize,
}

struct Pending {
    opaque: u32,
    kind: Kind,
}

/// What the answer to a request becomes.
enum Kind {
    /// VALUE lines and END. `failure` is the first error instead of a value.
    Values {
        with_cas: bool,
        failure: Option<String>,
    },
    /// An answer of one line: what it is for success, and for each other status that is no error.
    Line {
        success: &'static str,
        others: &'static [(u16, &'static str)],
    },
    Number,
    Stats,
    Meta(MetaForm),
    /// An error for a command that the protocol does not have.
    Refused(&'static str),
}

impl Packets {
    /// Makes packets of complete requests.
    ///
    /// # Errors
    /// Returns an error for bytes that are no request, which is a defect.
    pub(super) fn take_requests(&mut self, requests: ReplyBuffer) -> io::Result<()> {
        let mut parts = Parts(requests.into_parts().into());
        while let Some(line) = parts.line()? {
            self.take_request(&line, &mut parts)?;
        }
        Ok(())
    }

    fn take_request(&mut self, line: &[u8], parts: &mut Parts) -> io::Result<()> {
        let opaque = self.requests;
        self.requests = self.requests.wrapping_add(1);
        let mut words = line.split(|byte| *byte == b' ');
        let verb = words.next().unwrap_or_default();
        let kind = match verb {
            b"get" | b"gets" => self.values(GETKQ, &[], words, verb == b"gets", opaque),
            b"gat" | b"gats" => {
                let extras = exptime(words.next())?.to_be_bytes();
                self.values(GATKQ, &extras, words, verb == b"gats", opaque)
            }
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
                self.store(verb, words, parts, opaque)?
            }
            b"delete" => {
                self.packet(DELETE, &[], word(words.next())?, opaque);
                Kind::Line { success: "DELETED", others: &[(NOT_FOUND, "NOT_FOUND")] }
            }
            b"touch" => {
                let (key, exptime) = (word(words.next())?, exptime(words.next())?);
                self.packet(TOUCH, &exptime.to_be_bytes(), key, opaque);
                Kind::Line { success: "TOUCHED", others: &[(NOT_FOUND, "NOT_FOUND")] }
            }
            b"incr" | b"decr" => {
                let (key, delta) = (word(words.next())?, number::<u64>(words.next())?);
                // With this time, a missing item is not created.
                let extras = [&delta.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat();
                let opcode = if verb == b"incr" { INCREMENT } else { DECREMENT };
                self.packet(opcode, &extras, key, opaque);
                Kind::Number
            }
            b"flush_all" => {
                self.packet(FLUSH, &exptime(words.next())?.to_be_bytes(), b"", opaque);
                Kind::Line { success: "OK", others: &[] }
            }
            b"stats" => {
                self.packet(STAT, &[], words.next().unwrap_or_default(), opaque);
                Kind::Stats
            }
            b"mn" => {
                self.packet(NOOP, &[], b"", opaque);
                Kind::Line { success: "MN", others: &[] }
            }
            b"mg" | b"ms" | b"md" | b"ma" => self.meta(verb, words, parts, opaque)?,
            _ => self.refuse(opaque),
        };
        self.pending.push_back(Pending { opaque, kind });
        Ok(())
    }

    /// Asks quietly for each key, so that only hits are answered, and marks their end.
    fn values<'l>(
        &mut self,
        opcode: u8,
        extras: &[u8],
        keys: impl Iterator<Item = &'l [u8]>,
        with_cas: bool,
        opaque: u32,
    ) -> Kind {
        for key in keys {
            self.packet(opcode, extras, key, opaque);
        }
        self.packet(NOOP, &[], b"", opaque);
        Kind::Values { with_cas, failure: None }
    }

    fn store<'l>(
        &mut self,
        verb: &[u8],
        mut words: impl Iterator<Item = &'l [u8]>,
        parts: &mut Parts,
        opaque: u32,
    ) -> io::Result<Kind> {
        let (key, flags) = (word(words.next())?, number::<u32>(words.next())?);
        let exptime = exptime(words.next())?;
        let value_bytes = number::<usize>(words.next())?;
        let extras = [flags.to_be_bytes(), exptime.to_be_bytes()].concat();
        let cas = match verb {
            // No item has this version, as none has the version 0 of text.
            b"cas" => {
                Some(number::<u64>(words.next())?).map(|cas| if cas == 0 { u64::MAX } else { cas })
            }
            _ => None,
        };
        let (opcode, extras, others): (_, &[u8], &'static [_]) = match verb {
            b"add" => (ADD, &extras, &[(EXISTS, "NOT_STORED")]),
            b"replace" => (REPLACE, &extras, &[(NOT_FOUND, "NOT_STORED")]),
            b"append" => (APPEND, &[], &[(NOT_STORED, "NOT_STORED")]),
            b"prepend" => (PREPEND, &[], &[(NOT_STORED, "NOT_STORED")]),
            _ => (SET, &extras, &[(EXISTS, "EXISTS"), (NOT_FOUND, "NOT_FOUND")]),
        };
        let out = self.outgoing.text();
        request(out, opcode, extras, key, value_bytes, opaque, cas.unwrap_or(0));
        parts.take(value_bytes, |value| self.outgoing.value(value))?;
        parts.skip(2)?;
        Ok(Kind::Line { success: "STORED", others })
    }

    fn meta<'l>(
        &mut self,
        verb: &[u8],
        mut words: impl Iterator<Item = &'l [u8]>,
        parts: &mut Parts,
        opaque: u32,
    ) -> io::Result<Kind> {
        let key = word(words.next())?;
        let value_bytes = match verb {
            b"ms" => Some(number::<usize>(words.next())?),
            _ => None,
        };
        let Some(packet) = MetaPacket::new(verb, key, value_bytes.unwrap_or(0), words)? else {
            parts.skip(value_bytes.map_or(0, |bytes| bytes + 2))?;
            return Ok(self.refuse(opaque));
        };
        let MetaPacket { opcode, extras, key, cas, form } = packet;
        let out = self.outgoing.text();
        request(out, opcode, &extras, &key, value_bytes.unwrap_or(0), opaque, cas);
        if let Some(value_bytes) = value_bytes {
            parts.take(value_bytes, |value| self.outgoing.value(value))?;
            parts.skip(2)?;
        }
        Ok(Kind::Meta(form))
    }

    /// Sends a packet without effect, whose answer is the turn of the error.
    fn refuse(&mut self, opaque: u32) -> Kind {
        self.packet(NOOP, &[], b"", opaque);
        Kind::Refused(NO_PACKET)
    }

    fn packet(&mut self, opcode: u8, extras: &[u8], key: &[u8], opaque: u32) {
        request(self.outgoing.text(), opcode, extras, key, 0, opaque, 0);
    }

    /// Reads packets with `receive` and writes their text into `space`, until `space` is full or there are no more
    /// bytes. Returns the number of bytes of text, which is 0 at the end of the connection.
    ///
    /// # Errors
    /// Returns the error of `receive` (`WouldBlock` only if there is no text), or an error for bytes that are no
    /// answer.
    pub(super) fn read(
        &mut self,
        space: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            filled += self.translate(&mut space[filled..])?;
            if filled == space.len() {
                return Ok(filled);
            }
            let had = self.input.len();
            self.input.resize(had + INPUT_BYTES, 0);
            let received = receive(&mut self.input[had..]);
            self.input.truncate(had + received.as_ref().map_or(0, |bytes| *bytes));
            match received {
                Ok(0) => return Ok(filled),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => {
                    return Ok(filled);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Translates what was read into `space`, as far as it fits.
    fn translate(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let (mut filled, mut used) = (0, 0);
        while filled < space.len() {
            if !self.text.is_empty() {
                let bytes = self.text.len().min(space.len() - filled);
                let taken = self.text.drain(..bytes);
                space[filled..filled + bytes]
                    .iter_mut()
                    .zip(taken)
                    .for_each(|(to, byte)| *to = byte);
                filled += bytes;
                continue;
            }
            let input = &self.input[used..];
            if self.value_left > 0 {
                let bytes = self.value_left.min(input.len()).min(space.len() - filled);
                if bytes == 0 {
                    break;
                }
                space[filled..filled + bytes].copy_from_slice(&input[..bytes]);
                (filled, used) = (filled + bytes, used + bytes);
                self.value_left -= bytes;
                if self.value_left == 0 {
                    self.text.extend(b"\r\n");
                }
                continue;
            }
            let Some(header) = input.first_chunk() else { break };
            let header = Header::parse(header)?;
            let pending = self.pending.front_mut();
            let pending = pending.ok_or_else(|| malformed("an answer that nobody asked for"))?;
            if pending.opaque != header.opaque {
                return Err(malformed("an answer to another request"));
            }
            // A value need not be here as a whole. It passes through.
            let is_value = pending.kind.has_values() && header.status == 0 && header.opcode != NOOP;
            let wanted = match is_value {
                true => header.extras_bytes + header.key_bytes,
                false => header.body_bytes,
            };
            if wanted > BODY_BYTES_MAX {
                return Err(malformed("a packet that is too long"));
            }
            let Some(body) = input[HEADER_BYTES..].get(..wanted) else { break };
            let is_last = pending.kind.answer(&header, body, &mut self.text)?;
            if is_value {
                self.value_left = header.body_bytes - wanted;
                if self.value_left == 0 {
                    self.text.extend(b"\r\n");
                }
            }
            if is_last {
                self.pending.pop_front();
            }
            used += HEADER_BYTES + wanted;
        }
        self.input.drain(..used);
        Ok(filled)
    }
}

impl Kind {
    /// Returns whether a successful answer has a value that passes through.
    const fn has_values(&self) -> bool {
        match self {
            Kind::Values { .. } => true,
            Kind::Meta(form) => form.has_value(),
            _ => false,
        }
    }

    /// Writes what a packet means, up to the value of a hit. Returns whether it is the last one of its request.
    fn answer(
        &mut self,
        header: &Header,
        body: &[u8],
        text: &mut VecDeque<u8>,
    ) -> io::Result<bool> {
        let mut line = |line: &dyn Display| text.extend(format!("{line}\r\n").bytes());
        let (extras, rest) = body.split_at(header.extras_bytes);
        let (key, value) = rest.split_at(header.key_bytes);
        match self {
            Kind::Values { failure, .. } if header.opcode == NOOP => match failure {
                Some(error) => line(&*error),
                None => line(&"END"),
            },
            Kind::Values { with_cas, .. } if header.status == 0 => {
                let flags = extras.first_chunk().map_or(0, |flags| u32::from_be_bytes(*flags));
                let bytes = header.body_bytes - body.len();
                text.extend(b"VALUE ");
                text.extend(key);
                text.extend(format!(" {flags} {bytes}").bytes());
                if *with_cas {
                    text.extend(format!(" {}", header.cas).bytes());
                }
                text.extend(b"\r\n");
                return Ok(false);
            }
            Kind::Values { failure, .. } => {
                if header.status != NOT_FOUND && failure.is_none() {
                    *failure = Some(error(header.status, value));
                }
                return Ok(false);
            }
            Kind::Refused(why) => line(&*why),
            Kind::Meta(form) => {
                form.write(header, extras, value, header.body_bytes - body.len(), text)?;
            }
            Kind::Line { success, .. } if header.status == 0 => line(&*success),
            Kind::Line { others, .. } => {
                match others.iter().find(|(status, _)| *status == header.status) {
                    Some((_, other)) => line(other),
                    None => line(&error(header.status, value)),
                }
            }
            Kind::Number => match (header.status, value.first_chunk()) {
                (0, Some(number)) => line(&u64::from_be_bytes(*number)),
                (0, None) => return Err(malformed("a number without its bytes")),
                (NOT_FOUND, _) => line(&"NOT_FOUND"),
                (NON_NUMERIC, _) => line(&NON_NUMERIC_LINE),
                (status, _) => line(&error(status, value)),
            },
            Kind::Stats if header.status == 0 && !key.is_empty() => {
                text.extend(b"STAT ");
                text.extend(key);
                text.push_back(b' ');
                text.extend(value);
                text.extend(b"\r\n");
                return Ok(false);
            }
            Kind::Stats if header.status == 0 => line(&"END"),
            Kind::Stats => line(&error(header.status, value)),
        }
        Ok(true)
    }
}

/// Returns the line of text for an error.
fn error(status: u16, text: &[u8]) -> String {
    match status {
        TOO_LARGE => "SERVER_ERROR object too large for cache".to_owned(),
        AUTH_FAILURE => "CLIENT_ERROR unauthenticated".to_owned(),
        OUT_OF_MEMORY => "SERVER_ERROR out of memory storing object".to_owned(),
        _ => {
            let text = text[..text.len().min(TEXT_BYTES_MAX)].escape_ascii();
            format!("SERVER_ERROR {text} (status {status:#x})")
        }
    }
}

/// Composed requests.
struct Parts(VecDeque<Bytes>);

impl Parts {
    /// Takes a line, without its end. Returns `None` after the last request.
    fn line(&mut self) -> io::Result<Option<Bytes>> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        let Some(part) = self.0.front_mut() else { return Ok(None) };
        let end = memchr::memchr(b'\n', part).ok_or_else(|| malformed("a request without end"))?;
        let line = part.split_to(end + 1);
        Ok(Some(line.slice(..line.len().saturating_sub(2))))
    }

    /// Takes bytes, which may be in several parts.
    fn take(&mut self, mut bytes: usize, mut each: impl FnMut(Bytes)) -> io::Result<()> {
        while bytes > 0 {
            let part = self.0.front_mut().ok_or_else(|| malformed("a request without end"))?;
            let taken = part.split_to(bytes.min(part.len()));
            bytes -= taken.len();
            if part.is_empty() {
                self.0.pop_front();
            }
            each(taken);
        }
        Ok(())
    }

    fn skip(&mut self, bytes: usize) -> io::Result<()> {
        self.take(bytes, drop)
    }
}

/// Appends the packet of a request up to its value.
fn request(
    out: &mut Vec<u8>,
    opcode: u8,
    extras: &[u8],
    key: &[u8],
    value_bytes: usize,
    opaque: u32,
    cas: u64,
) {
    let key_bytes = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let body_bytes = u32::try_from(extras.len() + key.len() + value_bytes).unwrap_or(u32::MAX);
    out.extend_from_slice(&[REQUEST_MAGIC, opcode]);
    out.extend_from_slice(&key_bytes.to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    out.extend_from_slice(&body_bytes.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
}

fn word(word: Option<&[u8]>) -> io::Result<&[u8]> {
    word.ok_or_else(|| malformed("a request that is too short"))
}

fn number<T: FromStr>(text: Option<&[u8]>) -> io::Result<T> {
    let parsed = std::str::from_utf8(word(text)?).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| malformed("a request with a wrong number"))
}

/// Returns the time of a packet. No time of a packet is negative, so a time in the past stands for those.
fn exptime(text: Option<&[u8]>) -> io::Result<u32> {
    Ok(u32::try_from(number::<i64>(text)?).unwrap_or(IN_THE_PAST))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) const HEADER_BYTES: usize = protocol::binary::HEADER_BYTES;
const REQUEST_MAGIC: u8 = protocol::binary::REQUEST_MAGIC;
const RESPONSE_MAGIC: u8 = 0x81;

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const DECREMENT: u8 = 0x06;
const FLUSH: u8 = 0x08;
const NOOP: u8 = 0x0a;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const STAT: u8 = 0x10;
const TOUCH: u8 = 0x1c;
const GAT: u8 = 0x1d;
const SASL_AUTH: u8 = 0x21;
const GATKQ: u8 = 0x24;

pub(super) const NOT_FOUND: u16 = 0x01;
const EXISTS: u16 = 0x02;
const TOO_LARGE: u16 = 0x03;
const NOT_STORED: u16 = 0x05;
const NON_NUMERIC: u16 = 0x06;
const AUTH_FAILURE: u16 = 0x20;
pub(super) const UNKNOWN_COMMAND: u16 = 0x81;
const OUT_OF_MEMORY: u16 = 0x82;

const NON_NUMERIC_LINE: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
const NO_PACKET: &str =
    "SERVER_ERROR the store speaks the binary protocol, which has no packet for this command";

/// The last second that memcached takes for a duration, plus one: a date in 1970.
const IN_THE_PAST: u32 = units::limits::EXPTIME_RELATIVE_MAX_S + 1;

/// The bytes of one read.
const INPUT_BYTES: usize = 16 << 10;

/// The longest body of an answer without a value (bytes).
const BODY_BYTES_MAX: usize = 64 << 10;

/// The bytes of the text of an error that are passed on.
const TEXT_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer.
    fn answer(opcode: u8, status: u16, opaque: u32, parts: [&[u8]; 3], cas: u64) -> Vec<u8> {
        let [extras, key, value] = parts;
        let mut packet = Vec::new();
        request(&mut packet, opcode, extras, key, value.len(), opaque, cas);
        packet.extend_from_slice(value);
        packet[0] = RESPONSE_MAGIC;
        packet[6..8].copy_from_slice(&status.to_be_bytes());
        packet
    }

    /// Sends requests, and returns the text of these packets, which arrive `at_once` bytes at a time into a space of
    /// that many bytes.
    fn exchange(requests: &str, packets: &[u8], at_once: usize) -> io::Result<String> {
        let mut translation = Packets::default();
        let mut out = ReplyBuffer::default();
        out.text().extend_from_slice(requests.as_bytes());
        translation.take_requests(out)?;
        let (mut rest, mut text) = (packets, Vec::new());
        let mut space = vec![0; at_once];
        loop {
            let read = translation.read(&mut space, |space| {
                let bytes = rest.len().min(at_once).min(space.len());
                space[..bytes].copy_from_slice(&rest[..bytes]);
                rest = &rest[bytes..];
                Ok(bytes)
            })?;
            if read == 0 {
                return Ok(String::from_utf8(text).expect("text"));
            }
            text.extend_from_slice(&space[..read]);
        }
    }

    #[test]
    fn answers_become_the_lines_that_text_has() {
        let (none, hit) = ([&b""[..], b"", b""], [&7_u32.to_be_bytes()[..], b"k", b"value"]);
        for (request, packets, lines) in [
            ("get k l\r\n", vec![answer(GETKQ, 0, 0, hit, 9)], "VALUE k 7 5\r\nvalue\r\n"),
            ("gats 5 k\r\n", vec![answer(GATKQ, 0, 0, hit, 9)], "VALUE k 7 5 9\r\nvalue\r\n"),
            ("get k\r\n", vec![answer(NOOP, 0, 0, none, 0)], "END\r\n"),
            (
                "get k\r\n",
                vec![answer(GETKQ, OUT_OF_MEMORY, 0, none, 0), answer(NOOP, 0, 0, none, 0)],
                "SERVER_ERROR out of memory storing object\r\n",
            ),
            ("set k 1 2 1\r\nv\r\n", vec![answer(SET, 0, 0, none, 3)], "STORED\r\n"),
            ("add k 1 2 1\r\nv\r\n", vec![answer(ADD, EXISTS, 0, none, 0)], "NOT_STORED\r\n"),
            ("cas k 1 2 1 3\r\nv\r\n", vec![answer(SET, EXISTS, 0, none, 0)], "EXISTS\r\n"),
            ("delete k\r\n", vec![answer(DELETE, NOT_FOUND, 0, none, 0)], "NOT_FOUND\r\n"),
            ("touch k -1\r\n", vec![answer(TOUCH, 0, 0, none, 0)], "TOUCHED\r\n"),
            (
                "incr k 5\r\n",
                vec![answer(INCREMENT, 0, 0, [b"", b"", &42_u64.to_be_bytes()], 1)],
                "42\r\n",
            ),
            (
                "decr k 5\r\n",
                vec![answer(DECREMENT, NON_NUMERIC, 0, none, 1)],
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
            (
                "stats\r\n",
                vec![answer(STAT, 0, 0, [b"", b"pid", b"1"], 0), answer(STAT, 0, 0, none, 0)],
                "STAT pid 1\r\nEND\r\n",
            ),
            (
                "ms k 2 T0 MA\r\nhi\r\nmn\r\n",
                vec![answer(NOOP, 0, 0, none, 0), answer(NOOP, 0, 1, none, 0)],
                "SERVER_ERROR the store speaks the binary protocol, which has no packet for this \
                 command\r\nMN\r\n",
            ),
            (
                "mg k v c\r\nmn\r\n",
                vec![answer(GET, 0, 0, [hit[0], b"", hit[2]], 9), answer(NOOP, 0, 1, none, 0)],
                "VA 5 f7 c9\r\nvalue\r\nMN\r\n",
            ),
            (
                "mg YSBi b k v\r\n",
                vec![answer(GET, 0, 0, [hit[0], b"", hit[2]], 9)],
                "VA 5 f7 c9 b\r\nvalue\r\n",
            ),
            ("mg k T9 v\r\n", vec![answer(GAT, NOT_FOUND, 0, [b"", b"", b"Not"], 0)], "EN\r\n"),
            ("mg k f T9\r\n", vec![answer(TOUCH, 0, 0, [hit[0], b"", b""], 9)], "HD f7 c9\r\n"),
            ("ms k 1 s\r\nv\r\n", vec![answer(SET, 0, 0, none, 3)], "HD c3 s1\r\n"),
            ("ms k 1 ME\r\nv\r\n", vec![answer(ADD, EXISTS, 0, none, 0)], "NS\r\n"),
            ("ms k 1 C5\r\nv\r\n", vec![answer(SET, EXISTS, 0, none, 0)], "EX\r\n"),
            ("md k\r\n", vec![answer(DELETE, NOT_FOUND, 0, none, 0)], "NF\r\n"),
            (
                "ma k v MI D5 J0 c\r\n",
                vec![answer(INCREMENT, 0, 0, [b"", b"", &42_u64.to_be_bytes()], 1)],
                "VA 2 c1\r\n42\r\n",
            ),
        ] {
            for at_once in [1, 7, 1_000] {
                let found = exchange(request, &packets.concat(), at_once);
                assert_eq!(found.expect(request), lines, "{request}");
            }
        }
    }

    #[test]
    fn meta_commands_become_packets() {
        // The opcode, the CAS, the length of the extras, and the bytes behind the header.
        type Sent = (u8, u64, u8, &'static [u8]);
        let sent: [(&str, Sent); 9] = [
            ("mg bmV3IGtleQ== b v c f\r\n", (GET, 0, 0, b"new key")),
            ("mg k T5 v\r\n", (GAT, 0, 4, b"\0\0\0\x05k")),
            ("mg k T-1\r\n", (TOUCH, 0, 4, b"\0\x27\x8d\x01k")),
            ("ms k 2 c F3 T4\r\nhi\r\n", (SET, 0, 8, b"\0\0\0\x03\0\0\0\x04khi")),
            ("ms k 1 MR C0\r\nx\r\n", (SET, u64::MAX, 8, b"\0\0\0\0\0\0\0\0kx")),
            ("ms k 0 MR\r\n\r\n", (REPLACE, 0, 8, b"\0\0\0\0\0\0\0\0k")),
            ("md k C7\r\n", (DELETE, 7, 0, b"k")),
            ("md k C0\r\n", (DELETE, u64::MAX, 0, b"k")),
            (
                "ma k v MD D1 J2 C0\r\n",
                (DECREMENT, 0, 20, b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\xff\xff\xff\xffk"),
            ),
        ];
        for (line, (opcode, cas, extras_bytes, body)) in sent {
            let mut translation = Packets::default();
            let mut out = ReplyBuffer::default();
            out.text().extend_from_slice(line.as_bytes());
            translation.take_requests(out).expect(line);
            let packet = translation.outgoing.into_parts().concat();
            let Some(header) = packet.first_chunk::<HEADER_BYTES>() else { panic!("{line}") };
            assert_eq!((header[1], header[4]), (opcode, extras_bytes), "{line}");
            assert_eq!(header[16..], cas.to_be_bytes(), "{line}");
            assert_eq!(
                packet[HEADER_BYTES..].escape_ascii().to_string(),
                body.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn meta_commands_without_a_packet_are_refused_in_their_turn() {
        for line in [
            "mg k t",
            "mg k v h",
            "mg k v l",
            "mg k v u",
            "mg k v R30",
            "mg k N30",
            "mg k v E5",
            "ms k 1 MA\r\nx",
            "ms k 1 MP\r\nx",
            "ms k 1 I C5\r\nx",
            "ms k 1 E5\r\nx",
            "ms k 1 N5 MA\r\nx",
            "md k I",
            "md k T5 I",
            "md k x",
            "md k E5",
            "ma k v T5",
            "ma k v t",
            "ma k v E5",
            "me k",
        ] {
            let answers = [0, 1].map(|opaque| answer(NOOP, 0, opaque, [&b""[..], b"", b""], 0));
            let text = exchange(&format!("{line}\r\nmn\r\n"), &answers.concat(), 1_000);
            assert_eq!(text.expect(line), format!("{NO_PACKET}\r\nMN\r\n"), "{line}");
        }
    }

    #[test]
    fn bytes_that_are_no_answer_are_refused() {
        let none = [&b""[..], b"", b""];
        let wrong_magic = vec![0x80; HEADER_BYTES];
        let twice = [answer(NOOP, 0, 0, none, 0), answer(NOOP, 0, 0, none, 0)].concat();
        let mut short = answer(NOOP, 0, 0, none, 0);
        short[3] = 9;
        for packets in [wrong_magic, twice, short, answer(NOOP, 0, 1, none, 0)] {
            assert!(exchange("mn\r\n", &packets, 100).is_err(), "{packets:?}");
        }
    }

    #[test]
    fn values_in_parts_go_into_one_packet() {
        let mut translation = Packets::default();
        let mut out = ReplyBuffer::default();
        out.text().extend_from_slice(b"set k 1 -1 20000\r\n");
        out.value(Bytes::from(vec![b'v'; 20_000]));
        out.text().extend_from_slice(b"\r\nget k\r\n");
        translation.take_requests(out).expect("requests");
        let sent = translation.outgoing.into_parts().concat();
        let Some(header) = sent.first_chunk::<HEADER_BYTES>() else { panic!("a packet") };
        assert_eq!(header[..8], [0x80, SET, 0, 1, 8, 0, 0, 0]);
        assert_eq!(header[8..12], (8_u32 + 1 + 20_000).to_be_bytes());
        assert_eq!(sent[28..32], IN_THE_PAST.to_be_bytes());
        assert_eq!(sent.len(), 24 + 8 + 1 + 20_000 + 24 + 1 + 24);
    }
}
