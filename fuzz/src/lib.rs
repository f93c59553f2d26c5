//! Fuzz targets, and the parts that several of them share: the steps of a session over a stream of commands, and values
//! that are large and compressible although the fuzzer's input is small. A target reads arbitrary bytes as its input
//! and panics if the code under test does not keep its promises.

pub mod shadow;

use arbitrary::{Arbitrary, Unstructured};
use protocol::{Command, Limits, Parse};
use units::ByteCount;

/// A fuzz target.
pub struct Target {
    /// Its name, which is that of its module.
    pub name: &'static str,
    run: fn(&[u8]) -> bool,
}

impl Target {
    /// Runs the target once. Returns whether the bytes were enough for an input.
    ///
    /// # Panics
    /// If the code under test does not keep its promises.
    pub fn run(&self, bytes: &[u8]) -> bool {
        (self.run)(bytes)
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(mod $name;)*

        /// All targets.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), run: |bytes| run_with(bytes, $name::fuzz) },)*
        ];
    };
}

targets! {
    codec
    completion
    counter
    frame
    lane
    near
    protocol_binary
    protocol_request
    protocol_response
    protocol_split
    rpc
    sealed
    snapshot
    store_shadow
    thrift
    trace
}

fn run_with<'a, T: Arbitrary<'a>>(bytes: &'a [u8], run: impl FnOnce(T)) -> bool {
    if bytes.len() < T::size_hint(0).0 {
        return false;
    }
    T::arbitrary_take_rest(Unstructured::new(bytes)).map(run).is_ok()
}

/// Returns the target with this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a name of a target")
}

/// Makes the entry of a binary that libFuzzer drives.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! libfuzzer_target {
    ($name:literal) => {
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> libfuzzer_sys::Corpus {
            match $crate::target($name).run(bytes) {
                true => libfuzzer_sys::Corpus::Keep,
                false => libfuzzer_sys::Corpus::Reject,
            }
        });
    };
}

/// One step of a session over its stream, and the position of the next step.
pub struct Step<'a> {
    /// The result of parsing the bytes at the front of the stream.
    pub parsed: Parse<'a>,
    /// The number of bytes of the line.
    pub consumed: usize,
    /// The number of bytes behind the line that belong to it: its body, or bytes that the server skips. It may exceed
    /// the bytes that are left of the stream.
    pub body_bytes: u64,
}

/// Parses the command at the front of `input`. Returns none if the session would wait for more bytes.
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
    /// Returns the position of the next command in an input of `input_bytes` bytes. Returns none if the connection ends
    /// or the stream ends inside the body.
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

/// The value of `-I` that the fuzzer chooses: the lowest, the default or the highest.
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

/// Bytes in pieces. Some pieces are repeated or random, so that a short input describes a long value.
#[derive(Clone, Debug, Arbitrary)]
pub struct Value<'a>(Vec<Piece<'a>>);

#[derive(Clone, Debug, Arbitrary)]
enum Piece<'a> {
    Literal(&'a [u8]),
    Repeated(u8, u16),
    /// A copy of `bytes` bytes that start `distance` + 1 bytes before the end of the value so far.
    Again {
        distance: u16,
        bytes: u16,
    },
    /// Random bytes, which do not compress.
    Drawn {
        seed: u8,
        bytes: u16,
    },
}

impl Value<'_> {
    /// Returns the value, cut at `bytes_max`.
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
