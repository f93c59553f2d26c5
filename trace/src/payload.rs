//! The format of a payload's bytes, and the change that each op makes to it. A format is just
//! detailed enough to detect an op in the wrong place. It contains no schema and no length.

use std::fmt;
use std::str::FromStr;

use units::Op;

/// The layout of data without wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Base {
    Json = 1,
    Bson = 2,
    /// Text, or any bytes that a program treats as one value. \[AccelFlow\] listing 1 uses this
    /// base for a compressed field.
    String = 3,
    Protobuf = 4,
    Bytes = 5,
}

impl Base {
    /// All bases, in the order of their codes.
    pub const ALL: [Base; 5] = [Base::Json, Base::Bson, Base::String, Base::Protobuf, Base::Bytes];

    /// Returns the base's name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Base::Json => "json",
            Base::Bson => "bson",
            Base::String => "string",
            Base::Protobuf => "protobuf",
            Base::Bytes => "bytes",
        }
    }

    /// Returns the base with this code (4 bits of the encoding).
    pub fn from_code(code: u8) -> Option<Base> {
        Base::ALL.into_iter().find(|base| *base as u8 == code)
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A layer that one op puts around a payload and another op removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Wrap {
    Compressed = 8,
    Encrypted = 9,
    /// An RPC message, which holds the function's name and its serialized arguments.
    Message = 10,
}

impl Wrap {
    /// All wraps, in the order of their codes.
    pub const ALL: [Wrap; 3] = [Wrap::Compressed, Wrap::Encrypted, Wrap::Message];

    /// Returns the wrap's name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Wrap::Compressed => "compressed",
            Wrap::Encrypted => "encrypted",
            Wrap::Message => "message",
        }
    }

    fn from_code(code: u8) -> Option<Wrap> {
        Wrap::ALL.into_iter().find(|wrap| *wrap as u8 == code)
    }
}

impl fmt::Display for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A payload's layout: a base within at most [`Format::WRAPS_MAX`] wraps, such as `encrypted(message(protobuf))`.
///
/// The 16 bits are those of the encoding: 4 bits per layer with the outermost layer in the lowest
/// bits, and zeros above the base.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format(u16);

impl Format {
    /// The maximum number of wraps around a base. Each layer takes 4 of 16 bits.
    pub const WRAPS_MAX: usize = 3;

    /// Returns the format of `base` without wraps.
    pub const fn new(base: Base) -> Format {
        Format(base as u16)
    }

    /// Returns this format within one more wrap. Returns none if it has [`Format::WRAPS_MAX`] wraps
    /// already.
    #[must_use]
    pub fn within(self, wrap: Wrap) -> Option<Format> {
        (self.0 >> 12 == 0).then_some(Format(self.0 << 4 | wrap as u16))
    }

    /// Returns the outermost wrap, if there is one.
    pub fn wrap(self) -> Option<Wrap> {
        Wrap::from_code((self.0 & 0xF) as u8)
    }

    /// Returns the format without its outermost wrap. Returns none if that wrap is not `wrap`.
    pub fn without(self, wrap: Wrap) -> Option<Format> {
        (self.wrap() == Some(wrap)).then_some(Format(self.0 >> 4))
    }

    /// Returns the base. Returns none if a wrap is around it.
    pub fn bare(self) -> Option<Base> {
        Base::from_code((self.0 & 0xF) as u8)
    }

    /// Returns the 16 bits of the encoding.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the format that these bits encode. Returns none if they encode no format.
    pub fn from_bits(bits: u16) -> Option<Format> {
        let mut rest = bits;
        while Wrap::from_code((rest & 0xF) as u8).is_some() {
            rest >>= 4;
        }
        let base = Base::from_code(u8::try_from(rest).ok()?)?;
        debug_assert_eq!(rest, base as u16);
        Some(Format(bits))
    }

    /// Returns whether a branch may read the fields of this payload. Encrypted and compressed
    /// payloads cannot be read.
    pub fn is_readable(self) -> bool {
        !matches!(self.wrap(), Some(Wrap::Encrypted | Wrap::Compressed))
    }

    /// Returns the format of the output of `op`, for an input of this format.
    ///
    /// # Errors
    /// Returns a text that describes the input that the op needs.
    pub fn after(self, op: Op) -> Result<Format, &'static str> {
        let wrapped = |wrap| self.within(wrap).ok_or("at most three wraps around the data");
        match op {
            Op::Tcp | Op::LoadBalance | Op::Notify | Op::Copy | Op::Checksum => Ok(self),
            Op::Encrypt => wrapped(Wrap::Encrypted),
            Op::Decrypt => self.without(Wrap::Encrypted).ok_or("encrypted(...)"),
            Op::Compress => match self.wrap() {
                None | Some(Wrap::Message) => wrapped(Wrap::Compressed),
                Some(Wrap::Compressed | Wrap::Encrypted) => {
                    Err("data that is neither compressed nor encrypted: neither shrinks")
                }
            },
            Op::Decompress => match (self.without(Wrap::Compressed), self.bare()) {
                (Some(inner), _) => Ok(inner),
                (None, Some(Base::String | Base::Bytes)) => Ok(self),
                _ => Err("compressed(...), string or bytes"),
            },
            Op::Serialize => match (self.wrap(), self.bare()) {
                (Some(Wrap::Compressed), _)
                | (_, Some(Base::Json | Base::Bson | Base::String | Base::Bytes)) => {
                    Ok(Format::new(Base::Protobuf))
                }
                _ => Err("json, bson, string, bytes or compressed(...)"),
            },
            Op::Deserialize => match self.bare() {
                Some(Base::Protobuf) => Ok(Format::new(Base::Json)),
                _ => Err("protobuf"),
            },
            Op::Rpc => match self.wrap() {
                Some(Wrap::Message) => self.without(Wrap::Message).ok_or("message(...)"),
                Some(Wrap::Encrypted) => Err("data that is not encrypted"),
                None | Some(Wrap::Compressed) => wrapped(Wrap::Message),
            },
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut open) = (*self, 0);
        while let Some(wrap) = rest.wrap() {
            write!(f, "{wrap}(")?;
            rest = Format(rest.0 >> 4);
            open += 1;
        }
        write!(f, "{}{}", rest.bare().map_or("?", Base::name), ")".repeat(open))
    }
}

/// An error: the text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no format; write a base ({BASES}) within at most three of {WRAPS}, such as encrypted(json)"
)]
pub struct BadFormat {
    text: String,
}

const BASES: &str = "json, bson, string, protobuf, bytes";
const WRAPS: &str = "compressed(), encrypted(), message()";

impl FromStr for Format {
    type Err = BadFormat;

    fn from_str(text: &str) -> Result<Self, BadFormat> {
        let bad = || BadFormat { text: text.to_owned() };
        let (mut inner, mut wraps) = (text.trim(), Vec::new());
        while let Some((word, rest)) = inner.split_once('(') {
            let wrap = Wrap::ALL.into_iter().find(|wrap| wrap.name() == word.trim());
            wraps.push(wrap.ok_or_else(bad)?);
            inner = rest.trim_end().strip_suffix(')').ok_or_else(bad)?.trim();
        }
        let base = Base::ALL.into_iter().find(|base| base.name() == inner).ok_or_else(bad)?;
        let wrapped = |format: Format, wrap: Wrap| format.within(wrap).ok_or_else(bad);
        wraps.into_iter().rev().try_fold(Format::new(base), wrapped)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Format {
        Format::new(Base::Protobuf).within(Wrap::Message).expect("one wrap")
    }

    #[test]
    fn a_request_is_unwrapped_in_the_order_it_was_wrapped() {
        let sent = [Op::Serialize, Op::Rpc, Op::Encrypt, Op::Tcp];
        let received = [Op::Tcp, Op::Decrypt, Op::Rpc, Op::Deserialize];
        let mut format = Format::new(Base::Json);
        for op in sent {
            format = format.after(op).expect("fits");
        }
        assert_eq!(format.to_string(), "encrypted(message(protobuf))");
        for op in received {
            format = format.after(op).expect("fits");
        }
        assert_eq!(format, Format::new(Base::Json));
    }

    #[test]
    fn ops_refuse_what_they_cannot_read() {
        let encrypted = message().within(Wrap::Encrypted).expect("two wraps");
        for op in [Op::Rpc, Op::Deserialize, Op::Decompress, Op::Compress, Op::Serialize] {
            assert!(encrypted.after(op).is_err(), "{op}");
        }
        assert!(message().after(Op::Decrypt).is_err());
        assert!(encrypted.after(Op::Encrypt).expect("three").after(Op::Encrypt).is_err());
    }

    #[test]
    fn bits_are_a_format_or_none() {
        let valid = (0..=u16::MAX).filter_map(Format::from_bits);
        let mut count = 0;
        for format in valid {
            assert_eq!(Format::from_bits(format.bits()), Some(format));
            assert_eq!(format.to_string().parse(), Ok(format));
            count += 1;
        }
        // There are five bases, each within 0 to 3 wraps of three kinds.
        assert_eq!(count, 5 * (1 + 3 + 9 + 27));
    }

    #[test]
    fn texts_that_are_no_format_are_refused() {
        let deep = "encrypted(encrypted(encrypted(encrypted(json))))";
        for text in ["", "yaml", "json)", "encrypted(json", "wrapped(json)", "encrypted()", deep] {
            let error = text.parse::<Format>().expect_err("no format").to_string();
            assert!(error.starts_with(&format!("{text:?} is no format; write a base")), "{error}");
        }
    }
}
