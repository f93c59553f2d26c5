//! The four calls that software uses to command the engine. Each call issues one or two words to a
//! [`Port`] and never waits.

use crate::command::{Address, Command, Completion, Interface, Stalled};
use crate::engine::Engine;

/// A connection to an engine: the engine itself, or a driver's layer in front of it.
pub trait Port {
    /// Issues a command word at this interface.
    fn issue(&mut self, interface: Interface, word: u64) -> Result<(), Stalled>;

    /// Returns the result of a completed read at this interface, if there is one.
    fn take(&mut self, interface: Interface) -> Option<Completion>;
}

impl Port for Engine {
    fn issue(&mut self, interface: Interface, word: u64) -> Result<(), Stalled> {
        Engine::issue(self, interface, word)
    }

    fn take(&mut self, interface: Interface) -> Option<Completion> {
        Engine::take(self, interface)
    }
}

/// Submits a packet to the engine. This is NetCore's first call.
pub fn net_call_engine_write(
    port: &mut impl Port,
    packet: Address,
    length: usize,
) -> Result<(), Stalled> {
    issue(port, Command::SendNetBuf(packet))?;
    issue(port, Command::SendNetLen(length as u64))
}

/// Offers a buffer for a frame. [`Port::take`] at [`Interface::NetResp`] returns the buffer once it
/// holds a frame. This is NetCore's second call.
pub fn net_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::DpdkNetFlag(buffer))
}

/// Offers a buffer for a request. [`Port::take`] at [`Interface::AppRecv`] returns the buffer once
/// it holds a request. This is AppCore's first call.
pub fn app_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::AppReadyFlag(buffer))
}

/// Submits a response to the engine. This is AppCore's second call.
pub fn app_call_engine_write(
    port: &mut impl Port,
    response: Address,
    length: usize,
) -> Result<(), Stalled> {
    issue(port, Command::SendAppBuf(response))?;
    issue(port, Command::SendAppResp(length as u64))
}

fn issue(port: &mut impl Port, command: Command) -> Result<(), Stalled> {
    port.issue(command.interface(), command.word())
}
