//! The bytes of an item in a segment: marks, lengths, times, version, key, and the value or, for a
//! long value, its end. The layout is private to the process; snapshots have their own.

use super::item::Item;
use crate::frame::brief::Form;

/// The place of a record's parts, as read from its first bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) item: Item,
    /// The length of the header and the key (bytes).
    head_bytes: u16,
    key_bytes: u8,
    tail: Tail,
    /// The rest of a long value.
    pub(super) chain: Option<Chain>,
}

/// The part of a value that is in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Its length (bytes).
    pub(super) bytes: u16,
    /// The form of a value without blocks. The tail of a long value is whole.
    pub(super) form: Form,
}

impl Tail {
    fn read(bytes: [u8; 2]) -> Self {
        let both = u16::from_le_bytes(bytes);
        Self { bytes: both & TAIL_BYTES_MAX, form: Form::from_number(both >> TAIL_BITS) }
    }

    fn to_bytes(self) -> [u8; 2] {
        (self.bytes | (self.form as u16) << TAIL_BITS).to_le_bytes()
    }
}

/// The blocks that hold the beginning of a long value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The first block.
    pub(super) first: u32,
    /// The number of blocks.
    pub(super) blocks: u32,
}

impl Record {
    /// Describes the record of an item whose value ends with `tail` in the record.
    pub(super) fn new(item: Item, key: &[u8], tail: Tail, chain: Option<Chain>) -> Self {
        let head_bytes = FIXED_BYTES
            + 4 * usize::from(item.exptime_s != 0)
            + 4 * usize::from(item.flags != 0)
            + 8 * usize::from(item.given_cas != 0)
            + CHAIN_BYTES * usize::from(chain.is_some())
            + key.len();
        Self { item, head_bytes: head_bytes as u16, key_bytes: key.len() as u8, tail, chain }
    }

    /// Describes the record with other fields and the same value.
    pub(super) fn with(&self, item: Item, key: &[u8]) -> Self {
        Self::new(item, key, self.tail, self.chain)
    }

    /// Describes the record with other fields that leave its length as it is.
    pub(super) fn with_fields(&self, item: Item) -> Self {
        Self { item, ..*self }
    }

    /// Returns the length of the value's part that is in the record (bytes).
    pub(super) fn tail_bytes(&self) -> usize {
        usize::from(self.tail.bytes)
    }

    /// Returns the form in which the value is held.
    pub(super) fn form(&self) -> Form {
        self.tail.form
    }

    /// Returns the length of the record (bytes).
    pub(super) fn bytes(&self) -> usize {
        usize::from(self.head_bytes) + self.tail_bytes()
    }

    /// Returns the key's bytes of the record that begins at the start of `bytes`.
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let end = usize::from(self.head_bytes);
        &bytes[end - usize::from(self.key_bytes)..end]
    }

    /// Returns the value's last bytes, which are in the record that begins at the start of `bytes`.
    pub(super) fn tail<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.head_bytes)..self.bytes()]
    }

    pub(super) fn tail_mut<'a>(&self, bytes: &'a mut [u8]) -> &'a mut [u8] {
        &mut bytes[usize::from(self.head_bytes)..self.bytes()]
    }

    /// Reads the record that begins at the start of `bytes`.
    ///
    /// # Panics
    /// If no record begins there.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let (fixed, mut rest) = bytes.split_first_chunk::<FIXED_BYTES>().expect("a whole record");
        let [marks, key_bytes, v0, v1, t0, t1, t2, c0, c1, c2, c3, c4, c5] = *fixed;
        let mut word = |mark| {
            if marks & mark == 0 {
                return 0;
            }
            let (word, after) = rest.split_first_chunk().expect("a whole record");
            rest = after;
            u32::from_le_bytes(*word)
        };
        let (exptime_s, flags) = (word(HAS_EXPTIME), word(HAS_FLAGS));
        let (first, blocks) = (word(HAS_CHAIN), word(HAS_CHAIN));
        let (given_low, given_high) = (word(HAS_CAS), word(HAS_CAS));
        let head_bytes = bytes.len() - rest.len() + usize::from(key_bytes);
        let item = Item {
            cas: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, 0, 0]),
            given_cas: u64::from(given_high) << 32 | u64::from(given_low),
            flags,
            exptime_s,
            time_s: u32::from_le_bytes([t0, t1, t2, 0]),
            fetched: false,
            stale: marks & STALE != 0,
            token_sent: marks & TOKEN_SENT != 0,
            key_is_binary: marks & KEY_IS_BINARY != 0,
        };
        Self {
            item,
            head_bytes: head_bytes as u16,
            key_bytes,
            tail: Tail::read([v0, v1]),
            chain: (marks & HAS_CHAIN != 0).then_some(Chain { first, blocks }),
        }
    }

    /// Returns the length of the record at the start of `bytes` and its key, without the other
    /// fields.
    pub(super) fn outline(bytes: &[u8]) -> (usize, &[u8]) {
        let (marks, key_bytes) = (bytes[0], usize::from(bytes[1]));
        let tail_bytes = usize::from(Tail::read([bytes[2], bytes[3]]).bytes);
        let optional = OPTIONAL_BYTES[usize::from(marks & HAS_MASK)];
        // The CAS has 8 bytes, and its mark is 64.
        let start = FIXED_BYTES + optional + usize::from(marks & HAS_CAS) / 8;
        (start + key_bytes + tail_bytes, &bytes[start..start + key_bytes])
    }

    /// Returns whether the header has the same length with the item's fields as they are now.
    pub(super) fn keeps_its_length(&self, item: &Item) -> bool {
        (self.item.exptime_s != 0) == (item.exptime_s != 0)
            && (self.item.flags != 0) == (item.flags != 0)
            && (self.item.given_cas != 0) == (item.given_cas != 0)
    }

    /// Writes the header and the key to the start of `bytes`.
    pub(super) fn write(&self, bytes: &mut [u8], key: &[u8]) {
        self.write_header(bytes);
        let end = usize::from(self.head_bytes);
        bytes[end - key.len()..end].copy_from_slice(key);
    }

    /// Writes the header to the start of `bytes`, where the key is already.
    pub(super) fn write_header(&self, bytes: &mut [u8]) {
        let item = &self.item;
        let marks = [
            (HAS_EXPTIME, item.exptime_s != 0),
            (HAS_FLAGS, item.flags != 0),
            (HAS_CHAIN, self.chain.is_some()),
            (STALE, item.stale),
            (TOKEN_SENT, item.token_sent),
            (KEY_IS_BINARY, item.key_is_binary),
            (HAS_CAS, item.given_cas != 0),
        ];
        let marks =
            marks.into_iter().filter(|(_, is_set)| *is_set).map(|(mark, _)| mark).sum::<u8>();
        let [v0, v1] = self.tail.to_bytes();
        let [t0, t1, t2, _] = item.time_s.to_le_bytes();
        let [c0, c1, c2, c3, c4, c5, ..] = item.cas.to_le_bytes();
        let fixed = [marks, self.key_bytes, v0, v1, t0, t1, t2, c0, c1, c2, c3, c4, c5];
        bytes[..FIXED_BYTES].copy_from_slice(&fixed);
        let mut at = FIXED_BYTES;
        let mut word = |word: u32| {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            at += 4;
        };
        if item.exptime_s != 0 {
            word(item.exptime_s);
        }
        if item.flags != 0 {
            word(item.flags);
        }
        if let Some(Chain { first, blocks }) = self.chain {
            word(first);
            word(blocks);
        }
        if item.given_cas != 0 {
            word(item.given_cas as u32);
            word((item.given_cas >> 32) as u32);
        }
    }
}

/// Marks (1), length of the key (1), length of the value's part and its form (2), access time (3), version (6).
/// Versions of 6 bytes last for nine years of a million changes a second.
pub(super) const FIXED_BYTES: usize = 13;

/// The first block and the number of blocks.
const CHAIN_BYTES: usize = 8;

/// The bits of a tail's length. The form of the value is in the bits above.
const TAIL_BITS: u32 = 14;

/// The longest tail (bytes).
pub(super) const TAIL_BYTES_MAX: u16 = (1 << TAIL_BITS) - 1;

const HAS_EXPTIME: u8 = 1;
const HAS_FLAGS: u8 = 2;
const HAS_CHAIN: u8 = 4;
const HAS_MASK: u8 = 7;
const STALE: u8 = 8;
const TOKEN_SENT: u8 = 16;
const KEY_IS_BINARY: u8 = 32;
/// The item has a CAS that a client gave it.
const HAS_CAS: u8 = 64;

/// The length of the optional fields, apart from the CAS, by the marks that say which there are.
const OPTIONAL_BYTES: [usize; 8] = [0, 4, 4, 8, 8, 12, 12, 16];

/// A record counts seconds of access modulo this number, which is 194 days.
pub(super) const TIME_MODULUS_S: u32 = 1 << 24;
