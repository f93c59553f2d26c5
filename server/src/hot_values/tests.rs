//! Tests what is kept, what makes way, and that the store's memory bounds it.

use std::sync::Arc;

use store::embedded::{Embedded, Fetch, Mode, NewItem, Options};
use units::{ByteCount, ManualClock};

use super::*;

const LIMIT_BYTES: u64 = 256 << 10;

/// An item of this version with a frame, as far as the search looks.
fn frame(cas: u64) -> Glimpse<'static> {
    Glimpse { cas, version: Some(cas), flags: 0, value: Some(b"\xFC\x01") }
}

fn store(memory: ByteCount, evict: bool) -> Arc<Embedded> {
    Arc::new(Embedded::new(Options { limit: memory, evict, seed: 1 }))
}

fn hot_on(store: &Arc<Embedded>) -> HotValues {
    let time = CoarseClock::start(Arc::new(ManualClock::default()));
    HotValues::new(Arc::clone(store), time, LIMIT_BYTES).expect("enough memory")
}

fn hot() -> HotValues {
    hot_on(&store(ByteCount::mib(8), true))
}

/// Offers a value of this length and cost as often as it is read. The version is also the key.
fn read(hot: &HotValues, cas: u64, bytes: usize, cost_us: u64, times: usize) {
    read_version(hot, &cas.to_le_bytes(), cas, &vec![cas as u8; bytes], cost_us, times);
}

fn read_version(hot: &HotValues, key: &[u8], cas: u64, logical: &[u8], cost_us: u64, times: usize) {
    for _ in 0..times {
        if hot.find(key, &frame(cas)).is_none() {
            let cost = Nanos::micros(cost_us);
            hot.offer(&Candidate { key, cas, logical, stored_bytes: 10, cost });
        }
    }
}

fn is_kept(hot: &HotValues, cas: u64) -> bool {
    hot.find(&cas.to_le_bytes(), &frame(cas)).is_some()
}

/// Writes a new value of `key`, which gets version `cas`.
fn write(hot: &HotValues, key: &[u8], cas: u64, logical: &[u8]) {
    if hot.would_renew(key, logical.len()) {
        hot.renew(key, cas, logical, 10);
    }
}

#[test]
fn a_value_is_kept_from_its_second_read() {
    let hot = hot();
    read(&hot, 1, 1_000, 10, 1);
    assert!(!is_kept(&hot, 1));
    read(&hot, 1, 1_000, 10, 1);
    let found = hot.find(&1_u64.to_le_bytes(), &frame(1)).expect("it was read twice");
    assert_eq!((&found.logical[..], found.stored_bytes), (&[1; 1_000][..], 10));
    assert!(!is_kept(&hot, 2));
    let other = hot.find(&1_u64.to_le_bytes(), &frame(2));
    assert!(other.is_none(), "another version is another value");
}

#[test]
fn a_new_value_of_a_kept_item_is_kept_at_once() {
    let hot = hot();
    read_version(&hot, b"key", 1, &[1; 1_000], 10, 2);
    write(&hot, b"key", 5, &[5; 2_000]);
    assert!(hot.find(b"key", &frame(1)).is_none());
    let found = hot.find(b"key", &frame(5)).expect("the item was read often");
    assert_eq!(found.logical, [5; 2_000][..]);
    let HotStats { items, admissions, renewals, .. } = hot.stats();
    assert_eq!((items, admissions, renewals), (1, 1, 1));
    // Nobody reads this item.
    write(&hot, b"other", 6, &[6; 1_000]);
    assert!(hot.find(b"other", &frame(6)).is_none());
}

#[test]
fn an_older_value_never_replaces_a_newer_one() {
    let hot = hot();
    read_version(&hot, b"key", 5, &[5; 1_000], 10, 2);
    write(&hot, b"key", 4, &[4; 1_000]);
    read_version(&hot, b"key", 3, &[3; 1_000], 10, 5);
    let is_found = |cas| hot.find(b"key", &frame(cas)).is_some();
    assert!(is_found(5) && !is_found(4) && !is_found(3));
}

#[test]
fn a_read_after_a_write_keeps_the_value_at_once() {
    let hot = hot();
    read_version(&hot, b"key", 1, &[1; 1_000], 10, 2);
    // The new value was too short to be kept. The one after it is not.
    write(&hot, b"key", 5, &[5; 10]);
    read_version(&hot, b"key", 6, &[6; 1_000], 10, 1);
    assert!(hot.find(b"key", &frame(6)).is_some());
    assert_eq!(hot.stats().items, 1);
}

#[test]
fn the_cost_of_an_item_is_measured_again() {
    let hot = hot();
    let is_found = |cas| hot.find(b"key", &frame(cas)).is_some();
    read_version(&hot, b"key", 1, &[1; 1_000], 10, 2);
    let kept = (2..100).take_while(|cas| {
        write(&hot, b"key", *cas, &[2; 1_000]);
        is_found(*cas)
    });
    assert_eq!(kept.count(), usize::from(RENEWALS_MAX));
    read_version(&hot, b"key", 100, &[3; 1_000], 10, 1);
    write(&hot, b"key", 101, &[4; 1_000]);
    assert!(is_found(101));
    write(&hot, b"key", 102, &[5; 3_000]);
    assert!(!is_found(102), "the cost of a value of another length is not known");
}

#[test]
fn values_that_nobody_reads_are_not_renewed() {
    let hot = hot();
    read_version(&hot, b"key", 1, &[1; 1_000], 10, 2);
    // Other reads pass two periods.
    (0..50_000).for_each(|_| read(&hot, 100_000, 1_000, 10, 1));
    (2..50_000).for_each(|cas| read(&hot, cas, 1_000, 10, 1));
    assert!(!hot.would_renew(b"key", 1_000));
}

#[test]
fn a_longer_value_makes_room_for_itself() {
    let hot = hot();
    (0..1_000).for_each(|cas| read(&hot, cas, 1_000, 10, 2));
    let kept: Vec<u64> = (0..1_000).filter(|cas| is_kept(&hot, *cas)).collect();
    for cas in &kept {
        write(&hot, &cas.to_le_bytes(), 10_000 + cas, &[7; 1_900]);
        assert!(hot.stats().bytes <= LIMIT_BYTES);
    }
    let items = hot.stats().items;
    assert!(items > 50 && items < kept.len() as u64, "{items} of {}", kept.len());
}

#[test]
fn only_frames_are_searched() {
    let hot = hot();
    read(&hot, 1, 1_000, 10, 2);
    let found = |value| hot.find(&1_u64.to_le_bytes(), &Glimpse { value, ..frame(1) });
    assert!(found(Some(b"text")).is_none());
    assert!(found(None).is_some(), "a long value may be a frame");
}

#[test]
fn values_take_no_more_than_their_limit() {
    let hot = hot();
    for cas in 0..2_000 {
        read(&hot, cas, 1_000, 10, 3);
        assert!(hot.stats().bytes <= LIMIT_BYTES);
    }
    let stats = hot.stats();
    assert!(stats.items > 150 && stats.admissions - stats.evictions == stats.items, "{stats:?}");
}

#[test]
fn a_value_read_more_often_displaces_others() {
    let hot = hot();
    (0..1_000).for_each(|cas| read(&hot, cas, 1_000, 10, 2));
    read(&hot, 5_000, 1_000, 10, 20);
    assert!(is_kept(&hot, 5_000));
}

#[test]
fn values_read_once_or_twice_displace_nothing_hotter() {
    let hot = hot();
    (0..100).for_each(|cas| read(&hot, cas, 1_000, 10, 50));
    let kept: Vec<u64> = (0..100).filter(|cas| is_kept(&hot, *cas)).collect();
    assert_eq!(kept.len(), 100);
    (1_000..3_000).for_each(|cas| read(&hot, cas, 1_000, 10, 2));
    assert!(kept.iter().all(|cas| is_kept(&hot, *cas)));
}

#[test]
fn a_costly_value_displaces_cheap_ones() {
    let hot = hot();
    (0..1_000).for_each(|cas| read(&hot, cas, 1_000, 2, 4));
    read(&hot, 5_000, 1_000, 50, 2);
    assert!(is_kept(&hot, 5_000));
}

#[test]
fn values_that_decompress_fast_are_not_kept() {
    let hot = hot();
    read(&hot, 1, 8_000, 1, 10);
    assert!(!is_kept(&hot, 1), "8 bytes per ns");
    read(&hot, 2, 7_000, 1, 10);
    assert!(is_kept(&hot, 2));
}

#[test]
fn a_value_too_long_for_a_shard_is_not_kept() {
    let hot = hot();
    read(&hot, 1, LIMIT_BYTES as usize / 4, 1_000, 10);
    assert_eq!(hot.stats().items, 0);
}

#[test]
fn versions_that_are_not_read_any_more_make_way() {
    let hot = hot();
    (0..1_000).for_each(|cas| read(&hot, cas, 1_000, 10, 100));
    // Other reads pass two periods.
    (0..50_000).for_each(|_| read(&hot, 100_000, 1_000, 10, 1));
    (10_000..11_000).for_each(|cas| read(&hot, cas, 1_000, 10, 3));
    let kept = (10_000..11_000).filter(|cas| is_kept(&hot, *cas)).count();
    assert!(kept > 100, "{kept}");
}

#[test]
fn the_store_lends_the_memory() {
    let store = store(ByteCount::mib(1), true);
    let value = vec![b'v'; 1_000];
    let write = |index: u32| {
        let item = NewItem { value: &value, ..NewItem::default() };
        store.store(&index.to_le_bytes(), item, Mode::Set, 1).expect("it evicts");
    };
    (0..5_000).for_each(write);
    let full = store.stats();
    let hot = hot_on(&store);
    (0..2_000).for_each(|cas| read(&hot, cas, 1_000, 10, 3));
    (5_000..10_000).for_each(write);
    let both = store.stats().bytes + hot.stats().bytes;
    assert!(hot.stats().bytes > LIMIT_BYTES / 2);
    assert!(store.stats().evictions > full.evictions && both <= ByteCount::mib(1).0, "{both}");
}

#[test]
fn a_store_that_never_evicts_lends_only_free_memory() {
    let store = store(ByteCount::mib(1), false);
    let value = vec![b'v'; 1_000];
    let mut held = 0_u32;
    let item = NewItem { value: &value, ..NewItem::default() };
    while store.store(&held.to_le_bytes(), item, Mode::Set, 1).is_ok() {
        held += 1;
    }
    let time = CoarseClock::start(Arc::new(ManualClock::default()));
    if let Some(hot) = HotValues::new(Arc::clone(&store), time, LIMIT_BYTES) {
        read(&hot, 1, 1_000, 10, 5);
        assert!(store.stats().bytes + hot.stats().bytes <= ByteCount::mib(1).0);
    }
    let kept = (0..held).filter(|key| store.fetch(&key.to_le_bytes(), &Fetch::PEEK, 1).is_some());
    assert_eq!(kept.count(), held as usize);
}

#[test]
fn too_little_memory_keeps_nothing() {
    let time = CoarseClock::start(Arc::new(ManualClock::default()));
    assert!(HotValues::new(store(ByteCount::mib(1), true), time, 1_000).is_none());
}
