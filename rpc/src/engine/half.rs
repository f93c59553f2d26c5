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
    /// The work of this step. It is zero unless the step leaves [`State::Busy`].
    pub work: Work,
    /// The packet's or response's buffer that the engine has finished with, when a half leaves
    /// [`State::Done`]. For a refused message it is `None`, because the completion that reports the
    /// refusal names the buffer.
    pub released: Option<Address>,
}

/// The cost of a message, for drivers that simulate time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The number of bytes loaded from the source buffer.
    pub loaded_bytes: usize,
    /// The number of bytes stored to the destination buffer.
    pub stored_bytes: usize,
    /// The number of the function, once it is known.
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

    /// Enters [`State::Done`] if no memory operations are in flight, otherwise [`State::Drain`].
    /// Returns `None` if the half is still draining.
    pub(super) fn settle(&mut self, half: Half, in_flight: usize) -> Option<Step> {
        match (self.state, in_flight) {
            (State::Drain, 1..) => None,
            (_, 1..) => Some(self.enter(half, State::Drain)),
            (_, 0) => Some(self.enter(half, State::Done)),
        }
    }

    /// Leaves [`State::Done`]: enters [`State::IdleResp`] if more work is waiting, otherwise
    /// [`State::IdleRecv`].
    pub(super) fn finish(&mut self, half: Half, more: bool, released: Option<Address>) -> Step {
        let to = if more { State::IdleResp } else { State::IdleRecv };
        Step { released, ..self.enter(half, to) }
    }
}
