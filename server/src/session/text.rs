//! Serves the text commands on items.

use protocol::command::{Arithmetic, Get, Store, StoreVerb};
use protocol::reply::{self, Reply};
use protocol::{Key, Meta, MetaFlags, MetaKey, refusal};

use smallvec::SmallVec;

use super::budget::charged;
use super::connection::OUT_BYTES_MAX;
use super::edit::Extend;
use super::pipeline::Issued;
use super::watch::StoredBy;
use super::{Session, edit};
use crate::backend::{
    Count, Failure, GetIssue, Issue, Item, Items, Local, LocalGet, Outcome, OverBudget, Written,
};
use crate::budget::Permit;
use crate::counters::Commands;
use crate::long_keys::LONG_BYTES;
use crate::upstream::Traffic;
use crate::values::{Body, Logical, Reading};

impl Session {
    pub(super) fn issue_get<'a>(&self, get: Get<'a>, traffic: Traffic) -> Issued<'a> {
        Issued::Get(get, self.context.backend.get(&get, traffic, SmallVec::new()))
    }

    pub(super) async fn issue_store(
        &self,
        store: &Store<'_>,
        value: Body<'_>,
        traffic: Traffic,
    ) -> Issue<Outcome<Written>> {
        self.context.counters.commands.cmd_set.up_unshared();
        self.note_lookup(&store.key);
        let stored = self.context.values.pack(&store.key, value, None).await;
        self.note_length(&store.key, stored.as_slice().len());
        self.context.backend.store(store, stored, traffic)
    }

    /// Writes the answer to a store.
    pub(super) async fn settle_store(&mut self, issue: Issue<Outcome<Written>>, store: &Store<'_>) {
        let outcome = issue.written().await;
        if let (Ok(Written::NotStored), StoreVerb::Add) = (&outcome, store.verb) {
            self.context.examine_after_add(&MetaKey::from(store.key)).await;
        }
        if store.verb == StoreVerb::Cas {
            count_cas(&self.context.counters.commands, &outcome);
        }
        self.note_stored(&store.into(), &outcome);
        self.reply_written(outcome, store.noreply);
    }

    pub(super) fn issue_delete<'a>(
        &self,
        key: Key<'a>,
        noreply: bool,
        traffic: Traffic,
    ) -> Issued<'a> {
        let bytes_before = self.bytes_before(&key);
        Issued::Delete {
            issue: self.context.backend.delete(key, traffic),
            noreply,
            key,
            bytes_before,
        }
    }

    /// Serves a storage command that later commands must wait for.
    pub(super) async fn store(&mut self, store: &Store<'_>, value: Body<'_>) {
        if edit::needs_old_value(store.verb) {
            self.context.counters.commands.cmd_set.up();
            let key = MetaKey::from(store.key);
            self.note_lookup(&store.key);
            let edit = Extend::plain(&key, store.verb, None, value.as_slice());
            let extended = self.extend(&edit).await;
            let stored = StoredBy::from(store).extending(&extended);
            let outcome = extended.map(|extended| extended.written);
            self.note_stored(&stored, &outcome);
            return self.reply_written(outcome, store.noreply);
        }
        let traffic = self.traffic_alone(0, value.as_slice().len());
        let issue = self.issue_store(store, value, traffic).await;
        self.settle_store(issue, store).await;
    }

    pub(super) async fn arithmetic(&mut self, arithmetic: &Arithmetic<'_>) {
        let counted = match self.context.values.seals() {
            true => Ok(Count::NonNumeric),
            false => self.context.backend.count(arithmetic).await,
        };
        let outcome = match counted {
            Ok(Count::NonNumeric) => {
                let key = MetaKey::from(arithmetic.key);
                let Arithmetic { direction, delta, .. } = *arithmetic;
                self.count_logical(&key, direction, delta, None, None, None).await
            }
            other => other,
        };
        self.count_arithmetic(arithmetic.direction, &outcome);
        match outcome {
            Err(failure) => self.fail(failure, arithmetic.noreply),
            Ok(_) if arithmetic.noreply => {}
            Ok(Count::NonNumeric) => {
                self.count_refusal(self.command);
                self.out.text().extend_from_slice(refusal::NON_NUMERIC);
            }
            Ok(Count::Done { number, .. }) => reply::number(self.out.text(), number),
            Ok(_) => self.line(Reply::NotFound),
        }
    }

    /// Removes an item whose new value was refused, because its old value is outdated. If the store does not remove it,
    /// the client gets that failure and not the refusal, which would say that the old value is gone.
    pub(super) async fn unlink(&self, key: MetaKey<'_>) -> Outcome<()> {
        let backend = &self.context.backend;
        match Key::new(key.bytes()) {
            Ok(key) => backend.delete(key, Traffic::Interactive).was_there().await.map(drop),
            Err(_) => {
                let meta = Meta { key, flags: MetaFlags::default() };
                backend.meta_delete(&meta, Traffic::Interactive).meta_outcome().await.map(drop)
            }
        }
    }

    pub(super) fn line(&mut self, reply: Reply) {
        self.out.text().extend_from_slice(reply.line());
    }

    pub(super) async fn reply_get(&mut self, get: &Get<'_>, issue: GetIssue) {
        match self.reply_items(get, &ValueLines { with_cas: get.with_cas }, issue).await {
            Ok(Replied { lost: None, .. }) => self.line(Reply::End),
            Ok(Replied { lost: Some(failure), .. }) | Err(failure) => self.fail(failure, false),
        }
    }

    /// Serves a get of many keys.
    pub(super) async fn get_many(&mut self, get: Get<'_>) {
        match self.reply_many(&get, &ValueLines { with_cas: get.with_cas }).await {
            Err(failure) => self.fail(failure, false),
            Ok(_) if self.closing => {}
            Ok(Replied { lost: Some(failure), .. }) => self.fail(failure, false),
            Ok(Replied { lost: None, .. }) => self.line(Reply::End),
        }
    }

    /// Answers the items of a get of many keys in parts: it writes the values of some keys before it requests more.
    pub(super) async fn reply_many<F: ValueForm>(
        &mut self,
        get: &Get<'_>,
        form: &F,
    ) -> Outcome<Replied> {
        let mut keys = get.keys;
        let mut all = Replied::default();
        loop {
            let (some, rest) = keys.split_at(self.keys_at_once(keys));
            let part = Get { keys: some, ..*get };
            let long_bytes = self.context.long_bytes(some.map(Key::bytes));
            let traffic = self.traffic_alone(some.count(), long_bytes);
            let issue = self.context.backend.get(&part, traffic, SmallVec::new());
            all.add(self.reply_items(&part, form, issue).await)?;
            if self.closing {
                return Ok(all);
            }
            // Each key counts as a command towards the turn.
            tokio::task::yield_now().await;
            match rest {
                Some(rest) => keys = rest,
                None => return Ok(all),
            }
        }
    }

    /// Answers the items of a get in a form. The failure of a server, if some keys could not be answered, is for the
    /// end of the reply, behind the items of the other keys.
    pub(super) async fn reply_items<F: ValueForm>(
        &mut self,
        get: &Get<'_>,
        form: &F,
        issue: GetIssue,
    ) -> Outcome<Replied> {
        let mut lost = None;
        let mut items_found = 0;
        let mut source = match issue {
            GetIssue::Local(local) => Source::Store(local),
            GetIssue::Sent(sent) => match sent.items(get).await {
                Ok(found) => {
                    lost = found.lost;
                    self.source(get, found.items)
                }
                Err(Failure::OverBudget(over_budget)) => {
                    match Box::pin(self.source_over_budget(get, form, over_budget)).await? {
                        Ok(source) => source,
                        Err(replied) => return Ok(replied),
                    }
                }
                Err(failure) => return Err(failure),
            },
        };
        for (index, key) in get.keys.enumerate() {
            let next = self.next_item(&mut source, get, form, &key);
            if lost.as_ref().is_some_and(|lost| lost.keys[index]) {
                continue;
            }
            let found = match next {
                // Watchers of the embedded store were told before the command.
                LocalGet::Answered => Some(0),
                LocalGet::Missing => None,
                LocalGet::Item(item) => self.reply_charged(&source, get, form, &key, item).await?,
            };
            items_found += usize::from(found.is_some());
            self.count_get(found.is_some(), get.touch_exptime_s.is_some());
            self.note_answer(&key, found);
            if self.unwritten_bytes() >= OUT_BYTES_MAX && !self.flush_or_close().await {
                break;
            }
        }
        Ok(Replied { items_found, lost: lost.map(|lost| lost.failure) })
    }

    /// Returns the next item of a get. Short values of the embedded store are answered here, if they have no frame.
    pub(super) fn next_item<F: ValueForm>(
        &mut self,
        source: &mut Source,
        get: &Get<'_>,
        form: &F,
        key: &[u8],
    ) -> LocalGet {
        let local = match source {
            Source::Store(local) => local,
            Source::Items(items) => {
                return items.next().flatten().map_or(LocalGet::Missing, LocalGet::Item);
            }
        };
        let (text, values) = (self.out.text(), &self.context.values);
        local.get_in_place(get, key, |item| {
            let is_plain = |stored: &&[u8]| values.read_in_place(key, stored);
            let Some(value) = item.value.filter(is_plain) else { return false };
            form.header(text, key, item.flags, value.len(), item.cas);
            text.extend_from_slice(value);
            text.extend_from_slice(form.tail());
            true
        })
    }

    /// Charges an item to the budget, if it is long, and writes it. Returns the length of its value (bytes), or none if
    /// it has no readable value.
    pub(super) async fn reply_charged<F: ValueForm>(
        &mut self,
        source: &Source,
        get: &Get<'_>,
        form: &F,
        key: &[u8],
        mut item: Item,
    ) -> Outcome<Option<usize>> {
        let mut permit = None;
        if let Some(bytes) = self.charged_bytes(&item.value, item.hot.as_ref()) {
            permit = match source {
                Source::Items(_) => self.charge_more(bytes).await?,
                Source::Store(local) => {
                    // The item is released meanwhile: after an eviction, its memory would not be counted.
                    drop(item);
                    let permit = self.charge_reply(bytes).await?;
                    match local.get(get, key) {
                        Some(again) => item = again,
                        None => return Ok(None),
                    }
                    permit
                }
            };
        }
        Ok(self.reply_item(key, item, permit, form).await)
    }

    /// Records the answers of servers to a get and returns the source of its items.
    fn source(&mut self, get: &Get<'_>, items: Items) -> Source {
        let bytes = items.iter().flatten().map(|item| item.value.len()).sum();
        self.learn(items.len(), bytes);
        if bytes >= LONG_BYTES || !self.context.long_keys.is_empty() {
            self.note_lengths(get, &items);
        }
        Source::Items(items.into_iter())
    }

    #[cold]
    fn note_lengths(&self, get: &Get<'_>, items: &Items) {
        for (key, item) in get.keys.zip(items) {
            if let Some(item) = item {
                self.note_length(&key, item.value.len());
            }
        }
    }

    /// Repeats a get that failed for lack of memory. Returns an inner error if its items were answered one by one.
    #[cold]
    async fn source_over_budget<F: ValueForm>(
        &mut self,
        get: &Get<'_>,
        form: &F,
        over_budget: OverBudget,
    ) -> Outcome<Result<Source, Replied>> {
        if let (Some(key), true) = (get.keys.clone().next(), get.keys.is_one()) {
            self.note_length(&key, over_budget.wanted.iter().sum::<u64>() as usize);
            let items = self.items_again(get, over_budget).await?;
            return Ok(Ok(self.source(get, items)));
        }
        let bytes = over_budget.wanted.iter().sum::<u64>() as usize;
        self.learn(get.keys.count(), bytes);
        Ok(Err(self.reply_each(get, form).await?))
    }

    /// Answers the items of a get one by one, because there is no memory for all of them together.
    async fn reply_each<F: ValueForm>(&mut self, get: &Get<'_>, form: &F) -> Outcome<Replied> {
        let mut keys = get.keys;
        let mut all = Replied::default();
        loop {
            let (one, rest) = keys.split_at(1);
            let part = Get { keys: one, ..*get };
            let traffic = self.traffic_alone(1, LONG_BYTES);
            let issue = self.context.backend.get(&part, traffic, SmallVec::new());
            all.add(self.reply_items(&part, form, issue).await)?;
            match rest {
                Some(rest) if !self.closing => keys = rest,
                _ => return Ok(all),
            }
        }
    }

    /// Takes permits for the items of a get that failed for lack of memory, and requests them again.
    async fn items_again(&mut self, get: &Get<'_>, mut over_budget: OverBudget) -> Outcome<Items> {
        for _ in 0..TRIES_MAX {
            let bytes = over_budget.wanted.iter().sum::<u64>();
            let permits = self.charge_replies(&over_budget).await?;
            let traffic = self.traffic_alone(1, bytes as usize);
            let GetIssue::Sent(sent) = self.context.backend.get(get, traffic, permits) else {
                break;
            };
            match sent.items(get).await {
                // A value has grown since the first request.
                Err(Failure::OverBudget(more)) => over_budget = more,
                Err(failure) => return Err(failure),
                Ok(found) => return found.all(),
            }
        }
        Err(Failure::OverBudget(over_budget))
    }

    /// Writes an item. Returns the length of its value (bytes), or none if its value is unreadable.
    async fn reply_item<F: ValueForm>(
        &mut self,
        key: &[u8],
        item: Item,
        permit: Option<Permit>,
        form: &F,
    ) -> Option<usize> {
        let reading = Reading::with_version(key, item.version);
        let value = match self.context.values.read(reading, item.value, item.hot).await {
            Logical::Value(value) => value,
            Logical::Unreadable => return None,
            Logical::Damaged => {
                if let Ok(key) = MetaKey::new(key) {
                    self.context.remove_damaged(&key).await;
                }
                return None;
            }
        };
        form.header(self.out.text(), key, item.client_flags, value.len(), item.cas);
        // A long value counts as several commands towards the turn.
        let value_bytes = value.len();
        self.served += value_bytes / BYTES_PER_COMMAND;
        self.out.value(charged(value, permit));
        self.out.text().extend_from_slice(form.tail());
        Some(value_bytes)
    }

    pub(super) fn reply_written(&mut self, outcome: Outcome<Written>, noreply: bool) {
        let reply = match outcome {
            Err(failure) => return self.fail(failure, noreply),
            Ok(Written::Stored { .. }) => Reply::Stored,
            Ok(Written::NotStored) => Reply::NotStored,
            Ok(Written::Exists) => Reply::Exists,
            Ok(Written::NotFound) => Reply::NotFound,
        };
        if !noreply {
            self.line(reply);
        }
    }

    pub(super) fn reply_found(&mut self, outcome: Outcome<bool>, found: Reply, noreply: bool) {
        match outcome {
            Err(failure) => self.fail(failure, noreply),
            Ok(_) if noreply => {}
            Ok(true) => self.line(found),
            Ok(false) => self.line(Reply::NotFound),
        }
    }

    /// Counts a key of a retrieval command. As in memcached, a gat counts as a touch and not as a get.
    pub(super) fn count_get(&self, found: bool, is_gat: bool) {
        let commands = &self.context.counters.commands;
        let (all, hits, misses) = match is_gat {
            true => (&commands.cmd_touch, &commands.touch_hits, &commands.touch_misses),
            false => (&commands.cmd_get, &commands.get_hits, &commands.get_misses),
        };
        all.up_unshared();
        if found {
            hits.up_unshared()
        } else {
            misses.up_unshared()
        };
    }
}

/// What the answer of a get has.
#[derive(Default)]
pub(super) struct Replied {
    pub(super) items_found: usize,
    /// The failure of a server whose keys could not be answered.
    pub(super) lost: Option<Failure>,
}

impl Replied {
    /// Adds the answer of a part of the keys. If its server has failed, the keys of other servers are still answered.
    fn add(&mut self, part: Outcome<Replied>) -> Outcome<()> {
        let lost = match part {
            Ok(Replied { items_found, lost }) => {
                self.items_found += items_found;
                lost
            }
            Err(failure @ Failure::Link(_)) => Some(failure),
            Err(failure) => return Err(failure),
        };
        self.lost = self.lost.take().or(lost);
        Ok(())
    }
}

/// The form in which a protocol answers the items of a get.
pub(super) trait ValueForm {
    /// Appends the bytes in front of a value.
    fn header(&self, out: &mut Vec<u8>, key: &[u8], client_flags: u32, bytes: usize, cas: u64);

    /// Returns the bytes behind a value.
    fn tail(&self) -> &'static [u8];
}

/// The lines of get, gets, gat and gats.
struct ValueLines {
    with_cas: bool,
}

impl ValueForm for ValueLines {
    #[inline]
    fn header(&self, out: &mut Vec<u8>, key: &[u8], client_flags: u32, bytes: usize, cas: u64) {
        reply::value_header(out, key, client_flags, bytes, self.with_cas.then_some(cas));
    }

    #[inline]
    fn tail(&self) -> &'static [u8] {
        b"\r\n"
    }
}

/// The source of a get's items, in the order of its keys.
pub(super) enum Source {
    /// Each item is fetched when it is answered, so that at most one is held.
    Store(Local),
    Items(smallvec::IntoIter<[Option<Item>; 1]>),
}

/// The number of keys of one get that are served in a turn, with the embedded store.
pub(super) const KEYS_AT_ONCE: usize = 64;

/// The maximum number of requests for a value that keeps growing.
const TRIES_MAX: usize = 3;

/// The number of bytes that take about as long to move as a short command takes.
const BYTES_PER_COMMAND: usize = 8 << 10;

pub(super) fn count_hit(
    outcome: &Outcome<bool>,
    hits: &crate::counters::Counter,
    misses: &crate::counters::Counter,
) {
    match outcome {
        Ok(true) => hits.up(),
        Ok(false) => misses.up(),
        Err(_) => {}
    }
}

pub(super) fn count_cas(commands: &Commands, outcome: &Outcome<Written>) {
    match outcome {
        Ok(Written::Stored { .. }) => commands.cas_hits.up(),
        Ok(Written::Exists) => commands.cas_badval.up(),
        Ok(Written::NotFound) => commands.cas_misses.up(),
        _ => {}
    }
}
