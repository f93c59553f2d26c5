//! Serves the meta commands on items.

use protocol::command::{MetaArithmetic, MetaSet, StoreVerb};
use protocol::counter::Direction;
use protocol::meta::Meta;
use protocol::reply::{self, ItemFacts, MetaOutcome, Reply};
use protocol::{MetaKey, refusal};

use bytes::Bytes;

use super::budget::charged;
use super::edit::{Extend, Vivify};
use super::text::count_cas;
use super::watch::StoredBy;
use super::{Session, edit};
use crate::backend::{
    self, Count, Failure, Issue, MetaDebug, MetaItem, Outcome, OverBudget, PlainGet, Written,
};
use crate::budget::Permit;
use crate::upstream::Traffic;
use crate::values::{Body, Logical, Reading};

/// The read of an item in flight: that of a meta get, or one that does not take the right to refill a stale item.
pub(super) enum ItemIssue {
    Meta(Issue<Option<MetaItem>>),
    Plain(PlainGet),
}

impl Session {
    pub(super) fn issue_meta_get(
        &self,
        meta: &Meta<'_>,
        traffic: Traffic,
        permit: Option<Permit>,
    ) -> Issue<Option<MetaItem>> {
        // The flag `s` needs the value too, because the logical size is in the frame's header.
        let with_value = meta.flags.wants_value() || meta.flags.has(b's');
        self.context.backend.meta_get(meta, with_value, traffic, permit)
    }

    /// Repeats an mg that failed for lack of memory, with a permit. Returns the facts of the first answer.
    #[cold]
    async fn meta_item_again(
        &mut self,
        meta: &Meta<'_>,
        is_plain: bool,
        over_budget: OverBudget,
    ) -> Outcome<Option<MetaItem>> {
        let bytes = over_budget.wanted.iter().sum::<u64>();
        let permit = self.charge_replies(&over_budget).await?.pop();
        let traffic = self.traffic_alone(1, bytes as usize);
        let item = match is_plain {
            true => {
                let with_value = meta.flags.wants_value();
                let backend = &self.context.backend;
                backend.plain_meta_get(meta, with_value, traffic, permit).item().await?
            }
            false => self.issue_meta_get(meta, traffic, permit).meta_item().await?,
        };
        Ok(item.map(|MetaItem { facts, value, hot, version }| {
            let returned = over_budget.returned.as_ref();
            let facts = match returned {
                Some(returned) => backend::facts_of_first(returned, facts),
                None => facts,
            };
            MetaItem { facts, value, hot, version }
        }))
    }

    pub(super) async fn reply_meta_get(&mut self, meta: &Meta<'_>, issue: Issue<Option<MetaItem>>) {
        self.context.counters.commands.cmd_meta.up();
        let touched = meta.flags.exptime_s.is_some();
        match self.logical_item(meta, ItemIssue::Meta(issue)).await {
            Err(failure) => self.fail(failure, false),
            Ok(None) => {
                self.note_answer(meta.key.bytes(), None);
                // As in memcached, only an item that is there counts as touched.
                self.count_get(false, false);
                reply::meta_miss(self.out.text(), meta);
            }
            Ok(Some((facts, value))) => {
                self.note_answer(meta.key.bytes(), Some(facts.value_bytes));
                self.count_get(true, touched);
                reply::meta_hit(self.out.text(), meta, &facts);
                if meta.flags.wants_value() {
                    self.value(value);
                }
            }
        }
    }

    /// Returns the facts that a meta get has found and, if it wants the value, the logical value. An item whose value
    /// is unreadable counts as missing.
    pub(super) async fn logical_item(
        &mut self,
        meta: &Meta<'_>,
        issue: ItemIssue,
    ) -> Outcome<Option<(ItemFacts, Bytes)>> {
        let (read, is_plain) = match issue {
            ItemIssue::Meta(issue) => (issue.meta_item().await, false),
            ItemIssue::Plain(plain) => (plain.item().await, true),
        };
        let item = match read {
            Err(Failure::OverBudget(over_budget)) => {
                self.meta_item_again(meta, is_plain, over_budget).await?
            }
            item => item?,
        };
        let Some(MetaItem { mut facts, value, hot, version }) = item else { return Ok(None) };
        self.learn(1, value.as_ref().map_or(0, Bytes::len));
        self.note_length(meta.key.bytes(), value.as_ref().map_or(0, Bytes::len));
        if !meta.flags.wants_value() {
            // A touch asks a server for no value at all.
            let Some(value) = value else { return Ok(Some((facts, Bytes::new()))) };
            let hot_bytes = hot.map(|hot| hot.logical.len());
            let values = &self.context.values;
            let bytes = match hot_bytes {
                None if is_new(&facts, &value) => Some(0),
                None => values.verified_bytes(meta.key.bytes(), &value).await,
                hot_bytes => hot_bytes,
            };
            let Some(value_bytes) = bytes else {
                if self.context.values.is_damaged(meta.key.bytes(), value).await {
                    self.context.remove_damaged(&meta.key).await;
                }
                return Ok(None);
            };
            facts.value_bytes = value_bytes;
            return Ok(Some((facts, Bytes::new())));
        }
        let stored = value.unwrap_or_default();
        if hot.is_none() && is_new(&facts, &stored) {
            return Ok(Some((facts, Bytes::new())));
        }
        let permit = match self.charged_bytes(&stored, hot.as_ref()) {
            None => None,
            Some(bytes) => self.charge_more(bytes).await?,
        };
        let reading = Reading::with_version(meta.key.bytes(), version);
        match self.context.values.read(reading, stored, hot).await {
            Logical::Value(value) => {
                facts.value_bytes = value.len();
                Ok(Some((facts, charged(value, permit))))
            }
            Logical::Unreadable => Ok(None),
            Logical::Damaged => {
                self.context.remove_damaged(&meta.key).await;
                Ok(None)
            }
        }
    }

    pub(super) async fn meta_set(&mut self, set: &MetaSet<'_>, value: Body<'_>) {
        let commands = &self.context.counters.commands;
        commands.cmd_meta.up();
        commands.cmd_set.up();
        self.note_lookup(set.meta.key.bytes());
        let value_bytes = value.as_slice().len();
        let (size, is_sized, left_s);
        let outcome = if edit::needs_old_value(set.verb) {
            let edit = extend_by(set, value.as_slice());
            let extended = self.extend(&edit).await;
            // On a ring, servers before 1.6.20 would not answer the flag. A stored append is our own work.
            let is_stored = matches!(&extended, Ok(extended) if extended.is_stored());
            is_sized = is_stored || !self.context.backend.has_links();
            size = extended.as_ref().map_or(value_bytes, |extended| extended.value_bytes);
            left_s = extended.as_ref().ok().and_then(|extended| extended.left_s);
            extended.map(|extended| extended.written)
        } else {
            let traffic = self.traffic_alone(0, value.as_slice().len());
            let stored = self.context.values.pack(set.meta.key.bytes(), value, None).await;
            self.note_length(set.meta.key.bytes(), stored.as_slice().len());
            let issue = self.context.backend.meta_set(set, stored, traffic);
            let (outcome, is_told) = issue.written_and_sized().await;
            (size, is_sized, left_s) = (value_bytes, is_told, None);
            outcome
        };
        if let (Ok(Written::NotStored), StoreVerb::Add) = (&outcome, set.verb) {
            self.context.examine_after_add(&set.meta.key).await;
        }
        if set.verb == StoreVerb::Cas {
            count_cas(&self.context.counters.commands, &outcome);
        }
        let flags = &set.meta.flags;
        // An append creates an item with this time.
        let vivify_s = flags.vivify_exptime_s.filter(|_| edit::needs_old_value(set.verb));
        let exptime_s = vivify_s.or(flags.exptime_s).unwrap_or(0);
        let key = set.meta.key.bytes();
        let stored = StoredBy { key, verb: set.verb, exptime_s, left_s, value_bytes: size };
        self.note_stored(&stored, &outcome);
        let (result, cas) = match outcome {
            Err(failure) => return self.fail(failure, false),
            Ok(Written::Stored { cas }) => (MetaOutcome::Done, cas),
            Ok(Written::NotStored) => (MetaOutcome::NotStored, 0),
            Ok(Written::Exists) => (MetaOutcome::Exists, 0),
            Ok(Written::NotFound) => (MetaOutcome::NotFound, 0),
        };
        let size = is_sized.then_some(size);
        reply::meta_set(self.out.text(), &set.meta, result, cas, size);
    }

    pub(super) async fn meta_delete(&mut self, meta: &Meta<'_>) {
        let commands = &self.context.counters.commands;
        commands.cmd_meta.up();
        let bytes_before = self.bytes_before(meta.key.bytes());
        match self.context.backend.meta_delete(meta, Traffic::Interactive).meta_outcome().await {
            Err(failure) => self.fail(failure, false),
            Ok(outcome) => {
                match outcome {
                    MetaOutcome::NotFound => self.context.counters.commands.delete_misses.up(),
                    _ => self.context.counters.commands.delete_hits.up(),
                }
                if outcome == MetaOutcome::Done && !meta.flags.has(b'I') {
                    self.note_deleted(meta.key.bytes(), "md", bytes_before);
                }
                reply::meta_outcome(self.out.text(), meta, outcome);
            }
        }
    }

    pub(super) async fn meta_arithmetic(&mut self, arithmetic: &MetaArithmetic<'_>) {
        self.context.counters.commands.cmd_meta.up();
        let MetaArithmetic { meta, direction } = arithmetic;
        let outcome = match self.count_in_store(arithmetic).await {
            Ok(Count::NonNumeric) => {
                let flags = &meta.flags;
                let (delta, compare, given) = (flags.delta, flags.compare, flags.given_cas);
                let exptime_s = flags.exptime_s;
                self.count_logical(&meta.key, *direction, delta, compare, exptime_s, given).await
            }
            other => other,
        };
        self.count_arithmetic(*direction, &outcome);
        if let Ok(Count::Done { number, created: true, .. }) = outcome {
            self.note_created(meta.key.bytes(), number, meta.flags.vivify_exptime_s);
        }
        let out = self.out.text();
        match outcome {
            Err(failure) => self.fail(failure, false),
            Ok(Count::NonNumeric) => {
                out.extend_from_slice(refusal::NON_NUMERIC);
                self.count_refusal(self.command);
            }
            Ok(Count::Done { number, created, facts }) => {
                reply::meta_number(out, meta, number, created, &facts);
            }
            Ok(Count::NotFound) => reply::meta_outcome(out, meta, MetaOutcome::NotFound),
            Ok(Count::NotStored) => reply::meta_outcome(out, meta, MetaOutcome::NotStored),
            Ok(Count::Exists) => reply::meta_outcome(out, meta, MetaOutcome::Exists),
        }
    }

    pub(super) async fn meta_debug(&mut self, key: &MetaKey<'_>) {
        self.context.counters.commands.cmd_meta.up();
        match self.context.backend.meta_debug(key).await {
            Err(failure) => self.fail(failure, false),
            Ok(None) => self.line(Reply::MetaMiss),
            Ok(Some(MetaDebug::Line(line))) => {
                let out = self.out.text();
                out.extend_from_slice(b"ME ");
                out.extend_from_slice(&line);
                out.extend_from_slice(b"\r\n");
            }
            Ok(Some(MetaDebug::Facts { facts, item_bytes })) => {
                reply::meta_debug(self.out.text(), key, &facts, SLAB_CLASS, item_bytes);
            }
        }
    }

    pub(super) fn count_arithmetic(&self, direction: Direction, outcome: &Outcome<Count>) {
        let commands = &self.context.counters.commands;
        let (hits, misses) = match direction {
            Direction::Increment => (&commands.incr_hits, &commands.incr_misses),
            Direction::Decrement => (&commands.decr_hits, &commands.decr_misses),
        };
        match outcome {
            // As in memcached, a number that was created is neither a hit nor a miss.
            Ok(Count::Done { created: true, .. }) => {}
            Ok(Count::Done { .. }) => hits.up(),
            Ok(Count::NotFound) => misses.up(),
            _ => {}
        }
    }
}

/// Returns whether an item is one that a server has made without a value, for the client that is to fill it.
fn is_new(facts: &ItemFacts, stored: &[u8]) -> bool {
    stored.is_empty() && (facts.won || facts.already_won)
}

/// Returns the append or prepend of an ms.
fn extend_by<'a, 'k>(set: &'a MetaSet<'k>, more: &'a [u8]) -> Extend<'a, 'k> {
    let flags = &set.meta.flags;
    let compare = flags.compare.filter(|cas| *cas != 0);
    let client_flags = flags.client_flags;
    let vivify = flags.vivify_exptime_s.map(|exptime_s| Vivify { exptime_s, client_flags });
    let plain = Extend::plain(&set.meta.key, set.verb, compare, more);
    Extend { given_cas: flags.given_cas, vivify, ..plain }
}

/// The slab class that is reported for all items. memcached numbers its classes from 1.
pub(crate) const SLAB_CLASS: u32 = 1;
