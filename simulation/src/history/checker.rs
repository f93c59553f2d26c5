//! Searches for an order of each key's requests in which every answer is right. Requests that overlap may be in any
//! order, those of one connection only in the order in which they were sent. A request without an answer may take
//! effect at any time after its beginning, or never.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ahash::RandomState;

use super::state::{State, apply};
use super::{Answer, Ask, History, Record};

/// What a deployment may do that a single server that never fails does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Items may vanish at any time, as where memory is short.
    pub items_may_vanish: bool,
    /// A get may miss an item that is there.
    pub misses_may_lie: bool,
    /// A get may be answered from a later time than one that was sent after it, because its value had to be read again.
    pub reads_may_swap: bool,
    /// An item that cannot be read may be missed and still be there.
    pub unreadable_may_stay: bool,
    /// A CAS number may be that of another item, because a server has started anew.
    pub cas_may_repeat: bool,
    /// A request without an answer takes effect before those that were sent after it on its connection, or never.
    pub requests_stay_in_order: bool,
    /// A server may come back with old items. Values are then only checked to be some that were written.
    pub old_items_may_return: bool,
}

/// A key whose answers fit no order.
#[derive(Debug)]
pub struct Violation {
    /// The key.
    pub key: String,
    /// The answer that fits no order together with those before it.
    pub record: Record,
    /// The requests about the key before it, and those that overlap it.
    pub before: Vec<Record>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "the answers about {} fit no order. They do without the last of these:",
            self.key
        )?;
        let skipped = self.before.len().saturating_sub(SHOWN_MAX);
        if skipped > 0 {
            writeln!(f, "  ({skipped} earlier ones are not shown)")?;
        }
        for record in &self.before[skipped..] {
            writeln!(f, "  {record}")?;
        }
        write!(f, "  {}", self.record)
    }
}

/// Checks a history. Returns the first violations, and the number of keys whose orders were too many to search.
pub fn check(history: &History, rules: Rules) -> (Vec<Violation>, usize) {
    let all: Vec<Cow<'_, Record>> =
        history.records.iter().map(|record| without_lie(record, rules)).collect();
    let mut keys: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in all.iter().map(Cow::as_ref) {
        if let Some(key) = &record.key {
            keys.entry(key).or_default().push(record);
        }
    }
    let flushes: Vec<&Record> =
        all.iter().map(Cow::as_ref).filter(|record| record.ask == Ask::Flush).collect();
    let (mut violations, mut unfinished) = (Vec::new(), 0);
    for (key, mut records) in keys {
        if violations.len() == VIOLATIONS_MAX {
            break;
        }
        let found = if rules.old_items_may_return {
            never_written(&records)
        } else {
            records.extend(&flushes);
            let (searched, compared) = (Cell::new(0), Cell::new(0));
            match (Search { records: &records, history, rules, searched, compared }).run() {
                Ok(wrong) => wrong,
                Err(TooMany) => {
                    unfinished += 1;
                    None
                }
            }
        };
        if let Some(wrong) = found {
            let record = records.remove(wrong).clone();
            let end = record.returned.unwrap_or(record.invoked);
            let is_before = |other: &&&Record| other.invoked < end;
            let before = records.iter().filter(is_before).map(|record| (*record).clone()).collect();
            violations.push(Violation { key: key.to_owned(), record, before });
        }
    }
    (violations, unfinished)
}

/// Returns the record, without its answer if that is a miss in place of a lost answer. What the request would have
/// changed may then change at any time.
fn without_lie<'a>(record: &'a Record, rules: Rules) -> Cow<'a, Record> {
    let is_fetch = matches!(record.ask, Ask::Fetch { .. });
    if rules.misses_may_lie && is_fetch && record.answer == Answer::Miss {
        return Cow::Owned(Record { answer: Answer::Unknown, ..record.clone() });
    }
    Cow::Borrowed(record)
}

/// Returns a hit whose value nobody has written. Counts and appends are not checked.
fn never_written(records: &[&Record]) -> Option<usize> {
    let is_edited =
        records.iter().any(|record| matches!(record.ask, Ask::Append(_) | Ask::Count(_)));
    let was_written = |value: &[u8], reader: &Record| {
        records.iter().any(|record| match &record.ask {
            Ask::Set(written)
            | Ask::Add(written)
            | Ask::Replace(written)
            | Ask::Cas(written, _) => **written == *value && Some(record.invoked) < reader.returned,
            _ => false,
        })
    };
    records.iter().position(|record| match &record.answer {
        Answer::Hit(value, _) => !is_edited && !was_written(value, record),
        // A fetch may make an item, which is empty.
        Answer::Fetched(value, ..) => !value.is_empty() && !was_written(value, record),
        _ => false,
    })
}

/// A state of the key, and the requests that have begun and not taken effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Configuration {
    state: State,
    /// The requests with an answer.
    known: Vec<usize>,
    /// The requests without one.
    unknown: Vec<usize>,
}

struct TooMany;

struct Search<'a> {
    records: &'a [&'a Record],
    history: &'a History,
    rules: Rules,
    /// The configurations that were searched so far.
    searched: Cell<usize>,
    /// The requests in the configurations that were compared and made in the events before.
    compared: Cell<usize>,
}

#[derive(Clone, Copy)]
enum Event {
    Begin(usize),
    End(usize),
    Loss { is_certain: bool },
}

impl Search<'_> {
    /// Returns the index of the first answer that fits no order.
    fn run(&self) -> Result<Option<usize>, TooMany> {
        let start = Configuration { state: None, known: Vec::new(), unknown: Vec::new() };
        let mut configurations = Reached::default();
        configurations.add(start);
        for event in self.events() {
            configurations = match event {
                Event::Begin(index) => self.with(index, configurations),
                Event::Loss { is_certain } => {
                    let mut after = Reached::default();
                    // What was done before the loss may be answered after it.
                    for configuration in self.reachable(configurations)?.into_all() {
                        let lost = Configuration { state: None, ..configuration.clone() };
                        after.add(lost);
                        if !is_certain {
                            after.add(configuration);
                        }
                    }
                    after
                }
                Event::End(index) => {
                    let after = self.after(index, configurations)?;
                    if after.is_empty() {
                        return Ok(Some(index));
                    }
                    after
                }
            };
        }
        Ok(None)
    }

    /// Returns the beginnings and ends of requests, and the losses, in their order.
    fn events(&self) -> Vec<Event> {
        let mut events: Vec<(u64, Event)> = Vec::new();
        for (index, record) in self.records.iter().enumerate() {
            // A read without an answer tells nothing.
            if record.answer == Answer::Unknown && record.ask == Ask::Get {
                continue;
            }
            events.push((record.invoked.order, Event::Begin(index)));
            if let (Some(at), true) = (record.returned, record.answer != Answer::Unknown) {
                events.push((at.order, Event::End(index)));
            }
        }
        for loss in &self.history.losses {
            events.push((loss.at.order, Event::Loss { is_certain: loss.is_certain }));
        }
        events.sort_by_key(|(order, _)| *order);
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// Adds a request that begins. No configuration then stands for another one that it did not stand for before.
    fn with(&self, index: usize, before: Reached) -> Reached {
        let is_unknown = self.records[index].answer == Answer::Unknown;
        let begin = |((state, mut known), mut sets): ((State, Vec<usize>), Vec<Vec<usize>>)| {
            if is_unknown {
                sets.iter_mut().for_each(|unknown| unknown.push(index));
            } else {
                known.push(index);
            }
            ((state, known), sets)
        };
        Reached { all: before.all.into_iter().map(begin).collect(), ..Reached::default() }
    }

    /// Returns the configurations in which the request `index` has taken effect.
    fn after(&self, index: usize, before: Reached) -> Result<Reached, TooMany> {
        let (mut visited, mut done) = (Reached::default(), Reached::default());
        // Those that have used few of the requests without an answer come first, because they stand for the others.
        let mut open: BTreeMap<Reverse<usize>, Vec<Configuration>> = BTreeMap::new();
        let add = |open: &mut BTreeMap<_, Vec<_>>, configuration: Configuration| {
            open.entry(Reverse(configuration.unknown.len())).or_default().push(configuration);
        };
        before.into_all().for_each(|configuration| add(&mut open, configuration));
        while let Some(mut entry) = open.first_entry() {
            let Some(configuration) = entry.get_mut().pop() else {
                entry.remove();
                continue;
            };
            self.count(&visited, &done)?;
            if !configuration.known.contains(&index) {
                done.add(configuration);
                continue;
            }
            if !visited.add(configuration.clone()) {
                continue;
            }
            for next in self.successors(&configuration) {
                add(&mut open, next);
            }
        }
        self.compared.set(self.compared.get() + visited.compared + done.compared);
        Ok(done)
    }

    /// Returns the configurations, and those in which further requests have taken effect.
    fn reachable(&self, from: Reached) -> Result<Reached, TooMany> {
        let mut visited = Reached::default();
        let mut open: Vec<Configuration> = from.into_all().collect();
        while let Some(configuration) = open.pop() {
            self.count(&visited, &Reached::default())?;
            if visited.add(configuration.clone()) {
                open.extend(self.successors(&configuration));
            }
        }
        self.compared.set(self.compared.get() + visited.compared);
        Ok(visited)
    }

    /// Counts a configuration that is searched, and fails if there are too many.
    fn count(&self, visited: &Reached, done: &Reached) -> Result<(), TooMany> {
        self.searched.set(self.searched.get() + 1);
        let compared = self.compared.get() + visited.compared + done.compared;
        let has_too_many = visited.count > CONFIGURATIONS_MAX
            || self.searched.get() > SEARCHED_MAX
            || compared > COMPARED_MAX;
        if has_too_many { Err(TooMany) } else { Ok(()) }
    }

    fn successors(&self, from: &Configuration) -> Vec<Configuration> {
        let mut found = Vec::new();
        for (place, index) in from.known.iter().enumerate() {
            if self.must_wait(*index, &from.known) {
                continue;
            }
            for state in apply(&from.state, self.records[*index], self.rules) {
                let mut next = Configuration { state, ..from.clone() };
                next.known.remove(place);
                self.drop_earlier(*index, &mut next.unknown);
                found.push(next);
            }
        }
        for (place, index) in from.unknown.iter().enumerate() {
            for state in apply(&from.state, self.records[*index], self.rules) {
                // A request that changes nothing may as well not take effect.
                if state != from.state {
                    let mut next = Configuration { state, ..from.clone() };
                    next.unknown.remove(place);
                    self.drop_earlier(*index, &mut next.unknown);
                    found.push(next);
                }
            }
        }
        let requests = found.iter().map(|next| next.known.len() + next.unknown.len());
        self.compared.set(self.compared.get() + requests.sum::<usize>());
        found
    }

    /// Returns whether an earlier request of the same connection has to take effect first.
    fn must_wait(&self, index: usize, known: &[usize]) -> bool {
        known.iter().any(|other| self.is_earlier(*other, index))
    }

    /// Removes the requests without an answer that can no longer take effect: those that were sent on the same
    /// connection before.
    fn drop_earlier(&self, index: usize, unknown: &mut Vec<usize>) {
        if self.rules.requests_stay_in_order {
            unknown.retain(|other| !self.is_earlier(*other, index));
        }
    }

    fn is_earlier(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.records[one], self.records[other]);
        if self.rules.reads_may_swap && one.ask == Ask::Get && other.ask == Ask::Get {
            return false;
        }
        one.pipeline.0 == other.pipeline.0 && one.pipeline.1 < other.pipeline.1
    }
}

/// Configurations. One that has more requests left without an answer stands for those with fewer of them, because these
/// may also never take effect.
#[derive(Default)]
struct Reached {
    all: HashMap<(State, Vec<usize>), Vec<Vec<usize>>, RandomState>,
    count: usize,
    /// The requests in the configurations that were compared.
    compared: usize,
}

impl Reached {
    /// Adds a configuration. Returns false if another one stands for it.
    fn add(&mut self, configuration: Configuration) -> bool {
        let Configuration { state, known, unknown } = configuration;
        let sets = self.all.entry((state, known)).or_default();
        // Requests are in the order of their beginnings in every set.
        let is_within = |part: &[usize], whole: &[usize]| {
            let mut whole = whole.iter();
            part.len() <= whole.len() && part.iter().all(|one| whole.any(|other| other == one))
        };
        self.compared += sets.len() * (1 + unknown.len());
        if sets.iter().any(|other| is_within(&unknown, other)) {
            return false;
        }
        sets.retain(|other| !is_within(other, &unknown));
        sets.push(unknown);
        self.count += 1;
        true
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn into_all(self) -> impl Iterator<Item = Configuration> {
        self.all.into_iter().flat_map(|((state, known), sets)| {
            sets.into_iter().map(move |unknown| Configuration {
                state: state.clone(),
                known: known.clone(),
                unknown,
            })
        })
    }
}

/// The configurations that are searched for one answer.
const CONFIGURATIONS_MAX: usize = 50_000;
/// The configurations that are searched for one key.
const SEARCHED_MAX: usize = 400_000;
/// The requests in the configurations that are compared and made for one key. One takes some nanoseconds.
const COMPARED_MAX: usize = 100_000_000;
/// The violations that are searched for.
const VIOLATIONS_MAX: usize = 3;
/// The requests of a violation that are shown.
const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::super::{Bytes, Loss, Marks, Moment};
    use super::*;

    struct Builder(History);

    impl Builder {
        fn new() -> Self {
            Self(History::default())
        }

        /// Adds a request from one place of the order to another.
        fn add(mut self, (from, to): (u64, u64), ask: Ask, answer: Answer) -> Self {
            let moment = |order| Moment { order, at_ms: order * 10 };
            self.0.begin(Record {
                client: 0,
                key: Some("key".to_owned()),
                ask,
                exptime_s: 0,
                answer,
                invoked: moment(from),
                returned: (to > 0).then(|| moment(to)),
                pipeline: (from, 0),
            });
            self
        }

        fn is_right(&self, rules: Rules) -> bool {
            let (violations, unfinished) = check(&self.0, rules);
            assert_eq!(unfinished, 0);
            violations.is_empty()
        }
    }

    fn value(text: &str) -> Bytes {
        text.as_bytes().into()
    }

    fn hit(text: &str) -> Answer {
        Answer::Hit(value(text), None)
    }

    #[test]
    fn a_read_of_an_overwritten_value_is_a_violation() {
        let begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done).add(
            (3, 4),
            Ask::Set(value("b")),
            Answer::Done,
        );
        assert!(!begun.add((5, 6), Ask::Get, hit("a")).is_right(Rules::default()));
    }

    #[test]
    fn overlapping_requests_may_be_in_any_order() {
        let begun = Builder::new().add((1, 4), Ask::Set(value("a")), Answer::Done).add(
            (2, 3),
            Ask::Set(value("b")),
            Answer::Done,
        );
        assert!(begun.add((5, 6), Ask::Get, hit("a")).is_right(Rules::default()));
    }

    #[test]
    fn a_request_without_an_answer_may_take_effect_late() {
        let begun = Builder::new()
            .add((1, 0), Ask::Set(value("a")), Answer::Unknown)
            .add((2, 3), Ask::Get, Answer::Miss)
            .add((4, 5), Ask::Get, hit("a"));
        assert!(begun.is_right(Rules::default()));
        let again = begun.add((6, 7), Ask::Get, Answer::Miss);
        assert!(!again.is_right(Rules::default()), "it takes effect once");
    }

    #[test]
    fn an_append_that_is_done_twice_is_a_violation() {
        let begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done).add(
            (3, 4),
            Ask::Append(value("b")),
            Answer::Done,
        );
        assert!(!begun.add((5, 6), Ask::Get, hit("abb")).is_right(Rules::default()));
    }

    #[test]
    fn two_cas_with_one_number_are_a_violation() {
        let first = Answer::Hit(value("a"), Some(7));
        let begun = Builder::new()
            .add((1, 2), Ask::Set(value("a")), Answer::Done)
            .add((3, 4), Ask::Get, first)
            .add((5, 6), Ask::Cas(value("b"), 7), Answer::Done);
        assert!(begun.is_right(Rules::default()));
        assert!(
            !begun.add((7, 8), Ask::Cas(value("c"), 7), Answer::Done).is_right(Rules::default())
        );
    }

    #[test]
    fn requests_of_one_connection_keep_their_order() {
        let mut begun = Builder::new()
            .add((1, 9), Ask::Set(value("a")), Answer::Done)
            .add((2, 10), Ask::Set(value("b")), Answer::Done)
            .add((11, 12), Ask::Get, hit("a"));
        assert!(begun.is_right(Rules::default()));
        for (place, record) in begun.0.records.iter_mut().take(2).enumerate() {
            record.pipeline = (100, place as u64);
        }
        assert!(!begun.is_right(Rules::default()));
    }

    #[test]
    fn a_certain_loss_leaves_nothing() {
        let mut begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done);
        begun.0.losses.push(Loss { at: Moment { order: 3, at_ms: 30 }, is_certain: true });
        assert!(!begun.add((4, 5), Ask::Get, hit("a")).is_right(Rules::default()));
    }

    #[test]
    fn an_answer_may_arrive_after_the_loss_of_what_it_tells() {
        let mut begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done);
        begun.0.losses.push(Loss { at: Moment { order: 4, at_ms: 40 }, is_certain: true });
        assert!(begun.add((3, 5), Ask::Get, hit("a")).is_right(Rules::default()));
    }

    #[test]
    fn a_count_that_is_lost_is_a_violation() {
        let begun = Builder::new().add((1, 2), Ask::Set(value("5")), Answer::Done).add(
            (3, 4),
            Ask::Count(2),
            Answer::Number(7),
        );
        assert!(begun.is_right(Rules::default()));
        assert!(!begun.add((5, 6), Ask::Count(1), Answer::Number(6)).is_right(Rules::default()));
    }

    fn fetched(text: &str, marks: &str) -> Answer {
        let has = |mark| marks.contains(mark);
        let marks = Marks { is_won: has('W'), is_stale: has('X'), was_won: has('Z') };
        Answer::Fetched(value(text), 7, marks)
    }

    #[test]
    fn one_client_is_told_to_make_an_item() {
        let ask = Ask::Fetch { vivifies: true, recaches: false };
        let begun = Builder::new().add((1, 2), ask.clone(), fetched("", "W"));
        assert!(begun.is_right(Rules::default()));
        let two = |answer| {
            let begun = Builder::new().add((1, 2), ask.clone(), fetched("", "W"));
            begun.add((3, 4), ask.clone(), answer).is_right(Rules::default())
        };
        assert!(two(fetched("", "Z")));
        assert!(!two(fetched("", "W")));
    }

    #[test]
    fn an_item_is_stale_until_it_is_written() {
        let ask = Ask::Fetch { vivifies: false, recaches: false };
        let right = |answer| {
            let begun = Builder::new()
                .add((1, 2), Ask::Set(value("a")), Answer::Done)
                .add((3, 4), Ask::Invalidate, Answer::Done)
                .add((5, 6), ask.clone(), fetched("a", "WX"))
                .add((7, 8), Ask::Set(value("b")), Answer::Done);
            begun.add((9, 10), ask.clone(), answer).is_right(Rules::default())
        };
        assert!(right(fetched("b", "")));
        assert!(!right(fetched("b", "ZX")));
    }

    #[test]
    fn a_value_that_nobody_wrote_is_a_violation_in_any_case() {
        let rules = Rules { old_items_may_return: true, ..Rules::default() };
        let begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done);
        assert!(!begun.add((3, 4), Ask::Get, hit("b")).is_right(Rules::default()));
        let begun = Builder::new().add((1, 2), Ask::Set(value("a")), Answer::Done);
        assert!(!begun.add((3, 4), Ask::Get, hit("b")).is_right(rules));
    }
}
