//! The engine: two halves, each a state machine of its own, between the queues of four interfaces. It moves only when
//! it is stepped, waits for nothing, and holds no more than its limits let it.

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

/// What an engine holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets, responses and reads that wait, each kind for itself. At least 1.
    pub depth: usize,
    /// Requests that the application has and has not answered. At least 1.
    pub flights: usize,
    /// The longest string or binary of a request (bytes).
    pub field_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 16, flights: 64, field_bytes_max: 1 << 20 }
    }
}

/// A near-cache RPC engine.
///
/// Its halves can also be on two threads: two engines with the same limits and functions, of which one only receives
/// (`step_rx`) and the other only responds (`step_tx`). What is in flight goes from one to the other by
/// [`Engine::hand_over`], [`Engine::take_over`] and [`Engine::landed`]; refusals are told at the interface of the core
/// that is to hear of them, which on either thread is a read that the driver keeps there. Other functions are loaded
/// into the one that responds first, by [`Engine::load_ahead`].
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
    /// An idle engine with a service's functions in it, as generation 1.
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

    /// Loads another service's functions and returns their generation. Requests that are in flight finish on the
    /// functions that received them; these are dropped when the last of them has.
    pub fn load(&mut self, functions: Arc<dyn Functions>) -> u32 {
        self.flights.load(functions)
    }

    /// The same on an engine that only responds, before the one that receives loads them: what was loaded before stays
    /// until [`Engine::all_arrived`], as requests that came in with it may still be handed over.
    pub fn load_ahead(&mut self, functions: Arc<dyn Functions>) -> u32 {
        self.flights.load_ahead(functions)
    }

    /// Every request that came in before the last [`Engine::load_ahead`] was taken over, as is certain once the engine
    /// that receives holds one service. What none of them needs is dropped.
    pub fn all_arrived(&mut self) {
        self.flights.all_arrived();
    }

    /// How many services are held: the current one, and those that requests in flight still need.
    pub fn generations(&self) -> usize {
        self.flights.generations()
    }

    /// Requests that the application has and has not answered.
    pub fn in_flight(&self) -> usize {
        self.flights.count()
    }

    /// Takes a word. What is wrong with it is told by a read of the same core.
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

    /// What a read at `interface` returned, the first that completed first; only 2 and 4 are read.
    pub fn take(&mut self, interface: Interface) -> Option<Completion> {
        match interface {
            Interface::NetResp => self.net.take(),
            Interface::AppRecv => self.app.take(),
            Interface::NetRecv | Interface::AppResp => None,
        }
    }

    /// A request that this engine received, for the one that responds; with its token, as its record has it. Here it is
    /// in flight until it has [`Engine::landed`].
    pub fn hand_over(&self, token: u64) -> Option<Flight> {
        let (flight, _) = self.flights.find(token)?;
        flight.received.is_some().then_some(flight)
    }

    /// A request that another engine received, before its response comes. False if there is no place for it, or it came
    /// in with functions that this engine was not given.
    pub fn take_over(&mut self, flight: Flight) -> bool {
        self.flights.arrive(flight)
    }

    /// The engine that took this request over is through with it.
    pub fn landed(&mut self, token: u64) {
        self.flights.land(token);
    }

    /// The state of a half.
    pub fn state(&self, half: Half) -> State {
        match half {
            Half::Rx => self.rx.state,
            Half::Tx => self.tx.state,
        }
    }
}
