//! The ports by which traces use the service: bytes on a wire, the choice of a core, and the news that a trace has
//! ended. The executor calls a port from the poller, so a port must neither block nor start a trace; it may wake a task
//! that does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use device::TenantId;
use prost::bytes::Bytes;

use super::input::Ended;

/// The origin of the payload that a port is given.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The trace under way.
    pub trace: &'a str,
    /// The tenant of the payload.
    pub tenant: TenantId,
    /// The connection as the input has it.
    pub connection: u64,
}

/// Messages to and from peers. A trace that begins with `tcp` has just received; any other `tcp` sends.
pub trait Tcp {
    /// The payload of what came in: all of it, unless the port says otherwise.
    ///
    /// # Errors
    /// It is no message.
    fn receive(&mut self, _origin: &Origin<'_>, message: Bytes) -> Result<Bytes, PortError> {
        Ok(message)
    }

    /// Takes the payload to be sent; what it cannot take now it refuses. Where the trace awaits an answer, that goes to
    /// `answer`.
    ///
    /// # Errors
    /// It was not taken.
    fn send(
        &mut self,
        origin: &Origin<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError>;
}

/// Chooses the core that goes on with a request.
pub trait LoadBalance {
    /// The core's number.
    ///
    /// # Errors
    /// None has room.
    fn pick(&mut self, origin: &Origin<'_>, payload: &Bytes) -> Result<usize, PortError>;
}

/// Receives every path that ends, in addition to the caller's own `run_trace`.
pub trait Notify {
    /// A path of the trace ended so.
    fn ended(&mut self, origin: &Origin<'_>, ended: &Ended);
}

/// No peers: sending is refused, receiving takes all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTcp;

impl Tcp for NoTcp {
    fn send(&mut self, _: &Origin<'_>, _: Bytes, _: Option<Answer>) -> Result<(), PortError> {
        Err(PortError("no tcp port is registered".to_owned()))
    }
}

/// The core that runs the trace goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameCore(
    /// Its number.
    pub usize,
);

impl LoadBalance for SameCore {
    fn pick(&mut self, _: &Origin<'_>, _: &Bytes) -> Result<usize, PortError> {
        Ok(self.0)
    }
}

/// Tells no one but the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNotify;

impl Notify for NoNotify {
    fn ended(&mut self, _: &Origin<'_>, _: &Ended) {}
}

/// The reason why a port did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port: {0}")]
pub struct PortError(
    /// The reason in words, with who must act.
    pub String,
);

/// The destination of the answer to a message. If it is dropped without one, the peer counts as gone.
#[derive(Debug)]
pub struct Answer {
    inbox: Rc<Inbox>,
    key: u64,
    is_given: bool,
}

impl Answer {
    pub(crate) fn new(inbox: &Rc<Inbox>, key: u64) -> Self {
        Self { inbox: Rc::clone(inbox), key, is_given: false }
    }

    /// Gives the answer: the payload, and fields that came with it (an HTTP header), for branches to read.
    pub fn give(mut self, payload: impl Into<Bytes>, fields: Vec<(String, u32)>) {
        self.is_given = true;
        let received = Received { payload: payload.into(), fields };
        self.inbox.put(Event::Answer(self.key, Some(received)));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_given {
            self.inbox.put(Event::Answer(self.key, None));
        }
    }
}

/// The events that others tell the executor between its turns.
pub(crate) struct Inbox {
    events: RefCell<VecDeque<Event>>,
    /// Whether the executor is gone, so that no event is read any more.
    is_closed: Cell<bool>,
    /// Sees to it that the runtime is turned soon.
    kick: Box<dyn Fn()>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

pub(crate) enum Event {
    /// The answer to what this strand sent; none if there will be none.
    Answer(u64, Option<Received>),
    /// The caller gave this run up.
    GivenUp(u64),
}

pub(crate) struct Received {
    pub(crate) payload: Bytes,
    pub(crate) fields: Vec<(String, u32)>,
}

impl Inbox {
    pub(crate) fn new(kick: Box<dyn Fn()>) -> Rc<Self> {
        Rc::new(Self { events: RefCell::default(), is_closed: Cell::new(false), kick })
    }

    pub(crate) fn put(&self, event: Event) {
        if !self.is_closed.get() {
            self.events.borrow_mut().push_back(event);
            (self.kick)();
        }
    }

    pub(crate) fn kick(&self) {
        (self.kick)();
    }

    pub(crate) fn take(&self) -> Option<Event> {
        self.events.borrow_mut().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.borrow().is_empty()
    }

    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        let events = self.events.take();
        drop(events);
    }
}
