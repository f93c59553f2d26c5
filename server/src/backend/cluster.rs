//! A ring of memcached servers as a backend. Requests are composed anew for the server that owns the key, and answers
//! are read back. Values are passed in their stored form. The session decides what a client sees of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use protocol::command::{Arithmetic, Get, MetaArithmetic, MetaSet, Store};
use protocol::counter::Direction;
use protocol::meta::Meta;
use protocol::reply::{ItemFacts, MetaOutcome};
use protocol::{Key, MetaKey, request};
use smallvec::SmallVec;
use store::Ring;
use units::Prng;

use super::{
    Count, Failure, Issue, Item, Items, Life, MetaDebug, MetaItem, Outcome, Seen, Version, Written,
};
use crate::budget::Permit;
use crate::reply_buffer::ReplyBuffer;
use crate::upstream::{Answer, Expect, Issued, Link, LinkError, Returned, Timing, Traffic, Value};
use crate::values::Stored;

/// One worker's view of the ring.
#[derive(Clone)]
pub(crate) struct Cluster(Rc<Shared>);

struct Shared {
    ring: Ring,
    links: Vec<Link>,
    draws: RefCell<Prng>,
}

/// A get in flight.
pub(crate) enum SentGet {
    OfOneKey(Issued),
    OfSeveral(Box<Requests>),
}

/// The requests of one get of several keys and, for each key, the position of its request in `requests`.
pub(crate) struct Requests {
    requests: SmallVec<[Issued; 4]>,
    owners: SmallVec<[u16; 8]>,
}

impl Cluster {
    pub(crate) fn new(ring: Ring, links: Vec<Link>, seed: u64) -> Self {
        Self(Rc::new(Shared { ring, links, draws: RefCell::new(Prng::new(seed)) }))
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.0.links
    }

    pub(crate) fn set_timing(&self, timing: Timing) {
        self.links().iter().for_each(|link| link.set_timing(timing));
    }

    /// Gets items. `granted` is empty in the first attempt. If that fails with [`NoRoom`], the get is sent again with
    /// one permit per request, in the order of [`NoRoom::wanted`].
    pub(super) fn get(
        &self,
        get: &Get<'_>,
        traffic: Traffic,
        mut granted: SmallVec<[Permit; 1]>,
    ) -> SentGet {
        let mut keys = get.keys;
        if let (Some(key), None) = (keys.next(), keys.next()) {
            let expect = Expect::Values { keys_max: 1 };
            let request =
                self.link(&key).request_with_permit(traffic, expect, granted.pop(), |out| {
                    ask_for(out.text(), get, [key]);
                });
            return SentGet::OfOneKey(request);
        }
        let servers: SmallVec<[usize; 4]> = get.keys.map(|key| self.0.ring.server(&key)).collect();
        let mut asked: SmallVec<[usize; 4]> = SmallVec::new();
        for server in &servers {
            if !asked.contains(server) {
                asked.push(*server);
            }
        }
        let mut granted = granted.into_iter();
        let mut ask = |server: &usize| {
            let keys = get.keys.zip(&servers).filter(|(_, owner)| *owner == server);
            let keys = keys.map(|(key, _)| key);
            let keys_max = servers.iter().filter(|owner| *owner == server).count();
            let expect = Expect::Values { keys_max };
            let link = &self.links()[*server];
            link.request_with_permit(traffic, expect, granted.next(), |out| {
                ask_for(out.text(), get, keys)
            })
        };
        let position = |server: &usize| asked.iter().position(|other| other == server);
        let owners = servers.iter().map(|server| position(server).unwrap_or(0) as u16).collect();
        SentGet::OfSeveral(Box::new(Requests {
            requests: asked.iter().map(&mut ask).collect(),
            owners,
        }))
    }

    pub(super) fn store(&self, store: &Store<'_>, value: Stored<'_>, traffic: Traffic) -> Issued {
        let stored = Store { value_bytes: value.as_slice().len(), noreply: false, ..*store };
        self.link(&store.key).request(traffic, Expect::Written, |out| {
            request::store(out.text(), &stored);
            append(out, value);
        })
    }

    pub(super) fn delete(&self, key: Key<'_>, traffic: Traffic) -> Issued {
        self.link(&key)
            .request(traffic, Expect::Found, |out| request::delete(out.text(), key, false))
    }

    pub(super) fn touch(&self, key: Key<'_>, exptime_s: i32, traffic: Traffic) -> Issued {
        self.link(&key).request(traffic, Expect::Found, |out| {
            request::touch(out.text(), key, exptime_s, false);
        })
    }

    pub(super) async fn count(&self, arithmetic: &Arithmetic<'_>) -> Outcome<Count> {
        let asked = Arithmetic { noreply: false, ..*arithmetic };
        let issued = self.link(&arithmetic.key).request(SHORT, Expect::Number, |out| {
            request::arithmetic(out.text(), &asked);
        });
        match issued.await.map_err(Failure::Link)? {
            Answer::Number(number) => {
                Ok(Count::Done { number, created: false, facts: ItemFacts::default() })
            }
            Answer::NotFound => Ok(Count::NotFound),
            Answer::Error(line) if is_non_numeric(&line) => Ok(Count::NonNumeric),
            other => Err(unexpected(other)),
        }
    }

    pub(super) fn meta_get(
        &self,
        meta: &Meta<'_>,
        with_value: bool,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Issued {
        self.link(meta.key.bytes()).request_with_permit(traffic, Expect::Meta, granted, |out| {
            let mut line = request::meta_get(out.text(), &meta.key);
            for (letter, _) in meta.flags.iter() {
                line = match letter {
                    b'T' => line.time(b'T', meta.flags.exptime_s.unwrap_or(0)),
                    b'N' => line.time(b'N', meta.flags.vivify_exptime_s.unwrap_or(0)),
                    b'R' => line.time(b'R', meta.flags.recache_s.unwrap_or(0)),
                    b'c' | b'f' | b't' | b'l' | b'h' | b'k' | b'u' => line.flag(letter),
                    _ => line,
                };
            }
            if with_value { line.flag(b'v').end() } else { line.end() }
        })
    }

    pub(super) fn meta_set(
        &self,
        set: &MetaSet<'_>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Issued {
        let flags = &set.meta.flags;
        self.link(set.meta.key.bytes()).request(traffic, Expect::MetaWritten, |out| {
            let value_bytes = value.as_slice().len();
            let mut line = request::meta_set(out.text(), &set.meta.key, value_bytes).flag(b'c');
            if flags.client_flags != 0 {
                line = line.number(b'F', u64::from(flags.client_flags));
            }
            if let Some(exptime_s) = flags.exptime_s {
                line = line.time(b'T', exptime_s);
            }
            if let Some(cas) = flags.compare {
                line = line.number(b'C', cas);
            }
            if flags.has(b'I') {
                line = line.flag(b'I');
            }
            if let Some(mode) = flags.mode {
                line = line.mode(mode);
            }
            line.end();
            append(out, value);
        })
    }

    pub(super) fn meta_delete(&self, meta: &Meta<'_>) -> Issued {
        let flags = &meta.flags;
        self.link(meta.key.bytes()).request(SHORT, Expect::Meta, |out| {
            let mut line = request::meta_delete(out.text(), &meta.key);
            if let Some(cas) = flags.compare {
                line = line.number(b'C', cas);
            }
            if let Some(exptime_s) = flags.exptime_s {
                line = line.time(b'T', exptime_s);
            }
            if flags.has(b'I') {
                line = line.flag(b'I');
            }
            line.end();
        })
    }

    pub(super) async fn meta_count(&self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        let flags = &arithmetic.meta.flags;
        if flags.vivify_exptime_s.is_none() || !flags.is_quiet() {
            return self.meta_count_once(arithmetic, true, false).await;
        }
        // A quiet client is told when an item was created, and a server does not say whether it created one.
        match self.meta_count_once(arithmetic, false, false).await? {
            Count::NotFound => self.meta_count_once(arithmetic, true, true).await,
            counted => Ok(counted),
        }
    }

    async fn meta_count_once(
        &self,
        arithmetic: &MetaArithmetic<'_>,
        vivify: bool,
        created: bool,
    ) -> Outcome<Count> {
        let (key, flags) = (&arithmetic.meta.key, &arithmetic.meta.flags);
        let issued = self.link(key.bytes()).request(SHORT, Expect::Meta, |out| {
            let down = arithmetic.direction == Direction::Decrement;
            let mut line = request::meta_arithmetic(out.text(), key)
                .flag(b'v')
                .mode(if down { b'D' } else { b'I' })
                .number(b'D', flags.delta)
                .number(b'J', flags.initial);
            for (letter, _) in flags.iter() {
                line = match letter {
                    b'N' if vivify => line.time(b'N', flags.vivify_exptime_s.unwrap_or(0)),
                    b'T' => line.time(b'T', flags.exptime_s.unwrap_or(0)),
                    b'C' => line.number(b'C', flags.compare.unwrap_or(0)),
                    b't' | b'c' => line.flag(letter),
                    _ => line,
                };
            }
            line.end();
        });
        match issued.await.map_err(Failure::Link)? {
            Answer::Meta { outcome: MetaOutcome::Done, returned, value: Some(value) } => {
                let digits = std::str::from_utf8(&value).ok();
                let number = digits.and_then(|text| text.trim_end().parse().ok()).unwrap_or(0);
                let facts =
                    ItemFacts { cas: returned.cas, ttl_s: returned.ttl_s, ..ItemFacts::default() };
                Ok(Count::Done { number, created, facts })
            }
            Answer::Meta { outcome: MetaOutcome::NotFound, .. } => Ok(Count::NotFound),
            Answer::Meta { outcome: MetaOutcome::NotStored, .. } => Ok(Count::NotStored),
            Answer::Meta { outcome: MetaOutcome::Exists, .. } => Ok(Count::Exists),
            Answer::Error(line) if is_non_numeric(&line) => Ok(Count::NonNumeric),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn meta_debug(&self, key: &MetaKey<'_>) -> Outcome<Option<MetaDebug>> {
        let issued = self.link(key.bytes()).request(SHORT, Expect::Debug, |out| {
            request::meta_debug(out.text(), key);
        });
        match issued.await.map_err(Failure::Link)? {
            Answer::MetaMiss => Ok(None),
            Answer::MetaDebug(line) => Ok(Some(MetaDebug::Line(line))),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn peek(
        &self,
        key: &MetaKey<'_>,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Outcome<Option<Version>> {
        let asked = Instant::now();
        let issued =
            self.link(key.bytes()).request_with_permit(traffic, Expect::Meta, granted, |out| {
                let line = request::meta_get(out.text(), key);
                line.flag(b'v').flag(b'f').flag(b'c').flag(b't').end();
            });
        match issued.await.map_err(Failure::Link)? {
            Answer::MetaMiss => Ok(None),
            Answer::Meta { returned, value: Some(value), .. } => Ok(Some(Version {
                value,
                client_flags: returned.client_flags,
                cas: returned.cas,
                life: match returned.ttl_s {
                    None => Life::Never,
                    Some(left_s) => Life::Left { left_s, asked },
                },
                won: returned.won,
                keeps_marks: false,
            })),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn rewrite(
        &self,
        key: &MetaKey<'_>,
        version: &Version,
        exptime_s: Option<i32>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Outcome<Written> {
        let kept = self.kept_exptime_s(key, version.life).await?;
        let issued = self.link(key.bytes()).request(traffic, Expect::MetaWritten, |out| {
            let value_bytes = value.as_slice().len();
            let line = request::meta_set(out.text(), key, value_bytes)
                .flag(b'c')
                .number(b'F', u64::from(version.client_flags))
                .number(b'C', version.cas);
            match exptime_s.or(kept) {
                Some(exptime_s) => line.time(b'T', exptime_s).end(),
                None => line.end(),
            }
            append(out, value);
        });
        written(issued.await)
    }

    pub(super) async fn flush_all(&self, delay_s: i32) -> Outcome<()> {
        let ask = |link: &Link| {
            link.request(SHORT, Expect::Done, |out| request::flush_all(out.text(), delay_s, false))
        };
        let issued: Vec<Issued> = self.links().iter().map(ask).collect();
        for request in issued {
            match request.await.map_err(Failure::Link)? {
                Answer::Done => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(())
    }

    /// Returns the servers' statistics. Numbers are summed over the servers; other values are those of the first
    /// server.
    pub(super) async fn stats(&self, page: &str) -> Option<Vec<(String, String)>> {
        let ask = |link: &Link| {
            link.request(Traffic::Bulk, Expect::Stats, |out| request::stats(out.text(), page))
        };
        let issued: Vec<Issued> = self.links().iter().map(ask).collect();
        let mut summed: Vec<(String, String)> = Vec::new();
        for request in issued {
            let stats = match request.await {
                Ok(Answer::Stats(stats)) => stats,
                Err(_) => continue,
                Ok(_) => return None,
            };
            for (name, value) in stats {
                match summed.iter_mut().find(|(other, _)| *other == name) {
                    None => summed.push((name, value)),
                    Some((_, sum)) => {
                        if let (Ok(left), Ok(right)) = (sum.parse::<u64>(), value.parse::<u64>()) {
                            *sum = left.saturating_add(right).to_string();
                        }
                    }
                }
            }
        }
        if self.links().len() > 1 {
            // Several servers have several clocks, and none of them is the ring's.
            summed.retain(|(name, _)| name != "time");
        }
        Some(summed)
    }

    /// Returns the expiry with which a rewritten item ends when it would have ended anyway. A server reports whole
    /// seconds only, so the time since its report is rounded up with the probability of its fraction of a second. A
    /// life that is rewritten often therefore neither grows nor shrinks.
    async fn kept_exptime_s(&self, key: &MetaKey<'_>, life: Life) -> Outcome<Option<i32>> {
        let Life::Left { left_s, asked } = life else { return Ok(None) };
        // memcached reads a longer time as a date on its own clock.
        let since_s = if left_s > RELATIVE_MAX_S { self.server_time_s(key).await? } else { 0 };
        let left_s = i64::from(self.still_left_s(left_s, asked));
        let exptime_s = if left_s > i64::from(RELATIVE_MAX_S) { since_s + left_s } else { left_s };
        Ok(Some(i32::try_from(exptime_s).unwrap_or(i32::MAX)))
    }

    fn still_left_s(&self, left_s: u32, asked: Instant) -> u32 {
        let since_s = asked.elapsed().as_secs_f64();
        let draw = self.0.draws.borrow_mut().unit();
        let passed_s = (since_s + draw).floor() as u32;
        // Zero would mean never, and this item is in its last second.
        left_s.saturating_sub(passed_s).max(1)
    }

    /// Returns the time of the server that has the key (Unix, s). The server's clock may be off, and so may ours.
    async fn server_time_s(&self, key: &MetaKey<'_>) -> Outcome<i64> {
        let asked = self.link(key.bytes()).request(Traffic::Bulk, Expect::Stats, |out| {
            request::stats(out.text(), "");
        });
        let stats = match asked.await.map_err(Failure::Link)? {
            Answer::Stats(stats) => stats,
            other => return Err(unexpected(other)),
        };
        let time = stats.iter().find(|(name, _)| name == "time");
        let time_s = time.and_then(|(_, value)| value.parse().ok());
        time_s
            .ok_or_else(|| Failure::Line(b"SERVER_ERROR the store does not tell its time".to_vec()))
    }

    pub(super) fn mark_stale(&self, key: &MetaKey<'_>, cas: u64) -> Issued {
        self.link(key.bytes()).request(SHORT, Expect::Meta, |out| {
            request::meta_delete(out.text(), key).number(b'C', cas).flag(b'I').end();
        })
    }

    /// Returns what is stored, with a plain get if the key allows it.
    pub(super) async fn look(&self, key: &MetaKey<'_>) -> Outcome<Option<Seen>> {
        let Ok(key) = Key::new(key.bytes()) else {
            return Ok(self.peek(key, Traffic::Bulk, None).await?.map(Seen::from));
        };
        let issued =
            self.link(&key).request(Traffic::Bulk, Expect::Values { keys_max: 1 }, |out| {
                request::get(out.text(), [key], true);
            });
        match issued.await.map_err(Failure::Link)? {
            Answer::Values(values) => Ok(values.into_iter().next().map(|value| Seen {
                value: value.value,
                cas: value.cas,
                won: false,
            })),
            other => Err(unexpected(other)),
        }
    }

    fn link(&self, key: &[u8]) -> &Link {
        &self.0.links[self.0.ring.server(key)]
    }
}

impl SentGet {
    pub(crate) async fn items(self, get: &Get<'_>) -> Outcome<Items> {
        let request = match self {
            SentGet::OfOneKey(request) => request,
            SentGet::OfSeveral(requests) => return Box::pin(requests.items(get)).await,
        };
        match request.await.map_err(Failure::Link)? {
            Answer::Values(values) => {
                let key = get.keys.clone().next();
                let is_asked = |value: &Value| key.is_some_and(|key| value.key[..] == *key);
                let found = values.into_iter().next().filter(is_asked);
                Ok(Items::from_buf([found.map(Item::from)]))
            }
            other => Err(unexpected(other)),
        }
    }
}

impl Requests {
    async fn items(self, get: &Get<'_>) -> Outcome<Items> {
        let mut answers: SmallVec<[std::iter::Peekable<_>; 4]> = SmallVec::new();
        let mut wanted: SmallVec<[u64; 1]> = SmallVec::new();
        let mut failure = None;
        // Waits for all requests, even after one has failed: later requests must not take effect before them.
        for request in self.requests {
            let answer = match request.await {
                Ok(answer) => answer,
                Err(error) => {
                    failure.get_or_insert(Failure::Link(error));
                    continue;
                }
            };
            match answer {
                Answer::Values(values) => {
                    wanted.push(room_for(&values));
                    answers.push(values.into_iter().peekable());
                }
                Answer::NoRoom { bytes, .. } => {
                    wanted.push(bytes.max(1));
                    answers.clear();
                }
                other => _ = failure.get_or_insert(unexpected(other)),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if wanted.len() != answers.len() {
            return Err(Failure::NoRoom(NoRoom { wanted, returned: None }));
        }
        let mut owners = self.owners.iter();
        let item = |key: Key<'_>| {
            let owner = owners.next().map_or(0, |owner| usize::from(*owner));
            answers.get_mut(owner)?.next_if(|value| value.key[..] == *key).map(Item::from)
        };
        Ok(get.keys.map(item).collect())
    }
}

impl From<Value> for Item {
    fn from(Value { value, client_flags, cas, .. }: Value) -> Self {
        Self { value, client_flags, cas }
    }
}

impl Issue<Outcome<Written>> {
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
        match issued.await.map_err(Failure::Link)? {
            Answer::MetaMiss => Ok(None),
            Answer::Meta { returned, value, .. } => {
                let facts = facts(&returned, value.as_ref().map_or(0, Bytes::len));
                Ok(Some(MetaItem { facts, value }))
            }
            other => Err(unexpected(other)),
        }
    }
}

/// Returns the facts of an item that was requested twice. Facts that the first request changed are taken from its
/// answer.
pub(crate) fn facts_of_first(first: &Returned, facts: ItemFacts) -> ItemFacts {
    ItemFacts {
        won: first.won,
        stale: first.stale,
        already_won: first.already_won,
        fetched: first.fetched,
        idle_s: first.idle_s,
        ..facts
    }
}

/// Returns an item's facts from its return flags.
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

/// Returns the bytes of the budget that a request needs when its answer has these values.
fn room_for(values: &[Value]) -> u64 {
    values.iter().map(|value| value.value.len() as u64 + 2).sum()
}

fn written(answer: Result<Answer, LinkError>) -> Outcome<Written> {
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
pub(crate) struct NoRoom {
    /// The bytes that each request needs for its answer.
    pub(crate) wanted: SmallVec<[u64; 1]>,
    /// The return flags of a meta command. A second request may change them.
    pub(crate) returned: Option<Returned>,
}

/// Makes a failure of an answer. An error line is passed on. Any other answer that does not fit is the server's fault.
fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Error(line) => Failure::Line(line),
        Answer::NoRoom { bytes, returned } => {
            Failure::NoRoom(NoRoom { wanted: SmallVec::from_elem(bytes, 1), returned })
        }
        _ => Failure::Line(b"SERVER_ERROR the memcached server answered another question".to_vec()),
    }
}

/// Composes the get's verb for some of its keys.
fn ask_for<'a>(out: &mut Vec<u8>, get: &Get<'_>, keys: impl IntoIterator<Item = Key<'a>>) {
    match get.touch_exptime_s {
        None => request::get(out, keys, get.with_cas),
        Some(exptime_s) => request::get_and_touch(out, exptime_s, keys, get.with_cas),
    }
}

/// The traffic class of a request that neither requests a value nor sends one.
const SHORT: Traffic = Traffic::Interactive;

/// The longest relative expiry (s). memcached reads longer times as dates.
const RELATIVE_MAX_S: u32 = 60 * 60 * 24 * 30;

fn is_non_numeric(line: &[u8]) -> bool {
    line.starts_with(b"CLIENT_ERROR cannot increment or decrement")
}

fn append(out: &mut ReplyBuffer, value: Stored<'_>) {
    match value {
        Stored::Slice(bytes) => out.text().extend_from_slice(bytes),
        Stored::Shared(bytes) => out.value(bytes),
    }
    out.text().extend_from_slice(b"\r\n");
}
