//! Tests that a restored store answers as the saved one, and that no damage gives a wrong item.

use proptest::prelude::*;
use units::{ByteCount, Prng};

use super::*;
use crate::embedded::{Fetch, Fetched, Mode, NewItem, Removal, Step, Stored};

const NOW: Moment = Moment { now_s: 1_000, unix_s: 1_700_000_000 };
/// The moment of a restart: another clock, ten seconds later.
const LATER: Moment = Moment { now_s: 500, unix_s: NOW.unix_s + 10 };
const DOWN_S: u32 = 10;

fn options(limit: ByteCount) -> Options {
    Options { limit, evict: true, seed: 1 }
}

fn store() -> Embedded {
    Embedded::new(options(ByteCount::mib(8)))
}

fn set(store: &Embedded, key: &str, item: NewItem<'_>) -> u64 {
    match store.store(key.as_bytes(), item, Mode::Set, NOW.now_s) {
        Ok(Stored::Stored { cas }) => cas,
        other => panic!("{other:?}"),
    }
}

fn plain(value: &[u8]) -> NewItem<'_> {
    NewItem { value, ..NewItem::default() }
}

fn saved_with(store: &Embedded, sections: &[Section]) -> Vec<u8> {
    let about = About { software: "test 1".into(), item_bytes_max: 1 << 20 };
    let mut bytes = Vec::new();
    let saved = store.save(&mut bytes, sections, &about, NOW).expect("memory takes it");
    assert!(saved.items <= store.stats().curr_items);
    bytes
}

fn saved(store: &Embedded) -> Vec<u8> {
    saved_with(store, &[])
}

fn restore_as(options: Options, bytes: &[u8], now: Moment) -> Result<Restored, SnapshotError> {
    Embedded::restore(options, &[], bytes, 1 << 20, now)
}

fn restored(store: &Embedded) -> Embedded {
    let options = Options { seed: 2, ..options(ByteCount::mib(8)) };
    restore_as(options, &saved(store), LATER).expect("it is whole").store
}

fn peek(store: &Embedded, key: &str, now_s: u32) -> Option<Fetched> {
    store.fetch(key.as_bytes(), &Fetch::PEEK, now_s)
}

#[test]
fn a_restored_item_has_its_value_flags_and_version() {
    let store = store();
    for value_bytes in [0, 1, 200, 5_000, 100_000] {
        let value: Vec<u8> = (0..value_bytes).map(|at| (at % 251) as u8).collect();
        let key = format!("k{value_bytes}");
        let item = NewItem { value: &value, flags: 7, key_is_binary: true, exptime_s: 0 };
        let cas = set(&store, &key, item);
        let found = peek(&restored(&store), &key, LATER.now_s).expect("it was saved");
        assert_eq!(found.value, value);
        assert_eq!((found.flags, found.cas, found.key_is_binary), (7, cas, true));
    }
}

#[test]
fn a_restored_frame_with_a_dictionary_is_whole() {
    let store = store();
    let block = [&units::zstd_frame::last_block_header(40)[..], &[5; 40]].concat();
    let value = [b"\xFD\x07\x00\x00\x01\x02\x03\x04\x20\xA3", &block[..]].concat();
    set(&store, "k", plain(&value));
    set(&store, "next", plain(b"another"));
    assert!(saved(&store).windows(value.len()).any(|bytes| bytes == value));
    let restored = restored(&restored(&store));
    assert_eq!(peek(&restored, "k", LATER.now_s).expect("it was saved").value, value);
    assert_eq!(peek(&restored, "next", LATER.now_s).expect("it was saved").value, "another");
    assert_eq!(restored.stats().bytes, store.stats().bytes);
}

#[test]
fn a_restored_item_has_the_cas_that_a_client_gave_it() {
    let store = store();
    let cas = set(&store, "given", plain(b"value"));
    store.give_cas(b"given", cas, u64::MAX, NOW.now_s);
    set(&store, "other", plain(b"more"));
    let restored = restored(&store);
    let found = peek(&restored, "given", LATER.now_s).expect("it was saved");
    assert_eq!((&found.value[..], found.cas, found.version), (&b"value"[..], u64::MAX, None));
    let other = peek(&restored, "other", LATER.now_s).expect("it was saved");
    assert_eq!((&other.value[..], other.version), (&b"more"[..], Some(other.cas)));
}

#[test]
fn time_without_a_process_counts() {
    let store = store();
    for (key, left_s) in [("ended", DOWN_S), ("lives", DOWN_S + 1)] {
        set(&store, key, NewItem { exptime_s: NOW.now_s + left_s, ..plain(b"v") });
    }
    let restored = restored(&store);
    assert_eq!(peek(&restored, "ended", LATER.now_s), None);
    assert!(peek(&restored, "lives", LATER.now_s).is_some());
    assert_eq!(peek(&restored, "lives", LATER.now_s + 1), None);
}

#[test]
fn a_date_that_went_back_prolongs_no_life() {
    let store = store();
    set(&store, "k", NewItem { exptime_s: NOW.now_s + 5, ..plain(b"v") });
    let before = Moment { unix_s: NOW.unix_s - 3_600, ..LATER };
    let restored = restore_as(options(ByteCount::mib(8)), &saved(&store), before);
    let restored = restored.expect("it is whole").store;
    assert!(peek(&restored, "k", LATER.now_s + 4).is_some());
    assert_eq!(peek(&restored, "k", LATER.now_s + 5), None);
}

#[test]
fn new_versions_are_larger_than_all_old_ones() {
    let store = store();
    set(&store, "stays", plain(b"v"));
    let last = set(&store, "goes", plain(b"v"));
    assert_eq!(store.delete(b"goes", None, NOW.now_s), Removal::Done);
    assert_eq!(set(&restored(&store), "new", plain(b"v")), last + 1);
}

#[test]
fn marks_and_access_times_are_kept() {
    let store = store();
    set(&store, "k", plain(b"v"));
    store.invalidate(b"k", None, None, NOW.now_s);
    store.fetch(b"k", &Fetch { bump: true, meta: true, steps: &[] }, NOW.now_s);
    let found = peek(&restored(&store), "k", LATER.now_s + 3).expect("it was saved");
    assert!(found.hit_before && found.stale && found.token_sent);
    assert_eq!(found.idle_s, DOWN_S + 3);
}

#[test]
fn an_access_may_be_before_the_clock_began() {
    let store = store();
    set(&store, "k", plain(b"v"));
    let just_begun = Moment { now_s: 2, ..LATER };
    let restored = restore_as(options(ByteCount::mib(8)), &saved(&store), just_begun);
    let restored = std::sync::Arc::new(restored.expect("it is whole").store);
    assert_eq!(peek(&restored, "k", 3).expect("it was saved").idle_s, DOWN_S + 1);
    let mut listed = Vec::new();
    restored.walk().expect("it is the only one").step(3, |item| listed.push(item.idle_s));
    assert_eq!(listed, [DOWN_S + 1]);
}

#[test]
fn flushed_items_are_not_saved() {
    let store = store();
    set(&store, "old", plain(b"v"));
    store.flush_all(NOW.now_s, NOW.now_s);
    set(&store, "new", plain(b"v"));
    let restored = restored(&store);
    assert_eq!(restored.stats().curr_items, 1);
    assert!(peek(&restored, "new", LATER.now_s).is_some());
}

#[test]
fn a_flush_in_the_future_comes_at_its_time() {
    let store = store();
    set(&store, "k", plain(b"v"));
    store.flush_all(NOW.now_s + DOWN_S + 5, NOW.now_s);
    let restored = restored(&store);
    // As in memcached, a flush ends items from the second before it on.
    assert!(peek(&restored, "k", LATER.now_s + 3).is_some());
    assert_eq!(peek(&restored, "k", LATER.now_s + 4), None);
    let late = Moment { unix_s: NOW.unix_s + 100, ..LATER };
    let restored = restore_as(options(ByteCount::mib(8)), &saved(&store), late);
    let restored = restored.expect("it is whole");
    assert_eq!((restored.items.loaded, restored.items.expired), (0, 1));
}

#[test]
fn a_smaller_store_keeps_what_was_used_last() {
    let store = Embedded::new(options(ByteCount::mib(16)));
    let value = [7; 400];
    let key = |number: u32| format!("key_{number}");
    for number in 0..20_000 {
        set(&store, &key(number), plain(&value));
    }
    for number in 0..1_000 {
        store.fetch(key(number).as_bytes(), &Fetch::GET, NOW.now_s);
    }
    let small = Options { evict: false, ..options(ByteCount::mib(4)) };
    let restored = restore_as(small, &saved(&store), LATER).expect("it is whole");
    let holds = |number| peek(&restored.store, &key(number), LATER.now_s).is_some();
    let held = |numbers: std::ops::Range<u32>| numbers.filter(|number| holds(*number)).count();
    assert!(held(0..1_000) > 950, "{} of those that were fetched", held(0..1_000));
    assert!(held(18_000..20_000) > 1_900, "{} of the newest", held(18_000..20_000));
    assert!(held(1_000..10_000) < 500, "{} of the oldest", held(1_000..10_000));
    assert_eq!(restored.items.evicted, 20_000 - restored.items.loaded);
    assert!(restored.store.stats().bytes <= 4 << 20);
}

#[test]
fn items_that_are_too_long_are_skipped() {
    let store = store();
    set(&store, "long", plain(&[1; 50_000]));
    set(&store, "short", plain(b"v"));
    let bytes = saved(&store);
    let options = options(ByteCount::mib(8));
    let restored = Embedded::restore(options, &[], &bytes[..], 49_999, LATER).expect("whole");
    assert_eq!((restored.items.loaded, restored.items.skipped), (1, 1));
}

fn section(kind: [u8; 4], is_required: bool, bytes: Vec<u8>) -> Section {
    Section { kind: SectionKind(kind), is_required, bytes }
}

#[test]
fn known_sections_come_back_and_optional_ones_are_skipped() {
    let store = store();
    set(&store, "k", plain(b"v"));
    let known = section(*b"DICT", true, vec![5; 600_000]);
    let bytes = saved_with(&store, &[known.clone(), section(*b"MORE", false, vec![1; 300_000])]);
    let options = options(ByteCount::mib(8));
    let restored = Embedded::restore(options, &[known.kind], &bytes[..], 9, LATER);
    let restored = restored.expect("it is whole");
    assert_eq!(restored.sections, [known]);
    assert_eq!(restored.items.loaded, 1);
    let refused = restore_as(options, &bytes, LATER).expect_err("DICT is required");
    assert!(refused.to_string().contains("DICT"), "{refused}");
}

#[test]
fn sections_that_are_too_long_are_not_saved() {
    let long = section(*b"DICT", true, vec![0; SECTION_BYTES_MAX + 1]);
    let error = store().save(io::sink(), &[long], &About::default(), NOW).expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Returns a store with short and long values.
fn mixed() -> Embedded {
    let store = store();
    let mut draws = Prng::new(3);
    for number in 0..40 {
        let value = vec![number as u8; draws.below(900) as usize];
        set(&store, &format!("key_{number}"), plain(&value));
    }
    store
}

#[test]
fn a_truncated_snapshot_gives_no_store() {
    let bytes = saved(&mixed());
    for length in 0..bytes.len() {
        let result = restore_as(options(ByteCount::mib(8)), &bytes[..length], LATER);
        assert!(result.is_err(), "cut at {length} of {}", bytes.len());
    }
}

#[test]
fn a_changed_bit_gives_no_store() {
    let bytes = saved(&mixed());
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let result = restore_as(options(ByteCount::mib(8)), &damaged, LATER);
        assert!(result.is_err(), "byte {at} of {}", bytes.len());
    }
}

#[test]
fn bytes_behind_the_end_give_no_store() {
    let mut bytes = saved(&mixed());
    bytes.push(0);
    let error = restore_as(options(ByteCount::mib(8)), &bytes, LATER).expect_err("too long");
    assert!(error.to_string().contains("behind its end"), "{error}");
}

#[test]
fn other_files_and_formats_say_what_they_are() {
    let error = |bytes: &[u8]| {
        restore_as(options(ByteCount::mib(8)), bytes, LATER).expect_err("no snapshot").to_string()
    };
    assert!(error(b"# a text file of some length\n").contains("not a snapshot"));
    let mut other = saved(&mixed());
    other[8] = 9;
    assert!(error(&other).contains("format 9, and this version reads only format 1"));
}

/// Writes a snapshot of one record with these bytes.
fn with_record(record: &[u8]) -> Vec<u8> {
    let mut out = SnapshotWriter::begin(Vec::new()).expect("memory takes it");
    let facts = Facts::gather(&store(), &About::default(), NOW).encode();
    let totals = Totals(Saved { items: 1, bytes: 4 }).encode();
    for (kind, bytes) in [(FACTS, &facts[..]), (ITEMS, record), (END, &totals[..])] {
        out.section(kind, true, |part| part.put(bytes)).expect("memory takes it");
    }
    out.finish().expect("memory takes it")
}

#[test]
fn bad_records_in_good_chunks_are_refused() {
    let good = [&[0, 0, 1, 3, 0, 0, 0][..], &[0; 12], &[9, 0, 0, 0, 0, 0, 0, 0], b"kval"].concat();
    let result =
        |record: &[u8]| restore_as(options(ByteCount::mib(8)), &with_record(record), LATER);
    let restored = result(&good).expect("it is whole");
    assert_eq!(peek(&restored.store, "k", LATER.now_s).expect("it was read").value, &b"val"[..]);
    for (at, byte, problem) in [
        (0, 0x40, "a mark is unknown"),
        (1, 4, "a count of uses is too large"),
        (2, 0, "a key is empty"),
        (2, 251, "a key is too long"),
        (3, 4, "a section ends too early"),
        (3, 2, "a section ends too early"),
        (19, 0, "a version is out of range"),
        (26, 1, "a version is out of range"),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let error = result(&bad).expect_err(problem).to_string();
        assert!(error.contains(problem), "{problem}: {error}");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set { key: u8, value_bytes: u32, flags: u32, ttl_s: u32 },
    Get { key: u8 },
    Touch { key: u8, ttl_s: u32 },
    Delete { key: u8 },
    Stale { key: u8 },
}

fn change() -> impl Strategy<Value = Change> {
    let ttl_s = prop_oneof![Just(0_u32), 1..30_u32, 1_000..2_000_000_000_u32];
    let value_bytes = prop_oneof![0..300_u32, 0..20_000_u32, 0..200_000_u32];
    prop_oneof![
        4 => (any::<u8>(), value_bytes, any::<u32>(), ttl_s.clone())
            .prop_map(|(key, value_bytes, flags, ttl_s)| Change::Set { key, value_bytes, flags, ttl_s }),
        2 => any::<u8>().prop_map(|key| Change::Get { key }),
        1 => (any::<u8>(), ttl_s).prop_map(|(key, ttl_s)| Change::Touch { key, ttl_s }),
        1 => any::<u8>().prop_map(|key| Change::Delete { key }),
        1 => any::<u8>().prop_map(|key| Change::Stale { key }),
    ]
}

fn apply(store: &Embedded, change: &Change) {
    let exptime_s = |ttl_s| if ttl_s == 0 { 0 } else { NOW.now_s + ttl_s };
    let name = |key: u8| format!("key_{key}");
    match *change {
        Change::Set { key, value_bytes, flags, ttl_s } => {
            let value: Vec<u8> = (0..value_bytes).map(|at| (at ^ flags) as u8).collect();
            let item =
                NewItem { value: &value, flags, exptime_s: exptime_s(ttl_s), key_is_binary: false };
            set(store, &name(key), item);
        }
        Change::Get { key } => {
            store.fetch(name(key).as_bytes(), &Fetch::GET, NOW.now_s);
        }
        Change::Touch { key, ttl_s } => {
            let steps = [Step::Touch(exptime_s(ttl_s))];
            let fetch = Fetch { bump: false, meta: true, steps: &steps };
            store.fetch(name(key).as_bytes(), &fetch, NOW.now_s);
        }
        Change::Delete { key } => {
            store.delete(name(key).as_bytes(), None, NOW.now_s);
        }
        Change::Stale { key } => {
            store.invalidate(name(key).as_bytes(), None, None, NOW.now_s);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_store_is_restored_as_it_was(
        changes in prop::collection::vec(change(), 1..120),
        limit_mib in 40_u64..200,
    ) {
        let store = Embedded::new(options(ByteCount::mib(64)));
        changes.iter().for_each(|change| apply(&store, change));
        let options = Options { seed: 9, ..options(ByteCount::mib(limit_mib)) };
        let bytes = saved(&store);
        let restored = restore_as(options, &bytes, LATER).expect("it is whole").store;
        for key in 0..=u8::MAX {
            let name = format!("key_{key}");
            let then_s = NOW.now_s + DOWN_S;
            let shifted = peek(&store, &name, then_s).map(|found| Fetched {
                exptime_s: match found.exptime_s {
                    0 => 0,
                    at_s => at_s - then_s + LATER.now_s,
                },
                ..found
            });
            prop_assert_eq!(shifted, peek(&restored, &name, LATER.now_s));
        }
        let again = saved_at(&restored, LATER);
        let twice = restore_as(options, &again, LATER).expect("it is whole");
        prop_assert_eq!(twice.items.loaded, restored.stats().curr_items);
    }

    #[test]
    fn arbitrary_damage_gives_no_store(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let whole = saved(&mixed());
        let mut damaged = whole.clone();
        let at = at.index(whole.len() - bytes.len());
        damaged[at..at + bytes.len()].copy_from_slice(&bytes);
        let result = restore_as(options(ByteCount::mib(8)), &damaged, LATER);
        prop_assert_eq!(result.is_ok(), damaged == whole);
    }
}

fn saved_at(store: &Embedded, now: Moment) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes, &[], &About::default(), now).expect("memory takes it");
    bytes
}
