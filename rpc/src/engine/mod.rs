//! The engine: two halves, each with its own state machine, between the queues of four interfaces.
//! It changes only when it is stepped, never waits, and holds no more than its limits allow.

mod flights;
mod half;
mod rx;
mod side;
mod tx;

use std::sync::Arc;

use crate::command::{Address, Code, Command, Completion, Interface, Stalled};
use crate::functions::Functions;

pub use flights::Flight;
pub use half::{Half, State, Step, Work};

use flights::Flights;
use half::Machine;
use rx::RxJob;
use side::{Ready, Side};
use tx::TxJob;

/// The limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The capacity of each queue of packets, responses or reads. At least 1.
    pub depth: usize,
    /// The maximum number of requests that the application has not answered yet. At least 1.
    pub flights: usize,
    /// The maximum length of a string or binary in a request (bytes).
    pub field_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 16, flights: 64, field_bytes_max: 1 << 20 }
    }
}

/// A near-cache RPC engine.
///
/// The halves can also run on two threads, with two engines that have the same limits and functions. One
/// engine only receives (`step_rx`), and the other only responds (`step_tx`). The driver moves requests in
/// flight between them with [`Engine::export`], [`Engine::import`] and [`Engine::retire`]. The first
/// engine reports refused packets at Net.Resp, and the second reports refused responses at App.Recv. The
/// driver keeps a read at both interfaces to receive these reports. It loads new functions first into the
/// engine that responds, with [`Engine::load_ahead`].
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    flights: Flights,
    net: Side,
    app: Side,
    rx: Machine<RxJob>,
    tx: Machine<TxJob>,
}

impl Engine {
    /// Makes an idle engine with the functions of a service, which become generation 1.
    ///
    /// # Panics
    /// If a limit is zero.
    pub fn new(limits: Limits, functions: Arc<dyn Functions>) -> Self {
        assert!(limits.depth > 0 && limits.flights > 0, "an engine that holds nothing: {limits:?}");
        Self {
            limits,
            flights: Flights::new(limits.flights, functions),
            net: Side::new(limits.depth),
            app: Side::new(limits.depth),
            rx: Machine::default(),
            tx: Machine::default(),
        }
    }

    /// Loads another service's functions and returns their generation. Requests in flight finish
    /// with the functions that received them. Old functions are dropped when their last request has
    /// finished.
    pub fn load(&mut self, functions: Arc<dyn Functions>) -> u32 {
        self.flights.load(functions)
    }

    /// Loads functions into an engine that only responds, as [`Engine::load`] does. Call it before
    /// the engine that receives loads them. The services that were loaded before stay until
    /// [`Engine::all_arrived`], because their requests may still be exported.
    pub fn load_ahead(&mut self, functions: Arc<dyn Functions>) -> u32 {
        self.flights.load_ahead(functions)
    }

    /// Reports that every request received before the last [`Engine::load_ahead`] was imported.
    /// This is certain once the engine that receives holds only one service. Services that no
    /// request needs are dropped.
    pub fn all_arrived(&mut self) {
        self.flights.all_arrived();
    }

    /// Returns the number of loaded services: the current service and those that requests in flight
    /// still need.
    pub fn generations(&self) -> usize {
        self.flights.generations()
    }

    /// Returns the number of requests that the application has not answered yet.
    pub fn in_flight(&self) -> usize {
        self.flights.count()
    }

    /// Accepts a word. If the word is wrong, a read of the same core reports the error.
    pub fn issue(&mut self, interface: Interface, word: u64) -> Result<(), Stalled> {
        let depth = self.limits.depth;
        let side = match interface.read() {
            Interface::NetResp => &mut self.net,
            _ => &mut self.app,
        };
        let named = Address::new(word & !15).unwrap_or_default();
        let command = Command::decode(word).filter(|known| known.interface() == interface);
        let reads = matches!(command, Some(Command::AppReadyFlag(_) | Command::DpdkNetFlag(_)));
        if if reads { side.takes_no_read() } else { side.takes_no_word() } {
            return Err(Stalled);
        }
        match command {
            None => side.tell(Code::BadOpcode, named),
            Some(Command::SendNetBuf(at) | Command::SendAppBuf(at)) => side.arm(at),
            Some(Command::SendNetLen(length) | Command::SendAppResp(length)) => {
                match side.disarm() {
                    None => side.tell(Code::Unarmed, named),
                    Some(at) if side.waiting() >= depth => side.tell(Code::QueueFull, at),
                    Some(at) => {
                        side.push(Ready {
                            at,
                            length: usize::try_from(length).unwrap_or(usize::MAX),
                        });
                    }
                }
            }
            Some(Command::AppReadyFlag(at) | Command::DpdkNetFlag(at)) => side.read(at),
        }
        Ok(())
    }

    /// Returns the oldest completed read at `interface`, if there is one. Only interfaces 2 and 4
    /// have reads.
    pub fn take(&mut self, interface: Interface) -> Option<Completion> {
        match interface {
            Interface::NetResp => self.net.take(),
            Interface::AppRecv => self.app.take(),
            Interface::NetRecv | Interface::AppResp => None,
        }
    }

    /// Returns a request that this engine received, for the engine that responds. `token` is in the
    /// request's record. The request stays in flight here until [`Engine::retire`].
    pub fn export(&self, token: u64) -> Option<Flight> {
        let (flight, _) = self.flights.find(token)?;
        flight.received.is_some().then_some(flight)
    }

    /// Adds a request that another engine received. Call it before the request's response arrives.
    /// Returns false if there is no place for the request, or if its functions were never loaded
    /// here.
    pub fn import(&mut self, flight: Flight) -> bool {
        self.flights.arrive(flight)
    }

    /// Ends a request that another engine took over and has finished with.
    pub fn retire(&mut self, token: u64) {
        self.flights.remove(token);
    }

    /// Returns the state of one half.
    pub fn state(&self, half: Half) -> State {
        match half {
            Half::Rx => self.rx.state,
            Half::Tx => self.tx.state,
        }
    }
}
