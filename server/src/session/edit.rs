//! Commands that need the old logical value: append, prepend, and incr and decr of a compressed value. They
//! read, change and write the value under the item's CAS, and retry if another client changed the item.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use protocol::command::{MetaArithmetic, MetaSet, StoreVerb};
use protocol::counter::{self, Direction};
use protocol::reply::ItemFacts;
use protocol::{Meta, MetaFlags, MetaKey};
use store::frame;
use tokio::sync::{Mutex, OwnedMutexGuard};
use units::limits::{EXPTIME_RELATIVE_MAX_S, ITEM_OVERHEAD_BYTES};

use super::Session;
use crate::backend::{Count, Failure, Outcome, OverBudget, Seen, Version, Written};
use crate::budget::{Permit, UNCHARGED_BYTES_MAX};
use crate::upstream::Traffic;
use crate::values::{Body, Logical, Reading};

/// Returns whether the verb appends or prepends to the stored value.
pub(super) const fn needs_old_value(verb: StoreVerb) -> bool {
    matches!(verb, StoreVerb::Append | StoreVerb::Prepend)
}

impl Session {
    /// Serves append or prepend.
    pub(super) async fn extend(&mut self, edit: &Extend<'_, '_>) -> Outcome<Extended> {
        let Extend { key, verb, compare, more, .. } = *edit;
        let context = Rc::clone(&self.context);
        let unchanged = |written| Ok(Extended { written, value_bytes: more.len(), left_s: None });
        let _turn = context.edits.turn(key.bytes()).await;
        for _ in 0..TRIES_MAX {
            let Some(Old { version, value: old, traffic, _permit }) =
                self.old_value(key, more.len()).await?
            else {
                match edit.vivify {
                    None => return unchanged(Written::NotStored),
                    Some(vivify) => match self.begin_value(edit, vivify).await? {
                        // Another client was faster.
                        Written::Exists => continue,
                        written => return unchanged(written),
                    },
                }
            };
            let value_bytes = old.len() + more.len();
            let item_bytes = ITEM_OVERHEAD_BYTES + key.bytes().len() + value_bytes;
            let is_other = compare.is_some_and(|cas| cas != version.cas);
            if is_other || item_bytes as u64 > self.context.limits.item_bytes_max.0 {
                self.context.backend.release_win(key, version.cas, version.won).await;
                return unchanged(if is_other { Written::Exists } else { Written::NotStored });
            }
            let mut value = self.context.values.pool().take(value_bytes);
            let (first, second) =
                if verb == StoreVerb::Append { (&old[..], more) } else { (more, &old[..]) };
            value.extend(first);
            value.extend(second);
            let stored = self.context.values.pack(key.bytes(), Body::Pooled(value), None).await;
            let version = Version { given_cas: edit.given_cas, ..version };
            match self.context.backend.rewrite(key, &version, None, stored, traffic).await? {
                Written::Exists | Written::NotFound => {}
                written => {
                    let left_s = version.life.left_s();
                    return Ok(Extended { written, value_bytes, left_s });
                }
            }
        }
        Err(contended())
    }

    /// Stores the first value of an item that an append creates. The result is `Exists` if there is an item now.
    async fn begin_value(
        &mut self,
        edit: &Extend<'_, '_>,
        Vivify { exptime_s, client_flags }: Vivify,
    ) -> Outcome<Written> {
        let Extend { key, more, given_cas, .. } = *edit;
        let mut flags = MetaFlags::default();
        (flags.client_flags, flags.given_cas) = (client_flags, given_cas);
        let is_ring = self.context.backend.has_links();
        if is_ring {
            // The server decides whether an append may create an item. No item has this CAS, so it extends none.
            (flags.mode, flags.compare) = (Some(b'A'), Some(u64::MAX));
            flags.vivify_exptime_s = Some(exptime_s);
        } else {
            (flags.mode, flags.exptime_s) = (Some(b'E'), Some(exptime_s));
        }
        let verb = if is_ring { StoreVerb::Append } else { StoreVerb::Add };
        let meta = Meta { key: key.clone(), flags };
        let set = MetaSet { meta, verb, value_bytes: more.len() };
        let traffic = self.traffic_alone(0, more.len());
        let stored = self.context.values.pack(key.bytes(), Body::Slice(more), None).await;
        let written = self.context.backend.meta_set(&set, stored, traffic).written().await?;
        Ok(match written {
            Written::NotStored if !is_ring => Written::Exists,
            written => written,
        })
    }

    /// Lets the store do an arithmetic command of the meta protocol. The result is `NonNumeric` if the store cannot. It
    /// cannot count sealed numbers, and those that it would create would have no seal.
    pub(super) async fn count_in_store(
        &mut self,
        arithmetic: &MetaArithmetic<'_>,
    ) -> Outcome<Count> {
        match self.context.values.seals() {
            true => Box::pin(self.create_sealed(arithmetic)).await,
            false => self.context.backend.meta_count(arithmetic).await,
        }
    }

    /// Creates a sealed number, if the command creates missing ones and there is none. Returns `NonNumeric` if the item
    /// must be counted.
    async fn create_sealed(&mut self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        let Meta { key, flags: asked } = &arithmetic.meta;
        let Some(exptime_s) = asked.vivify_exptime_s else { return Ok(Count::NonNumeric) };
        if let Some(seen) = self.context.backend.read_stored(key).await? {
            self.context.backend.release_win(key, seen.cas, seen.won).await;
            return Ok(Count::NonNumeric);
        }
        let text = asked.initial.to_string();
        let mut flags = MetaFlags::default();
        (flags.mode, flags.exptime_s) = (Some(b'E'), Some(exptime_s));
        flags.given_cas = asked.given_cas;
        let meta = Meta { key: key.clone(), flags };
        let set = MetaSet { meta, verb: StoreVerb::Add, value_bytes: text.len() };
        let body = Body::Slice(text.as_bytes());
        let stored = self.context.values.pack(key.bytes(), body, None).await;
        let traffic = self.traffic_alone(0, stored.as_slice().len());
        Ok(match self.context.backend.meta_set(&set, stored, traffic).written().await? {
            Written::Stored { cas } => {
                let ttl_s = reported_ttl_s(exptime_s);
                let facts = ItemFacts { cas, ttl_s, ..ItemFacts::default() };
                Count::Done { number: asked.initial, created: true, facts }
            }
            // Another client was faster.
            Written::NotStored | Written::Exists | Written::NotFound => Count::NonNumeric,
        })
    }

    /// Serves incr, decr or ma on an item that the store cannot change itself, such as a number in a frame.
    pub(super) async fn count_logical(
        &mut self,
        key: &MetaKey<'_>,
        direction: Direction,
        delta: u64,
        compare: Option<u64>,
        exptime_s: Option<i32>,
        given_cas: Option<u64>,
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
                self.context.backend.release_win(key, version.cas, version.won).await;
                return Ok(if is_other { Count::Exists } else { Count::NonNumeric });
            };
            let keeps_marks = text.len() == old.len();
            let version = Version { keeps_marks, given_cas, ..version };
            let stored = self.context.values.pack(key.bytes(), Body::Slice(&text), None).await;
            match self.context.backend.rewrite(key, &version, exptime_s, stored, traffic).await? {
                Written::Stored { cas } => {
                    let ttl_s = exptime_s.map_or(version.life.left_s(), reported_ttl_s);
                    let facts = ItemFacts { cas, ttl_s, ..ItemFacts::default() };
                    return Ok(Count::Done { number, created: false, facts });
                }
                _ => continue,
            }
        }
        Err(contended())
    }

    /// Returns the outcome of a refused incr or decr, or `None` if the value is a number in a frame. Does not
    /// take the right to refill a stale item.
    async fn refuse_to_count(
        &mut self,
        key: &MetaKey<'_>,
        compare: Option<u64>,
    ) -> Outcome<Option<Count>> {
        let context = Rc::clone(&self.context);
        let seals = context.values.seals();
        let Some(Seen { value, cas, won }) = context.backend.read_stored(key).await? else {
            return Ok(Some(if seals { Count::NotFound } else { Count::NonNumeric }));
        };
        context.backend.release_win(key, cas, won).await;
        // The store has not tried to count where values are sealed, and may have a number from before.
        if !seals && !frame::must_wrap(&value) {
            return Ok(Some(Count::NonNumeric));
        }
        if compare.is_some_and(|wanted| wanted != 0 && wanted != cas) {
            return Ok(Some(Count::Exists));
        }
        let _permit = match self.charged_bytes(&value, None) {
            None => None,
            Some(bytes) => self.charge_more(bytes).await?,
        };
        Ok(match context.values.unpack(Reading::new(key.bytes()), value).await {
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

    /// Repeats a peek that failed for lack of memory, with a permit.
    #[cold]
    async fn peek_again(
        &mut self,
        key: &MetaKey<'_>,
        wanted: &OverBudget,
    ) -> Outcome<Option<Version>> {
        let permit = self.charge_replies(wanted).await?.pop();
        let again = self.context.backend.peek(key, Traffic::Bulk, permit).await?;
        let won = wanted.right().is_some();
        Ok(again.map(|version| Version { won: version.won || won, ..version }))
    }

    /// Reads the item with a permit for twice its logical value and `more_bytes`, if it is readable.
    async fn old_value(&mut self, key: &MetaKey<'_>, more_bytes: usize) -> Outcome<Option<Old>> {
        let long_bytes = self.context.long_bytes([key.bytes()]);
        let traffic = self.traffic_alone(1, more_bytes + long_bytes);
        let peeked = match self.context.backend.peek(key, traffic, None).await {
            Err(Failure::OverBudget(wanted)) => match self.peek_again(key, &wanted).await {
                Ok(again) => again,
                Err(failure) => {
                    if let Some(cas) = wanted.right() {
                        self.context.backend.release_win(key, cas, true).await;
                    }
                    return Err(failure);
                }
            },
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
                    self.context.backend.release_win(key, version.cas, version.won).await;
                    return Err(failure);
                }
            },
            None => None,
        };
        let traffic = self.traffic_alone(0, version.value.len() + more_bytes);
        match self.context.values.unpack(Reading::new(key.bytes()), version.value.clone()).await {
            Logical::Value(value) => {
                return Ok(Some(Old { version, value, traffic, _permit: permit }));
            }
            Logical::Unreadable => {
                self.context.backend.release_win(key, version.cas, version.won).await;
            }
            Logical::Damaged => self.context.remove_damaged(key).await,
        }
        Ok(None)
    }
}

/// An append or a prepend.
#[derive(Clone, Copy)]
pub(super) struct Extend<'a, 'k> {
    pub(super) key: &'a MetaKey<'k>,
    pub(super) verb: StoreVerb,
    /// The CAS that the item must have.
    pub(super) compare: Option<u64>,
    pub(super) more: &'a [u8],
    /// The CAS that the client has chosen for the changed item.
    pub(super) given_cas: Option<u64>,
    /// How a missing item is created, if it is.
    pub(super) vivify: Option<Vivify>,
}

impl<'a, 'k> Extend<'a, 'k> {
    /// Returns the edit of a command that has no more options than these.
    pub(super) const fn plain(
        key: &'a MetaKey<'k>,
        verb: StoreVerb,
        compare: Option<u64>,
        more: &'a [u8],
    ) -> Self {
        Self { key, verb, compare, more, given_cas: None, vivify: None }
    }
}

/// The properties of an item that an append creates.
#[derive(Clone, Copy)]
pub(super) struct Vivify {
    pub(super) exptime_s: i32,
    pub(super) client_flags: u32,
}

/// The outcome of an append or a prepend.
pub(super) struct Extended {
    pub(super) written: Written,
    /// The length of the whole value, or of the client's part if nothing was stored (bytes).
    pub(super) value_bytes: usize,
    /// The time after which the item expires (s), if it was there.
    pub(super) left_s: Option<u32>,
}

impl Extended {
    pub(super) const fn is_stored(&self) -> bool {
        matches!(self.written, Written::Stored { .. })
    }
}

/// The item before an edit.
struct Old {
    version: Version,
    value: Bytes,
    /// The connection for the changed value.
    traffic: Traffic,
    _permit: Option<Permit>,
}

/// Returns the time to live (s) after a client has set the expiry `exptime_s`, or `None` if the item never
/// expires. 0 means never, and a negative number means expired. Numbers above thirty days are Unix times, as in
/// memcached.
pub(super) fn reported_ttl_s(exptime_s: i32) -> Option<u32> {
    ttl_at(exptime_s, units::unix_time().as_secs())
}

fn ttl_at(exptime_s: i32, unix_s: u64) -> Option<u32> {
    match u32::try_from(exptime_s) {
        Ok(0) => None,
        Ok(ttl_s @ ..=EXPTIME_RELATIVE_MAX_S) => Some(ttl_s),
        Ok(at_s) => Some(u64::from(at_s).saturating_sub(unix_s) as u32),
        Err(_) => Some(0),
    }
}

/// Locks that serialize the edits of each key by this worker's sessions. Edits then conflict only with other
/// workers and with other clients of the store.
#[derive(Default)]
pub(crate) struct Edits(RefCell<HashMap<Box<[u8]>, EditLock>>);

type EditLock = Arc<Mutex<()>>;

/// The lock of a key. Dropping it unlocks the key for the next edit.
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
        // Waiting edits also hold a reference to the mutex.
        if edits.get(&self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            edits.remove(&self.key);
        }
    }
}

fn contended() -> Failure {
    Failure::line(b"SERVER_ERROR the item kept changing; try again")
}

/// The maximum number of tries of an edit. A try fails only if another write succeeded.
const TRIES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_as_expiry_time_is_reported_as_the_time_that_is_left() {
        let unix_s = 1_790_000_000;
        assert_eq!(ttl_at(0, unix_s), None);
        assert_eq!(ttl_at(-1, unix_s), Some(0));
        assert_eq!(ttl_at(2_592_000, unix_s), Some(2_592_000));
        assert_eq!(ttl_at(2_592_001, unix_s), Some(0));
        assert_eq!(ttl_at(1_790_000_100, unix_s), Some(100));
    }
}
