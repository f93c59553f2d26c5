//! The section `[runtime]`: where (de)compression runs.

use std::path::PathBuf;

use policy::{NamedPolicy, POLICIES};
use serde::{Deserialize, Serialize};
use units::{ByteCount, limits};

use crate::config::keys::{
    JOBS_MAX, Key, Kind, LATENCY_US_MAX, MEMORY_MAX, THREADS_MAX, TIME_MS_MAX, policy_names,
    restart, with_first,
};

/// Where (de)compression runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeSection {
    /// Devices in addition to software, in order of preference: `worker` (threads of this process); `qpl-hardware`,
    /// `qpl-software`, `qpl-auto` (Intel IAA through QPL, see [iaa.md](iaa.md); `qpl-auto` only if there is no IAA);
    /// `dpdk-NAME` (in builds with DPDK, see [dpdk.md](dpdk.md)); `virtual-NAME` (emulates an accelerator, see
    /// `allow_virtual`). With `[]` everything runs on the calling core.
    pub devices: Vec<String>,
    /// Addresses of compression services, in order of preference: `HOST:PORT` or the path of a Unix socket for gRPC,
    /// `lane:/PATH` for a [lane](lane.md) on this host. Each is a device in front of those of `devices`. If one is
    /// away, its jobs run elsewhere and are counted in `rebate_fallback_total`.
    pub compression: Vec<String>,
    /// File with the line `USER:PASSWORD` for the services of `compression` over gRPC, see
    /// [access.md](access.md#passwords-towards-others). Lanes need none, because both ends run as the same user.
    pub compression_login_file: Option<PathBuf>,
    /// Whether the services of `compression` have the keys of `values.keys` and serve ciphers (`server.ciphers`). Then
    /// a value is compressed and sealed in one trip, and opened and decompressed in one.
    pub compression_ciphers: bool,
    /// Whether ops that follow each other go to a device in one trip, if the device runs them so and the policy expects
    /// it to pay. With `false` each op is placed by itself. It is there to measure what the trips cost.
    pub chains: bool,
    /// Whether `virtual-NAME` devices may serve. They compute in software and take as long as the accelerator would.
    /// Use them for measurements, never in production.
    pub allow_virtual: bool,
    /// Where jobs run, see [policies](#policies). A scheduler may send another policy.
    pub policy: PolicyName,
    /// Smaller values are not offloaded. Low: the transfer costs more than the work. High: accelerators idle. `batch`,
    /// `least-latency` and `least-host-cycles` ignore it. A scheduler may send another size.
    pub offload_bytes_min: ByteCount,
    /// Only for `least-host-cycles`. A device on which a value is expected to take longer, including its queue, is used
    /// only if all others take longer too. Low: more work on the calling core. High: values wait in deeper queues.
    pub latency_max_us: u64,
    /// Whether software may compress instead of a device. `prefer`: yes. `require`: never, and a value that no device
    /// takes is stored as it came. `forbid`: only software compresses, and devices are not used.
    pub fallback_compress: FallbackName,
    /// The same for decompression. With `require` a value is a miss if no device reads it, and `no_device` in
    /// `rebate_frame_errors_total` counts it. This happens if all devices are lost or full, do not take the value, or
    /// read it wrong. It does not hold for programs: their service does by hand what fails in them.
    pub fallback_decompress: FallbackName,
    /// Values up to this size are (de)compressed on the calling core, larger ones by the worker device. High: other
    /// sessions of that core wait longer. Low: more hand-overs.
    pub inline_bytes_max: ByteCount,
    /// Threads of the worker device, 0 to 64. They run on any core that the process may use. They are not pinned,
    /// because several services on one host would choose the same core. With 0 everything runs on the calling core.
    pub workers: usize,
    /// A job that a device keeps longer is redone in software, and the device is retired for a while. Low: work is done
    /// twice under load. High: a hung device is a hung request.
    pub job_timeout_ms: u64,
    /// Bytes of values in flight for each worker thread, see [values in flight](#values-in-flight). At least
    /// `item_bytes_max`.
    pub inflight_bytes_max: ByteCount,
    /// Jobs of other processes that a compression service has in flight for each worker thread, 1 to 1000000. Further
    /// jobs are refused with `RESOURCE_EXHAUSTED`, and the caller does them itself. Low: less work is done here. High:
    /// jobs wait longer here than they would take at the caller.
    pub jobs_max: usize,
    /// Jobs of one tenant inside devices for each worker thread, 1 to 1000000. A tenant is a caller of the compression
    /// service: a lane, or a connection over gRPC. Further jobs of the tenant wait (see `waiting_max`) or are done in
    /// software. Low: a tenant alone cannot fill a device. High: one tenant can. Jobs with the placement `sync` count
    /// but are never held back, because there is at most one of them on a thread.
    pub tenant_jobs_max: usize,
    /// Jobs of all tenants that may wait for room in a device, for each worker thread. Only two kinds of jobs wait:
    /// those for which the policy chose a full device, and those of tenants at their cap. Within a tenant the earliest
    /// deadline comes first; between tenants the order is fair by bytes. With `0` such jobs run in software at once.
    /// High: jobs may wait as long as `job_timeout_ms`.
    pub waiting_max: usize,
    /// One in so many results of accelerators and compression services is read back in software before it is used, once
    /// a device has earned trust. The first 32 are all read back, then a share that falls with every good result
    /// ([failures](failures.md#a-device-that-is-wrong)). A wrong result counts in `rebate_device_corrupt_total` and is
    /// made again in software. `1`: all are read back, which takes about as much of the core as decompression. `0`:
    /// none, not even the first ones.
    pub verify_every: u32,
    /// Which Intel IAAs QPL's devices use: `socket`, those of the socket of the worker thread that has the job;
    /// `current`, those of its NUMA node; `any`; or those of the node with the given number. `current` and `any` need
    /// QPL 1.6. A thread without such an IAA does its jobs in software, see [iaa.md](iaa.md). With `any` no IAA idles,
    /// but jobs cross between sockets.
    pub qpl_numa: String,
    /// The largest input and output of a job for an IAA, 4 KiB to 1 GiB: the `max_transfer_size` of its work queues.
    /// Larger jobs run in software. High: a job that the work queue refuses for its size takes the device out of use
    /// for a while; `rebate doctor` compares the two. Low: large values never reach the IAA.
    pub qpl_transfer_bytes_max: ByteCount,
    /// Jobs that one worker thread has in a QPL device at once, 1 to 1024. Each takes 189 kB (`qpl-hardware`) or, 32 at
    /// most, 831 kB (`qpl-auto`) for as long as the thread lives. Low: the accelerator idles between jobs. High:
    /// memory.
    pub qpl_queue_depth: usize,
    /// The Huffman code of the streams that QPL writes. `dynamic` is made for the data, and IAAs of the first
    /// generation need two passes for it. `fixed` is faster and gives longer streams.
    pub qpl_huffman: HuffmanName,
    /// Whether an IAA decompresses every stream that it wrote and compares the result, in addition to `verify_every`.
    /// It costs about one decompression on the device. With `false`, a wrong stream is found by `verify_every`, or when
    /// it is read.
    pub qpl_verify: bool,
}

impl Default for RuntimeSection {
    fn default() -> Self {
        Self {
            devices: vec!["worker".to_owned()],
            compression: Vec::new(),
            compression_login_file: None,
            compression_ciphers: false,
            chains: true,
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

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("runtime.devices", Kind::Names).flag("--device"),
    restart("runtime.compression", Kind::CompressionAddresses).flag("--compression"),
    restart("runtime.compression_login_file", Kind::Path),
    restart("runtime.compression_ciphers", Kind::Switch),
    restart("runtime.chains", Kind::Switch),
    restart("runtime.allow_virtual", Kind::Switch).flag("--allow-virtual"),
    restart("runtime.policy", Kind::Choice(&POLICIES_AUTO)).flag("--policy"),
    restart("runtime.offload_bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    restart("runtime.latency_max_us", Kind::Count(1, LATENCY_US_MAX)),
    restart("runtime.fallback_compress", Kind::Choice(FALLBACKS)),
    restart("runtime.fallback_decompress", Kind::Choice(FALLBACKS)),
    restart("runtime.inline_bytes_max", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    restart("runtime.workers", Kind::Count(0, THREADS_MAX)).flag("--workers"),
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
];

const FALLBACKS: &[&str] = &["prefer", "require", "forbid"];

const POLICIES_AUTO: [&str; POLICIES.len() + 1] = with_first("auto", &policy_names());

/// The maximum number of QPL jobs per worker thread. A job structure takes up to 831 kB.
const QPL_JOBS_MAX: i64 = 1_024;

/// A placement policy of [`policy::POLICIES`], or the policy that suits the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum PolicyName {
    Auto,
    #[serde(untagged)]
    Named(#[serde(with = "super::named_policy")] &'static NamedPolicy),
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
