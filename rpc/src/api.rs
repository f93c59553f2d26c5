//! The four calls of the software side, each one or two words. Anything that takes words can be behind them. They wait
//! for nothing.

use crate::command::{Address, Command, Completion, Interface, Stalled};
use crate::engine::Engine;

/// A way to an engine: the engine itself, or a driver's layer in front of it.
pub trait Port {
    /// Issues a word.
    fn issue(&mut self, interface: Interface, word: u64) -> Result<(), Stalled>;

    /// Returns the result of a read at this interface, once there is one.
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

/// Says that a packet is here. This is NetCore's first call.
pub fn net_call_engine_write(
    port: &mut impl Port,
    packet: Address,
    length: usize,
) -> Result<(), Stalled> {
    issue(port, Command::SendNetBuf(packet))?;
    issue(port, Command::SendNetLen(length as u64))
}

/// Says that a frame may go here. [`Port::take`] at [`Interface::NetResp`] returns it once it is there. This is
/// NetCore's second call.
pub fn net_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::DpdkNetFlag(buffer))
}

/// Says that a request may go here. [`Port::take`] at [`Interface::AppRecv`] returns it once it is there. This is
/// AppCore's first call.
pub fn app_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::AppReadyFlag(buffer))
}

/// Says that a response is here. This is AppCore's second call.
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
