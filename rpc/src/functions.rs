//! The functions of a service, which can be loaded into an engine. They are generated code or the
//! interpreter of a schema. Neither keeps state.

use std::fmt::Debug;

use crate::command::Code;
use crate::flat::{Build, View};
use crate::wire::{Wire, Writer};

/// A function of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The name of the function on the wire.
    pub name: &'a str,
    /// Whether the function is `oneway`: the caller expects no answer.
    pub oneway: bool,
}

/// The functions of a service, identified by number. A `usize` in a result is the place of the
/// block that was read.
pub trait Functions: Debug + Send + Sync {
    /// Returns the name of the service.
    fn service(&self) -> &str;

    /// Returns the number of the function with this name.
    fn find(&self, name: &[u8]) -> Option<u32>;

    /// Returns the function with this number.
    fn function(&self, function: u32) -> Option<Function<'_>>;

    /// Reads arguments from the wire into a block. The engine uses it for requests.
    fn recv(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code>;

    /// Writes a result from its block to the wire. The engine uses it for responses.
    fn resp(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code>;

    /// Writes arguments from their block to the wire. A client uses it for calls.
    fn call(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code>;

    /// Reads a result from the wire into a block. A client uses it for answers.
    fn answer(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>)
    -> Result<usize, Code>;
}
