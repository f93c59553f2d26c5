//! Commands that need the old logical value: append, prepend, and counting in a value that is stored compressed. They
//! read, change and write under the item's CAS, and start over when someone else was faster.

use protocol::MetaKey;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use protocol::command::StoreVerb;
use protocol::counter::{self, Direction};
use protocol::reply::ItemFacts;
use tokio::sync::{Mutex, OwnedMutexGuard};
use units::limits::ITEM_OVERHEAD_BYTES;

use super::Session;
use crate::backend::{Count, Failure, Outcome, Version, Written};
use crate::values::{Body, Logical};

/// Whether the verb puts its value beside the one that is there.
pub(super) const fn needs_old_value(verb: StoreVerb) -> bool {
    matches!(verb, StoreVerb::Append | StoreVerb::Prepend)
}

impl Session {
    /// append or prepend; with `compare`, only to that version.
    pub(super) async fn extend(
        &self,
        key: &MetaKey<'_>,
        verb: StoreVerb,
        compare: Option<u64>,
        more: &[u8],
    ) -> Outcome<Written> {
        let _turn = self.context.edits.turn(key.bytes()).await;
        for _ in 0..TRIES_MAX {
            let Some((version, old)) = self.old_value(key).await? else {
                return Ok(Written::NotStored);
            };
            if compare.is_some_and(|cas| cas != version.cas) {
                return Ok(Written::Exists);
            }
            let value_bytes = old.len() + more.len();
            let item_bytes = ITEM_OVERHEAD_BYTES + key.bytes().len() + value_bytes;
            if item_bytes as u64 > self.context.limits.item_bytes_max.0 {
                return Ok(Written::NotStored);
            }
            let mut value = self.context.values.pool().take(value_bytes);
            let (first, second) =
                if verb == StoreVerb::Append { (&old[..], more) } else { (more, &old[..]) };
            value.extend(first);
            value.extend(second);
            let stored = self.context.values.pack(Body::Pooled(value), None).await;
            match self.context.backend.rewrite(key, &version, None, stored).await? {
                Written::Exists | Written::NotFound => {}
                done => return Ok(done),
            }
        }
        Err(contended())
    }

    /// incr, decr or ma on an item that the store itself cannot count in: a frame, if it is a number at all.
    pub(super) async fn count_logical(
        &self,
        key: &MetaKey<'_>,
        direction: Direction,
        delta: u64,
        compare: Option<u64>,
        exptime_s: Option<i32>,
    ) -> Outcome<Count> {
        if !self.context.backend.holds_frame(key).await? {
            return Ok(Count::NonNumeric);
        }
        let _turn = self.context.edits.turn(key.bytes()).await;
        for _ in 0..TRIES_MAX {
            let Some((version, old)) = self.old_value(key).await? else {
                return Ok(Count::NotFound);
            };
            if compare.is_some_and(|cas| cas != 0 && cas != version.cas) {
                return Ok(Count::Exists);
            }
            let mut text = Vec::new();
            let Ok(number) = counter::apply(&old, direction, delta, &mut text) else {
                return Ok(Count::NonNumeric);
            };
            let stored = self.context.values.pack(Body::Slice(&text), None).await;
            match self.context.backend.rewrite(key, &version, exptime_s, stored).await? {
                Written::Stored { cas } => {
                    let ttl_s = exptime_s.map_or(version.life.left_s(), told_ttl_s);
                    let facts = ItemFacts { cas, ttl_s, ..ItemFacts::default() };
                    return Ok(Count::Done { number, created: false, facts });
                }
                _ => continue,
            }
        }
        Err(contended())
    }

    async fn old_value(&self, key: &MetaKey<'_>) -> Outcome<Option<(Version, bytes::Bytes)>> {
        let Some(version) = self.context.backend.peek(key).await? else { return Ok(None) };
        match self.context.values.unpack(version.value.clone(), None).await {
            Logical::Value(value) => Ok(Some((version, value))),
            Logical::Unreadable => Ok(None),
        }
    }
}

/// What is left of a new expiry as a client wrote it: seconds up to memcached's thirty days, zero for never.
fn told_ttl_s(exptime_s: i32) -> Option<u32> {
    (exptime_s != 0).then(|| u32::try_from(exptime_s).unwrap_or(0))
}

/// Edits of this worker's sessions, one at a time for each key, so that only other workers and other clients of the
/// store are ever faster.
#[derive(Default)]
pub(crate) struct Edits(RefCell<HashMap<Box<[u8]>, EditLock>>);

type EditLock = Arc<Mutex<()>>;

/// The right to edit a key; dropping it passes the right on.
pub(crate) struct Turn<'a> {
    edits: &'a Edits,
    key: Box<[u8]>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Edits {
    async fn turn(&self, key: &[u8]) -> Turn<'_> {
        let mutex = Arc::clone(self.0.borrow_mut().entry(key.into()).or_default());
        let guard = Some(mutex.lock_owned().await);
        Turn { edits: self, key: key.into(), guard }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut edits = self.edits.0.borrow_mut();
        // Whoever waits for its turn holds the mutex too.
        if edits.get(&self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            edits.remove(&self.key);
        }
    }
}

fn contended() -> Failure {
    Failure::Line(b"SERVER_ERROR the item kept changing; try again".to_vec())
}

/// Each try loses only to a write that succeeded, so this many in a row mean a key under a storm of writers.
const TRIES_MAX: usize = 100;
