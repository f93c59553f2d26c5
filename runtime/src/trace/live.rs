//! The state of a trace in flight: the run for which its caller waits, and the strands that carry its payload. This
//! module contains only values.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use device::Job;
use prost::bytes::Bytes;
use store::Header;
use trace::{Condition, Format};
use units::Nanos;

use super::chain::TraceFollow;
use super::error::TraceError;
use super::input::{Ended, TraceInput};
use super::memory::{Memory, Program, Step};
use super::ports::Received;
use crate::entry::Ticket;

/// A started trace, until it has ended and its caller has its result.
pub(crate) struct Live {
    pub(crate) serial: u32,
    pub(crate) input: TraceInput,
    pub(crate) started: Nanos,
    /// The number of paths that have not ended.
    pub(crate) strands: usize,
    pub(crate) reported: Reported,
    /// The function of the last RPC received.
    pub(crate) function: Option<String>,
    pub(crate) core: Option<usize>,
    pub(crate) checksum: Option<u64>,
    pub(crate) steps: u32,
    pub(crate) fallbacks: u32,
}

/// The report to the caller.
pub(crate) enum Reported {
    /// Nothing was reported yet. The caller may wait.
    Nothing(Option<Waker>),
    /// The result is ready.
    Ready(Result<Ended, Box<TraceError>>),
    /// The caller has the result, or does not need it.
    Done,
}

impl Reported {
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Reported::Nothing(_))
    }

    /// Reports the result, if nothing was reported before. Returns whether it did.
    pub(crate) fn tell(&mut self, result: Result<Ended, Box<TraceError>>) -> bool {
        let Reported::Nothing(waker) = self else { return false };
        let waker = waker.take();
        *self = Reported::Ready(result);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Returns the reported result, once, or stores the waker.
    pub(crate) fn take(&mut self, waker: &Waker) -> Poll<Result<Ended, Box<TraceError>>> {
        if let Reported::Nothing(kept) = self {
            match kept {
                Some(kept) => kept.clone_from(waker),
                None => *kept = Some(waker.clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(self, Reported::Done) {
            Reported::Ready(result) => Poll::Ready(result),
            Reported::Nothing(_) | Reported::Done => {
                panic!("a trace that was told of is polled no more")
            }
        }
    }
}

/// One path of a payload through its traces.
pub(crate) struct Strand {
    /// The strand's index and serial number.
    pub(crate) key: u64,
    pub(crate) run: usize,
    pub(crate) memory: Rc<Memory>,
    pub(crate) program: usize,
    pub(crate) at: usize,
    pub(crate) payload: Bytes,
    pub(crate) format: Format,
    pub(crate) fields: Fields,
    /// The innermost open fork whose arms join.
    pub(crate) join: Option<usize>,
    /// What follows the op of the strand's job in its chain.
    pub(crate) follows: Vec<Arc<TraceFollow>>,
    /// The frame of the stream that is being decompressed.
    pub(crate) frame: Option<Header>,
    /// The answer that arrived before the strand waited for it.
    pub(crate) early: Option<Option<Received>>,
    pub(crate) state: State,
}

/// The state of a strand between two calls of the executor.
pub(crate) enum State {
    /// The strand continues when there is time.
    Ready,
    /// The strand's job is in flight in the runtime.
    InFlight(Ticket),
    /// The strand's job waits in the overflow area.
    Overflowed(Box<Job>),
    /// The strand waits for an answer until `until`. `program` then continues with the answer.
    Awaiting { program: usize, since: Nanos, until: Nanos },
}

impl Strand {
    pub(crate) fn program(&self) -> &Program {
        self.memory.program(self.program)
    }

    /// Returns the deadline of the step at which the strand is, counted from the start of the trace.
    pub(crate) fn due(&self) -> Option<Nanos> {
        match &self.program().steps[self.at] {
            Step::Run { due, .. } => *due,
            _ => None,
        }
    }

    /// Creates a strand with the same payload on another path.
    pub(crate) fn fork(&self, key: u64, at: usize) -> Strand {
        Strand {
            key,
            run: self.run,
            memory: Rc::clone(&self.memory),
            program: self.program,
            at,
            payload: self.payload.clone(),
            format: self.format,
            fields: self.fields.clone(),
            join: self.join,
            follows: Vec::new(),
            frame: None,
            early: None,
            state: State::Ready,
        }
    }
}

/// The fields that branches read.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    /// The fields that came with a message.
    pub(crate) received: Vec<(String, u32)>,
    /// The payload and its format after the last decryption, RPC or deserialization.
    pub(crate) unwrapped: Option<(Bytes, Format)>,
    /// The values of the program's fields in the payload, once they were read.
    pub(crate) values: Option<Vec<Option<u32>>>,
}

impl Fields {
    /// Returns whether the condition holds. A field is taken from the payload, or else from the message's
    /// fields, or else from the caller's fields. Without any of them it is zero.
    pub(crate) fn hold(
        &self,
        condition: &Condition,
        names: &[String],
        given: &[(String, u32)],
    ) -> bool {
        condition.holds(&mut |name| {
            let place = names.iter().position(|known| known == name);
            let of_payload = place.and_then(|place| *self.values.as_ref()?.get(place)?);
            let beside = || {
                let mut beside = self.received.iter().chain(given);
                beside.find(|(known, _)| known == name).map(|(_, value)| *value)
            };
            of_payload.or_else(beside).unwrap_or(0)
        })
    }
}

/// A fork whose arms join.
pub(crate) struct Join {
    pub(crate) run: usize,
    pub(crate) missing: usize,
    /// The instruction that follows the join.
    pub(crate) at: usize,
    /// The first arm's payload, once that arm has arrived.
    pub(crate) first: Option<(Bytes, Format, Fields)>,
    pub(crate) outer: Option<usize>,
}
