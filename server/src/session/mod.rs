//! One client's connection: bytes in, commands in order, replies out. A session holds a read buffer only while it has
//! unread bytes, so an idle connection costs its task and nothing else. The files next to this one implement the
//! commands.

mod budget;
mod classic;
mod dump;
mod edit;
mod execute;
mod info;
mod meta;
mod order;
mod pace;
mod window;

pub(crate) use edit::Edits;
pub(crate) use execute::{NoAnswer, ReplyBudget, execute};

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use device::Buffer;
use protocol::command::{Command, Get, Keys, Store};
use protocol::meta::Meta;
use protocol::{Key, Parse, Refusal, refusal};

use crate::backend::{Failure, GetIssue, Issue, MetaItem, Outcome, Written};
use crate::budget::Permit;
use crate::context::WorkerContext;
use crate::counters::{CommandKind, Stage};
use crate::long_keys::LONG_BYTES;
use crate::reply_buffer::{CALL_BYTES_MAX, ReplyBuffer};
use crate::stream::Stream;
use crate::upstream::Traffic;
use crate::values::Body;
use crate::worker::ListenerProtocol;
use order::UnderWay;
use pace::Pace;
use window::Window;

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Memcached);
    let mut session = Session::new(Transport::Stream(stream), Rc::clone(&context));
    if let Err(error) = session.run().await {
        tracing::debug!(%error, "connection ended");
    }
}

/// Counts a connection for as long as it lives, however it ends.
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

pub(crate) struct Session {
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

/// The destination of answers.
enum Transport {
    Stream(Stream),
    /// The answers to a command given in memory stay in `out`. `held_bytes` of them have been granted by the budget.
    Memory {
        reply_budget: ReplyBudget,
        held_bytes: usize,
    },
}

/// A command that was issued and whose reply is still to be written; replies keep the commands' order.
struct Pending<'a> {
    since: Instant,
    issued: Issued<'a>,
}

enum Issued<'a> {
    Get(Get<'a>, GetIssue),
    Store {
        issue: Issue<Outcome<Written>>,
        is_cas: bool,
        noreply: bool,
        /// The key of an add.
        added: Option<Key<'a>>,
    },
    Delete {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
    },
    Touch {
        issue: Issue<Outcome<bool>>,
        noreply: bool,
    },
    MetaGet(Meta<'a>, Issue<Option<MetaItem>>),
}

/// The load that a command puts on the connection to a store.
#[derive(Clone, Copy)]
struct Load {
    /// Keys whose values are asked for.
    keys: usize,
    /// The bytes of a request that asks for no value.
    request_bytes: usize,
}

impl Load {
    fn new(command: &Command<'_>, value_bytes: usize) -> Self {
        let keys = match command {
            Command::Get(get) if !get.keys.is_one() => get.keys.count(),
            Command::Get(_) | Command::MetaGet(_) => 1,
            Command::Store(_) => return Self { keys: 0, request_bytes: value_bytes },
            _ => return Self { keys: 0, request_bytes: LINE_BYTES },
        };
        Self { keys, request_bytes: 0 }
    }
}

/// The next step of a session.
enum Step {
    /// Go on behind this many bytes.
    Consumed(usize),
    /// A command's value is not here yet: it is read into a buffer of its own.
    NeedsBody { line_bytes: usize, body_bytes: usize },
    /// Read more.
    Incomplete,
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

    fn stream(&self) -> io::Result<&Stream> {
        match &self.transport {
            Transport::Stream(stream) => Ok(stream),
            Transport::Memory { .. } => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    async fn run(&mut self) -> io::Result<()> {
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
                // A long value filled it, which sets its size where it is served, or input that needs more room.
                self.read_bytes = INPUT_BYTES;
            }
            input.set_len(bytes);
            self.converse(input).await?;
        }
        self.flush().await
    }

    /// Waits for bytes; false when the server drains, and all that had arrived before is answered, or when the client
    /// has been silent for too long. As memcached, which closes no Unix socket for that.
    async fn wait_readable(&mut self) -> io::Result<bool> {
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

    async fn wait_for_bytes(&mut self) -> io::Result<bool> {
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

    /// Serves commands until no unread byte is left, then gives the buffer back.
    async fn converse(&mut self, mut input: Buffer) -> io::Result<()> {
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
                // A long line holds more than a connection may without being counted.
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

    /// Serves the whole commands of the input from `start`; answers how many bytes are done with.
    async fn serve_buffered(&mut self, input: &Buffer, start: usize) -> io::Result<usize> {
        let (done, step) = self.serve_batch(&input[start..]).await?;
        let Step::NeedsBody { line_bytes, body_bytes } = step else { return Ok(done) };
        if line_bytes + body_bytes > INPUT_BYTES {
            self.read_bytes = BEGINNING_BYTES;
        }
        let line = start + done;
        // The client may wait for the answers to what it sent before this value.
        self.flush().await?;
        let Some((body, _permit)) = self.read_body(&input[line + line_bytes..], body_bytes).await?
        else {
            self.closing = true;
            return Ok(done);
        };
        if let Parse::Command { command, .. } =
            protocol::parse(&input[line..], &self.context.limits)
        {
            match body {
                Some(body) => self.serve_body(command, Body::Pooled(body)).await,
                None => self.refuse_body(&command).await,
            }
        }
        // All bytes in the buffer behind the line were the value's.
        Ok(input.len() - start)
    }

    /// Issues commands as they come and settles them in order.
    async fn serve_batch(&mut self, input: &[u8]) -> io::Result<(usize, Step)> {
        let mut pending: VecDeque<Pending<'_>> = VecDeque::new();
        let mut position = 0;
        let step = loop {
            if position == input.len() || self.closing {
                break Step::Consumed(position);
            }
            match self.serve_one(&input[position..], &mut pending).await {
                Step::Consumed(bytes) => position += bytes,
                other => break other,
            }
            if pending.len() >= self.pending_max() || self.out.len() >= OUT_BYTES_MAX {
                self.settle_all(&mut pending).await;
                self.flush().await?;
            }
        };
        self.settle_all(&mut pending).await;
        Ok((position, step))
    }

    /// Returns how many requests may be under way. When slow clients have used up the worker's budget by not taking
    /// answers, it is one at a time: then one connection can make us hold one value.
    fn pending_max(&self) -> usize {
        if self.context.is_short_of_memory() { 1 } else { PENDING_MAX }
    }

    async fn serve_one<'a>(
        &mut self,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step {
        if std::mem::take(&mut self.first_bytes)
            && let Some(refusal) = protocol::refuse_binary(input)
        {
            self.refuse(refusal).await;
            return Step::Consumed(input.len());
        }
        self.yield_sometimes().await;
        match protocol::parse(input, &self.context.limits) {
            Parse::Incomplete => Step::Incomplete,
            Parse::Refused { refusal, consumed } => {
                self.settle_all(pending).await;
                self.context.counters.commands.bad_lines.up();
                let swallow = refusal.swallow_bytes;
                self.refuse(refusal).await;
                let here = ((input.len() - consumed) as u64).min(swallow);
                if here < swallow && !self.closing && self.swallow(swallow - here).await.is_err() {
                    self.closing = true;
                }
                Step::Consumed(consumed + here as usize)
            }
            Parse::Command { command, consumed } => match command.body_bytes() {
                None => {
                    self.serve_without_body(command, pending).await;
                    Step::Consumed(consumed)
                }
                Some(body_bytes) if input.len() - consumed < body_bytes => {
                    Step::NeedsBody { line_bytes: consumed, body_bytes }
                }
                Some(body_bytes) => {
                    let body = &input[consumed..consumed + body_bytes];
                    self.store_in_order(command, body, pending).await;
                    Step::Consumed(consumed + body_bytes)
                }
            },
        }
    }

    /// A storage command whose value is in the read buffer; plain ones are issued without waiting.
    async fn store_in_order<'a>(
        &mut self,
        command: Command<'a>,
        body: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        let value = body.strip_suffix(b"\r\n");
        let Some((store, value)) = plain_store(&command).zip(value) else {
            self.settle_all(pending).await;
            return self.serve_body(command, Body::Slice(body)).await;
        };
        let since = Instant::now();
        let load = Load::new(&command, value.len());
        let traffic = match self.admit(&command, load, pending.is_empty()) {
            Some(traffic) => traffic,
            None => self.admit_after(&command, load, pending).await,
        };
        let issued = self.issue_store(store, Body::Slice(value), traffic).await;
        self.push(Pending { since, issued }, pending).await;
    }

    /// Checks the value's end, takes it off and serves the command.
    async fn serve_body(&mut self, command: Command<'_>, body: Body<'_>) {
        if !body.as_slice().ends_with(b"\r\n") {
            let silent = matches!(&command, Command::Store(store) if store.noreply);
            self.context.counters.commands.bad_lines.up();
            if !silent {
                self.out.text().extend_from_slice(refusal::BAD_DATA_CHUNK);
            }
            return;
        }
        let value = match body {
            Body::Slice(bytes) => Body::Slice(&bytes[..bytes.len() - 2]),
            Body::Pooled(mut buffer) => {
                let value_bytes = buffer.len() - 2;
                buffer.set_len(value_bytes);
                Body::Pooled(buffer)
            }
            Body::Shared(bytes) => Body::Shared(bytes.slice(..bytes.len() - 2)),
        };
        self.serve_value(command, value).await;
    }

    async fn serve_value(&mut self, command: Command<'_>, value: Body<'_>) {
        let since = Instant::now();
        self.answered = None;
        match command {
            Command::Store(store) => self.store(&store, value).await,
            Command::MetaSet(set) => self.meta_set(&set, value).await,
            _ => unreachable!("only storage commands have a body"),
        }
        self.record(CommandKind::Set, since);
    }

    async fn serve_without_body<'a>(
        &mut self,
        command: Command<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        let since = Instant::now();
        let load = Load::new(&command, 0);
        let is_alone = match &command {
            Command::Get(get) => load.keys > 1 && load.keys > self.keys_at_once(get.keys),
            Command::Delete { .. } | Command::Touch { .. } | Command::MetaGet(_) => false,
            _ => true,
        };
        if is_alone {
            self.settle_all(pending).await;
            return self.serve_alone(command, since).await;
        }
        let traffic = match self.admit(&command, load, pending.is_empty()) {
            Some(traffic) => traffic,
            None => self.admit_after(&command, load, pending).await,
        };
        let issued = match command {
            Command::Get(get) => self.issue_get(get, traffic),
            Command::Delete { key, noreply } => {
                Issued::Delete { issue: self.context.backend.delete(key, traffic), noreply }
            }
            Command::Touch { key, exptime_s, noreply } => {
                let issue = self.context.backend.touch(key, exptime_s, traffic);
                Issued::Touch { issue, noreply }
            }
            Command::MetaGet(meta) => self.issue_meta_get(meta, traffic),
            _ => unreachable!("a command that is served alone"),
        };
        self.push(Pending { since, issued }, pending).await;
    }

    /// Commands that wait for all before them and keep all behind them waiting.
    async fn serve_alone(&mut self, command: Command<'_>, since: Instant) {
        self.answered = None;
        match command {
            Command::Get(get) => {
                self.get_many(get).await;
                return self.record(CommandKind::Get, since);
            }
            Command::Arithmetic(arithmetic) => self.arithmetic(&arithmetic).await,
            Command::MetaDelete(meta) => self.meta_delete(&meta).await,
            Command::MetaArithmetic(arithmetic) => self.meta_arithmetic(&arithmetic).await,
            Command::MetaDebug { key } => self.meta_debug(&key).await,
            other => self.inform(other).await,
        }
        self.record(CommandKind::Other, since);
    }

    /// Settles at once what is ready and has nothing before it; else it waits its turn.
    async fn push<'a>(&mut self, next: Pending<'a>, pending: &mut VecDeque<Pending<'a>>) {
        if pending.is_empty() && next.issued.is_ready() {
            self.settle_one(next).await;
        } else {
            pending.push_back(next);
        }
    }

    async fn settle_all(&mut self, pending: &mut VecDeque<Pending<'_>>) {
        while let Some(next) = pending.pop_front() {
            self.settle_one(next).await;
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.clear();
        }
    }

    /// Returns the connection to the stores for a command. None means that everything under way has to be settled
    /// first, because it must take effect first or because there is no room beside it.
    fn admit(
        &mut self,
        command: &Command<'_>,
        Load { keys, request_bytes }: Load,
        nothing_under_way: bool,
    ) -> Option<Traffic> {
        let traffic = match &mut self.window {
            None => Traffic::Interactive,
            Some(window) => {
                let long_bytes = match command {
                    Command::Get(get) => self.context.long_bytes(get.keys.map(Key::bytes)),
                    Command::MetaGet(meta) => self.context.long_bytes([meta.key.bytes()]),
                    _ => 0,
                };
                let request_bytes = request_bytes + long_bytes;
                window.admit(
                    keys,
                    request_bytes,
                    nothing_under_way,
                    &self.context.interactive_load,
                )?
            }
        };
        let is_in_order = match &mut self.under_way {
            Some(under_way) => under_way.add_command(command),
            None => true,
        };
        is_in_order.then_some(traffic)
    }

    /// Does the same as `admit`, with everything under way settled first.
    #[cold]
    async fn admit_after(
        &mut self,
        command: &Command<'_>,
        load: Load,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Traffic {
        self.settle_all(pending).await;
        self.admit(command, load, true).unwrap_or(Traffic::Bulk)
    }

    /// Returns the connection to the stores for a request that has nothing beside it. The request asks for the values
    /// of `keys` and sends this many bytes.
    fn traffic_alone(&mut self, keys: usize, request_bytes: usize) -> Traffic {
        let window = self.window.as_mut();
        let load = &self.context.interactive_load;
        window.map_or(Traffic::Interactive, |window| window.alone(keys, request_bytes, load))
    }

    /// Notes that an answer came for `keys`, with values of this many bytes.
    fn learn(&mut self, keys: usize, bytes: usize) {
        if let Some(window) = &mut self.window {
            window.learn(keys, bytes, &self.context.interactive_load);
        }
    }

    /// Notes how long the value of a key is, where there are links to stores.
    #[inline]
    fn note_length(&self, key: &[u8], value_bytes: usize) {
        let known = &self.context.long_keys;
        if self.window.is_some() && (value_bytes >= LONG_BYTES || !known.is_empty()) {
            known.note(key, value_bytes);
        }
    }

    /// Returns how many of the next keys of a get may be asked for at once: few where the value of one of them is known
    /// to be long.
    fn keys_at_once(&self, keys: Keys<'_>) -> usize {
        let Some(window) = &self.window else { return classic::KEYS_AT_ONCE };
        let keys_max = window.keys_max();
        let next = keys.split_at(keys_max).0.map(Key::bytes);
        let is_long = self.context.long_keys.contains_any(next);
        if is_long { keys_max.min(LONG_AT_ONCE) } else { keys_max }
    }

    async fn settle_one(&mut self, pending: Pending<'_>) {
        self.answered = None;
        let kind = pending.issued.kind();
        self.settle(pending.issued).await;
        self.record(kind, pending.since);
    }

    fn record(&mut self, kind: CommandKind, since: Instant) {
        let now = Instant::now();
        self.context.counters.durations[kind as usize].record(now.duration_since(since).into());
        self.answered = Some(now);
    }

    async fn refuse(&mut self, refusal: Refusal<'_>) {
        if refusal.reply == refusal::TOO_LARGE {
            self.context.counters.commands.store_too_large.up();
        }
        if let Some(key) = &refusal.unlink {
            self.unlink(key).await;
        }
        if !refusal.silent {
            self.out.text().extend_from_slice(refusal.reply);
        }
        self.closing |= refusal.close;
    }

    /// Gives other sessions of this core their turn after a number of commands.
    async fn yield_sometimes(&mut self) {
        self.served += 1;
        if self.served > self.context.requests_per_turn {
            self.served = 0;
            self.context.counters.commands.conn_yields.up();
            tokio::task::yield_now().await;
        }
    }

    /// Appends an error line, unless `noreply`: a client that expects none would take it for the reply to something
    /// else. memcached tells of a lack of memory even then.
    fn fail(&mut self, failure: Failure, noreply: bool) {
        use std::io::Write;
        match &failure {
            Failure::OutOfMemory | Failure::NoRoom(_) => {
                self.context.counters.commands.store_no_memory.up();
            }
            // A server that could not be asked is counted by its link, once for each request.
            Failure::Link(_) => {}
            Failure::Line(_) => self.context.counters.commands.upstream_errors.up(),
        }
        if !noreply || matches!(failure, Failure::OutOfMemory) {
            let text = self.out.text();
            let _ = write!(text, "{failure}\r\n");
        }
    }

    fn value(&mut self, value: Bytes) {
        self.out.value(value);
        self.out.text().extend_from_slice(b"\r\n");
    }

    // Reading and writing.

    /// Returns unread bytes at the front of a buffer with room behind them.
    fn make_room(&self, input: Buffer, start: usize) -> Buffer {
        let unread = input.len() - start;
        let capacity = INPUT_BYTES.max(unread * 2).min(LONG_LINE_BYTES);
        let mut next = self.context.values.pool().take_heap(capacity);
        next.extend(&input[start..]);
        next
    }

    /// Reads behind what is there; false at the end of the stream, or when the server drains: a line that is still open
    /// then is no request yet.
    async fn read_more(&mut self, input: &mut Buffer) -> io::Result<bool> {
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

    /// Reads and drops what belongs to a refused command.
    async fn swallow(&mut self, mut bytes: u64) -> io::Result<()> {
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

    /// Answers gathered since the last flush.
    fn gathered_bytes(&self) -> usize {
        match &self.transport {
            Transport::Stream(_) => self.out.len(),
            Transport::Memory { held_bytes, .. } => self.out.len().saturating_sub(*held_bytes),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let more = self.gathered_bytes();
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

/// A storage command that may be under way with others.
fn plain_store<'c, 'k>(command: &'c Command<'k>) -> Option<&'c Store<'k>> {
    match command {
        Command::Store(store) if !edit::needs_old_value(store.verb) => Some(store),
        _ => None,
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.context.shutdown.leave(self.place);
    }
}

impl Issued<'_> {
    const fn is_ready(&self) -> bool {
        match self {
            Issued::Get(_, issue) => matches!(issue, GetIssue::Here(_)),
            Issued::Store { issue, .. } => matches!(issue, Issue::Ready(_)),
            Issued::Delete { issue, .. } | Issued::Touch { issue, .. } => {
                matches!(issue, Issue::Ready(_))
            }
            Issued::MetaGet(_, issue) => matches!(issue, Issue::Ready(_)),
        }
    }

    const fn kind(&self) -> CommandKind {
        match self {
            Issued::Get(..) | Issued::MetaGet(..) => CommandKind::Get,
            Issued::Store { .. } => CommandKind::Set,
            Issued::Delete { .. } | Issued::Touch { .. } => CommandKind::Other,
        }
    }
}

/// The read buffer of a connection with bytes to read: a pipeline of a hundred small commands fits.
const INPUT_BYTES: usize = 16 << 10;

/// The same where a long value is likely to come: enough for its line, and little of it to copy.
const BEGINNING_BYTES: usize = units::limits::LINE_BYTES_MAX;

/// The read buffer of a connection in the middle of a long get line.
const LONG_LINE_BYTES: usize = units::limits::GET_LINE_BYTES_MAX + INPUT_BYTES;

/// Keys of one get that are asked for at once where one of them has a long value.
const LONG_AT_ONCE: usize = 4;

/// Requests of one connection under way to the store at once.
const PENDING_MAX: usize = 64;

/// Replies gathered before they are written; a value may go beyond. It is part of what a connection may hold uncharged.
const OUT_BYTES_MAX: usize = 32 << 10;

/// A request without a value, and its answer.
const LINE_BYTES: usize = 256;

const _: () = assert!(INPUT_BYTES > 2 * units::limits::LINE_BYTES_MAX);
