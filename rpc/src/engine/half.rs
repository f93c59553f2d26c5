//! The common part of both halves: the five states, the transitions between them, and the report of
//! a step to the driver.

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
    /// The work is done, but its memory operations are not complete.
    Drain,
    /// The half informs the core and cleans up.
    Done,
    /// The half is done, and more work has already arrived.
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
    /// The work of this step. It is not empty when a half leaves [`State::Busy`].
    pub work: Work,
    /// The buffer that the engine has finished with, when a half leaves [`State::Done`]: the
    /// packet's buffer or the response's. The buffer of a refused message is not here; the
    /// completion that reports the refusal names it.
    pub released: Option<Address>,
}

/// The cost of a message, for drivers that simulate time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The number of bytes loaded from the first buffer.
    pub loaded_bytes: usize,
    /// The number of bytes stored to the second buffer.
    pub stored_bytes: usize,
    /// The function, once it is known.
    pub function: Option<u32>,
}

/// A half's state and its current message.
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
    /// Changes the state to `to`.
    pub(super) fn enter(&mut self, half: Half, to: State) -> Step {
        let from = std::mem::replace(&mut self.state, to);
        Step { half, from, to, work: Work::default(), released: None }
    }

    /// Continues after the work, and while draining. It waits until no memory operations are in
    /// flight.
    pub(super) fn settle(&mut self, half: Half, in_flight: usize) -> Option<Step> {
        match (self.state, in_flight) {
            (State::Drain, 1..) => None,
            (_, 1..) => Some(self.enter(half, State::Drain)),
            (_, 0) => Some(self.enter(half, State::Done)),
        }
    }

    /// Continues after a message, with the next message or with an idle state.
    pub(super) fn finish(&mut self, half: Half, more: bool, released: Option<Address>) -> Step {
        let to = if more { State::IdleResp } else { State::IdleRecv };
        Step { released, ..self.enter(half, to) }
    }
}
