//! The section `[store]`: where stored values are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteCount, limits};

use crate::config::keys::{JOBS_MAX, Key, Kind, MEMORY_MAX, TIME_MS_MAX, hot, restart};

/// Where stored values are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded`; or `memcached://HOST[:PORT[:WEIGHT]],...` (port 11211 unless given, each server once), a ring of
    /// memcached servers; or `grpc://ADDR,...`, store services. A ring takes its servers also from names:
    /// `dns+HOST:PORT`, `dnssrv+NAME`, `elasticache+HOST:PORT`, see [ring.md](ring.md#the-list). A reload may change
    /// the servers, but not the kind of store. Names and ports are hashed: write them as the fleet's other clients
    /// write them, see [migration.md](migration.md#which-server-owns-a-key).
    pub url: String,
    /// Memory of the embedded store for items, keys and bookkeeping, at least twice `item_bytes_max`. The process takes
    /// more: buffers, connections, code. A ring does not use it.
    pub memory: ByteCount,
    /// The largest item by its **logical** size, including the key and memcached's own header, 1 KiB to 1 GiB. It may
    /// be above the `-I` of the memcached servers. Values that compress below `-I` are then stored, and for the others
    /// the server answers `SERVER_ERROR object too large for cache`.
    pub item_bytes_max: ByteCount,
    /// With `false` a full embedded store answers `SERVER_ERROR out of memory storing object`, like memcached's `-M`.
    pub evict: bool,
    /// File that keeps the items of the embedded store over a [restart](#a-restart-with-its-items). `FILE.lock` and
    /// `FILE.tmp` are beside it, so the process must be able to write in the directory, which needs as much space as
    /// the items. Two processes cannot share a file. `rebate memcached -e` sets it.
    pub file: Option<PathBuf>,
    /// Time for saving to `file` after the drain. After it the process ends and the next one starts empty. Low: large
    /// stores are not saved. High: a slow disk delays the end; keep the supervisor's limit above the sum of this and
    /// `server.drain_timeout_ms`.
    pub save_timeout_ms: u64,
    /// After this time an unanswered request to a memcached server fails, with all others on that connection. Low: slow
    /// moments become errors. High: a hung server is a hung client.
    pub timeout_ms: u64,
    /// The same for connecting.
    pub connect_timeout_ms: u64,
    /// After a failed attempt to connect, requests for that server fail at once for this long. The wait doubles with
    /// each failure. A value above `retry_max_ms` is refused.
    pub retry_min_ms: u64,
    /// The longest such wait. Each worker asks its servers twice a second whatever this is, and uses a server that
    /// answers at once.
    pub retry_max_ms: u64,
    /// Which of libmemcached's rules assigns keys to servers: `ketama`, `ketama-weighted`, or `modula`, libmemcached's
    /// default. With the wrong one, a key of another client is found only if both happen to name the same server; see
    /// [migration.md](migration.md#which-server-owns-a-key). It replaces the switch `ketama_weighted`, which is still
    /// accepted in this version, with a warning.
    pub distribution: DistributionName,
    /// What the keys of a server that cannot answer get: `error`, `miss`, or `next`, see
    /// [ring.md](ring.md#what-the-keys-of-a-lost-server-get).
    pub lost_keys: LostKeys,
    /// With `next`: the longest life of items on the next server (s, up to 30 days). High: values may be stale when the
    /// server is lost again.
    pub next_ttl_s: u32,
    /// The largest share of the servers that is [out of the ring](ring.md#when-a-server-is-out) at once. `0` takes no
    /// server out.
    pub eject_share_max: f64,
    /// Requests in a row that a server fails before it is taken out. Low: single faults take it out. High: only the
    /// probes do.
    pub eject_failures: u32,
    /// A server is slow if its answers take this many times as long as those of the others. It is taken out, unless
    /// `lost_keys` is `error`. `0`: no server is slow.
    pub eject_slower: u32,
    /// The shortest time of answers for which a server is slow.
    pub eject_latency_min_ms: u64,
    /// The interval at which the names in `url` are looked up again.
    pub resolve_every_s: u64,
    /// Address and port of the DNS server for these names, such as `10.0.0.2:53`. Empty: those of `/etc/resolv.conf`.
    pub resolver: String,
    /// File with the line `USER:PASSWORD` with which this process logs in to the servers or services of `url`, see
    /// [access.md](access.md#passwords-towards-others). It is read again when it changes.
    pub login_file: Option<PathBuf>,
    /// How memcached servers take the login: `text` as with their `-Y`, `sasl` as with their `-S`. A server with `-S`
    /// speaks only the binary protocol, so clients get an error for meta commands, `append` and `prepend`, and dumps
    /// are refused.
    pub login: LoginScheme,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: "embedded".to_owned(),
            memory: ByteCount::mib(64),
            item_bytes_max: limits::ITEM_BYTES_MAX_DEFAULT,
            evict: true,
            file: None,
            save_timeout_ms: 60_000,
            timeout_ms: 1_000,
            connect_timeout_ms: 500,
            retry_min_ms: 50,
            retry_max_ms: 1_000,
            distribution: DistributionName::Ketama,
            lost_keys: LostKeys::Error,
            next_ttl_s: 10,
            eject_share_max: 0.5,
            eject_failures: 5,
            eject_slower: 10,
            eject_latency_min_ms: 100,
            resolve_every_s: 10,
            resolver: String::new(),
            login_file: None,
            login: LoginScheme::Text,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    // Only within a kind of store, see `diff_for_reload`.
    hot("store.url", Kind::StoreUrl).flag("--store"),
    restart("store.memory", Kind::Bytes(ByteCount::kib(64), MEMORY_MAX)).flag("--memory"),
    restart(
        "store.item_bytes_max",
        Kind::Bytes(limits::ITEM_BYTES_MAX_LOWEST, limits::ITEM_BYTES_MAX_HIGHEST),
    )
    .flag("--item-bytes-max"),
    restart("store.evict", Kind::Switch),
    restart("store.file", Kind::Path),
    hot("store.save_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.connect_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.retry_min_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.retry_max_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("store.distribution", Kind::Choice(&["ketama", "ketama-weighted", "modula"])),
    hot("store.lost_keys", Kind::Choice(&["error", "miss", "next"])),
    hot("store.next_ttl_s", Kind::Count(1, NEXT_TTL_S_MAX)),
    hot("store.eject_share_max", Kind::Share),
    hot("store.eject_failures", Kind::Count(1, JOBS_MAX)),
    hot("store.eject_slower", Kind::Count(0, SLOWER_MAX)),
    hot("store.eject_latency_min_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.resolve_every_s", Kind::Count(1, RESOLVE_S_MAX)),
    restart("store.resolver", Kind::Address),
    restart("store.login_file", Kind::Path),
    restart("store.login", Kind::Choice(&["text", "sasl"])),
];

/// The most that `store.eject_slower` can be. A server that is slower than this has timed out before.
const SLOWER_MAX: i64 = 100_000;

/// The longest interval between two lookups of the ring's names: one day (s).
const RESOLVE_S_MAX: i64 = 86_400;

/// The longest life of items on the next server (s). memcached takes longer ones for dates.
const NEXT_TTL_S_MAX: i64 = limits::EXPTIME_RELATIVE_MAX_S as i64;

/// The rule that assigns keys to the servers of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum DistributionName {
    Ketama,
    KetamaWeighted,
    Modula,
}

/// What the keys of a server that cannot answer get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LostKeys {
    Error,
    Miss,
    Next,
}

/// The ways in which memcached servers take a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LoginScheme {
    Text,
    Sasl,
}
