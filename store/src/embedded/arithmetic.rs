//! Increments and decrements, with memcached's rules for what a number is.

use bytes::Bytes;

use super::item::{Item, NewItem, Step};
use super::shard::Shard;
use super::{OutOfMemory, Turn};

/// The parameters of an increment or a decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Whether the command increments. An increment wraps at 2^64 and a decrement stops at 0.
    pub increment: bool,
    /// The amount by which the number changes.
    pub by: u64,
    /// The version that the item must have. 0 accepts any version, as in memcached.
    pub compare: u64,
    /// The value that a missing item starts with if a step is [`Step::Vivify`].
    pub initial: u64,
    /// The further steps, in the client's order.
    pub steps: &'a [Step],
}

impl Delta<'_> {
    /// Builds the parameters of a classic `incr` or `decr`.
    pub const fn classic(increment: bool, by: u64) -> Self {
        Self { increment, by, compare: 0, initial: 0, steps: &[] }
    }

    fn apply(&self, number: u64) -> u64 {
        if self.increment { number.wrapping_add(self.by) } else { number.saturating_sub(self.by) }
    }
}

/// The result of an increment or a decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The item was counted.
    Done {
        /// The number after the change.
        number: u64,
        /// The item's new version.
        cas: u64,
        /// The time at which the item expires, on the store's clock; 0 for never. See
        /// [`Step::Ttl`].
        exptime_s: u32,
        /// The item was missing and now starts with `initial`.
        created: bool,
    },
    /// There is no such item, and no step creates it.
    NotFound,
    /// The item has another version.
    Exists,
    /// The value is not a number.
    NotANumber,
}

impl Shard {
    pub(super) fn arithmetic(
        &mut self,
        key: &[u8],
        delta: &Delta<'_>,
        turn: &Turn<'_>,
    ) -> Result<Counted, OutOfMemory> {
        let mut grown = None;
        let counted = self.with_live(key, true, turn, |item| {
            if !item.value.is_empty() && delta.compare != 0 && delta.compare != item.cas {
                return Counted::Exists;
            }
            let Some(number) = parse_number(&item.value).map(|number| delta.apply(number)) else {
                return Counted::NotANumber;
            };
            let value = text(number, item.value.len());
            let kept = NewItem {
                value,
                flags: item.flags,
                exptime_s: item.exptime_s,
                key_is_binary: false,
            };
            if kept.value.len() <= item.value.len() {
                (item.value, item.time_s) = (kept.value, turn.now_s);
                return count(item, number, delta, turn);
            }
            // memcached makes a new item if the new number has more digits than the value has
            // bytes: marks such as "fetched" are lost.
            let mut next = Item::new(kept, turn.now_s);
            let counted = count(&mut next, number, delta, turn);
            grown = Some(next);
            counted
        });
        if let Some(item) = grown {
            self.insert(key, item, turn)?;
        }
        match counted {
            Some(counted) => Ok(counted),
            None => self.start(key, delta, turn),
        }
    }

    fn start(
        &mut self,
        key: &[u8],
        delta: &Delta<'_>,
        turn: &Turn<'_>,
    ) -> Result<Counted, OutOfMemory> {
        if !delta.steps.iter().any(|step| matches!(step, Step::Vivify(_))) {
            return Ok(Counted::NotFound);
        }
        let value = text(delta.initial, 0);
        let mut item = Item::new(NewItem { value, ..NewItem::default() }, turn.now_s);
        item.cas = turn.cas_next();
        let (exptime_s, _) = item.apply(delta.steps, true);
        let cas = item.cas;
        self.insert(key, item, turn)?;
        Ok(Counted::Done { number: delta.initial, cas, exptime_s, created: true })
    }
}

fn count(item: &mut Item, number: u64, delta: &Delta<'_>, turn: &Turn<'_>) -> Counted {
    item.cas = turn.cas_next();
    let (exptime_s, _) = item.apply(delta.steps, false);
    Counted::Done { number, cas: item.cas, exptime_s, created: false }
}

/// Returns the number's digits, padded with blanks to `bytes_min`. A value therefore never gets
/// shorter.
fn text(number: u64, bytes_min: usize) -> Bytes {
    let mut text = number.to_string().into_bytes();
    if text.len() < bytes_min {
        text.resize(bytes_min, b' ');
    }
    Bytes::from(text)
}

/// Reads a value as memcached's counters read it, which is C's `strtoull` on the value and its CR
/// LF. Blanks and a sign may precede the digits. After the digits may follow a blank and then
/// anything. A NUL ends the text.
fn parse_number(value: &[u8]) -> Option<u64> {
    let value = &value[..value.iter().position(|byte| *byte == 0).unwrap_or(value.len())];
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0B;
    let start = value.iter().position(|byte| !blank(byte))?;
    let (negative, unsigned) = match &value[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || !unsigned.get(digits).is_none_or(blank) {
        return None;
    }
    let magnitude: u64 = str::from_utf8(&unsigned[..digits]).ok()?.parse().ok()?;
    let number = if negative { magnitude.wrapping_neg() } else { magnitude };
    // memcached refuses a number above 2^63 if the value contains a minus sign anywhere.
    let suspect = number > i64::MAX as u64 && value.contains(&b'-');
    (!suspect).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_memcached_takes_for_numbers() {
        let accepted: [(&[u8], u64); 11] = [
            (b"0", 0),
            (b"18446744073709551615", u64::MAX),
            (b"007", 7),
            (b"12   ", 12),
            (b" 12", 12),
            (b"+12", 12),
            (b"12 monkeys", 12),
            (b"12\0x", 12),
            (b"18446744073709551615\0-", u64::MAX),
            (b"-0", 0),
            (b"-18446744073709551615", 1),
        ];
        for (value, number) in accepted {
            assert_eq!(parse_number(value), Some(number), "{}", value.escape_ascii());
        }
        let refused: [&[u8]; 8] =
            [b"", b"  ", b"x", b"12x", b"-1", b"18446744073709551616", b"1.5", b"\xFBRb"];
        for value in refused {
            assert_eq!(parse_number(value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn fewer_digits_keep_the_length() {
        assert_eq!(text(99, 3), "99 ");
        assert_eq!(text(100, 2), "100");
        assert_eq!(text(7, 100_000).len(), 100_000);
    }
}
