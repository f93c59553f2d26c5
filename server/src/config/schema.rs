//! The configuration: one struct per concern. Every default has a named reason, and unknown keys are refused. This file
//! has values only; `source` reads them.

use std::path::PathBuf;

use policy::NamedPolicy;
use serde::{Deserialize, Serialize};
use units::{ByteCount, limits};

/// The configuration of `rebate serve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where clients connect.
    pub server: ServerConfig,
    /// Where stored values are.
    pub store: StoreConfig,
    /// The form in which values are stored.
    pub compress: CompressConfig,
    /// Where (de)compression runs.
    pub runtime: RuntimeSection,
    /// The scheduler to report to, and the parameters that a scheduler sends.
    pub scheduler: SchedulerConfig,
    /// The example service of programs of ops.
    pub programs: ProgramsConfig,
}

/// Where clients connect, and how many may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The services of this process: `all`, or any of `frontend`, `compression`, `store`, `scheduler`, `programs`.
    /// (restart)
    pub roles: Vec<RoleName>,
    /// TCP addresses for memcached clients; port 0 takes a free one. (restart)
    pub listen: Vec<String>,
    /// Addresses for gRPC, HOST:PORT or the path of a Unix socket; without one there is no gRPC. (restart)
    pub grpc_listen: Vec<String>,
    /// A Unix socket where frontends on this host set up lanes: the compression service over shared memory. (restart)
    pub lane_listen: Option<PathBuf>,
    /// A Unix socket for memcached clients; with it, TCP is off unless `listen` is set too. (restart)
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the Unix sockets, octal, as memcached's `-a`. (restart)
    pub unix_socket_mode: u32,
    /// HTTP for /metrics, /healthz, /readyz and /config; empty turns it off. (restart)
    pub admin_listen: String,
    /// Names under which the admin pages answer besides IP addresses, `localhost` and the host of `admin_listen`; `*`
    /// for any. (hot)
    pub admin_hosts: Vec<String>,
    /// How many servers of the ring must answer each worker for /readyz to be 200: `any` of them, `most`, or `all`.
    /// (hot)
    pub ready_when: ReadyWhen,
    /// Worker threads, each an event loop of its own. (restart)
    pub threads: usize,
    /// Client connections at most; above it clients are told and turned away, as by memcached's `maxconns_fast`. (hot)
    pub connections_max: usize,
    /// Commands of one connection served before the others get their turn (memcached's `-R`). (restart)
    pub requests_per_turn: usize,
    /// The accept queue (memcached's `-b`). (restart)
    pub backlog: u32,
    /// Time for requests in flight to finish after SIGTERM; then connections are cut (ms). (hot)
    pub drain_timeout_ms: u64,
    /// A memcached client on TCP that asks for nothing, or stands still within a value, for this long loses its
    /// connection; 0 for never (s). (restart)
    pub idle_timeout_s: u64,
    /// Memory of the whole process: items, values in flight, connections and the program itself; 0 for the sum of what
    /// these have settings for. (restart)
    pub memory_max: ByteCount,
    /// Whether clients may list the items (memcached's `-X` says no). (restart)
    pub dump: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            roles: vec![RoleName::All],
            grpc_listen: Vec::new(),
            lane_listen: None,
            listen: vec!["127.0.0.1:11211".to_owned()],
            unix_socket: None,
            unix_socket_mode: 0o700,
            admin_listen: String::new(),
            admin_hosts: Vec::new(),
            ready_when: ReadyWhen::Any,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4)),
            connections_max: 1_024,
            requests_per_turn: 20,
            backlog: 1_024,
            drain_timeout_ms: 10_000,
            idle_timeout_s: 0,
            memory_max: ByteCount(0),
            dump: true,
        }
    }
}

/// Where stored values are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `embedded`, `memcached://HOST:PORT[,HOST:PORT...]` for a ketama ring of memcached servers, or `grpc://` and the
    /// same list for store services. (restart)
    pub url: String,
    /// Memory for items of the embedded store, keys and bookkeeping included. (restart)
    pub memory: ByteCount,
    /// Largest item, key and memcached's own header included, by its uncompressed size. (restart)
    pub item_bytes_max: ByteCount,
    /// Embedded store: whether a full store evicts; if not, it answers "out of memory" (memcached's `-M`). (restart)
    pub evict: bool,
    /// An unanswered request to a memcached server fails after this (ms). (hot)
    pub timeout_ms: u64,
    /// A connection attempt to a memcached server fails after this (ms). (hot)
    pub connect_timeout_ms: u64,
    /// After a failed attempt the next waits this long, doubled each time up to `retry_max_ms` (ms). (hot)
    pub retry_min_ms: u64,
    /// The longest wait between attempts (ms). (hot)
    pub retry_max_ms: u64,
    /// Use libmemcached's weighted ketama (160 points a server, as pylibmc's `ketama_weighted`). (restart)
    pub ketama_weighted: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: "embedded".to_owned(),
            memory: ByteCount::mib(64),
            item_bytes_max: limits::ITEM_BYTES_MAX_DEFAULT,
            evict: true,
            timeout_ms: 1_000,
            connect_timeout_ms: 500,
            retry_min_ms: 50,
            retry_max_ms: 1_000,
            ketama_weighted: false,
        }
    }
}

/// The form in which values are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressConfig {
    /// `on`; `read-only` and `off` write values as they came and still read frames. (hot)
    pub mode: CompressMode,
    /// The codec of new values; `auto` picks by size. (hot)
    pub codec: CodecName,
    /// `fast`, `default` or `high`. (hot)
    pub level: LevelName,
    /// Smaller values are stored as they came. (hot)
    pub bytes_min: ByteCount,
    /// Share of a value that compression must save, frame header included, or the value is stored as it came. (hot)
    pub saving_min: f64,
    /// Readers that every new value must suit; `iaa` keeps deflate within a 4 KiB window. (hot)
    pub readable_by: Vec<ReaderName>,
    /// What to do with stored values that are no frames: `serve` them as they are, or `forbid` (a miss). (hot)
    pub foreign: Foreign,
}

impl Default for CompressConfig {
    fn default() -> Self {
        Self {
            mode: CompressMode::On,
            codec: CodecName::Auto,
            level: LevelName::Default,
            bytes_min: ByteCount(limits::COMPRESS_BYTES_MIN as u64),
            saving_min: 0.1,
            readable_by: Vec::new(),
            foreign: Foreign::Serve,
        }
    }
}

/// Where (de)compression runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSection {
    /// Devices beside software, by preference: `worker`, and virtual accelerators as `virtual-NAME`. (restart)
    pub devices: Vec<String>,
    /// Compression services, each a device before all others, by preference. (restart)
    pub compression: Vec<String>,
    /// Whether devices that only emulate an accelerator may serve. (restart)
    pub allow_virtual: bool,
    /// `auto` offloads to accelerators and compression services where there are any. (restart)
    pub policy: PolicyName,
    /// Smaller values are not offloaded to accelerators and compression services. (restart)
    pub offload_bytes_min: ByteCount,
    /// Where `least-host-cycles` expects jobs to take longer (us), it sends them elsewhere. (restart)
    pub latency_max_us: u64,
    /// Whether software may stand in for a device that compresses: `prefer`, `require` (never) or `forbid` (only
    /// software). (restart)
    pub fallback_compress: FallbackName,
    /// The same for decompression. (restart)
    pub fallback_decompress: FallbackName,
    /// Values above this are (de)compressed by worker threads, so that a session's loop never stalls longer than this
    /// size takes inline. (restart)
    pub inline_bytes_max: ByteCount,
    /// Threads of the worker device; 0 leaves every job on the calling core. (restart)
    pub workers: usize,
    /// A job that a device keeps longer is redone in software (ms). (restart)
    pub job_timeout_ms: u64,
    /// Bytes of values that one worker thread holds in flight; above it sessions stop reading. (restart)
    pub inflight_bytes_max: ByteCount,
    /// Jobs of other processes that one worker thread has under way; above it they are refused. (restart)
    pub jobs_max: usize,
    /// Jobs of one tenant inside devices, per worker thread. (restart)
    pub tenant_jobs_max: usize,
    /// Jobs that wait for room in a device, per worker thread. (restart)
    pub waiting_max: usize,
    /// One in so many streams that devices write is read back in software; 0 for none. (restart)
    pub verify_every: u32,
    /// Which Intel IAAs QPL takes: those of the calling thread's `socket`, of its `current` NUMA node, `any`, or those
    /// of the node of this number. (restart)
    pub qpl_numa: String,
    /// Larger jobs are not sent to an IAA: the `max_transfer_size` of its work queues. (restart)
    pub qpl_transfer_bytes_max: ByteCount,
    /// Jobs that one worker thread has in a QPL device. (restart)
    pub qpl_queue_depth: usize,
    /// The code of streams that QPL writes: `dynamic`, made for the data, or `fixed`. (restart)
    pub qpl_huffman: HuffmanName,
    /// Whether an IAA decompresses every stream that it wrote, and compares. (restart)
    pub qpl_verify: bool,
}

impl Default for RuntimeSection {
    fn default() -> Self {
        Self {
            devices: vec!["worker".to_owned()],
            compression: Vec::new(),
            allow_virtual: false,
            policy: PolicyName::Auto,
            offload_bytes_min: ByteCount::kib(1),
            latency_max_us: 1_000,
            fallback_compress: FallbackName::Prefer,
            fallback_decompress: FallbackName::Prefer,
            inline_bytes_max: ByteCount::kib(256),
            workers: 1,
            job_timeout_ms: 1_000,
            inflight_bytes_max: ByteCount::mib(64),
            jobs_max: 1_024,
            tenant_jobs_max: 1_000_000,
            waiting_max: 0,
            verify_every: 1_000,
            qpl_numa: "socket".to_owned(),
            qpl_transfer_bytes_max: ByteCount::mib(2),
            qpl_queue_depth: 32,
            qpl_huffman: HuffmanName::Dynamic,
            qpl_verify: true,
        }
    }
}

/// The scheduler to report to, and the parameters that a scheduler sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// The scheduler to report to; empty for none. (restart)
    pub address: String,
    /// This process's name in its reports; empty takes the host's name and the process id. (restart)
    pub instance: String,
    /// A scheduler wants reports this often (ms). (hot)
    pub report_every_ms: u64,
    /// A scheduler keeps counts for this long, at the steps of reports (s). (restart)
    pub history_s: u64,
    /// Processes that may report to a scheduler, and follow it; a silent one makes room for a new one. (restart)
    pub instances_max: usize,
    /// A scheduler's memory for counts; above it the oldest are forgotten first. (restart)
    pub history_bytes_max: ByteCount,
    /// What a scheduler sends: `static`, only what is configured here; `fitted`, with it what it fitted from reports:
    /// per op and device the size from which offloading pays, and the device's share. (hot)
    pub parameters: ParametersWord,
    /// The policy that a scheduler sends to those that report; `own` leaves each its own. (hot)
    pub policy: PolicyWord,
    /// The smallest offloaded value that a scheduler sends; unset leaves each its own. (hot)
    pub offload_bytes_min: Option<ByteCount>,
    /// The largest value on the calling core that a scheduler sends; unset leaves each its own. (hot)
    pub inline_bytes_max: Option<ByteCount>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            instance: String::new(),
            report_every_ms: 1_000,
            history_s: 600,
            instances_max: 1_024,
            history_bytes_max: ByteCount::mib(64),
            parameters: ParametersWord::Static,
            policy: PolicyWord::Own,
            offload_bytes_min: None,
            inline_bytes_max: None,
        }
    }
}

/// The example service of docs/traces.md, whose requests go through programs of ops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramsConfig {
    /// TCP addresses of the service; without one there is none. (restart)
    pub listen: Vec<String>,
    /// The tenants that it serves and their secrets: a file of lines `TENANT SECRET`. (restart)
    pub secrets_file: Option<PathBuf>,
    /// Programs under way at once, per worker thread; beyond it requests are done by hand, in software. (restart)
    pub live_max: usize,
    /// Of these, one tenant's. (restart)
    pub tenant_live_max: usize,
    /// The largest payload, at every step of a program. (restart)
    pub payload_bytes_max: ByteCount,
    /// Jobs in the middle of programs that wait while every device that would take them is full. (restart)
    pub overflow_max: usize,
    /// How long after its start a program should be done, for policies and to be counted; 0 for none (us). (restart)
    pub due_us: u64,
}

impl Default for ProgramsConfig {
    fn default() -> Self {
        let limits = runtime::trace::TraceLimits::default();
        Self {
            listen: Vec::new(),
            secrets_file: None,
            live_max: limits.live_max,
            tenant_live_max: limits.tenant_live_max,
            payload_bytes_max: ByteCount(limits.payload_bytes_max as u64),
            overflow_max: limits.overflow_max,
            due_us: 0,
        }
    }
}

/// A service of a process.
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

/// The number of servers of the ring that a ready process must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ReadyWhen {
    Any,
    Most,
    All,
}

impl ReadyWhen {
    /// Returns the word of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            ReadyWhen::Any => "any",
            ReadyWhen::Most => "most",
            ReadyWhen::All => "all",
        }
    }

    /// Returns the number of these servers that must answer.
    pub fn wanted(self, servers: usize) -> usize {
        match self {
            ReadyWhen::Any => servers.min(1),
            ReadyWhen::Most if servers > 0 => servers / 2 + 1,
            ReadyWhen::Most | ReadyWhen::All => servers,
        }
    }
}

/// The services of a process.
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
    /// Returns the services of these roles.
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

/// A placement policy of [`policy::POLICIES`], or the policy that suits the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PolicyName {
    Auto,
    #[serde(untagged)]
    Named(#[serde(with = "named_policy")] &'static NamedPolicy),
}

/// The source of the parameters that a scheduler sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ParametersWord {
    Static,
    Fitted,
}

/// The policy that a scheduler sends, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PolicyWord {
    Own,
    #[serde(untagged)]
    Named(#[serde(with = "named_policy")] &'static NamedPolicy),
}

mod named_policy {
    use policy::NamedPolicy;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        policy: &&'static NamedPolicy,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(policy.name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<&'static NamedPolicy, D::Error> {
        let name = String::deserialize(deserializer)?;
        NamedPolicy::find(&name).ok_or_else(|| D::Error::custom("no policy has this name"))
    }
}

/// Whether software may stand in for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum FallbackName {
    Prefer,
    Require,
    Forbid,
}

/// The Huffman code of compressed streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum HuffmanName {
    Dynamic,
    Fixed,
}

/// Whether new values are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum CompressMode {
    On,
    Off,
    ReadOnly,
}

/// The codec of new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum CodecName {
    Auto,
    Deflate,
    Zstd,
    Lz4,
}

/// The effort of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LevelName {
    Fast,
    Default,
    High,
}

/// A reader that new values must suit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ReaderName {
    Iaa,
}

/// What the server does with stored values that are not frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Foreign {
    Serve,
    Forbid,
}
