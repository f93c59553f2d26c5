//! Increments and decrements, with memcached's rules for which values are numbers.

use super::Turn;
use super::item::{Item, NewItem, Step};
use super::log::Queue;
use super::record::TIME_MODULUS_S;
use super::shard::{Key, Lacking, Shard, Supply};
use crate::frame::brief::Brief;

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
    /// The changes to the item's lifetime, in the client's order.
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
    /// The number was changed.
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
        key: Key<'_>,
        delta: &Delta<'_>,
        turn: &Turn<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Counted, Lacking> {
        let Some(found) = self.live(key, turn) else {
            return self.start(key, delta, turn, supply);
        };
        self.count_use(&found);
        let mut item = found.item;
        let value = self.value(&found);
        if !value.is_empty() && delta.compare != 0 && delta.compare != item.shown_cas() {
            return Ok(Counted::Exists);
        }
        let Some(number) = parse_number(&value).map(|number| delta.apply(number)) else {
            return Ok(Counted::NotANumber);
        };
        let next = text(number, value.len());
        if next.len() > value.len() {
            // memcached makes a new item if the new number has more digits than the value has
            // bytes: marks such as "fetched" are lost.
            let Item { flags, exptime_s, .. } = item;
            let new = NewItem { value: &next, flags, exptime_s, key_is_binary: false };
            item = Item::new(&new, turn.now_s);
        } else {
            item.time_s = turn.now_s % TIME_MODULUS_S;
        }
        let (exptime_s, _) = item.apply(delta.steps, false);
        if next.len() == value.len() && found.is_in_place() {
            (item.cas, item.given_cas) = (turn.cas_next(), 0);
            self.overwrite(&found, &Brief::whole(&next));
            self.update(&found, item, key, supply.memory);
        } else {
            item.given_cas = 0;
            let room = self.room(key, &item, &next, Queue::New, supply)?;
            item.cas = turn.cas_next();
            self.put(key, item, &next, room, Some(found), supply);
        }
        Ok(Counted::Done { number, cas: item.cas, exptime_s, created: false })
    }

    fn start(
        &mut self,
        key: Key<'_>,
        delta: &Delta<'_>,
        turn: &Turn<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Counted, Lacking> {
        if !delta.steps.iter().any(|step| matches!(step, Step::Vivify(_))) {
            return Ok(Counted::NotFound);
        }
        let value = text(delta.initial, 0);
        let mut item = Item::new(&NewItem::default(), turn.now_s);
        let (exptime_s, _) = item.apply(delta.steps, true);
        let room = self.room(key, &item, &value, Queue::New, supply)?;
        item.cas = turn.cas_next();
        self.put(key, item, &value, room, None, supply);
        self.count_total();
        Ok(Counted::Done { number: delta.initial, cas: item.cas, exptime_s, created: true })
    }
}

/// Returns the number's digits, padded with blanks to `bytes_min`. A value therefore never gets
/// shorter.
fn text(number: u64, bytes_min: usize) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    if text.len() < bytes_min {
        text.resize(bytes_min, b' ');
    }
    text
}

/// Parses a value as memcached's counters do, with C's `strtoull` on the value and its CR LF. Blanks and a
/// sign may precede the digits. A blank may follow them, and then any bytes. A NUL ends the text.
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
        assert_eq!(text(99, 3), b"99 ");
        assert_eq!(text(100, 2), b"100");
        assert_eq!(text(7, 100_000).len(), 100_000);
    }
}
