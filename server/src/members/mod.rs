//! The servers of the ring: the list, and which of them are out of use. One thread changes this state, and each
//! worker has its own copy of the list, which a message replaces. A request therefore needs no atomic access and
//! no lock to find its server.
//!
//! `outliers` decides which servers are out, `lookup` finds the servers behind names (with `elasticache` for the lists
//! of configuration endpoints), and `watch` does both over and over. This module opens no connections to stores.

mod elasticache;
mod lookup;
mod outliers;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use api::Address;
use parking_lot::{Mutex, RwLock};
use store::{Distribution, Ring};
use tls::Application;
use tokio::sync::Notify;

use crate::config::{Config, DistributionName, HostPort, LostKeys, RingSource, StoreUrl};
use crate::counters::Counter;
use crate::errors::ErrorCounts;
use crate::upstream::StoreLogin;
use crate::worker::{Worker, WorkerMessage};

pub(crate) use outliers::{Reason, Standing};
pub(crate) use watch::{LookupFailure, NameStatus};

/// A server of the ring. All workers share it, as do all versions of the list that contain it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) address: MemberAddress,
    /// The address as text, which is the server's name in metrics and the log.
    pub(crate) name: String,
    /// The errors that clients got because of this server.
    pub(crate) errors: ErrorCounts,
    /// The keys that were answered as misses because this server could not answer.
    pub(crate) misses: Counter,
    /// The requests that the next server got because this server is out.
    pub(crate) moved: Counter,
    /// The times that the server was taken out, by reason.
    pub(crate) ejections: [Counter; Reason::ALL.len()],
    /// The times that the server refused the login of this process.
    pub(crate) logins_refused: Counter,
    /// The times that the server came back.
    pub(crate) returns: Counter,
    standing: Mutex<Standing>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberAddress {
    Memcached(HostPort),
    Service(Address),
}

impl fmt::Display for MemberAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberAddress::Memcached(server) => server.fmt(f),
            MemberAddress::Service(service) => service.fmt(f),
        }
    }
}

impl MemberAddress {
    /// Returns the server as the ring hashes it.
    fn hashed(&self, weight: u32) -> store::Server {
        let named = |host: &str, port| store::Server { host: host.to_owned(), port, weight };
        match self {
            MemberAddress::Memcached(server) => named(&server.host, server.port),
            MemberAddress::Service(Address::Tcp(text) | Address::Tls(text)) => {
                match text.rsplit_once(':') {
                    Some((host, port)) => named(host, port.parse().unwrap_or(0)),
                    None => named(text, 0),
                }
            }
            // Unix sockets have no port.
            MemberAddress::Service(Address::Unix(path)) => named(&path.to_string_lossy(), 0),
        }
    }
}

impl Member {
    pub(crate) fn new(address: MemberAddress) -> Self {
        Self {
            name: address.to_string(),
            address,
            errors: ErrorCounts::default(),
            misses: Counter::default(),
            moved: Counter::default(),
            ejections: Default::default(),
            logins_refused: Counter::default(),
            returns: Counter::default(),
            standing: Mutex::new(Standing::new(SystemTime::now())),
        }
    }

    /// Returns whether the server is in the ring or out of it, since when and why.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }
}

/// A version of the list of servers. It never changes.
#[derive(Debug)]
pub(crate) struct RingState {
    pub(crate) ring: Ring,
    /// The servers, in the order of the ring's indexes.
    pub(crate) seats: Vec<Seat>,
    pub(crate) lost_keys: LostKeys,
    /// The longest life of items that the next server gets (s).
    pub(crate) next_ttl_s: u32,
}

/// A server in a version of the list.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) member: Arc<Member>,
    pub(crate) weight: u32,
    /// True if the server is out of the ring: its keys get what `store.lost_keys` says.
    pub(crate) is_out: bool,
}

/// A server of a new list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) address: MemberAddress,
    pub(crate) weight: u32,
}

/// The ring of a process. It is empty with the embedded store.
pub(crate) struct Members {
    has_ring: bool,
    distribution: Distribution,
    state: Mutex<Arc<RingState>>,
    /// What lookups have found behind the entries of the list that are names.
    names: Mutex<HashMap<RingSource, watch::Name>>,
    /// The login of this process at the servers, and at the endpoints that list them.
    login: Option<StoreLogin>,
    workers: OnceLock<Arc<[Worker]>>,
    config: RwLock<Arc<Config>>,
    /// Is notified when the configuration has changed.
    changed: Notify,
    pub(crate) counts: MemberCounts,
}

/// Counts of lookups and changes of the list.
#[derive(Debug, Default)]
pub(crate) struct MemberCounts {
    pub(crate) lookups_done: Counter,
    pub(crate) lookups_failed: Counter,
    pub(crate) list_changes: Counter,
}

impl Members {
    /// Creates the ring of `config`, with the servers that need no lookup.
    pub(crate) fn new(config: &Arc<Config>, url: &StoreUrl, login: Option<StoreLogin>) -> Self {
        let distribution = match config.store.distribution {
            DistributionName::Ketama => Distribution::Ketama,
            DistributionName::KetamaWeighted => Distribution::KetamaWeighted,
            DistributionName::Modula => Distribution::Modula,
        };
        let members = Self {
            has_ring: *url != StoreUrl::Embedded,
            distribution,
            state: Mutex::new(Arc::new(RingState {
                ring: Ring::new(&[], distribution),
                seats: Vec::new(),
                lost_keys: config.store.lost_keys,
                next_ttl_s: config.store.next_ttl_s,
            })),
            names: Mutex::default(),
            login,
            workers: OnceLock::new(),
            config: RwLock::new(Arc::clone(config)),
            changed: Notify::new(),
            counts: MemberCounts::default(),
        };
        members.install(&lookup::listed(url, &|_| None));
        members
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.has_ring
    }

    /// Returns the current version of the list.
    pub(crate) fn state(&self) -> Arc<RingState> {
        Arc::clone(&self.state.lock())
    }

    /// Sets the workers that get new versions of the list.
    pub(crate) fn set_workers(&self, workers: &Arc<[Worker]>) {
        let _ = self.workers.set(Arc::clone(workers));
    }

    /// Takes over a new configuration. The list follows within milliseconds, or when its names are found.
    pub(crate) fn reload(&self, config: &Arc<Config>) {
        *self.config.write() = Arc::clone(config);
        self.changed.notify_one();
    }

    /// Returns the servers, and the endpoints that list them, that are reached over TLS, with the protocol of each.
    pub(crate) fn peers_of_tls(&self) -> BTreeMap<String, Application> {
        let state = self.state();
        let seats = state.seats.iter().filter_map(|seat| {
            match &seat.member.address {
                MemberAddress::Memcached(server) => server.is_tls.then_some(Application::Plain),
                MemberAddress::Service(Address::Tls(_)) => Some(Application::Http2),
                MemberAddress::Service(_) => None,
            }
            .map(|application| (seat.member.name.clone(), application))
        });
        let endpoints = self.sources().into_iter().filter_map(|source| match source {
            RingSource::ElastiCache(endpoint) if endpoint.is_tls => {
                Some((endpoint.to_string(), Application::Plain))
            }
            _ => None,
        });
        seats.chain(endpoints).collect()
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read())
    }

    /// Replaces the list by these servers. Servers that stay keep their counts and their standing. Returns whether
    /// the list has changed.
    pub(crate) fn install(&self, list: &[Listed]) -> bool {
        let mut state = self.state.lock();
        let seat = |listed: &Listed| {
            let old = state.seats.iter().find(|seat| seat.member.address == listed.address);
            Seat {
                member: old.map_or_else(
                    || Arc::new(Member::new(listed.address.clone())),
                    |seat| Arc::clone(&seat.member),
                ),
                weight: listed.weight,
                is_out: old.is_some_and(|seat| seat.is_out),
            }
        };
        let seats: Vec<Seat> = list.iter().map(seat).collect();
        let is_same = |(new, old): (&Seat, &Seat)| {
            Arc::ptr_eq(&new.member, &old.member) && new.weight == old.weight
        };
        let is_changed =
            seats.len() != state.seats.len() || !seats.iter().zip(&state.seats).all(is_same);
        let config = &self.config.read().store;
        let rule = (config.lost_keys, config.next_ttl_s);
        if !is_changed && rule == (state.lost_keys, state.next_ttl_s) {
            return false;
        }
        let hashed: Vec<store::Server> =
            seats.iter().map(|seat| seat.member.address.hashed(seat.weight)).collect();
        let ring = Ring::new(&hashed, self.distribution);
        let (lost_keys, next_ttl_s) = rule;
        self.publish(&mut state, RingState { ring, seats, lost_keys, next_ttl_s });
        is_changed
    }

    /// Marks servers as out of the ring or in it.
    fn set_out(&self, changes: &[(Arc<Member>, bool)]) {
        let mut state = self.state.lock();
        let mut seats = state.seats.clone();
        for seat in &mut seats {
            let change = changes.iter().find(|(member, _)| Arc::ptr_eq(member, &seat.member));
            if let Some((_, is_out)) = change {
                seat.is_out = *is_out;
            }
        }
        let RingState { ring, lost_keys, next_ttl_s, .. } = &**state;
        let (ring, lost_keys, next_ttl_s) = (ring.clone(), *lost_keys, *next_ttl_s);
        self.publish(&mut state, RingState { ring, seats, lost_keys, next_ttl_s });
    }

    /// Sends a new version to all workers. The caller holds the lock, so that all get the same order of versions.
    fn publish(&self, current: &mut Arc<RingState>, new: RingState) {
        *current = Arc::new(new);
        for worker in self.workers.get().iter().flat_map(|workers| workers.iter()) {
            worker.send(WorkerMessage::Ring(Arc::clone(current)));
        }
    }
}
