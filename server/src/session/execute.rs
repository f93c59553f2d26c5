//! Executes one command in memory, such as from a gRPC message, in a session without a connection. Commands
//! that act on a connection are refused.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use protocol::Parse;
use protocol::command::{AdminVerb, Command};

use super::Session;
use super::connection::Transport;
use crate::access::{Client, Denial};
use crate::context::WorkerContext;
use crate::values::Body;

/// Reserves memory for this many bytes of an answer. The result is false if there is no memory.
pub(crate) type ReplyBudget = Box<dyn Fn(usize) -> Pin<Box<dyn Future<Output = bool>>>>;

/// The reason why a command was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("{0} bytes hold no whole command")]
    Incomplete(usize),
    #[error("one command a call: it has {taken} bytes and {more} more follow")]
    MoreThanOne { taken: usize, more: usize },
    #[error("`{0}` is about a connection and means nothing here")]
    Meaningless(String),
    /// There is no memory for the answer. The command has already taken effect.
    #[error("there is no room for the answer")]
    OverBudget,
    #[error("{0}")]
    Denied(Denial),
}

/// Executes the command in `parts` for `client`, which has no limits if it is none. Returns memcached's reply, with
/// large values as separate parts.
pub(crate) async fn execute(
    context: &Rc<WorkerContext>,
    client: Option<Rc<Client>>,
    mut parts: Vec<Bytes>,
    reply_budget: ReplyBudget,
) -> Result<Vec<Bytes>, NoAnswer> {
    let limits = context.limits;
    let first = parts.first().map_or(&[][..], |part| part);
    if matches!(protocol::parse(first, &limits), Parse::Incomplete) {
        parts = vec![parts.concat().into()];
    }
    let Some((head, rest)) = parts.split_first() else { return Err(NoAnswer::Incomplete(0)) };
    let all = parts.iter().map(Bytes::len).sum::<usize>();
    let mut session =
        Session::new(Transport::Memory { reply_budget, held_bytes: 0 }, Rc::clone(context));
    session.client = client;
    match protocol::parse(head, &limits) {
        Parse::Incomplete => return Err(NoAnswer::Incomplete(all)),
        Parse::Refused { refusal, .. } if refusal.close => {
            return Err(NoAnswer::Meaningless(excerpt(head)));
        }
        Parse::Refused { refusal, consumed } => {
            let swallow = usize::try_from(refusal.swallow_bytes).unwrap_or(usize::MAX);
            is_one(all, consumed.saturating_add(swallow))?;
            session.check_refusal(&refusal).map_err(NoAnswer::Denied)?;
            session.context.counters.commands.bad_lines.up();
            session.refuse(refusal).await;
        }
        Parse::Command { command, .. } if is_meaningless(&command) => {
            return Err(NoAnswer::Meaningless(excerpt(head)));
        }
        Parse::Command { command, consumed } => {
            let body_bytes = command.body_bytes();
            is_one(all, consumed + body_bytes.unwrap_or(0))?;
            session.check_rights(&command).map_err(NoAnswer::Denied)?;
            match body_bytes {
                None => session.serve_lone(command).await,
                Some(_) => session.serve_with(command, &head[consumed..], rest).await,
            }
        }
    }
    if session.closing || session.flush().await.is_err() {
        return Err(NoAnswer::OverBudget);
    }
    Ok(std::mem::take(&mut session.out).into_parts())
}

impl Session {
    async fn serve_lone(&mut self, command: Command<'_>) {
        let mut pending = VecDeque::new();
        self.serve_without_body(command, &mut pending).await;
        self.settle_all(&mut pending).await;
    }

    /// Serves a storage command. Its value and CR LF are `here` (the end of the first part) and `rest`.
    async fn serve_with(&mut self, command: Command<'_>, here: &[u8], rest: &[Bytes]) {
        match (here, rest) {
            (_, []) => self.serve_body(command, Body::Slice(here)).await,
            // Links send large values in this form, which avoids a copy.
            ([], [value, end]) if end == "\r\n" => {
                self.serve_value(command, Body::Shared(value.clone())).await;
            }
            _ => {
                let body = [here, &rest.concat()].concat();
                self.serve_body(command, Body::Slice(&body)).await;
            }
        }
    }
}

fn is_one(all: usize, taken: usize) -> Result<(), NoAnswer> {
    match all.checked_sub(taken) {
        Some(0) => Ok(()),
        Some(more) => Err(NoAnswer::MoreThanOne { taken, more }),
        None => Err(NoAnswer::Incomplete(all)),
    }
}

const fn is_meaningless(command: &Command<'_>) -> bool {
    match command {
        Command::Quit => true,
        Command::Admin(admin) => matches!(admin.verb, AdminVerb::Shutdown | AdminVerb::Watch),
        _ => false,
    }
}

fn excerpt(line: &[u8]) -> String {
    line[..line.len().min(EXCERPT_BYTES)].trim_ascii_end().escape_ascii().to_string()
}

/// The number of bytes of a refused line that its error repeats.
const EXCERPT_BYTES: usize = 64;
