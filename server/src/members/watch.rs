//! Keeps the ring as it should be: finds the servers behind names at the start, on a timer and after a reload,
//! and judges the servers after each round of probes. A failed lookup changes nothing: the last list stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use units::Nanos;

use super::lookup::{Found, Resolver, listed};
use super::outliers::{self, Observation};
use super::{Listed, Member, Members, Seat};
use crate::config::{RingSource, StoreUrl};
use crate::probe::{Finding, Findings};

/// The last result of each lookup.
#[derive(Default)]
struct Results(HashMap<RingSource, Found>);

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
                let resolver = Resolver::new(&self.config().store.resolver);
                self.look_up(&resolver, &mut Results::default()).await;
            }),
            Err(error) => tracing::warn!(%error, "names of the ring cannot be looked up yet"),
        }
    }

    /// Keeps the list up to date, for as long as the future is polled.
    pub(crate) async fn watch(&self) {
        let resolver = Resolver::new(&self.config().store.resolver);
        let mut results = Results::default();
        loop {
            self.look_up(&resolver, &mut results).await;
            let every = Duration::from_secs(self.config().store.resolve_every_s);
            let has_names = !self.sources().is_empty();
            tokio::select! {
                () = tokio::time::sleep(every), if has_names => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Looks up all names at once and installs the list.
    async fn look_up(&self, resolver: &Result<Resolver, String>, results: &mut Results) {
        let config = self.config();
        let Ok(url) = config.store.url.parse::<StoreUrl>() else { return };
        let sources = self.sources();
        let find = async |source: &RingSource| match resolver {
            Ok(resolver) => resolver.find(source).await,
            Err(why) => Err(why.clone()),
        };
        let found = join_all(sources.iter().map(find)).await;
        for (source, found) in sources.iter().zip(found) {
            match found {
                Ok(found) => {
                    self.counts.lookups_done.up();
                    results.0.insert(source.clone(), found);
                }
                Err(why) => {
                    self.counts.lookups_failed.up();
                    tracing::warn!(name = %source, why, "a name of the ring was not found");
                }
            }
        }
        results.0.retain(|source, _| sources.contains(source));
        if sources.iter().any(|source| !results.0.contains_key(source)) && self.has_servers() {
            // This name was never found, so the current list stays. Other changes of the configuration apply.
            self.install(&self.current_list());
            return;
        }
        if self.install(&listed(&url, &|source| results.0.get(source).cloned())) {
            self.counts.list_changes.up();
            let state = self.state();
            let servers: Vec<&str> = state.seats.iter().map(|seat| &*seat.member.name).collect();
            tracing::info!("the ring has {} servers: {}", servers.len(), servers.join(", "));
        }
    }

    fn current_list(&self) -> Vec<Listed> {
        let state = self.state();
        let listed =
            |seat: &Seat| Listed { address: seat.member.address.clone(), weight: seat.weight };
        state.seats.iter().map(listed).collect()
    }

    fn has_servers(&self) -> bool {
        !self.state().seats.is_empty()
    }

    /// Returns the entries of the ring that need a lookup.
    fn sources(&self) -> Vec<RingSource> {
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
            latency_min: Nanos::millis(store.eject_latency_min_ms),
        };
        let before: Vec<_> = standings.iter().map(|standing| standing.since).collect();
        let now = SystemTime::now();
        let changed = outliers::judge(&mut standings, &observations, &limits, now);
        for (member, standing) in members.iter().zip(&standings) {
            *member.standing.lock() = standing.clone();
        }
        if changed.is_empty() {
            return;
        }
        let change = |&index: &usize| {
            let (member, is_out) = (members[index], standings[index].out.is_some());
            member.report(now.duration_since(before[index]).unwrap_or_default());
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
