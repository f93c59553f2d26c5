//! Converts the answers of a ring's servers to outcomes.

use bytes::Bytes;
use protocol::reply::{ItemFacts, MetaOutcome};
use smallvec::SmallVec;

use super::{Failure, Issue, MetaItem, Outcome, Written};
use crate::upstream::{Answer, LinkError, Returned, Value};

impl<T> Issue<T> {
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self, Issue::Ready(_))
    }
}

impl Issue<Outcome<Written>> {
    /// Returns the outcome, and whether the store answers the flag `s` of an ms.
    pub(crate) async fn written_and_sized(self) -> (Outcome<Written>, bool) {
        match self {
            Issue::Ready(outcome) => (outcome, true),
            Issue::Sent(issued) => {
                let answer = issued.await;
                let is_sized = match &answer {
                    Ok(Answer::Meta { returned, .. }) => returned.has_size,
                    _ => false,
                };
                (written(answer), is_sized)
            }
        }
    }

    pub(crate) async fn written(self) -> Outcome<Written> {
        match self {
            Issue::Ready(outcome) => outcome,
            Issue::Sent(issued) => written(issued.await),
        }
    }
}

impl Issue<Outcome<bool>> {
    pub(crate) async fn was_there(self) -> Outcome<bool> {
        match self {
            Issue::Ready(outcome) => outcome,
            Issue::Sent(issued) => match issued.await.map_err(Failure::Link)? {
                Answer::Done => Ok(true),
                Answer::NotFound => Ok(false),
                other => Err(unexpected(other)),
            },
        }
    }
}

impl Issue<Option<MetaItem>> {
    pub(crate) async fn meta_item(self) -> Outcome<Option<MetaItem>> {
        let issued = match self {
            Issue::Ready(item) => return Ok(item),
            Issue::Sent(issued) => issued,
        };
        let may_miss = issued.may_miss;
        let answer = match issued.await {
            Ok(answer) => answer,
            Err(error) if may_miss => {
                error.count_misses(1);
                return Ok(None);
            }
            Err(error) => return Err(Failure::Link(error)),
        };
        match answer {
            Answer::MetaMiss => Ok(None),
            Answer::Meta { returned, value, .. } => {
                let facts = facts(&returned, value.as_ref().map_or(0, Bytes::len));
                Ok(Some(MetaItem { facts, value, hot: None, version: None }))
            }
            other => Err(unexpected(other)),
        }
    }
}

/// Returns an item's facts from two requests, of which the second one read the value. What the first request changed
/// comes from `first` if both found the same version of the item.
pub(crate) fn facts_of_first(first: &Returned, facts: ItemFacts) -> ItemFacts {
    if first.cas != facts.cas {
        return facts;
    }
    // The first request took the right to refill the item, so that the second one finds it taken.
    let (won, already_won) = match first.won {
        true => (true, first.already_won),
        false => (facts.won, facts.already_won),
    };
    ItemFacts { won, already_won, fetched: first.fetched, idle_s: first.idle_s, ..facts }
}

/// Converts the return flags of a meta reply to facts.
fn facts(returned: &Returned, value_bytes: usize) -> ItemFacts {
    ItemFacts {
        value_bytes,
        cas: returned.cas,
        client_flags: returned.client_flags,
        ttl_s: returned.ttl_s,
        idle_s: returned.idle_s,
        fetched: returned.fetched,
        binary_key: returned.binary_key,
        won: returned.won,
        stale: returned.stale,
        already_won: returned.already_won,
    }
}

impl Issue<Outcome<MetaOutcome>> {
    pub(crate) async fn meta_outcome(self) -> Outcome<MetaOutcome> {
        match self {
            Issue::Ready(outcome) => outcome,
            Issue::Sent(issued) => match issued.await.map_err(Failure::Link)? {
                Answer::Meta { outcome, .. } => Ok(outcome),
                other => Err(unexpected(other)),
            },
        }
    }
}

/// Returns the bytes of the budget that an answer with `values` needs.
pub(super) fn permit_bytes(values: &[Value]) -> u64 {
    values.iter().map(|value| value.value.len() as u64 + 2).sum()
}

pub(super) fn written(answer: Result<Answer, LinkError>) -> Outcome<Written> {
    match answer.map_err(Failure::Link)? {
        Answer::Stored => Ok(Written::Stored { cas: 0 }),
        Answer::NotStored => Ok(Written::NotStored),
        Answer::Exists => Ok(Written::Exists),
        Answer::NotFound => Ok(Written::NotFound),
        Answer::Meta { outcome, returned, .. } => Ok(match outcome {
            MetaOutcome::Done => Written::Stored { cas: returned.cas },
            MetaOutcome::NotStored => Written::NotStored,
            MetaOutcome::Exists => Written::Exists,
            MetaOutcome::NotFound => Written::NotFound,
        }),
        other => Err(unexpected(other)),
    }
}

/// The requests whose answers did not fit into the budget.
#[derive(Debug)]
pub(crate) struct OverBudget {
    /// The bytes that each request needs for its answer.
    pub(crate) wanted: SmallVec<[u64; 1]>,
    /// The return flags of a meta command, which a second request may change.
    pub(crate) returned: Option<Returned>,
}

impl OverBudget {
    /// Returns the version of the item if reading it took the right to refill it.
    pub(crate) fn right(&self) -> Option<u64> {
        self.returned.filter(|returned| returned.won).map(|returned| returned.cas)
    }
}

/// Converts an unexpected answer to a failure: an error line is passed on, others are server errors.
pub(super) fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Error(line) => Failure::Line(line),
        Answer::OverBudget { bytes, returned } => {
            Failure::OverBudget(OverBudget { wanted: SmallVec::from_elem(bytes, 1), returned })
        }
        _ => Failure::line(b"SERVER_ERROR the memcached server answered another question"),
    }
}
