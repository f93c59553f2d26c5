//! The structs of the configuration and their defaults. Unknown keys are refused. `source` reads the values.

use std::path::PathBuf;

use device::Codec;
use policy::NamedPolicy;
use serde::{Deserialize, Serialize};
use store::frame::FrameVersion;
use units::{ByteCount, limits};

use super::path::ValueOp;

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
    /// The frames around stored values, the dictionaries for them, and the values that are kept without frames.
    pub values: ValuesConfig,
    /// Where (de)compression runs.
    pub runtime: RuntimeSection,
    /// The scheduler to report to, and the parameters that a scheduler sends.
    pub scheduler: SchedulerConfig,
    /// The example service, which runs each request as a program of several ops.
    pub programs: ProgramsConfig,
    /// The certificates of this process, and those that it accepts.
    pub tls: TlsConfig,
}

/// The listeners for clients, and the limits of connections, threads and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The services of this process: `all`, or any of `frontend`, `compression`, `store`, `scheduler`, `programs`.
    /// (restart)
    pub roles: Vec<RoleName>,
    /// TCP addresses for memcached clients. Port 0 takes a free port. `tls://` before an address means TLS, for all
    /// addresses of this section. (restart)
    pub listen: Vec<String>,
    /// Addresses for gRPC: HOST:PORT or the path of a Unix socket. Empty turns gRPC off. (restart)
    pub grpc_listen: Vec<String>,
    /// Unix socket on which frontends of this host set up lanes (compression over shared memory). (restart)
    pub lane_listen: Option<PathBuf>,
    /// Unix socket for memcached clients. If it is set, TCP is off unless `listen` is set too. (restart)
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the Unix sockets, in octal, like memcached's `-a`. (restart)
    pub unix_socket_mode: u32,
    /// Address of the HTTP server for /metrics, /healthz, /readyz and /config. Empty turns it off. (restart)
    pub admin_listen: String,
    /// Host names that the admin pages accept in addition to IP addresses, `localhost` and the host of
    /// `admin_listen`. `*` accepts any name. (hot)
    pub admin_hosts: Vec<String>,
    /// Servers of the ring that must answer each worker for /readyz to be 200: `any`, `most` or `all`. (hot)
    pub ready_when: ReadyWhen,
    /// Number of worker threads. Each runs one event loop. (restart)
    pub threads: usize,
    /// Limit of client connections. Further ones get an error and are closed (`maxconns_fast`). (hot)
    pub connections_max: usize,
    /// Protocols of memcached clients (memcached's `-B`): `ascii`, `binary`, or `auto` for either, which a
    /// connection's first byte decides. (restart)
    pub protocol: ProtocolName,
    /// Limit of commands of one connection before the others get their turn (memcached's `-R`). (restart)
    pub requests_per_turn: usize,
    /// Length of the accept queue (connections), like memcached's `-b`. (restart)
    pub backlog: u32,
    /// Time that requests in flight get to finish after SIGTERM, before connections are cut (ms). (hot)
    pub drain_timeout_ms: u64,
    /// Time after which a silent TCP client loses its connection (s). It applies between requests and within
    /// a value. 0 means never. (restart)
    pub idle_timeout_s: u64,
    /// Memory limit of the whole process: items, values in flight, connections and the program itself. 0
    /// means the sum of the limits of these parts. (restart)
    pub memory_max: ByteCount,
    /// If true, clients may list the items. False is memcached's `-X`. (restart)
    pub dump: bool,
    /// If true, clients may watch what the server does (`watch`). False is memcached's `-W`. (restart)
    pub watch: bool,
    /// Memory for the lines that a watcher has not received yet. A watcher that reads too slowly loses lines. (restart)
    pub watcher_bytes: ByteCount,
    /// If true, clients may remove all items at once (`flush_all`). False is memcached's `-F`. (restart)
    pub flush: bool,
    /// If true, clients may end the process (`shutdown`), like memcached's `-A`. It then drains as after SIGTERM.
    /// (restart)
    pub shutdown: bool,
    /// File with the roles, identities and quotas of clients. If neither it nor `token_file` is set, every client may
    /// do everything. SIGHUP reads the file again. (restart)
    pub access_file: Option<PathBuf>,
    /// File with lines `USER:PASSWORD` for the login of memcached's text protocol, like memcached's `-Y`. SIGHUP reads
    /// the file again. (restart)
    pub token_file: Option<PathBuf>,
    /// If true, the server may listen on addresses that other hosts reach although every client may do everything.
    /// (restart)
    pub insecure: bool,
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

/// Where stored values are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The store: `embedded`; `memcached://HOST:PORT[:WEIGHT],...`, a ring of memcached servers, also by names
    /// (`dns+HOST:PORT`, `dnssrv+NAME`, `elasticache+HOST:PORT`); or `grpc://HOST:PORT,...`, a ring of store
    /// services. A reload may change the servers, but not the kind of store. (hot)
    pub url: String,
    /// Memory of the embedded store for items, including keys and bookkeeping. (restart)
    pub memory: ByteCount,
    /// Largest uncompressed size of an item, including its key and memcached's header. (restart)
    pub item_bytes_max: ByteCount,
    /// If true, a full embedded store evicts; else it answers "out of memory" (memcached's `-M`). (restart)
    pub evict: bool,
    /// File to which the embedded store is saved when the process ends, and from which it is loaded. (restart)
    pub file: Option<PathBuf>,
    /// Time for saving to `store.file` (ms). After it, the process ends without its items saved. (hot)
    pub save_timeout_ms: u64,
    /// Timeout of a request to a memcached server (ms). (hot)
    pub timeout_ms: u64,
    /// Timeout of a connection attempt to a memcached server (ms). (hot)
    pub connect_timeout_ms: u64,
    /// Wait after a failed connection attempt (ms). It doubles each time, up to `retry_max_ms`. (hot)
    pub retry_min_ms: u64,
    /// The longest wait between connection attempts (ms). (hot)
    pub retry_max_ms: u64,
    /// The rule of libmemcached that assigns keys to servers: `ketama`, `ketama-weighted` (160 points per server,
    /// pylibmc's `ketama_weighted`) or `modula`, libmemcached's default. (restart)
    pub distribution: DistributionName,
    /// What the keys of a server that cannot answer get: `error`, `miss` for gets, or `next`, the next server of
    /// the ring while the server is out. (hot)
    pub lost_keys: LostKeys,
    /// The longest life of items that `next` writes to the next server (s). (hot)
    pub next_ttl_s: u32,
    /// The largest share of the servers that is out of the ring at once. With 0 no server is taken out. (hot)
    pub eject_share_max: f64,
    /// Requests in a row that a server fails before it is taken out of the ring. (hot)
    pub eject_failures: u32,
    /// A server whose answers take this many times as long as those of the others is slow. It is taken out of the
    /// ring, unless `lost_keys` is `error`. 0 means never. (hot)
    pub eject_slower: u32,
    /// The shortest time of answers for which a server is slow (ms). (hot)
    pub eject_latency_min_ms: u64,
    /// The interval at which the names of the ring are resolved again (s). (hot)
    pub resolve_every_s: u64,
    /// Address of the DNS server for the names of the ring. Empty means those of the system. (restart)
    pub resolver: String,
    /// File with the line `USER:PASSWORD` with which this process logs in to its memcached servers or store services.
    /// It is read again when it changes. (restart)
    pub login_file: Option<PathBuf>,
    /// How memcached servers take that login: `text` as with their `-Y`, or `sasl` as with their `-S`. (restart)
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

/// The form in which values are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressConfig {
    /// `on` compresses new values, `read-only` and `off` do not. All three read compressed values. (hot)
    pub mode: CompressMode,
    /// The codec of new values. `auto` chooses a codec by the size of the value. (hot)
    pub codec: CodecName,
    /// Compression effort: `fast`, `default` or `high`. (hot)
    pub level: LevelName,
    /// Smallest value that is compressed. Smaller values are stored uncompressed. (hot)
    pub bytes_min: ByteCount,
    /// Share of a value that compression must save, frame header included; else it is not compressed. (hot)
    pub saving_min: f64,
    /// The same share while a quarter of the embedded store's memory is free, if it is larger. (hot)
    pub saving_min_spare: f64,
    /// Devices that must be able to read every new value. `iaa` limits deflate to a 4 KiB window. (hot)
    pub readable_by: Vec<ReaderName>,
    /// Treatment of stored values without a frame: `serve` returns them, `forbid` reports a miss. (hot)
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
            saving_min_spare: 0.3,
            readable_by: Vec::new(),
            foreign: Foreign::Serve,
        }
    }
}

/// The frames around stored values, the dictionaries for them, and the values that are kept without frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValuesConfig {
    #[serde(with = "frame_version")]
    /// Version of the frames of new values, 1 or 2. All versions are read. If unset, it is 2 where only this
    /// process reaches the store, which is then embedded, and else 1. (hot)
    pub frame_version: Option<FrameVersion>,
    /// If true, values of a class of keys are stored with a dictionary that was trained on such values, if that saves
    /// enough. This needs frames of version 2, and readers without a limit of their window. (hot)
    pub dictionaries: bool,
    /// What is done with a value on its way to the store, in this order: `compress`, `encrypt`. Reads undo it. Without
    /// `compress` nothing is compressed; with `encrypt` every value is sealed, which needs `values.keys`. (hot)
    pub path: Vec<ValueOp>,
    /// File with the keys of sealed values. With it, sealed values are read. Read again when it changes. (restart)
    pub keys: Option<PathBuf>,
    /// Name that is bound to every sealed value: values that were sealed under another name are misses. (restart)
    pub tenant: String,
    /// Prefixes of keys that make a class. Other keys belong to classes by their pattern. (restart)
    pub classes: Vec<String>,
    /// Share of `store.memory` in which the embedded store keeps the most-read compressed values decompressed, at
    /// most 0.25. 0 keeps none. (restart)
    pub hot_share: f64,
}

impl Default for ValuesConfig {
    fn default() -> Self {
        Self {
            frame_version: None,
            dictionaries: true,
            path: vec![ValueOp::Compress],
            keys: None,
            tenant: String::new(),
            classes: Vec::new(),
            hot_share: 0.05,
        }
    }
}

mod frame_version {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use store::frame::FrameVersion;

    pub(super) fn serialize<S: Serializer>(
        version: &Option<FrameVersion>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        version.map(FrameVersion::number).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<FrameVersion>, D::Error> {
        let Some(number) = Option::<u8>::deserialize(from)? else { return Ok(None) };
        let unknown = || D::Error::custom(format!("frame version {number} is unknown"));
        FrameVersion::from_number(number).map(Some).ok_or_else(unknown)
    }
}

/// Where (de)compression runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSection {
    /// Devices in addition to software, in order of preference: `worker`, and virtual accelerators as
    /// `virtual-NAME`. (restart)
    pub devices: Vec<String>,
    /// Addresses of compression services, in order of preference. They are preferred to `devices`. (restart)
    pub compression: Vec<String>,
    /// File with the line `USER:PASSWORD` with which this process logs in to its compression services over gRPC. It is
    /// read again when it changes. (restart)
    pub compression_login_file: Option<PathBuf>,
    /// If true, devices that only emulate an accelerator may be used. (restart)
    pub allow_virtual: bool,
    /// Placement policy. `auto` offloads to accelerators and compression services if there are any. (restart)
    pub policy: PolicyName,
    /// Smallest value that is offloaded to an accelerator or a compression service. (restart)
    pub offload_bytes_min: ByteCount,
    /// `least-host-cycles` avoids devices on which it expects a job to take longer than this (us). (restart)
    pub latency_max_us: u64,
    /// Use of software instead of a device that compresses: `prefer` allows it, `require` refuses it,
    /// `forbid` uses only software. (restart)
    pub fallback_compress: FallbackName,
    /// Use of software instead of a device that decompresses, with the same three words. (restart)
    pub fallback_decompress: FallbackName,
    /// Largest value that is (de)compressed on the calling core. Worker threads take larger values, so that
    /// no session stalls the event loop for longer. (restart)
    pub inline_bytes_max: ByteCount,
    /// Number of threads of the worker device. With 0, the calling core runs every job. (restart)
    pub workers: usize,
    /// Timeout of a job on a device (ms). After it, software redoes the job. (restart)
    pub job_timeout_ms: u64,
    /// Limit of the bytes in flight, per worker thread. At the limit, sessions stop reading. (restart)
    pub inflight_bytes_max: ByteCount,
    /// Limit of the jobs of other processes in flight, per worker thread. Further jobs are refused. (restart)
    pub jobs_max: usize,
    /// Limit of the jobs of one tenant inside devices, per worker thread. (restart)
    pub tenant_jobs_max: usize,
    /// Limit of the jobs that wait for a full device or at the tenant's limit, per worker thread. (restart)
    pub waiting_max: usize,
    /// One in `verify_every` streams that devices write is verified in software; 0 verifies none. (restart)
    pub verify_every: u32,
    /// The Intel IAAs that QPL uses: those of the calling thread's `socket`, of its `current` NUMA node,
    /// `any`, or those of the NUMA node with this number. (restart)
    pub qpl_numa: String,
    /// Largest job for an IAA: the `max_transfer_size` of its work queues. (restart)
    pub qpl_transfer_bytes_max: ByteCount,
    /// Limit of the jobs in a QPL device, per worker thread. (restart)
    pub qpl_queue_depth: usize,
    /// Huffman code of the streams that QPL writes: `dynamic` (made for the data) or `fixed`. (restart)
    pub qpl_huffman: HuffmanName,
    /// If true, an IAA decompresses every stream that it wrote, and compares the result. (restart)
    pub qpl_verify: bool,
}

impl Default for RuntimeSection {
    fn default() -> Self {
        Self {
            devices: vec!["worker".to_owned()],
            compression: Vec::new(),
            compression_login_file: None,
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
    /// Address of the scheduler to report to. Empty means none. (restart)
    pub address: String,
    /// File with the line `USER:PASSWORD` with which this process logs in to its scheduler. It is read again when it
    /// changes. (restart)
    pub login_file: Option<PathBuf>,
    /// Name of this process in its reports. Empty means the host name and the process id. (restart)
    pub instance: String,
    /// Interval at which a scheduler requests reports (ms). (hot)
    pub report_every_ms: u64,
    /// Time for which a scheduler keeps counts, one step per report interval (s). (restart)
    pub history_s: u64,
    /// Limit of the processes that report to a scheduler, and of those that follow its parameters. At the
    /// limit, a new process replaces a silent one. (restart)
    pub instances_max: usize,
    /// Memory limit of a scheduler's counts. At the limit, the oldest are dropped. (restart)
    pub history_bytes_max: ByteCount,
    /// Parameters that a scheduler sends. `static` sends only the keys below. `fitted` also sends what was
    /// fitted from reports: for each op and device the size from which offloading pays, and the device's
    /// share. (hot)
    pub parameters: ParametersWord,
    /// The policy that a scheduler sends to its followers. With `own`, followers keep theirs. (hot)
    pub policy: PolicyWord,
    /// `runtime.offload_bytes_min` for all followers of a scheduler. If unset, followers keep theirs. (hot)
    pub offload_bytes_min: Option<ByteCount>,
    /// `runtime.inline_bytes_max` for all followers of a scheduler. If unset, followers keep theirs. (hot)
    pub inline_bytes_max: Option<ByteCount>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            login_file: None,
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

/// The example service of docs/traces.md, which runs each request as a program of several ops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramsConfig {
    /// Addresses of the service, each with `tls://`. Empty turns it off. (restart)
    pub listen: Vec<String>,
    /// Limit of the programs in flight, per worker thread. Further requests run in software. (restart)
    pub live_max: usize,
    /// Limit of the programs of one tenant in flight, per worker thread. (restart)
    pub tenant_live_max: usize,
    /// Largest payload at any step of a program. (restart)
    pub payload_bytes_max: ByteCount,
    /// Limit of the jobs in the middle of programs that wait for a full device, per worker thread. (restart)
    pub overflow_max: usize,
    /// Deadline of a program, for policies and the count of late steps (us from start; 0: none). (restart)
    pub due_us: u64,
}

impl Default for ProgramsConfig {
    fn default() -> Self {
        let limits = runtime::trace::TraceLimits::default();
        Self {
            listen: Vec::new(),
            live_max: limits.live_max,
            tenant_live_max: limits.tenant_live_max,
            payload_bytes_max: ByteCount(limits.payload_bytes_max as u64),
            overflow_max: limits.overflow_max,
            due_us: 0,
        }
    }
}

/// The certificates of this process, and those that it accepts. Files are in PEM, and are read again when they change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// File with the certificate and chain of the listeners with `tls://`. (restart)
    pub cert_file: Option<PathBuf>,
    /// File with the private key. If unset, the key is in `cert_file`. (restart)
    pub key_file: Option<PathBuf>,
    /// File with the authorities that sign certificates of clients. (restart)
    pub ca_file: Option<PathBuf>,
    /// Certificates of clients: `none` are asked for, `request` refuses only wrong ones, `require` also refuses
    /// clients without one. (restart)
    pub client_auth: ClientAuthWord,
    /// Oldest version of TLS that clients may speak, `1.2` or `1.3`. (restart)
    pub min_version: TlsVersionWord,
    /// Cipher suites of TLS 1.2 that are offered, by OpenSSL's names. Empty means all safe ones. (restart)
    pub ciphers: Vec<String>,
    /// Time limit of a handshake (ms). (restart)
    pub handshake_timeout_ms: u64,
    /// Limit of the handshakes under way at one listener. At the limit, further clients wait, and replace the oldest
    /// one if it is slow. (restart)
    pub handshakes_max: usize,
    /// File with the authorities that sign certificates of other servers and services, at addresses with `tls://`.
    /// (restart)
    pub upstream_ca_file: Option<PathBuf>,
    /// File with the certificate that this process shows to them. (restart)
    pub upstream_cert_file: Option<PathBuf>,
    /// File with the private key for it. If unset, the key is in `upstream_cert_file`. (restart)
    pub upstream_key_file: Option<PathBuf>,
    /// Name that their certificates must have. Empty means the host of each address. (restart)
    pub upstream_server_name: String,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            cert_file: None,
            key_file: None,
            ca_file: None,
            client_auth: ClientAuthWord::None,
            min_version: TlsVersionWord::Tls12,
            ciphers: Vec::new(),
            handshake_timeout_ms: 5_000,
            handshakes_max: 256,
            upstream_ca_file: None,
            upstream_cert_file: None,
            upstream_key_file: None,
            upstream_server_name: String::new(),
        }
    }
}

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ClientAuthWord {
    None,
    Request,
    Require,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum TlsVersionWord {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

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

/// The rule for the use of software instead of a device.
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

/// The switch for the compression of new values.
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
    #[serde(untagged)]
    Named(#[serde(with = "codec_name")] Codec),
}

mod codec_name {
    use device::Codec;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(codec: &Codec, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(codec.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Codec, D::Error> {
        let name = String::deserialize(from)?;
        Codec::from_name(&name).ok_or_else(|| D::Error::custom(format!("codec {name} is unknown")))
    }
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

/// A device that must be able to read new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ReaderName {
    Iaa,
}

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

/// The protocols of memcached clients that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ProtocolName {
    Auto,
    Ascii,
    Binary,
}

/// The treatment of stored values that have no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Foreign {
    Serve,
    Forbid,
}
