//! Serves clients: reads bytes, serves commands in order and writes replies. `connection` reads and writes, `pipeline`
//! has the requests in flight, `dispatch` passes each command to `text`, `meta`, `info` or `dump`, and `edit` has the
//! commands that need the old value. `execute` serves a command that is given in memory.

mod budget;
mod connection;
mod dispatch;
mod dump;
mod edit;
mod execute;
mod info;
mod meta;
mod order;
mod pace;
mod pipeline;
mod text;
mod window;

pub(crate) use connection::{Open, serve};
pub(crate) use edit::Edits;
pub(crate) use execute::{NoAnswer, ReplyBudget, execute};

use std::rc::Rc;
use std::time::Instant;

use crate::context::WorkerContext;
use crate::reply_buffer::ReplyBuffer;
use connection::{INPUT_BYTES, Transport};
use order::UnderWay;
use window::Window;

/// The session of one client, or of one command in memory. All files of this module share it.
struct Session {
    transport: Transport,
    context: Rc<WorkerContext>,
    out: ReplyBuffer,
    /// The requests in flight, if the store does not keep their order.
    under_way: Option<UnderWay>,
    /// The limit on what may be in flight on the links, if there are links to stores.
    window: Option<Window>,
    /// The time at which the last command was answered, until its answer is written.
    answered: Option<Instant>,
    /// The number of commands served since other sessions had their turn.
    served: usize,
    /// The space for the next read. It is smaller behind a long value, because the next value is likely to be long too,
    /// and the part of it that is read here is copied.
    read_bytes: usize,
    first_bytes: bool,
    closing: bool,
    /// The place where the worker finds this session's waker when it drains.
    place: Option<usize>,
}

impl Session {
    fn new(transport: Transport, context: Rc<WorkerContext>) -> Self {
        let under_way = (!context.backend.keeps_order()).then(UnderWay::default);
        let window = context.backend.has_links().then(Window::default);
        Self {
            transport,
            context,
            out: ReplyBuffer::default(),
            under_way,
            window,
            answered: None,
            served: 0,
            read_bytes: INPUT_BYTES,
            first_bytes: true,
            closing: false,
            place: None,
        }
    }
}
