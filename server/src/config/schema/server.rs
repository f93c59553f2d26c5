//! The section `[server]`: the listeners for clients, and the limits of connections, threads and memory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::ByteCount;

use crate::config::keys::{Key, Kind, MEMORY_MAX, THREADS_MAX, TIME_MS_MAX, hot, restart};

/// The listeners for clients, and the limits of connections, threads and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The services of this process: `all`, or any of `frontend` (memcached clients, and gRPC's Cache), `compression`,
    /// `store`, `scheduler`, `programs`. Only a frontend listens on `listen`, `unix_socket`, `near_listen` and
    /// `thrift_listen`. A process without a frontend needs `grpc_listen`, `lane_listen` or `programs.listen`.
    pub roles: Vec<RoleName>,
    /// TCP addresses for clients. Port 0 takes a free port. `tls://` before an address means TLS ([TLS](tls.md)). An
    /// address other than loopback needs rules about clients (`access_file` or `token_file`) or `insecure`.
    pub listen: Vec<String>,
    /// Addresses for gRPC: `HOST:PORT`, or the path of a Unix socket. Empty means no gRPC. Addresses that other hosts
    /// reach need rules, as with `listen`; see [access.md](access.md#addresses-that-other-hosts-reach) for the services
    /// for other processes. `tls://` before an address means TLS, as with `listen`.
    pub grpc_listen: Vec<String>,
    /// A Unix socket on which frontends of this host set up [lanes](lane.md), the compression service over shared
    /// memory. It needs the role `compression`. Only processes of the same user and of root are served. A socket file
    /// on which nobody listens is replaced.
    pub lane_listen: Option<PathBuf>,
    /// Whether the compression service encrypts and decrypts with the keys of `values.keys`, for frontends that have
    /// the same keys ([sealed values](sealed.md#a-service-that-seals)). Whoever may use it can read sealed values, so a
    /// TCP address in `grpc_listen` needs rules about clients, which name the right `cipher-service`.
    pub ciphers: bool,
    /// A Unix socket for clients. With it TCP is off, unless `listen` is set too. A socket file on which nobody listens
    /// is replaced.
    pub unix_socket: Option<PathBuf>,
    /// A Unix socket on which [near clients](near.md) of this host connect. Their requests come through shared memory,
    /// without the kernel. TCP stays on. A socket file on which nobody listens is replaced.
    pub near_listen: Option<PathBuf>,
    /// TCP addresses for [Thrift clients](thrift.md), in the form of `listen` and with its conditions. They call
    /// memcached's commands as functions. `listen` stays on.
    pub thrift_listen: Vec<String>,
    /// The permission bits of Unix sockets, memcached's `-a`.
    pub unix_socket_mode: u32,
    /// The address of HTTP for `/metrics`, `/healthz`, `/readyz`, `/config`, `/requests`, and `/scheduler` of a
    /// scheduler. Empty means off.
    pub admin_listen: String,
    /// More names under which the admin pages answer. They compare the header `Host` without the port, and always
    /// answer to IP addresses, `localhost` and the host of `admin_listen`. Any other name gets 403, because a page in a
    /// browser can make a name of its own resolve to this server. Give the names that scrapers use; `["*"]` allows any.
    /// HTTP/1.0 without `Host` is answered; HTTP/1.1 without it gets 400.
    pub admin_hosts: Vec<String>,
    /// How many servers of the ring must answer every worker thread before `/readyz` is 200: `any` of them, `most`
    /// (more than half), or `all`. All processes in front of one ring see the same servers. With `all`, one lost
    /// memcached takes all these processes out of a load balancer, although most keys are served. Choose `most` or
    /// `all` if clients can go elsewhere. A process with the embedded store is always ready.
    pub ready_when: ReadyWhen,
    /// The form of the log: `text`, or `json` with one object per line (`timestamp`, `level`, `target`, `message` and
    /// the fields of the message). What is wrong before the log begins, such as in this file, is text.
    pub log_format: LogFormat,
    /// The least important lines of Rebate itself that are logged: `error`, `warn`, `info`, `debug` or `trace`. `-v`
    /// logs more. Libraries log warnings, whatever this is. RUST_LOG replaces both.
    pub log_level: LogLevel,
    /// Worker threads, 1 to 64. With more threads than cores they take turns, and latency grows. Each has its own
    /// connections to every memcached server.
    pub threads: usize,
    /// The most clients. Further clients get `ERROR Too many open connections` and are closed. If there are listeners
    /// of several kinds (memcached, gRPC, programs, lanes, near, Thrift), a sixteenth is reserved for each kind, so
    /// that clients of one kind do not lock out the others. At start the limit on open files is raised to fit. If it
    /// cannot be raised, `rebate serve` lowers this key to what fits, also after a reload, and warns; `rebate
    /// memcached` does not start, like memcached.
    pub connections_max: usize,
    /// What memcached clients may speak: `ascii` (text and meta commands), `binary` (the binary protocol), or `auto`
    /// for both, which the first byte of a connection decides. Clients of the other protocol get an error that they can
    /// read, are closed, and are counted in `rebate_wrong_protocol_total` and logged once each.
    pub protocol: ProtocolName,
    /// Commands of one connection before the other connections of its worker get their turn. High: one pipelining
    /// client delays the others. Low: more switching.
    pub requests_per_turn: usize,
    /// The length of the accept queue. Low: connections are refused or wait in bursts. The kernel's limit
    /// (`net.core.somaxconn`) caps it.
    pub backlog: u32,
    /// The time that requests in flight may take after SIGTERM. Then connections are cut. Keep it below the time that
    /// your supervisor waits before SIGKILL.
    pub drain_timeout_ms: u64,
    /// The time after which a silent client loses its connection; 0 means never. It holds for memcached clients on TCP,
    /// between commands, within a command line and within a value, for Thrift clients between calls, and for callers of
    /// programs between requests. It is meant for clients that forget connections. If it is shorter than their pools
    /// keep idle connections, they reconnect for nothing.
    pub idle_timeout_s: u64,
    /// The memory of the whole process. 0 means the sum of its [parts](#memory). `rebate_memory_max_bytes` shows the
    /// parts.
    pub memory_max: ByteCount,
    /// Whether clients may list the items with `stats cachedump`, `lru_crawler metadump` and `mgdump`. With `false`
    /// they are told that it is not allowed, as with memcached's `-X`.
    pub dump: bool,
    /// Whether clients may see what the server does with [`watch`](commands.md#watch-what-the-server-does). With
    /// `false` they are told that it is not allowed, as with memcached's `-W`.
    pub watch: bool,
    /// The memory for the lines that a watcher has not received yet, 4 KiB to 64 MiB. It belongs to
    /// `runtime.inflight_bytes_max` while the client watches. A watcher that reads too slowly loses lines.
    pub watcher_bytes: ByteCount,
    /// Whether clients may remove all items with `flush_all`. With `false` they are told that it is not allowed, as
    /// with memcached's `-F`.
    pub flush: bool,
    /// Whether clients may end the process with `shutdown`, as with memcached's `-A`. It drains as after SIGTERM, and
    /// saves its items with `store.file`.
    pub shutdown: bool,
    /// The file with the roles, identities and quotas of clients ([access.md](access.md)). Unset: every client may do
    /// everything. SIGHUP reads the file again.
    pub access_file: Option<PathBuf>,
    /// The file with lines `USER:PASSWORD` for the login of memcached's text protocol. Every user may do everything.
    /// SIGHUP reads the file again. It cannot be combined with `access_file`. `rebate memcached -Y` sets it.
    pub token_file: Option<PathBuf>,
    /// With `true`, `rebate serve` also starts if other hosts can reach `listen`, `thrift_listen` or `grpc_listen` and
    /// every client may do everything. `rebate memcached` has `true`, and warns.
    pub insecure: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            roles: vec![RoleName::All],
            grpc_listen: Vec::new(),
            lane_listen: None,
            ciphers: false,
            listen: vec!["127.0.0.1:11211".to_owned()],
            unix_socket: None,
            near_listen: None,
            thrift_listen: Vec::new(),
            unix_socket_mode: 0o700,
            admin_listen: String::new(),
            admin_hosts: Vec::new(),
            ready_when: ReadyWhen::Any,
            log_format: LogFormat::Text,
            log_level: LogLevel::Info,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            connections_max: 1_024,
            protocol: ProtocolName::Auto,
            requests_per_turn: 20,
            backlog: 1_024,
            drain_timeout_ms: 10_000,
            idle_timeout_s: 0,
            memory_max: ByteCount(0),
            dump: true,
            watch: true,
            watcher_bytes: ByteCount::kib(256),
            flush: true,
            shutdown: false,
            access_file: None,
            token_file: None,
            insecure: false,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("server.roles", Kind::Choices(ROLES)).flag("--role"),
    restart("server.listen", Kind::Addresses).flag("--listen"),
    restart("server.grpc_listen", Kind::GrpcAddresses).flag("--grpc-listen"),
    restart("server.lane_listen", Kind::Path).flag("--lane-listen"),
    restart("server.ciphers", Kind::Switch),
    restart("server.unix_socket", Kind::Path).flag("--unix-socket"),
    restart("server.near_listen", Kind::Path).flag("--near-listen"),
    restart("server.thrift_listen", Kind::Addresses).flag("--thrift-listen"),
    restart("server.unix_socket_mode", Kind::Mode),
    restart("server.admin_listen", Kind::Address).flag("--admin-listen"),
    hot("server.admin_hosts", Kind::Hosts),
    hot("server.ready_when", Kind::Choice(&["any", "most", "all"])),
    restart("server.log_format", Kind::Choice(&["text", "json"])).flag("--log-format"),
    restart("server.log_level", Kind::Choice(&LogLevel::NAMES)).flag("--log-level"),
    restart("server.threads", Kind::Count(1, THREADS_MAX)).flag("--threads"),
    hot("server.connections_max", Kind::Count(1, CONNECTIONS_MAX)).flag("--connections-max"),
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
    restart("server.access_file", Kind::Path).flag("--access-file"),
    restart("server.token_file", Kind::Path),
    restart("server.insecure", Kind::Switch).flag("--insecure"),
];

const ROLES: &[&str] = &["all", "frontend", "compression", "store", "scheduler", "programs"];

/// The maximum number of connections. In practice, the system's limit on open files is reached first.
const CONNECTIONS_MAX: i64 = i32::MAX as i64;

/// The maximum number of commands in one turn. Clients do not pipeline more.
const TURN_REQUESTS_MAX: i64 = 1_000_000;

/// The longest accept queue (connections). The kernel stores the length as a signed 32-bit integer.
const BACKLOG_MAX: i64 = i32::MAX as i64;

/// The smallest buffer of a watcher. Several of the longest lines fit.
const WATCHER_BYTES_MIN: ByteCount = ByteCount::kib(4);

/// The largest buffer of a watcher. There may be twenty of them.
const WATCHER_BYTES_MAX: ByteCount = ByteCount::mib(64);

/// A service that a process can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum RoleName {
    All,
    Frontend,
    Compression,
    Store,
    Scheduler,
    Programs,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LogFormat {
    Text,
    Json,
}

/// The least important lines that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const NAMES: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

    /// Returns the word for this level.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the level that logs more by `steps`.
    pub fn more(self, steps: u8) -> Self {
        let all = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        all[(self as usize + usize::from(steps)).min(all.len() - 1)]
    }
}

/// The share of the ring's servers that a ready process must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ReadyWhen {
    Any,
    Most,
    All,
}

impl ReadyWhen {
    /// Returns the word for this value in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            ReadyWhen::Any => "any",
            ReadyWhen::Most => "most",
            ReadyWhen::All => "all",
        }
    }

    /// Returns how many of `servers` servers must answer.
    pub fn wanted(self, servers: usize) -> usize {
        match self {
            ReadyWhen::Any => servers.min(1),
            ReadyWhen::Most if servers > 0 => servers / 2 + 1,
            ReadyWhen::Most | ReadyWhen::All => servers,
        }
    }
}

/// The services that a process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Services {
    pub frontend: bool,
    pub compression: bool,
    pub store: bool,
    pub scheduler: bool,
    pub programs: bool,
}

impl Services {
    /// Returns the services that `roles` names.
    pub fn from_roles(roles: &[RoleName]) -> Self {
        let has = |role| roles.contains(&role) || roles.contains(&RoleName::All);
        Self {
            frontend: has(RoleName::Frontend),
            compression: has(RoleName::Compression),
            store: has(RoleName::Store),
            scheduler: has(RoleName::Scheduler),
            programs: has(RoleName::Programs),
        }
    }
}

/// The protocols of memcached clients that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ProtocolName {
    Auto,
    Ascii,
    Binary,
}
