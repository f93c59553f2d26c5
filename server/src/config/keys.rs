//! The table of configuration keys: the only place with their kinds, their ranges and whether a reload can
//! change them. A test compares the table with the fields of [`super::Config`] and their comments.

use policy::POLICIES;
use toml::Value;
use units::{ByteCount, Codec, NotAByteCount, limits};

use super::address::{CompressionAddress, HostPort, StoreUrl};
use super::source::{NEW_SECTION, OLD_SECTION};

/// One configuration key.
#[derive(Debug, PartialEq)]
pub struct Key {
    /// The name, in the form `section.field`.
    pub name: &'static str,
    /// Whether a reload can change the key.
    pub change: Change,
    /// The values that the key accepts.
    pub kind: Kind,
}

/// The action that is needed to change a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A reload.
    Hot,
    /// A new process.
    Restart,
}

/// The values that a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A path; absent means unset.
    Path,
    /// Permission bits in octal.
    Mode,
    /// A whole number in a range, ends included.
    Count(i64, i64),
    /// A byte count in a range, ends included.
    Bytes(ByteCount, ByteCount),
    /// A share from 0 to 1.
    Share,
    /// True or false.
    Switch,
    /// One of the given words.
    Choice(&'static [&'static str]),
    /// A list of any of the given words.
    Choices(&'static [&'static str]),
    /// An address in the form `HOST:PORT`; empty for none.
    Address,
    /// A list of addresses in the form `HOST:PORT`.
    Addresses,
    /// A gRPC address; empty for none.
    GrpcAddress,
    /// A list of gRPC addresses.
    GrpcAddresses,
    /// A list of gRPC addresses and lanes, see [`CompressionAddress`].
    CompressionAddresses,
    /// A name of letters, digits and any of `-_.:/`; empty for none.
    Name,
    /// A list of names of letters, digits and any of `-_.:/`.
    Names,
    /// A list of host names; `*` for any.
    Hosts,
    /// A store, in the syntax of [`StoreUrl`].
    StoreUrl,
    /// `socket`, `current`, `any`, or the number of a NUMA node.
    NumaNode,
}

/// Every key, in the order of the sections and of the fields of their structs.
pub const KEYS: &[Key] = &[
    restart("server.roles", Kind::Choices(ROLES)),
    restart("server.listen", Kind::Addresses),
    restart("server.grpc_listen", Kind::GrpcAddresses),
    restart("server.lane_listen", Kind::Path),
    restart("server.unix_socket", Kind::Path),
    restart("server.unix_socket_mode", Kind::Mode),
    restart("server.admin_listen", Kind::Address),
    hot("server.admin_hosts", Kind::Hosts),
    hot("server.ready_when", Kind::Choice(&["any", "most", "all"])),
    restart("server.threads", Kind::Count(1, THREADS_MAX)),
    hot("server.connections_max", Kind::Count(1, CONNECTIONS_MAX)),
    restart("server.protocol", Kind::Choice(&["auto", "ascii", "binary"])),
    restart("server.requests_per_turn", Kind::Count(1, TURN_REQUESTS_MAX)),
    restart("server.backlog", Kind::Count(0, BACKLOG_MAX)),
    hot("server.drain_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("server.idle_timeout_s", Kind::Count(0, i32::MAX as i64)),
    restart("server.memory_max", Kind::Bytes(ByteCount(0), MEMORY_MAX)),
    restart("server.dump", Kind::Switch),
    restart("server.watch", Kind::Switch),
    restart("server.watcher_bytes", Kind::Bytes(WATCHER_BYTES_MIN, WATCHER_BYTES_MAX)),
    restart("server.flush", Kind::Switch),
    restart("server.shutdown", Kind::Switch),
    restart("server.access_file", Kind::Path),
    restart("server.token_file", Kind::Path),
    restart("server.insecure", Kind::Switch),
    // Only within a kind of store, see `diff_for_reload`.
    hot("store.url", Kind::StoreUrl),
    restart("store.memory", Kind::Bytes(ByteCount::kib(64), MEMORY_MAX)),
    restart(
        "store.item_bytes_max",
        Kind::Bytes(limits::ITEM_BYTES_MAX_LOWEST, limits::ITEM_BYTES_MAX_HIGHEST),
    ),
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
    hot("compress.mode", Kind::Choice(&["on", "off", "read-only"])),
    hot("compress.codec", Kind::Choice(&CODECS)),
    hot("compress.level", Kind::Choice(&["fast", "default", "high"])),
    hot("compress.bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    hot("compress.saving_min", Kind::Share),
    hot("compress.saving_min_spare", Kind::Share),
    hot("compress.readable_by", Kind::Choices(&["iaa"])),
    hot("compress.foreign", Kind::Choice(&["serve", "forbid"])),
    hot("values.frame_version", Kind::Count(1, 2)),
    hot("values.dictionaries", Kind::Switch),
    hot("values.path", Kind::Choices(&["compress", "encrypt"])),
    restart("values.keys", Kind::Path),
    restart("values.tenant", Kind::Name),
    restart("values.classes", Kind::Names),
    restart("values.hot_share", Kind::Share),
    restart("runtime.devices", Kind::Names),
    restart("runtime.compression", Kind::CompressionAddresses),
    restart("runtime.compression_login_file", Kind::Path),
    restart("runtime.allow_virtual", Kind::Switch),
    restart("runtime.policy", Kind::Choice(&POLICIES_AUTO)),
    restart("runtime.offload_bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    restart("runtime.latency_max_us", Kind::Count(1, LATENCY_US_MAX)),
    restart("runtime.fallback_compress", Kind::Choice(FALLBACKS)),
    restart("runtime.fallback_decompress", Kind::Choice(FALLBACKS)),
    restart("runtime.inline_bytes_max", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    restart("runtime.workers", Kind::Count(0, THREADS_MAX)),
    restart("runtime.job_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("runtime.inflight_bytes_max", Kind::Bytes(limits::ITEM_BYTES_MAX_LOWEST, MEMORY_MAX)),
    restart("runtime.jobs_max", Kind::Count(1, JOBS_MAX)),
    restart("runtime.tenant_jobs_max", Kind::Count(1, JOBS_MAX)),
    restart("runtime.waiting_max", Kind::Count(0, JOBS_MAX)),
    restart("runtime.verify_every", Kind::Count(0, JOBS_MAX)),
    restart("runtime.qpl_numa", Kind::NumaNode),
    restart(
        "runtime.qpl_transfer_bytes_max",
        Kind::Bytes(ByteCount::kib(4), limits::ITEM_BYTES_MAX_HIGHEST),
    ),
    restart("runtime.qpl_queue_depth", Kind::Count(1, QPL_JOBS_MAX)),
    restart("runtime.qpl_huffman", Kind::Choice(&["dynamic", "fixed"])),
    restart("runtime.qpl_verify", Kind::Switch),
    restart("scheduler.address", Kind::GrpcAddress),
    restart("scheduler.login_file", Kind::Path),
    restart("scheduler.instance", Kind::Name),
    hot("scheduler.report_every_ms", Kind::Count(10, TIME_MS_MAX)),
    restart("scheduler.history_s", Kind::Count(1, HISTORY_S_MAX)),
    restart("scheduler.instances_max", Kind::Count(1, INSTANCES_MAX)),
    restart("scheduler.history_bytes_max", Kind::Bytes(ByteCount::mib(1), MEMORY_MAX)),
    hot("scheduler.parameters", Kind::Choice(&["static", "fitted"])),
    hot("scheduler.policy", Kind::Choice(&POLICIES_OWN)),
    hot("scheduler.offload_bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    hot("scheduler.inline_bytes_max", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    restart("programs.listen", Kind::Addresses),
    restart("programs.live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.tenant_live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.payload_bytes_max", Kind::Bytes(ByteCount::kib(1), PAYLOAD_MAX)),
    restart("programs.overflow_max", Kind::Count(0, JOBS_MAX)),
    restart("programs.due_us", Kind::Count(0, LATENCY_US_MAX)),
    restart("tls.cert_file", Kind::Path),
    restart("tls.key_file", Kind::Path),
    restart("tls.ca_file", Kind::Path),
    restart("tls.client_auth", Kind::Choice(&["none", "request", "require"])),
    restart("tls.min_version", Kind::Choice(&["1.2", "1.3"])),
    restart("tls.ciphers", Kind::Names),
    restart("tls.handshake_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("tls.handshakes_max", Kind::Count(1, HANDSHAKES_MAX)),
    restart("tls.upstream_ca_file", Kind::Path),
    restart("tls.upstream_cert_file", Kind::Path),
    restart("tls.upstream_key_file", Kind::Path),
    restart("tls.upstream_server_name", Kind::Name),
];

const ROLES: &[&str] = &["all", "frontend", "compression", "store", "scheduler", "programs"];

const FALLBACKS: &[&str] = &["prefer", "require", "forbid"];

const CODECS: [&str; Codec::ALL.len() + 1] = with_first("auto", &Codec::NAMES);

const POLICIES_AUTO: [&str; POLICIES.len() + 1] = with_first("auto", &policy_names());

const POLICIES_OWN: [&str; POLICIES.len() + 1] = with_first("own", &policy_names());

const fn policy_names() -> [&'static str; POLICIES.len()] {
    let mut names = [""; POLICIES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = POLICIES[at].name;
        at += 1;
    }
    names
}

/// Returns `first`, followed by the `N - 1` elements of `names`.
const fn with_first<const N: usize>(
    first: &'static str,
    names: &[&'static str],
) -> [&'static str; N] {
    let mut all = [first; N];
    all.split_at_mut(1).1.copy_from_slice(names);
    all
}

const fn hot(name: &'static str, kind: Kind) -> Key {
    Key { name, change: Change::Hot, kind }
}

const fn restart(name: &'static str, kind: Kind) -> Key {
    Key { name, change: Change::Restart, kind }
}

impl Key {
    /// Returns the key of this name.
    pub fn named(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Returns the key whose name is most similar to `name`, or `None` if no name is similar.
    pub fn nearest(name: &str) -> Option<&'static Key> {
        let field = name.rsplit('.').next().unwrap_or(name);
        let likeness = |key: &Key| {
            let whole = strsim::normalized_damerau_levenshtein(name, key.name);
            whole.max(strsim::normalized_damerau_levenshtein(field, key.field()) - SECTION_MALUS)
        };
        let best = KEYS.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(best) >= LIKENESS_MIN).then_some(best)
    }

    /// Returns the name of the key's section.
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns the key's name within its section.
    pub fn field(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, field)| field)
    }

    /// Parses `text`, which comes from the environment or a flag.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let refused = || self.refused(&format!("{text:?}"), &Value::from(text));
        let value = self.kind.read(text).ok_or_else(refused)?;
        if self.kind.admits(&value) { Ok(value) } else { Err(refused()) }
    }

    /// Returns advice if the next version will refuse `value`.
    pub(super) fn advice(&self, value: &Value) -> Option<String> {
        value
            .as_str()
            .filter(|_| matches!(self.kind, Kind::Bytes(..)))
            .and_then(ByteCount::outdated_unit)
    }

    /// Checks that `value` has the right kind and is in range. The error describes the valid values.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        if self.kind.admits(value) { Ok(()) } else { Err(self.refused(&value.to_string(), value)) }
    }

    fn refused(&self, text: &str, value: &Value) -> String {
        format!("{text} {}; give {}", self.kind.problem(value), self.kind.valid())
    }
}

impl Kind {
    /// Describes the valid values, in words that can follow "give".
    pub fn valid(&self) -> String {
        match self {
            Kind::Path => "a path".to_owned(),
            Kind::Mode => "permission bits in octal from 0 to 0o777, such as 0o700".to_owned(),
            Kind::Count(min, max) => format!("a whole number from {min} to {max}"),
            Kind::Bytes(min, max) => format!("a size from {min} to {max}, {}", ByteCount::FORMS),
            Kind::Share => "a number from 0 to 1, such as 0.1".to_owned(),
            Kind::Switch => "true or false".to_owned(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Choices(words) => format!("a list of any of {}", words.join(", ")),
            Kind::Address => {
                "HOST:PORT or tls://HOST:PORT, such as 127.0.0.1:9150, or nothing for none"
                    .to_owned()
            }
            Kind::Addresses => {
                "a list of HOST:PORT, such as 127.0.0.1:11211 or tls://[::1]:11212".to_owned()
            }
            Kind::GrpcAddress => {
                "HOST:PORT or the path of a Unix socket, or nothing for none".to_owned()
            }
            Kind::GrpcAddresses => "a list of HOST:PORT or paths of Unix sockets".to_owned(),
            Kind::CompressionAddresses => {
                "a list of HOST:PORT, paths of Unix sockets for gRPC, or lane:/PATH".to_owned()
            }
            Kind::Name => "a name of letters, digits and any of -_.:/, or nothing".to_owned(),
            Kind::Names => "a list of names of letters, digits and any of -_.:/".to_owned(),
            Kind::Hosts => "a list of names of hosts without ports, or * for any".to_owned(),
            Kind::StoreUrl => "embedded, memcached://HOST:PORT[:WEIGHT],... with dns+HOST:PORT, \
                               dnssrv+NAME and elasticache+HOST:PORT for lists, or \
                               grpc://HOST:PORT,... naming each server once"
                .to_owned(),
            Kind::NumaNode => {
                "socket, current, any, or the number of a NUMA node in quotes".to_owned()
            }
        }
    }

    fn admits(&self, value: &Value) -> bool {
        let list_of = |good: &dyn Fn(&str) -> bool| {
            let good = |item: &Value| item.as_str().is_some_and(good);
            value.as_array().is_some_and(|items| items.iter().all(good))
        };
        let address = |text: &str| HostPort::parse(text, None).is_ok();
        let grpc = |text: &str| text.parse::<api::Address>().is_ok();
        match self {
            Kind::GrpcAddress => value.as_str().is_some_and(|text| text.is_empty() || grpc(text)),
            Kind::GrpcAddresses => list_of(&grpc),
            Kind::CompressionAddresses => {
                list_of(&|text| text.parse::<CompressionAddress>().is_ok())
            }
            Kind::Name => value.as_str().is_some_and(|name| name.is_empty() || is_name(name)),
            Kind::Names => list_of(&is_name),
            Kind::Hosts => {
                list_of(&|host| host == "*" || is_name(host) && !host.contains([':', '/']))
            }
            Kind::Path => value.as_str().is_some_and(|path| !path.is_empty()),
            Kind::Mode => value.as_integer().is_some_and(|bits| (0..=0o777).contains(&bits)),
            Kind::Count(min, max) => {
                value.as_integer().is_some_and(|count| (*min..=*max).contains(&count))
            }
            Kind::Bytes(min, max) => {
                byte_count(value).is_ok_and(|count| (*min..=*max).contains(&count))
            }
            Kind::Share => share(value).is_some_and(|share| (0.0..=1.0).contains(&share)),
            Kind::Switch => value.is_bool(),
            Kind::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Kind::Choices(words) => list_of(&|word| {
                words.contains(&word) || word == OLD_SECTION && words.contains(&NEW_SECTION)
            }),
            Kind::Address => value.as_str().is_some_and(|text| text.is_empty() || address(text)),
            Kind::Addresses => list_of(&address),
            Kind::StoreUrl => value.as_str().is_some_and(|url| url.parse::<StoreUrl>().is_ok()),
            Kind::NumaNode => value.as_str().is_some_and(is_numa_node),
        }
    }

    /// Describes why a value is not valid.
    fn problem(&self, value: &Value) -> String {
        match (self, byte_count(value)) {
            (Kind::Bytes(min, _), Ok(count)) if count < *min => format!("is below {min}"),
            (Kind::Bytes(_, max), Ok(_)) => format!("is above {max}"),
            (Kind::Bytes(..), Err(problem)) => problem.to_owned(),
            _ => "is not valid".to_owned(),
        }
    }

    fn read(&self, text: &str) -> Option<Value> {
        match self {
            Kind::Mode => {
                let digits = text.strip_prefix("0o").unwrap_or(text);
                i64::from_str_radix(digits, 8).ok().map(Value::Integer)
            }
            Kind::Count(..) => text.parse().ok().map(Value::Integer),
            Kind::Share => text.parse().ok().map(Value::Float),
            Kind::Switch => match text {
                "true" | "on" | "yes" | "1" => Some(Value::Boolean(true)),
                "false" | "off" | "no" | "0" => Some(Value::Boolean(false)),
                _ => None,
            },
            Kind::Choices(_)
            | Kind::Addresses
            | Kind::GrpcAddresses
            | Kind::CompressionAddresses
            | Kind::Names
            | Kind::Hosts => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
            }
            Kind::Path
            | Kind::Bytes(..)
            | Kind::Choice(_)
            | Kind::Address
            | Kind::GrpcAddress
            | Kind::Name
            | Kind::NumaNode
            | Kind::StoreUrl => Some(Value::String(text.to_owned())),
        }
    }
}

fn is_name(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(valid)
}

fn is_numa_node(text: &str) -> bool {
    ["socket", "current", "any"].contains(&text) || text.parse::<u16>().is_ok()
}

/// Converts a value to a byte count. The error describes what is wrong with the value.
fn byte_count(value: &Value) -> Result<ByteCount, &'static str> {
    match value {
        Value::String(text) => text.parse().map_err(|error: NotAByteCount| error.problem),
        Value::Integer(count) => u64::try_from(*count).map(ByteCount).map_err(|_| "is negative"),
        _ => Err("is not a size"),
    }
}

fn share(value: &Value) -> Option<f64> {
    // Integers stay integers: serde reads `1` into a float field as well.
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// The maximum number of worker threads. memcached warns above 64, because more event loops only contend.
const THREADS_MAX: i64 = 64;
/// The maximum number of connections. In practice, the system's limit on open files is reached first.
const CONNECTIONS_MAX: i64 = i32::MAX as i64;
/// The maximum number of commands in one turn. Clients do not pipeline more.
const TURN_REQUESTS_MAX: i64 = 1_000_000;
/// The longest accept queue (connections). The kernel stores the length as a signed 32-bit integer.
const BACKLOG_MAX: i64 = i32::MAX as i64;
/// The maximum number of jobs. Each job holds buffers, so memory runs out before this number.
const JOBS_MAX: i64 = 1_000_000;
/// The maximum number of QPL jobs per worker thread. A job structure takes up to 831 kB.
const QPL_JOBS_MAX: i64 = 1_024;
/// The longest time: one day (ms). A longer time is taken for a mistyped unit.
const TIME_MS_MAX: i64 = 86_400_000;
/// The most that `store.eject_slower` can be. A server that is slower than this has timed out before.
const SLOWER_MAX: i64 = 100_000;
/// The longest interval between two lookups of the ring's names: one day (s).
const RESOLVE_S_MAX: i64 = 86_400;
/// The longest life of items on the next server (s). memcached takes longer ones for dates.
const NEXT_TTL_S_MAX: i64 = limits::EXPTIME_RELATIVE_MAX_S as i64;
/// The highest latency limit of a job: one minute (us).
const LATENCY_US_MAX: i64 = 60_000_000;
/// The longest name (bytes). Names appear in every metric.
const NAME_BYTES_MAX: usize = 128;
/// The longest history: one day (s).
const HISTORY_S_MAX: i64 = 86_400;
/// The maximum number of instances that report to a scheduler.
const INSTANCES_MAX: i64 = 65_536;
/// The smallest buffer of a watcher. Several of the longest lines fit.
const WATCHER_BYTES_MIN: ByteCount = ByteCount::kib(4);
/// The largest buffer of a watcher. There may be twenty of them.
const WATCHER_BYTES_MAX: ByteCount = ByteCount::mib(64);
/// The largest memory limit: 64 TiB. A larger number is taken for a mistyped unit.
const MEMORY_MAX: ByteCount = ByteCount(1 << 46);

/// The maximum number of handshakes under way at a listener. Each has a file descriptor and some KiB of memory.
const HANDSHAKES_MAX: i64 = 65_536;

/// The largest payload. Processing a document takes up to forty times its size in memory.
const PAYLOAD_MAX: ByteCount = ByteCount::mib(64);

/// The amount by which the likeness of a field's name counts less than the likeness of the whole key.
const SECTION_MALUS: f64 = 0.1;
/// The lowest likeness, from 0 to 1, of a key that is suggested.
const LIKENESS_MIN: f64 = 0.55;
