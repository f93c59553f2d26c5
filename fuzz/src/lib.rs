//! The common parts of several fuzz targets: the walk of a session over a stream of commands, and bytes that are large
//! and compressible although the fuzzer's input is small. It asserts nothing itself.

pub mod shadow;

use arbitrary::Arbitrary;
use protocol::{Command, Limits, Parse};
use units::ByteCount;

/// One step of a session over its stream, and where the next begins.
pub struct Step<'a> {
    /// The result of parsing the bytes at the front.
    pub parsed: Parse<'a>,
    /// The bytes that the line takes.
    pub consumed: usize,
    /// The bytes behind the line that belong to it: a body, or what is swallowed; beyond what is
    /// there where the stream ends inside.
    pub body_bytes: u64,
}

/// Parses what stands at the front of `input`; none where the session would read more.
pub fn step<'a>(input: &'a [u8], limits: &Limits) -> Option<Step<'a>> {
    let parsed = protocol::parse(input, limits);
    let (consumed, body_bytes) = match &parsed {
        Parse::Incomplete => return None,
        Parse::Command { command, consumed } => {
            (*consumed, command.body_bytes().unwrap_or(0) as u64)
        }
        Parse::Refused { refusal, consumed } => (*consumed, refusal.swallow_bytes),
    };
    Some(Step { parsed, consumed, body_bytes })
}

impl Step<'_> {
    /// Returns where the next command starts in an input of `input_bytes`; none where the connection ends or the stream
    /// ends inside the body.
    pub fn next(&self, input_bytes: usize) -> Option<usize> {
        let ends = match &self.parsed {
            Parse::Refused { refusal, .. } => refusal.close,
            Parse::Command { command, .. } => *command == Command::Quit,
            Parse::Incomplete => true,
        };
        let next = self.consumed as u64 + self.body_bytes;
        (!ends && next <= input_bytes as u64).then_some(next as usize)
    }
}

/// `-I` as a fuzzer chooses it: the lowest, the default, the highest.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub enum ItemBytesMax {
    /// 1 KiB.
    Lowest,
    /// 1 MiB.
    Default,
    /// 1 GiB.
    Highest,
}

impl From<ItemBytesMax> for Limits {
    fn from(choice: ItemBytesMax) -> Limits {
        let item_bytes_max = match choice {
            ItemBytesMax::Lowest => ByteCount::kib(1),
            ItemBytesMax::Default => ByteCount::mib(1),
            ItemBytesMax::Highest => ByteCount::mib(1024),
        };
        Limits { item_bytes_max }
    }
}

/// Bytes in pieces, some of them repeated or drawn, so that a short input stands for a long value.
#[derive(Clone, Debug, Arbitrary)]
pub struct Value<'a>(Vec<Piece<'a>>);

#[derive(Clone, Debug, Arbitrary)]
enum Piece<'a> {
    Literal(&'a [u8]),
    Repeated(u8, u16),
    /// Bytes from earlier in the value: where from, and how many.
    Again {
        distance: u16,
        bytes: u16,
    },
    /// Bytes that do not shrink.
    Drawn {
        seed: u8,
        bytes: u16,
    },
}

impl Value<'_> {
    /// The value, cut at `bytes_max`.
    pub fn bytes(&self, bytes_max: usize) -> Vec<u8> {
        let mut value = Vec::new();
        for piece in &self.0 {
            if value.len() >= bytes_max {
                break;
            }
            piece.append(&mut value);
        }
        value.truncate(bytes_max);
        value
    }
}

impl Piece<'_> {
    fn append(&self, value: &mut Vec<u8>) {
        match self {
            Piece::Literal(bytes) => value.extend_from_slice(bytes),
            Piece::Repeated(byte, count) => {
                value.resize(value.len() + usize::from(*count), *byte);
            }
            Piece::Again { distance, bytes } => {
                let Some(from) = value.len().checked_sub(1 + usize::from(*distance)) else {
                    return;
                };
                for index in from..from + usize::from(*bytes) {
                    value.push(value[index]);
                }
            }
            Piece::Drawn { seed, bytes } => {
                let start = value.len();
                value.resize(start + usize::from(*bytes), 0);
                units::Prng::new(u64::from(*seed)).fill(&mut value[start..]);
            }
        }
    }
}
