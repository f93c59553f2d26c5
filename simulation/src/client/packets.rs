//! The binary protocol of a client: requests as packets, and answers from packets. As with text, the parser is one of
//! its own, so that it shares no mistake with the server's.

use std::io;

use super::wire::{Answers, Broken, Request, check_flags, flags, wrong};
use crate::history::{Answer, Ask, Bytes};

/// The text of the login of SASL PLAIN: no identity to act as, the user and the password.
fn plain_login() -> Vec<u8> {
    format!("\0{}\0{}", super::USER, super::PASSWORD).into_bytes()
}

/// Appends the login.
pub(super) fn write_login(out: &mut Vec<u8>) {
    packet(out, AUTH, (0, 0), &[], b"PLAIN", &plain_login());
}

impl Request {
    /// Appends the request as packets. A get of several keys is quiet, and ends with a packet that is always answered.
    pub(super) fn write_packets(&self, place: usize, out: &mut Vec<u8>) {
        let key = self.keys.first().map(String::as_bytes).unwrap_or_default();
        let first = number(place, 0);
        let one = |out: &mut Vec<u8>, cas, extras: &[u8], value: &[u8]| {
            packet(out, self.opcode(), (first, cas), extras, key, value);
        };
        // The times of all runs are before 2106.
        let exptime = (self.exptime() as u32).to_be_bytes();
        let item = |value: &[u8]| [flags(value).to_be_bytes(), exptime].concat();
        match &self.ask {
            Ask::Get if self.keys.len() > 1 => {
                for (at, key) in self.keys.iter().enumerate() {
                    packet(out, GETKQ, (number(place, at), 0), &[], key.as_bytes(), &[]);
                }
                packet(out, NOOP, (number(place, self.keys.len()), 0), &[], &[], &[]);
            }
            Ask::Set(value) | Ask::Add(value) | Ask::Replace(value) => {
                one(out, 0, &item(value), value);
            }
            Ask::Cas(value, cas) => one(out, *cas, &item(value), value),
            Ask::Append(value) => one(out, 0, &[], value),
            Ask::Count(delta) => {
                let extras = [&delta.to_be_bytes()[..], &[0; 8], &NOT_CREATED].concat();
                one(out, 0, &extras, &[]);
            }
            Ask::Touch => one(out, 0, &exptime, &[]),
            Ask::Get | Ask::Delete | Ask::Flush => one(out, 0, &[], &[]),
            Ask::Fetch { .. } | Ask::Invalidate => unreachable!("only meta commands do this"),
        }
    }

    fn opcode(&self) -> u8 {
        match self.ask {
            Ask::Get if self.keys.len() > 1 => GETKQ,
            Ask::Get => GET,
            Ask::Set(_) | Ask::Cas(..) => SET,
            Ask::Add(_) => ADD,
            Ask::Replace(_) => REPLACE,
            Ask::Append(_) => APPEND,
            Ask::Delete => DELETE,
            Ask::Count(_) => INCREMENT,
            Ask::Touch => TOUCH,
            Ask::Flush => FLUSH,
            Ask::Fetch { .. } | Ask::Invalidate => unreachable!("only meta commands do this"),
        }
    }

    /// Returns what a packet says about a key. `None` if it may not say that.
    fn packet_answer(&self, key: &str, packet: &Packet) -> Option<Answer> {
        let asks_for_number = matches!(self.ask, Ask::Count(_));
        match packet.status {
            0 if self.ask == Ask::Get => {
                let client_flags = u32::from_be_bytes(packet.extras[..].try_into().ok()?);
                check_flags(key, &packet.value, Some(client_flags.into())).ok()?;
                Some(Answer::Hit(packet.value.clone(), Some(packet.cas)))
            }
            0 if asks_for_number => {
                Some(Answer::Number(u64::from_be_bytes(packet.value[..].try_into().ok()?)))
            }
            0 => Some(Answer::Done),
            NOT_FOUND => match self.ask {
                Ask::Get | Ask::Delete | Ask::Touch | Ask::Count(_) | Ask::Cas(..) => {
                    Some(Answer::Miss)
                }
                Ask::Replace(_) => Some(Answer::NotStored),
                _ => None,
            },
            EXISTS => match self.ask {
                Ask::Cas(..) => Some(Answer::Exists),
                Ask::Add(_) => Some(Answer::NotStored),
                _ => None,
            },
            NOT_STORED if matches!(self.ask, Ask::Append(_)) => Some(Answer::NotStored),
            NOT_NUMBER if asks_for_number => Some(Answer::NotNumber),
            OUT_OF_MEMORY | INTERNAL | TEMPORARY => Some(Answer::Unknown),
            _ => None,
        }
    }
}

impl Answers<'_> {
    /// Reads the answer to the login.
    pub(super) async fn packet_of_login(&mut self) -> Result<(), Broken> {
        let packet = self.packet().await?;
        match (packet.opcode, packet.status) {
            (AUTH, 0) => Ok(()),
            _ => Err(Broken::Wrong(format!("the login is answered {packet:?}"))),
        }
    }

    /// Reads the answers to a request in packets: one for each of its keys.
    pub(super) async fn next_packets(
        &mut self,
        request: &Request,
        place: usize,
    ) -> Result<Vec<Answer>, Broken> {
        let key = request.keys.first().map(String::as_str).unwrap_or_default();
        let opcode = request.opcode();
        if request.keys.len() < 2 {
            let packet = self.packet().await?;
            let is_its = packet.opaque == number(place, 0) && packet.opcode == opcode;
            let answer = request.packet_answer(key, &packet).filter(|_| is_its);
            let answer = answer.ok_or_else(|| wrong(request, &format!("{packet:?}")))?;
            self.note_packet(&packet)?;
            return Ok(vec![answer]);
        }
        // The keys without an answer are not there.
        let mut answers = vec![Answer::Miss; request.keys.len()];
        let mut next = 0;
        loop {
            let packet = self.packet().await?;
            let at = packet.opaque.wrapping_sub(number(place, 0)) as usize;
            if packet.opcode == NOOP && packet.status == 0 && at == request.keys.len() {
                return Ok(answers);
            }
            let asked = request.keys.get(at).filter(|_| at >= next && packet.opcode == opcode);
            let is_error = packet.status != 0;
            let asked = asked.filter(|key| is_error || key.as_bytes() == packet.key);
            let answer = asked.and_then(|key| request.packet_answer(key, &packet));
            let answer = answer.filter(|answer| *answer != Answer::Miss);
            answers[at.min(request.keys.len() - 1)] =
                answer.ok_or_else(|| wrong(request, &format!("{packet:?}")))?;
            self.note_packet(&packet)?;
            next = at + 1;
        }
    }

    /// Records the text of an error.
    fn note_packet(&mut self, packet: &Packet) -> Result<(), Broken> {
        match packet.status {
            OUT_OF_MEMORY | INTERNAL | TEMPORARY => {
                self.note_error(String::from_utf8_lossy(&packet.value).into_owned())
            }
            _ => Ok(()),
        }
    }

    async fn packet(&mut self) -> Result<Packet, Broken> {
        if self.bytes(1).await? != [RESPONSE] {
            // Who connects when there are too many clients is told so before anything is known of it.
            let line = self.line().await?;
            if !line.starts_with("ERROR Too many") {
                return Err(Broken::Wrong(format!("a packet begins {line:?}")));
            }
            self.note_error(line)?;
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let head = self.bytes(HEADER_BYTES).await?.to_vec();
        let field = |at: usize, bytes: usize| {
            head[at..at + bytes].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (key_bytes, extra_bytes) = (field(2, 2) as usize, field(4, 1) as usize);
        let body_bytes = field(8, 4) as usize;
        if key_bytes + extra_bytes > body_bytes || body_bytes > BODY_BYTES_MAX {
            return Err(Broken::Wrong(format!("a packet begins {head:x?}")));
        }
        let all = self.bytes(HEADER_BYTES + body_bytes).await?;
        let (extras, rest) = all[HEADER_BYTES..].split_at(extra_bytes);
        let (key, value) = rest.split_at(key_bytes);
        let packet = Packet {
            opcode: head[1],
            status: field(6, 2) as u16,
            opaque: field(12, 4) as u32,
            cas: field(16, 8),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.into(),
        };
        self.skip(HEADER_BYTES + body_bytes);
        Ok(packet)
    }
}

/// Returns the opaque number of a packet: of the request with this place in its batch, about its key at `at`.
fn number(place: usize, at: usize) -> u32 {
    (place * KEYS_MAX + at) as u32
}

/// An answer.
#[derive(Debug)]
struct Packet {
    opcode: u8,
    status: u16,
    opaque: u32,
    cas: u64,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Bytes,
}

/// Appends a packet with this opaque number and CAS number.
fn packet(
    out: &mut Vec<u8>,
    opcode: u8,
    (opaque, cas): (u32, u64),
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) {
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    out.extend_from_slice(&[REQUEST, opcode]);
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    // The lengths of the extras; then the type of the data and the bucket, which are zero.
    out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    out.extend_from_slice(&body_bytes.to_be_bytes());
    out.extend_from_slice(&opaque.to_be_bytes());
    out.extend_from_slice(&cas.to_be_bytes());
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
}

// memcached's `protocol_binary.h` names these.
const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;
const HEADER_BYTES: usize = 24;
const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const FLUSH: u8 = 0x08;
const NOOP: u8 = 0x0a;
const GETKQ: u8 = 0x0d;
const APPEND: u8 = 0x0e;
const TOUCH: u8 = 0x1c;
const AUTH: u8 = 0x21;
const NOT_FOUND: u16 = 0x01;
const EXISTS: u16 = 0x02;
const NOT_STORED: u16 = 0x05;
const NOT_NUMBER: u16 = 0x06;
const OUT_OF_MEMORY: u16 = 0x82;
const INTERNAL: u16 = 0x84;
const TEMPORARY: u16 = 0x86;
/// The expiry time of a counter that must not be created.
const NOT_CREATED: [u8; 4] = [0xff; 4];
/// More than the most packets of a request.
const KEYS_MAX: usize = 100;
/// More than the longest answer (bytes).
const BODY_BYTES_MAX: usize = 2 << 20;
