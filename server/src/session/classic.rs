//! The text commands on items.

use protocol::command::{Arithmetic, Get, Store, StoreVerb};
use protocol::reply::{self, Reply};
use protocol::{Meta, MetaFlags, MetaKey, refusal};

use super::{Issued, OUT_BYTES_MAX, Session, edit};
use crate::backend::{Count, GetIssue, Item, Outcome, Written};
use crate::counters::Commands;
use crate::values::{Body, Logical};

impl Session {
    pub(super) fn issue_get<'a>(&self, get: Get<'a>) -> Issued<'a> {
        Issued::Get(get, self.context.backend.get(&get))
    }

    pub(super) async fn issue_store(&self, store: &Store<'_>, value: Body<'_>) -> Issued<'static> {
        self.context.counters.commands.cmd_set.up();
        let stored = self.context.values.pack(value, None).await;
        let issue = self.context.backend.store(store, stored);
        Issued::Store { issue, is_cas: store.verb == StoreVerb::Cas, noreply: store.noreply }
    }

    pub(super) async fn settle(&mut self, issued: Issued<'_>) {
        match issued {
            Issued::Get(get, issue) => self.reply_get(&get, issue).await,
            Issued::MetaGet(meta, issue) => self.reply_meta_get(&meta, issue).await,
            Issued::Store { issue, is_cas, noreply } => {
                let outcome = issue.written().await;
                if is_cas {
                    count_cas(&self.context.counters.commands, &outcome);
                }
                self.reply_written(outcome, noreply);
            }
            Issued::Delete { issue, noreply } => {
                let outcome = issue.was_there().await;
                let commands = &self.context.counters.commands;
                count_hit(&outcome, &commands.delete_hits, &commands.delete_misses);
                self.reply_found(outcome, Reply::Deleted, noreply);
            }
            Issued::Touch { issue, noreply } => {
                let outcome = issue.was_there().await;
                let commands = &self.context.counters.commands;
                commands.cmd_touch.up();
                count_hit(&outcome, &commands.touch_hits, &commands.touch_misses);
                self.reply_found(outcome, Reply::Touched, noreply);
            }
        }
    }

    /// A storage command that nothing may overtake.
    pub(super) async fn store(&mut self, store: &Store<'_>, value: Body<'_>) {
        if edit::needs_old_value(store.verb) {
            self.context.counters.commands.cmd_set.up();
            let key = MetaKey::from(store.key);
            let outcome = self.extend(&key, store.verb, None, value.as_slice()).await;
            return self.reply_written(outcome, store.noreply);
        }
        let issued = self.issue_store(store, value).await;
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

    async fn reply_get(&mut self, get: &Get<'_>, issue: GetIssue) {
        match self.reply_items(get, issue).await {
            Ok(()) => self.line(Reply::End),
            Err(failure) => self.fail(failure, false),
        }
    }

    /// A get of many keys: some at a time, and what is found is written before the next are asked for.
    pub(super) async fn get_many(&mut self, get: Get<'_>) {
        let mut keys = get.keys;
        loop {
            let (some, rest) = keys.split_at(KEYS_AT_ONCE);
            let part = Get { keys: some, ..get };
            let issue = self.context.backend.get(&part);
            if let Err(failure) = self.reply_items(&part, issue).await {
                return self.fail(failure, false);
            }
            if self.closing {
                return;
            }
            // So many keys are as long a turn as so many commands.
            tokio::task::yield_now().await;
            match rest {
                Some(rest) => keys = rest,
                None => return self.line(Reply::End),
            }
        }
    }

    async fn reply_items(&mut self, get: &Get<'_>, issue: GetIssue) -> Outcome<()> {
        let items = match issue {
            GetIssue::Ready(items) => items,
            GetIssue::Sent(sent) => sent.items(get).await?,
        };
        for (key, item) in get.keys.zip(items) {
            let found = match item {
                Some(item) => self.reply_item(&key, item, get.with_cas).await,
                None => false,
            };
            self.count_get(found, get.touch_exptime_s.is_some());
            if self.gathered_bytes() >= OUT_BYTES_MAX && self.flush().await.is_err() {
                self.closing = true;
                self.out.clear();
                break;
            }
        }
        Ok(())
    }

    /// Writes an item; false if its value cannot be served.
    async fn reply_item(&mut self, key: &[u8], item: Item, with_cas: bool) -> bool {
        let Logical::Value(value) = self.context.values.unpack(item.value, None).await else {
            return false;
        };
        let cas = with_cas.then_some(item.cas);
        reply::value_header(self.out.text(), key, item.client_flags, value.len(), cas);
        self.value(value);
        true
    }

    fn reply_written(&mut self, outcome: Outcome<Written>, noreply: bool) {
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

    fn reply_found(&mut self, outcome: Outcome<bool>, found: Reply, noreply: bool) {
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

/// Keys of one get asked for at once: what they find is held together.
pub(super) const KEYS_AT_ONCE: usize = 64;

fn count_hit(
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
