//! Operations on *stored* values, in the embedded store or in a ring of memcached servers. Each result is
//! available at once or as a future. This module knows nothing about frames and replies, and nothing about logical
//! values, except that the embedded store's items may come with those that are kept.

mod cluster;
mod local;
mod plain_get;
mod ring_answers;
mod ring_view;

use std::fmt;

use bytes::Bytes;
use protocol::command::{Arithmetic, Get, MetaArithmetic, MetaSet, Store};
use protocol::meta::Meta;
use protocol::reply::{ItemFacts, MetaOutcome};
use protocol::{Key, MetaKey};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::budget::Permit;
use crate::hot_values::HotValue;
use crate::upstream::{ErrorLine, Issued, LinkError, Traffic};
use crate::values::Stored;

pub(crate) use cluster::Cluster;
pub(crate) use local::{Local, LocalGet};
pub(crate) use plain_get::PlainGet;
pub(crate) use ring_answers::{OverBudget, facts_of_first};
pub(crate) use ring_view::{LinkParts, ProbeSlot};

/// The store that has the values.
#[derive(Clone)]
pub(crate) enum Backend {
    Local(Local),
    Cluster(Cluster),
}

/// The result of an operation, or a future of it.
pub(crate) enum Issue<T> {
    Ready(T),
    Sent(Issued),
}

/// An item as a get returns it.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Bytes,
    /// The logical value, if it is kept. `value` is then empty.
    pub(crate) hot: Option<HotValue>,
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
    /// The version in the embedded store, see [`store::embedded::Fetched::version`].
    pub(crate) version: Option<u64>,
}

/// The items of a get, in the order of its keys.
pub(crate) type Items = SmallVec<[Option<Item>; 1]>;

/// An item as the command mg returns it. It has a value if the value was requested.
#[derive(Debug)]
pub(crate) struct MetaItem {
    pub(crate) facts: ItemFacts,
    pub(crate) value: Option<Bytes>,
    /// The logical value, if it is kept. `value` is then empty.
    pub(crate) hot: Option<HotValue>,
    /// The version in the embedded store, see [`store::embedded::Fetched::version`].
    pub(crate) version: Option<u64>,
}

/// A version of an item, with the facts that are needed to replace only its value.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) value: Bytes,
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
    pub(crate) life: Life,
    /// True if the item was stale and reading it took the right to refill it. See [`Backend::release_win`].
    pub(crate) won: bool,
    /// True if a replacement of the item inherits its marks (fetched, stale), as after an increment.
    pub(crate) keeps_marks: bool,
    /// The CAS that a client has chosen for a replacement of the item.
    pub(crate) given_cas: Option<u64>,
}

/// A stored value as a plain get returns it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) value: Bytes,
    pub(crate) cas: u64,
    /// True if reading the value took the right to refill the item, as in [`Version::won`].
    pub(crate) won: bool,
}

impl From<Version> for Seen {
    fn from(version: Version) -> Self {
        let Version { value, cas, won, .. } = version;
        Self { value, cas, won }
    }
}

/// The time at which an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Never,
    /// Expires at a time on the embedded store's clock. `left_s` is the time left until then.
    Until {
        exptime_s: u32,
        left_s: u32,
    },
    /// Expires some whole seconds after a request, as a server reported in its answer.
    Left {
        left_s: u32,
        asked: Instant,
    },
}

impl Life {
    /// Returns the seconds left, or `None` if the item does not expire.
    pub(crate) fn left_s(self) -> Option<u32> {
        match self {
            Life::Never => None,
            Life::Until { left_s, .. } | Life::Left { left_s, .. } => Some(left_s),
        }
    }
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The value was stored. The version `cas` is 0 if the store does not report it.
    Stored {
        cas: u64,
    },
    NotStored,
    Exists,
    NotFound,
}

/// The result of an increment or a decrement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Done { number: u64, created: bool, facts: ItemFacts },
    NotFound,
    NotStored,
    Exists,
    NonNumeric,
}

/// The reason why an operation was not done. The session reports it to the client.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The exchange with a memcached server failed.
    Link(LinkError),
    /// A memcached server, or this process, refused the operation with this line.
    Line(ErrorLine),
    /// The embedded store is out of memory.
    OutOfMemory,
    /// There is no memory for the values of an answer.
    OverBudget(OverBudget),
}

impl Failure {
    /// Returns a refusal of this process. `line` is the whole error line, without CR LF.
    pub(crate) fn line(line: &[u8]) -> Self {
        Failure::Line(line.into())
    }
}

impl fmt::Display for Failure {
    /// Writes the whole error line, without CR LF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Link(error) => write!(f, "SERVER_ERROR {error}"),
            Failure::Line(line) => write!(f, "{}", String::from_utf8_lossy(&line.text)),
            Failure::OutOfMemory => f.write_str("SERVER_ERROR out of memory storing object"),
            Failure::OverBudget(_) => {
                f.write_str("SERVER_ERROR out of memory writing get response")
            }
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// A get on the embedded store, or a get whose requests were sent.
pub(crate) enum GetIssue {
    /// The embedded store. Each item is fetched when its reply is composed, so that at most one is held.
    Local(Local),
    /// One request was sent to each server that owns any of the keys.
    Sent(cluster::SentGet),
}

impl Backend {
    /// Returns a backend that returns all values in their stored form.
    pub(crate) fn as_stored(&self) -> Self {
        match self {
            Backend::Local(local) => Backend::Local(local.as_stored()),
            Backend::Cluster(cluster) => Backend::Cluster(cluster.clone()),
        }
    }

    /// Returns whether the store has memory that it does not need now. Of stores outside this process it is not known.
    pub(crate) fn has_spare_memory(&self) -> bool {
        matches!(self, Backend::Local(local) if local.has_spare_memory())
    }

    /// Returns whether the store is outside this process.
    pub(crate) fn has_links(&self) -> bool {
        matches!(self, Backend::Cluster(_))
    }

    /// Returns whether requests take effect in the order in which they are issued, even before they are answered.
    pub(crate) fn keeps_order(&self) -> bool {
        match self {
            Backend::Local(_) => true,
            Backend::Cluster(cluster) => cluster.keeps_order(),
        }
    }

    /// Gets items. `granted` is empty or, after a failure with [`OverBudget`], has the permits for the answers.
    pub(crate) fn get(
        &self,
        get: &Get<'_>,
        traffic: Traffic,
        granted: SmallVec<[Permit; 1]>,
    ) -> GetIssue {
        match self {
            Backend::Local(local) => GetIssue::Local(local.clone()),
            Backend::Cluster(cluster) => GetIssue::Sent(cluster.get(get, traffic, granted)),
        }
    }

    /// Stores a value by set, add, replace or cas (append and prepend need the logical value).
    pub(crate) fn store(
        &self,
        store: &Store<'_>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Issue<Outcome<Written>> {
        match self {
            Backend::Local(local) => Issue::Ready(local.store(store, &value)),
            Backend::Cluster(cluster) => Issue::Sent(cluster.store(store, value, traffic)),
        }
    }

    /// Deletes an item. The result is whether the item existed.
    pub(crate) fn delete(&self, key: Key<'_>, traffic: Traffic) -> Issue<Outcome<bool>> {
        match self {
            Backend::Local(local) => Issue::Ready(Ok(local.delete(&key))),
            Backend::Cluster(cluster) => Issue::Sent(cluster.delete(key, traffic)),
        }
    }

    /// Sets an item's expiry. The result is whether the item existed.
    pub(crate) fn touch(
        &self,
        key: Key<'_>,
        exptime_s: i32,
        traffic: Traffic,
    ) -> Issue<Outcome<bool>> {
        match self {
            Backend::Local(local) => Issue::Ready(Ok(local.touch(&key, exptime_s))),
            Backend::Cluster(cluster) => Issue::Sent(cluster.touch(key, exptime_s, traffic)),
        }
    }

    pub(crate) async fn count(&self, arithmetic: &Arithmetic<'_>) -> Outcome<Count> {
        match self {
            Backend::Local(local) => local.count(arithmetic),
            Backend::Cluster(cluster) => cluster.count(arithmetic).await,
        }
    }

    /// Reads an item with its metadata, and with its value if the client or `with_value` requests it.
    pub(crate) fn meta_get(
        &self,
        meta: &Meta<'_>,
        with_value: bool,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Issue<Option<MetaItem>> {
        match self {
            Backend::Local(local) => Issue::Ready(local.meta_get(meta, true)),
            Backend::Cluster(cluster) => {
                Issue::Sent(cluster.meta_get(meta, with_value, traffic, granted))
            }
        }
    }

    /// Reads an item like [`Self::meta_get`], for a command that does not take the right to refill a stale item.
    pub(crate) fn plain_meta_get(
        &self,
        meta: &Meta<'_>,
        with_value: bool,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> PlainGet {
        match self {
            Backend::Local(local) => PlainGet::Ready(local.meta_get(meta, false)),
            Backend::Cluster(cluster) => {
                PlainGet::send(cluster, meta, with_value, traffic, granted)
            }
        }
    }

    pub(crate) fn meta_set(
        &self,
        set: &MetaSet<'_>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Issue<Outcome<Written>> {
        match self {
            Backend::Local(local) => Issue::Ready(local.meta_set(set, &value)),
            Backend::Cluster(cluster) => Issue::Sent(cluster.meta_set(set, value, traffic)),
        }
    }

    pub(crate) fn meta_delete(
        &self,
        meta: &Meta<'_>,
        traffic: Traffic,
    ) -> Issue<Outcome<MetaOutcome>> {
        match self {
            Backend::Local(local) => Issue::Ready(local.meta_delete(meta)),
            Backend::Cluster(cluster) => Issue::Sent(cluster.meta_delete(meta, traffic)),
        }
    }

    pub(crate) async fn meta_count(&self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        match self {
            Backend::Local(local) => local.meta_count(arithmetic),
            Backend::Cluster(cluster) => cluster.meta_count(arithmetic).await,
        }
    }

    /// Returns the facts that the command me reports about an item, or `None` if there is no item.
    pub(crate) async fn meta_debug(&self, key: &MetaKey<'_>) -> Outcome<Option<MetaDebug>> {
        match self {
            Backend::Local(local) => Ok(local.meta_debug(key)),
            Backend::Cluster(cluster) => cluster.meta_debug(key).await,
        }
    }

    /// Reads an item without touching it, as far as the store allows.
    pub(crate) async fn peek(
        &self,
        key: &MetaKey<'_>,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Outcome<Option<Version>> {
        match self {
            Backend::Local(local) => Ok(local.peek(key)),
            Backend::Cluster(cluster) => cluster.peek(key, traffic, granted).await,
        }
    }

    /// Reads a stored value like a plain get. If a plain get cannot express the key and the item is stale,
    /// the read takes the right to refill it.
    pub(crate) async fn read_stored(&self, key: &MetaKey<'_>) -> Outcome<Option<Seen>> {
        match self {
            Backend::Local(local) => Ok(local.peek(key).map(Seen::from)),
            Backend::Cluster(cluster) => cluster.read_stored(key).await,
        }
    }

    /// Returns the right to refill a stale item, if reading the item has `won` it: the item is marked stale
    /// again, which changes its version.
    pub(crate) async fn release_win(&self, key: &MetaKey<'_>, cas: u64, won: bool) {
        if let (Backend::Cluster(cluster), true) = (self, won) {
            let _ = cluster.mark_stale(key, cas).await;
        }
    }

    /// Replaces the value of `version`, which [`Self::peek`] returned. The item keeps its flags and, unless
    /// `exptime_s` is given, its remaining life.
    pub(crate) async fn rewrite(
        &self,
        key: &MetaKey<'_>,
        version: &Version,
        exptime_s: Option<i32>,
        value: Stored<'_>,
        traffic: Traffic,
    ) -> Outcome<Written> {
        match self {
            Backend::Local(local) => local.rewrite(key, version, exptime_s, &value),
            Backend::Cluster(cluster) => {
                cluster.rewrite(key, version, exptime_s, value, traffic).await
            }
        }
    }

    /// Flushes the store on all its servers. Returns the first failure.
    pub(crate) async fn flush_all(&self, delay_s: i32) -> Outcome<()> {
        match self {
            Backend::Local(local) => {
                local.flush_all(delay_s);
                Ok(())
            }
            Backend::Cluster(cluster) => cluster.flush_all(delay_s).await,
        }
    }

    /// Returns the store's counters under memcached's names, or `None` if it does not know `page`.
    pub(crate) async fn stats(&self, page: &str) -> Option<Vec<(String, String)>> {
        match self {
            Backend::Local(local) => local.stats(page),
            Backend::Cluster(cluster) => cluster.stats(page).await,
        }
    }
}

/// The result of the command me for an item.
#[derive(Debug)]
pub(crate) enum MetaDebug {
    Facts {
        facts: ItemFacts,
        item_bytes: usize,
    },
    /// The reply line of a memcached server, without `ME `.
    Line(Vec<u8>),
}
