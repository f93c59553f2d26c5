//! What is kept of a trace under way: the run that its caller waits for, and the strands that its payload is on. Values
//! only.

use std::rc::Rc;
use std::task::{Poll, Waker};

use device::Job;
use prost::bytes::Bytes;
use store::Header;
use trace::{Condition, Format};
use units::Nanos;

use super::error::TraceError;
use super::input::{Ended, TraceInput};
use super::memory::{Memory, Program};
use super::ports::Received;
use crate::entry::Ticket;

/// A started trace, until it has ended and its caller knows.
pub(crate) struct Live {
    pub(crate) serial: u32,
    pub(crate) input: TraceInput,
    pub(crate) started: Nanos,
    /// Paths that have not ended.
    pub(crate) strands: usize,
    pub(crate) told: Told,
    /// The function of the last RPC received.
    pub(crate) function: Option<String>,
    pub(crate) core: Option<usize>,
    pub(crate) checksum: Option<u64>,
    pub(crate) steps: u32,
    pub(crate) fallbacks: u32,
}

/// What the caller knows.
pub(crate) enum Told {
    /// Nothing yet; it may wait.
    Nothing(Option<Waker>),
    /// It can be had.
    Ready(Result<Ended, Box<TraceError>>),
    /// All there is, or it does not care.
    Done,
}

impl Told {
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Told::Nothing(_))
    }

    /// Tells, if nothing was told before; whether it was so.
    pub(crate) fn tell(&mut self, result: Result<Ended, Box<TraceError>>) -> bool {
        let Told::Nothing(waker) = self else { return false };
        let waker = waker.take();
        *self = Told::Ready(result);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// What was told, once; else remembers whom to wake.
    pub(crate) fn take(&mut self, waker: &Waker) -> Poll<Result<Ended, Box<TraceError>>> {
        if let Told::Nothing(own) = self {
            match own {
                Some(own) => own.clone_from(waker),
                None => *own = Some(waker.clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(self, Told::Done) {
            Told::Ready(result) => Poll::Ready(result),
            Told::Nothing(_) | Told::Done => panic!("a trace that was told of is polled no more"),
        }
    }
}

/// One path of a payload through its traces.
pub(crate) struct Strand {
    /// Its place and serial number.
    pub(crate) key: u64,
    pub(crate) run: usize,
    pub(crate) memory: Rc<Memory>,
    pub(crate) program: usize,
    pub(crate) at: usize,
    pub(crate) payload: Bytes,
    pub(crate) format: Format,
    pub(crate) fields: Fields,
    /// The innermost open fork that is joined.
    pub(crate) join: Option<usize>,
    /// Of the stream that is being decompressed.
    pub(crate) frame: Option<Header>,
    /// What came for it while it could not take it.
    pub(crate) early: Option<Option<Received>>,
    pub(crate) state: State,
}

/// Where a strand is between two calls of the executor.
pub(crate) enum State {
    /// It goes on when there is time.
    Ready,
    /// Its job is inside the runtime.
    Inside(Ticket),
    /// Its job waits in the overflow area.
    Overflowed(Box<Job>),
    /// For an answer, with which this program goes on, until then.
    Awaiting { program: usize, since: Nanos, until: Nanos },
}

impl Strand {
    pub(crate) fn program(&self) -> &Program {
        self.memory.program(self.program)
    }

    /// The same payload on another path.
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
            frame: None,
            early: None,
            state: State::Ready,
        }
    }
}

/// What branches read.
#[derive(Clone, Default)]
pub(crate) struct Fields {
    /// What came beside a message.
    pub(crate) received: Vec<(String, u32)>,
    /// The payload as it was last unwrapped.
    pub(crate) unwrapped: Option<(Bytes, Format)>,
    /// Those of the program's fields that it has, once they were read.
    pub(crate) values: Option<Vec<Option<u32>>>,
}

impl Fields {
    /// Whether the condition holds: where the payload does not have a field, what came beside it counts, then what the
    /// caller said; a field that nobody has is zero.
    pub(crate) fn hold(
        &self,
        condition: &Condition,
        names: &[String],
        given: &[(String, u32)],
    ) -> bool {
        condition.holds(&mut |name| {
            let place = names.iter().position(|own| own == name);
            let of_payload = place.and_then(|place| *self.values.as_ref()?.get(place)?);
            let beside = || {
                let mut beside = self.received.iter().chain(given);
                beside.find(|(own, _)| own == name).map(|(_, value)| *value)
            };
            of_payload.or_else(beside).unwrap_or(0)
        })
    }
}

/// A fork whose arms meet again.
pub(crate) struct Join {
    pub(crate) run: usize,
    pub(crate) missing: usize,
    /// Where it goes on.
    pub(crate) at: usize,
    /// The first arm's payload, once it is there.
    pub(crate) first: Option<(Bytes, Format, Fields)>,
    pub(crate) outer: Option<usize>,
}
