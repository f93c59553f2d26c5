//! What was read of a cache before anything is computed, and the steps in which a live server is read.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::classes::{Class, Classes, plan};
use super::facts::{Counters, Facts};
use super::hits::Observed;
use super::link::{Connect, Link};
use super::listing::{Listed, RequestKind};
use super::log::{LoggedRequest, RequestLog};
use super::memory::{Slabs, overhead_bytes};
use super::probe::{Ending, Limits, Read, VALUE_BYTES_MAX, Value, cachedump, metadump, sample};
use super::watch::{Watched, key_hash, watch};
use super::{BesideItems, Error, Options, Progress, Run};

/// Everything that was read of a cache.
pub(super) struct Reading {
    pub(super) source: SourceFacts,
    pub(super) classes: Vec<Class>,
    pub(super) values: Vec<Value>,
    pub(super) slabs: Slabs,
    pub(super) has_cas: bool,
    /// Whether the list gave the size of each item in memcached. Rebate lists the sizes that it stores.
    pub(super) has_sizes: bool,
    /// The rates of each class, if a server was read.
    pub(super) rates: Option<Vec<Rates>>,
    /// What tells the hits in another memory, if a server was read.
    pub(super) observed: Option<Observed>,
    /// What Rebate's memory holds beside items.
    pub(super) beside: BesideItems,
    /// Whether the server evicts items, if a server was read.
    pub(super) evicts: Option<bool>,
    pub(super) notes: Vec<String>,
}

/// What was read, for the reader of the estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SourceFacts {
    /// The address or the folder.
    pub name: String,
    /// The server's version. It is missing for a folder.
    pub version: Option<String>,
    /// The server's memory limit (bytes), if it tells.
    pub limit_bytes: Option<u64>,
    /// The number of items that the cache holds.
    pub items: u64,
    /// The number of items that were listed.
    pub items_listed: u64,
    /// The number of values that were read.
    pub values_read: usize,
    /// The server's gets per second.
    pub gets_per_s: Option<f64>,
    /// The share of gets that found a value.
    pub hit_ratio: Option<f64>,
    /// The server's sets per second.
    pub sets_per_s: Option<f64>,
    /// The requests that `watch` showed.
    pub requests_watched: Option<u64>,
}

/// Requests per second that need the codecs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Gets that find a value.
    pub(super) hits_per_s: f64,
    pub(super) sets_per_s: f64,
}

/// The steps of reading a live server.
struct ServerReader<'a> {
    connect: &'a Connect<'a>,
    options: &'a Options,
    limits: Limits<'a>,
    facts: Facts,
    classes: Classes,
    /// The items that are followed, with the time of their last access (s since the Unix epoch).
    followed: Vec<(LoggedRequest, u64)>,
    log: RequestLog,
    /// Whether only a part of the items was listed.
    is_cut: bool,
    notes: Vec<String>,
}

/// Reads a live server.
pub(super) fn read_server(
    name: &str,
    connect: &Connect<'_>,
    options: &Options,
    run: &mut Run<'_>,
) -> Result<Reading, Error> {
    let mut link = Link::open(connect, run.stop)?;
    let mut notes = Vec::new();
    let facts = Facts::ask(&mut link, &mut notes)?;
    let items = facts.counters.items;
    if facts.is_rebate() {
        notes.push(
            "The server is Rebate already. It is compared with a memcached of default slab classes."
                .to_owned(),
        );
    }
    let limits = Limits {
        requests_per_s: options.requests_per_s,
        bytes_per_s: options.bytes_per_s,
        list_max: LIST_MAX,
        stop: run.stop,
    };
    let mut reader = ServerReader {
        connect,
        options,
        limits,
        facts,
        classes: Classes::new(&options.prefixes, options.values, options.seed),
        followed: Vec::new(),
        log: RequestLog::new(KEYS_FOLLOWED / items.max(1) as f64),
        is_cut: false,
        notes,
    };
    reader.list(run)?;
    let values = reader.read_values(run)?;
    let (traffic, watched) = reader.observe(&mut link, run)?;
    Ok(reader.finish(name, values, traffic, watched))
}

impl ServerReader<'_> {
    /// Lists the items, in the best way that the server has.
    fn list(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        run.report(Progress { part: "list", fraction: 0.0, message: String::new() });
        let mut refusal = String::new();
        for order in ["hash", "all"] {
            match self.metadump(order, run)? {
                Ending::Refused(answer) => refusal = answer,
                ending => return self.check_listed(ending, order),
            }
        }
        self.notes.push(format!(
            "`lru_crawler metadump` is refused ({refusal:?}). `stats cachedump` lists only the most recent items, so \
             older items may differ, and no curve can be drawn from ages."
        ));
        let Self { classes, facts, limits, .. } = self;
        let slabs = &facts.slabs;
        let mut link = Link::open(self.connect, limits.stop)?;
        let ending = cachedump(&mut link, limits, facts.has_cas, |listed| {
            let memory = slabs.item_bytes(listed.item_bytes);
            classes.add(listed, memory);
        })?;
        if let Ending::Refused(answer) = &ending {
            return Err(Error::Failed(format!(
                "the server lists no items: `lru_crawler metadump` is answered with {refusal:?} and `stats cachedump` \
                 with {answer:?}. Start it without -X, or give values with --corpus"
            )));
        }
        self.check_listed(ending, "cachedump")
    }

    /// Lists the items on a connection of its own, because only its end stops the server's crawler.
    fn metadump(&mut self, order: &str, run: &mut Run<'_>) -> Result<Ending, Error> {
        let mut link = Link::open(self.connect, self.limits.stop)?;
        let items = self.facts.counters.items.max(1);
        let mut count = 0_u64;
        let Self { classes, facts, limits, followed, log, .. } = self;
        let has_sizes = !facts.is_rebate();
        let take = |listed: Listed| {
            let hash = key_hash(&listed.key);
            let is_followed = log.follows(hash) && followed.len() < FOLLOWED_MAX;
            let accessed_s = listed.accessed_s.filter(|_| is_followed);
            let item_bytes = if has_sizes { listed.item_bytes as u32 } else { 0 };
            let memory = facts.slabs.item_bytes(listed.item_bytes);
            let class = classes.add(listed, memory) as u16;
            if let Some(accessed_s) = accessed_s {
                let kind = RequestKind::Set;
                followed.push((LoggedRequest { hash, item_bytes, class, kind }, accessed_s));
            }
            count += 1;
            if count.is_multiple_of(1_000) {
                let fraction = (count as f64 / items as f64).min(1.0);
                let message = format!("{count} items listed");
                run.report(Progress { part: "list", fraction, message });
            }
        };
        metadump(&mut link, order, limits, take)
    }

    fn check_listed(&mut self, ending: Ending, order: &str) -> Result<(), Error> {
        let listed = self.classes.items();
        if self.limits.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let claimed = self.facts.counters.items;
        if listed == 0 {
            return Err(Error::Failed(match ending {
                Ending::Cut if claimed > 0 => format!(
                    "the server holds {claimed} items and lists none of them (lru_crawler metadump), so there is \
                     nothing to estimate"
                ),
                _ => "the server holds no items, so there is nothing to estimate".to_owned(),
            }));
        }
        self.is_cut = ending == Ending::Cut;
        if self.is_cut {
            let bias = if order == "hash" {
                "They are a random sample, and intervals are a little wider."
            } else {
                "They are not a random sample: items of the other slab classes may differ."
            };
            self.notes.push(format!("Only {listed} items were listed. {bias}"));
        }
        Ok(())
    }

    /// Reads values on a connection of its own, which a stop may end within an answer.
    fn read_values(&mut self, run: &mut Run<'_>) -> Result<Vec<Value>, Error> {
        let mut link = Link::open(self.connect, self.limits.stop)?;
        self.classes.shuffle();
        let wanted = plan(self.classes.list(), self.options.values, VALUE_BYTES_MAX);
        let advance = |count: usize| {
            let fraction = count as f64 / wanted.len().max(1) as f64;
            run.report(Progress {
                part: "read",
                fraction,
                message: format!("{count} values read"),
            });
        };
        let (values, how) = sample(&mut link, &wanted, &self.limits, advance)?;
        if how != Read::Unmoved {
            self.notes.push(
                "The server has no `mg` with the flag `u`. Reading marked the sampled items as used, which may keep \
                 them longer."
                    .to_owned(),
            );
        }
        if values.is_empty() {
            let stopped = self.limits.stop.load(Ordering::Relaxed);
            let gone = Error::Failed(
                "no sampled value could be read: all are gone or too long".to_owned(),
            );
            return Err(if stopped { Error::Stopped } else { gone });
        }
        Ok(values)
    }

    /// Watches the requests and computes their rates. If the user stops before there are counters to compare, the rates
    /// are means since the server's start.
    fn observe(
        &mut self,
        link: &mut Link<'_>,
        run: &mut Run<'_>,
    ) -> Result<(Traffic, Option<Watched>), Error> {
        let at_start = self.facts.counters;
        let unless_stopped = |error| match error {
            Error::Stopped => Ok(at_start),
            error => Err(error),
        };
        let before = Counters::ask(link).or_else(unless_stopped)?;
        let start = Instant::now();
        let watched = match self.watch(run) {
            Err(Error::Stopped) => None,
            watched => watched?,
        };
        let time = start.elapsed();
        link.answer_soon();
        let after = match Counters::ask(link) {
            Err(_) if self.limits.stop.load(Ordering::Relaxed) => before,
            after => after?,
        };
        Ok((Traffic::new(before, after, time, at_start, &mut self.notes), watched))
    }

    /// Follows the clients' requests for the time that the user gave. The cache is filled with the keys that were
    /// listed, in the order of their last access.
    fn watch(&mut self, run: &mut Run<'_>) -> Result<Option<Watched>, Error> {
        self.followed.sort_by_key(|(_, accessed_s)| *accessed_s);
        self.log.filled = self.followed.iter().map(|(item, _)| *item).collect();
        let (time, stop) = (self.options.watch, run.stop);
        let mut advance = |passed: Duration| {
            let fraction = (passed.as_secs_f64() / time.as_secs_f64()).min(1.0);
            run.report(Progress { part: "watch", fraction, message: String::new() });
        };
        let found = watch(self.connect, time, stop, &self.classes, &mut self.log, &mut advance)?;
        match found {
            Ok(watched) => {
                if watched.skipped > 0 {
                    self.notes.push(format!(
                        "`watch` left out {} requests. Reuse is measured on the others.",
                        watched.skipped
                    ));
                }
                Ok(Some(watched))
            }
            Err(answer) => {
                self.notes.push(format!(
                    "`watch fetchers` is refused ({answer:?}). Requests are shared among classes by their items, \
                     and the hit ratio comes from the ages of items, with an interval of twice the width."
                ));
                let start = Instant::now();
                while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
                    thread::sleep(WAIT.min(time));
                    advance(start.elapsed());
                }
                Ok(None)
            }
        }
    }

    /// Returns the number of items that the server holds, as far as what it says of it can be true. A complete list
    /// leaves out only items that have expired and whose memory the server has not taken back yet.
    fn items(&mut self, listed: u64) -> u64 {
        let said = self.facts.counters.items;
        let possible = match self.facts.limit_bytes {
            _ if !self.is_cut => listed.saturating_mul(2),
            Some(limit_bytes) if limit_bytes > 0 => limit_bytes / overhead_bytes(false),
            _ => said,
        };
        if said > possible.max(listed) {
            self.notes.push(format!(
                "The server says that it holds {said} items, which does not agree with its list."
            ));
        }
        said.min(possible).max(listed)
    }

    fn finish(
        mut self,
        name: &str,
        values: Vec<Value>,
        traffic: Traffic,
        watched: Option<Watched>,
    ) -> Reading {
        let listed = self.classes.items();
        let items = self.items(listed);
        let coverage = listed as f64 / items as f64;
        let classes = self.classes.into_list();
        let total = watched.as_ref().map(Watched::total);
        let age_s = |(_, accessed_s): &(LoggedRequest, u64)| {
            self.facts.counters.time_s.saturating_sub(*accessed_s) as f64
        };
        let rates = traffic.by_class(&classes, watched.as_ref());
        let observed = Observed {
            log: self.log,
            watched,
            ages_s: self.followed.iter().map(age_s).collect(),
            requests_per_s: traffic.gets_per_s + traffic.sets_per_s,
            hit_ratio: traffic.hit_ratio,
            items: items as f64,
            coverage,
        };
        Reading {
            source: SourceFacts {
                name: name.to_owned(),
                version: Some(self.facts.version.clone()),
                limit_bytes: self.facts.limit_bytes,
                items,
                items_listed: listed,
                values_read: values.len(),
                gets_per_s: Some(traffic.gets_per_s),
                hit_ratio: Some(traffic.hit_ratio),
                sets_per_s: Some(traffic.sets_per_s),
                requests_watched: total.map(|total| total.gets + total.sets),
            },
            rates: Some(rates),
            observed: Some(observed),
            beside: self.options.beside,
            evicts: Some(traffic.evicts),
            has_sizes: !self.facts.is_rebate(),
            slabs: self.facts.slabs,
            has_cas: self.facts.has_cas,
            classes,
            values,
            notes: self.notes,
        }
    }
}

/// The requests of the server's clients.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Traffic {
    gets_per_s: f64,
    sets_per_s: f64,
    hit_ratio: f64,
    evicts: bool,
}

impl Traffic {
    /// Computes the rates between two moments. If there was no request, they are those since the server's start, before
    /// this program asked for anything.
    fn new(
        before: Counters,
        after: Counters,
        time: Duration,
        at_start: Counters,
        notes: &mut Vec<String>,
    ) -> Self {
        let since =
            |field: fn(&Counters) -> u64| field(&after).saturating_sub(field(&before)) as f64;
        let (mut gets, mut hits) =
            (since(|counters| counters.gets), since(|counters| counters.hits));
        let (mut sets, mut seconds) = (since(|counters| counters.sets), time.as_secs_f64());
        if gets + sets == 0.0 {
            notes.push(
                "There were no requests while the server was watched. Rates are means since its start.".to_owned(),
            );
            (gets, hits) = (at_start.gets as f64, at_start.hits as f64);
            (sets, seconds) = (at_start.sets as f64, at_start.uptime_s.max(1) as f64);
        }
        Self {
            gets_per_s: gets / seconds,
            sets_per_s: sets / seconds,
            hit_ratio: if gets > 0.0 { (hits / gets).min(1.0) } else { 0.0 },
            evicts: after.evictions > 0,
        }
    }

    /// Shares the requests among the classes: as they were watched, or by items.
    fn by_class(&self, classes: &[Class], watched: Option<&Watched>) -> Vec<Rates> {
        let total = watched.map(Watched::total).unwrap_or_default();
        let items: u64 = classes.iter().map(|class| class.items).sum();
        let share = |at: usize, count: Option<u64>, all: u64| match count {
            Some(count) if all > 0 => count as f64 / all as f64,
            _ => classes[at].items as f64 / items.max(1) as f64,
        };
        let seen =
            |at: usize| watched.map(|watched| watched.classes.get(at).copied().unwrap_or_default());
        let rates = |at: usize| Rates {
            hits_per_s: self.gets_per_s
                * self.hit_ratio
                * share(at, seen(at).map(|counts| counts.hits), total.hits),
            sets_per_s: self.sets_per_s * share(at, seen(at).map(|counts| counts.sets), total.sets),
        };
        (0..classes.len()).map(rates).collect()
    }
}

/// The number of keys that are followed for the miss-ratio curve.
const KEYS_FOLLOWED: f64 = 32_768.0;

/// The most keys that are followed, if a server holds many more items than it says.
const FOLLOWED_MAX: usize = 1 << 20;

/// The longest time for a list of items.
const LIST_MAX: Duration = Duration::from_secs(20);

/// The longest wait between two looks at the user's stop.
const WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::watch::Requests;
    use super::*;

    fn classes() -> Vec<Class> {
        [3, 1].map(|items| Class { items, ..Class::default() }).into()
    }

    fn traffic() -> Traffic {
        Traffic { gets_per_s: 100.0, sets_per_s: 8.0, hit_ratio: 0.5, evicts: true }
    }

    #[test]
    fn requests_are_shared_as_they_were_watched() {
        let requests = |hits, sets| Requests { gets: 2 * hits, hits, sets };
        let watched = Watched { classes: vec![requests(1, 0), requests(4, 2)], skipped: 0 };
        let rates = traffic().by_class(&classes(), Some(&watched));
        assert_eq!(rates[0], Rates { hits_per_s: 10.0, sets_per_s: 0.0 });
        assert_eq!(rates[1], Rates { hits_per_s: 40.0, sets_per_s: 8.0 });
    }

    #[test]
    fn without_watch_items_share_the_requests() {
        let rates = traffic().by_class(&classes(), None);
        assert_eq!(rates[0], Rates { hits_per_s: 37.5, sets_per_s: 6.0 });
    }

    #[test]
    fn an_idle_server_has_the_rates_since_its_start() {
        let start = Counters { gets: 100, hits: 40, sets: 10, uptime_s: 10, ..Counters::default() };
        let mut notes = Vec::new();
        let time = Duration::from_secs(1);
        let traffic = Traffic::new(start, start, time, start, &mut notes);
        assert_eq!((traffic.gets_per_s, traffic.sets_per_s, traffic.hit_ratio), (10.0, 1.0, 0.4));
        assert_eq!(notes.len(), 1);
        let after = Counters { gets: 300, hits: 140, evictions: 1, ..start };
        let traffic = Traffic::new(start, after, time, start, &mut notes);
        assert_eq!((traffic.gets_per_s, traffic.hit_ratio, traffic.evicts), (200.0, 0.5, true));
        assert_eq!(notes.len(), 1);
    }
}
