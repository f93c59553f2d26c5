//! Keeps the ring as it should be: finds the servers behind names at the start, on a timer and after a reload,
//! and judges the servers after each round of probes. A failed lookup changes nothing: the last servers of the name
//! stay.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use units::Nanos;

use super::lookup::{Answer, Found, Resolver, listed};
use super::outliers::{self, Observation, Standing};
use super::{Listed, Member, Members, Seat};
use crate::config::{LostKeys, RingSource, StoreUrl};
use crate::probe::{Finding, Findings};

/// What lookups have found behind a name of the ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Name {
    /// The servers of the last lookup that found some.
    servers: Found,
    /// The failure of the last lookup, if it failed.
    failure: Option<LookupFailure>,
}

/// A lookup that fails, and has failed since a time.
#[derive(Clone, Debug)]
pub(crate) struct LookupFailure {
    pub(crate) why: String,
    pub(crate) since: SystemTime,
}

/// The state of a name of the ring, for the admin pages.
#[derive(Clone, Debug)]
pub(crate) struct NameStatus {
    /// The entry of `store.url`.
    pub(crate) name: String,
    /// The number of servers that the ring has of it.
    pub(crate) servers: usize,
    pub(crate) failure: Option<LookupFailure>,
}

impl Members {
    /// Finds the servers behind the names of the ring once, before clients can connect. Names that are not found
    /// now are looked up again by [`Members::watch`].
    pub(crate) fn look_up_at_start(&self) {
        if self.sources().is_empty() {
            return;
        }
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match executor {
            Ok(executor) => executor.block_on(async {
                let resolver = self.resolver();
                self.look_up(&resolver).await;
            }),
            Err(error) => tracing::warn!(%error, "names of the ring cannot be looked up yet"),
        }
    }

    /// Keeps the list up to date, for as long as the future is polled.
    pub(crate) async fn watch(&self) {
        let resolver = self.resolver();
        loop {
            self.look_up(&resolver).await;
            let every = Duration::from_secs(self.config().store.resolve_every_s);
            let has_names = !self.sources().is_empty();
            tokio::select! {
                biased;
                () = tokio::time::sleep(every), if has_names => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn resolver(&self) -> Result<Resolver, String> {
        Resolver::new(&self.config().store.resolver, self.login.clone())
    }

    /// Looks up all names at once and installs the list. A name that was never found has no servers. If no server is
    /// left without it, the current list stays.
    async fn look_up(&self, resolver: &Result<Resolver, String>) {
        let config = self.config();
        let Ok(url) = config.store.url.parse::<StoreUrl>() else { return };
        let sources = self.sources();
        let find = async |source: &RingSource| match resolver {
            Ok(resolver) => resolver.find(source, &self.last_servers(source)).await,
            Err(why) => Err(why.clone()),
        };
        let found = join_all(sources.iter().map(find)).await;
        for (source, found) in sources.iter().zip(found) {
            self.note_lookup(source, found);
        }
        self.names.lock().retain(|source, _| sources.contains(source));
        let list = listed(&url, &|source| Some(self.last_servers(source)));
        if list.is_empty() {
            // Other changes of the configuration apply.
            self.install(&self.current_list());
            return;
        }
        if self.install(&list) {
            self.counts.list_changes.up();
            let state = self.state();
            let servers: Vec<&str> = state.seats.iter().map(|seat| &*seat.member.name).collect();
            tracing::info!("the ring has {} servers: {}", servers.len(), servers.join(", "));
        }
    }

    /// Returns the servers of the last lookup that found some.
    fn last_servers(&self, source: &RingSource) -> Found {
        self.names.lock().get(source).map(|name| name.servers.clone()).unwrap_or_default()
    }

    /// Counts the result of a lookup, and logs it if it is news.
    fn note_lookup(&self, source: &RingSource, found: Result<Answer, String>) {
        let mut names = self.names.lock();
        let name = names.entry(source.clone()).or_default();
        let why = match found {
            Ok(Answer { servers, failed }) => {
                name.servers = servers;
                failed
            }
            Err(why) => Some(why),
        };
        let Some(why) = why else {
            self.counts.lookups_done.up();
            if name.failure.take().is_some() {
                tracing::info!(name = %source, "a name of the ring is found again");
            }
            return;
        };
        self.counts.lookups_failed.up();
        let last = name.failure.take();
        if last.as_ref().is_none_or(|last| last.why != why) {
            let servers_kept = name.servers.len();
            tracing::warn!(name = %source, why, servers_kept, "a name of the ring was not found");
        }
        let since = last.map_or_else(SystemTime::now, |last| last.since);
        name.failure = Some(LookupFailure { why, since });
    }

    /// Returns the state of each name of the ring.
    pub(crate) fn names(&self) -> Vec<NameStatus> {
        let names = self.names.lock();
        let status = |source: RingSource| {
            let name = names.get(&source).cloned().unwrap_or_default();
            let (servers, failure) = (name.servers.len(), name.failure);
            NameStatus { name: source.to_string(), servers, failure }
        };
        self.sources().into_iter().map(status).collect()
    }

    fn current_list(&self) -> Vec<Listed> {
        let state = self.state();
        let listed =
            |seat: &Seat| Listed { address: seat.member.address.clone(), weight: seat.weight };
        state.seats.iter().map(listed).collect()
    }

    /// Returns the entries of the ring that need a lookup.
    pub(super) fn sources(&self) -> Vec<RingSource> {
        let Ok(StoreUrl::Memcached(entries)) = self.config().store.url.parse() else {
            return Vec::new();
        };
        let sources = entries.into_iter().map(|entry| entry.source);
        sources.filter(|source| !matches!(source, RingSource::Server(_))).collect()
    }

    /// Judges the servers by what the workers found in a round of probes.
    pub(crate) fn judge(&self, found: &[Option<Findings>]) {
        let state = self.state();
        let members: Vec<&Arc<Member>> = state.seats.iter().map(|seat| &seat.member).collect();
        let observations: Vec<Observation> =
            members.iter().map(|member| observe(member, found)).collect();
        let mut standings: Vec<_> = members.iter().map(|member| member.standing()).collect();
        let store = &self.config().store;
        let limits = outliers::Limits {
            share_max: store.eject_share_max,
            failures: u64::from(store.eject_failures),
            slower: u64::from(store.eject_slower),
            // A late answer is better than an error.
            ejects_slow: store.lost_keys != LostKeys::Error,
            latency_min: Nanos::millis(store.eject_latency_min_ms),
        };
        let before = standings.clone();
        let now = SystemTime::now();
        let changed = outliers::judge(&mut standings, &observations, &limits, now);
        for ((member, standing), before) in members.iter().zip(&standings).zip(&before) {
            *member.standing.lock() = standing.clone();
            member.report_speed(standing, before);
        }
        if changed.is_empty() {
            return;
        }
        let change = |&index: &usize| {
            let (member, is_out) = (members[index], standings[index].out.is_some());
            member.report(now.duration_since(before[index].since).unwrap_or_default());
            (Arc::clone(member), is_out)
        };
        self.set_out(&changed.iter().map(change).collect::<Vec<_>>());
    }
}

impl Member {
    /// Logs and counts that the server has left the ring or come back, after `lasted` in its last state.
    fn report(&self, lasted: Duration) {
        let (server, standing) = (&self.name, self.standing());
        match standing.out {
            Some((reason, why)) => {
                self.ejections[reason as usize].up();
                let reason = reason.name();
                tracing::warn!(server, reason, why = &*why, "a server is out of the ring");
            }
            None => {
                self.returns.up();
                let out_s = lasted.as_secs();
                tracing::info!(server, out_s, "a server is back in the ring");
            }
        }
    }

    /// Logs that a server that stays in the ring has become slow, or as fast as the others again.
    fn report_speed(&self, standing: &Standing, before: &Standing) {
        let server = &self.name;
        match (&standing.slow, &before.slow) {
            (Some(why), None) if standing.out.is_none() => {
                tracing::warn!(server, why = &**why, "a server of the ring is slow");
            }
            (None, Some(_)) if before.out.is_none() => {
                tracing::info!(server, "a server of the ring is no longer slow");
            }
            _ => {}
        }
    }
}

/// Returns what all workers found about a server.
fn observe(member: &Arc<Member>, found: &[Option<Findings>]) -> Observation {
    let mut sum = Observation::default();
    for findings in found.iter().flatten() {
        let asked = findings.ring.iter().flat_map(|ring| &ring.seats).zip(&findings.servers);
        let mut asked = asked.filter(|(seat, _)| Arc::ptr_eq(&seat.member, member));
        let Some((_, finding)) = asked.next() else { continue };
        let Finding { why, is_silent, seen } = finding;
        sum.workers += 1;
        sum.away += usize::from(why.is_some());
        sum.silent += usize::from(*is_silent);
        sum.why = sum.why.or_else(|| why.clone());
        sum.failures_in_row += u64::from(seen.failures_in_row);
        sum.failing += usize::from(seen.failures_in_row > 0);
        sum.fine += usize::from(seen.failures_in_row == 0 && seen.answers > 0);
        sum.latency_sum += seen.latency_sum;
        sum.answers += seen.answers;
    }
    sum
}
