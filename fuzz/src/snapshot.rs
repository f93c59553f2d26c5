//! Tests snapshots of the embedded store with any bytes, with valid chunks of any contents, and with damage. Reading
//! must not panic, what was read must be saved and read again as it is, and damage must give no store. The damage is of
//! a kind that a CRC-32C always finds (a burst of up to 32 bits within a chunk's contents, or a shorter file). So no
//! run of this target, however long, fails by chance.

use arbitrary::Arbitrary;
use crate::Value;
use store::Embedded;
use store::embedded::snapshot::{About, Moment, Restored, SectionKind, SnapshotError, is_snapshot};
use store::embedded::{Fetch, Mode, NewItem, Options};
use units::ByteCount;

#[derive(Arbitrary, Debug)]
pub(super) enum Input<'a> {
    Bytes { with_magic: bool, bytes: &'a [u8] },
    Chunks(Vec<Chunk<'a>>),
    Store { items: Vec<Item<'a>>, damage: Damage },
}

#[derive(Arbitrary, Debug)]
pub(super) struct Chunk<'a> {
    kind: Kind,
    is_continued: bool,
    is_required: bool,
    contents: &'a [u8],
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Facts,
    Items,
    End,
    Known,
    Unknown,
}

#[derive(Arbitrary, Debug)]
pub(super) struct Item<'a> {
    key: u8,
    value: Value<'a>,
    flags: u32,
    ttl_s: Option<u16>,
    is_fetched: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Damage {
    None,
    Burst { at: u32, bits: u32 },
    Truncated { by: u16 },
}

pub(super) fn fuzz(input: Input<'_>) {
    match input {
        Input::Bytes { with_magic, bytes } => {
            let first: &[u8] = if with_magic { FIRST } else { b"" };
            check(&[first, bytes].concat());
        }
        Input::Chunks(chunks) => check(&composed(&chunks)),
        Input::Store { items, damage } => check_damage(&filled(&items), damage),
    }
}

fn restore(bytes: &[u8]) -> Result<Restored, SnapshotError> {
    Embedded::restore(options(), &[KNOWN], bytes, VALUE_BYTES_MAX, NOW)
}

fn options() -> Options {
    Options { limit: ByteCount::mib(1), evict: true, seed: 7 }
}

fn saved(store: &Embedded) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes, &[], &About::default(), NOW).expect("memory takes it");
    assert!(is_snapshot(&bytes));
    bytes
}

/// Reads the bytes. If they are a snapshot, the store that they give must be saved and read again without a loss.
fn check(bytes: &[u8]) {
    let Ok(Restored { store, items, .. }) = restore(bytes) else { return };
    let stats = store.stats();
    assert!(is_snapshot(bytes) && stats.bytes <= 2 << 20, "{stats:?}");
    assert_eq!(items.loaded, stats.curr_items);
    let again = restore(&saved(&store)).expect("it was just saved");
    assert_eq!(again.items.loaded + again.items.evicted, stats.curr_items);
}

/// Returns a snapshot with these chunks and the right checksums.
fn composed(chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut bytes = FIRST.to_vec();
    for (number, chunk) in (0_u64..).zip(chunks) {
        let kind = match chunk.kind {
            Kind::Facts => b"FACT",
            Kind::Items => b"ITEM",
            Kind::End => b"END ",
            Kind::Known => &KNOWN.0,
            Kind::Unknown => b"MORE",
        };
        let flags = u32::from(chunk.is_continued) | u32::from(chunk.is_required) << 1;
        let length = chunk.contents.len() as u32;
        let fields = [&kind[..], &flags.to_le_bytes(), &length.to_le_bytes()].concat();
        let checksum =
            crc32c::crc32c(&[&number.to_le_bytes(), &fields[..], chunk.contents].concat());
        bytes.extend([&fields[..], &checksum.to_le_bytes(), chunk.contents].concat());
    }
    bytes
}

fn filled(items: &[Item<'_>]) -> Embedded {
    let store = Embedded::new(options());
    for Item { key, value, flags, ttl_s, is_fetched } in items {
        let exptime_s = ttl_s.map_or(0, |ttl_s| NOW.now_s + 1 + u32::from(ttl_s));
        let value = value.bytes(VALUE_BYTES_MAX);
        let item = NewItem { value: &value, flags: *flags, exptime_s, key_is_binary: false };
        let _full = store.store(&[b'k', *key], item, Mode::Set, NOW.now_s);
        if *is_fetched {
            store.fetch(&[b'k', *key], &Fetch::GET, NOW.now_s);
        }
    }
    store
}

fn check_damage(store: &Embedded, damage: Damage) {
    let whole = saved(store);
    let mut damaged = whole.clone();
    match damage {
        Damage::None => {}
        Damage::Burst { at, bits } => {
            // The burst stays within the contents of the first chunk, whose length does not change.
            let contents = FIRST.len() + CHUNK_HEADER_BYTES
                ..FIRST.len() + CHUNK_HEADER_BYTES + FACTS_BYTES_MIN;
            let at = contents.start + at as usize % contents.len();
            for (byte, bits) in damaged[at..contents.end].iter_mut().zip(bits.to_le_bytes()) {
                *byte ^= bits;
            }
        }
        Damage::Truncated { by } => {
            damaged.truncate(whole.len().saturating_sub(usize::from(by)));
        }
    }
    let restored = restore(&damaged);
    assert_eq!(restored.is_ok(), damaged == whole, "{damage:?}");
    let Ok(Restored { store: restored, .. }) = restored else { return };
    for key in 0..=u8::MAX {
        let found = |store: &Embedded| store.fetch(&[b'k', key], &Fetch::PEEK, NOW.now_s);
        if let Some(again) = found(&restored) {
            assert_eq!(Some(again), found(store), "key {key}");
        }
    }
}

const NOW: Moment = Moment { now_s: 1 << 25, unix_s: 1_700_000_000 };
const KNOWN: SectionKind = SectionKind(*b"DICT");
/// The first bytes of a snapshot: the magic and the format's version.
const FIRST: &[u8] = b"\x93REBATE\n\x01\0\0\0";
const CHUNK_HEADER_BYTES: usize = 16;
/// The bytes of the facts without the writer's name.
const FACTS_BYTES_MIN: usize = 45;
const VALUE_BYTES_MAX: usize = 70_000;
