//! Encodes the calls of a client and decodes the answers. This module keeps no connection, and the
//! caller assigns the sequence numbers.

use crate::command::Code;
use crate::flat::{Build, View};
use crate::functions::Functions;
use crate::wire::{Message, MessageKind, Wire, Writer, kind};

/// Writes a call of `function` into `frame` and returns the frame's length. `args` builds the block
/// of the arguments.
pub fn frame(
    functions: &dyn Functions,
    function: u32,
    sequence: i32,
    frame: &mut [u8],
    args: impl FnOnce(&mut Build<'_>) -> Result<usize, Code>,
) -> Result<usize, Code> {
    let mut scratch = vec![0; frame.len() + SCRATCH_BYTES];
    let mut build = Build::new(&mut scratch);
    let block = args(&mut build)?;
    let used = build.used();
    write(functions, function, sequence, View::new(&scratch[block..used]), frame)
}

/// Writes a call as [`frame`] does, with a block of arguments that already exists.
pub fn write(
    functions: &dyn Functions,
    function: u32,
    sequence: i32,
    args: View<'_>,
    frame: &mut [u8],
) -> Result<usize, Code> {
    let described = functions.function(function).ok_or(Code::UnknownFunction)?;
    let kind = if described.oneway { MessageKind::Oneway } else { MessageKind::Call };
    let mut out = Writer::framed(frame)?;
    out.message(&Message { kind, name: described.name.as_bytes(), sequence })?;
    functions.call(function, args, &mut out)?;
    out.frame()
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The struct of the function's result. It holds the returned value, or an exception that the
    /// IDL declares.
    Result(View<'a>),
    /// An application exception, with Thrift's number and a text.
    Exception(i32, Vec<u8>),
}

/// Reads the answer to the call `sequence` of `function` from `frame`. A result is written into
/// `into`.
pub fn answer<'a>(
    functions: &dyn Functions,
    function: u32,
    sequence: i32,
    frame: &[u8],
    into: &'a mut [u8],
) -> Result<Answer<'a>, Code> {
    let mut wire = Wire::framed(frame, frame.len())?;
    let message = wire.message()?;
    let name = functions.function(function).ok_or(Code::UnknownFunction)?.name;
    if message.name != name.as_bytes() || message.sequence != sequence {
        return Err(Code::Malformed);
    }
    match message.kind {
        MessageKind::Reply => {
            let mut build = Build::new(into);
            let block = functions.answer(function, &mut wire, &mut build)?;
            let used = build.used();
            wire.end()?;
            Ok(Answer::Result(View::new(&into[block..used])))
        }
        MessageKind::Exception => exception(wire),
        MessageKind::Call | MessageKind::Oneway => Err(Code::Malformed),
    }
}

fn exception<'a>(mut wire: Wire<'_>) -> Result<Answer<'a>, Code> {
    let (mut number, mut words) = (0, Vec::new());
    loop {
        match wire.field()? {
            (kind::STOP, _) => break,
            (kind::STRING, 1) => words = wire.string()?.to_vec(),
            (kind::I32, 2) => number = wire.i32()?,
            (other, _) => wire.skip(other)?,
        }
    }
    Ok(Answer::Exception(number, words))
}

/// The extra size of the scratch buffer (bytes). A block can be larger than its frame, because
/// absent fields also have slots.
const SCRATCH_BYTES: usize = 1 << 12;
