//! Implements memcached's rules for single items in their simplest form: a map and one clock. The caller
//! removes expired items before each operation. The map never evicts. The fuzz target that compares a store
//! with the map removes the items that the store has evicted.

use std::collections::BTreeMap;

use protocol::counter::{self, Direction};
use store::embedded::{Delta, Fetch, Fetched, Mode, NewItem, Removal, Step, Stored};

/// The map, and the time (s) up to which a flush invalidates stored items.
#[derive(Debug, Default)]
pub struct Shadow {
    items: BTreeMap<Vec<u8>, Known>,
    flushed_until_s: u32,
}

/// An item of the map.
#[derive(Clone, Debug)]
pub struct Known {
    value: Vec<u8>,
    cas: u64,
    flags: u32,
    exptime_s: u32,
    time_s: u32,
    fetched: bool,
    stale: bool,
    token_sent: bool,
    key_is_binary: bool,
}

/// The result of counting. The last three variants correspond to refusals of the store.
#[derive(Debug, PartialEq, Eq)]
pub enum Count {
    /// The new number.
    Number {
        /// The number.
        number: u64,
        /// True if the number has more digits than the old value, so that the value moved.
        grown: bool,
    },
    /// The item did not exist and was created.
    Created,
    /// There is no item with this key.
    NotFound,
    /// The item has another version.
    Exists,
    /// The value is not a number.
    NotANumber,
}

impl Shadow {
    /// Removes the items that have expired or were flushed by `now_s`.
    pub fn end(&mut self, now_s: u32) {
        let until_s = self.flushed_until_s;
        self.items.retain(|_, item| {
            let flushed = until_s <= now_s && item.time_s <= until_s;
            !flushed && (item.exptime_s == 0 || item.exptime_s > now_s)
        });
    }

    /// Returns the item of `key`.
    pub fn item(&self, key: &[u8]) -> Option<&Known> {
        self.items.get(key)
    }

    /// Removes an item.
    pub fn remove(&mut self, key: &[u8]) {
        self.items.remove(key);
    }

    /// Returns the number of items, and the bytes of their keys and values.
    pub fn size(&self) -> (usize, usize) {
        let bytes = self.items.iter().map(|(key, item)| key.len() + item.value.len());
        (self.items.len(), bytes.sum())
    }

    /// Returns the result of a fetch that changes nothing.
    pub fn peek(&self, key: &[u8], now_s: u32) -> Option<Fetched> {
        self.items.get(key).cloned().map(|mut item| item.visit(&Fetch::PEEK, false, now_s))
    }

    /// Returns the result of a fetch, and marks the item as a fetch does.
    pub fn fetch(
        &mut self,
        key: &[u8],
        fetch: &Fetch<'_>,
        cas: u64,
        now_s: u32,
    ) -> Option<Fetched> {
        if let Some(item) = self.items.get_mut(key) {
            return Some(item.visit(fetch, false, now_s));
        }
        vivifies(fetch.steps).then(|| {
            let mut item = Known::new(&NewItem::default(), cas, now_s);
            let fetched = item.visit(fetch, true, now_s);
            self.items.insert(key.to_vec(), item);
            fetched
        })
    }

    /// Returns the answer with which a store refuses the value, or none if the store accepts it.
    pub fn refusal(&mut self, key: &[u8], mode: Mode, now_s: u32) -> Option<Stored> {
        let item = self.items.get_mut(key);
        match (mode, item) {
            (Mode::Add, Some(item)) => {
                item.time_s = now_s;
                Some(Stored::NotStored)
            }
            (Mode::Replace, None) => Some(Stored::NotStored),
            (Mode::Compare { .. } | Mode::Overwrite { .. }, None) => Some(Stored::NotFound),
            (Mode::Overwrite { cas }, Some(item)) => (cas != item.cas).then_some(Stored::Exists),
            (Mode::Compare { cas, stale_if_older }, Some(item)) => {
                let older = stale_if_older && cas != 0 && cas < item.cas;
                (cas != item.cas && !older).then_some(Stored::Exists)
            }
            _ => None,
        }
    }

    /// Stores a value that was not refused, as version `cas`.
    pub fn store(&mut self, key: &[u8], new: &NewItem<'_>, mode: Mode, cas: u64, now_s: u32) {
        let mut item = Known::new(new, cas, now_s);
        if let (Mode::Compare { cas: wanted, .. }, Some(old)) = (mode, self.items.get(key))
            && wanted != old.cas
        {
            (item.stale, item.token_sent) = (true, old.token_sent);
            item.exptime_s = old.exptime_s;
        }
        if let (Mode::Overwrite { .. }, Some(old)) = (mode, self.items.get(key)) {
            (item.stale, item.token_sent, item.fetched) = (old.stale, old.token_sent, old.fetched);
        }
        self.items.insert(key.to_vec(), item);
    }

    /// Returns the answer to a deletion or an invalidation. With `compare`, only an item of this version is removed.
    pub fn removal(&self, key: &[u8], compare: Option<u64>) -> Removal {
        match self.items.get(key) {
            None => Removal::NotFound,
            Some(item) if compare.is_some_and(|wanted| wanted != item.cas) => Removal::Exists,
            Some(_) => Removal::Done,
        }
    }

    /// Marks the item stale and gives it the version `cas`.
    pub fn invalidate(&mut self, key: &[u8], exptime_s: Option<u32>, cas: u64) {
        if let Some(item) = self.items.get_mut(key) {
            item.exptime_s = exptime_s.unwrap_or(item.exptime_s);
            (item.stale, item.token_sent, item.cas) = (true, false, cas);
        }
    }

    /// Returns the result that counting should have.
    pub fn counted(&self, key: &[u8], delta: &Delta<'_>) -> Count {
        let Some(item) = self.items.get(key) else {
            return if vivifies(delta.steps) { Count::Created } else { Count::NotFound };
        };
        if !item.value.is_empty() && delta.compare != 0 && delta.compare != item.cas {
            return Count::Exists;
        }
        let mut value = Vec::new();
        match counter::apply(&item.value, direction(delta), delta.by, &mut value) {
            Ok(number) => Count::Number { number, grown: value.len() > item.value.len() },
            Err(_) => Count::NotANumber,
        }
    }

    /// Applies the store's count and sets the version to `cas`. Returns the expiry time in the answer.
    pub fn count(&mut self, key: &[u8], delta: &Delta<'_>, cas: u64, now_s: u32) -> u32 {
        let created = !self.items.contains_key(key);
        let initial = delta.initial.to_string();
        let initial = NewItem { value: initial.as_bytes(), ..NewItem::default() };
        let item = self.items.entry(key.to_vec());
        let item = item.or_insert_with(|| Known::new(&initial, cas, now_s));
        if !created {
            let mut value = Vec::new();
            let number = counter::apply(&item.value, direction(delta), delta.by, &mut value);
            number.expect("it was counted");
            if value.len() > item.value.len() {
                let Known { flags, exptime_s, .. } = *item;
                let moved = NewItem { flags, exptime_s, ..NewItem::default() };
                *item = Known::new(&moved, cas, now_s);
            }
            (item.value, item.cas, item.time_s) = (value, cas, now_s);
        }
        item.apply(delta.steps, created).0
    }

    /// Flushes all items, now or at `at_s`.
    pub fn flush(&mut self, at_s: u32, now_s: u32) {
        self.flushed_until_s = at_s.saturating_sub(1);
        if self.flushed_until_s <= now_s {
            self.items.clear();
        }
    }
}

impl Known {
    /// Returns the version.
    pub fn cas(&self) -> u64 {
        self.cas
    }

    fn new(item: &NewItem<'_>, cas: u64, now_s: u32) -> Self {
        Self {
            value: item.value.to_vec(),
            cas,
            flags: item.flags,
            exptime_s: item.exptime_s,
            time_s: now_s,
            fetched: false,
            stale: false,
            token_sent: false,
            key_is_binary: item.key_is_binary,
        }
    }

    fn visit(&mut self, fetch: &Fetch<'_>, created: bool, now_s: u32) -> Fetched {
        let (exptime_s, won_by_step) = self.apply(fetch.steps, created);
        let won = won_by_step || (fetch.meta && self.stale && !self.token_sent);
        let fetched = Fetched {
            value: self.value.clone().into(),
            flags: self.flags,
            cas: self.cas,
            version: Some(self.cas),
            exptime_s,
            idle_s: now_s - self.time_s,
            hit_before: self.fetched,
            key_is_binary: self.key_is_binary,
            created,
            stale: self.stale,
            token_sent: self.token_sent,
            won,
        };
        self.token_sent |= fetch.meta && won;
        if fetch.bump {
            self.time_s = if self.fetched { now_s } else { self.time_s };
            self.fetched = true;
        }
        fetched
    }

    fn apply(&mut self, steps: &[Step], created: bool) -> (u32, bool) {
        let (mut shown_exptime_s, mut won) = (None, false);
        for step in steps {
            match *step {
                Step::Touch(exptime_s) => self.exptime_s = exptime_s,
                Step::Ttl => shown_exptime_s = Some(self.exptime_s),
                Step::Vivify(exptime_s) => {
                    if created {
                        (self.exptime_s, won) = (exptime_s, true);
                    }
                }
                Step::Recache(before_s) => {
                    let ends_soon = (1..before_s).contains(&self.exptime_s);
                    won |= ends_soon && !created && !self.token_sent;
                }
            }
        }
        (shown_exptime_s.unwrap_or(self.exptime_s), won)
    }
}

fn vivifies(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Vivify(_)))
}

fn direction(delta: &Delta<'_>) -> Direction {
    if delta.increment { Direction::Increment } else { Direction::Decrement }
}
