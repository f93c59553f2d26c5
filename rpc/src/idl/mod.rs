//! The supported part of Thrift's IDL: it is parsed and checked, then turned into code or
//! interpreted. Includes, constants, defaults, unions, inheritance and recursion are not supported.
//! An unsupported construct is an error that names its line.

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
    /// The structs and exceptions, each after the structs that it uses. They include the arguments
    /// and results of functions.
    pub structs: Vec<Struct>,
    /// The functions in the order of the IDL. A function's number is its index.
    pub functions: Vec<Signature>,
}

/// A struct or an exception. Its fields are in the order of their slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// The name in the IDL. For arguments and results it is the function's name with `Args` or
    /// `Result`.
    pub name: String,
    /// The fields, at most [`FIELDS_MAX`].
    pub fields: Vec<Field>,
}

/// A field. Its slot is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The number of the field on the wire.
    pub id: i16,
    /// The name of the field in the IDL.
    pub name: String,
    /// The type of the field.
    pub ty: Type,
    /// Whether a message without this field is malformed.
    pub required: bool,
}

/// A type. Enums are [`Type::I32`].
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
    /// A struct, as its index in [`Schema::structs`].
    Struct(usize),
    /// `list`.
    List(Box<Type>),
    /// `set`, which is stored as a list. If a sender sends an item twice, the list has it twice.
    Set(Box<Type>),
    /// `map`, which is stored as a list in which keys and values alternate.
    Map(Box<Type>, Box<Type>),
}

impl Type {
    /// Returns the number of the type on the wire.
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
    /// The index of the function's arguments in [`Schema::structs`].
    pub args: usize,
    /// The index of the function's result in [`Schema::structs`]. The fields of the result are the
    /// returned value, if any, and the exceptions.
    pub result: usize,
    /// Whether the function returns a value. If it does, exactly one field of the result is
    /// present, otherwise at most one.
    pub returns: bool,
    /// Whether the function is `oneway`: the caller expects no answer.
    pub oneway: bool,
}

/// An error in an IDL and its line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct IdlError {
    /// The line, counted from 1.
    pub line: usize,
    /// The description of the error.
    pub what: String,
}

/// The maximum number of fields of a struct, because its head has 64 bits, one for each field.
pub const FIELDS_MAX: usize = 64;
