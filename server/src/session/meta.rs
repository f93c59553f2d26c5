//! The meta commands on items.

use protocol::command::{MetaArithmetic, MetaSet, StoreVerb};
use protocol::counter::Direction;
use protocol::meta::Meta;
use protocol::reply::{self, MetaOutcome, Reply};
use protocol::{MetaKey, refusal};

use bytes::Bytes;

use super::budget::charged;
use super::pipeline::Issued;
use super::text::count_cas;
use super::{Session, edit};
use crate::backend::{self, Count, Failure, Issue, MetaDebug, MetaItem, NoRoom, Outcome, Written};
use crate::budget::Permit;
use crate::upstream::Traffic;
use crate::values::{Body, Logical};

impl Session {
    pub(super) fn issue_meta_get<'a>(&self, meta: Meta<'a>, traffic: Traffic) -> Issued<'a> {
        let issue = self.ask_meta_get(&meta, traffic, None);
        Issued::MetaGet(meta, issue)
    }

    fn ask_meta_get(
        &self,
        meta: &Meta<'_>,
        traffic: Traffic,
        permit: Option<Permit>,
    ) -> Issue<Option<MetaItem>> {
        // The logical size of a frame is in its header, so `s` needs the value too.
        let with_value = meta.flags.wants_value() || meta.flags.has(b's');
        self.context.backend.meta_get(meta, with_value, traffic, permit)
    }

    /// Takes memory for the item of an mg that had none, and requests the item again. The facts of the first answer
    /// hold.
    #[cold]
    async fn meta_item_again(
        &mut self,
        meta: &Meta<'_>,
        no_room: NoRoom,
    ) -> Outcome<Option<MetaItem>> {
        let bytes = no_room.wanted.iter().sum::<u64>();
        let permit = self.charge_replies(&no_room).await?.pop();
        let traffic = self.traffic_alone(1, bytes as usize);
        let item = self.ask_meta_get(meta, traffic, permit).meta_item().await?;
        Ok(item.map(|MetaItem { facts, value }| {
            let told = no_room.returned.as_ref();
            let facts = match told {
                Some(told) => backend::facts_of_first(told, facts),
                None => facts,
            };
            MetaItem { facts, value }
        }))
    }

    pub(super) async fn reply_meta_get(&mut self, meta: &Meta<'_>, issue: Issue<Option<MetaItem>>) {
        self.context.counters.commands.cmd_meta.up();
        let touched = meta.flags.exptime_s.is_some();
        let item = match issue.meta_item().await {
            Err(Failure::NoRoom(no_room)) => self.meta_item_again(meta, no_room).await,
            item => item,
        };
        let item = match item {
            Err(failure) => return self.fail(failure, false),
            Ok(None) => {
                self.count_get(false, touched);
                return reply::meta_miss(self.out.text(), meta);
            }
            Ok(Some(item)) => item,
        };
        let MetaItem { mut facts, value } = item;
        self.learn(1, value.as_ref().map_or(0, Bytes::len));
        self.note_length(meta.key.bytes(), value.as_ref().map_or(0, Bytes::len));
        if !meta.flags.wants_value() {
            let value = value.unwrap_or_default();
            let Some(value_bytes) = self.context.values.logical_bytes(&value) else {
                if self.context.values.is_damaged(value).await {
                    self.context.remove_damaged(&meta.key).await;
                }
                self.count_get(false, touched);
                return reply::meta_miss(self.out.text(), meta);
            };
            facts.value_bytes = value_bytes;
            self.count_get(true, touched);
            return reply::meta_hit(self.out.text(), meta, &facts);
        }
        let stored = value.unwrap_or_default();
        let permit = match self.charged_bytes(&stored) {
            None => None,
            Some(bytes) => match self.charge_more(bytes).await {
                Ok(permit) => permit,
                Err(failure) => return self.fail(failure, false),
            },
        };
        match self.context.values.unpack(stored, None).await {
            unread @ (Logical::Unreadable | Logical::Damaged) => {
                if matches!(unread, Logical::Damaged) {
                    self.context.remove_damaged(&meta.key).await;
                }
                self.count_get(false, touched);
                reply::meta_miss(self.out.text(), meta);
            }
            Logical::Value(value) => {
                self.count_get(true, touched);
                facts.value_bytes = value.len();
                reply::meta_hit(self.out.text(), meta, &facts);
                self.value(charged(value, permit));
            }
        }
    }

    pub(super) async fn meta_set(&mut self, set: &MetaSet<'_>, value: Body<'_>) {
        let commands = &self.context.counters.commands;
        commands.cmd_meta.up();
        commands.cmd_set.up();
        let outcome = if edit::needs_old_value(set.verb) {
            let compare = set.meta.flags.compare.filter(|cas| *cas != 0);
            self.extend(&set.meta.key, set.verb, compare, value.as_slice()).await
        } else {
            let traffic = self.traffic_alone(0, value.as_slice().len());
            let stored = self.context.values.pack(value, None).await;
            self.note_length(set.meta.key.bytes(), stored.as_slice().len());
            self.context.backend.meta_set(set, stored, traffic).written().await
        };
        if let (Ok(Written::NotStored), StoreVerb::Add) = (&outcome, set.verb) {
            self.context.look_after_add(&set.meta.key).await;
        }
        if set.verb == StoreVerb::Cas {
            count_cas(&self.context.counters.commands, &outcome);
        }
        let (result, cas) = match outcome {
            Err(failure) => return self.fail(failure, false),
            Ok(Written::Stored { cas }) => (MetaOutcome::Done, cas),
            Ok(Written::NotStored) => (MetaOutcome::NotStored, 0),
            Ok(Written::Exists) => (MetaOutcome::Exists, 0),
            Ok(Written::NotFound) => (MetaOutcome::NotFound, 0),
        };
        reply::meta_set(self.out.text(), &set.meta, result, cas);
    }

    pub(super) async fn meta_delete(&mut self, meta: &Meta<'_>) {
        let commands = &self.context.counters.commands;
        commands.cmd_meta.up();
        match self.context.backend.meta_delete(meta).meta_outcome().await {
            Err(failure) => self.fail(failure, false),
            Ok(outcome) => {
                match outcome {
                    MetaOutcome::NotFound => self.context.counters.commands.delete_misses.up(),
                    _ => self.context.counters.commands.delete_hits.up(),
                }
                reply::meta_outcome(self.out.text(), meta, outcome);
            }
        }
    }

    pub(super) async fn meta_arithmetic(&mut self, arithmetic: &MetaArithmetic<'_>) {
        self.context.counters.commands.cmd_meta.up();
        let MetaArithmetic { meta, direction } = arithmetic;
        let outcome = match self.context.backend.meta_count(arithmetic).await {
            Ok(Count::NonNumeric) => {
                let flags = &meta.flags;
                let (delta, compare) = (flags.delta, flags.compare);
                self.count_logical(&meta.key, *direction, delta, compare, flags.exptime_s).await
            }
            other => other,
        };
        self.count_arithmetic(*direction, &outcome);
        let out = self.out.text();
        match outcome {
            Err(failure) => self.fail(failure, false),
            Ok(Count::NonNumeric) => out.extend_from_slice(refusal::NON_NUMERIC),
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
            Ok(Count::Done { .. }) => hits.up(),
            Ok(Count::NotFound) => misses.up(),
            _ => {}
        }
    }
}

/// The slab class of all items, because the embedded store has no slab classes. memcached numbers its classes from 1.
pub(super) const SLAB_CLASS: u32 = 1;
