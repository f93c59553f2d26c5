//! Converts a message's struct by generated code and by the interpreter of the same schema. Both
//! must produce the same bytes or refuse with the same code. The tests and the fuzz target use this
//! module with messages from different sources.

use rpc::flat::{Build, View};
use rpc::wire::{Wire, Writer};
use rpc::{Code, Functions};

/// The generated code of a service, and the interpreter of its schema.
#[derive(Clone, Copy)]
pub struct Both<'f> {
    pub generated: &'f dyn Functions,
    pub interpreter: &'f dyn Functions,
}

/// Selects a struct of a service: a function's arguments, or its answer.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    pub function: u32,
    pub answer: bool,
}

impl Both<'_> {
    /// Reads a message's struct with `recv` or `answer` and returns the block. Strings may have at
    /// most `field_bytes_max` bytes.
    pub fn read(self, which: Which, wire: &[u8], field_bytes_max: usize) -> Result<Vec<u8>, Code> {
        let block = read(self.generated, which, wire, field_bytes_max);
        let other = read(self.interpreter, which, wire, field_bytes_max);
        assert_eq!(block, other, "{which:?} {wire:02x?}");
        block
    }

    /// Writes a block with `call` or `resp` and returns the bytes.
    pub fn write(self, which: Which, block: &[u8]) -> Result<Vec<u8>, Code> {
        let wire = write(self.generated, which, block);
        assert_eq!(wire, write(self.interpreter, which, block), "{which:?} {block:02x?}");
        wire
    }
}

fn read(
    functions: &dyn Functions,
    Which { function, answer }: Which,
    wire: &[u8],
    field_bytes_max: usize,
) -> Result<Vec<u8>, Code> {
    let mut bytes = vec![0xEE; MESSAGE_BYTES];
    let (mut wire, mut build) = (Wire::new(wire, field_bytes_max), Build::new(&mut bytes));
    let block = if answer {
        functions.answer(function, &mut wire, &mut build)?
    } else {
        functions.recv(function, &mut wire, &mut build)?
    };
    wire.end()?;
    let used = build.used();
    Ok(bytes[block..used].to_vec())
}

fn write(
    functions: &dyn Functions,
    Which { function, answer }: Which,
    block: &[u8],
) -> Result<Vec<u8>, Code> {
    let mut bytes = vec![0; MESSAGE_BYTES];
    let mut out = Writer::framed(&mut bytes)?;
    if answer {
        functions.resp(function, View::new(block), &mut out)?;
    } else {
        functions.call(function, View::new(block), &mut out)?;
    }
    let length = out.frame()?;
    Ok(bytes[4..length].to_vec())
}

/// The size of a buffer that holds either form of a message.
pub const MESSAGE_BYTES: usize = 1 << 16;
