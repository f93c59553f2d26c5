//! Operations on *stored* values, in the embedded store or in a ring of memcached servers. The session does not know
//! which of them it uses. It gets each result at once, or a future of it. Logical values, frames and replies are not
//! known here.

mod cluster;
mod local;

use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use protocol::command::{Arithmetic, Get, MetaArithmetic, MetaSet, Store};
use protocol::meta::Meta;
use protocol::reply::{ItemFacts, MetaOutcome};
use protocol::{Key, MetaKey};
use smallvec::SmallVec;

use crate::budget::Permit;
use crate::upstream::{Issued, Link, LinkError, Traffic};
use crate::values::Stored;

pub(crate) use cluster::{Cluster, NoRoom, facts_of_first};
pub(crate) use local::Local;

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
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
}

/// The items of a get, in the order of its keys.
pub(crate) type Items = SmallVec<[Option<Item>; 1]>;

/// An item as mg returns it. It has its value if the value was requested.
#[derive(Debug)]
pub(crate) struct MetaItem {
    pub(crate) facts: ItemFacts,
    pub(crate) value: Option<Bytes>,
}

/// The facts that a write needs to replace an item without changing anything else about it.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) value: Bytes,
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
    pub(crate) life: Life,
    /// Whether reading the item took the right to refill it, because it was stale. See [`Backend::give_back`].
    pub(crate) won: bool,
    /// Whether an embedded item keeps its marks when it is replaced in place, as one that is incremented in place does.
    pub(crate) keeps_marks: bool,
}

/// A stored value as a plain get returns it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) value: Bytes,
    pub(crate) cas: u64,
    /// Whether reading the value took the right to refill it, as in [`Version::won`].
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
    /// A time on the embedded store's clock, with the seconds left until then.
    Until {
        exptime_s: u32,
        left_s: u32,
    },
    /// The whole seconds that a server reported as left, and the time of its report.
    Left {
        left_s: u32,
        asked: Instant,
    },
}

impl Life {
    /// Returns the seconds that are left; none means that the item does not expire.
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
    /// The value was stored. Its version is known where the store reports it.
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
    /// A memcached server refused the operation with this line.
    Line(Vec<u8>),
    /// The embedded store is out of memory.
    OutOfMemory,
    /// There is no memory for the values of an answer.
    NoRoom(NoRoom),
}

impl fmt::Display for Failure {
    /// Writes the whole error line, without CR LF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Link(error) => write!(f, "SERVER_ERROR {error}"),
            Failure::Line(line) => write!(f, "{}", String::from_utf8_lossy(line)),
            Failure::OutOfMemory => f.write_str("SERVER_ERROR out of memory storing object"),
            Failure::NoRoom(_) => f.write_str("SERVER_ERROR out of memory writing get response"),
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// A get whose items are here, or whose requests are sent.
pub(crate) enum GetIssue {
    /// The items are in the embedded store. Each is fetched when it is answered, so that no more than one is held.
    Here(Local),
    /// One request per server that owns any of the keys, and the server of each key.
    Sent(cluster::SentGet),
}

impl Backend {
    /// Returns whether values are outside this process.
    pub(crate) fn has_links(&self) -> bool {
        matches!(self, Backend::Cluster(_))
    }

    /// Returns whether requests take effect in the order in which they are issued, even before they are answered.
    pub(crate) fn keeps_order(&self) -> bool {
        match self {
            Backend::Local(_) => true,
            Backend::Cluster(cluster) => cluster.links().iter().all(Link::keeps_order),
        }
    }

    /// Gets items. `granted` are parts of the budget, for answers that failed with [`NoRoom`] before.
    pub(crate) fn get(
        &self,
        get: &Get<'_>,
        traffic: Traffic,
        granted: SmallVec<[Permit; 1]>,
    ) -> GetIssue {
        match self {
            Backend::Local(local) => GetIssue::Here(local.clone()),
            Backend::Cluster(cluster) => GetIssue::Sent(cluster.get(get, traffic, granted)),
        }
    }

    /// Stores a value by set, add, replace or cas. It never appends or prepends, which need the logical value.
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

    /// Deletes an item. The answer says whether the item was there.
    pub(crate) fn delete(&self, key: Key<'_>, traffic: Traffic) -> Issue<Outcome<bool>> {
        match self {
            Backend::Local(local) => Issue::Ready(Ok(local.delete(&key))),
            Backend::Cluster(cluster) => Issue::Sent(cluster.delete(key, traffic)),
        }
    }

    /// Sets an item's expiry. The answer says whether the item was there.
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

    /// Reads an item with its metadata. `with_value` requests the value even where the client did not.
    pub(crate) fn meta_get(
        &self,
        meta: &Meta<'_>,
        with_value: bool,
        traffic: Traffic,
        granted: Option<Permit>,
    ) -> Issue<Option<MetaItem>> {
        match self {
            Backend::Local(local) => Issue::Ready(local.meta_get(meta)),
            Backend::Cluster(cluster) => {
                Issue::Sent(cluster.meta_get(meta, with_value, traffic, granted))
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

    pub(crate) fn meta_delete(&self, meta: &Meta<'_>) -> Issue<Outcome<MetaOutcome>> {
        match self {
            Backend::Local(local) => Issue::Ready(Ok(local.meta_delete(meta))),
            Backend::Cluster(cluster) => Issue::Sent(cluster.meta_delete(meta)),
        }
    }

    pub(crate) async fn meta_count(&self, arithmetic: &MetaArithmetic<'_>) -> Outcome<Count> {
        match self {
            Backend::Local(local) => local.meta_count(arithmetic),
            Backend::Cluster(cluster) => cluster.meta_count(arithmetic).await,
        }
    }

    /// Returns the facts that me reports about an item; none if there is no item.
    pub(crate) async fn meta_debug(&self, key: &MetaKey<'_>) -> Outcome<Option<MetaDebug>> {
        match self {
            Backend::Local(local) => Ok(local.meta_debug(key)),
            Backend::Cluster(cluster) => cluster.meta_debug(key).await,
        }
    }

    /// Returns the item as it is, and leaves as little mark on it as the store allows.
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

    /// Returns what is stored and leaves no more marks than a plain get does. If a plain get cannot name the key,
    /// reading a stale item takes the right to refill it.
    pub(crate) async fn look(&self, key: &MetaKey<'_>) -> Outcome<Option<Seen>> {
        match self {
            Backend::Local(local) => Ok(local.peek(key).map(Seen::from)),
            Backend::Cluster(cluster) => cluster.look(key).await,
        }
    }

    /// Gives back the right to refill a stale item, if reading the item has `won` it. The version is marked stale
    /// again, which makes it another version.
    pub(crate) async fn give_back(&self, key: &MetaKey<'_>, cas: u64, won: bool) {
        if let (Backend::Cluster(cluster), true) = (self, won) {
            let _ = cluster.mark_stale(key, cas).await;
        }
    }

    /// Writes a value in place of the version that was peeked at. The item keeps its flags, and its remaining life
    /// unless there is a new expiry.
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

    /// Flushes the store on all its servers. It fails with the first server that does not confirm.
    pub(crate) async fn flush_all(&self, delay_s: i32) -> Outcome<()> {
        match self {
            Backend::Local(local) => {
                local.flush_all(delay_s);
                Ok(())
            }
            Backend::Cluster(cluster) => cluster.flush_all(delay_s).await,
        }
    }

    /// Returns the store's counters under memcached's names, summed over servers; none for a page that it does not
    /// know.
    pub(crate) async fn stats(&self, page: &str) -> Option<Vec<(String, String)>> {
        match self {
            Backend::Local(local) => local.stats(page),
            Backend::Cluster(cluster) => cluster.stats(page).await,
        }
    }
}

/// The facts that me reports about an item.
#[derive(Debug)]
pub(crate) enum MetaDebug {
    Facts {
        facts: ItemFacts,
        item_bytes: usize,
    },
    /// The line of a memcached server, without `ME `.
    Line(Vec<u8>),
}
