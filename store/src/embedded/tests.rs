//! Tests the embedded store item by item, under a clock that the test moves.

use bytes::Bytes;

use super::*;

const NOW_S: u32 = 100;

fn options(limit: ByteCount) -> Options {
    Options { limit, item_bytes_max: ByteCount::mib(1), evict: true, seed: 1 }
}

fn store() -> Embedded {
    Embedded::new(options(ByteCount::mib(64)))
}

fn item(value: &str) -> NewItem {
    NewItem { value: Bytes::copy_from_slice(value.as_bytes()), ..NewItem::default() }
}

fn lasting(value: &str, exptime_s: u32) -> NewItem {
    NewItem { exptime_s, ..item(value) }
}

fn set(store: &Embedded, key: &str, item: NewItem) -> u64 {
    match store.store(key.as_bytes(), item, Mode::Set, NOW_S) {
        Ok(Stored::Stored { cas }) => cas,
        other => panic!("{other:?}"),
    }
}

fn meta<'a>(steps: &'a [Step]) -> Fetch<'a> {
    Fetch { bump: true, meta: true, steps }
}

fn value(store: &Embedded, key: &str, now_s: u32) -> Option<Bytes> {
    store.fetch(key.as_bytes(), &Fetch::PEEK, now_s).map(|item| item.value)
}

#[test]
fn a_fetch_shares_the_stored_bytes() {
    let store = store();
    let bytes = Bytes::from(vec![7; 1000]);
    let new = NewItem { value: bytes.clone(), flags: 9, ..NewItem::default() };
    let cas = set(&store, "k", new);
    let found = store.fetch(b"k", &Fetch::GET, NOW_S).expect("it was just set");
    assert_eq!((found.flags, found.cas, found.exptime_s), (9, cas, 0));
    assert_eq!(found.value.as_ptr(), bytes.as_ptr());
}

#[test]
fn modes_decide_by_what_is_there() {
    let store = store();
    let put = |mode| store.store(b"k", item("v"), mode, NOW_S).expect("there is room");
    let compare = |cas| Mode::Compare { cas, stale_if_older: false };
    assert_eq!(put(Mode::Replace), Stored::NotStored);
    assert_eq!(put(compare(1)), Stored::NotFound);
    assert_eq!(put(Mode::Add), Stored::Stored { cas: 1 });
    assert_eq!(put(Mode::Add), Stored::NotStored);
    assert_eq!(put(compare(7)), Stored::Exists);
    assert_eq!(put(compare(0)), Stored::Exists);
    assert_eq!(put(compare(1)), Stored::Stored { cas: 2 });
    assert_eq!(put(Mode::Replace), Stored::Stored { cas: 3 });
    assert_eq!(store.stats().total_items, 3);
}

#[test]
fn an_older_version_is_taken_as_stale_when_asked() {
    let store = store();
    let old = set(&store, "k", lasting("a", 500));
    let new = set(&store, "k", lasting("b", 600));
    let mode = |cas| Mode::Compare { cas, stale_if_older: true };
    let put = |cas| store.store(b"k", item("c"), mode(cas), NOW_S).expect("there is room");
    assert_eq!(put(new + 1), Stored::Exists);
    assert!(matches!(put(old), Stored::Stored { .. }));
    let found = store.fetch(b"k", &Fetch::PEEK, NOW_S).expect("there");
    assert_eq!((found.value, found.exptime_s, found.stale), (Bytes::from("c"), 600, true));
}

#[test]
fn items_end_at_their_second() {
    let store = store();
    set(&store, "k", lasting("v", NOW_S + 5));
    assert!(value(&store, "k", NOW_S + 4).is_some());
    assert!(value(&store, "k", NOW_S + 5).is_none());
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.bytes, stats.get_expired), (0, 0, 1));
}

#[test]
fn touch_moves_the_end() {
    let store = store();
    set(&store, "k", lasting("v", NOW_S + 5));
    assert!(store.touch(b"k", NOW_S + 50, NOW_S));
    assert!(value(&store, "k", NOW_S + 49).is_some());
    assert!(!store.touch(b"k", 0, NOW_S + 50));
    assert!(!store.touch(b"other", 0, NOW_S));
}

#[test]
fn one_client_wins_a_missing_item() {
    let store = store();
    let steps = [Step::Vivify(NOW_S + 30), Step::Ttl];
    let first = store.fetch(b"k", &meta(&steps), NOW_S).expect("vivified");
    assert!(first.created && first.won && !first.token_sent && !first.hit_before);
    assert_eq!((first.value.len(), first.exptime_s), (0, NOW_S + 30));
    let second = store.fetch(b"k", &meta(&steps), NOW_S).expect("there");
    assert!(!second.created && !second.won && second.token_sent && second.hit_before);
}

#[test]
fn one_client_wins_an_item_that_ends_soon() {
    let store = store();
    set(&store, "k", lasting("v", NOW_S + 10));
    let steps = |within_s| [Step::Recache(NOW_S + within_s)];
    let wins = |within_s| store.fetch(b"k", &meta(&steps(within_s)), NOW_S).expect("there").won;
    assert!(!wins(10));
    assert!(wins(11));
    assert!(!wins(11), "the token is out");
}

#[test]
fn one_client_wins_a_stale_item() {
    let store = store();
    let cas = set(&store, "k", item("v"));
    assert_eq!(store.invalidate(b"k", Some(cas + 1), None, NOW_S), Removal::Exists);
    assert_eq!(store.invalidate(b"k", Some(cas), Some(NOW_S + 9), NOW_S), Removal::Done);
    let classic = store.fetch(b"k", &Fetch::GET, NOW_S).expect("there");
    assert!(classic.stale && !classic.won && classic.cas > cas);
    assert_eq!(classic.exptime_s, NOW_S + 9);
    let first = store.fetch(b"k", &meta(&[]), NOW_S).expect("there");
    assert!(first.stale && first.won);
    let second = store.fetch(b"k", &meta(&[]), NOW_S).expect("there");
    assert!(second.stale && !second.won && second.token_sent);
    store.invalidate(b"k", None, None, NOW_S);
    assert!(store.fetch(b"k", &meta(&[]), NOW_S).expect("there").won, "the token is back");
    assert_eq!(store.invalidate(b"other", None, None, NOW_S), Removal::NotFound);
}

#[test]
fn steps_are_taken_in_the_clients_order() {
    let store = store();
    set(&store, "k", lasting("v", 500));
    let end = |steps: &[Step]| store.fetch(b"k", &meta(steps), NOW_S).expect("there").exptime_s;
    assert_eq!(end(&[Step::Ttl, Step::Touch(600)]), 500);
    assert_eq!(end(&[Step::Touch(700), Step::Ttl]), 700);
}

#[test]
fn looking_leaves_no_mark() {
    let store = store();
    set(&store, "k", item("v"));
    for _ in 0..2 {
        let found = store.fetch(b"k", &Fetch::PEEK, NOW_S + 7).expect("there");
        assert_eq!((found.hit_before, found.idle_s), (false, 7));
    }
    store.fetch(b"k", &Fetch::GET, NOW_S + 7);
    store.fetch(b"k", &Fetch::GET, NOW_S + 8);
    let found = store.fetch(b"k", &Fetch::PEEK, NOW_S + 10).expect("there");
    assert_eq!((found.hit_before, found.idle_s), (true, 2));
}

#[test]
fn delete_compares_versions() {
    let store = store();
    let cas = set(&store, "k", item("v"));
    assert_eq!(store.delete(b"k", Some(cas + 1), NOW_S), Removal::Exists);
    assert_eq!(store.delete(b"k", Some(cas), NOW_S), Removal::Done);
    assert_eq!(store.delete(b"k", None, NOW_S), Removal::NotFound);
}

#[test]
fn counting_wraps_up_and_stops_at_zero() {
    let store = store();
    let count = |delta: &Delta<'_>| store.arithmetic(b"k", delta, NOW_S).expect("there is room");
    let number = |increment, by| match count(&Delta::classic(increment, by)) {
        Counted::Done { number, .. } => number,
        other => panic!("{other:?}"),
    };
    assert_eq!(count(&Delta::classic(true, 1)), Counted::NotFound);
    set(&store, "k", item("99"));
    assert_eq!(number(true, 1), 100);
    assert_eq!(number(false, 1), 99);
    assert_eq!(value(&store, "k", NOW_S).as_deref(), Some(&b"99 "[..]), "the length stays");
    assert_eq!(number(false, 1000), 0);
    assert_eq!(number(true, u64::MAX), u64::MAX);
    assert_eq!(number(true, 3), 2);
    assert_eq!(count(&Delta { compare: 1, ..Delta::classic(true, 1) }), Counted::Exists);
    set(&store, "k", item("x"));
    assert_eq!(count(&Delta::classic(true, 1)), Counted::NotANumber);
}

#[test]
fn counting_makes_a_missing_item_when_asked() {
    let store = store();
    let steps = [Step::Vivify(NOW_S + 30)];
    let delta = Delta { initial: 13, steps: &steps, ..Delta::classic(true, 1) };
    let created = store.arithmetic(b"k", &delta, NOW_S).expect("there is room");
    let exptime_s = NOW_S + 30;
    assert_eq!(created, Counted::Done { number: 13, cas: 1, exptime_s, created: true });
    let counted = store.arithmetic(b"k", &delta, NOW_S).expect("there is room");
    assert_eq!(counted, Counted::Done { number: 14, cas: 2, exptime_s, created: false });
}

#[test]
fn flush_all_ends_what_was_there() {
    let store = store();
    set(&store, "before", item("v"));
    store.flush_all(NOW_S, NOW_S);
    set(&store, "after", item("v"));
    assert!(value(&store, "before", NOW_S).is_none());
    assert!(value(&store, "after", NOW_S).is_some());
    assert_eq!(store.stats().get_flushed, 1);
}

#[test]
fn a_delayed_flush_waits() {
    let store = store();
    set(&store, "k", item("v"));
    store.flush_all(NOW_S + 10, NOW_S);
    assert!(value(&store, "k", NOW_S + 8).is_some());
    assert!(value(&store, "k", NOW_S + 9).is_none());
    assert_eq!(store.store(b"k", item("w"), Mode::Add, NOW_S + 10), Ok(Stored::Stored { cas: 2 }));
    assert!(value(&store, "k", NOW_S + 10).is_some());
}

#[test]
fn a_later_flush_brings_nothing_back() {
    let store = store();
    set(&store, "flushed at once", item("v"));
    store.flush_all(NOW_S, NOW_S);
    set(&store, "flushed later", item("v"));
    store.flush_all(NOW_S + 10, NOW_S);
    assert!(value(&store, "flushed at once", NOW_S).is_none());
    store.flush_all(NOW_S + 50, NOW_S + 20);
    assert!(value(&store, "flushed later", NOW_S + 20).is_none());
}

#[test]
fn a_sweep_removes_what_ended_and_nothing_else() {
    let store = store();
    for i in 0..1000 {
        set(&store, &format!("short{i}"), lasting("v", NOW_S + 1));
        set(&store, &format!("long{i}"), lasting("v", NOW_S + 100));
    }
    assert_eq!(store.sweep(usize::MAX, NOW_S), 0);
    let mut removed = 0;
    for _ in 0..store.shards.len() {
        removed += store.sweep(1, NOW_S + 1);
    }
    assert_eq!(removed, 1000);
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.expired_unfetched), (1000, 1000));
    assert_eq!(stats.crawler_reclaimed, 1000);
}

#[test]
fn memory_stays_within_the_budget() {
    let limit = ByteCount::mib(8);
    let store = Embedded::new(Options { item_bytes_max: ByteCount::kib(64), ..options(limit) });
    let mut prng = units::Prng::new(5);
    let (mut written, mut absent) = (0, 0);
    for i in 0.. {
        let value = Bytes::from(vec![b'v'; prng.below(60_000) as usize]);
        written += value.len() as u64;
        let key = format!("key{}", prng.below(300));
        absent += u64::from(store.fetch(key.as_bytes(), &Fetch::PEEK, NOW_S).is_none());
        set(&store, &key, NewItem { value, ..NewItem::default() });
        assert!(store.fetch(key.as_bytes(), &Fetch::GET, NOW_S).is_some(), "just set, write {i}");
        if i % 50 == 0 {
            assert!(store.stats().bytes <= limit.0);
        }
        if written > 10 * limit.0 {
            break;
        }
    }
    let stats = store.stats();
    assert!(stats.evictions > 0 && stats.bytes > limit.0 / 2, "{stats:?}");
    assert_eq!(stats.curr_items + stats.evictions, absent, "a replaced item is not an evicted one");
}

#[test]
fn what_fetches_keep_asking_for_stays() {
    let store =
        Embedded::new(Options { item_bytes_max: ByteCount::kib(8), ..options(ByteCount::mib(1)) });
    set(&store, "asked for", item("v"));
    for i in 0..20_000 {
        assert!(store.fetch(b"asked for", &Fetch::GET, NOW_S).is_some(), "after {i} others");
        set(&store, &format!("once{i}"), item("some value that nobody asks for"));
    }
    let stats = store.stats();
    assert_eq!(stats.evictions, stats.evicted_unfetched);
}

#[test]
fn replacing_is_no_eviction() {
    let store = store();
    for i in 0..5000 {
        set(&store, "k", item(&"v".repeat(i % 3000)));
    }
    let stats = store.stats();
    assert_eq!((stats.evictions, stats.curr_items, stats.total_items), (0, 1, 5000));
}

#[test]
fn ended_items_that_make_room_are_reclaimed() {
    let store =
        Embedded::new(Options { item_bytes_max: ByteCount::kib(8), ..options(ByteCount::mib(1)) });
    let fill = |prefix: &str, now_s| {
        for i in 0..8000 {
            let new = lasting("some value", now_s + 10);
            store.store(format!("{prefix}{i}").as_bytes(), new, Mode::Set, now_s).expect("room");
        }
    };
    fill("a", NOW_S);
    let before = store.stats();
    assert_eq!((before.reclaimed, before.expired_unfetched), (0, 0));
    fill("b", NOW_S + 10);
    let stats = store.stats();
    assert!(stats.reclaimed > 500 && stats.reclaimed == stats.expired_unfetched, "{stats:?}");
}

#[test]
fn without_eviction_a_full_store_refuses() {
    let limit = ByteCount::mib(1);
    let item_bytes_max = ByteCount::kib(8);
    let store = Embedded::new(Options { item_bytes_max, evict: false, ..options(limit) });
    let put = |key: String, exptime_s, now_s| {
        store.store(key.as_bytes(), lasting("some value", exptime_s), Mode::Set, now_s)
    };
    let stored = (0..20_000).filter(|i| put(format!("k{i}"), NOW_S + 9, NOW_S).is_ok()).count();
    let stats = store.stats();
    assert!((3000..20_000).contains(&stored), "{stored}");
    assert_eq!((stats.curr_items, stats.evictions), (stored as u64, 0));
    put("k0".into(), NOW_S + 9, NOW_S).expect("replacing takes no room");
    put("later".into(), 0, NOW_S + 9).expect("what ended makes room");
}

#[test]
fn a_refused_large_item_removes_the_old_one() {
    let store = Embedded::new(options(ByteCount::mib(1)));
    set(&store, "k", item("v"));
    let large = NewItem { value: Bytes::from(vec![0; 900_000]), ..NewItem::default() };
    let refused = store.store(b"k", large, Mode::Set, NOW_S).expect_err("too large");
    assert!(refused.needed_bytes > 900_000 && refused.shard_bytes == 1 << 20);
    assert!(value(&store, "k", NOW_S).is_none());
}

#[test]
fn shards_hold_several_of_the_largest_items() {
    let count = |limit: ByteCount, max: ByteCount| shard_count(limit.0, max.0);
    assert_eq!(count(ByteCount::mib(64), ByteCount::mib(1)), 8);
    assert_eq!(count(ByteCount::mib(100), ByteCount::mib(1)), 8);
    assert_eq!(count(ByteCount::mib(1), ByteCount::mib(1)), 1);
    assert_eq!(count(ByteCount::mib(1024), ByteCount::mib(128)), 1);
    assert_eq!(count(ByteCount(u64::MAX), ByteCount(0)), SHARDS_MAX);
    assert_eq!(count(ByteCount(0), ByteCount(u64::MAX)), 1);
}

#[test]
fn threads_that_count_on_one_key_lose_nothing() {
    const COUNTS: u64 = 20_000;
    let store = store();
    set(&store, "k", item("0"));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..COUNTS {
                    store.arithmetic(b"k", &Delta::classic(true, 1), NOW_S).expect("room");
                    set(store, &format!("{thread}:{}", i % 100), item("other"));
                }
            });
        }
    });
    let expected = (4 * COUNTS).to_string();
    assert_eq!(value(&store, "k", NOW_S).as_deref(), Some(expected.as_bytes()));
}
