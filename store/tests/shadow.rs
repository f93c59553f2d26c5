//! Tests that the embedded store and a map agree about every answer under one clock, as long as
//! nothing is evicted.

use std::collections::BTreeMap;

use proptest::prelude::*;
use store::Embedded;
use store::embedded::{Counted, Delta, Fetch, Mode, NewItem, Options, Removal, Stored};
use units::ByteCount;

proptest! {
    #[test]
    fn the_store_is_a_map_whose_items_end(
        acts in prop::collection::vec((0..6_u8, act()), 1..200),
    ) {
        let mut pair = Pair::new();
        for (key, act) in acts {
            pair.forget_what_ended();
            pair.act(key, act)?;
        }
    }
}

/// The store and its shadow.
struct Pair {
    store: Embedded,
    shadow: BTreeMap<u8, Known>,
    now_s: u32,
    /// A flush ends the items that were stored up to this second, once this second has come.
    flush_until_s: u32,
}

/// An item in the shadow map.
#[derive(Clone)]
struct Known {
    value: String,
    cas: u64,
    exptime_s: u32,
    stored_s: u32,
}

#[derive(Clone, Debug)]
enum Act {
    Fetch,
    Touch { life_s: u32 },
    Put { mode: u8, number: u16, life_s: u32 },
    Delete { right_version: bool },
    Count { up: bool, by: u64 },
    Flush { delay_s: u32 },
    Sweep,
    Wait { by_s: u32 },
}

impl Pair {
    fn new() -> Self {
        let options = Options { limit: ByteCount::mib(64), evict: true, seed: 1 };
        let store = Embedded::new(options);
        Self { store, shadow: BTreeMap::new(), now_s: 100, flush_until_s: 0 }
    }

    fn forget_what_ended(&mut self) {
        let (now_s, flush_until_s) = (self.now_s, self.flush_until_s);
        self.shadow.retain(|_, known| {
            let flushed = flush_until_s <= now_s && known.stored_s <= flush_until_s;
            !flushed && (known.exptime_s == 0 || known.exptime_s > now_s)
        });
    }

    fn end(&self, life_s: u32) -> u32 {
        if life_s == 0 { 0 } else { self.now_s + life_s }
    }

    fn act(&mut self, key: u8, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Fetch => return self.fetch(key),
            Act::Touch { life_s } => {
                let exptime_s = self.end(life_s);
                let known = self.shadow.get_mut(&key);
                let touched = self.store.touch(&name(key), exptime_s, self.now_s);
                prop_assert_eq!(touched, known.is_some());
                known.into_iter().for_each(|known| known.exptime_s = exptime_s);
            }
            Act::Put { mode, number, life_s } => return self.put(key, mode, number, life_s),
            Act::Delete { right_version } => return self.delete(key, right_version),
            Act::Count { up, by } => return self.count(key, up, by),
            Act::Flush { delay_s } => {
                self.store.flush_all(self.now_s + delay_s, self.now_s);
                self.flush_until_s = self.now_s + delay_s - 1;
                if self.flush_until_s <= self.now_s {
                    self.shadow.clear();
                }
            }
            Act::Sweep => {
                self.store.sweep(usize::MAX, self.now_s);
                prop_assert_eq!(self.store.stats().curr_items, self.shadow.len() as u64);
            }
            Act::Wait { by_s } => self.now_s += by_s,
        }
        Ok(())
    }

    fn fetch(&mut self, key: u8) -> Result<(), TestCaseError> {
        let found = self.store.fetch(&name(key), &Fetch::GET, self.now_s);
        let found = found.map(|item| (item.value, item.cas, item.exptime_s));
        let known = self.shadow.get(&key).cloned();
        prop_assert_eq!(found, known.map(|it| (it.value.into(), it.cas, it.exptime_s)));
        Ok(())
    }

    fn put(&mut self, key: u8, mode: u8, number: u16, life_s: u32) -> Result<(), TestCaseError> {
        let known = self.shadow.get(&key);
        let cas = known.map_or(1, |known| known.cas + u64::from(number % 2));
        let compare = Mode::Compare { cas, stale_if_older: false };
        let mode = [Mode::Set, Mode::Add, Mode::Replace, compare][usize::from(mode)];
        let refusal = match (mode, known) {
            (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => None,
            (Mode::Add, Some(_)) | (Mode::Replace, None) => Some(Stored::NotStored),
            (_, None) => Some(Stored::NotFound),
            (_, Some(known)) => (cas != known.cas).then_some(Stored::Exists),
        };
        let (value, exptime_s) = (number.to_string(), self.end(life_s));
        let item = NewItem { value: value.as_bytes(), exptime_s, ..NewItem::default() };
        match self.store.store(&name(key), item, mode, self.now_s) {
            Ok(Stored::Stored { cas }) => {
                prop_assert_eq!(refusal, None);
                let stored_s = self.now_s;
                self.shadow.insert(key, Known { value, cas, exptime_s, stored_s });
            }
            other => prop_assert_eq!(other.ok(), refusal),
        }
        Ok(())
    }

    fn delete(&mut self, key: u8, right_version: bool) -> Result<(), TestCaseError> {
        let known = self.shadow.get(&key);
        let cas = known.map_or(1, |known| known.cas + u64::from(!right_version));
        let expected = match known {
            None => Removal::NotFound,
            Some(_) if right_version => Removal::Done,
            Some(_) => Removal::Exists,
        };
        prop_assert_eq!(self.store.delete(&name(key), Some(cas), self.now_s), expected);
        if right_version {
            self.shadow.remove(&key);
        }
        Ok(())
    }

    fn count(&mut self, key: u8, up: bool, by: u64) -> Result<(), TestCaseError> {
        let counted = self.store.arithmetic(&name(key), &Delta::classic(up, by), self.now_s);
        let Some(known) = self.shadow.get_mut(&key) else {
            prop_assert_eq!(counted, Ok(Counted::NotFound));
            return Ok(());
        };
        let old: u64 = known.value.trim_end().parse().expect("only numbers are put");
        let expected = if up { old + by } else { old.saturating_sub(by) };
        let Ok(Counted::Done { number, cas, .. }) = counted else {
            return Err(TestCaseError::fail(format!("{counted:?}")));
        };
        prop_assert_eq!(number, expected);
        known.value = format!("{number:<width$}", width = known.value.len());
        (known.cas, known.stored_s) = (cas, self.now_s);
        Ok(())
    }
}

fn name(key: u8) -> [u8; 2] {
    [b'k', key]
}

fn act() -> impl Strategy<Value = Act> {
    let life = || prop_oneof![Just(0), 1..20_u32];
    let put = (0..4_u8, 0..2000_u16, life());
    prop_oneof![
        4 => Just(Act::Fetch),
        1 => life().prop_map(|life_s| Act::Touch { life_s }),
        6 => put.prop_map(|(mode, number, life_s)| Act::Put { mode, number, life_s }),
        1 => any::<bool>().prop_map(|right_version| Act::Delete { right_version }),
        2 => (any::<bool>(), 0..50_u64).prop_map(|(up, by)| Act::Count { up, by }),
        1 => (0..5_u32).prop_map(|delay_s| Act::Flush { delay_s }),
        1 => Just(Act::Sweep),
        2 => (0..10_u32).prop_map(|by_s| Act::Wait { by_s }),
    ]
}
