//! Serves clients: reads bytes, serves commands in order and writes replies. `connection` reads and writes, `pipeline`
//! manages requests in flight, `dispatch` passes each command to `text`, `meta`, `info` or `dump`, and `edit` has the
//! commands that need the old value. `watch` tells watchers about them. `packets` serves the binary protocol through
//! the same paths, and `calls` the Thrift service through those of `packets`. `reply_to` has the answers of both, and
//! `wrong_protocol` refuses clients of a protocol that is not served. `guard` checks rights. `timelines` records where
//! the time of requests goes. `execute` serves a command in memory.

mod budget;
mod calls;
mod connection;
mod dispatch;
mod dump;
mod edit;
mod execute;
mod guard;
mod guard_packets;
mod info;
mod meta;
mod order;
mod pace;
mod packets;
mod pipeline;
mod reply_to;
mod slab_commands;
mod text;
mod timelines;
mod watch;
mod window;
mod wrong_protocol;

pub(crate) use connection::{Open, converse, serve};
pub(crate) use edit::Edits;
pub(crate) use execute::{NoAnswer, ReplyBudget, execute};
pub(crate) use info::VERSION;
pub(crate) use meta::SLAB_CLASS;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use telemetry::timeline::Timeline;

use crate::access::Client;
use crate::connection_table::{CloseReason, Connection};
use crate::context::WorkerContext;
use crate::errors::FailedCommand;
use crate::reply_buffer::ReplyBuffer;
use connection::{INPUT_BYTES, Transport};
use order::InFlightKeys;
use window::Window;

/// The session of one client, or of one command in memory.
struct Session {
    transport: Transport,
    /// The address of the client, if it has one.
    from: Option<SocketAddr>,
    context: Rc<WorkerContext>,
    out: ReplyBuffer,
    /// The keys of requests in flight, if the store does not keep the order of requests.
    in_flight: Option<InFlightKeys>,
    /// The limit on requests in flight, if there are links to stores.
    window: Option<Window>,
    /// The time at which the last command was answered, if the answer is not yet written.
    answered: Option<Instant>,
    /// The command that is being answered, for the count of its error.
    command: FailedCommand,
    /// True if no command of the client was read behind the one that is served.
    is_last: bool,
    /// The number of commands served since the session last yielded.
    served: usize,
    /// The buffer size of the next read (bytes). It is smaller after a long value, because the next value is
    /// likely to be long too, and the part of it in this buffer must be copied.
    read_bytes: usize,
    first_bytes: bool,
    protocol: Speaks,
    closing: bool,
    /// True once an answer could not be written whole. Whatever came after a part of it would be taken for the rest.
    is_cut_off: bool,
    close_reason: CloseReason,
    /// The entry of this connection in the table, unless the command is in memory.
    connection: Option<Arc<Connection>>,
    /// The client and its rights, if there are rules about them.
    client: Option<Rc<Client>>,
    /// True while nothing may be written, because the length of an answer is not known yet.
    holds_answer: bool,
    /// The number of answers since the last write to a client that is not logged in.
    login_answers: usize,
    /// True while the session works on a request that is recorded.
    is_recorded: bool,
    /// The timeline of the current request while others are answered.
    resting: Option<Box<Timeline>>,
    /// The timelines of requests whose answers are not written yet. They were suspended when these were ready.
    unwritten: Vec<Timeline>,
    /// The index of this session's waker in the shutdown signal.
    place: Option<usize>,
}

/// The protocol of a connection. On a listener for memcached clients, its first byte decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Text,
    Binary,
    Thrift,
}

impl Session {
    fn new(transport: Transport, context: Rc<WorkerContext>) -> Self {
        let in_flight = (!context.backend.keeps_order()).then(InFlightKeys::default);
        let window = context.backend.has_links().then(Window::default);
        Self {
            transport,
            from: None,
            context,
            out: ReplyBuffer::default(),
            in_flight,
            window,
            answered: None,
            command: FailedCommand::default(),
            is_last: false,
            served: 0,
            read_bytes: INPUT_BYTES,
            first_bytes: true,
            protocol: Speaks::Text,
            closing: false,
            is_cut_off: false,
            close_reason: CloseReason::default(),
            connection: None,
            client: None,
            holds_answer: false,
            login_answers: 0,
            is_recorded: false,
            resting: None,
            unwritten: Vec::new(),
            place: None,
        }
    }
}
