//! Serves clients: bytes in, commands in order, replies out. `connection` reads and writes, `pipeline` has the requests
//! under way, `dispatch` hands each command to `text`, `meta`, `info` or `dump`, and `edit` has the commands that need
//! the old value. `execute` serves a command that is given in memory.

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

/// One client, or one command in memory: what its files share.
struct Session {
    transport: Transport,
    context: Rc<WorkerContext>,
    out: ReplyBuffer,
    /// The requests under way, where the store does not keep their order.
    under_way: Option<UnderWay>,
    /// The bound on what may be under way on the links, where there are links to stores.
    window: Option<Window>,
    /// The time at which the last command was answered, until its answer is written.
    answered: Option<Instant>,
    /// Commands served since other sessions had their turn.
    served: usize,
    /// The room for the next read. It is less behind a long value, because the next is likely to be one too, and what
    /// is read of it here is copied.
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
