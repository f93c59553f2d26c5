//! One client's connection, from its first byte to its end. It holds a read buffer only while there are unread bytes,
//! so an idle connection costs its task and nothing else.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use device::Buffer;
use protocol::refusal;

use super::Session;
use super::execute::ReplyBudget;
use super::pace::Pace;
use crate::budget::Permit;
use crate::context::WorkerContext;
use crate::counters::Stage;
use crate::reply_buffer::CALL_BYTES_MAX;
use crate::stream::Stream;
use crate::worker::ListenerProtocol;

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Memcached);
    let mut session = Session::new(Transport::Stream(stream), Rc::clone(&context));
    if let Err(error) = session.run().await {
        tracing::debug!(%error, "connection ended");
    }
}

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
    /// The answers to a command given in memory stay in `out`. The budget has granted `held_bytes` of them.
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

    pub(super) async fn run(&mut self) -> io::Result<()> {
        while !self.closing {
            let mut input = self.context.values.pool().take_heap(self.read_bytes);
            let bytes = match self.stream()?.try_read(input.space()) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(input);
                    if self.wait_readable().await? { continue } else { break }
                }
                Err(error) => return Err(error),
            };
            self.context.counters.commands.bytes_read.add(bytes as u64);
            if bytes == input.capacity() {
                // The buffer is full of a long value, which sets the size again when it is served, or of input that
                // needs more space.
                self.read_bytes = INPUT_BYTES;
            }
            input.set_len(bytes);
            self.converse(input).await?;
        }
        self.flush().await
    }

    /// Waits for bytes. Returns false when the server drains and everything that had arrived before is answered, or
    /// when the client has been silent for too long. Like memcached, it closes no Unix socket because of silence.
    pub(super) async fn wait_readable(&mut self) -> io::Result<bool> {
        let is_tcp = matches!(self.transport, Transport::Stream(Stream::Tcp(_)));
        let Some(limit) = self.context.idle_timeout.filter(|_| is_tcp) else {
            return self.wait_for_bytes().await;
        };
        match tokio::time::timeout(limit, self.wait_for_bytes()).await {
            Ok(readable) => readable,
            Err(_) => {
                self.context.counters.commands.idle_kicks.up();
                Ok(false)
            }
        }
    }

    pub(super) async fn wait_for_bytes(&mut self) -> io::Result<bool> {
        let Self { context, transport: Transport::Stream(stream), place, .. } = self else {
            return Ok(false);
        };
        poll_fn(|task| {
            if context.is_draining() {
                return Poll::Ready(Ok(false));
            }
            context.shutdown.watch(place, task.waker());
            stream.poll_readable(task).map_ok(|()| true)
        })
        .await
    }

    /// Serves commands until no unread byte is left, and then returns the buffer to the pool.
    pub(super) async fn converse(&mut self, mut input: Buffer) -> io::Result<()> {
        let mut start = 0;
        let mut line: Option<(Permit, Pace)> = None;
        loop {
            let served = self.serve_buffered(&input, start).await?;
            if served > 0 {
                line = None;
            }
            start += served;
            self.flush().await?;
            if self.closing || start == input.len() {
                return Ok(());
            }
            let unread = input.len() - start;
            if unread > INPUT_BYTES / 2 && line.is_none() {
                // A long line holds more bytes than a connection may hold without a charge.
                let permit = self.context.admit(LONG_LINE_BYTES).await;
                line = permit.map(|permit| (permit, Pace::charged(&self.context)));
                if line.is_none() {
                    self.out.text().extend_from_slice(refusal::OUT_OF_MEMORY);
                    self.closing = true;
                    return Ok(());
                }
            }
            input = self.make_room(input, start);
            start = 0;
            let is_more = match &mut line {
                Some((_, pace)) => self.read_more_paced(&mut input, pace).await?,
                None => self.read_more(&mut input).await?,
            };
            if !is_more {
                self.closing = true;
                return Ok(());
            }
        }
    }

    /// Returns the unread bytes at the front of a buffer that has space behind them.
    pub(super) fn make_room(&self, input: Buffer, start: usize) -> Buffer {
        let unread = input.len() - start;
        let capacity = INPUT_BYTES.max(unread * 2).min(LONG_LINE_BYTES);
        let mut next = self.context.values.pool().take_heap(capacity);
        next.extend(&input[start..]);
        next
    }

    /// Appends bytes from the client to `input`. Returns false at the end of the stream and when the server drains: an
    /// incomplete line is not a request, so the drain does not wait for it.
    pub(super) async fn read_more(&mut self, input: &mut Buffer) -> io::Result<bool> {
        let filled = input.len();
        loop {
            match self.stream()?.try_read(&mut input.space()[filled..]) {
                Ok(bytes) => {
                    self.context.counters.commands.bytes_read.add(bytes as u64);
                    input.set_len(filled + bytes);
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

    /// Returns the bytes of answers since the last flush.
    pub(super) fn unwritten_bytes(&self) -> usize {
        match &self.transport {
            Transport::Stream(_) => self.out.len(),
            Transport::Memory { held_bytes, .. } => self.out.len().saturating_sub(*held_bytes),
        }
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let more = self.unwritten_bytes();
        if let Transport::Memory { reply_budget, held_bytes } = &mut self.transport {
            if more > 0 && !reply_budget(more).await {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            *held_bytes += more;
            return Ok(());
        }
        let answered = self.answered.take();
        let since = (!self.out.is_empty()).then(|| answered.unwrap_or_else(Instant::now));
        while !self.out.is_empty() {
            let before = self.out.len();
            if before > OUT_BYTES_MAX {
                self.context.turns.take(before.min(CALL_BYTES_MAX)).await;
            }
            let Self { transport: Transport::Stream(stream), out, .. } = self else {
                return Ok(());
            };
            match out.write(|slices| stream.try_write(slices)) {
                Ok(left) => {
                    self.context.counters.commands.bytes_written.add((before - left) as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.write_paced().await?;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(since) = since {
            self.context.counters.stages[Stage::Write as usize].record(since.elapsed().into());
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.context.shutdown.leave(self.place);
    }
}

/// The size of the read buffer of a connection with bytes to read. A pipeline of a hundred small commands fits.
pub(super) const INPUT_BYTES: usize = 16 << 10;

/// The size of the read buffer if a long value is likely to come. The buffer holds the value's line, and few bytes of
/// the value have to be copied out of it.
pub(super) const BEGINNING_BYTES: usize = units::limits::LINE_BYTES_MAX;

/// The size of the read buffer of a connection in the middle of a long get line.
pub(super) const LONG_LINE_BYTES: usize = units::limits::GET_LINE_BYTES_MAX + INPUT_BYTES;

/// The bytes of replies that are gathered before they are written. One value may exceed them. They are part of what a
/// connection may hold uncharged.
pub(super) const OUT_BYTES_MAX: usize = 32 << 10;

const _: () = assert!(INPUT_BYTES > 2 * units::limits::LINE_BYTES_MAX);
