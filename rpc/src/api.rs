//! The four calls of the software side, each one or two words; whatever takes words can be behind them. They wait for
//! nothing.

use crate::command::{Address, Command, Completion, Interface, Stalled};
use crate::engine::Engine;

/// A way to an engine: the engine itself, or what a driver puts before it.
pub trait Port {
    /// Issues a word.
    fn issue(&mut self, interface: Interface, word: u64) -> Result<(), Stalled>;

    /// What a read at this interface returned, once it has.
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

/// A packet is here: NetCore's first call.
pub fn net_call_engine_write(
    port: &mut impl Port,
    packet: Address,
    length: usize,
) -> Result<(), Stalled> {
    issue(port, Command::SendNetBuf(packet))?;
    issue(port, Command::SendNetLen(length as u64))
}

/// A frame may go here; [`Port::take`] at [`Interface::NetResp`] has it once it does. NetCore's second call.
pub fn net_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::DpdkNetFlag(buffer))
}

/// A request may go here; [`Port::take`] at [`Interface::AppRecv`] has it once it does. AppCore's first call.
pub fn app_call_engine_read(port: &mut impl Port, buffer: Address) -> Result<(), Stalled> {
    issue(port, Command::AppReadyFlag(buffer))
}

/// A response is here: AppCore's second call.
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
