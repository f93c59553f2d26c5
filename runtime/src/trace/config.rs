//! The configuration of an executor of traces, and its limits. Nothing here acts.

use std::sync::Arc;

use device::{Codec, Dialect, Level, Pool};
use trace::Catalog;
use units::{ByteCount, Nanos};

use super::kernels::{Documents, Schema};
use super::ports::{LoadBalance, NoNotify, NoTcp, Notify, SameCore, Tcp};

/// The configuration of an executor.
pub struct TraceConfig {
    /// The traces by name: the trace memory.
    pub catalog: Catalog,
    /// The limits of the executor.
    pub limits: TraceLimits,
    /// The port for messages to and from peers.
    pub tcp: Box<dyn Tcp>,
    /// The port that chooses the core that continues a request.
    pub load_balance: Box<dyn LoadBalance>,
    /// The port that is told when a path of a trace ends. The caller is told too.
    pub notify: Box<dyn Notify>,
    /// The format that `serialize` writes and `deserialize` reads.
    pub schema: Arc<dyn Schema>,
    /// The dialect that `compress` writes.
    pub dialect: Dialect,
    /// The level of compression.
    pub level: Level,
    /// The pool for results.
    pub pool: Pool,
}

impl TraceConfig {
    /// Creates a configuration with these traces and without peers. Requests stay on the calling core,
    /// documents may have any shape, and compression is fast deflate.
    pub fn new(catalog: Catalog) -> Self {
        Self {
            catalog,
            limits: TraceLimits::default(),
            tcp: Box::new(NoTcp),
            load_balance: Box::new(SameCore::default()),
            notify: Box::new(NoNotify),
            schema: Arc::new(Documents),
            dialect: Dialect::new(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(ByteCount::mib(4)),
        }
    }
}

/// The limits of one executor. Payloads in flight take at most about `3 * live_max * payload_bytes_max`
/// bytes: each trace has its input, and the bytes that a step reads and writes. The document of a running
/// kernel takes up to about forty times the size of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    /// The most traces in flight at the same time.
    pub live_max: usize,
    /// The most traces of one tenant in flight. With too few, a single tenant cannot use the devices fully. With too
    /// many, one tenant can take all of their capacity.
    pub tenant_live_max: usize,
    /// The largest size of a payload at every step, in bytes.
    pub payload_bytes_max: usize,
    /// The size of the overflow area, in jobs. A job after the first step of its trace waits there while
    /// every device that accepts it is full. At the first step, or if the area is full, the policy finds the
    /// devices full and the job goes to software. With zero, no job waits.
    pub overflow_max: usize,
    /// The longest wait for an answer, if the trace does not state one.
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
