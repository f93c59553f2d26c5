//! The budget of a session's values. A session takes a permit from the worker's budget before it allocates
//! memory for a large value. Small values are not charged, because the connection's buffers bound them.

use std::io;

use bytes::Bytes;
use device::Buffer;
use protocol::command::{Command, StoreVerb};
use smallvec::SmallVec;
use store::frame;
use telemetry::timeline::{self, Kind};
use tokio::time::timeout;

use super::Session;
use super::connection::{INPUT_BYTES, Transport};
use super::pace::Pace;
use crate::backend::{Failure, Outcome, OverBudget};
use crate::budget::{Permit, UNCHARGED_BYTES_MAX};
use crate::context::ADMISSION_MAX;
use crate::errors::FailedCommand;
use crate::hot_values::HotValue;

/// The result of reading a body: the value with its CR LF, or `None` if there was no memory; and its permit.
type Admitted = (Option<Buffer>, Option<Permit>);

impl Session {
    /// Reads a value into a separate pool buffer. `here` is the part of it that has already been read. Returns no
    /// buffer if there was no memory and the value was skipped, and `None` at the end of the stream.
    pub(super) async fn read_body(
        &mut self,
        here: &[u8],
        body_bytes: usize,
    ) -> io::Result<Option<Admitted>> {
        let mut pace = Pace::uncharged(&self.context);
        if body_bytes <= UNCHARGED_BYTES_MAX {
            let body = self.receive(here, body_bytes, body_bytes, &mut pace).await?;
            return Ok(body.map(|body| (Some(body), None)));
        }
        // If memory is short, a client must have sent some of its value before it gets memory for the whole.
        let begun = if self.context.is_short_of_memory() && here.len() < INPUT_BYTES {
            match self.receive(here, INPUT_BYTES.min(body_bytes), INPUT_BYTES, &mut pace).await? {
                Some(begun) => Some(begun),
                None => return Ok(None),
            }
        } else {
            None
        };
        let here = begun.as_deref().unwrap_or(here);
        // The budget covers the value and its stored form.
        let Some(permit) = self.context.admit(2 * body_bytes).await else {
            self.swallow((body_bytes - here.len()) as u64).await?;
            return Ok(Some((None, None)));
        };
        let mut pace = Pace::charged(&self.context);
        let body = self.receive(here, body_bytes, body_bytes, &mut pace).await?;
        self.context.turns.take(body_bytes).await;
        Ok(body.map(|body| (Some(body), Some(permit))))
    }

    /// Copies `here` into a buffer of `capacity`, and then reads from the stream, up to `bytes` in total.
    /// Returns `None` if the stream ends before.
    async fn receive(
        &self,
        here: &[u8],
        bytes: usize,
        capacity: usize,
        pace: &mut Pace,
    ) -> io::Result<Option<Buffer>> {
        let mut body = self.context.values.pool().take(capacity);
        body.extend(here);
        if !here.is_empty() {
            let counters = &self.context.counters.values;
            counters.copies.up();
            counters.copied_bytes.add(here.len() as u64);
        }
        while body.len() < bytes {
            let filled = body.len();
            match self.read_paced(&mut body.space()[filled..bytes], pace).await? {
                0 => return Ok(None),
                read => body.set_len(filled + read),
            }
        }
        Ok(Some(body))
    }

    /// Answers a command whose value was skipped for lack of memory.
    pub(super) async fn refuse_body(&mut self, command: &Command<'_>) {
        let key = match command {
            Command::Store(store) if store.verb == StoreVerb::Set => Some(store.key.into()),
            Command::MetaSet(set) if set.verb == StoreVerb::Set => Some(set.meta.key.clone()),
            _ => None,
        };
        // As in memcached, the old value is removed, because it is outdated.
        let failure = match key {
            Some(key) => self.unlink(key).await.err().unwrap_or(Failure::OutOfMemory),
            None => Failure::OutOfMemory,
        };
        self.command = FailedCommand::from(command);
        self.fail(failure, false);
    }

    /// Returns the bytes that an answer with a value's logical form must take from the budget. `None` for small
    /// values, and for values that are sent as a server returned them, because those have a permit.
    #[inline]
    pub(super) fn charged_bytes(&self, stored: &[u8], hot: Option<&HotValue>) -> Option<usize> {
        if let Some(hot) = hot {
            return Some(hot.logical.len()).filter(|bytes| *bytes > UNCHARGED_BYTES_MAX);
        }
        if !frame::must_wrap(stored) {
            let is_charged = self.window.is_none() && stored.len() > UNCHARGED_BYTES_MAX;
            return is_charged.then_some(stored.len());
        }
        let bytes = self.context.values.logical_bytes(stored)?;
        (bytes > UNCHARGED_BYTES_MAX).then_some(bytes)
    }

    /// Takes a permit for an answer, for a session that holds none. If the bytes are not free, the session
    /// first writes its previous answers, which may hold them. Returns `None` for a command in memory, whose
    /// caller grants the bytes instead.
    #[cold]
    pub(super) async fn charge_reply(&mut self, bytes: usize) -> Outcome<Option<Permit>> {
        let permit = if let Transport::Memory { reply_budget, held_bytes } = &mut self.transport {
            if !reply_budget(bytes).await {
                self.closing = true;
                self.out.clear();
                return Err(over_budget(bytes));
            }
            *held_bytes += bytes;
            None
        } else if let Some(permit) = self.context.budget.try_begin(bytes as u64) {
            Some(permit)
        } else {
            self.flush_or_close().await;
            Some(self.context.admit(bytes).await.ok_or_else(|| over_budget(bytes))?)
        };
        // Unpacking is part of moving the value.
        self.context.turns.take(bytes).await;
        Ok(permit)
    }

    /// Like `charge_reply`, but for a session that already holds a permit.
    #[cold]
    pub(super) async fn charge_more(&mut self, bytes: usize) -> Outcome<Option<Permit>> {
        if let Transport::Memory { .. } = self.transport {
            return self.charge_reply(bytes).await;
        }
        let budget = self.context.budget.clone();
        let permit = match budget.try_grow(bytes as u64) {
            Some(permit) => permit,
            None => {
                self.flush_or_close().await;
                let stage = timeline::open(Kind::Memory);
                let grown = timeout(ADMISSION_MAX, budget.grow(bytes as u64)).await;
                stage.close();
                grown.map_err(|_| over_budget(bytes))?
            }
        };
        self.context.turns.take(bytes).await;
        Ok(Some(permit))
    }

    /// Takes the permits for answers that failed with [`OverBudget`].
    pub(super) async fn charge_replies(
        &mut self,
        over_budget: &OverBudget,
    ) -> Outcome<SmallVec<[Permit; 1]>> {
        if let Transport::Stream(_) = self.transport {
            self.flush_or_close().await;
        }
        let bytes = over_budget.wanted.iter().sum::<u64>() as usize;
        let none = || {
            let wanted = over_budget.wanted.clone();
            Failure::OverBudget(OverBudget { wanted, returned: None })
        };
        let mut permit = self.context.admit(bytes).await.ok_or_else(none)?;
        Ok(over_budget.wanted.iter().map(|bytes| permit.split(*bytes)).collect())
    }
}

fn over_budget(bytes: usize) -> Failure {
    Failure::OverBudget(OverBudget { wanted: SmallVec::from_elem(bytes as u64, 1), returned: None })
}

/// Attaches a permit to the value of an answer.
pub(super) fn charged(value: Bytes, permit: Option<Permit>) -> Bytes {
    match permit {
        Some(permit) => permit.attach(value),
        None => value,
    }
}
