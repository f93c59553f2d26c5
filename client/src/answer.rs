//! Answers, in whichever protocol they came.

use protocol::binary::response;

/// An answer. Its status, numbers and texts are those of the binary protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    /// Zero, or the code of a [`Status`](protocol::binary::Status).
    pub(crate) status: u16,
    /// The number of the request.
    pub(crate) opaque: u32,
    /// The version of the item.
    pub(crate) cas: u64,
    /// The number that was stored with the value.
    pub(crate) client_flags: u32,
    /// The name of a number of statistics. It is empty at their end.
    pub(crate) key: &'a [u8],
    /// The value, or the text of an error.
    pub(crate) value: &'a [u8],
    /// Whether a number is decimal digits instead of eight bytes.
    pub(crate) is_text: bool,
}

/// The result of parsing the bytes so far.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    /// There is no whole answer yet. It needs at least this many bytes in all.
    Incomplete { bytes: usize },
    /// An answer and its length.
    Answer { answer: Answer<'a>, consumed: usize },
    /// The bytes are no answer.
    Malformed(String),
}

impl Answer<'_> {
    /// Returns the number that an increment or decrement answers with.
    pub(crate) fn number(&self) -> Option<u64> {
        if self.is_text {
            return std::str::from_utf8(self.value).ok()?.trim_end().parse().ok();
        }
        self.value.try_into().ok().map(u64::from_be_bytes)
    }
}

/// Parses an answer of the binary protocol.
pub(crate) fn parse_binary(input: &[u8], body_bytes_max: usize) -> Parsed<'_> {
    match response::parse(input, body_bytes_max) {
        response::Parse::Incomplete { bytes } => Parsed::Incomplete { bytes },
        response::Parse::Malformed(why) => Parsed::Malformed(why.to_owned()),
        response::Parse::Response { response, consumed } => {
            let client_flags = response.client_flags();
            let response::Response { status, opaque, cas, key, value, .. } = response;
            let answer = Answer { status, opaque, cas, client_flags, key, value, is_text: false };
            Parsed::Answer { answer, consumed }
        }
    }
}
