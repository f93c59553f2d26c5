//! The state of one key, and what each request does to it.

use super::{Answer, Ask, Bytes, Marks, Record, Rules};

/// The item of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) value: Bytes,
    /// The CAS number, once an answer has told it.
    pub(super) cas: Option<u64>,
    /// The times between which the item expires (ms), if it does.
    pub(super) expires: Option<(u64, u64)>,
    /// True from an invalidation to the next write.
    pub(super) is_stale: bool,
    /// True from the time when a client is told to write the item anew to the next write.
    pub(super) is_won: bool,
}

impl Item {
    fn new(value: Bytes, expires: Option<(u64, u64)>) -> Self {
        Self { value, cas: None, expires, is_stale: false, is_won: false }
    }
}

pub(super) type State = Option<Item>;

/// Returns the states that are possible when the request takes effect: the item may have expired or been lost by then.
fn seen(state: &State, record: &Record, rules: Rules) -> Vec<State> {
    let Some(item) = state else { return vec![None] };
    let returned_ms = record.settled_ms().unwrap_or(u64::MAX);
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
    // A miss that tells nothing about the item. A value that cannot be read is a miss, too, also for a fetch that makes
    // what is missing.
    let is_miss = matches!(record.answer, Answer::Miss | Answer::NotStored);
    let is_fetch = matches!(record.ask, Ask::Fetch { .. });
    let is_read = is_fetch || record.ask == Ask::Get;
    let is_edit = matches!(record.ask, Ask::Append(_) | Ask::Count(_));
    let may_lie = rules.misses_may_lie && is_read
        || rules.unreadable_may_stay && (is_read || is_edit)
        || rules.items_may_vanish && is_fetch;
    if is_miss && may_lie {
        if !after.contains(state) {
            after.push(state.clone());
        }
        if is_fetch && !after.contains(&None) {
            after.push(None);
        }
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
        // The expected number is zero where it is not known.
        (Answer::Fetched(value, cas, marks), Answer::Fetched(expected, known, expected_marks)) => {
            value == expected && (*known == 0 || known == cas) && marks == expected_marks
        }
        (answer, expected) => answer == expected,
    };
    let mut next = is_right.then_some(next)?;
    if let (Answer::Hit(_, Some(cas)) | Answer::Fetched(_, cas, _), Some(item)) =
        (&record.answer, &mut next)
    {
        item.cas = Some(*cas);
    }
    Some(next)
}

/// Returns the answer and the state that the request should lead to.
fn outcome(before: &State, record: &Record, rules: Rules) -> (Answer, State) {
    let stored = |value: &Bytes| (Answer::Done, Some(Item::new(value.clone(), expiry(record))));
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
        (Ask::Cas(..) | Ask::Delete | Ask::Touch | Ask::Count(_) | Ask::Invalidate, None) => {
            refused(Answer::Miss)
        }
        (Ask::Fetch { vivifies, recaches }, before) => {
            fetch(before.as_ref(), *vivifies, *recaches, record)
        }
        (Ask::Invalidate, Some(item)) => {
            let expires = expiry(record);
            let stale = Item { cas: None, is_stale: true, is_won: false, expires, ..item.clone() };
            (Answer::Done, Some(stale))
        }
        (Ask::Cas(value, cas), Some(item)) => match item.cas {
            Some(known) if known == *cas => stored(value),
            // A server that starts anew may give a number again.
            None if rules.cas_may_repeat && record.answer == Answer::Done => stored(value),
            _ => refused(Answer::Exists),
        },
        (Ask::Append(tail), Some(item)) => {
            let value = Bytes::from([&item.value[..], &tail[..]].concat());
            (Answer::Done, Some(Item::new(value, item.expires)))
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
                (Answer::Number(count), Some(Item::new(value, item.expires)))
            }
        },
    }
}

/// Returns the answer of a fetch, and the state after it. At most one client is told to write an item anew.
fn fetch(
    before: Option<&Item>,
    vivifies: bool,
    recaches: bool,
    record: &Record,
) -> (Answer, State) {
    let Some(item) = before else {
        if !vivifies {
            return (Answer::Miss, None);
        }
        let made = Item { is_won: true, ..Item::new(Bytes::from(Vec::new()), expiry(record)) };
        let marks = Marks { is_won: true, ..Marks::default() };
        return (Answer::Fetched(made.value.clone(), 0, marks), Some(made));
    };
    let is_due = item.is_stale || recaches && item.expires.is_some();
    let is_won = is_due && !item.is_won;
    let marks = Marks { is_won, is_stale: item.is_stale, was_won: item.is_won };
    let answer = Answer::Fetched(item.value.clone(), item.cas.unwrap_or(0), marks);
    (answer, Some(Item { is_won: item.is_won || is_won, ..item.clone() }))
}

/// Returns the times between which an item expires that the request has stored. Both servers and the frontend count
/// whole seconds.
fn expiry(record: &Record) -> Option<(u64, u64)> {
    let life_ms = u64::from(record.exptime_s) * 1_000;
    (life_ms > 0).then(|| {
        let latest = record.settled_ms().map_or(u64::MAX, |at_ms| at_ms + life_ms + CLOCK_MS);
        ((record.invoked.at_ms + life_ms).saturating_sub(CLOCK_MS), latest)
    })
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.trim_ascii_end()).ok()?.parse().ok()
}

/// How far an item's life may be from the one that was asked for (ms).
const CLOCK_MS: u64 = 1_100;
