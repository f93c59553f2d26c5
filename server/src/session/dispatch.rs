//! Passes each command to the code that serves it, and answers refused lines.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use bytes::Bytes;
use device::Buffer;
use protocol::command::{AdminVerb, Command, Store};
use protocol::{MetaKey, Parse, Refusal, refusal};

use super::connection::{BEGINNING_BYTES, INPUT_BYTES};
use super::pipeline::{Issued, Load, Pending};
use super::{Session, edit};
use crate::access::{command_name, first_key};
use crate::backend::{Backend, Failure, GetIssue};
use crate::connection_table::State;
use crate::counters::CommandKind;
use crate::errors::{self, ErrorKind, FailedCommand};
use crate::upstream::Traffic;
use crate::values::Body;

/// The next step of a session.
pub(super) enum Step {
    /// The session continues after this many bytes.
    Consumed(usize),
    /// The value of a command has not arrived completely. It must be read into a separate buffer.
    NeedsBody { line_bytes: usize, body_bytes: usize },
    /// The session must read more bytes.
    Incomplete,
}

/// A protocol of clients. A connection speaks one from its first byte to its end, so that no command has to ask which.
pub(super) trait Wire {
    /// Serves the command at the front of `input`.
    async fn serve_one<'a>(
        session: &mut Session,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step;

    /// Serves the storage command at the front of `input` with its value, which was read into a separate buffer.
    /// Refuses it if there is no value, because there was no memory for it.
    async fn serve_read(session: &mut Session, input: &[u8], value: Option<Buffer>);
}

/// The text and meta commands.
pub(super) struct Lines;

impl Wire for Lines {
    async fn serve_one<'a>(
        session: &mut Session,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step {
        session.serve_line(input, pending).await
    }

    async fn serve_read(session: &mut Session, input: &[u8], value: Option<Buffer>) {
        let limits = session.context.limits;
        if let Parse::Command { command, .. } = protocol::parse(input, &limits) {
            match value {
                Some(body) => session.serve_body(command, Body::Pooled(body)).await,
                None => session.refuse_body(&command).await,
            }
        }
    }
}

impl Session {
    /// Serves the complete commands of `input` from `start`. Returns the number of bytes consumed.
    pub(super) async fn serve_buffered<W: Wire>(
        &mut self,
        input: &Buffer,
        start: usize,
    ) -> io::Result<usize> {
        let (done, step) = self.serve_batch::<W>(&input[start..]).await?;
        let Step::NeedsBody { line_bytes, body_bytes } = step else { return Ok(done) };
        self.note_command(Instant::now());
        if line_bytes + body_bytes > INPUT_BYTES {
            self.read_bytes = BEGINNING_BYTES;
        }
        let line = start + done;
        // The client may wait for earlier answers before it sends the value.
        self.flush().await?;
        let Some((body, _permit)) = self.read_body(&input[line + line_bytes..], body_bytes).await?
        else {
            self.closing = true;
            return Ok(done);
        };
        self.set_state(State::Serves);
        W::serve_read(self, &input[line..], body).await;
        // All bytes after the line were part of the value.
        Ok(input.len() - start)
    }

    async fn serve_line<'a>(
        &mut self,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step {
        let parsed = protocol::parse(input, &self.context.limits);
        if self.client.is_some()
            && let Some(step) = Box::pin(self.guard(input, &parsed, pending)).await
        {
            return step;
        }
        self.yield_periodically().await;
        match parsed {
            Parse::Incomplete => Step::Incomplete,
            Parse::Refused { refusal, consumed } => {
                self.settle_all(pending).await;
                self.context.counters.commands.bad_lines.up();
                self.answer_refusal(refusal, consumed, input).await
            }
            Parse::Command { command, consumed } => match command.body_bytes() {
                None => {
                    self.is_last = consumed == input.len();
                    self.serve_without_body(command, pending).await;
                    Step::Consumed(consumed)
                }
                Some(body_bytes) if input.len() - consumed < body_bytes => {
                    Step::NeedsBody { line_bytes: consumed, body_bytes }
                }
                Some(body_bytes) => {
                    let body = &input[consumed..consumed + body_bytes];
                    self.is_last = consumed + body_bytes == input.len();
                    self.store_in_order(command, body, pending).await;
                    Step::Consumed(consumed + body_bytes)
                }
            },
        }
    }

    /// Skips `swallow` bytes of a refused command: those that are in `rest`, behind `consumed` bytes, and those that
    /// the client has yet to send.
    pub(super) async fn skip(&mut self, rest: &[u8], consumed: usize, swallow: u64) -> Step {
        let here = (rest.len() as u64).min(swallow);
        if here < swallow && !self.closing && self.swallow(swallow - here).await.is_err() {
            self.closing = true;
        }
        Step::Consumed(consumed + here as usize)
    }

    /// Serves a storage command whose value is in the read buffer. A plain one is issued without waiting.
    pub(super) async fn store_in_order<'a>(
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
        let since = self.turned();
        self.observe(since, || (store.verb.name(), store.key.bytes()));
        let load = Load::new(&command, value.len());
        let traffic = match self.admit(&command, load, pending.is_empty()) {
            Some(traffic) => traffic,
            None => self.admit_after(&command, load, pending).await,
        };
        let issue = self.issue_store(store, Body::Slice(value), traffic).await;
        // As in `push`, but nothing of the command is moved.
        if pending.is_empty() && issue.is_ready() {
            (self.answered, self.command) = (None, FailedCommand::Set);
            self.settle_store(issue, store).await;
            return self.record(CommandKind::Set, since);
        }
        let issued = Issued::Store { issue, store: *store };
        let next = self.pending(since, issued);
        self.push(next, pending).await;
    }

    /// Checks and removes the CR LF at the end of the value, and serves the command.
    pub(super) async fn serve_body(&mut self, command: Command<'_>, body: Body<'_>) {
        if !body.as_slice().ends_with(b"\r\n") {
            let silent = matches!(&command, Command::Store(store) if store.noreply);
            self.context.counters.commands.bad_lines.up();
            if !silent {
                self.count_refusal(FailedCommand::from(&command));
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

    pub(super) async fn serve_value(&mut self, command: Command<'_>, value: Body<'_>) {
        let since = self.turned();
        self.observe(since, || named(&command));
        self.answered = None;
        self.command = FailedCommand::from(&command);
        match command {
            Command::Store(store) => self.store(&store, value).await,
            Command::MetaSet(set) => self.meta_set(&set, value).await,
            _ => unreachable!("only storage commands have a body"),
        }
        self.record(CommandKind::Set, since);
    }

    pub(super) async fn serve_without_body<'a>(
        &mut self,
        command: Command<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        let since = self.turned();
        self.observe(since, || named(&command));
        self.note_lookups(&command);
        if pending.is_empty() && self.serve_from_memory(&command, since).await {
            return;
        }
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
            Command::Delete { key, noreply } => self.issue_delete(key, noreply, traffic),
            Command::Touch { key, exptime_s, noreply } => {
                let issue = self.context.backend.touch(key, exptime_s, traffic);
                Issued::Touch { issue, noreply }
            }
            Command::MetaGet(meta) => {
                let issue = self.issue_meta_get(&meta, traffic, None);
                Issued::MetaGet(meta, issue)
            }
            _ => unreachable!("a command that is served alone"),
        };
        let next = self.pending(since, issued);
        self.push(next, pending).await;
    }

    /// Serves a get of one item of the embedded store. Returns false for other commands. The answer is ready at once,
    /// so nothing is kept of the command until then.
    async fn serve_from_memory(&mut self, command: &Command<'_>, since: Instant) -> bool {
        let Backend::Local(local) = &self.context.backend else { return false };
        match command {
            Command::Get(get) if get.keys.is_one() => {
                let issue = GetIssue::Local(local.clone());
                (self.answered, self.command) = (None, FailedCommand::from(command));
                self.reply_get(get, issue).await;
            }
            Command::MetaGet(meta) => {
                (self.answered, self.command) = (None, FailedCommand::MetaGet);
                let issue = self.issue_meta_get(meta, Traffic::Interactive, None);
                self.reply_meta_get(meta, issue).await;
            }
            _ => return false,
        }
        self.record(CommandKind::Get, since);
        true
    }

    /// Serves a command that runs after all earlier commands and before all later ones.
    pub(super) async fn serve_alone(&mut self, command: Command<'_>, since: Instant) {
        self.answered = None;
        self.command = FailedCommand::from(&command);
        match command {
            Command::Get(get) => {
                self.get_many(get).await;
                return self.record(CommandKind::Get, since);
            }
            Command::Arithmetic(arithmetic) => self.arithmetic(&arithmetic).await,
            Command::MetaDelete(meta) => self.meta_delete(&meta).await,
            Command::MetaArithmetic(arithmetic) => self.meta_arithmetic(&arithmetic).await,
            Command::MetaDebug { key } => self.meta_debug(&key).await,
            // The time for which a client watches is no duration of a command.
            Command::Admin(admin) if admin.verb == AdminVerb::Watch => {
                self.audit(&command);
                self.suspend_timeline();
                return Box::pin(self.watch(&admin)).await;
            }
            other => {
                self.audit(&other);
                self.inform(other).await;
            }
        }
        self.record(CommandKind::Other, since);
    }

    /// Refuses the command whose line has the first `consumed` bytes of `input`, and discards its value.
    pub(super) async fn answer_refusal(
        &mut self,
        refusal: Refusal<'_>,
        consumed: usize,
        input: &[u8],
    ) -> Step {
        let swallow = refusal.swallow_bytes;
        self.refuse(refusal).await;
        self.skip(&input[consumed..], consumed, swallow).await
    }

    pub(super) async fn refuse(&mut self, refusal: Refusal<'_>) {
        if refusal.reply == refusal::TOO_LARGE {
            self.context.counters.commands.store_too_large.up();
        }
        let mut kept = None;
        if let Some(key) = &refusal.unlink {
            self.note_too_large(key);
            if let Ok(key) = MetaKey::new(key) {
                kept = self.unlink(key).await.err();
            }
        }
        if let Some(failure) = kept {
            self.command = FailedCommand::Set;
            self.fail(failure, refusal.silent);
        } else if !refusal.silent {
            self.count_refusal(FailedCommand::Other);
            self.out.text().extend_from_slice(refusal.reply);
        }
        self.closing |= refusal.close;
    }

    /// Yields to other sessions of this core after a number of commands.
    pub(super) async fn yield_periodically(&mut self) {
        self.served += 1;
        if self.served > self.context.requests_per_turn {
            // This command is the first of the next turn.
            self.served = 1;
            self.context.counters.commands.conn_yields.up();
            tokio::task::yield_now().await;
            // The others' turns are not time of this command.
            self.answered = None;
        }
    }

    /// Counts an error answer that the client's request has caused.
    #[cold]
    pub(super) fn count_refusal(&self, command: FailedCommand) {
        self.context.counters.errors.up(command, ErrorKind::Client);
    }

    /// Appends an error line, unless `noreply` is set, because the client would take it for another reply. As
    /// in memcached, out-of-memory errors are reported even then.
    pub(super) fn fail(&mut self, failure: Failure, noreply: bool) {
        use std::io::Write;
        self.count_failure(&failure);
        if !noreply || matches!(failure, Failure::OutOfMemory) {
            let text = self.out.text();
            let _ = write!(text, "{failure}\r\n");
        }
    }

    pub(super) fn count_failure(&self, failure: &Failure) {
        errors::count(&self.context.counters.errors, self.command, failure);
        match failure {
            Failure::OutOfMemory | Failure::OverBudget(_) => {
                self.context.counters.commands.store_no_memory.up();
            }
            // The link has already counted this failure.
            Failure::Link(_) => {}
            Failure::Line(_) => self.context.counters.commands.upstream_errors.up(),
        }
    }

    pub(super) fn value(&mut self, value: Bytes) {
        self.out.value(value);
        self.out.text().extend_from_slice(b"\r\n");
    }
}

impl From<&Command<'_>> for FailedCommand {
    fn from(command: &Command<'_>) -> Self {
        match command {
            Command::Get(get) if get.touch_exptime_s.is_some() => FailedCommand::Gat,
            Command::Get(_) => FailedCommand::Get,
            Command::Store(_) => FailedCommand::Set,
            Command::Delete { .. } => FailedCommand::Delete,
            Command::Touch { .. } => FailedCommand::Touch,
            Command::Arithmetic(_) => FailedCommand::Incr,
            Command::MetaGet(_) => FailedCommand::MetaGet,
            Command::MetaSet(_) => FailedCommand::MetaSet,
            Command::MetaDelete(_) => FailedCommand::MetaDelete,
            Command::MetaArithmetic(_) => FailedCommand::MetaArithmetic,
            Command::MetaDebug { .. } => FailedCommand::MetaDebug,
            Command::FlushAll { .. } => FailedCommand::FlushAll,
            _ => FailedCommand::Other,
        }
    }
}

/// Returns the name of a command and its first key.
fn named(command: &Command<'_>) -> (&'static str, Vec<u8>) {
    (command_name(command), first_key(command))
}

/// Returns the storage command if it may be in flight together with others.
fn plain_store<'c, 'k>(command: &'c Command<'k>) -> Option<&'c Store<'k>> {
    match command {
        Command::Store(store) if !edit::needs_old_value(store.verb) => Some(store),
        _ => None,
    }
}
