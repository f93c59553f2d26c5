//! The budget of a session's values. The values that a session reads and answers take a part of the worker's budget
//! before they take memory. Small values are not charged, because a connection's buffers bound what it holds of them.

use std::io;

use bytes::Bytes;
use device::Buffer;
use protocol::command::{Command, StoreVerb};
use smallvec::SmallVec;
use store::frame;
use tokio::time::timeout;

use super::Session;
use super::connection::{INPUT_BYTES, Transport};
use super::pace::Pace;
use crate::backend::{Failure, NoRoom, Outcome};
use crate::budget::{Permit, UNCHARGED_BYTES_MAX};
use crate::context::ADMISSION_MAX;

/// The result of reading a body: the value with its end, or none if the budget had no room, and the part of the budget.
type Admitted = (Option<Buffer>, Option<Permit>);

impl Session {
    /// Reads a value, of which `here` has already been read, into a separate pool buffer, with its part of the budget.
    /// A result without a buffer means that there was no memory and the value was skipped. None means the end of the
    /// stream.
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
        // If memory is short, only a client that has begun to send its value gets memory. A few bytes are no claim to a
        // whole value.
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

    /// Copies `here` into a buffer of `capacity`, and then reads the bytes that follow it, up to `bytes` in total.
    /// Returns none if the stream ends before.
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

    /// Answers a command for whose value there was no memory.
    pub(super) async fn refuse_body(&mut self, command: &Command<'_>) {
        let key = match command {
            Command::Store(store) if store.verb == StoreVerb::Set => Some(store.key.bytes()),
            Command::MetaSet(set) if set.verb == StoreVerb::Set => Some(set.meta.key.bytes()),
            _ => None,
        };
        // As with memcached, the old value must not stand for the new one.
        if let Some(key) = key {
            self.unlink(key).await;
        }
        self.fail(Failure::OutOfMemory, false);
    }

    /// Returns the bytes of the budget that an answer takes for a stored value's logical form. A small value takes
    /// none. A value that is answered as a server sent it takes none either, because it came with its part of the
    /// budget.
    #[inline]
    pub(super) fn charged_bytes(&self, stored: &[u8]) -> Option<usize> {
        if !frame::must_wrap(stored) {
            let is_charged = self.window.is_none() && stored.len() > UNCHARGED_BYTES_MAX;
            return is_charged.then_some(stored.len());
        }
        let bytes = self.context.values.logical_bytes(stored)?;
        (bytes > UNCHARGED_BYTES_MAX).then_some(bytes)
    }

    /// Takes a part of the budget for an answer, for a session that holds none. Returns none if the caller of a command
    /// in memory has granted the bytes. If the bytes are not free at once, the session first writes the answers so far,
    /// because they may hold the bytes that it waits for.
    #[cold]
    pub(super) async fn charge_reply(&mut self, bytes: usize) -> Outcome<Option<Permit>> {
        let permit = if let Transport::Memory { reply_budget, held_bytes } = &mut self.transport {
            if !reply_budget(bytes).await {
                self.closing = true;
                self.out.clear();
                return Err(no_room(bytes));
            }
            *held_bytes += bytes;
            None
        } else if let Some(permit) = self.context.budget.try_begin(bytes as u64) {
            Some(permit)
        } else {
            self.flush_or_close().await;
            Some(self.context.admit(bytes).await.ok_or_else(|| no_room(bytes))?)
        };
        // Unpacking the value is the first part of moving it.
        self.context.turns.take(bytes).await;
        Ok(permit)
    }

    /// Does the same as `charge_reply`, for a session that holds a part of the budget already.
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
                let grown = timeout(ADMISSION_MAX, budget.grow(bytes as u64)).await;
                grown.map_err(|_| no_room(bytes))?
            }
        };
        self.context.turns.take(bytes).await;
        Ok(Some(permit))
    }

    /// Takes parts of the budget for answers that had none at first.
    pub(super) async fn charge_replies(
        &mut self,
        no_room: &NoRoom,
    ) -> Outcome<SmallVec<[Permit; 1]>> {
        if let Transport::Stream(_) = self.transport {
            self.flush_or_close().await;
        }
        let bytes = no_room.wanted.iter().sum::<u64>() as usize;
        let none = || {
            let wanted = no_room.wanted.clone();
            Failure::NoRoom(NoRoom { wanted, returned: None })
        };
        let mut permit = self.context.admit(bytes).await.ok_or_else(none)?;
        Ok(no_room.wanted.iter().map(|bytes| permit.split(*bytes)).collect())
    }
}

fn no_room(bytes: usize) -> Failure {
    Failure::NoRoom(NoRoom { wanted: SmallVec::from_elem(bytes as u64, 1), returned: None })
}

/// Attaches a part of the budget to the value of an answer.
pub(super) fn charged(value: Bytes, permit: Option<Permit>) -> Bytes {
    match permit {
        Some(permit) => permit.attach(value),
        None => value,
    }
}
