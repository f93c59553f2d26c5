//! The commands from before the meta commands.

use super::{Memcached, counted, number};

impl Memcached {
    pub(super) fn classic_get(&mut self, name: &[u8], words: &[&[u8]], out: &mut Vec<u8>) {
        let is_touch = name.starts_with(b"gat");
        let keys_at = if is_touch { 2 } else { 1 };
        let exptime_s = words.get(1).and_then(|word| number::<i64>(word));
        if words.len() <= keys_at {
            return out.extend_from_slice(b"ERROR\r\n");
        }
        if is_touch && exptime_s.is_none() {
            return out.extend_from_slice(b"CLIENT_ERROR invalid exptime argument\r\n");
        }
        let expires_s = self.expiry(exptime_s.unwrap_or(0));
        for key in &words[keys_at..] {
            let Some(item) = self.find(key) else { continue };
            if is_touch {
                item.expires_s = expires_s;
            }
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            let facts = format!(" {} {}", item.client_flags, item.value.len());
            out.extend_from_slice(facts.as_bytes());
            if name.ends_with(b"s") {
                out.extend_from_slice(format!(" {}", item.cas).as_bytes());
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&item.value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"END\r\n");
    }

    pub(super) fn classic_store(
        &mut self,
        name: &[u8],
        words: &[&[u8]],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let noreply = words.last() == Some(&&b"noreply"[..]);
        let flags = words.get(2).and_then(|word| number::<u32>(word));
        let exptime_s = words.get(3).and_then(|word| number::<i64>(word));
        let (Some(flags), Some(exptime_s)) = (flags, exptime_s) else {
            return out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
        };
        let compare = words.get(5).and_then(|word| number::<u64>(word));
        let answer = self.store(name, words[1], value, (flags, exptime_s), compare);
        if !noreply {
            out.extend_from_slice(answer);
        }
    }

    fn store(
        &mut self,
        name: &[u8],
        key: &[u8],
        value: &[u8],
        (flags, exptime_s): (u32, i64),
        compare: Option<u64>,
    ) -> &'static [u8] {
        let expires_s = self.expiry(exptime_s);
        let old = self.find(key).cloned();
        match (name, old) {
            (b"add", Some(_)) => return b"NOT_STORED\r\n",
            (b"replace" | b"append" | b"prepend", None) => return b"NOT_STORED\r\n",
            (b"cas", None) => return b"NOT_FOUND\r\n",
            (b"cas", Some(old)) if Some(old.cas) != compare => return b"EXISTS\r\n",
            (b"append", Some(old)) => {
                let value = [&old.value, value].concat();
                self.put(key, value, old.client_flags, old.expires_s);
            }
            (b"prepend", Some(old)) => {
                let value = [value, &old.value].concat();
                self.put(key, value, old.client_flags, old.expires_s);
            }
            _ => {
                self.put(key, value.to_vec(), flags, expires_s);
            }
        }
        b"STORED\r\n"
    }

    pub(super) fn classic_delete(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let Some(key) = words.get(1) else { return out.extend_from_slice(b"ERROR\r\n") };
        let was_there = self.find(key).is_some();
        self.items.remove(*key);
        if words.get(2) != Some(&&b"noreply"[..]) {
            out.extend_from_slice(if was_there { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
        }
    }

    pub(super) fn classic_touch(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let (Some(key), Some(time)) = (words.get(1), words.get(2)) else {
            return out.extend_from_slice(b"ERROR\r\n");
        };
        let Some(exptime_s) = number::<i64>(time) else {
            return out.extend_from_slice(b"CLIENT_ERROR invalid exptime argument\r\n");
        };
        let expires_s = self.expiry(exptime_s);
        match self.find(key) {
            Some(item) => {
                item.expires_s = expires_s;
                out.extend_from_slice(b"TOUCHED\r\n");
            }
            None => out.extend_from_slice(b"NOT_FOUND\r\n"),
        }
    }

    pub(super) fn classic_count(&mut self, name: &[u8], words: &[&[u8]], out: &mut Vec<u8>) {
        let (Some(key), Some(delta)) = (words.get(1), words.get(2)) else {
            return out.extend_from_slice(b"ERROR\r\n");
        };
        let Some(delta) = number::<u64>(delta) else {
            return out.extend_from_slice(b"CLIENT_ERROR invalid numeric delta argument\r\n");
        };
        let Some(old) = self.find(key).cloned() else {
            return out.extend_from_slice(b"NOT_FOUND\r\n");
        };
        let Some(count) = counted(&old.value) else {
            let error = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
            return out.extend_from_slice(error);
        };
        let count =
            if name == b"incr" { count.wrapping_add(delta) } else { count.saturating_sub(delta) };
        self.put_count(key, &old.value, count);
        out.extend_from_slice(format!("{count}\r\n").as_bytes());
    }

    /// Stores a number in an item that has one. A shorter number is padded with spaces, as in memcached.
    pub(super) fn put_count(&mut self, key: &[u8], old: &[u8], count: u64) -> u64 {
        let cas = self.next_cas();
        let mut text = count.to_string().into_bytes();
        if text.len() < old.len() {
            text.resize(old.len(), b' ');
        }
        if let Some(item) = self.items.get_mut(key) {
            // A longer number needs a new item, which is not stale.
            if text.len() > old.len() {
                item.is_stale = false;
                item.is_won = false;
            }
            item.value = text;
            item.cas = cas;
        }
        cas
    }
}
