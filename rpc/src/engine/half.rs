//! The part that both halves share: the five states, the transitions between them, and the report of a step to its
//! driver.

use crate::command::Address;

/// One of the two halves of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The half that receives: header, dispatch, deserialization.
    Rx,
    /// The half that responds: serialization, header.
    Tx,
}

/// The state of a half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The half waits for work.
    #[default]
    IdleRecv,
    /// The half works on a message.
    Busy,
    /// The work is done, but its memory operations are not.
    Drain,
    /// The half tells the core and cleans up.
    Done,
    /// The half is done, and more work is there already.
    IdleResp,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The half that changed.
    pub half: Half,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// The work that was done on the way. It is not empty when a half leaves [`State::Busy`].
    pub work: Work,
    /// A buffer that the engine is through with, when a half leaves [`State::Done`]: the packet's, or the response's. A
    /// buffer that was refused is named by the completion that says so.
    pub released: Option<Address>,
}

/// The cost of a message, for drivers that keep time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes loaded from the first buffer.
    pub loaded_bytes: usize,
    /// Bytes stored to the second.
    pub stored_bytes: usize,
    /// The function, once it is known.
    pub function: Option<u32>,
}

/// A half's state and the message it works on.
#[derive(Debug)]
pub(super) struct Machine<J> {
    pub(super) state: State,
    pub(super) job: Option<J>,
}

impl<J> Default for Machine<J> {
    fn default() -> Self {
        Self { state: State::IdleRecv, job: None }
    }
}

impl<J> Machine<J> {
    /// Goes on to `to`.
    pub(super) fn enter(&mut self, half: Half, to: State) -> Step {
        let from = std::mem::replace(&mut self.state, to);
        Step { half, from, to, work: Work::default(), released: None }
    }

    /// Goes on after the work, and while draining: it waits for memory operations in flight.
    pub(super) fn settle(&mut self, half: Half, in_flight: usize) -> Option<Step> {
        match (self.state, in_flight) {
            (State::Drain, 1..) => None,
            (_, 1..) => Some(self.enter(half, State::Drain)),
            (_, 0) => Some(self.enter(half, State::Done)),
        }
    }

    /// Goes on after the message: to the next one, or to rest.
    pub(super) fn finish(&mut self, half: Half, more: bool, released: Option<Address>) -> Step {
        let to = if more { State::IdleResp } else { State::IdleRecv };
        Step { released, ..self.enter(half, to) }
    }
}
