//! What can be loaded into an engine: the functions of a service. Generated code is one kind, the interpreter of a
//! schema the other; neither keeps state.

use std::fmt::Debug;

use crate::command::Code;
use crate::flat::{Build, View};
use crate::wire::{Out, Wire};

/// A function of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// As the wire names it.
    pub name: &'a str,
    /// Nobody awaits an answer.
    pub oneway: bool,
}

/// A service's functions, known by number. Every `Result` is the place of what was read, or why it was not.
pub trait Functions: Debug + Send + Sync {
    /// The service.
    fn service(&self) -> &str;

    /// The number of the function with this name.
    fn find(&self, name: &[u8]) -> Option<u32>;

    /// The function with this number.
    fn function(&self, function: u32) -> Option<Function<'_>>;

    /// Arguments, off the wire into a block: the engine's way in.
    fn recv(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>) -> Result<usize, Code>;

    /// A result, from its block onto the wire: the engine's way out.
    fn resp(&self, function: u32, from: View<'_>, out: &mut Out<'_>) -> Result<(), Code>;

    /// Arguments, from their block onto the wire: a client's way out.
    fn call(&self, function: u32, from: View<'_>, out: &mut Out<'_>) -> Result<(), Code>;

    /// A result, off the wire into a block: a client's way in.
    fn answer(&self, function: u32, wire: &mut Wire<'_>, to: &mut Build<'_>)
    -> Result<usize, Code>;
}
