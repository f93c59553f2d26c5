//! The functions of a service, which can be loaded into an engine. Generated code is one kind, and the interpreter of a
//! schema is the other. Neither keeps state.

use std::fmt::Debug;

use crate::command::Code;
use crate::flat::{Build, View};
use crate::wire::{Wire, Writer};

/// A function of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// The name on the wire.
    pub name: &'a str,
    /// True if nobody awaits an answer.
    pub oneway: bool,
}

/// A service's functions, known by number. Every `Result` is the place of what was read, or the reason why it was not.
pub trait Functions: Debug + Send + Sync {
    /// Returns the service.
    fn service(&self) -> &str;

    /// Returns the number of the function with this name.
    fn find(&self, name: &[u8]) -> Option<u32>;

    /// Returns the function with this number.
    fn function(&self, function: u32) -> Option<Function<'_>>;

    /// Reads arguments off the wire into a block: the engine's way in.
    fn recv(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code>;

    /// Writes a result from its block onto the wire: the engine's way out.
    fn resp(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code>;

    /// Writes arguments from their block onto the wire: a client's way out.
    fn call(&self, function: u32, from: View<'_>, out: &mut Writer<'_>) -> Result<(), Code>;

    /// Reads a result off the wire into a block: a client's way in.
    fn answer(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>)
    -> Result<usize, Code>;
}
