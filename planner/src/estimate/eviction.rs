//! Measures how well Rebate's store chooses what to evict, compared with the server that is estimated. It replays the
//! observed requests on a small store of Rebate, into which just the followed items of the server fit (a miniature
//! simulation, Waldspurger et al., ATC 2017). Items have the sizes that they would have there, because the store evicts
//! large items sooner.

use std::collections::HashSet;

use store::embedded::{Fetch, ITEM_OVERHEAD_BYTES, Mode, NewItem};
use store::{Embedded, Options};
use units::ByteCount;

use super::listing::RequestKind;
use super::log::{LoggedRequest, RequestLog};
use super::sizes::Sizes;

/// The numbers of gets of a log that found nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Misses {
    /// Those on the server.
    pub(super) of_server: usize,
    /// Those on Rebate's store.
    pub(super) of_rebate: usize,
    /// The bytes that Rebate's store held at the end, over those that the server's items take there.
    pub(super) bytes_ratio: f64,
}

/// Runs the log on Rebate's store. Returns none if the server missed too little to compare.
pub(super) fn misses(log: &RequestLog, sizes: &Sizes) -> Option<Misses> {
    let bytes = |items: &[LoggedRequest]| -> f64 {
        items.iter().map(|item| sizes.rebate_bytes(item.class.into(), item.item_bytes)).sum()
    };
    let share = log.share() * (BYTES_MAX / bytes(&log.filled)).min(1.0);
    let is_chosen = |request: &&LoggedRequest| request.hash as f64 <= share * u64::MAX as f64;
    let chosen = |requests: &[LoggedRequest]| -> Vec<LoggedRequest> {
        requests.iter().filter(is_chosen).take(REQUESTS_MAX).copied().collect()
    };
    let (filled, requests) = (chosen(&log.filled), chosen(&log.requests));
    let of_server = requests.iter().filter(|request| request.kind == RequestKind::Miss).count();
    if of_server < MISSES_MIN || filled.len() < ITEMS_MIN {
        return None;
    }
    let items_bytes = bytes(&filled);
    // The first run tells which share of its memory the store fills.
    let (_, held) = run(&filled, &requests, sizes, items_bytes);
    let limit_bytes = (items_bytes * items_bytes / held.max(1.0)).min(2.0 * items_bytes);
    let (of_rebate, held) = run(&filled, &requests, sizes, limit_bytes);
    Some(Misses { of_server, of_rebate, bytes_ratio: held / items_bytes })
}

/// Returns the gets that find nothing in a store of these bytes, and the bytes that it holds at the end.
fn run(
    filled: &[LoggedRequest],
    requests: &[LoggedRequest],
    sizes: &Sizes,
    limit_bytes: f64,
) -> (usize, f64) {
    let store =
        Embedded::new(Options { limit: ByteCount(limit_bytes as u64), evict: true, seed: 1 });
    let mut value = Vec::new();
    let mut put = |request: &LoggedRequest| {
        let key = request.hash.to_ne_bytes();
        let bytes = sizes.rebate_bytes(request.class.into(), request.item_bytes) as usize;
        // The store would refuse it.
        if bytes as f64 > limit_bytes / 2.0 {
            return;
        }
        let value_bytes = bytes.saturating_sub(key.len() + ITEM_OVERHEAD_BYTES);
        value.resize(value.len().max(value_bytes), 0);
        let item = NewItem { value: &value[..value_bytes], ..NewItem::default() };
        // A store for few items may refuse one.
        let _ = store.store(&key, item, Mode::Set, NOW_S);
    };
    filled.iter().for_each(&mut put);
    let mut misses = 0;
    // The keys that the server missed and this store found. A client that fills the cache after a miss would not have
    // set these.
    let mut found = HashSet::new();
    for request in requests {
        if request.kind == RequestKind::Set {
            if !found.remove(&request.hash) {
                put(request);
            }
        } else if store.fetch(&request.hash.to_ne_bytes(), &Fetch::GET, NOW_S).is_none() {
            misses += 1;
            // Where the server found it, no set follows.
            if request.kind == RequestKind::Hit {
                put(request);
            }
        } else if request.kind == RequestKind::Miss {
            found.insert(request.hash);
        }
    }
    (misses, store.stats().bytes as f64)
}

/// The most memory of the small store (bytes). Where more is followed, it gets a part of the keys.
const BYTES_MAX: f64 = (64 << 20) as f64;

/// As many requests as are replayed.
const REQUESTS_MAX: usize = 1 << 20;

/// The fewest misses of a server that tell how it compares with another one.
const MISSES_MIN: usize = 1_000;

/// The fewest items of a store whose segments are small compared with it.
const ITEMS_MIN: usize = 2_000;

/// No item of the small store expires.
const NOW_S: u32 = 1;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;

    use units::Prng;

    use super::super::sizes::SampledItem;
    use super::*;

    const VALUE_BYTES: usize = 200;
    const ITEM_BYTES: usize = VALUE_BYTES + 8 + ITEM_OVERHEAD_BYTES;

    fn request(hash: u64, kind: RequestKind) -> LoggedRequest {
        LoggedRequest { hash, item_bytes: ITEM_BYTES as u32, class: 0, kind }
    }

    /// Every item takes as much in Rebate as in memcached.
    fn sizes() -> Sizes {
        let bytes = ITEM_BYTES as f64;
        Sizes::new(&[SampledItem { class: 0, item_bytes: bytes, rebate_bytes: bytes }])
    }

    /// Runs a client that sets what it misses on a cache that evicts the oldest item, whether it was used or not.
    fn first_in_first_out(items: usize, gets: usize) -> RequestLog {
        let mut prng = Prng::new(3);
        let mut draw = || (8.0 * items as f64).powf(prng.unit()) as u64;
        let mut log = RequestLog::new(1.0);
        let (mut order, mut held) = (VecDeque::new(), HashSet::new());
        while order.len() < items {
            let key = draw();
            if held.insert(key) {
                order.push_back(key);
                log.filled.push(request(key, RequestKind::Set));
            }
        }
        for _ in 0..gets {
            let key = draw();
            if held.contains(&key) {
                log.requests.push(request(key, RequestKind::Hit));
                continue;
            }
            log.requests.push(request(key, RequestKind::Miss));
            log.requests.push(request(key, RequestKind::Set));
            held.insert(key);
            order.push_back(key);
            held.remove(&order.pop_front().unwrap());
        }
        log
    }

    #[test]
    fn a_server_that_forgets_what_is_used_misses_more() {
        let misses = misses(&first_in_first_out(4_000, 100_000), &sizes()).unwrap();
        let ratio = misses.of_rebate as f64 / misses.of_server as f64;
        assert!((0.5..0.9).contains(&ratio), "{misses:?}");
        assert!((misses.bytes_ratio - 1.0).abs() < 0.1, "{misses:?}");
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
        let mut log = RequestLog::new(1.0);
        let peek = |key: u64| store.fetch(&key.to_ne_bytes(), &Fetch::PEEK, NOW_S).is_some();
        (0..8 * items)
            .rev()
            .filter(|key| peek(*key))
            .for_each(|key| log.filled.push(request(key, RequestKind::Set)));
        for _ in 0..100_000 {
            let key = draw();
            if is_held(key) {
                log.requests.push(request(key, RequestKind::Hit));
            } else {
                assert!(set(key));
                log.requests.push(request(key, RequestKind::Miss));
                log.requests.push(request(key, RequestKind::Set));
            }
        }
        let misses = misses(&log, &sizes()).unwrap();
        let ratio = misses.of_rebate as f64 / misses.of_server as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{misses:?}");
    }

    #[test]
    fn items_of_any_size_take_bounded_memory() {
        let mut log = first_in_first_out(4_000, 100_000);
        let mix = |hash: u64| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for request in log.filled.iter_mut().chain(&mut log.requests) {
            (request.hash, request.item_bytes) = (mix(request.hash), 100_000);
        }
        // The store gets one key in six, which are too few to tell anything.
        assert_eq!(misses(&log, &sizes()), None);
        log.filled.iter_mut().for_each(|item| item.item_bytes = u32::MAX);
        assert_eq!(misses(&log, &sizes()), None);
    }

    #[test]
    fn few_misses_tell_nothing() {
        assert_eq!(misses(&first_in_first_out(4_000, 1_000), &sizes()), None);
        assert_eq!(misses(&first_in_first_out(100, 50_000), &sizes()), None);
    }
}
