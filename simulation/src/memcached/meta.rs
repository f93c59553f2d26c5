//! The meta commands.

use super::{Item, Memcached, counted, number};

/// The flags of a meta command, in their order.
struct Flags<'a>(Vec<&'a [u8]>);

impl<'a> Flags<'a> {
    fn from_words(words: &[&'a [u8]], from: usize) -> Self {
        Self(words.get(from..).unwrap_or_default().to_vec())
    }

    fn has(&self, letter: u8) -> bool {
        self.0.iter().any(|flag| flag[0] == letter)
    }

    fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        self.0.iter().find(|flag| flag[0] == letter).map(|flag| &flag[1..])
    }

    fn number<T: std::str::FromStr>(&self, letter: u8) -> Option<T> {
        self.argument(letter).and_then(number)
    }

    /// Returns whether the answer `code` is left out.
    fn is_quiet_about(&self, code: &[u8]) -> bool {
        self.has(b'q') && matches!(code, b"HD" | b"EN")
    }

    /// Writes an answer without a value. Only the opaque and the key are repeated, and `cas` if it is asked for.
    fn answer(&self, code: &[u8], key: &[u8], cas: Option<u64>, out: &mut Vec<u8>) {
        if self.is_quiet_about(code) {
            return;
        }
        out.extend_from_slice(code);
        for flag in &self.0 {
            match (flag[0], cas) {
                (b'O', _) => {
                    out.push(b' ');
                    out.extend_from_slice(flag);
                }
                (b'k', _) => {
                    out.extend_from_slice(b" k");
                    out.extend_from_slice(key);
                }
                (b'c', Some(cas)) => out.extend_from_slice(format!(" c{cas}").as_bytes()),
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Memcached {
    fn left_s(&self, item: &Item) -> i64 {
        if item.expires_s == 0 { -1 } else { item.expires_s - self.now_s }
    }

    /// Appends the facts of an item that the flags ask for.
    fn facts(&self, item: &Item, key: &[u8], flags: &Flags<'_>, out: &mut Vec<u8>) {
        for flag in &flags.0 {
            let fact = match flag[0] {
                b'c' => format!(" c{}", item.cas),
                b'f' => format!(" f{}", item.client_flags),
                b's' => format!(" s{}", item.value.len()),
                b't' => format!(" t{}", self.left_s(item)),
                b'O' => format!(" {}", String::from_utf8_lossy(flag)),
                b'k' => format!(" k{}", String::from_utf8_lossy(key)),
                _ => continue,
            };
            out.extend_from_slice(fact.as_bytes());
        }
    }

    pub(super) fn meta_get(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let Some(&key) = words.get(1) else {
            return out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
        };
        let flags = Flags::from_words(words, 2);
        let expires_s = flags.number(b'T').map(|exptime_s| self.expiry(exptime_s));
        let vivified_s = flags.number(b'N').map(|exptime_s| self.expiry(exptime_s));
        let recached_s = flags.number(b'R').map(|left_s| self.expiry(left_s));
        let is_made = self.find(key).is_none();
        if let (true, Some(expires_s)) = (is_made, vivified_s) {
            self.put(key, Vec::new(), 0, expires_s);
        }
        let Some(item) = self.find(key) else {
            return flags.answer(b"EN", key, None, out);
        };
        if let Some(expires_s) = expires_s {
            item.expires_s = expires_s;
        }
        let is_due = recached_s.is_some_and(|at_s| item.expires_s != 0 && item.expires_s < at_s);
        let is_won_now = is_made || (item.is_stale || is_due) && !item.is_won;
        let was_won = item.is_won;
        item.is_won |= is_won_now;
        let item = item.clone();
        let with_value = flags.has(b'v');
        if with_value {
            out.extend_from_slice(format!("VA {}", item.value.len()).as_bytes());
        } else if flags.is_quiet_about(b"HD") {
            return;
        } else {
            out.extend_from_slice(b"HD");
        }
        // memcached 1.6.18 tells of no end in the answer that makes an item.
        let told_s = if is_made { 0 } else { item.expires_s };
        self.facts(&Item { expires_s: told_s, ..item.clone() }, key, &flags, out);
        let marks: [(bool, &[u8]); 3] =
            [(was_won, b" Z"), (item.is_stale, b" X"), (is_won_now, b" W")];
        for (_, mark) in marks.into_iter().filter(|(is_set, _)| *is_set) {
            out.extend_from_slice(mark);
        }
        out.extend_from_slice(b"\r\n");
        if with_value {
            out.extend_from_slice(&item.value);
            out.extend_from_slice(b"\r\n");
        }
    }

    pub(super) fn meta_set(&mut self, words: &[&[u8]], value: &[u8], out: &mut Vec<u8>) {
        let key = words[1];
        let flags = Flags::from_words(words, 3);
        let expires_s = self.expiry(flags.number(b'T').unwrap_or(0));
        let client_flags = flags.number(b'F').unwrap_or(0);
        let mode = flags.argument(b'M').and_then(|mode| mode.first()).copied();
        let old = self.find(key).cloned();
        let extends = matches!(mode, Some(b'A' | b'a' | b'P' | b'p'));
        // An append or prepend takes the CAS number 0 for none.
        let compare: Option<u64> = flags.number(b'C').filter(|cas| *cas != 0 || !extends);
        let refused: Option<&[u8]> = match (mode, compare, &old) {
            (Some(b'E' | b'e'), _, Some(_)) => Some(b"NS"),
            (_, _, None) if extends => Some(b"NS"),
            (Some(b'R' | b'r'), None, None) => Some(b"NS"),
            // An add stores where there is nothing to compare with.
            (Some(b'E' | b'e'), _, None) => None,
            (_, Some(_), None) => Some(b"NF"),
            (_, Some(cas), Some(old)) if cas != old.cas => Some(b"EX"),
            _ => None,
        };
        if let Some(code) = refused {
            return flags.answer(code, key, Some(0), out);
        }
        let cas = match (mode, old) {
            (Some(b'A' | b'a'), Some(old)) => {
                self.put(key, [&old.value, value].concat(), old.client_flags, old.expires_s)
            }
            (Some(b'P' | b'p'), Some(old)) => {
                self.put(key, [value, &old.value].concat(), old.client_flags, old.expires_s)
            }
            _ => self.put(key, value.to_vec(), client_flags, expires_s),
        };
        flags.answer(b"HD", key, Some(cas), out);
    }

    pub(super) fn meta_delete(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let Some(&key) = words.get(1) else {
            return out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
        };
        let flags = Flags::from_words(words, 2);
        let compare: Option<u64> = flags.number(b'C');
        let expires_s = flags.number(b'T').map(|exptime_s| self.expiry(exptime_s));
        let cas = self.last_cas + 1;
        let Some(item) = self.find(key) else { return flags.answer(b"NF", key, None, out) };
        if compare.is_some_and(|compare| compare != item.cas) {
            return flags.answer(b"EX", key, None, out);
        }
        if flags.has(b'I') {
            item.is_stale = true;
            item.is_won = false;
            item.cas = cas;
            if let Some(expires_s) = expires_s {
                item.expires_s = expires_s;
            }
            self.last_cas = cas;
        } else {
            self.items.remove(key);
        }
        flags.answer(b"HD", key, None, out);
    }

    pub(super) fn meta_count(&mut self, words: &[&[u8]], out: &mut Vec<u8>) {
        let Some(&key) = words.get(1) else {
            return out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
        };
        let flags = Flags::from_words(words, 2);
        let delta: u64 = flags.number(b'D').unwrap_or(1);
        let mode = flags.argument(b'M').and_then(|mode| mode.first()).copied();
        let vivified_s = flags.number(b'N').map(|exptime_s| self.expiry(exptime_s));
        let Some(old) = self.find(key).cloned() else {
            let Some(expires_s) = vivified_s else {
                return flags.answer(b"NF", key, None, out);
            };
            let initial: u64 = flags.number(b'J').unwrap_or(0);
            self.put(key, initial.to_string().into_bytes(), 0, expires_s);
            return self.answer_count(key, &flags, out);
        };
        // The CAS number 0 stands for none here.
        let is_other =
            flags.number(b'C').is_some_and(|compare: u64| compare != 0 && compare != old.cas);
        // An empty value is no number, whatever its CAS number.
        if is_other && !old.value.is_empty() {
            return flags.answer(b"EX", key, None, out);
        }
        let Some(count) = counted(&old.value) else {
            let error = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
            return out.extend_from_slice(error);
        };
        let count = match mode {
            Some(b'D' | b'd' | b'-') => count.saturating_sub(delta),
            _ => count.wrapping_add(delta),
        };
        self.put_count(key, &old.value, count);
        let expires_s = flags.number(b'T').map(|exptime_s| self.expiry(exptime_s));
        if let (Some(expires_s), Some(item)) = (expires_s, self.items.get_mut(key)) {
            item.expires_s = expires_s;
        }
        self.answer_count(key, &flags, out);
    }

    fn answer_count(&mut self, key: &[u8], flags: &Flags<'_>, out: &mut Vec<u8>) {
        let Some(item) = self.items.get(key).cloned() else { return };
        let text = item.value.trim_ascii_end();
        if flags.has(b'v') {
            out.extend_from_slice(format!("VA {}", text.len()).as_bytes());
        } else if flags.is_quiet_about(b"HD") {
            return;
        } else {
            out.extend_from_slice(b"HD");
        }
        let asked =
            Flags(flags.0.iter().copied().filter(|flag| b"ctOk".contains(&flag[0])).collect());
        self.facts(&item, key, &asked, out);
        out.extend_from_slice(b"\r\n");
        if flags.has(b'v') {
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}
