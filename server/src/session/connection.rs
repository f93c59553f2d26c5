//! A client's connection. It holds a read buffer only while there are unread bytes, so that an idle
//! connection costs only its task.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use device::Buffer;
use protocol::refusal;

use super::calls::Calls;
use super::dispatch::{Lines, Wire};
use super::execute::ReplyBudget;
use super::pace::Pace;
use super::packets::Packets;
use super::{Session, Speaks};
use crate::accept::TOO_MANY;
use crate::access::{Client, NoPlace, Origin};
use crate::budget::Permit;
use crate::connection_table::{CloseReason, State};
use crate::context::WorkerContext;
use crate::counters::Stage;
use crate::near;
use crate::reply_buffer::CALL_BYTES_MAX;
use crate::stream::Stream;
use crate::watchers::ConnectionEvent;
use crate::worker::ListenerProtocol;

/// Serves one connection of a socket to its end.
pub(crate) async fn serve(
    stream: Stream,
    from: Option<SocketAddr>,
    context: Rc<WorkerContext>,
    listener: ListenerProtocol,
) {
    let _open = Open::count(&context, listener);
    let speaks = match listener {
        ListenerProtocol::Thrift => Speaks::Thrift,
        _ => Speaks::Text,
    };
    converse(stream, from, Rc::clone(&context), speaks).await;
}

/// Serves one connection that is counted as open to its end. A client that may speak text may also speak the binary
/// protocol.
pub(crate) async fn converse(
    stream: Stream,
    from: Option<SocketAddr>,
    context: Rc<WorkerContext>,
    speaks: Speaks,
) {
    let entered = Client::enter(&context, || Origin::new(&stream, from));
    let connection = context.connection_table.enter(&stream, from);
    let mut session = Session::new(Transport::Stream(stream), Rc::clone(&context));
    session.from = from;
    session.protocol = speaks;
    session.connection = Some(connection);
    session.tell_connection(None);
    match entered {
        Ok(client) => session.client = client,
        Err(NoPlace) => {
            // A Thrift client gets no answer, because it has not asked yet.
            if speaks == Speaks::Text {
                session.out.text().extend_from_slice(TOO_MANY);
            }
            session.closing = true;
        }
    }
    if let Err(error) = session.run().await {
        tracing::debug!(%error, "connection ended");
    }
}

/// The time after which a silent client that has not logged in loses its connection. Otherwise silent strangers could
/// hold all connections.
const LOGIN_SILENCE_MAX: Duration = Duration::from_secs(10);

/// Counts a connection as open until this value is dropped.
pub(crate) struct Open<'a>(&'a WorkerContext, ListenerProtocol);

impl<'a> Open<'a> {
    pub(crate) fn count(context: &'a WorkerContext, protocol: ListenerProtocol) -> Self {
        let commands = &context.counters.commands;
        commands.curr_connections.up();
        commands.total_connections.up();
        Self(context, protocol)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.counters.commands.curr_connections.down();
        self.0.connections.leave(self.1);
    }
}

/// The destination of answers.
pub(super) enum Transport {
    Stream(Stream),
    /// Answers to a command in memory stay in `out`. `reply_budget` has granted `held_bytes` of them.
    Memory {
        reply_budget: ReplyBudget,
        held_bytes: usize,
    },
}

impl Session {
    pub(super) fn stream(&self) -> io::Result<&Stream> {
        match &self.transport {
            Transport::Stream(stream) => Ok(stream),
            Transport::Memory { .. } => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(super) const fn is_near(&self) -> bool {
        matches!(&self.transport, Transport::Stream(Stream::Near(_)))
    }

    /// Returns what is known of the client of a connection.
    pub(super) fn origin(&self) -> Origin {
        self.stream().map(|stream| Origin::new(stream, self.from)).unwrap_or_default()
    }

    pub(super) async fn run(&mut self) -> io::Result<()> {
        let mut unused: Option<Buffer> = None;
        while !self.closing {
            let read_bytes = self.read_bytes;
            let mut input = match unused.take() {
                Some(buffer) if buffer.capacity() == read_bytes => buffer,
                _ => self.context.values.pool().take_heap(read_bytes),
            };
            let bytes = match self.stream()?.try_read(input.space()) {
                Ok(0) => {
                    self.close_reason = CloseReason::Normal;
                    break;
                }
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(input);
                    // Other sessions have their turn now, unless a near client sends more at once.
                    if !self.is_near() {
                        self.served = 0;
                    }
                    if self.wait_readable().await? { continue } else { break }
                }
                Err(error) => return Err(error),
            };
            self.context.counters.commands.bytes_read.add_unshared(bytes as u64);
            if bytes == input.capacity() {
                // The buffer is full. If this is due to a long value, serving the value sets the size again.
                self.read_bytes = INPUT_BYTES;
            }
            input.set_len(bytes);
            if std::mem::take(&mut self.first_bytes) && self.protocol != Speaks::Thrift {
                self.choose_protocol(&input);
            }
            match self.protocol {
                _ if self.closing => break,
                // The futures are boxed, so that sessions that speak text do not reserve memory for them.
                Speaks::Binary => unused = Some(Box::pin(self.converse::<Packets>(input)).await?),
                Speaks::Thrift => unused = Some(Box::pin(self.converse::<Calls>(input)).await?),
                Speaks::Text => unused = Some(self.converse::<Lines>(input).await?),
            }
        }
        self.flush().await
    }

    /// Waits for bytes. Returns false when the server drains and all earlier requests were answered, or when
    /// the client has been silent for too long (only TCP clients, as in memcached).
    pub(super) async fn wait_readable(&mut self) -> io::Result<bool> {
        let is_tcp = matches!(&self.transport, Transport::Stream(stream) if stream.is_remote());
        let idle = self.context.idle_timeout.filter(|_| is_tcp);
        // memcached's text login has no time limit.
        let is_nobody = |client: &Rc<Client>| client.must_log_in() && !client.is_text_only();
        let login = self.client.as_ref().is_some_and(is_nobody).then_some(LOGIN_SILENCE_MAX);
        let Some(limit) = idle.into_iter().chain(login).min() else {
            return self.wait_for_bytes().await;
        };
        match tokio::time::timeout(limit, self.wait_for_bytes()).await {
            Ok(readable) => readable,
            Err(_) => {
                self.context.counters.commands.idle_kicks.up();
                self.close_reason = CloseReason::IdleTimeout;
                Ok(false)
            }
        }
    }

    /// Waits for bytes as [`Session::wait_readable`] does, without a limit. If the server begins to drain meanwhile,
    /// the caller has to look for bytes once more.
    pub(super) async fn wait_for_bytes(&mut self) -> io::Result<bool> {
        self.set_state(State::Reads);
        let Self { context, transport: Transport::Stream(stream), place, .. } = self else {
            return Ok(false);
        };
        let mut has_waited = false;
        let readable = poll_fn(|task| {
            if context.is_draining() {
                return Poll::Ready(Ok(has_waited));
            }
            context.shutdown.watch(place, task.waker());
            has_waited = true;
            stream.poll_readable(task).map_ok(|()| true)
        })
        .await;
        if context.is_draining() && has_waited {
            // A request may have come while the drain began. After this turn, the executor knows what has come.
            tokio::task::yield_now().await;
        }
        if let Stream::Near(stream) = stream {
            near::count(context, &**stream);
        }
        self.set_state(State::Serves);
        readable
    }

    /// Serves commands until there are no unread bytes, and returns the buffer.
    pub(super) async fn converse<W: Wire>(&mut self, mut input: Buffer) -> io::Result<Buffer> {
        let mut start = 0;
        let mut line: Option<(Permit, Pace)> = None;
        loop {
            let served = self.serve_buffered::<W>(&input, start).await?;
            if served > 0 {
                line = None;
            }
            start += served;
            self.flush().await?;
            if self.closing || start == input.len() {
                return Ok(input);
            }
            let unread = input.len() - start;
            if unread > INPUT_BYTES / 2 && line.is_none() {
                // A long line exceeds the bytes that a connection may hold uncharged.
                let permit = self.context.admit(LONG_LINE_BYTES).await;
                line = permit.map(|permit| (permit, Pace::charged(&self.context)));
                if line.is_none() {
                    self.out.text().extend_from_slice(refusal::OUT_OF_MEMORY);
                    self.closing = true;
                    return Ok(input);
                }
            }
            input = self.grow_input(input, start);
            start = 0;
            let is_more = match &mut line {
                Some((_, pace)) => self.read_more_paced(&mut input, pace).await?,
                None => self.read_more(&mut input).await?,
            };
            if !is_more {
                self.closing = true;
                return Ok(input);
            }
        }
    }

    /// Moves the unread bytes to the front of a buffer with space for more.
    pub(super) fn grow_input(&self, input: Buffer, start: usize) -> Buffer {
        let unread = input.len() - start;
        let capacity = INPUT_BYTES.max(unread * 2).min(LONG_LINE_BYTES);
        let mut next = self.context.values.pool().take_heap(capacity);
        next.extend(&input[start..]);
        next
    }

    /// Appends bytes from the client to `input`. Returns false at the end of the stream and when the server
    /// drains. A drain does not wait for the rest of an incomplete line.
    pub(super) async fn read_more(&mut self, input: &mut Buffer) -> io::Result<bool> {
        let filled = input.len();
        loop {
            match self.stream()?.try_read(&mut input.space()[filled..]) {
                Ok(bytes) => {
                    self.context.counters.commands.bytes_read.add(bytes as u64);
                    input.set_len(filled + bytes);
                    if bytes == 0 {
                        self.close_reason = CloseReason::Normal;
                    }
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait_readable().await? {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads and discards the bytes of a refused command.
    pub(super) async fn swallow(&mut self, mut bytes: u64) -> io::Result<()> {
        self.flush().await?;
        let mut pace = Pace::uncharged(&self.context);
        let mut scratch = self.context.values.pool().take_heap(INPUT_BYTES);
        while bytes > 0 {
            let wanted = (scratch.capacity() as u64).min(bytes) as usize;
            let read = self.read_paced(&mut scratch.space()[..wanted], &mut pace).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes -= read as u64;
        }
        Ok(())
    }

    /// Returns the number of bytes of answers since the last flush.
    pub(super) fn unwritten_bytes(&self) -> usize {
        match &self.transport {
            Transport::Stream(_) => self.out.len(),
            Transport::Memory { held_bytes, .. } => self.out.len().saturating_sub(*held_bytes),
        }
    }

    /// Flushes the answers. If this fails, ends the connection and returns false.
    pub(super) async fn flush_or_close(&mut self) -> bool {
        let is_written = self.flush().await.is_ok();
        if !is_written {
            self.cut_off();
        }
        is_written
    }

    /// Ends the connection behind an answer of which a part may have been written. Nothing is written any more.
    pub(super) fn cut_off(&mut self) {
        self.closing = true;
        self.is_cut_off = true;
        self.out.clear();
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.is_cut_off {
            self.out.clear();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.holds_answer {
            return Ok(());
        }
        let more = self.unwritten_bytes();
        if let Transport::Memory { reply_budget, held_bytes } = &mut self.transport {
            if more > 0 && !reply_budget(more).await {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            *held_bytes += more;
            return Ok(());
        }
        if let Some(client) = &self.client {
            client.spend_bytes(more);
        }
        let answered = self.answered.take();
        if let Some(at) = answered {
            self.note_command(at);
        }
        let since = (!self.out.is_empty()).then(|| answered.unwrap_or_else(Instant::now));
        let written = loop {
            let before = self.out.len();
            if before == 0 {
                break Ok(());
            }
            if before > OUT_BYTES_MAX {
                self.context.turns.take(before.min(CALL_BYTES_MAX)).await;
            }
            let Self { transport: Transport::Stream(stream), out, .. } = self else {
                break Ok(());
            };
            match out.write(|slices| stream.try_write(slices)) {
                Ok(left) => {
                    let written = (before - left) as u64;
                    self.context.counters.commands.bytes_written.add_unshared(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.set_state(State::Writes);
                    if let Err(error) = self.write_paced().await {
                        break Err(error);
                    }
                    self.set_state(State::Serves);
                }
                Err(error) => break Err(error),
            }
        };
        if (self.is_recorded && since.is_some()) || !self.unwritten.is_empty() {
            self.answers_are_written(since.or(answered).unwrap_or_else(Instant::now));
        }
        written?;
        if let Some(since) = since {
            self.context.counters.stages[Stage::Write as usize].record(since.elapsed().into());
        }
        Ok(())
    }
}

impl Session {
    /// Records the time of a command, for `stats conns`.
    pub(super) fn note_command(&self, at: Instant) {
        if let Some(connection) = &self.connection {
            connection.set_last_command(at);
        }
    }

    /// Tells watchers that this connection was opened or, with a reason, closed.
    fn tell_connection(&self, closed: Option<CloseReason>) {
        if let Some(connection) = &self.connection {
            let (address, descriptor) = (connection.address(), connection.descriptor());
            self.context.watchers.connection(&ConnectionEvent { address, descriptor, closed });
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Transport::Stream(Stream::Near(stream)) = &self.transport {
            near::count(&self.context, &**stream);
        }
        self.context.shutdown.leave(self.place);
        let is_error = self.close_reason == CloseReason::Error;
        if is_error && self.context.is_draining() {
            self.close_reason = CloseReason::Shutdown;
        }
        self.tell_connection(Some(self.close_reason));
        if let Some(connection) = &self.connection {
            self.context.connection_table.leave(connection);
        }
    }
}

/// The default size of a read buffer (bytes). A pipeline of a hundred small commands fits.
pub(super) const INPUT_BYTES: usize = 16 << 10;

/// The size of the read buffer if a long value is likely (bytes). It fits the command line and few bytes of
/// the value, which must be copied.
pub(super) const BEGINNING_BYTES: usize = units::limits::LINE_BYTES_MAX;

/// The largest size of a read buffer, for a long get line (bytes).
pub(super) const LONG_LINE_BYTES: usize = units::limits::GET_LINE_BYTES_MAX + INPUT_BYTES;

/// The number of bytes of replies after which they are written. A single value may exceed it. These bytes are
/// not charged to the budget.
pub(super) const OUT_BYTES_MAX: usize = 32 << 10;

const _: () = assert!(INPUT_BYTES > 2 * units::limits::LINE_BYTES_MAX);
