//! The embedded store as a backend. Its answers are ready at once.

use std::rc::Rc;
use std::sync::Arc;

use protocol::MetaKey;
use protocol::command::{Arithmetic, Get, MetaArithmetic, MetaSet, Store, StoreVerb};
use protocol::counter::Direction;
use protocol::meta::Meta;
use protocol::reply::{ItemFacts, MetaOutcome};
use smallvec::SmallVec;
use store::embedded::{
    self, CoarseClock, Counted, Delta, Embedded, Fetch, Fetched, Glimpse, Mode, NewItem, Removal,
    Standing, Step,
};
use units::limits::ITEM_OVERHEAD_BYTES;

use super::{Count, Failure, Item, Life, MetaDebug, MetaItem, Outcome, Version, Written};
use crate::hot_values::{HotValue, HotValues};
use crate::spare_memory::SpareMemory;
use crate::values::Stored;

/// One worker's view of the embedded store, which all workers share.
#[derive(Clone)]
pub(crate) struct Local(Rc<Shared>);

struct Shared {
    store: Arc<Embedded>,
    time: CoarseClock,
    hot: Option<Arc<HotValues>>,
    spare_memory: Arc<SpareMemory>,
}

/// The result of a get that may have been answered from the store's memory.
pub(crate) enum LocalGet {
    Missing,
    Answered,
    Item(Item),
}

impl Local {
    pub(crate) fn new(
        store: Arc<Embedded>,
        time: CoarseClock,
        hot: Option<Arc<HotValues>>,
        spare_memory: Arc<SpareMemory>,
    ) -> Self {
        Self(Rc::new(Shared { store, time, hot, spare_memory }))
    }

    /// Returns a backend with the same items, which returns no logical values.
    pub(crate) fn as_stored(&self) -> Self {
        let Shared { store, time, spare_memory, .. } = &*self.0;
        Self::new(Arc::clone(store), time.clone(), None, Arc::clone(spare_memory))
    }

    /// Measures whether the store has memory to spare.
    pub(crate) fn measure(&self) {
        self.0.spare_memory.measure(&self.0.store);
    }

    pub(crate) fn has_spare_memory(&self) -> bool {
        self.0.spare_memory.is_there()
    }

    /// Removes some of the expired items.
    pub(crate) fn sweep(&self) -> usize {
        self.0.store.sweep(SWEEP_ITEMS, self.0.time.now_s())
    }

    pub(crate) fn time(&self) -> &CoarseClock {
        &self.0.time
    }

    /// Returns what a lookup of `key` would find, see [`Embedded::standing`].
    pub(crate) fn standing(
        &self,
        key: &[u8],
        using: impl FnOnce(&[u8]) -> usize,
    ) -> Standing<usize> {
        self.0.store.standing(key, self.0.time.now_s(), using)
    }

    /// Begins a walk over all items. Returns `None` while another walk is in progress.
    pub(crate) fn walk(&self) -> Option<embedded::Walk> {
        self.0.store.walk()
    }

    /// Returns the item of `key`, which is one of the keys of `get`.
    pub(crate) fn get(&self, get: &Get<'_>, key: &[u8]) -> Option<Item> {
        match self.get_in_place(get, key, |_| false) {
            LocalGet::Item(item) => Some(item),
            LocalGet::Missing | LocalGet::Answered => None,
        }
    }

    /// Returns the item of `key`, which is one of the keys of `get`, unless `answer` returns true: it has then answered
    /// from the store's memory, and the value is not copied twice. It runs under a lock of the store.
    pub(crate) fn get_in_place(
        &self,
        get: &Get<'_>,
        key: &[u8],
        mut answer: impl FnMut(&Glimpse<'_>) -> bool,
    ) -> LocalGet {
        let now_s = self.0.time.now_s();
        let touch =
            get.touch_exptime_s.map(|exptime_s| [Step::Touch(self.0.time.expiry(exptime_s))]);
        let steps = touch.as_ref().map_or(&[][..], |steps| &steps[..]);
        let using = |item: &Glimpse<'_>| match answer(item) {
            true => Some(None),
            false => self.find_hot(key, item).map(Some),
        };
        let how = Fetch { steps, ..Fetch::GET };
        match self.0.store.fetch_in_place(key, &how, now_s, using) {
            None => LocalGet::Missing,
            Some((_, Some(None))) => LocalGet::Answered,
            Some((Fetched { value, flags, cas, version, .. }, used)) => {
                let hot = used.flatten();
                LocalGet::Item(Item { value, hot, client_flags: flags, cas, version })
            }
        }
    }

    fn find_hot(&self, key: &[u8], item: &Glimpse<'_>) -> Option<HotValue> {
        self.0.hot.as_ref()?.find(key, item)
    }

    pub(super) fn store(&self, store: &Store<'_>, value: &Stored<'_>) -> Outcome<Written> {
        let mode = match store.verb {
            StoreVerb::Add => Mode::Add,
            StoreVerb::Replace => Mode::Replace,
            StoreVerb::Cas => Mode::Compare { cas: store.cas, stale_if_older: false },
            StoreVerb::Set | StoreVerb::Append | StoreVerb::Prepend => Mode::Set,
        };
        let item = NewItem {
            value: value.as_slice(),
            flags: store.client_flags,
            exptime_s: self.0.time.expiry(store.exptime_s),
            key_is_binary: false,
        };
        self.write_and_give(&store.key, item, mode, None, value)
    }

    pub(super) fn delete(&self, key: &[u8]) -> bool {
        self.0.store.delete(key, None, self.0.time.now_s()) == Removal::Done
    }

    pub(super) fn touch(&self, key: &[u8], exptime_s: i32) -> bool {
        self.0.store.touch(key, self.0.time.expiry(exptime_s), self.0.time.now_s())
    }

    pub(super) fn count(&self, arithmetic: &Arithmetic<'_>) -> Outcome<Count> {
        let increment = arithmetic.direction == Direction::Increment;
        let delta = Delta::classic(increment, arithmetic.delta);
        self.counted(&arithmetic.key, &delta)
    }

    /// Returns an item. If it is stale, `takes_win` gives the caller the right to refill it.
    pub(super) fn meta_get(&self, meta: &Meta<'_>, takes_win: bool) -> Option<MetaItem> {
        let steps = self.steps(meta);
        let how = Fetch { bump: !meta.flags.has(b'u'), meta: takes_win, steps: &steps };
        let now_s = self.0.time.now_s();
        let using = |item: &Glimpse<'_>| self.find_hot(meta.key.bytes(), item);
        let (fetched, hot) = self.0.store.fetch_in_place(meta.key.bytes(), &how, now_s, using)?;
        let mut facts = facts(&fetched, now_s, meta.key.is_binary());
        if let (true, Some(given)) = (fetched.created, given_cas(meta)) {
            self.0.store.give_cas(meta.key.bytes(), fetched.cas, given, now_s);
            facts.cas = given;
        }
        Some(MetaItem { facts, value: Some(fetched.value), hot, version: fetched.version })
    }

    pub(super) fn meta_set(&self, set: &MetaSet<'_>, value: &Stored<'_>) -> Outcome<Written> {
        let flags = &set.meta.flags;
        let mode = match set.verb {
            StoreVerb::Add => Mode::Add,
            StoreVerb::Replace => Mode::Replace,
            StoreVerb::Cas => {
                Mode::Compare { cas: flags.compare.unwrap_or(0), stale_if_older: flags.has(b'I') }
            }
            StoreVerb::Set | StoreVerb::Append | StoreVerb::Prepend => Mode::Set,
        };
        let item = NewItem {
            value: value.as_slice(),
            flags: flags.client_flags,
            exptime_s: flags.exptime_s.map_or(0, |exptime_s| self.0.time.expiry(exptime_s)),
            key_is_binary: set.meta.key.is_binary(),
        };
        let key = set.meta.key.bytes();
        self.write_and_give(key, item, mode, given_cas(&set.meta), value)
    }

    pub(super) fn meta_delete(&self, meta: &Meta<'_>) -> Outcome<MetaOutcome> {
        let flags = &meta.flags;
        if flags.has(b'x') {
            return self.remove_value(meta);
        }
        let outcome = self.delete_or_invalidate(meta, flags.compare);
        if outcome == MetaOutcome::Done && flags.has(b'I') {
            self.give_now(meta.key.bytes(), given_cas(meta));
        }
        Ok(outcome)
    }

    /// Replaces the value by an empty one, and marks the item stale if `meta` says so.
    fn remove_value(&self, meta: &Meta<'_>) -> Outcome<MetaOutcome> {
        let (key, flags) = (meta.key.bytes(), &meta.flags);
        let exptime_s = flags.exptime_s.map_or(0, |exptime_s| self.0.time.expiry(exptime_s));
        for _ in 0..TRIES_MAX {
            let now_s = self.0.time.now_s();
            let Some(found) = self.0.store.fetch(key, &Fetch::PEEK, now_s) else {
                return Ok(MetaOutcome::NotFound);
            };
            if flags.compare.is_some_and(|cas| cas != found.cas) {
                return Ok(MetaOutcome::Exists);
            }
            let item = NewItem {
                value: b"",
                flags: flags.client_flags,
                exptime_s,
                key_is_binary: meta.key.is_binary(),
            };
            let mode = Mode::Compare { cas: found.cas, stale_if_older: false };
            // Another client may change the item meanwhile.
            let Written::Stored { cas } = self.write(key, item, mode)? else { continue };
            if flags.has(b'I') {
                self.delete_or_invalidate(meta, Some(cas));
                self.give_now(key, given_cas(meta));
            } else {
                // As in memcached, the item keeps its CAS.
                self.0.store.give_cas(key, cas, given_cas(meta).unwrap_or(found.cas), now_s);
            }
            return Ok(MetaOutcome::Done);
        }
        Err(Failure::line(b"SERVER_ERROR the item kept changing; try again"))
    }

    /// Gives the item of a key the CAS that a client has chosen, if it has.
    fn give_now(&self, key: &[u8], given: Option<u64>) {
        let now_s = self.0.time.now_s();
        if let Some(given) = given
            && let Some(found) = self.0.store.fetch(key, &Fetch::PEEK, now_s)
        {
            self.0.store.give_cas(key, found.cas, given, now_s);
        }
    }

    /// Gives the item that was written the CAS that a client has chosen, if it has.
    fn give(&self, key: &[u8], written: Written, given: Option<u64>) -> Written {
        match (written, given) {
            (Written::Stored { cas }, Some(given)) => {
                self.0.store.give_cas(key, cas, given, self.0.time.now_s());
                Written::Stored { cas: given }
            }
            (written, _) => written,
        }
    }

    fn delete_or_invalidate(&self, meta: &Meta<'_>, compare: Option<u64>) -> MetaOutcome {
        let (key, flags, now_s) = (meta.key.bytes(), &meta.flags, self.0.time.now_s());
        let removal = if flags.has(b'I') {
            let exptime_s = flags.exptime_s.map(|exptime_s| self.0.time.expiry(exptime_s));
            self.0.store.invalidate(key, compare, exptime_s, now_s)
        } else {
            self.0.store.delete(key, compare, now_s)
        };
        match removal {
            Removal::Done => MetaOutcome::Done,
            Removal::NotFound => MetaOutcome::NotFound,
            Removal::Exists => MetaOutcome::Exists,
        }
    }

    pub(super) fn meta_count(&self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        let flags = &arithmetic.meta.flags;
        let steps = self.steps(&arithmetic.meta);
        let delta = Delta {
            increment: arithmetic.direction == Direction::Increment,
            by: flags.delta,
            compare: flags.compare.unwrap_or(0),
            initial: flags.initial,
            steps: &steps,
        };
        let key = arithmetic.meta.key.bytes();
        let counted = self.counted(key, &delta)?;
        Ok(match (counted, given_cas(&arithmetic.meta)) {
            (Count::Done { number, created, facts }, Some(given)) => {
                self.0.store.give_cas(key, facts.cas, given, self.0.time.now_s());
                Count::Done { number, created, facts: ItemFacts { cas: given, ..facts } }
            }
            (counted, _) => counted,
        })
    }

    pub(super) fn meta_debug(&self, key: &MetaKey<'_>) -> Option<MetaDebug> {
        let now_s = self.0.time.now_s();
        let fetched = self.0.store.fetch(key.bytes(), &Fetch::PEEK, now_s)?;
        let item_bytes = ITEM_OVERHEAD_BYTES + key.bytes().len() + fetched.value.len();
        let facts = facts(&fetched, now_s, key.is_binary());
        Some(MetaDebug::Facts { facts, item_bytes })
    }

    pub(super) fn peek(&self, key: &MetaKey<'_>) -> Option<Version> {
        let now_s = self.0.time.now_s();
        let fetched = self.0.store.fetch(key.bytes(), &Fetch::PEEK, now_s)?;
        Some(Version {
            life: match fetched.exptime_s {
                0 => Life::Never,
                exptime_s => Life::Until { exptime_s, left_s: exptime_s.saturating_sub(now_s) },
            },
            value: fetched.value,
            client_flags: fetched.flags,
            cas: fetched.cas,
            won: false,
            keeps_marks: false,
            given_cas: None,
        })
    }

    pub(super) fn rewrite(
        &self,
        key: &MetaKey<'_>,
        version: &Version,
        exptime_s: Option<i32>,
        value: &Stored<'_>,
    ) -> Outcome<Written> {
        let kept = match version.life {
            Life::Until { exptime_s, .. } => exptime_s,
            Life::Never | Life::Left { .. } => 0,
        };
        let item = NewItem {
            value: value.as_slice(),
            flags: version.client_flags,
            exptime_s: exptime_s.map_or(kept, |exptime_s| self.0.time.expiry(exptime_s)),
            key_is_binary: key.is_binary(),
        };
        let cas = version.cas;
        let mode = match version.keeps_marks {
            true => Mode::Overwrite { cas },
            false => Mode::Compare { cas, stale_if_older: false },
        };
        let given = version.given_cas.filter(|cas| *cas != 0);
        self.write_and_give(key.bytes(), item, mode, given, value)
    }

    pub(super) fn flush_all(&self, delay_s: i32) {
        let now_s = self.0.time.now_s();
        let at_s = if delay_s <= 0 { now_s } else { self.0.time.expiry(delay_s) };
        self.0.store.flush_all(at_s, now_s);
    }

    pub(super) fn stats(&self, page: &str) -> Option<Vec<(String, String)>> {
        let stats = self.0.store.stats();
        match page {
            "" => {}
            "items" => return Some(of_class(&stats)),
            "slabs" => return Some(of_slabs(&stats)),
            "sizes" => return Some(vec![("sizes_status".to_owned(), "disabled".to_owned())]),
            "extstore" => return Some(Vec::new()),
            _ => return None,
        }
        let named = [
            ("curr_items", stats.curr_items),
            ("total_items", stats.total_items),
            ("bytes", stats.bytes),
            ("limit_maxbytes", stats.limit_maxbytes),
            ("evictions", stats.evictions),
            ("evicted_unfetched", stats.evicted_unfetched),
            ("expired_unfetched", stats.expired_unfetched),
            ("reclaimed", stats.reclaimed),
            ("crawler_reclaimed", stats.crawler_reclaimed),
            ("get_expired", stats.get_expired),
            ("get_flushed", stats.get_flushed),
        ];
        let named = named.into_iter().chain([("time", self.0.time.unix_s())]);
        let text = |(name, value): (&str, u64)| (name.to_owned(), value.to_string());
        Some(named.map(text).collect())
    }

    /// Writes an item, which gets the CAS that a client has chosen, if it has. The item's hot value, if there is one,
    /// is renewed.
    fn write_and_give(
        &self,
        key: &[u8],
        item: NewItem<'_>,
        mode: Mode,
        given: Option<u64>,
        value: &Stored<'_>,
    ) -> Outcome<Written> {
        let written = self.write(key, item, mode)?;
        // What a client has chosen may be the CAS of several values, so such a value is not kept.
        if let (Written::Stored { cas }, None, Some(hot)) = (&written, given, &self.0.hot)
            && let Stored::WithLogical { stored, logical } = value
        {
            hot.renew(key, *cas, logical, stored.len());
        }
        Ok(self.give(key, written, given))
    }

    fn write(&self, key: &[u8], item: NewItem<'_>, mode: Mode) -> Outcome<Written> {
        match self.0.store.store(key, item, mode, self.0.time.now_s()) {
            Ok(embedded::Stored::Stored { cas }) => Ok(Written::Stored { cas }),
            Ok(embedded::Stored::NotStored) => Ok(Written::NotStored),
            Ok(embedded::Stored::Exists) => Ok(Written::Exists),
            Ok(embedded::Stored::NotFound) => Ok(Written::NotFound),
            Err(_) => Err(Failure::OutOfMemory),
        }
    }

    fn counted(&self, key: &[u8], delta: &Delta<'_>) -> Outcome<Count> {
        let now_s = self.0.time.now_s();
        match self.0.store.arithmetic(key, delta, now_s) {
            Ok(Counted::Done { number, cas, exptime_s, created }) => {
                let ttl_s = ttl_s(exptime_s, now_s);
                let facts = ItemFacts { cas, ttl_s, ..ItemFacts::default() };
                Ok(Count::Done { number, created, facts })
            }
            Ok(Counted::NotFound) => Ok(Count::NotFound),
            Ok(Counted::Exists) => Ok(Count::Exists),
            Ok(Counted::NotANumber) => Ok(Count::NonNumeric),
            Err(_) => Err(Failure::OutOfMemory),
        }
    }

    /// Returns the steps by which the flags change the item's life, in the client's order.
    fn steps(&self, meta: &Meta<'_>) -> SmallVec<[Step; 4]> {
        let flags = &meta.flags;
        let step = |letter| match letter {
            b'T' => flags.exptime_s.map(|exptime_s| Step::Touch(self.0.time.expiry(exptime_s))),
            b'N' => {
                flags.vivify_exptime_s.map(|exptime_s| Step::Vivify(self.0.time.expiry(exptime_s)))
            }
            b'R' => flags.recache_s.map(|before_s| Step::Recache(self.0.time.expiry(before_s))),
            b't' => Some(Step::Ttl),
            _ => None,
        };
        flags.iter().filter_map(|(letter, _)| step(letter)).collect()
    }
}

/// Returns the statistics of all items as those of one slab class, or an empty list if there are no items.
fn of_class(stats: &embedded::Stats) -> Vec<(String, String)> {
    if stats.curr_items == 0 {
        return Vec::new();
    }
    let named = [
        ("number", stats.curr_items),
        ("mem_requested", stats.bytes),
        ("evicted", stats.evictions),
        ("evicted_time", stats.evicted_last.map_or(0, |(_, idle_s)| idle_s.into())),
        ("reclaimed", stats.reclaimed),
        ("expired_unfetched", stats.expired_unfetched),
        ("evicted_unfetched", stats.evicted_unfetched),
        ("crawler_reclaimed", stats.crawler_reclaimed),
    ];
    named.into_iter().map(|(name, value)| (format!("items:1:{name}"), value.to_string())).collect()
}

fn of_slabs(stats: &embedded::Stats) -> Vec<(String, String)> {
    let of_class = (stats.curr_items > 0).then_some(("1:used_chunks", stats.curr_items));
    let all = [("active_slabs", u64::from(stats.curr_items > 0)), ("total_malloced", stats.bytes)];
    let text = |(name, value): (&str, u64)| (name.to_owned(), value.to_string());
    of_class.into_iter().chain(all).map(text).collect()
}

fn facts(fetched: &Fetched, now_s: u32, binary_key: bool) -> ItemFacts {
    ItemFacts {
        value_bytes: fetched.value.len(),
        cas: fetched.cas,
        client_flags: fetched.flags,
        ttl_s: ttl_s(fetched.exptime_s, now_s),
        idle_s: fetched.idle_s,
        fetched: fetched.hit_before,
        binary_key: if fetched.created { binary_key } else { fetched.key_is_binary },
        won: fetched.won,
        stale: fetched.stale,
        already_won: fetched.token_sent,
    }
}

/// Returns the CAS that the client has chosen. 0 is no CAS.
fn given_cas(meta: &Meta<'_>) -> Option<u64> {
    meta.flags.given_cas.filter(|cas| *cas != 0)
}

/// Returns the time to live as memcached prints it (s). For an expired item the number wraps around.
fn ttl_s(exptime_s: u32, now_s: u32) -> Option<u32> {
    (exptime_s != 0).then(|| exptime_s.wrapping_sub(now_s))
}

/// The most tries to remove a value. A try fails only if another client has changed the item.
const TRIES_MAX: usize = 100;

/// The number of items that one sweep examines. It takes some hundred microseconds, once a second.
const SWEEP_ITEMS: usize = 50_000;
