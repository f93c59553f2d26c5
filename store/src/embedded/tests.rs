//! Tests the embedded store item by item, under a clock that the test moves.

use bytes::Bytes;

use super::*;

const NOW_S: u32 = 100;

fn options(limit: ByteCount) -> Options {
    Options { limit, evict: true, seed: 1 }
}

fn store() -> Embedded {
    Embedded::new(options(ByteCount::mib(64)))
}

fn item(value: &str) -> NewItem<'_> {
    NewItem { value: value.as_bytes(), ..NewItem::default() }
}

fn lasting(value: &str, exptime_s: u32) -> NewItem<'_> {
    NewItem { exptime_s, ..item(value) }
}

fn set(store: &Embedded, key: &str, item: NewItem<'_>) -> u64 {
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
fn a_fetch_returns_a_copy_that_stays() {
    let store = store();
    let bytes = [7; 1000];
    let cas = set(&store, "k", NewItem { value: &bytes, flags: 9, ..NewItem::default() });
    let found = store.fetch(b"k", &Fetch::GET, NOW_S).expect("it was just set");
    set(&store, "k", item("another value"));
    assert_eq!((found.flags, found.cas, found.exptime_s), (9, cas, 0));
    assert_eq!(found.value, &bytes[..]);
}

#[test]
fn a_value_that_is_used_in_place_is_not_copied() {
    let store = store();
    let cas = set(&store, "k", NewItem { flags: 9, ..item("value") });
    let using = |glimpse: &Glimpse<'_>| {
        assert_eq!(glimpse.value, Some(&b"value"[..]));
        (glimpse.cas == cas).then_some(glimpse.flags)
    };
    let fetch = |key: &[u8]| store.fetch_in_place(key, &Fetch::GET, NOW_S, using);
    let (fetched, answer) = fetch(b"k").expect("it was just set");
    assert_eq!((fetched.flags, fetched.cas, answer), (9, cas, Some(9)));
    assert!(fetched.value.is_empty());
    assert!(fetch(b"other").is_none());
    set(&store, "k", item("value"));
    let (fetched, answer) = fetch(b"k").expect("it was just set");
    assert_eq!((&fetched.value[..], answer), (&b"value"[..], None));
}

#[test]
fn a_long_value_is_not_shown_in_place() {
    let store = store();
    let bytes = vec![7; 100_000];
    set(&store, "k", NewItem { value: &bytes, ..NewItem::default() });
    let using = |glimpse: &Glimpse<'_>| glimpse.value.is_none().then_some(());
    let steps = [Step::Touch(NOW_S + 1)];
    for fetch in [Fetch::GET, Fetch { steps: &steps, ..Fetch::GET }] {
        let (fetched, answer) = store.fetch_in_place(b"k", &fetch, NOW_S, using).expect("set");
        assert!(fetched.value.is_empty() && answer.is_some());
    }
}

#[test]
fn a_frame_with_a_dictionary_comes_back_whole_from_every_path() {
    let store = Embedded::new(Options { limit: ByteCount::mib(1), evict: false, seed: 1 });
    let block = [&units::zstd_frame::last_block_header(40)[..], &[5; 40]].concat();
    let short = [b"\xFD\x07\x00\x00\x01\x02\x03\x04\x20\xA3", &block[..]].concat();
    let wide = [b"\xFD\x07\x00\x00\x01\x02\x03\x04\x60\xA3\x01", &block[..]].concat();
    for (key, bytes) in [("short", &short), ("wide", &wide)] {
        let new = || NewItem { value: bytes, ..NewItem::default() };
        let found = |fetch: &Fetch<'_>| store.fetch(key.as_bytes(), fetch, NOW_S).expect("set");
        set(&store, key, item("a value of another length"));
        set(&store, key, new());
        assert_eq!(found(&Fetch::GET).value, &bytes[..]);
        set(&store, key, new());
        let using = |glimpse: &Glimpse<'_>| glimpse.value.map(|_| ());
        let (fetched, shown) =
            store.fetch_in_place(key.as_bytes(), &Fetch::GET, NOW_S, using).expect("set");
        assert_eq!((&fetched.value[..], shown), (&bytes[..], None), "it is not shown in place");
        let seen = store.standing(key.as_bytes(), NOW_S, <[u8]>::to_vec);
        assert_eq!(seen, Standing::Alive(bytes.clone()));
        let steps = [Step::Touch(NOW_S + 60)];
        assert_eq!(found(&Fetch { steps: &steps, ..Fetch::GET }).value, &bytes[..]);
        store.invalidate(key.as_bytes(), None, None, NOW_S);
        assert_eq!(found(&Fetch::GET).value, &bytes[..]);
        assert_eq!(
            store.arithmetic(key.as_bytes(), &Delta::classic(true, 1), NOW_S),
            Ok(Counted::NotANumber)
        );
    }
    let held_bytes = store.stats().bytes as usize;
    let whole_bytes = short.len() + wide.len() + "shortwide".len();
    let overhead_bytes = 2 * (ITEM_OVERHEAD_BYTES + 4);
    assert_eq!(held_bytes, whole_bytes + overhead_bytes - 2 * omitted_bytes(1));
}

#[test]
fn every_change_of_a_value_gives_another_version() {
    let store = store();
    let cas = || store.fetch(b"k", &Fetch::PEEK, NOW_S).expect("it is there").cas;
    let mut seen = vec![set(&store, "k", item("5"))];
    let mut note = || {
        assert!(!seen.contains(&cas()), "{seen:?}");
        seen.push(cas());
    };
    set(&store, "k", item("5"));
    note();
    let delta = Delta { increment: true, by: 1, compare: 0, initial: 0, steps: &[] };
    store.arithmetic(b"k", &delta, NOW_S).expect("a number");
    note();
    store.arithmetic(b"k", &Delta { by: 10, ..delta }, NOW_S).expect("a number");
    note();
    store.invalidate(b"k", None, None, NOW_S);
    note();
    let overwrite = Mode::Overwrite { cas: cas() };
    store.store(b"k", item("77"), overwrite, NOW_S).expect("there is room");
    note();
    store.delete(b"k", None, NOW_S);
    set(&store, "k", item("5"));
    note();
}

#[test]
fn lent_memory_makes_room_by_eviction() {
    let limit = ByteCount::mib(1);
    let store = Embedded::new(options(limit));
    let bytes = [7; 1000];
    let fill = |from: u32| {
        for key in from..from + 3_000 {
            let item = NewItem { value: &bytes, ..NewItem::default() };
            store.store(&key.to_le_bytes(), item, Mode::Set, NOW_S).expect("it evicts");
        }
    };
    fill(0);
    let (full, lent) = (store.stats(), 512 << 10);
    assert!(store.lend(lent, NOW_S));
    assert!(store.memory.fits(), "it evicted at once");
    fill(10_000);
    assert!(store.memory.fits());
    assert!(store.stats().bytes + lent <= limit.0 && full.bytes > limit.0 / 2);
    store.take_back(lent);
    fill(20_000);
    assert!(store.stats().bytes > limit.0 - lent);
    assert!(!store.lend(limit.0 + 1, NOW_S), "more than there is");
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
    for _ in 0..store.shards.len() + 4 {
        removed += store.sweep(500, NOW_S + 1);
    }
    assert_eq!(removed, 1000);
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.expired_unfetched), (1000, 1000));
    assert_eq!(stats.crawler_reclaimed, 1000);
}

#[test]
fn memory_stays_within_the_budget() {
    let limit = ByteCount::mib(8);
    let store = Embedded::new(options(limit));
    let mut prng = units::Prng::new(5);
    let (mut written, mut absent) = (0, 0);
    for i in 0.. {
        let value = &vec![b'v'; prng.below(60_000) as usize];
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
    // An old version may be evicted to make room for the new one, but most are replaced.
    let evicted_or_held = stats.curr_items + stats.evictions;
    assert!((absent..absent + absent / 50).contains(&evicted_or_held), "{stats:?}, {absent}");
}

#[test]
fn what_fetches_keep_asking_for_stays() {
    let store = Embedded::new(options(ByteCount::mib(1)));
    set(&store, "asked for", item("v"));
    for i in 0..60_000 {
        assert!(store.fetch(b"asked for", &Fetch::GET, NOW_S).is_some(), "after {i} others");
        set(&store, &format!("once{i}"), item("some value that nobody asks for"));
    }
    let stats = store.stats();
    assert_eq!(stats.evictions, stats.evicted_unfetched);
}

#[test]
fn the_last_eviction_tells_how_long_the_item_was_idle() {
    let store = Embedded::new(options(ByteCount::mib(1)));
    let add = |i: u32, now_s| store.store(&i.to_be_bytes(), item("a value"), Mode::Set, now_s);
    add(0, NOW_S).expect("room for one item");
    assert_eq!(store.stats().evicted_last, None);
    let mut next = 1..;
    while store.stats().evictions == 0 {
        add(next.next().expect("numbers have no end"), NOW_S)
            .expect("a store that evicts has room");
    }
    assert_eq!(store.stats().evicted_last, Some((NOW_S, 0)));
    let before = store.stats().evictions;
    while store.stats().evictions == before {
        add(next.next().expect("numbers have no end"), NOW_S + 30)
            .expect("a store that evicts has room");
    }
    assert_eq!(store.stats().evicted_last, Some((NOW_S + 30, 30)));
}

#[test]
fn an_item_that_displaces_many_must_be_used_as_often_as_they() {
    let store = Embedded::new(options(ByteCount::mib(2)));
    let (small, large) = ("s".repeat(200), "l".repeat(20_000));
    let names = |kind: char, count: u32| (0..count).map(move |number| format!("{kind}{number}"));
    let fetch = |key: &str| store.fetch(key.as_bytes(), &Fetch::GET, NOW_S).is_some();
    let all = || names('s', 2_000).chain(names('l', 40)).chain(names('u', 10));
    for key in all() {
        set(&store, &key, item(if key.starts_with('s') { &small } else { &large }));
        // Two uses are too few for a large item, and three are enough.
        for _ in 0..if key.starts_with('u') { 3 } else { 1 } {
            assert!(fetch(&key));
        }
    }
    for key in names('n', 10_000) {
        set(&store, &key, item(&small));
    }
    let kept = |kind, count| names(kind, count).filter(|key| fetch(key)).count();
    let shares =
        [kept('s', 2_000) as f64 / 2e3, kept('l', 40) as f64 / 40.0, kept('u', 10) as f64 / 10.0];
    assert!(shares[0] > 0.9 && shares[1] < 0.1 && shares[2] > 0.9, "{shares:?}");
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
    let store = Embedded::new(options(ByteCount::mib(1)));
    let fill = |prefix: &str, now_s| {
        for i in 0..40_000 {
            let new = lasting("some value", now_s + 10);
            store.store(format!("{prefix}{i}").as_bytes(), new, Mode::Set, now_s).expect("room");
        }
    };
    fill("a", NOW_S);
    let before = store.stats();
    assert_eq!((before.reclaimed, before.expired_unfetched), (0, 0));
    fill("b", NOW_S + 10);
    let stats = store.stats();
    assert!(stats.reclaimed > 10_000 && stats.reclaimed == stats.expired_unfetched, "{stats:?}");
}

#[test]
fn without_eviction_a_full_store_refuses() {
    let limit = ByteCount::mib(1);
    let store = Embedded::new(Options { evict: false, ..options(limit) });
    let put = |key: String, exptime_s, now_s| {
        store.store(key.as_bytes(), lasting("some value", exptime_s), Mode::Set, now_s)
    };
    let stored = (0..40_000).filter(|i| put(format!("k{i}"), NOW_S + 9, NOW_S).is_ok()).count();
    let stats = store.stats();
    assert!((20_000..30_000).contains(&stored), "{stored}");
    assert_eq!((stats.curr_items, stats.evictions), (stored as u64, 0));
    put("k0".into(), NOW_S + 9, NOW_S).expect("replacing takes no room");
    put("later".into(), 0, NOW_S + 9).expect("what ended makes room");
}

#[test]
fn a_refused_large_item_removes_the_old_one() {
    let store = Embedded::new(options(ByteCount::mib(1)));
    set(&store, "k", item("v"));
    let large = NewItem { value: &vec![0; 900_000], ..NewItem::default() };
    let refused = store.store(b"k", large, Mode::Set, NOW_S).expect_err("too large");
    assert!(refused.needed_bytes > 900_000 && refused.limit_bytes == 1 << 20);
    assert!(value(&store, "k", NOW_S).is_none());
}

#[test]
fn any_budget_makes_a_store() {
    for limit in [0, 1, 64 << 10, 1 << 20, 100 << 20, 1 << 50] {
        let store = Embedded::new(options(ByteCount(limit)));
        let stored = store.store(b"k", item("v"), Mode::Set, NOW_S);
        assert_eq!(stored.is_ok(), limit >= 64 << 10, "{limit}");
    }
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

/// Every value that a full store still has is the one that was stored last, whatever the lengths of
/// values, and whatever moved to make room.
#[test]
fn a_full_store_returns_what_was_stored_last() {
    let value = |key: u64, version: u64| {
        let mut draws = units::Prng::new(key << 32 | version);
        let bytes_max = [40, 400, 4_000, 40_000][draws.below(4) as usize];
        let mut value = vec![0; draws.below(bytes_max) as usize];
        draws.fill(&mut value);
        value
    };
    let store = Embedded::new(options(ByteCount::mib(2)));
    let mut draws = units::Prng::new(11);
    let mut versions = vec![0; 2_000];
    let (mut hits, mut changed) = (0, 0);
    for step in 0..60_000_u64 {
        let key = draws.below(versions.len() as u64);
        let name = format!("key{key}");
        let version = &mut versions[key as usize];
        match draws.below(8) {
            0..4 => {
                *version = step;
                let exptime_s = if draws.below(4) == 0 { NOW_S + 50 } else { 0 };
                let value = &value(key, step);
                let new = NewItem { value, exptime_s, ..NewItem::default() };
                set(&store, &name, new);
            }
            4 => changed += u64::from(store.touch(name.as_bytes(), NOW_S + 9, NOW_S)),
            5 => {
                store.delete(name.as_bytes(), None, NOW_S);
            }
            _ => {
                let Some(found) = store.fetch(name.as_bytes(), &Fetch::GET, NOW_S) else {
                    continue;
                };
                assert!(found.value == value(key, *version), "{name} at step {step}");
                hits += 1;
            }
        }
    }
    let stats = store.stats();
    assert!(hits > 500 && changed > 200 && stats.evictions > 5_000, "{hits} {changed} {stats:?}");
}

#[test]
fn threads_share_a_full_store() {
    let store = Embedded::new(options(ByteCount::mib(8)));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &store;
            scope.spawn(move || {
                let mut draws = units::Prng::new(thread.into());
                for _ in 0..20_000 {
                    let (key, bytes) = (draws.below(3_000), draws.below(9_000) as usize);
                    let name = format!("key{key}");
                    if draws.below(2) == 0 {
                        let value = &vec![key as u8; bytes];
                        set(store, &name, NewItem { value, ..NewItem::default() });
                    } else if let Some(found) = store.fetch(name.as_bytes(), &Fetch::GET, NOW_S) {
                        assert!(found.value.iter().all(|byte| *byte == key as u8), "{name}");
                    }
                }
            });
        }
    });
    let stats = store.stats();
    assert!(stats.evictions > 0 && stats.bytes <= stats.limit_maxbytes, "{stats:?}");
}

#[test]
fn reserved_memory_is_taken_from_items_and_returned() {
    let store = Embedded::new(options(ByteCount::mib(8)));
    let fill = || {
        for number in 0..40_000_u32 {
            let item = NewItem { value: &[7; 500], ..item("") };
            store.store(&number.to_le_bytes(), item, Mode::Set, 1).expect("items are evicted");
        }
        store.stats().bytes
    };
    let before = fill();
    store.reserve(2 << 20);
    let during = fill();
    store.reserve(0);
    let after = fill();
    assert!(during < before - (3 << 19), "{before} {during}");
    assert!(after > before - (1 << 19), "{before} {after}");
    assert!(during + (2 << 20) <= 8 << 20, "{during}");
}

#[test]
fn long_values_fill_the_memory_but_for_a_few_percent() {
    let limit = ByteCount::mib(32);
    let held = |value_bytes: usize| {
        let held_by = |seed| {
            let store = Embedded::new(Options { seed, ..options(limit) });
            let bytes = vec![7; value_bytes];
            for number in 0..3 * limit.as_usize() / value_bytes {
                set(&store, &number.to_string(), NewItem { value: &bytes, ..NewItem::default() });
            }
            store.stats().curr_items
        };
        let mut held: Vec<u64> = (1..=5).map(held_by).collect();
        held.sort_unstable();
        held[2]
    };
    // memcached 1.6.18 holds 64 values of 512,000 bytes.
    for (value_bytes, items_min) in [(512_000, 64), (200_000, 163), (100_000, 326)] {
        assert!(held(value_bytes) >= items_min, "{value_bytes}: {}", held(value_bytes));
    }
}
