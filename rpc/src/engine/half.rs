//! What both halves have in common: the five states, the way through them, and what a step tells its driver.

use crate::command::Address;

/// One of the two engines in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// Receives: header, dispatch, deserialization.
    Rx,
    /// Responds: serialization, header.
    Tx,
}

/// Where a half is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// Awaits work.
    #[default]
    IdleRecv,
    /// Works on a message.
    Busy,
    /// The work is done and its memory operations are not.
    Drain,
    /// Tells the core and cleans up.
    Done,
    /// Done, and more work is there already.
    IdleResp,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose.
    pub half: Half,
    /// From here.
    pub from: State,
    /// To here.
    pub to: State,
    /// What was done on the way: not empty when a half leaves [`State::Busy`].
    pub work: Work,
    /// A buffer that the engine is through with, when a half leaves [`State::Done`]: the packet's, or the response's.
    /// One that was refused is named by the completion that says so.
    pub released: Option<Address>,
}

/// What a message cost, for who keeps time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes loaded from the first buffer.
    pub loaded_bytes: usize,
    /// Bytes stored to the second.
    pub stored_bytes: usize,
    /// The function, once it was known.
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

    /// After the work, and while draining: waits for memory operations in flight.
    pub(super) fn settle(&mut self, half: Half, in_flight: usize) -> Option<Step> {
        match (self.state, in_flight) {
            (State::Drain, 1..) => None,
            (_, 1..) => Some(self.enter(half, State::Drain)),
            (_, 0) => Some(self.enter(half, State::Done)),
        }
    }

    /// After the message: on to the next, or to rest.
    pub(super) fn finish(&mut self, half: Half, more: bool, released: Option<Address>) -> Step {
        let to = if more { State::IdleResp } else { State::IdleRecv };
        Step { released, ..self.enter(half, to) }
    }
}
