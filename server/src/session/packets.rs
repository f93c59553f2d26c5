//! Serves the packets of the binary protocol, and the calls that `calls` turns into their commands, with the same keys,
//! values, order, limits and counters as text commands. A packet becomes the text or meta command that says the same,
//! which a memcached server can execute atomically. Only the answers are different. A get of a key that no line can
//! hold is a meta get, as are all touches, because their answer has the item's flags.

use std::collections::VecDeque;
use std::time::Instant;

use device::Buffer;
use protocol::binary::reply::Hit;
use protocol::binary::{self, Command, Packet, Parse, Refusal, Status};
use protocol::command::{Get, Keys, MetaArithmetic, MetaSet, StoreVerb};
use protocol::meta::Meta;
use protocol::reply::MetaOutcome;
use protocol::{Key, MetaFlags, MetaKey};
use smallvec::SmallVec;
use units::host_ms;

use super::dispatch::{Step, Wire};
use super::edit::Extend;
use super::guard_packets::Traits;
use super::info::VERSION;
use super::meta::ItemIssue;
use super::order::Effect;
use super::pipeline::{Issued, Load, Pending};
use super::reply_to::ReplyTo;
use super::text::{Replied, Source, ValueForm, count_cas};
use super::watch::StoredBy;
use super::{Session, edit};
use crate::backend::{
    Backend, Count, Failure, GetIssue, Issue, LocalGet, Outcome, PlainGet, Written,
};
use crate::counters::CommandKind;
use crate::errors::FailedCommand;
use crate::upstream::Traffic;
use crate::values::Body;

/// The binary protocol.
pub(super) struct Packets;

impl Wire for Packets {
    async fn serve_one<'a>(
        session: &mut Session,
        input: &'a [u8],
        pending: &mut VecDeque<Pending<'a>>,
    ) -> Step {
        session.yield_periodically().await;
        let (Packet { head, command }, consumed) =
            match binary::parse(input, &session.context.limits) {
                Parse::Incomplete => return Step::Incomplete,
                Parse::Refused { refusal, consumed } => {
                    let to = ReplyTo::Packet(refusal.head);
                    let refusal = session.guard_refusal(refusal, pending).await;
                    return session.refuse_packet(to, &refusal, input, consumed, pending).await;
                }
                Parse::Packet { packet, consumed } => (packet, consumed),
            };
        let to = ReplyTo::Packet(head);
        let value_bytes = command.value_bytes();
        if let Some(refusal) = session.refusal_of(&Packet { head, command }, pending).await {
            return session.refuse_packet(to, &refusal, input, consumed, pending).await;
        }
        let Some(value_bytes) = value_bytes else {
            session.serve_packet(to, command, pending).await;
            return Step::Consumed(consumed);
        };
        match input.get(consumed..consumed + value_bytes) {
            None => Step::NeedsBody { line_bytes: consumed, body_bytes: value_bytes },
            Some(value) => {
                session.serve_with_value(to, command, Body::Slice(value), pending).await;
                Step::Consumed(consumed + value_bytes)
            }
        }
    }

    async fn serve_read(session: &mut Session, input: &[u8], value: Option<Buffer>) {
        let limits = session.context.limits;
        let Parse::Packet { packet, .. } = binary::parse(input, &limits) else { return };
        let Packet { head, command } = packet;
        let to = ReplyTo::Packet(head);
        // The value may have taken its time.
        if let Some(late) = session.refusal_of_late(&packet) {
            session.count_refusal(Traits::new(&command).failed);
            return to.refused(session.out.text(), late.status);
        }
        let mut pending = VecDeque::new();
        match value {
            Some(value) => {
                session.serve_with_value(to, command, Body::Pooled(value), &mut pending).await;
                session.settle_all(&mut pending).await;
            }
            None => {
                let unlink = match &command {
                    Command::Store(store) => Some(store),
                    _ => None,
                };
                let is_replaced = |store: &&binary::Store<'_>| {
                    matches!(store.verb, StoreVerb::Set | StoreVerb::Cas)
                };
                let unlink = unlink.filter(is_replaced).map(|store| store.key);
                session.refuse_value(to, Traits::new(&command).failed, unlink).await;
            }
        }
    }
}

/// A request that was issued for a packet and is not yet answered.
pub(super) enum PacketIssue<'a> {
    Get {
        get: Get<'a>,
        with_key: bool,
        issue: GetIssue,
    },
    /// A touch, or a get of a key that no line can hold.
    Item {
        meta: Meta<'a>,
        with_key: bool,
        issue: PlainGet,
    },
    Store {
        stored: StoredBy<'a>,
        issue: Issue<Outcome<Written>>,
    },
    Delete {
        key: &'a [u8],
        /// The length that the value had, if watchers want to know it.
        bytes_before: Option<usize>,
        issue: Issue<Outcome<MetaOutcome>>,
    },
}

impl PacketIssue<'_> {
    pub(super) const fn is_ready(&self) -> bool {
        match self {
            PacketIssue::Get { issue, .. } => matches!(issue, GetIssue::Local(_)),
            PacketIssue::Item { issue, .. } => matches!(issue, PlainGet::Ready(_)),
            PacketIssue::Store { issue, .. } => matches!(issue, Issue::Ready(_)),
            PacketIssue::Delete { issue, .. } => matches!(issue, Issue::Ready(_)),
        }
    }

    pub(super) const fn command(&self) -> FailedCommand {
        match self {
            PacketIssue::Get { get, .. } if get.touch_exptime_s.is_some() => FailedCommand::Gat,
            PacketIssue::Get { .. } => FailedCommand::Get,
            PacketIssue::Item { meta, .. } => {
                match (meta.flags.wants_value(), meta.flags.exptime_s) {
                    (false, _) => FailedCommand::Touch,
                    (true, Some(_)) => FailedCommand::Gat,
                    (true, None) => FailedCommand::Get,
                }
            }
            PacketIssue::Store { .. } => FailedCommand::Set,
            PacketIssue::Delete { .. } => FailedCommand::Delete,
        }
    }

    pub(super) const fn kind(&self) -> CommandKind {
        match self {
            PacketIssue::Get { .. } => CommandKind::Get,
            PacketIssue::Item { meta, .. } if meta.flags.wants_value() => CommandKind::Get,
            PacketIssue::Store { .. } => CommandKind::Set,
            PacketIssue::Item { .. } | PacketIssue::Delete { .. } => CommandKind::Other,
        }
    }
}

/// Returns the name of a command and its key.
fn named<'k>(command: &Command<'k>) -> (&'static str, &'k [u8]) {
    (Traits::new(command).failed.name(), command.key().unwrap_or_default())
}

/// The answer to a get, around its value.
struct ValuePacket {
    to: ReplyTo,
    with_key: bool,
}

impl ValueForm for ValuePacket {
    fn header(&self, out: &mut Vec<u8>, key: &[u8], client_flags: u32, bytes: usize, cas: u64) {
        let key = self.with_key.then_some(key);
        self.to.hit(out, &Hit { key, client_flags, cas, value_bytes: bytes });
    }

    fn tail(&self) -> &'static [u8] {
        self.to.tail()
    }
}

impl Session {
    /// Returns whether the store can have an item with the key of a request. A memcached server is asked in lines,
    /// which can hold keys of any bytes only up to [`protocol::key::BINARY_KEY_BYTES_MAX`].
    pub(super) fn may_have_key(&self, key: Option<&[u8]>) -> bool {
        let is_named = |key| MetaKey::new(key).is_ok();
        !self.context.backend.has_links() || key.is_none_or(is_named)
    }

    pub(super) async fn refuse_packet(
        &mut self,
        to: ReplyTo,
        refusal: &Refusal<'_>,
        input: &[u8],
        consumed: usize,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Step {
        self.settle_all(pending).await;
        match refusal.status {
            // These are counted already.
            Status::AuthFailure | Status::Denied | Status::OverQuota | Status::Late => {}
            _ => self.context.counters.commands.bad_lines.up(),
        }
        match refusal.status {
            Status::TooLarge => self.context.counters.commands.store_too_large.up(),
            Status::BadMagic => self.note_bad_magic(),
            _ => {}
        }
        let mut kept = None;
        if let Some(key) = refusal.unlink {
            self.note_too_large(key);
            kept = self.unlink(MetaKey::from_packet(key)).await.err();
        }
        match kept {
            None => {
                self.count_refusal(FailedCommand::Other);
                to.refused(self.out.text(), refusal.status);
            }
            Some(failure) => {
                self.command = FailedCommand::Set;
                self.fail_packet(to, &failure);
            }
        }
        self.closing |= refusal.close;
        self.skip(&input[consumed..], consumed, refusal.swallow_bytes).await
    }

    /// Answers a request whose value was skipped for lack of memory. As in memcached, an item whose new value it was is
    /// removed (`unlink`), because its old value is outdated.
    pub(super) async fn refuse_value(
        &mut self,
        to: ReplyTo,
        command: FailedCommand,
        unlink: Option<&[u8]>,
    ) {
        let mut failure = Failure::OutOfMemory;
        if let Some(key) = unlink
            && let Err(kept) = self.unlink(MetaKey::from_packet(key)).await
        {
            failure = kept;
        }
        self.command = command;
        self.fail_packet(to, &failure);
    }

    /// Returns the refusal of a command that the client may not use, or whose key no item can have.
    pub(super) async fn refusal_of<'p>(
        &mut self,
        packet: &Packet<'p>,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Option<Refusal<'p>> {
        if self.client.is_some()
            && let Some(refusal) = self.guard_packet(packet, pending).await
        {
            return Some(refusal);
        }
        if let Some(refusal) = self.refusal_of_late(packet) {
            return Some(refusal);
        }
        if self.may_have_key(packet.command.key()) {
            return None;
        }
        let skipped = packet.command.value_bytes().unwrap_or(0) as u64;
        Some(Refusal::skipping(packet.head, Status::InvalidArguments, skipped))
    }

    /// Returns the refusal of a packet whose client no longer waits for the answer. Nothing is done for it any more.
    fn refusal_of_late<'p>(&self, packet: &Packet<'p>) -> Option<Refusal<'p>> {
        let Packet { head, command } = packet;
        // Only near clients are known to share this host's clock.
        if head.deadline.is_none() || !self.is_near() || !head.deadline.is_over(host_ms()) {
            return None;
        }
        self.context.counters.near.late.up();
        let skipped = command.value_bytes().unwrap_or(0) as u64;
        Some(Refusal::skipping(*head, Status::Late, skipped))
    }

    pub(super) async fn serve_packet<'a>(
        &mut self,
        to: ReplyTo,
        command: Command<'a>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        let since = self.turned();
        to.count(&self.context.counters.commands);
        self.observe(since, || named(&command));
        if let Some(key) = command.key() {
            self.note_lookup(key);
        }
        let issue = match command {
            Command::Get { key, with_key, touch_exptime_s } => {
                let effect = touch_exptime_s.map_or(Effect::Reads, |_| Effect::Changes);
                match Key::new(key) {
                    Ok(name) => {
                        let keys = Keys::one(name);
                        let get = Get { keys, with_cas: true, touch_exptime_s };
                        if let (Backend::Local(local), true) =
                            (&self.context.backend, pending.is_empty())
                        {
                            let source = Source::Store(local.clone());
                            let form = ValuePacket { to, with_key };
                            self.get_local(source, &get, name, form).await;
                            return self.record(CommandKind::Get, since);
                        }
                        let traffic = self.admit_packet(key, effect, true, None, pending).await;
                        let issue = self.context.backend.get(&get, traffic, SmallVec::new());
                        PacketIssue::Get { get, with_key, issue }
                    }
                    Err(_) => {
                        let letters: &[u8] =
                            if touch_exptime_s.is_some() { b"v f c T" } else { b"v f c" };
                        let traffic =
                            self.admit_packet(key, Effect::Changes, true, None, pending).await;
                        self.issue_item(key, letters, touch_exptime_s, with_key, traffic)
                    }
                }
            }
            Command::Touch { key, exptime_s } => {
                let traffic = self.admit_packet(key, Effect::Changes, false, None, pending).await;
                self.issue_item(key, b"f c T", Some(exptime_s), false, traffic)
            }
            Command::Delete { key, cas } => {
                let traffic = self.admit_packet(key, Effect::Changes, false, None, pending).await;
                let mut flags = MetaFlags::default();
                flags.compare = (cas != 0).then_some(cas);
                let meta = Meta { key: MetaKey::from_packet(key), flags };
                let bytes_before = self.bytes_before(key);
                let issue = self.context.backend.meta_delete(&meta, traffic);
                PacketIssue::Delete { key, bytes_before, issue }
            }
            command => {
                self.settle_all(pending).await;
                return self.serve_packet_alone(to, command, since).await;
            }
        };
        let next = self.pending(since, Issued::Packet(to, issue));
        self.push(next, pending).await;
    }

    /// Answers a get of one key from the embedded store at once. Short values take no future of their own.
    async fn get_local(
        &mut self,
        mut source: Source,
        get: &Get<'_>,
        key: Key<'_>,
        form: ValuePacket,
    ) {
        let is_touch = get.touch_exptime_s.is_some();
        self.answered = None;
        self.command = if is_touch { FailedCommand::Gat } else { FailedCommand::Get };
        let found = match self.next_item(&mut source, get, &form, &key) {
            LocalGet::Answered => Some(0),
            LocalGet::Missing => None,
            LocalGet::Item(item) => {
                match Box::pin(self.reply_charged(&source, get, &form, &key, item)).await {
                    Ok(found) => found,
                    Err(failure) => return self.fail_packet(form.to, &failure),
                }
            }
        };
        self.count_get(found.is_some(), is_touch);
        self.note_answer(&key, found);
        if found.is_none() {
            form.to.miss(self.out.text(), form.with_key.then_some(key.bytes()));
        }
    }

    pub(super) fn issue_item<'a>(
        &self,
        key: &'a [u8],
        letters: &'static [u8],
        exptime_s: Option<i32>,
        with_key: bool,
        traffic: Traffic,
    ) -> PacketIssue<'a> {
        let mut flags = MetaFlags::from_letters(letters);
        flags.exptime_s = exptime_s;
        let meta = Meta { key: MetaKey::from_packet(key), flags };
        let with_value = meta.flags.wants_value();
        let issue = self.context.backend.plain_meta_get(&meta, with_value, traffic, None);
        PacketIssue::Item { meta, with_key, issue }
    }

    /// Returns the connection to the stores for a packet, after everything in flight if the packet must wait for it.
    async fn admit_packet(
        &mut self,
        key: &[u8],
        effect: Effect,
        is_value_wanted: bool,
        value_bytes: Option<usize>,
        pending: &mut VecDeque<Pending<'_>>,
    ) -> Traffic {
        let load = Load::of_item(is_value_wanted, value_bytes);
        match self.admit_item(key, effect, load, pending.is_empty()) {
            Some(traffic) => traffic,
            None => {
                self.settle_all(pending).await;
                self.admit_item(key, effect, load, true).unwrap_or(Traffic::Bulk)
            }
        }
    }

    /// Serves a packet that runs after all earlier commands and before all later ones.
    async fn serve_packet_alone(&mut self, to: ReplyTo, command: Command<'_>, since: Instant) {
        self.answered = None;
        self.command = Traits::new(&command).failed;
        if matches!(command, Command::Flush { .. } | Command::Stat { .. }) {
            self.audit_packet(&command);
        }
        match command {
            Command::Arithmetic(arithmetic) => self.count_packet(to, &arithmetic).await,
            Command::Flush { .. } if !self.context.config.server.flush => {
                self.context.counters.commands.cmd_flush.up();
                to.refused(self.out.text(), Status::AuthFailure);
            }
            Command::Flush { delay_s } => match self.flush_items(delay_s).await {
                Ok(()) => to.done(self.out.text(), 0),
                Err(failure) => self.fail_packet(to, &failure),
            },
            Command::Stat { page } => self.stat_packet(to, page).await,
            Command::Noop => to.done(self.out.text(), 0),
            Command::Version => to.text(self.out.text(), VERSION),
            Command::Quit => {
                to.done(self.out.text(), 0);
                self.quit();
            }
            Command::Sasl(sasl) => self.authenticate(to, &sasl, &[]).await,
            _ => unreachable!("a command that is issued, or has a value"),
        }
        self.record(CommandKind::Other, since);
    }

    /// Serves a packet whose value has arrived.
    pub(super) async fn serve_with_value<'a>(
        &mut self,
        to: ReplyTo,
        command: Command<'a>,
        value: Body<'_>,
        pending: &mut VecDeque<Pending<'a>>,
    ) {
        let since = self.turned();
        self.observe(since, || named(&command));
        to.count(&self.context.counters.commands);
        match command {
            Command::Store(store) if edit::needs_old_value(store.verb) => {
                self.settle_all(pending).await;
                self.answered = None;
                self.command = FailedCommand::Set;
                self.context.counters.commands.cmd_set.up();
                self.note_lookup(store.key);
                let key = MetaKey::from_packet(store.key);
                let compare = Some(store.cas).filter(|cas| *cas != 0);
                let edit = Extend::plain(&key, store.verb, compare, value.as_slice());
                let extended = self.extend(&edit).await;
                let stored = StoredBy::from(&store).extending(&extended);
                let outcome = extended.map(|extended| extended.written);
                self.note_stored(&stored, &outcome);
                self.reply_stored(to, store.verb, outcome);
                self.record(CommandKind::Set, since);
            }
            Command::Store(store) => {
                let bytes = Some(value.as_slice().len());
                let changes = Effect::Changes;
                let traffic = self.admit_packet(store.key, changes, false, bytes, pending).await;
                let issue = self.issue_set(&store, value, traffic).await;
                let next = self.pending(since, Issued::Packet(to, issue));
                self.push(next, pending).await;
            }
            Command::Sasl(sasl) => {
                self.settle_all(pending).await;
                self.answered = None;
                self.authenticate(to, &sasl, value.as_slice()).await;
                self.record(CommandKind::Other, since);
            }
            _ => unreachable!("a command without a value"),
        }
    }

    async fn issue_set<'a>(
        &self,
        store: &binary::Store<'a>,
        value: Body<'_>,
        traffic: Traffic,
    ) -> PacketIssue<'a> {
        self.context.counters.commands.cmd_set.up();
        self.note_lookup(store.key);
        let binary::Store { verb, key, client_flags, exptime_s, cas, .. } = *store;
        let value_bytes = value.as_slice().len();
        let stored = self.context.values.pack(key, value, None).await;
        self.note_length(key, stored.as_slice().len());
        let mut flags = MetaFlags::default();
        flags.client_flags = client_flags;
        flags.exptime_s = (exptime_s != 0).then_some(exptime_s);
        flags.compare = (cas != 0).then_some(cas);
        flags.mode = match verb {
            StoreVerb::Add => Some(b'E'),
            StoreVerb::Replace => Some(b'R'),
            _ => None,
        };
        let meta = Meta { key: MetaKey::from_packet(key), flags };
        let issue =
            self.context.backend.meta_set(&MetaSet { meta, verb, value_bytes }, stored, traffic);
        PacketIssue::Store { stored: store.into(), issue }
    }

    pub(super) async fn settle_packet(&mut self, to: ReplyTo, issue: PacketIssue<'_>) {
        match issue {
            PacketIssue::Get { get, with_key, issue } => {
                let form = ValuePacket { to, with_key };
                match self.reply_items(&get, &form, issue).await {
                    Ok(Replied { lost: Some(failure), .. }) | Err(failure) => {
                        self.fail_packet(to, &failure);
                    }
                    Ok(Replied { items_found: 0, .. }) => {
                        let key = get.keys.clone().next().filter(|_| with_key).map(Key::bytes);
                        to.miss(self.out.text(), key);
                    }
                    Ok(_) => {}
                }
            }
            PacketIssue::Item { meta, with_key, issue } => {
                self.reply_item_packet(to, &meta, with_key, issue).await;
            }
            PacketIssue::Store { stored, issue } => {
                let StoredBy { key, verb, .. } = stored;
                let outcome = issue.written().await;
                self.note_stored(&stored, &outcome);
                if let (Ok(Written::NotStored), StoreVerb::Add) = (&outcome, verb) {
                    self.context.examine_after_add(&MetaKey::from_packet(key)).await;
                }
                if verb == StoreVerb::Cas {
                    count_cas(&self.context.counters.commands, &outcome);
                }
                self.reply_stored(to, verb, outcome);
            }
            PacketIssue::Delete { key, bytes_before, issue } => {
                let outcome = issue.meta_outcome().await;
                if let Ok(MetaOutcome::Done) = outcome {
                    self.note_deleted(key, "delete", bytes_before);
                }
                self.reply_deleted(to, outcome);
            }
        }
    }

    async fn reply_item_packet(
        &mut self,
        to: ReplyTo,
        meta: &Meta<'_>,
        with_key: bool,
        issue: PlainGet,
    ) {
        let key = meta.key.bytes();
        let touched = meta.flags.exptime_s.is_some();
        let item = match self.logical_item(meta, ItemIssue::Plain(issue)).await {
            Err(failure) => return self.fail_packet(to, &failure),
            Ok(item) => item,
        };
        self.count_get(item.is_some(), touched);
        if meta.flags.wants_value() {
            self.note_answer(key, item.as_ref().map(|(_, value)| value.len()));
        }
        let key_of_reply = with_key.then_some(key);
        let Some((facts, value)) = item else {
            return to.miss(self.out.text(), key_of_reply);
        };
        let hit = Hit {
            key: key_of_reply,
            client_flags: facts.client_flags,
            cas: facts.cas,
            value_bytes: value.len(),
        };
        to.hit(self.out.text(), &hit);
        self.out.value(value);
        self.out.text().extend_from_slice(to.tail());
    }

    fn reply_stored(&mut self, to: ReplyTo, verb: StoreVerb, outcome: Outcome<Written>) {
        let status = match outcome {
            Err(failure) => return self.fail_packet(to, &failure),
            Ok(Written::Stored { cas }) => return to.done(self.out.text(), cas),
            Ok(Written::Exists) => Status::Exists,
            Ok(Written::NotFound) => Status::NotFound,
            Ok(Written::NotStored) => match verb {
                StoreVerb::Add => Status::Exists,
                StoreVerb::Replace => Status::NotFound,
                _ => Status::NotStored,
            },
        };
        to.refused(self.out.text(), status);
    }

    fn reply_deleted(&mut self, to: ReplyTo, outcome: Outcome<MetaOutcome>) {
        let commands = &self.context.counters.commands;
        let status = match outcome {
            Err(failure) => return self.fail_packet(to, &failure),
            Ok(MetaOutcome::Done) => {
                commands.delete_hits.up();
                return to.done(self.out.text(), 0);
            }
            Ok(MetaOutcome::NotFound) => {
                commands.delete_misses.up();
                Status::NotFound
            }
            Ok(MetaOutcome::Exists | MetaOutcome::NotStored) => Status::Exists,
        };
        to.refused(self.out.text(), status);
    }

    async fn count_packet(&mut self, to: ReplyTo, arithmetic: &binary::Arithmetic<'_>) {
        let binary::Arithmetic { direction, key, delta, initial, exptime_s, cas } = *arithmetic;
        // The CAS number 0 stands for none.
        let compare = (cas != 0).then_some(cas);
        let letters: &[u8] = match (exptime_s, compare) {
            (Some(_), Some(_)) => b"N C c",
            (Some(_), None) => b"N c",
            (None, Some(_)) => b"C c",
            (None, None) => b"c",
        };
        let mut flags = MetaFlags::from_letters(letters);
        flags.vivify_exptime_s = exptime_s;
        (flags.delta, flags.initial, flags.compare) = (delta, initial, compare);
        let meta = Meta { key: MetaKey::from_packet(key), flags };
        let command = MetaArithmetic { meta, direction };
        let outcome = match self.count_in_store(&command).await {
            Ok(Count::NonNumeric) => {
                let key = &command.meta.key;
                self.count_logical(key, direction, delta, compare, None, None).await
            }
            other => other,
        };
        self.count_arithmetic(direction, &outcome);
        if let Ok(Count::Done { number, created: true, .. }) = outcome {
            self.note_created(key, number, exptime_s);
        }
        let status = match outcome {
            Err(failure) => return self.fail_packet(to, &failure),
            Ok(Count::Done { number, facts, .. }) => {
                return to.number(self.out.text(), number, facts.cas);
            }
            Ok(Count::NotFound) => Status::NotFound,
            Ok(Count::NotStored) => Status::NotStored,
            Ok(Count::Exists) => Status::Exists,
            Ok(Count::NonNumeric) => Status::NonNumeric,
        };
        to.refused(self.out.text(), status);
    }

    async fn stat_packet(&mut self, to: ReplyTo, page: &[u8]) {
        let lines = match page {
            b"" | b"items" | b"slabs" | b"sizes" | b"rebate" | b"dictionaries" => {
                self.stats_page(&String::from_utf8_lossy(page)).await
            }
            // memcached compares only the beginnings of these names.
            _ if page.starts_with(b"reset") => {
                self.context.stats.reset();
                Some(Vec::new())
            }
            _ if page.starts_with(b"settings") => self.stats_page("settings").await,
            // There are no statistics by key prefix.
            _ if page.starts_with(b"detail dump") => {
                Some(vec![("detailed".to_owned(), "END\r\n".to_owned())])
            }
            _ if page.starts_with(b"detail on") || page.starts_with(b"detail off") => {
                Some(Vec::new())
            }
            _ => None,
        };
        let Some(lines) = lines else {
            return to.refused(self.out.text(), Status::NotFound);
        };
        to.stats(self.out.text(), &lines);
    }

    pub(super) fn fail_packet(&mut self, to: ReplyTo, failure: &Failure) {
        self.count_failure(failure);
        let text = failure.to_string();
        let text = text.strip_prefix("SERVER_ERROR ").unwrap_or(&text);
        let status = match failure {
            Failure::OutOfMemory => {
                return to.refused(self.out.text(), Status::OutOfMemory);
            }
            Failure::Line(line) if line.text.starts_with(b"SERVER_ERROR object too large") => {
                return to.refused(self.out.text(), Status::TooLarge);
            }
            Failure::Line(line) if line.text.starts_with(b"SERVER_ERROR out of memory") => {
                Status::OutOfMemory
            }
            Failure::OverBudget(_) => Status::OutOfMemory,
            Failure::Link(_) => Status::Temporary,
            Failure::Line(_) => Status::Internal,
        };
        to.failed(self.out.text(), status, text);
    }
}
