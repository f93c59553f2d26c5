//! Passes each command to the code that serves it, and answers each refused line.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use bytes::Bytes;
use device::Buffer;
use protocol::command::{Command, Store};
use protocol::{Parse, Refusal, refusal};

use super::connection::{BEGINNING_BYTES, INPUT_BYTES};
use super::pipeline::{Issued, Load, Pending};
use super::{Session, edit};
use crate::backend::Failure;
use crate::counters::CommandKind;
use crate::values::Body;

/// The next step of a session.
pub(super) enum Step {
    /// Continue behind this many bytes.
    Consumed(usize),
    /// A command's value has not come yet. It is read into a separate buffer.
    NeedsBody { line_bytes: usize, body_bytes: usize },
    /// Read more.
    Incomplete,
}

impl Session {
    /// Serves the complete commands of the input from `start`. Returns the number of bytes that are done.
    pub(super) async fn serve_buffered(
        &mut self,
        input: &Buffer,
        start: usize,
    ) -> io::Result<usize> {
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
        // All bytes in the buffer behind the line belonged to the value.
        Ok(input.len() - start)
    }

    pub(super) async fn serve_one<'a>(
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

    /// Serves a storage command whose value is in the read buffer. Plain commands are issued without waiting.
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
        let since = Instant::now();
        let load = Load::new(&command, value.len());
        let traffic = match self.admit(&command, load, pending.is_empty()) {
            Some(traffic) => traffic,
            None => self.admit_after(&command, load, pending).await,
        };
        let issued = self.issue_store(store, Body::Slice(value), traffic).await;
        self.push(Pending { since, issued }, pending).await;
    }

    /// Checks the value's end, removes it and serves the command.
    pub(super) async fn serve_body(&mut self, command: Command<'_>, body: Body<'_>) {
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

    pub(super) async fn serve_value(&mut self, command: Command<'_>, value: Body<'_>) {
        let since = Instant::now();
        self.answered = None;
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

    /// Serves a command that waits for all commands before it and delays all commands behind it.
    pub(super) async fn serve_alone(&mut self, command: Command<'_>, since: Instant) {
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

    pub(super) async fn refuse(&mut self, refusal: Refusal<'_>) {
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

    /// Lets other sessions of this core have their turn after a number of commands.
    pub(super) async fn yield_sometimes(&mut self) {
        self.served += 1;
        if self.served > self.context.requests_per_turn {
            self.served = 0;
            self.context.counters.commands.conn_yields.up();
            tokio::task::yield_now().await;
        }
    }

    /// Appends an error line, unless `noreply` is set: a client that expects no line would take it for the reply to
    /// another command. A lack of memory is reported even then, as memcached does.
    pub(super) fn fail(&mut self, failure: Failure, noreply: bool) {
        use std::io::Write;
        match &failure {
            Failure::OutOfMemory | Failure::NoRoom(_) => {
                self.context.counters.commands.store_no_memory.up();
            }
            // A link has counted its server's failure, once for each request.
            Failure::Link(_) => {}
            Failure::Line(_) => self.context.counters.commands.upstream_errors.up(),
        }
        if !noreply || matches!(failure, Failure::OutOfMemory) {
            let text = self.out.text();
            let _ = write!(text, "{failure}\r\n");
        }
    }

    pub(super) fn value(&mut self, value: Bytes) {
        self.out.value(value);
        self.out.text().extend_from_slice(b"\r\n");
    }
}

/// Returns the storage command if it may be in flight with others.
fn plain_store<'c, 'k>(command: &'c Command<'k>) -> Option<&'c Store<'k>> {
    match command {
        Command::Store(store) if !edit::needs_old_value(store.verb) => Some(store),
        _ => None,
    }
}
