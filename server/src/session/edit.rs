//! Commands that need the old logical value: append, prepend, and counting in a value that is stored compressed. They
//! read, change and write under the item's CAS, and start over when another client was faster.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use protocol::MetaKey;
use protocol::command::StoreVerb;
use protocol::counter::{self, Direction};
use protocol::reply::ItemFacts;
use store::frame;
use tokio::sync::{Mutex, OwnedMutexGuard};
use units::limits::ITEM_OVERHEAD_BYTES;

use super::Session;
use crate::backend::{Count, Failure, Outcome, Seen, Version, Written};
use crate::budget::{Permit, UNCHARGED_BYTES_MAX};
use crate::upstream::Traffic;
use crate::values::{Body, Logical};

/// Returns whether the verb joins its value with the one that is stored.
pub(super) const fn needs_old_value(verb: StoreVerb) -> bool {
    matches!(verb, StoreVerb::Append | StoreVerb::Prepend)
}

impl Session {
    /// Serves append or prepend. With `compare` it changes only that version.
    pub(super) async fn extend(
        &mut self,
        key: &MetaKey<'_>,
        verb: StoreVerb,
        compare: Option<u64>,
        more: &[u8],
    ) -> Outcome<Written> {
        let context = Rc::clone(&self.context);
        let _turn = context.edits.turn(key.bytes()).await;
        for _ in 0..TRIES_MAX {
            let Some(Old { version, value: old, traffic, _permit }) =
                self.old_value(key, more.len()).await?
            else {
                return Ok(Written::NotStored);
            };
            let value_bytes = old.len() + more.len();
            let item_bytes = ITEM_OVERHEAD_BYTES + key.bytes().len() + value_bytes;
            let is_other = compare.is_some_and(|cas| cas != version.cas);
            if is_other || item_bytes as u64 > self.context.limits.item_bytes_max.0 {
                self.context.backend.give_back(key, version.cas, version.won).await;
                return Ok(if is_other { Written::Exists } else { Written::NotStored });
            }
            let mut value = self.context.values.pool().take(value_bytes);
            let (first, second) =
                if verb == StoreVerb::Append { (&old[..], more) } else { (more, &old[..]) };
            value.extend(first);
            value.extend(second);
            let stored = self.context.values.pack(Body::Pooled(value), None).await;
            match self.context.backend.rewrite(key, &version, None, stored, traffic).await? {
                Written::Exists | Written::NotFound => {}
                done => return Ok(done),
            }
        }
        Err(contended())
    }

    /// Serves incr, decr or ma on an item in which the store cannot count. If the item is a number, it is in a frame.
    pub(super) async fn count_logical(
        &mut self,
        key: &MetaKey<'_>,
        direction: Direction,
        delta: u64,
        compare: Option<u64>,
        exptime_s: Option<i32>,
    ) -> Outcome<Count> {
        let context = Rc::clone(&self.context);
        if let Some(refused) = self.refuse_to_count(key, compare).await? {
            return Ok(refused);
        }
        let _turn = context.edits.turn(key.bytes()).await;
        for _ in 0..TRIES_MAX {
            let Some(Old { version, value: old, traffic, _permit }) =
                self.old_value(key, 0).await?
            else {
                return Ok(Count::NotFound);
            };
            let is_other = compare.is_some_and(|cas| cas != 0 && cas != version.cas);
            let mut text = Vec::new();
            let counted = counter::apply(&old, direction, delta, &mut text);
            let (false, Ok(number)) = (is_other, counted) else {
                self.context.backend.give_back(key, version.cas, version.won).await;
                return Ok(if is_other { Count::Exists } else { Count::NonNumeric });
            };
            let version = Version { keeps_marks: text.len() == old.len(), ..version };
            let stored = self.context.values.pack(Body::Slice(&text), None).await;
            match self.context.backend.rewrite(key, &version, exptime_s, stored, traffic).await? {
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

    /// Returns why the command cannot count; none if the value is a number in a frame. The look does not take the right
    /// to refill a stale item.
    async fn refuse_to_count(
        &mut self,
        key: &MetaKey<'_>,
        compare: Option<u64>,
    ) -> Outcome<Option<Count>> {
        let context = Rc::clone(&self.context);
        let Some(Seen { value, cas, won }) = context.backend.look(key).await? else {
            return Ok(Some(Count::NonNumeric));
        };
        context.backend.give_back(key, cas, won).await;
        if !frame::must_wrap(&value) {
            return Ok(Some(Count::NonNumeric));
        }
        if compare.is_some_and(|wanted| wanted != 0 && wanted != cas) {
            return Ok(Some(Count::Exists));
        }
        let _permit = match self.charged_bytes(&value) {
            None => None,
            Some(bytes) => self.charge_more(bytes).await?,
        };
        Ok(match context.values.unpack(value, None).await {
            Logical::Value(value) => {
                let counted = counter::apply(&value, Direction::Increment, 0, &mut Vec::new());
                counted.err().map(|_| Count::NonNumeric)
            }
            Logical::Unreadable => Some(Count::NotFound),
            Logical::Damaged => {
                context.remove_damaged(key).await;
                Some(Count::NotFound)
            }
        })
    }

    /// Returns the item as it is. The budget has granted its logical value twice and `more_bytes`.
    async fn old_value(&mut self, key: &MetaKey<'_>, more_bytes: usize) -> Outcome<Option<Old>> {
        let long_bytes = self.context.long_bytes([key.bytes()]);
        let traffic = self.traffic_alone(1, more_bytes + long_bytes);
        let peeked = match self.context.backend.peek(key, traffic, None).await {
            Err(Failure::NoRoom(wanted)) => {
                let permit = self.charge_replies(&wanted).await?.pop();
                let won = wanted.returned.is_some_and(|returned| returned.won);
                let again = self.context.backend.peek(key, Traffic::Bulk, permit).await?;
                again.map(|version| Version { won: version.won || won, ..version })
            }
            peeked => peeked?,
        };
        let Some(version) = peeked else { return Ok(None) };
        self.learn(1, version.value.len());
        self.note_length(key.bytes(), version.value.len());
        let logical_bytes = self.context.values.logical_bytes(&version.value);
        let permit = match logical_bytes.filter(|bytes| *bytes > UNCHARGED_BYTES_MAX) {
            Some(bytes) => match self.charge_more(2 * bytes + more_bytes).await {
                Ok(permit) => permit,
                Err(failure) => {
                    self.context.backend.give_back(key, version.cas, version.won).await;
                    return Err(failure);
                }
            },
            None => None,
        };
        let traffic = self.traffic_alone(0, version.value.len() + more_bytes);
        match self.context.values.unpack(version.value.clone(), None).await {
            Logical::Value(value) => {
                return Ok(Some(Old { version, value, traffic, _permit: permit }));
            }
            Logical::Unreadable => {
                self.context.backend.give_back(key, version.cas, version.won).await;
            }
            Logical::Damaged => self.context.remove_damaged(key).await,
        }
        Ok(None)
    }
}

/// The state that an edit begins with.
struct Old {
    version: Version,
    value: Bytes,
    /// The connection for the changed value.
    traffic: Traffic,
    _permit: Option<Permit>,
}

/// Returns the time to live (s) of an item whose expiry a client has just set, or none if it never expires. `exptime_s`
/// is as the client wrote it: 0 means never, and a negative number means that the item has expired. A number above
/// thirty days, which memcached reads as a Unix time, is returned as it is.
fn told_ttl_s(exptime_s: i32) -> Option<u32> {
    (exptime_s != 0).then(|| u32::try_from(exptime_s).unwrap_or(0))
}

/// The edits of this worker's sessions. Only one edit at a time works on a key, so that only other workers and other
/// clients of the store can be faster.
#[derive(Default)]
pub(crate) struct Edits(RefCell<HashMap<Box<[u8]>, EditLock>>);

type EditLock = Arc<Mutex<()>>;

/// The right to edit a key. Dropping it passes the right to the next edit.
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
        // An edit that waits for its turn also holds the mutex.
        if edits.get(&self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            edits.remove(&self.key);
        }
    }
}

fn contended() -> Failure {
    Failure::Line(b"SERVER_ERROR the item kept changing; try again".to_vec())
}

/// The most tries of an edit. Each try loses only to a write that succeeded, so this many in a row mean a key under a
/// storm of writers.
const TRIES_MAX: usize = 100;
