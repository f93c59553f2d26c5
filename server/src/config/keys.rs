//! The table of configuration keys: the kind and the range of each, and whether a running server can change it. No
//! other place says so. A test compares the table with the fields of [`super::Config`] and their comments.

use policy::POLICIES;
use toml::Value;
use units::{ByteCount, NotAByteCount, limits};

use super::address::{CompressionAddress, HostPort, StoreUrl};
use super::source::{NEW_SECTION, OLD_SECTION};

/// One configuration key.
#[derive(Debug, PartialEq)]
pub struct Key {
    /// `section.field`.
    pub name: &'static str,
    /// Whether a reload can change the key.
    pub change: Change,
    /// The values that the key accepts.
    pub kind: Kind,
}

/// The action that it takes to change a key.
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
    /// Permission bits, octal.
    Mode,
    /// A whole number in a range, ends included.
    Count(i64, i64),
    /// A byte count in a range, ends included.
    Bytes(ByteCount, ByteCount),
    /// A share from 0 to 1.
    Share,
    /// True or false.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words.
    Choices(&'static [&'static str]),
    /// `HOST:PORT`; empty for none.
    Address,
    /// A list of `HOST:PORT`.
    Addresses,
    /// A gRPC address; empty for none.
    GrpcAddress,
    /// A list of gRPC addresses.
    GrpcAddresses,
    /// A list of gRPC addresses and of lanes, see [`CompressionAddress`].
    CompressionAddresses,
    /// A name of letters, digits and any of `-_.:/`; empty for none.
    Name,
    /// A list of such names.
    Names,
    /// A list of names of hosts; `*` for any.
    Hosts,
    /// See [`StoreUrl`].
    StoreUrl,
    /// `socket`, `current`, `any`, or the number of a NUMA node.
    NumaNode,
}

/// Every key, by section and in the order of the structs' fields.
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
    restart("server.requests_per_turn", Kind::Count(1, TURN_REQUESTS_MAX)),
    restart("server.backlog", Kind::Count(0, BACKLOG_MAX)),
    hot("server.drain_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("server.idle_timeout_s", Kind::Count(0, i32::MAX as i64)),
    restart("server.memory_max", Kind::Bytes(ByteCount(0), MEMORY_MAX)),
    restart("server.dump", Kind::Switch),
    restart("store.url", Kind::StoreUrl),
    restart("store.memory", Kind::Bytes(ByteCount::kib(64), MEMORY_MAX)),
    restart(
        "store.item_bytes_max",
        Kind::Bytes(limits::ITEM_BYTES_MAX_LOWEST, limits::ITEM_BYTES_MAX_HIGHEST),
    ),
    restart("store.evict", Kind::Switch),
    hot("store.timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.connect_timeout_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.retry_min_ms", Kind::Count(1, TIME_MS_MAX)),
    hot("store.retry_max_ms", Kind::Count(1, TIME_MS_MAX)),
    restart("store.ketama_weighted", Kind::Switch),
    hot("compress.mode", Kind::Choice(&["on", "off", "read-only"])),
    hot("compress.codec", Kind::Choice(&["auto", "deflate", "zstd", "lz4"])),
    hot("compress.level", Kind::Choice(&["fast", "default", "high"])),
    hot("compress.bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    hot("compress.saving_min", Kind::Share),
    hot("compress.readable_by", Kind::Choices(&["iaa"])),
    hot("compress.foreign", Kind::Choice(&["serve", "forbid"])),
    restart("runtime.devices", Kind::Names),
    restart("runtime.compression", Kind::CompressionAddresses),
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
    restart("programs.secrets_file", Kind::Path),
    restart("programs.live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.tenant_live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.payload_bytes_max", Kind::Bytes(ByteCount::kib(1), PAYLOAD_MAX)),
    restart("programs.overflow_max", Kind::Count(0, JOBS_MAX)),
    restart("programs.due_us", Kind::Count(0, LATENCY_US_MAX)),
];

const ROLES: &[&str] = &["all", "frontend", "compression", "store", "scheduler", "programs"];

const FALLBACKS: &[&str] = &["prefer", "require", "forbid"];

const POLICIES_AUTO: [&str; POLICIES.len() + 1] = policies("auto");

const POLICIES_OWN: [&str; POLICIES.len() + 1] = policies("own");

const fn policies(first: &'static str) -> [&'static str; POLICIES.len() + 1] {
    let mut names = [first; POLICIES.len() + 1];
    let mut at = 0;
    while at < POLICIES.len() {
        names[at + 1] = POLICIES[at].name;
        at += 1;
    }
    names
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

    /// Returns the known key that `name` was most likely meant to be; none if no name is similar.
    pub fn nearest(name: &str) -> Option<&'static Key> {
        let field = name.rsplit('.').next().unwrap_or(name);
        let likeness = |key: &Key| {
            let whole = strsim::normalized_damerau_levenshtein(name, key.name);
            whole.max(strsim::normalized_damerau_levenshtein(field, key.field()) - SECTION_MALUS)
        };
        let best = KEYS.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(best) >= LIKENESS_MIN).then_some(best)
    }

    /// Returns the table that holds the key.
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns the key's name within its section.
    pub fn field(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, field)| field)
    }

    /// Returns the value that `text` from the environment or a flag means.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let refused = || self.refused(&format!("{text:?}"), &Value::from(text));
        let value = self.kind.read(text).ok_or_else(refused)?;
        if self.kind.admits(&value) { Ok(value) } else { Err(refused()) }
    }

    /// Returns advice about a value that the next version will refuse.
    pub(super) fn advice(&self, value: &Value) -> Option<String> {
        value
            .as_str()
            .filter(|_| matches!(self.kind, Kind::Bytes(..)))
            .and_then(ByteCount::outdated_unit)
    }

    /// Checks that the value is of the right kind and in range. The error message says what would be valid.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        if self.kind.admits(value) { Ok(()) } else { Err(self.refused(&value.to_string(), value)) }
    }

    fn refused(&self, text: &str, value: &Value) -> String {
        format!("{text} {}; give {}", self.kind.problem(value), self.kind.valid())
    }
}

impl Kind {
    /// Describes the valid values; the text follows "give".
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
            Kind::Address => "HOST:PORT, such as 127.0.0.1:9150, or nothing for none".to_owned(),
            Kind::Addresses => {
                "a list of HOST:PORT, such as 127.0.0.1:11211 or [::1]:11211".to_owned()
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
            Kind::StoreUrl => "embedded, memcached://HOST:PORT,... or grpc://HOST:PORT,... naming \
                               each server once"
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

    /// Describes what is wrong with a value that is not admitted.
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

/// Returns the byte count that a value means, or what is wrong with the value.
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

/// The most worker threads. memcached warns above 64, because more event loops only contend.
const THREADS_MAX: i64 = 64;
/// The most connections. The system's limit on open files is far lower and takes effect first.
const CONNECTIONS_MAX: i64 = i32::MAX as i64;
/// The most commands in one turn. No client pipelines more, so a higher limit would never take effect.
const TURN_REQUESTS_MAX: i64 = 1_000_000;
/// The longest backlog. The kernel's own type for it is a signed 32-bit integer.
const BACKLOG_MAX: i64 = i32::MAX as i64;
/// The most jobs. Each job holds buffers, so memory runs out long before this number.
const JOBS_MAX: i64 = 1_000_000;
/// The most jobs of QPL per worker thread. A job structure takes up to 831 kB, so more would take gigabytes.
const QPL_JOBS_MAX: i64 = 1_024;
/// The longest time: one day. A longer wait is a mistyped unit.
const TIME_MS_MAX: i64 = 86_400_000;
/// The highest limit on a job's latency: one minute. No job may take longer, so a higher limit has no effect.
const LATENCY_US_MAX: i64 = 60_000_000;
/// The longest name (bytes). Every metric shows names.
const NAME_BYTES_MAX: usize = 128;
/// The longest history: one day. A process can keep that much in memory at the steps of reports.
const HISTORY_S_MAX: i64 = 86_400;
/// The most instances. One page could not show as many, so a larger number is a mistake.
const INSTANCES_MAX: i64 = 65_536;
/// The most memory. Machines do not have as much, so a larger number is a mistyped unit.
const MEMORY_MAX: ByteCount = ByteCount(1 << 46);

/// The largest payload. A document takes up to forty times its bytes while it is changed, so a larger payload is not a
/// valid request.
const PAYLOAD_MAX: ByteCount = ByteCount::mib(64);

/// The malus for another section: a field's name there is a little less likely than the same name with a typing error.
const SECTION_MALUS: f64 = 0.1;
/// The lowest likeness of a suggestion. A suggestion below it would only confuse.
const LIKENESS_MIN: f64 = 0.55;
