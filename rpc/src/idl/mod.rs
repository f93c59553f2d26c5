//! The part of Thrift's IDL that services here are written in: read, checked, turned into code or interpreted. There
//! are no includes, constants, defaults, unions, inheritance or recursion: a construct that is not known is refused by
//! its line.

mod emit;
mod interpret;
mod lex;
mod parse;

use thiserror::Error;

use crate::wire::kind;

pub use emit::emit;
pub use interpret::Interpreter;
pub use parse::parse;

/// A service with all the types of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The service's name.
    pub service: String,
    /// The structs and exceptions, each after those it uses. Arguments and results of functions are among them.
    pub structs: Vec<Struct>,
    /// The functions in the order of the IDL. A function's number is its index.
    pub functions: Vec<Signature>,
}

/// Fields in the order of their slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// The name in the IDL, or the function's name and `Args` or `Result`.
    pub name: String,
    /// The fields, at most [`FIELDS_MAX`].
    pub fields: Vec<Field>,
}

/// A field; its slot is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The wire's number for it.
    pub id: i16,
    /// The IDL's name for it.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// True if a message without it is malformed.
    pub required: bool,
}

/// A type; enums are [`Type::I32`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `bool`.
    Bool,
    /// `byte`, `i8`.
    Byte,
    /// `i16`.
    I16,
    /// `i32`, and enums.
    I32,
    /// `i64`.
    I64,
    /// `double`.
    Double,
    /// `string`, `binary`.
    String,
    /// A struct, by its index.
    Struct(usize),
    /// `list`.
    List(Box<Type>),
    /// `set`, kept as a list: a sender that sends an item twice gets it twice.
    Set(Box<Type>),
    /// `map`, kept as a list of keys and values in turn.
    Map(Box<Type>, Box<Type>),
}

impl Type {
    /// Returns the wire's number.
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Bool => kind::BOOL,
            Self::Byte => kind::BYTE,
            Self::I16 => kind::I16,
            Self::I32 => kind::I32,
            Self::I64 => kind::I64,
            Self::Double => kind::DOUBLE,
            Self::String => kind::STRING,
            Self::Struct(_) => kind::STRUCT,
            Self::List(_) => kind::LIST,
            Self::Set(_) => kind::SET,
            Self::Map(..) => kind::MAP,
        }
    }
}

/// A function of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name on the wire.
    pub name: String,
    /// The struct of its arguments.
    pub args: usize,
    /// The struct of its result: the returned value, if any, then its exceptions.
    pub result: usize,
    /// True if it returns something. Then one field of the result is there, otherwise at most one.
    pub returns: bool,
    /// True if nobody awaits an answer.
    pub oneway: bool,
}

/// An error in an IDL, and its place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct IdlError {
    /// The line, counted from 1.
    pub line: usize,
    /// The error in words.
    pub what: String,
}

/// The most fields of a struct: its head has a bit for each field.
pub const FIELDS_MAX: usize = 64;
