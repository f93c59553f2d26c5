//! Measures how well Rebate's store chooses what to evict, compared with the server that is estimated. It replays the
//! observed requests on a small store of Rebate, which holds as many of the followed keys as the server did (a
//! miniature simulation, Waldspurger et al., ATC 2017). All items have one size here, because a request that finds
//! nothing does not tell the size of its value.

use std::collections::HashSet;

use store::embedded::{Fetch, Mode, NewItem};
use store::{Embedded, Options};
use units::ByteCount;

/// The requests for the followed keys, in their order.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    /// The hashes of the keys that the cache held at the start, the least recently used one first.
    filled: Vec<u64>,
    requests: Vec<Request>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    hash: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A get that found its key on the server.
    Hit,
    /// A get that found nothing there.
    Miss,
    Set,
}

/// The numbers of gets of a log that found nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Misses {
    /// Those on the server.
    pub(super) of_server: usize,
    /// Those on Rebate's store.
    pub(super) of_rebate: usize,
    /// The items that Rebate's store held at the end, over those that the server held of the followed keys.
    pub(super) items_ratio: f64,
}

impl RequestLog {
    pub(super) fn fill(&mut self, hash: u64) {
        self.filled.push(hash);
    }

    pub(super) fn hit(&mut self, hash: u64) {
        self.push(Request { hash, kind: Kind::Hit });
    }

    pub(super) fn miss(&mut self, hash: u64) {
        self.push(Request { hash, kind: Kind::Miss });
    }

    pub(super) fn set(&mut self, hash: u64) {
        self.push(Request { hash, kind: Kind::Set });
    }

    fn push(&mut self, request: Request) {
        if self.requests.len() < REQUESTS_MAX {
            self.requests.push(request);
        }
    }

    /// Runs the log on Rebate's store. Returns none if the server missed too little to compare.
    pub(super) fn misses(&self) -> Option<Misses> {
        let missed = |request: &&Request| request.kind == Kind::Miss;
        let of_server = self.requests.iter().filter(missed).count();
        if of_server < MISSES_MIN || self.filled.len() < ITEMS_MIN {
            return None;
        }
        let items = self.filled.len() as f64;
        // The first run tells how much memory an item takes.
        let (_, held) = self.run(items * ITEM_BYTES);
        let (of_rebate, held) = self.run(items * ITEM_BYTES * items / held.max(1) as f64);
        Some(Misses { of_server, of_rebate, items_ratio: held as f64 / items })
    }

    /// Returns the gets that find nothing in a store of these bytes, and the items at the end.
    fn run(&self, bytes: f64) -> (usize, u64) {
        let store = Embedded::new(Options { limit: ByteCount(bytes as u64), evict: true, seed: 1 });
        let value = [0; VALUE_BYTES];
        let put = |hash: u64| {
            let item = NewItem { value: &value, ..NewItem::default() };
            // A store for few items may refuse one.
            let _ = store.store(&hash.to_ne_bytes(), item, Mode::Set, NOW_S);
        };
        self.filled.iter().copied().for_each(put);
        let mut misses = 0;
        // The keys that the server missed and this store found. A client that fills the cache after a miss would not
        // have set these.
        let mut found = HashSet::new();
        for Request { hash, kind } in &self.requests {
            if *kind == Kind::Set {
                if !found.remove(hash) {
                    put(*hash);
                }
            } else if store.fetch(&hash.to_ne_bytes(), &Fetch::GET, NOW_S).is_none() {
                misses += 1;
                // Where the server found it, no set follows.
                if *kind == Kind::Hit {
                    put(*hash);
                }
            } else if *kind == Kind::Miss {
                found.insert(*hash);
            }
        }
        (misses, store.stats().curr_items)
    }
}

/// As many requests as are kept (16 bytes each).
const REQUESTS_MAX: usize = 1 << 20;

/// The fewest misses of a server that tell how it compares with another one.
const MISSES_MIN: usize = 1_000;

/// The fewest items of a store whose segments are small compared with it.
const ITEMS_MIN: usize = 2_000;

const VALUE_BYTES: usize = 200;

/// About what an item takes in the small store.
const ITEM_BYTES: f64 = 240.0;

/// No item of the small store expires.
const NOW_S: u32 = 1;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;

    use units::Prng;

    use super::*;

    /// Runs a client that sets what it misses on a cache that evicts the oldest item, whether it was used or not.
    fn first_in_first_out(items: usize, gets: usize) -> RequestLog {
        let mut prng = Prng::new(3);
        let mut draw = || (8.0 * items as f64).powf(prng.unit()) as u64;
        let mut log = RequestLog::default();
        let (mut order, mut held) = (VecDeque::new(), HashSet::new());
        while order.len() < items {
            let key = draw();
            if held.insert(key) {
                order.push_back(key);
                log.fill(key);
            }
        }
        for _ in 0..gets {
            let key = draw();
            if held.contains(&key) {
                log.hit(key);
                continue;
            }
            log.miss(key);
            log.set(key);
            held.insert(key);
            order.push_back(key);
            held.remove(&order.pop_front().unwrap());
        }
        log
    }

    #[test]
    fn a_server_that_forgets_what_is_used_misses_more() {
        let misses = first_in_first_out(4_000, 100_000).misses().unwrap();
        let ratio = misses.of_rebate as f64 / misses.of_server as f64;
        assert!((0.5..0.9).contains(&ratio), "{misses:?}");
        assert!((misses.items_ratio - 1.0).abs() < 0.1, "{misses:?}");
    }

    #[test]
    fn rebates_own_requests_give_its_own_misses() {
        let items = 4_000;
        let mut prng = Prng::new(5);
        let mut draw = || (8.0 * items as f64).powf(prng.unit()) as u64;
        let store = Embedded::new(Options { limit: ByteCount(items * 240), evict: true, seed: 9 });
        let item = NewItem { value: &[1; VALUE_BYTES], ..NewItem::default() };
        let set = |key: u64| store.store(&key.to_ne_bytes(), item, Mode::Set, NOW_S).is_ok();
        let is_held = |key: u64| store.fetch(&key.to_ne_bytes(), &Fetch::GET, NOW_S).is_some();
        for _ in 0..100_000 {
            let key = draw();
            assert!(is_held(key) || set(key));
        }
        let mut log = RequestLog::default();
        let peek = |key: u64| store.fetch(&key.to_ne_bytes(), &Fetch::PEEK, NOW_S).is_some();
        (0..8 * items).rev().filter(|key| peek(*key)).for_each(|key| log.fill(key));
        for _ in 0..100_000 {
            let key = draw();
            if is_held(key) {
                log.hit(key);
            } else {
                assert!(set(key));
                log.miss(key);
                log.set(key);
            }
        }
        let misses = log.misses().unwrap();
        let ratio = misses.of_rebate as f64 / misses.of_server as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{misses:?}");
    }

    #[test]
    fn few_misses_tell_nothing() {
        assert_eq!(first_in_first_out(4_000, 1_000).misses(), None);
        assert_eq!(first_in_first_out(100, 50_000).misses(), None);
    }
}
