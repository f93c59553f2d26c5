//! The ports through which traces use the service: bytes on a wire, the choice of a core, and the notification that a
//! trace has ended. The executor calls a port from the poller, so a port must neither block nor start a trace. It may
//! wake a task that starts a trace.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use device::{Function, TenantId};
use prost::bytes::Bytes;

use super::functions;
use super::input::Ended;

/// The origin of the payload that a port receives.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The name of the trace in flight.
    pub trace: &'a str,
    /// The tenant of the payload.
    pub tenant: TenantId,
    /// The connection number from the input.
    pub connection: u64,
}

/// The port for messages to and from peers. A trace that begins with `tcp` has just received a message. Any other `tcp`
/// sends one.
pub trait Tcp {
    /// Returns the payload of a received message. By default this is the whole message.
    ///
    /// # Errors
    /// Fails if the bytes are not a message.
    fn receive(&mut self, _origin: &Origin<'_>, message: Bytes) -> Result<Bytes, PortError> {
        Ok(message)
    }

    /// Sends the payload, or refuses it if the port cannot send it now. If the trace awaits an answer, the port passes
    /// the answer to `answer`.
    ///
    /// # Errors
    /// Fails if the port refuses the payload.
    fn send(
        &mut self,
        origin: &Origin<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError>;
}

/// The port that chooses the core that continues a request.
pub trait LoadBalance {
    /// Returns the number of the core.
    ///
    /// # Errors
    /// Fails if no core has capacity.
    fn pick(&mut self, origin: &Origin<'_>, payload: &Bytes) -> Result<usize, PortError>;

    /// Returns the choice as a function of the payload, if a device may make it. The function gives the number of the
    /// core in eight bytes, little-endian. By default only the port chooses.
    fn function(&self, _origin: &Origin<'_>) -> Option<Function> {
        None
    }
}

/// The port that is told when a path of a trace ends. The caller of `run_trace` is told too.
pub trait Notify {
    /// Receives the end of a path of the trace.
    fn ended(&mut self, origin: &Origin<'_>, ended: &Ended);
}

/// A TCP port without peers. It refuses every send and accepts every receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTcp;

impl Tcp for NoTcp {
    fn send(&mut self, _: &Origin<'_>, _: Bytes, _: Option<Answer>) -> Result<(), PortError> {
        Err(PortError("no tcp port is registered".to_owned()))
    }
}

/// A load balancer that always picks the core that runs the trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameCore(
    /// The number of the core.
    pub usize,
);

impl LoadBalance for SameCore {
    fn pick(&mut self, _: &Origin<'_>, _: &Bytes) -> Result<usize, PortError> {
        Ok(self.0)
    }

    fn function(&self, _: &Origin<'_>) -> Option<Function> {
        Some(functions::always(self.0))
    }
}

/// A notification port that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNotify;

impl Notify for NoNotify {
    fn ended(&mut self, _: &Origin<'_>, _: &Ended) {}
}

/// The reason why a port did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port: {0}")]
pub struct PortError(
    /// The reason in words. It says who must act.
    pub String,
);

/// A handle through which a message is answered. If it is dropped without an answer, the peer counts as gone.
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

    /// Gives the answer: the payload, and the fields that came with it (an HTTP header) for branches to read.
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

/// The events for the executor between its turns.
pub(crate) struct Inbox {
    events: RefCell<VecDeque<Event>>,
    /// Whether the executor is gone, so that no event is read any more.
    is_closed: Cell<bool>,
    /// Makes the driver turn the runtime soon.
    wake: Box<dyn Fn()>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

pub(crate) enum Event {
    /// The answer to the message of this strand. It is none if no answer will come.
    Answer(u64, Option<Received>),
    /// The caller dropped this run.
    GivenUp(u64),
}

pub(crate) struct Received {
    pub(crate) payload: Bytes,
    pub(crate) fields: Vec<(String, u32)>,
}

impl Inbox {
    pub(crate) fn new(wake: Box<dyn Fn()>) -> Rc<Self> {
        Rc::new(Self { events: RefCell::default(), is_closed: Cell::new(false), wake })
    }

    pub(crate) fn put(&self, event: Event) {
        if !self.is_closed.get() {
            self.events.borrow_mut().push_back(event);
            (self.wake)();
        }
    }

    pub(crate) fn wake(&self) {
        (self.wake)();
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
