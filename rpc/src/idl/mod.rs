//! The part of Thrift's IDL that services here are written in: read, checked, turned into code or interpreted. No
//! includes, constants, defaults, unions, inheritance or recursion: a construct that is not known is refused by its
//! line.

mod emit;
mod interpret;
mod lex;
mod parse;

use thiserror::Error;

use crate::wire::kind;

pub use emit::emit;
pub use interpret::Interpreter;
pub use parse::parse;

/// A service with all that its messages are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The service's name.
    pub service: String,
    /// Structs and exceptions, each after those it uses; arguments and results of functions among them.
    pub structs: Vec<Struct>,
    /// In the order of the IDL; a function's number is its index.
    pub functions: Vec<Signature>,
}

/// Fields in the order of their slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// As the IDL has it, or the function's name and `Args` or `Result`.
    pub name: String,
    /// At most [`FIELDS_MAX`].
    pub fields: Vec<Field>,
}

/// A field; its slot is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The wire's number for it.
    pub id: i16,
    /// The IDL's name for it.
    pub name: String,
    /// What it is.
    pub ty: Type,
    /// A message without it is malformed.
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
    /// `set`, kept as a list: who sends an item twice gets it twice.
    Set(Box<Type>),
    /// `map`, kept as a list of keys and values in turn.
    Map(Box<Type>, Box<Type>),
}

impl Type {
    /// The wire's number.
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
    /// As the wire names it.
    pub name: String,
    /// The struct of its arguments.
    pub args: usize,
    /// The struct of its result: what it returns, if anything, then its exceptions.
    pub result: usize,
    /// Whether it returns something: then one field of the result is there, else at most one.
    pub returns: bool,
    /// Nobody awaits an answer.
    pub oneway: bool,
}

/// What is wrong with an IDL, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct IdlError {
    /// From 1.
    pub line: usize,
    /// In words.
    pub what: String,
}

/// A struct's head has a bit for each field.
pub const FIELDS_MAX: usize = 64;
