//! The state of one key, and what each request does to it.

use super::{Answer, Ask, Bytes, Record, Rules};

/// The item of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) value: Bytes,
    /// The CAS number, once an answer has told it.
    pub(super) cas: Option<u64>,
    /// The times between which the item expires (ms), if it does.
    pub(super) expires: Option<(u64, u64)>,
}

pub(super) type State = Option<Item>;

/// Returns the states that are possible when the request takes effect: the item may have expired or been lost by then.
fn seen(state: &State, record: &Record, rules: Rules) -> Vec<State> {
    let Some(item) = state else { return vec![None] };
    let returned_ms = record.returned.map_or(u64::MAX, |at| at.at_ms);
    let (may_live, may_be_gone) = match item.expires {
        None => (true, false),
        Some((from_ms, to_ms)) => (record.invoked.at_ms <= to_ms, returned_ms >= from_ms),
    };
    let live = may_live.then(|| state.clone());
    let gone = (may_be_gone || rules.items_may_vanish).then_some(None);
    live.into_iter().chain(gone).collect()
}

/// Returns the states that the request may leave if its answer is as it was. There is none if the answer is wrong.
pub(super) fn apply(state: &State, record: &Record, rules: Rules) -> Vec<State> {
    let mut after = Vec::new();
    for before in seen(state, record, rules) {
        if let Some(next) = step(&before, record, rules)
            && !after.contains(&next)
        {
            after.push(next);
        }
    }
    // As memcached does, a server that has no memory for a new value removes the old one.
    if record.answer == Answer::Unknown
        && matches!(record.ask, Ask::Set(_))
        && !after.contains(&None)
    {
        after.push(None);
    }
    // A miss that tells nothing about the item.
    if rules.misses_may_lie && record.ask == Ask::Get && record.answer == Answer::Miss {
        after.push(state.clone());
    }
    after
}

/// Returns the state after the request, or `None` if the answer is wrong.
fn step(before: &State, record: &Record, rules: Rules) -> Option<State> {
    let (expected, next) = outcome(before, record, rules);
    let is_right = match (&record.answer, &expected) {
        (Answer::Unknown, _) => true,
        (Answer::Hit(value, Some(cas)), Answer::Hit(expected, known)) => {
            value == expected && known.is_none_or(|known| known == *cas)
        }
        (Answer::Hit(value, None), Answer::Hit(expected, _)) => value == expected,
        (answer, expected) => answer == expected,
    };
    let mut next = is_right.then_some(next)?;
    if let (Answer::Hit(_, Some(cas)), Some(item)) = (&record.answer, &mut next) {
        item.cas = Some(*cas);
    }
    Some(next)
}

/// Returns the answer and the state that the request should lead to.
fn outcome(before: &State, record: &Record, rules: Rules) -> (Answer, State) {
    let stored = |value: &Bytes| {
        let item = Item { value: value.clone(), cas: None, expires: expiry(record) };
        (Answer::Done, Some(item))
    };
    let refused = |answer| (answer, before.clone());
    match (&record.ask, before) {
        (Ask::Get, None) => refused(Answer::Miss),
        (Ask::Get, Some(item)) => refused(Answer::Hit(item.value.clone(), item.cas)),
        (Ask::Set(value), _) | (Ask::Add(value), None) | (Ask::Replace(value), Some(_)) => {
            stored(value)
        }
        (Ask::Add(_), Some(_)) | (Ask::Replace(_) | Ask::Append(_), None) => {
            refused(Answer::NotStored)
        }
        (Ask::Cas(..) | Ask::Delete | Ask::Touch | Ask::Count(_), None) => refused(Answer::Miss),
        (Ask::Cas(value, cas), Some(item)) => match item.cas {
            Some(known) if known == *cas => stored(value),
            // A server that starts anew may give a number again.
            None if rules.cas_may_repeat && record.answer == Answer::Done => stored(value),
            _ => refused(Answer::Exists),
        },
        (Ask::Append(tail), Some(item)) => {
            let value = Bytes::from([&item.value[..], &tail[..]].concat());
            (Answer::Done, Some(Item { value, cas: None, expires: item.expires }))
        }
        (Ask::Delete, Some(_)) | (Ask::Flush, _) => (Answer::Done, None),
        (Ask::Touch, Some(item)) => {
            (Answer::Done, Some(Item { expires: expiry(record), ..item.clone() }))
        }
        (Ask::Count(delta), Some(item)) => match number(&item.value) {
            None => refused(Answer::NotNumber),
            Some(count) => {
                let count = count.wrapping_add(*delta);
                let value: Bytes = count.to_string().into_bytes().into();
                let item = Item { value, cas: None, expires: item.expires };
                (Answer::Number(count), Some(item))
            }
        },
    }
}

/// Returns the times between which an item expires that the request has stored. Both servers and the frontend count
/// whole seconds.
fn expiry(record: &Record) -> Option<(u64, u64)> {
    let life_ms = u64::from(record.exptime_s) * 1_000;
    (life_ms > 0).then(|| {
        let latest = record.returned.map_or(u64::MAX, |at| at.at_ms + life_ms + CLOCK_MS);
        ((record.invoked.at_ms + life_ms).saturating_sub(CLOCK_MS), latest)
    })
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.trim_ascii_end()).ok()?.parse().ok()
}

/// How far an item's life may be from the one that was asked for (ms).
const CLOCK_MS: u64 = 1_100;
