//! Reads and writes Thrift's binary protocol in frames: values, message headers and application
//! exceptions. This module knows no schema and allocates nothing. It never reads or writes outside
//! the given bytes, whatever their content.

use crate::command::Code;

/// The protocol's type numbers.
pub mod kind {
    /// The end of a struct.
    pub const STOP: u8 = 0;
    /// A byte, 0 or 1.
    pub const BOOL: u8 = 2;
    /// A number of one byte.
    pub const BYTE: u8 = 3;
    /// An IEEE 754 number of eight bytes.
    pub const DOUBLE: u8 = 4;
    /// A number of two bytes.
    pub const I16: u8 = 6;
    /// A number of four bytes.
    pub const I32: u8 = 8;
    /// A number of eight bytes.
    pub const I64: u8 = 10;
    /// A length, then that many bytes.
    pub const STRING: u8 = 11;
    /// Fields, then a stop.
    pub const STRUCT: u8 = 12;
    /// Two types, a count, and that many pairs of a key and a value.
    pub const MAP: u8 = 13;
    /// A type, a count, and that many items.
    pub const SET: u8 = 14;
    /// A type, a count, and that many items.
    pub const LIST: u8 = 15;
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A call that expects an answer.
    Call = 1,
    /// An answer with a result.
    Reply = 2,
    /// An error in place of an answer. It holds a `TApplicationException`.
    Exception = 3,
    /// A call that expects no answer.
    Oneway = 4,
}

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind of the message.
    pub kind: MessageKind,
    /// The name of the function.
    pub name: &'a [u8],
    /// The caller's number for the message.
    pub sequence: i32,
}

/// Reads values from bytes.
#[derive(Clone, Debug)]
pub struct Wire<'a> {
    bytes: &'a [u8],
    field_bytes_max: usize,
}

impl<'a> Wire<'a> {
    /// Begins to read these bytes. A string longer than `field_bytes_max` is an error,
    /// [`Code::Oversized`].
    pub fn new(bytes: &'a [u8], field_bytes_max: usize) -> Self {
        Self { bytes, field_bytes_max }
    }

    /// Begins to read the message in a frame, which includes the four bytes of its length.
    pub fn framed(frame: &'a [u8], field_bytes_max: usize) -> Result<Self, Code> {
        let mut wire = Self::new(frame, field_bytes_max);
        let length = usize::try_from(wire.i32()?).map_err(|_| Code::Malformed)?;
        match wire.bytes.len() {
            there if there < length => Err(Code::Truncated),
            there if there > length => Err(Code::Malformed),
            _ => Ok(wire),
        }
    }

    /// Reads a message's header, in the strict form or in the old form without a version.
    pub fn message(&mut self) -> Result<Message<'a>, Code> {
        let first = self.i32()?;
        let (kind, name) = if first < 0 {
            if first as u32 & VERSION_MASK != VERSION_1 {
                return Err(Code::Malformed);
            }
            ((first & 0xFF) as u8, self.string()?)
        } else {
            let name = self.take_string(first)?;
            (self.byte()?, name)
        };
        let kind = match kind {
            1 => MessageKind::Call,
            2 => MessageKind::Reply,
            3 => MessageKind::Exception,
            4 => MessageKind::Oneway,
            _ => return Err(Code::Malformed),
        };
        Ok(Message { kind, name, sequence: self.i32()? })
    }

    /// Reads a field's type and number. [`kind::STOP`] has no number.
    pub fn field(&mut self) -> Result<(u8, i16), Code> {
        match self.byte()? {
            kind::STOP => Ok((kind::STOP, 0)),
            kind => Ok((kind, self.i16()?)),
        }
    }

    /// Reads the head of a list or set of `item`s and returns the count.
    pub fn list(&mut self, item: u8) -> Result<usize, Code> {
        let found = self.byte()?;
        let count = self.count(1)?;
        if count > 0 && found != item { Err(Code::Malformed) } else { Ok(count) }
    }

    /// Reads the head of a map and returns the number of entries.
    pub fn map(&mut self, key: u8, value: u8) -> Result<usize, Code> {
        let found = (self.byte()?, self.byte()?);
        let count = self.count(2)?;
        if count > 0 && found != (key, value) { Err(Code::Malformed) } else { Ok(count) }
    }

    /// Reads a bool, as 0 or 1.
    pub fn bool(&mut self) -> Result<u64, Code> {
        self.byte().map(|byte| u64::from(byte != 0))
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> Result<u8, Code> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a number of two bytes.
    pub fn i16(&mut self) -> Result<i16, Code> {
        self.array().map(i16::from_be_bytes)
    }

    /// Reads a number of four bytes.
    pub fn i32(&mut self) -> Result<i32, Code> {
        self.array().map(i32::from_be_bytes)
    }

    /// Reads a number of eight bytes. Doubles are also read in this way, as bits.
    pub fn i64(&mut self) -> Result<i64, Code> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads a string or binary.
    pub fn string(&mut self) -> Result<&'a [u8], Code> {
        let length = self.i32()?;
        self.take_string(length)
    }

    /// Skips a value that the schema does not know.
    pub fn skip(&mut self, kind: u8) -> Result<(), Code> {
        self.skip_within(kind, SKIP_DEPTH_MAX)
    }

    /// Skips a value of at most `bytes_max` bytes, and returns its length (bytes). A longer one is an error,
    /// [`Code::Oversized`], which is found without reading more of it.
    pub fn skip_up_to(&mut self, kind: u8, bytes_max: usize) -> Result<usize, Code> {
        let part = self.bytes.get(..bytes_max);
        let mut reader = Self::new(part.unwrap_or(self.bytes), self.field_bytes_max);
        match reader.skip(kind) {
            Err(Code::Truncated) if part.is_some() => return Err(Code::Oversized),
            skipped => skipped?,
        }
        let bytes = part.unwrap_or(self.bytes).len() - reader.bytes.len();
        self.take(bytes)?;
        Ok(bytes)
    }

    /// Checks that no bytes are left.
    pub fn end(&self) -> Result<(), Code> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Code::Malformed) }
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> Result<(), Code> {
        let depth = depth.checked_sub(1).ok_or(Code::Malformed)?;
        if let Some(bytes) = fixed_bytes(kind) {
            return self.take(bytes).map(|_| ());
        }
        match kind {
            kind::STRING => self.string().map(|_| ()),
            kind::STRUCT => loop {
                match self.field()? {
                    (kind::STOP, _) => return Ok(()),
                    (kind, _) => self.skip_within(kind, depth)?,
                }
            },
            kind::LIST | kind::SET => {
                let item = self.byte()?;
                let count = self.count(1)?;
                self.skip_many(&[item], count, depth)
            }
            kind::MAP => {
                let pair = [self.byte()?, self.byte()?];
                let count = self.count(2)?;
                self.skip_many(&pair, count, depth)
            }
            _ => Err(Code::Malformed),
        }
    }

    fn skip_many(&mut self, kinds: &[u8], count: usize, depth: u32) -> Result<(), Code> {
        for _ in 0..count {
            for kind in kinds {
                self.skip_within(*kind, depth)?;
            }
        }
        Ok(())
    }

    /// Reads a count of elements that take at least `bytes_min` bytes each.
    fn count(&mut self, bytes_min: usize) -> Result<usize, Code> {
        let count = usize::try_from(self.i32()?).map_err(|_| Code::Malformed)?;
        if count > self.bytes.len() / bytes_min { Err(Code::Truncated) } else { Ok(count) }
    }

    fn take_string(&mut self, length: i32) -> Result<&'a [u8], Code> {
        let length = usize::try_from(length).map_err(|_| Code::Malformed)?;
        if length > self.field_bytes_max {
            return Err(Code::Oversized);
        }
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Code> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Code::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Code> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Code::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }
}

/// Writes values into a buffer. A value that does not fit is an error, [`Code::Oversized`].
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    /// Begins to write into this buffer. It leaves space for the frame's length, which
    /// [`Writer::frame`] writes.
    pub fn framed(bytes: &'a mut [u8]) -> Result<Self, Code> {
        let mut out = Self::unframed(bytes);
        out.i32(0)?;
        Ok(out)
    }

    /// Begins to write a part of a message into this buffer.
    pub fn unframed(bytes: &'a mut [u8]) -> Self {
        Self { bytes, used: 0 }
    }

    /// Returns the number of bytes written so far.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Writes the frame's length and returns the size of the frame (bytes).
    pub fn frame(self) -> Result<usize, Code> {
        self.frame_before(0)
    }

    /// Does the same for a frame that ends with `bytes` more bytes than were written. The caller sends them behind the
    /// written ones, of which it gets the number.
    pub fn frame_before(self, bytes: usize) -> Result<usize, Code> {
        let length = self.used - FRAME_HEAD_BYTES + bytes;
        let length = i32::try_from(length).map_err(|_| Code::Oversized)?;
        self.bytes[..FRAME_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(self.used)
    }

    /// Writes a message's header, in the strict form.
    pub fn message(&mut self, message: &Message<'_>) -> Result<(), Code> {
        self.put((VERSION_1 | message.kind as u32).to_be_bytes())?;
        self.string(message.name)?;
        self.i32(message.sequence)
    }

    /// Writes a field's type and number.
    pub fn field(&mut self, kind: u8, id: i16) -> Result<(), Code> {
        let [high, low] = id.to_be_bytes();
        self.put([kind, high, low])
    }

    /// Writes the end of a struct.
    pub fn stop(&mut self) -> Result<(), Code> {
        self.byte(kind::STOP)
    }

    /// Writes the head of a list or set.
    pub fn list(&mut self, item: u8, count: usize) -> Result<(), Code> {
        self.byte(item)?;
        self.i32(i32::try_from(count).map_err(|_| Code::Malformed)?)
    }

    /// Writes the head of a map.
    pub fn map(&mut self, key: u8, value: u8, count: usize) -> Result<(), Code> {
        self.byte(key)?;
        self.list(value, count)
    }

    /// Writes one byte.
    pub fn byte(&mut self, byte: u8) -> Result<(), Code> {
        self.put([byte])
    }

    /// Writes two bytes.
    pub fn i16(&mut self, value: i16) -> Result<(), Code> {
        self.put(value.to_be_bytes())
    }

    /// Writes four bytes.
    pub fn i32(&mut self, value: i32) -> Result<(), Code> {
        self.put(value.to_be_bytes())
    }

    /// Writes eight bytes.
    pub fn i64(&mut self, value: i64) -> Result<(), Code> {
        self.put(value.to_be_bytes())
    }

    /// Writes the length of a string of `bytes` bytes, which the caller sends behind what is written.
    pub fn string_head(&mut self, bytes: usize) -> Result<(), Code> {
        self.i32(i32::try_from(bytes).map_err(|_| Code::Oversized)?)
    }

    /// Writes a length and bytes.
    pub fn string(&mut self, value: &[u8]) -> Result<(), Code> {
        self.string_head(value.len())?;
        self.reserve(value.len())?.copy_from_slice(value);
        Ok(())
    }

    /// Writes the struct `TApplicationException` with a text and one of Thrift's numbers.
    pub fn application_exception(&mut self, text: &str, number: i32) -> Result<(), Code> {
        self.field(kind::STRING, 1)?;
        self.string(text.as_bytes())?;
        self.field(kind::I32, 2)?;
        self.i32(number)?;
        self.stop()
    }

    fn put<const N: usize>(&mut self, value: [u8; N]) -> Result<(), Code> {
        self.reserve(N)?.copy_from_slice(&value);
        Ok(())
    }

    fn reserve(&mut self, length: usize) -> Result<&mut [u8], Code> {
        let begin = self.used;
        let end = begin.checked_add(length).filter(|end| *end <= self.bytes.len());
        self.used = end.ok_or(Code::Oversized)?;
        Ok(&mut self.bytes[begin..self.used])
    }
}

/// Writes the exception frame that reports to a caller why its packet was refused, and returns the frame's
/// length. Returns length 0 if the caller expects no answer. Returns `None` if the packet is not a call with
/// a readable header, or if the frame does not fit. The connection is then unusable.
pub fn refusal(packet: &[u8], code: Code, out: &mut [u8]) -> Option<usize> {
    let body = packet.get(FRAME_HEAD_BYTES..)?;
    let message = Wire::new(body, body.len()).message().ok()?;
    match message.kind {
        MessageKind::Call => exception(message.name, message.sequence, code, out).ok(),
        MessageKind::Oneway => Some(0),
        MessageKind::Reply | MessageKind::Exception => None,
    }
}

/// Writes a `TApplicationException` as a frame.
pub fn exception(name: &[u8], sequence: i32, code: Code, out: &mut [u8]) -> Result<usize, Code> {
    let mut out = Writer::framed(out)?;
    out.message(&Message { kind: MessageKind::Exception, name, sequence })?;
    out.application_exception(&code.to_string(), exception_type(code))?;
    out.frame()
}

/// Returns Thrift's number for the error `code`.
const fn exception_type(code: Code) -> i32 {
    match code {
        Code::UnknownFunction => 1,
        Code::Truncated | Code::Malformed | Code::Oversized => 7,
        Code::Done | Code::Unmapped | Code::BadOpcode | Code::Unarmed | Code::QueueFull => {
            INTERNAL_ERROR
        }
    }
}

/// Thrift's number of an application exception for a failure inside of the server.
pub const INTERNAL_ERROR: i32 = 6;

const fn fixed_bytes(kind: u8) -> Option<usize> {
    match kind {
        kind::BOOL | kind::BYTE => Some(1),
        kind::I16 => Some(2),
        kind::I32 => Some(4),
        kind::I64 | kind::DOUBLE => Some(8),
        _ => None,
    }
}

/// The size of the length field at the start of a frame (bytes).
pub const FRAME_HEAD_BYTES: usize = 4;
const VERSION_1: u32 = 0x8001_0000;
const VERSION_MASK: u32 = 0xFFFF_0000;
/// The maximum nesting depth of a skipped value. It bounds the recursion for any input.
const SKIP_DEPTH_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(bytes: &[u8]) -> Wire<'_> {
        Wire::new(bytes, 16)
    }

    #[test]
    fn headers_are_read_in_both_forms() {
        let strict = b"\x80\x01\x00\x01\x00\x00\x00\x03Set\x00\x00\x00\x07";
        let old = b"\x00\x00\x00\x03Set\x01\x00\x00\x00\x07";
        let expected = Message { kind: MessageKind::Call, name: b"Set", sequence: 7 };
        assert_eq!(wire(strict).message(), Ok(expected));
        assert_eq!(wire(old).message(), Ok(expected));
        let mut bytes = [0; 64];
        let mut out = Writer::framed(&mut bytes).expect("room");
        out.message(&expected).expect("room");
        let length = out.frame().expect("short");
        assert_eq!(&bytes[..length], [b"\x00\x00\x00\x0f", &strict[..]].concat());
    }

    #[test]
    fn what_is_wrong_has_its_code() {
        assert_eq!(wire(b"\x80\x02\x00\x01").message(), Err(Code::Malformed), "version");
        assert_eq!(wire(b"\x80\x01\x00\x09\0\0\0\0\0\0\0\0").message(), Err(Code::Malformed));
        assert_eq!(wire(b"\x80\x01\x00").message(), Err(Code::Truncated));
        assert_eq!(wire(b"\xff\xff\xff\xff").string(), Err(Code::Malformed), "negative");
        assert_eq!(wire(b"\0\0\0\x11").string(), Err(Code::Oversized));
        assert_eq!(wire(b"\0\0\0\x10abc").string(), Err(Code::Truncated));
        assert_eq!(wire(b"\x0a\x7f\xff\xff\xff").list(kind::I64), Err(Code::Truncated));
        assert_eq!(wire(b"\x08\0\0\0\x01\0").list(kind::I64), Err(Code::Malformed));
        assert_eq!(wire(b"\x00\0\0\0\0").list(kind::I64), Ok(0), "an empty list of anything");
        let deep = [kind::LIST, 0, 0, 0, 1].repeat(1_000);
        assert_eq!(wire(&deep).skip(kind::LIST), Err(Code::Malformed));
        assert_eq!(Wire::framed(b"\0\0\0\x02a", 16).map(|_| ()), Err(Code::Truncated));
        assert_eq!(Wire::framed(b"\0\0\0\x00a", 16).map(|_| ()), Err(Code::Malformed));
    }

    #[test]
    fn skipping_stops_at_its_limit() {
        // A list of four empty structs, and a byte behind it.
        let bytes = b"\x0c\0\0\0\x04\0\0\0\0!";
        let mut reader = wire(bytes);
        assert_eq!(reader.skip_up_to(kind::LIST, 8), Err(Code::Oversized));
        assert_eq!(reader.skip_up_to(kind::LIST, 9), Ok(9));
        assert_eq!(reader.byte(), Ok(b'!'));
        assert_eq!(wire(&bytes[..8]).skip_up_to(kind::LIST, 100), Err(Code::Truncated));
        assert_eq!(wire(b"\x63\0\0\0\x01!").skip_up_to(kind::LIST, 100), Err(Code::Malformed));
    }

    #[test]
    fn refusals_are_what_thrift_reads() {
        let packet = b"\0\0\0\x0f\x80\x01\x00\x01\x00\x00\x00\x03Foo\x00\x00\x00\x07";
        let mut out = [0; 128];
        let length = refusal(packet, Code::UnknownFunction, &mut out).expect("an answer");
        let mut wire = Wire::framed(&out[..length], 64).expect("a frame");
        let message = wire.message().expect("a header");
        assert_eq!(message, Message { kind: MessageKind::Exception, name: b"Foo", sequence: 7 });
        assert_eq!(wire.field(), Ok((kind::STRING, 1)));
        assert_eq!(wire.string(), Ok(&b"unknown function"[..]));
        assert_eq!(wire.field(), Ok((kind::I32, 2)));
        assert_eq!(wire.i32(), Ok(1));
        assert_eq!(wire.field(), Ok((kind::STOP, 0)));
        assert_eq!(wire.end(), Ok(()));
        assert_eq!(refusal(b"\0\0\0\x01a", Code::Truncated, &mut out), None);
    }
}
