//! The text commands on items.

use protocol::command::{Arithmetic, Get, Store, StoreVerb};
use protocol::reply::{self, Reply};
use protocol::{Key, Meta, MetaFlags, MetaKey, refusal};

use smallvec::SmallVec;

use super::budget::charged;
use super::connection::OUT_BYTES_MAX;
use super::pipeline::Issued;
use super::{Session, edit};
use crate::backend::{Count, Failure, GetIssue, Item, Items, Local, NoRoom, Outcome, Written};
use crate::budget::Permit;
use crate::counters::Commands;
use crate::long_keys::LONG_BYTES;
use crate::upstream::Traffic;
use crate::values::{Body, Logical};

impl Session {
    pub(super) fn issue_get<'a>(&self, get: Get<'a>, traffic: Traffic) -> Issued<'a> {
        Issued::Get(get, self.context.backend.get(&get, traffic, SmallVec::new()))
    }

    pub(super) async fn issue_store<'k>(
        &self,
        store: &Store<'k>,
        value: Body<'_>,
        traffic: Traffic,
    ) -> Issued<'k> {
        self.context.counters.commands.cmd_set.up();
        let stored = self.context.values.pack(value, None).await;
        self.note_length(&store.key, stored.as_slice().len());
        let issue = self.context.backend.store(store, stored, traffic);
        let added = (store.verb == StoreVerb::Add).then_some(store.key);
        let (is_cas, noreply) = (store.verb == StoreVerb::Cas, store.noreply);
        Issued::Store { issue, is_cas, noreply, added }
    }

    /// Serves a storage command that nothing may overtake.
    pub(super) async fn store(&mut self, store: &Store<'_>, value: Body<'_>) {
        if edit::needs_old_value(store.verb) {
            self.context.counters.commands.cmd_set.up();
            let key = MetaKey::from(store.key);
            let outcome = self.extend(&key, store.verb, None, value.as_slice()).await;
            return self.reply_written(outcome, store.noreply);
        }
        let traffic = self.traffic_alone(0, value.as_slice().len());
        let issued = self.issue_store(store, value, traffic).await;
        self.settle(issued).await;
    }

    pub(super) async fn arithmetic(&mut self, arithmetic: &Arithmetic<'_>) {
        let outcome = match self.context.backend.count(arithmetic).await {
            Ok(Count::NonNumeric) => {
                let key = MetaKey::from(arithmetic.key);
                let Arithmetic { direction, delta, .. } = *arithmetic;
                self.count_logical(&key, direction, delta, None, None).await
            }
            other => other,
        };
        self.count_arithmetic(arithmetic.direction, &outcome);
        match outcome {
            Err(failure) => self.fail(failure, arithmetic.noreply),
            Ok(_) if arithmetic.noreply => {}
            Ok(Count::NonNumeric) => self.out.text().extend_from_slice(refusal::NON_NUMERIC),
            Ok(Count::Done { number, .. }) => reply::number(self.out.text(), number),
            Ok(_) => self.line(Reply::NotFound),
        }
    }

    pub(super) async fn unlink(&self, key: &[u8]) {
        if let Ok(key) = MetaKey::new(key) {
            let meta = Meta { key, flags: MetaFlags::default() };
            let _ = self.context.backend.meta_delete(&meta).meta_outcome().await;
        }
    }

    pub(super) fn line(&mut self, reply: Reply) {
        self.out.text().extend_from_slice(reply.line());
    }

    pub(super) async fn reply_get(&mut self, get: &Get<'_>, issue: GetIssue) {
        match self.reply_items(get, issue).await {
            Ok(()) => self.line(Reply::End),
            Err(failure) => self.fail(failure, false),
        }
    }

    /// Serves a get of many keys. It requests some keys at a time, and writes what is found before it requests the
    /// next.
    pub(super) async fn get_many(&mut self, get: Get<'_>) {
        let mut keys = get.keys;
        loop {
            let (some, rest) = keys.split_at(self.keys_at_once(keys));
            let part = Get { keys: some, ..get };
            let long_bytes = self.context.long_bytes(some.map(Key::bytes));
            let traffic = self.traffic_alone(some.count(), long_bytes);
            let issue = self.context.backend.get(&part, traffic, SmallVec::new());
            if let Err(failure) = self.reply_items(&part, issue).await {
                return self.fail(failure, false);
            }
            if self.closing {
                return;
            }
            // This many keys take as long a turn as this many commands.
            tokio::task::yield_now().await;
            match rest {
                Some(rest) => keys = rest,
                None => return self.line(Reply::End),
            }
        }
    }

    async fn reply_items(&mut self, get: &Get<'_>, issue: GetIssue) -> Outcome<()> {
        let mut source = match issue {
            GetIssue::Here(local) => Source::Store(local),
            GetIssue::Sent(sent) => match sent.items(get).await {
                Ok(items) => self.source(get, items),
                Err(Failure::NoRoom(no_room)) => {
                    match Box::pin(self.source_without_room(get, no_room)).await? {
                        Some(source) => source,
                        None => return Ok(()),
                    }
                }
                Err(failure) => return Err(failure),
            },
        };
        for key in get.keys {
            let mut item = source.next(get, &key);
            let mut permit = None;
            if let Some(bytes) = item.as_ref().and_then(|item| self.charged_bytes(&item.value)) {
                permit = match &source {
                    Source::Items(_) => self.charge_more(bytes).await?,
                    Source::Store(local) => {
                        // If the item were evicted meanwhile, no budget would count its memory.
                        drop(item);
                        let permit = self.charge_reply(bytes).await?;
                        item = local.get(get, &key);
                        permit
                    }
                };
            }
            let found = match item {
                Some(item) => self.reply_item(&key, item, permit, get.with_cas).await,
                None => false,
            };
            self.count_get(found, get.touch_exptime_s.is_some());
            if self.unwritten_bytes() >= OUT_BYTES_MAX && !self.flush_or_close().await {
                break;
            }
        }
        Ok(())
    }

    /// Returns the items of a get that servers answered.
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

    /// Returns the items of a get for which there was no memory; none if they have been answered one after the other.
    #[cold]
    async fn source_without_room(
        &mut self,
        get: &Get<'_>,
        no_room: NoRoom,
    ) -> Outcome<Option<Source>> {
        if let (Some(key), true) = (get.keys.clone().next(), get.keys.is_one()) {
            self.note_length(&key, no_room.wanted.iter().sum::<u64>() as usize);
            let items = self.items_again(get, no_room).await?;
            return Ok(Some(self.source(get, items)));
        }
        let bytes = no_room.wanted.iter().sum::<u64>() as usize;
        self.learn(get.keys.count(), bytes);
        self.reply_each(get).await?;
        Ok(None)
    }

    /// Answers the items of a get one after the other, because there was no memory for all of them together.
    async fn reply_each(&mut self, get: &Get<'_>) -> Outcome<()> {
        let mut keys = get.keys;
        loop {
            let (one, rest) = keys.split_at(1);
            let part = Get { keys: one, ..*get };
            let traffic = self.traffic_alone(1, LONG_BYTES);
            let issue = self.context.backend.get(&part, traffic, SmallVec::new());
            self.reply_items(&part, issue).await?;
            match rest {
                Some(rest) if !self.closing => keys = rest,
                _ => return Ok(()),
            }
        }
    }

    /// Takes memory for the items of a get that had none, and requests them again.
    async fn items_again(&mut self, get: &Get<'_>, mut no_room: NoRoom) -> Outcome<Items> {
        for _ in 0..TRIES_MAX {
            let bytes = no_room.wanted.iter().sum::<u64>();
            let permits = self.charge_replies(&no_room).await?;
            let traffic = self.traffic_alone(1, bytes as usize);
            let GetIssue::Sent(sent) = self.context.backend.get(get, traffic, permits) else {
                break;
            };
            match sent.items(get).await {
                // A value has grown in the meantime.
                Err(Failure::NoRoom(more)) => no_room = more,
                done => return done,
            }
        }
        Err(Failure::NoRoom(no_room))
    }

    /// Writes what is gathered. Returns false and ends the connection if the client receives nothing any more.
    pub(super) async fn flush_or_close(&mut self) -> bool {
        let is_written = self.flush().await.is_ok();
        if !is_written {
            self.closing = true;
            self.out.clear();
        }
        is_written
    }

    /// Writes an item. Returns false if its value cannot be served.
    async fn reply_item(
        &mut self,
        key: &[u8],
        item: Item,
        permit: Option<Permit>,
        with_cas: bool,
    ) -> bool {
        let value = match self.context.values.unpack(item.value, None).await {
            Logical::Value(value) => value,
            Logical::Unreadable => return false,
            Logical::Damaged => {
                if let Ok(key) = MetaKey::new(key) {
                    self.context.remove_damaged(&key).await;
                }
                return false;
            }
        };
        let cas = with_cas.then_some(item.cas);
        reply::value_header(self.out.text(), key, item.client_flags, value.len(), cas);
        // A long value takes as much of a turn as many commands.
        self.served += value.len() / BYTES_PER_COMMAND;
        self.value(charged(value, permit));
        true
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

    pub(super) fn count_get(&self, found: bool, touched: bool) {
        let commands = &self.context.counters.commands;
        commands.cmd_get.up();
        if found {
            commands.get_hits.up()
        } else {
            commands.get_misses.up()
        };
        if touched {
            commands.cmd_touch.up();
            if found {
                commands.touch_hits.up()
            } else {
                commands.touch_misses.up()
            };
        }
    }
}

/// The source of a get's items, in the order of its keys.
enum Source {
    /// Each is fetched when it is answered, so that no more than one is held.
    Store(Local),
    Items(smallvec::IntoIter<[Option<Item>; 1]>),
}

impl Source {
    fn next(&mut self, get: &Get<'_>, key: &[u8]) -> Option<Item> {
        match self {
            Source::Store(local) => local.get(get, key),
            Source::Items(items) => items.next().flatten(),
        }
    }
}

/// The keys of one get of the embedded store that are served between turns of others.
pub(super) const KEYS_AT_ONCE: usize = 64;

/// The most requests for a value that grows while memory for it is granted.
const TRIES_MAX: usize = 3;

/// The bytes whose move takes about as long as a short command.
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
