//! Reads the lines with which memcached describes its items and its requests: `lru_crawler metadump`,
//! `stats cachedump` and `watch`. It is sans-I/O. A line in another form is none.

use protocol::Tokens;
use protocol::number::decimal;
use units::limits::{ITEM_BYTES_MAX_HIGHEST, KEY_BYTES_MAX};

/// One item, as a server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: Vec<u8>,
    /// Whether the item has an expiry time.
    pub(super) expires: bool,
    /// The time of the last access (s since the Unix epoch), if the server tells.
    pub(super) accessed_s: Option<u64>,
    /// The size of the item in memcached (bytes): header, key and value.
    pub(super) item_bytes: u64,
}

impl Listed {
    /// Reads a line of `lru_crawler metadump`.
    pub(super) fn from_metadump(line: &[u8]) -> Option<Self> {
        let field = |name: &[u8]| Tokens::new(line).find_map(|word| word.strip_prefix(name));
        let listed = Self {
            key: unescaped(field(b"key=")?)?,
            expires: field(b"exp=")? != b"-1",
            accessed_s: field(b"la=").and_then(decimal),
            item_bytes: decimal(field(b"size=")?)?,
        };
        listed.is_possible().then_some(listed)
    }

    /// Reads a line of `stats cachedump`: `ITEM key [123 b; 1790000000 s]`. `overhead_bytes` is what memcached adds to
    /// key and value.
    pub(super) fn from_cachedump(line: &[u8], overhead_bytes: u64) -> Option<Self> {
        let mut words = Tokens::new(line);
        if words.next()? != b"ITEM" {
            return None;
        }
        let key = words.next()?.to_vec();
        let value_bytes = decimal(words.next()?.strip_prefix(b"[")?)?;
        let expiry_s = words.nth(1)?;
        let item_bytes = value_bytes.saturating_add(overhead_bytes + key.len() as u64);
        let listed = Self { key, expires: expiry_s != b"0", accessed_s: None, item_bytes };
        listed.is_possible().then_some(listed)
    }

    /// Returns whether a memcached can hold this item.
    fn is_possible(&self) -> bool {
        self.key.len() <= KEY_BYTES_MAX && self.item_bytes <= ITEM_BYTES_MAX_HIGHEST.0
    }
}

/// One line of `watch fetchers mutations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request that was carried out.
    Request(Request),
    /// The server left out this number of requests because the watcher was too slow.
    Skipped(u64),
}

/// A request that a client made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number of the client's connection.
    pub(super) connection: u64,
    pub(super) key: Vec<u8>,
    /// The length of the value (bytes), if the line tells it.
    pub(super) value_bytes: Option<u64>,
    pub(super) kind: RequestKind,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A get that found the item.
    Hit,
    /// A get that did not find the item.
    Miss,
    /// A stored item.
    Set,
}

impl Event {
    /// Reads a line.
    pub(super) fn from_watch(line: &[u8]) -> Option<Self> {
        if let Some(count) = line.strip_prefix(b"[skipped: ") {
            return decimal(count.strip_suffix(b"]")?).map(Event::Skipped);
        }
        let field = |name: &[u8]| Tokens::new(line).find_map(|word| word.strip_prefix(name));
        let kind = match (field(b"type=")?, field(b"status=")?) {
            (b"item_get", b"found") => RequestKind::Hit,
            (b"item_get", _) => RequestKind::Miss,
            (b"item_store", b"stored") => RequestKind::Set,
            _ => return None,
        };
        let connection = field(b"cfd=").and_then(decimal).unwrap_or(0);
        let value_bytes = field(b"size=").and_then(decimal).filter(|_| kind != RequestKind::Miss);
        let key = unescaped(field(b"key=")?)?;
        Some(Event::Request(Request { connection, key, value_bytes, kind }))
    }
}

/// Decodes a key in which `%41` stands for `A`.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            key.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            key.push(*first);
        }
    }
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_metadump_are_read() {
        let line = b"key=user%3A1%3Ap exp=1795690570 la=1795690470 cas=2 fetch=no cls=1 size=81";
        let listed = Listed::from_metadump(line).unwrap();
        assert_eq!(listed.key, b"user:1:p");
        assert_eq!((listed.expires, listed.accessed_s), (true, Some(1_795_690_470)));
        assert_eq!(listed.item_bytes, 81);
        let never = Listed::from_metadump(b"key=a exp=-1 la=5 cas=2 fetch=no cls=1 size=60");
        assert!(!never.unwrap().expires);
    }

    #[test]
    fn lines_of_cachedump_are_read() {
        let listed = Listed::from_cachedump(b"ITEM a%b [5 b; 0 s]", 50).unwrap();
        assert_eq!((listed.key.as_slice(), listed.item_bytes), (&b"a%b"[..], 58));
        assert!(!listed.expires);
        assert!(Listed::from_cachedump(b"ITEM k [5 b; 17 s]", 50).unwrap().expires);
    }

    #[test]
    fn lines_of_watch_are_read() {
        let read = |line: &str| Event::from_watch(line.as_bytes());
        let request = |connection, key: &[u8], value_bytes, kind| {
            let key = key.to_vec();
            Some(Event::Request(Request { connection, key, value_bytes, kind }))
        };
        let hit = "ts=1.5 gid=2 type=item_get key=a%20b status=found clsid=1 cfd=24 size=10";
        assert_eq!(read(hit), request(24, b"a b", Some(10), RequestKind::Hit));
        let miss = "ts=1.5 gid=2 type=item_get key=a status=not_found clsid=0 cfd=24 size=0";
        assert_eq!(read(miss), request(24, b"a", None, RequestKind::Miss));
        let set = "ts=1.5 gid=2 type=item_store key=a status=stored cmd=set ttl=0 clsid=1 cfd=2";
        assert_eq!(read(set), request(2, b"a", None, RequestKind::Set));
        assert_eq!(read("[skipped: 12]"), Some(Event::Skipped(12)));
    }

    #[test]
    fn impossible_items_are_none() {
        let metadump = |key: &str, size: &str| {
            Listed::from_metadump(format!("key={key} exp=-1 la=5 cls=1 size={size}").as_bytes())
        };
        assert!(metadump("a", "60").is_some());
        for size in ["-1", "2000000000", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(metadump("a", size), None, "{size}");
            let line = format!("ITEM a [{size} b; 0 s]");
            assert_eq!(Listed::from_cachedump(line.as_bytes(), 50), None, "{size}");
        }
        assert_eq!(metadump(&"a".repeat(KEY_BYTES_MAX + 1), "60"), None);
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["", "END", "key= exp=-1 size=5", "key=%4 exp=-1 size=5", "key=a size=5", "ITEM"]
        {
            assert_eq!(Listed::from_metadump(line.as_bytes()), None, "{line}");
            assert_eq!(Listed::from_cachedump(line.as_bytes(), 1), None, "{line}");
            assert_eq!(Event::from_watch(line.as_bytes()), None, "{line}");
        }
    }
}
