//! A ring of memcached servers as a backend. It composes a new request for the server that owns the key, and
//! parses the answer. Values are passed in their stored form. `ring_view` says which server that is.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use protocol::command::{Arithmetic, Get, MetaArithmetic, MetaSet, Store};
use protocol::counter::Direction;
use protocol::meta::Meta;
use protocol::reply::{ItemFacts, MetaOutcome};
use protocol::request::MetaLine;
use protocol::{Key, MetaFlags, MetaKey, request};
use smallvec::SmallVec;
use tokio::time::Instant;
use units::{Prng, limits};

use super::ring_answers::{permit_bytes, unexpected, written};
use super::ring_view::{Bound, LinkParts, Route, View};
use super::{
    Count, Failure, Item, Items, Life, MetaDebug, Outcome, OverBudget, Seen, Version, Written,
};
use crate::budget::Permit;
use crate::members::RingState;
use crate::reply_buffer::ReplyBuffer;
use crate::upstream::{Answer, Expect, Issued, Link, LinkError, Timing, Traffic, Value};
use crate::values::Stored;

/// One worker's view of the ring.
#[derive(Clone)]
pub(crate) struct Cluster(Rc<Shared>);

struct Shared {
    /// The current list of servers. A new version replaces it between two requests.
    view: RefCell<Rc<View>>,
    links: LinkParts,
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

/// The items that a get has found.
pub(crate) struct Found {
    pub(crate) items: Items,
    /// The keys whose server could not answer, and the failure of the first such server.
    pub(crate) lost: Option<Box<Lost>>,
}

/// The keys of a get whose servers could not answer.
pub(crate) struct Lost {
    pub(crate) failure: Failure,
    /// Whether each key is lost, in the order of the keys.
    pub(crate) keys: SmallVec<[bool; 8]>,
}

impl Found {
    fn whole(items: Items) -> Self {
        Self { items, lost: None }
    }

    /// Returns the items if no key is lost.
    pub(crate) fn all(self) -> Outcome<Items> {
        match self.lost {
            None => Ok(self.items),
            Some(lost) => Err(lost.failure),
        }
    }
}

impl Cluster {
    pub(crate) fn new(state: &Arc<RingState>, links: LinkParts, seed: u64) -> Self {
        let view = RefCell::new(Rc::new(View::new(state, &links, None)));
        Self(Rc::new(Shared { view, links, draws: RefCell::new(Prng::new(seed)) }))
    }

    /// Replaces the list of servers. Requests under way are not affected.
    pub(crate) fn set_ring(&self, state: &Arc<RingState>) {
        let old = self.view();
        let new = View::new(state, &self.0.links, Some(&old));
        *self.0.view.borrow_mut() = Rc::new(new);
        old.retire_all_but(&self.view());
    }

    /// Returns the current list of servers.
    pub(crate) fn view(&self) -> Rc<View> {
        Rc::clone(&self.0.view.borrow())
    }

    /// Returns the links to all servers.
    pub(crate) fn links(&self) -> Vec<Link> {
        self.view().links().cloned().collect()
    }

    /// Returns whether requests take effect in the order in which they are issued.
    pub(crate) fn keeps_order(&self) -> bool {
        self.view().links().all(Link::keeps_order)
    }

    pub(crate) fn set_timing(&self, timing: Timing) {
        self.0.links.timing.set(timing);
        self.view().links().for_each(|link| link.set_timing(timing));
    }

    /// Sends a request about `key` to the server that owns it.
    #[inline]
    fn send(
        &self,
        key: &[u8],
        traffic: Traffic,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer, Bound),
    ) -> Issued {
        let view = self.0.view.borrow();
        view.request(view.route(key), traffic, expect, granted, compose)
    }

    /// Sends a request like `send`, whose key is a miss if the operator wants this for servers that cannot answer.
    #[inline]
    fn send_get(
        &self,
        key: &[u8],
        traffic: Traffic,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer, Bound),
    ) -> Issued {
        let mut issued = self.send(key, traffic, expect, granted, compose);
        issued.may_miss = self.0.view.borrow().may_miss();
        issued
    }

    /// Gets items. `granted` is empty in the first attempt. If the attempt fails with [`OverBudget`], the caller
    /// tries again with one permit per request, in the order of [`OverBudget::wanted`].
    pub(super) fn get(
        &self,
        get: &Get<'_>,
        traffic: Traffic,
        mut granted: SmallVec<[Permit; 1]>,
    ) -> SentGet {
        let mut keys = get.keys;
        if let (Some(key), None) = (keys.next(), keys.next()) {
            let expect = Expect::Values { keys_max: 1 };
            let request = self.send_get(&key, traffic, expect, granted.pop(), |out, bound| {
                ask_for(out.text(), get, bound, [key]);
            });
            return SentGet::OfOneKey(request);
        }
        let view = self.0.view.borrow();
        let routes: SmallVec<[Route; 4]> = get.keys.map(|key| view.route(&key)).collect();
        let mut asked: SmallVec<[Route; 4]> = SmallVec::new();
        for route in &routes {
            if !asked.contains(route) {
                asked.push(*route);
            }
        }
        let mut granted = granted.into_iter();
        let mut ask = |route: &Route| {
            let keys = get.keys.zip(&routes).filter(|(_, owner)| *owner == route);
            let keys = keys.map(|(key, _)| key);
            let keys_max = routes.iter().filter(|owner| *owner == route).count();
            let expect = Expect::Values { keys_max };
            let mut issued = view.request(*route, traffic, expect, granted.next(), |out, bound| {
                ask_for(out.text(), get, bound, keys)
            });
            issued.may_miss = view.may_miss();
            issued
        };
        let requests = asked.iter().map(&mut ask).collect();
        let position = |route: &Route| asked.iter().position(|other| other == route);
        let owners = routes.iter().map(|route| position(route).unwrap_or(0) as u16).collect();
        SentGet::OfSeveral(Box::new(Requests { requests, owners }))
    }

    pub(super) fn store(&self, store: &Store<'_>, value: Stored<'_>, traffic: Traffic) -> Issued {
        let stored = Store { value_bytes: value.as_slice().len(), noreply: false, ..*store };
        self.send(&store.key, traffic, Expect::Written, None, |out, bound| {
            let exptime_s = bound.limit(stored.exptime_s);
            request::store(out.text(), &Store { exptime_s, ..stored });
            append(out, value);
        })
    }

    pub(super) fn delete(&self, key: Key<'_>, traffic: Traffic) -> Issued {
        self.send(&key, traffic, Expect::Found, None, |out, _| {
            request::delete(out.text(), key, false);
        })
    }

    pub(super) fn touch(&self, key: Key<'_>, exptime_s: i32, traffic: Traffic) -> Issued {
        self.send(&key, traffic, Expect::Found, None, |out, bound| {
            request::touch(out.text(), key, bound.limit(exptime_s), false);
        })
    }

    pub(super) async fn count(&self, arithmetic: &Arithmetic<'_>) -> Outcome<Count> {
        let asked = Arithmetic { noreply: false, ..*arithmetic };
        let issued = self.send(&arithmetic.key, SHORT, Expect::Number, None, |out, _| {
            request::arithmetic(out.text(), &asked);
        });
        match issued.await.map_err(Failure::Link)? {
            Answer::Number(number) => {
                Ok(Count::Done { number, created: false, facts: ItemFacts::default() })
            }
            Answer::NotFound => Ok(Count::NotFound),
            Answer::Error(line) if is_non_numeric(&line.text) => Ok(Count::NonNumeric),
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
        // A touch changes the item. Clients must learn that it was not done.
        let is_touch = !with_value && meta.flags.exptime_s.is_some();
        let mut issued =
            self.send(meta.key.bytes(), traffic, Expect::Meta, granted, |out, bound| {
                let time_s = |exptime_s: Option<i32>| bound.limit(exptime_s.unwrap_or(0));
                let mut line = request::meta_get(out.text(), &meta.key);
                for (letter, _) in meta.flags.iter() {
                    line = match letter {
                        b'T' => line.time(b'T', time_s(meta.flags.exptime_s)),
                        b'N' => line.time(b'N', time_s(meta.flags.vivify_exptime_s)),
                        b'R' => line.time(b'R', meta.flags.recache_s.unwrap_or(0)),
                        b'f' | b't' | b'l' | b'h' | b'k' | b'u' => line.flag(letter),
                        _ => line,
                    };
                }
                if with_value || meta.flags.has(b'c') {
                    // A value that has to be read a second time may be that of another version.
                    line = line.flag(b'c');
                }
                let line = with_later_flags(line, &meta.flags);
                if with_value { line.flag(b'v').end() } else { line.end() }
            });
        issued.may_miss = !is_touch && self.0.view.borrow().may_miss();
        issued
    }

    pub(super) fn meta_set(
        &self,
        set: &MetaSet<'_>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Issued {
        let flags = &set.meta.flags;
        self.send(set.meta.key.bytes(), traffic, Expect::MetaWritten, None, |out, bound| {
            let value_bytes = value.as_slice().len();
            let mut line = request::meta_set(out.text(), &set.meta.key, value_bytes).flag(b'c');
            if flags.client_flags != 0 {
                line = line.number(b'F', u64::from(flags.client_flags));
            }
            if let Some(exptime_s) = bound.limit_or_set(flags.exptime_s) {
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
            if let (Some(b'A' | b'P'), Some(exptime_s)) = (flags.mode, flags.vivify_exptime_s) {
                line = line.time(b'N', bound.limit(exptime_s));
            }
            // The answer shows whether the server answers this flag.
            if flags.has(b's') {
                line = line.flag(b's');
            }
            with_later_flags(line, flags).end();
            append(out, value);
        })
    }

    pub(super) fn meta_delete(&self, meta: &Meta<'_>, traffic: Traffic) -> Issued {
        let flags = &meta.flags;
        self.send(meta.key.bytes(), traffic, Expect::Meta, None, |out, bound| {
            let mut line = request::meta_delete(out.text(), &meta.key);
            if let Some(cas) = flags.compare {
                line = line.number(b'C', cas);
            }
            if let Some(exptime_s) = flags.exptime_s {
                line = line.time(b'T', bound.limit(exptime_s));
            }
            if flags.has(b'I') {
                line = line.flag(b'I');
            }
            if flags.has(b'x') && flags.client_flags != 0 {
                line = line.number(b'F', u64::from(flags.client_flags));
            }
            with_later_flags(line, flags).end();
        })
    }

    pub(super) async fn meta_count(&self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        let flags = &arithmetic.meta.flags;
        if flags.vivify_exptime_s.is_none() || !flags.is_quiet() {
            return self.meta_count_once(arithmetic, true, false).await;
        }
        // A quiet client gets a reply if the item was created, but servers do not report whether it was.
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
        let issued = self.send(key.bytes(), SHORT, Expect::Meta, None, |out, bound| {
            let time_s = |exptime_s: Option<i32>| bound.limit(exptime_s.unwrap_or(0));
            let down = arithmetic.direction == Direction::Decrement;
            let mut line = request::meta_arithmetic(out.text(), key)
                .flag(b'v')
                .mode(if down { b'D' } else { b'I' })
                .number(b'D', flags.delta)
                .number(b'J', flags.initial);
            for (letter, _) in flags.iter() {
                line = match letter {
                    b'N' if vivify => line.time(b'N', time_s(flags.vivify_exptime_s)),
                    b'T' => line.time(b'T', time_s(flags.exptime_s)),
                    b'C' => line.number(b'C', flags.compare.unwrap_or(0)),
                    b't' | b'c' => line.flag(letter),
                    _ => line,
                };
            }
            with_later_flags(line, flags).end();
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
            Answer::Error(line) if is_non_numeric(&line.text) => Ok(Count::NonNumeric),
            other => Err(unexpected(other)),
        }
    }

    pub(super) async fn meta_debug(&self, key: &MetaKey<'_>) -> Outcome<Option<MetaDebug>> {
        let issued = self.send(key.bytes(), SHORT, Expect::Debug, None, |out, _| {
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
        let issued = self.send(key.bytes(), traffic, Expect::Meta, granted, |out, _| {
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
                given_cas: None,
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
        let issued = self.send(key.bytes(), traffic, Expect::MetaWritten, None, |out, bound| {
            let value_bytes = value.as_slice().len();
            let line = request::meta_set(out.text(), key, value_bytes)
                .flag(b'c')
                .number(b'F', u64::from(version.client_flags))
                .number(b'C', version.cas);
            let line = with_given_cas(line, version.given_cas);
            match bound.limit_or_set(exptime_s.or(kept)) {
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
        let issued: Vec<Issued> = self.view().links().map(ask).collect();
        for request in issued {
            match request.await.map_err(Failure::Link)? {
                Answer::Done => {}
                other => return Err(unexpected(other)),
            }
        }
        Ok(())
    }

    /// Returns the servers' statistics. Numbers are summed; other values are the first server's.
    pub(super) async fn stats(&self, page: &str) -> Option<Vec<(String, String)>> {
        let ask = |link: &Link| {
            link.request(Traffic::Bulk, Expect::Stats, |out| request::stats(out.text(), page))
        };
        let view = self.view();
        let issued: Vec<Issued> = view.links().map(ask).collect();
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
        if view.links().count() > 1 {
            // Each server has its own clock, so there is no time for the ring.
            summed.retain(|(name, _)| name != "time");
        }
        Some(summed)
    }

    /// Returns the expiry with which a rewritten item keeps its end of life. Servers report the remaining
    /// life in whole seconds. The time since the report is therefore rounded at random, up with the
    /// probability of its fraction, so that repeated rewrites neither extend nor shorten the life on average.
    async fn kept_exptime_s(&self, key: &MetaKey<'_>, life: Life) -> Outcome<Option<i32>> {
        let Life::Left { left_s, asked } = life else { return Ok(None) };
        // memcached interprets longer times as dates on its own clock.
        let since_s = if left_s > limits::EXPTIME_RELATIVE_MAX_S {
            self.server_time_s(key).await?
        } else {
            0
        };
        let left_s = i64::from(self.still_left_s(left_s, asked));
        let exptime_s = if left_s > i64::from(limits::EXPTIME_RELATIVE_MAX_S) {
            since_s + left_s
        } else {
            left_s
        };
        Ok(Some(i32::try_from(exptime_s).unwrap_or(i32::MAX)))
    }

    fn still_left_s(&self, left_s: u32, asked: Instant) -> u32 {
        let since_s = asked.elapsed().as_secs_f64();
        let draw = self.0.draws.borrow_mut().unit();
        let passed_s = (since_s + draw).floor() as u32;
        // At least 1, because 0 would mean that the item never expires.
        left_s.saturating_sub(passed_s).max(1)
    }

    /// Returns the Unix time of the server that owns the key (s). Its clock may differ from this machine's.
    async fn server_time_s(&self, key: &MetaKey<'_>) -> Outcome<i64> {
        let asked = self.send(key.bytes(), Traffic::Bulk, Expect::Stats, None, |out, _| {
            request::stats(out.text(), "");
        });
        let stats = match asked.await.map_err(Failure::Link)? {
            Answer::Stats(stats) => stats,
            other => return Err(unexpected(other)),
        };
        let time = stats.iter().find(|(name, _)| name == "time");
        let time_s = time.and_then(|(_, value)| value.parse().ok());
        time_s.ok_or_else(|| Failure::line(b"SERVER_ERROR the store does not tell its time"))
    }

    pub(super) fn mark_stale(&self, key: &MetaKey<'_>, cas: u64) -> Issued {
        self.send(key.bytes(), SHORT, Expect::Meta, None, |out, _| {
            request::meta_delete(out.text(), key).number(b'C', cas).flag(b'I').end();
        })
    }

    async fn read_stored_by_meta(&self, key: &MetaKey<'_>) -> Outcome<Option<Seen>> {
        let issued = self.send(key.bytes(), Traffic::Bulk, Expect::Meta, None, |out, _| {
            request::meta_get(out.text(), key).flag(b'v').flag(b'c').end();
        });
        match issued.await.map_err(Failure::Link)? {
            Answer::MetaMiss => Ok(None),
            Answer::Meta { returned, value: Some(value), .. } => {
                Ok(Some(Seen { value, cas: returned.cas, won: returned.won }))
            }
            other => {
                let failure = unexpected(other);
                if let Failure::OverBudget(over_budget) = &failure
                    && let Some(cas) = over_budget.right()
                {
                    let _ = self.mark_stale(key, cas).await;
                }
                Err(failure)
            }
        }
    }

    /// Reads a stored value, with a plain get if the key allows it.
    pub(super) async fn read_stored(&self, key: &MetaKey<'_>) -> Outcome<Option<Seen>> {
        let Ok(key) = Key::new(key.bytes()) else {
            return self.read_stored_by_meta(key).await;
        };
        let expect = Expect::Values { keys_max: 1 };
        let issued = self.send(&key, Traffic::Bulk, expect, None, |out, _| {
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
}

impl SentGet {
    pub(crate) async fn items(self, get: &Get<'_>) -> Outcome<Found> {
        let request = match self {
            SentGet::OfOneKey(request) => request,
            SentGet::OfSeveral(requests) => return Box::pin(requests.items(get)).await,
        };
        let may_miss = request.may_miss;
        let answer = match request.await {
            Ok(answer) => answer,
            Err(error) if may_miss => {
                error.count_misses(1);
                return Ok(Found::whole(Items::from_buf([None])));
            }
            Err(error) => return Err(Failure::Link(error)),
        };
        match answer {
            Answer::Values(values) => {
                let key = get.keys.clone().next();
                let is_asked = |value: &Value| key.is_some_and(|key| value.key[..] == *key);
                let found = values.into_iter().next().filter(is_asked);
                Ok(Found::whole(Items::from_buf([found.map(Item::from)])))
            }
            other => Err(unexpected(other)),
        }
    }
}

impl Requests {
    async fn items(self, get: &Get<'_>) -> Outcome<Found> {
        let Self { requests, owners } = self;
        // The values of each answer. A server that could not answer has none, and its keys are lost or misses.
        let mut answers: SmallVec<[_; 4]> = SmallVec::new();
        let mut is_lost: SmallVec<[bool; 4]> = SmallVec::new();
        let mut wanted: SmallVec<[u64; 1]> = SmallVec::new();
        let (mut failure, mut is_over_budget) = (None, false);
        // Waits for all requests, even after one has failed: later requests must not take effect before them.
        for (index, request) in (0..).zip(requests) {
            let may_miss = request.may_miss;
            let (values, lost_by) = match request.await {
                Ok(Answer::Values(values)) => (values, None),
                Ok(Answer::OverBudget { bytes, .. }) => {
                    is_over_budget = true;
                    wanted.push(bytes.max(1));
                    continue;
                }
                Ok(other) => (SmallVec::new(), Some(unexpected(other))),
                Err(error) if may_miss => {
                    error.count_misses(owners.iter().filter(|owner| **owner == index).count());
                    (SmallVec::new(), None)
                }
                Err(error) => (SmallVec::new(), Some(Failure::Link(error))),
            };
            wanted.push(permit_bytes(&values));
            answers.push(values.into_iter().peekable());
            is_lost.push(lost_by.is_some());
            failure = failure.or(lost_by);
        }
        if is_over_budget {
            return Err(Failure::OverBudget(OverBudget { wanted, returned: None }));
        }
        let mut keys_owners = owners.iter();
        let item = |key: Key<'_>| {
            let owner = keys_owners.next().map_or(0, |owner| usize::from(*owner));
            answers.get_mut(owner)?.next_if(|value| value.key[..] == *key).map(Item::from)
        };
        let items = get.keys.map(item).collect();
        let lost = failure.map(|failure| {
            let keys = owners.iter().map(|owner| is_lost[usize::from(*owner)]).collect();
            Box::new(Lost { failure, keys })
        });
        Ok(Found { items, lost })
    }
}

impl LinkError {
    /// Counts keys that are answered as misses.
    #[cold]
    pub(super) fn count_misses(&self, keys: usize) {
        if let Some(server) = &self.server {
            server.misses.add(keys as u64);
        }
    }
}

impl From<Value> for Item {
    fn from(Value { value, client_flags, cas, .. }: Value) -> Self {
        Self { value, hot: None, client_flags, cas, version: None }
    }
}

/// Composes a request for `keys`, which are some of the keys of `get`.
fn ask_for<'a>(
    out: &mut Vec<u8>,
    get: &Get<'_>,
    bound: Bound,
    keys: impl IntoIterator<Item = Key<'a>>,
) {
    match get.touch_exptime_s {
        None => request::get(out, keys, get.with_cas),
        Some(exptime_s) => {
            request::get_and_touch(out, bound.limit(exptime_s), keys, get.with_cas);
        }
    }
}

/// Appends the flags that memcached has since 1.6.27. Older servers refuse them.
fn with_later_flags<'o>(line: MetaLine<'o>, flags: &MetaFlags<'_>) -> MetaLine<'o> {
    let line = if flags.has(b'x') { line.flag(b'x') } else { line };
    with_given_cas(line, flags.given_cas)
}

fn with_given_cas(line: MetaLine<'_>, given_cas: Option<u64>) -> MetaLine<'_> {
    match given_cas {
        Some(cas) => line.number(b'E', cas),
        None => line,
    }
}

/// The traffic class of requests without values in either direction.
const SHORT: Traffic = Traffic::Interactive;

fn is_non_numeric(line: &[u8]) -> bool {
    line.starts_with(b"CLIENT_ERROR cannot increment or decrement")
}

fn append(out: &mut ReplyBuffer, value: Stored<'_>) {
    match value {
        Stored::Slice(bytes) => out.text().extend_from_slice(bytes),
        Stored::Shared(stored) | Stored::WithLogical { stored, .. } => out.value(stored),
    }
    out.text().extend_from_slice(b"\r\n");
}
