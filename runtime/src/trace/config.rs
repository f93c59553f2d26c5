//! The configuration of an executor of traces, and its bounds. Nothing here acts.

use device::{Codec, Dialect, Level, Pool};
use trace::Catalog;
use units::{ByteCount, Nanos};

use super::kernels::{Documents, Schema};
use super::ports::{LoadBalance, NoNotify, NoTcp, Notify, SameCore, Tcp};

/// The configuration of an executor.
pub struct TraceConfig {
    /// The traces by name: the trace memory.
    pub catalog: Catalog,
    /// Its bounds.
    pub limits: TraceLimits,
    /// Messages to and from peers.
    pub tcp: Box<dyn Tcp>,
    /// Chooses the core that goes on.
    pub load_balance: Box<dyn LoadBalance>,
    /// Receives the ends of paths, in addition to the caller.
    pub notify: Box<dyn Notify>,
    /// The format that `serialize` writes and `deserialize` reads.
    pub schema: Box<dyn Schema>,
    /// The dialect that `compress` writes.
    pub dialect: Dialect,
    /// The level of compression.
    pub level: Level,
    /// The pool of results.
    pub pool: Pool,
}

impl TraceConfig {
    /// These traces, without peers: the calling core goes on, documents of any shape, fast deflate.
    pub fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            limits: TraceLimits::default(),
            tcp: Box::new(NoTcp),
            load_balance: Box::new(SameCore::default()),
            notify: Box::new(NoNotify),
            schema: Box::new(Documents),
            dialect: Dialect::new(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(ByteCount::mib(4)),
        }
    }
}

/// The bounds of one executor. Payloads under way take at most about `live_max` times three times
/// `payload_bytes_max`: the input, and what a step reads and writes. A kernel's document takes up to about forty times
/// the bytes that it is read from, while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    /// Traces under way at once.
    pub live_max: usize,
    /// The most live traces of one tenant. With too few, a tenant alone cannot use the devices. With too many, one
    /// tenant can use them up.
    pub tenant_live_max: usize,
    /// The largest payload, at every step.
    pub payload_bytes_max: usize,
    /// The overflow area: jobs in the middle of traces that wait while every device that would take them is full.
    /// Beyond it, and at the first step of a trace, the policy finds the device full and the job goes to software. With
    /// zero nothing waits.
    pub overflow_max: usize,
    /// The time for which an answer is waited for where the trace does not say.
    pub answer_within: Nanos,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self {
            live_max: 1_024,
            tenant_live_max: 256,
            payload_bytes_max: 1 << 20,
            overflow_max: 64,
            answer_within: Nanos::secs(1),
        }
    }
}
