//! Parses answers of the binary protocol, for clients.

use super::{HEADER_BYTES, RESPONSE_MAGIC};

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The opcode of the request.
    pub opcode: u8,
    /// Zero, or the number of a [`Status`](super::Status).
    pub status: u16,
    /// What the request gave.
    pub opaque: u32,
    /// The version of the item.
    pub cas: u64,
    /// The extras. Those of a hit are the client flags.
    pub extras: &'a [u8],
    /// The key, or the name of a number of statistics.
    pub key: &'a [u8],
    /// The value, or the text of an error.
    pub value: &'a [u8],
}

/// The result of parsing the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The bytes contain no whole answer yet. It needs at least this many in all.
    Incomplete {
        /// The bytes that are needed from the front of the answer.
        bytes: usize,
    },
    /// An answer.
    Response {
        /// The answer.
        response: Response<'a>,
        /// Its length (bytes).
        consumed: usize,
    },
    /// The bytes are no answer. The text says why.
    Malformed(&'static str),
}

/// Parses one answer from the front of `input`. An answer with a body of more than `body_bytes_max` counts as
/// malformed.
pub fn parse(input: &[u8], body_bytes_max: usize) -> Parse<'_> {
    if input.first().is_some_and(|magic| *magic != RESPONSE_MAGIC) {
        return Parse::Malformed("an answer begins with the byte 0x81");
    }
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Parse::Incomplete { bytes: HEADER_BYTES };
    };
    let [_, opcode, k0, k1, extras_bytes, _, s0, s1, rest_of_header @ ..] = *header;
    let [b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = rest_of_header;
    let key_bytes = usize::from(u16::from_be_bytes([k0, k1]));
    let extras_bytes = usize::from(extras_bytes);
    let body_bytes = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
    if extras_bytes + key_bytes > body_bytes {
        return Parse::Malformed("an answer's extras and key are longer than its body");
    }
    if body_bytes > body_bytes_max {
        return Parse::Malformed("an answer is longer than any value may be");
    }
    let Some(body) = rest.get(..body_bytes) else {
        return Parse::Incomplete { bytes: HEADER_BYTES + body_bytes };
    };
    let (extras, body) = body.split_at(extras_bytes);
    let (key, value) = body.split_at(key_bytes);
    let response = Response {
        opcode,
        status: u16::from_be_bytes([s0, s1]),
        opaque: u32::from_be_bytes([o0, o1, o2, o3]),
        cas: u64::from_be_bytes(cas),
        extras,
        key,
        value,
    };
    Parse::Response { response, consumed: HEADER_BYTES + extras_bytes + key.len() + value.len() }
}

impl Response<'_> {
    /// Returns the client flags of a hit.
    pub fn client_flags(&self) -> u32 {
        self.extras.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Returns the number that an increment or decrement answers with.
    pub fn number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::reply::{self, Hit};
    use crate::binary::{Head, Status};

    const MAX: usize = 1 << 20;

    #[test]
    fn a_client_reads_what_the_server_composes() {
        let head = Head { opcode: 0x0c, opaque: 9, ..Head::default() };
        let mut bytes = Vec::new();
        let hit = Hit { key: Some(b"k"), client_flags: 5, cas: 77, value_bytes: 5 };
        reply::hit(&mut bytes, head, &hit);
        bytes.extend_from_slice(b"value");
        let whole = bytes.len();
        for cut in 0..whole {
            let Parse::Incomplete { bytes: needed } = parse(&bytes[..cut], MAX) else {
                panic!("{cut} of {whole} bytes are no answer");
            };
            assert!(cut < needed && needed <= whole, "{cut}: {needed}");
        }
        let Parse::Response { response, consumed } = parse(&bytes, MAX) else {
            panic!("an answer")
        };
        assert_eq!(consumed, whole);
        assert_eq!((response.key, response.value), (&b"k"[..], &b"value"[..]));
        assert_eq!((response.status, response.opaque, response.cas), (0, 9, 77));
        assert_eq!(response.client_flags(), 5);

        let mut bytes = Vec::new();
        reply::number(&mut bytes, head, u64::MAX - 1, 3);
        let Parse::Response { response, .. } = parse(&bytes, MAX) else { panic!("an answer") };
        assert_eq!(response.number(), Some(u64::MAX - 1));

        let mut bytes = Vec::new();
        reply::refused(&mut bytes, head, Status::NotStored);
        let Parse::Response { response, .. } = parse(&bytes, MAX) else { panic!("an answer") };
        assert_eq!((response.status, response.value), (5, &b"Not stored."[..]));
    }

    #[test]
    fn other_bytes_are_no_answer() {
        assert!(matches!(parse(b"ERROR", MAX), Parse::Malformed(_)));
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = RESPONSE_MAGIC;
        bytes[3] = 1;
        assert!(matches!(parse(&bytes, MAX), Parse::Malformed(_)), "a key without a body");
        (bytes[3], bytes[8]) = (0, 0xff);
        assert!(matches!(parse(&bytes, MAX), Parse::Malformed(_)), "4 GiB");
    }
}
