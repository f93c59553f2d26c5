//! A compression service over gRPC as a device. Each job is one call, except that short jobs submitted together share
//! a call. A queue is one connection. When the connection ends, its queue ends too: the jobs in flight complete as
//! lost, and a caller that wants to try again opens another queue. The module does not reconnect, retry or place
//! jobs. The API has compression, decompression and ciphers, and any other op is refused as unsupported.
//!
//! On a thread with tokio's current-thread executor, the connection and the calls run in that executor, and nothing
//! is sent between threads. On any other thread, the connection gets its own thread, which ends with the queue.

mod link;
mod message;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use api::v1::compression_client::CompressionClient;
use api::v1::{DescribeRequest, DescribeResponse};
use api::{Address, LoginFile};
use device::{
    Capabilities, Codec, Device, DeviceError, Dialect, Kernel, Queue, Successions, Waiting,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use units::{ByteCount, Clock, SystemClock, limits};

use link::{ConnectionThread, Link};
use message::Format;

use crate::asked;

pub use link::Wire;
use queue::RemoteQueue;

/// A compression service.
pub struct Remote {
    name: String,
    address: Address,
    connect_timeout: Duration,
    format: Format,
    jobs_per_call: usize,
    capabilities: Arc<Capabilities>,
    /// True if no queue depends on the thread that opened it.
    alone: AtomicBool,
}

/// The options of a service other than its address.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The time limit of the service for each job.
    pub timeout: Duration,
    /// The time after which a connection attempt fails.
    pub connect_timeout: Duration,
    /// The most jobs in one queue. The protocol allows [`api::wire::CALLS_MAX`].
    pub queue_depth: usize,
    /// The most short jobs that may share a call. The protocol allows [`api::wire::JOBS_PER_CALL_MAX`].
    pub jobs_per_call: usize,
    /// The size of the largest job that the service accepts. The size of a job is the size of its input, or of its
    /// result if the job decompresses.
    pub work_bytes_max: ByteCount,
    /// The clock of the jobs' deadlines.
    pub clock: Arc<dyn Clock>,
    /// The login of all calls, if the service wants one.
    pub login: Option<Arc<LoginFile>>,
    /// Whether the service has the keys of this process, and so encrypts and decrypts too.
    pub ciphers: bool,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            queue_depth: 256,
            jobs_per_call: api::wire::JOBS_PER_CALL_MAX,
            work_bytes_max: limits::ITEM_BYTES_MAX_DEFAULT,
            clock: Arc::new(SystemClock::new()),
            login: None,
            ciphers: false,
        }
    }
}

impl Remote {
    /// Makes a device of the service at `address`. It does not connect to the service yet. If the service is absent,
    /// the first jobs are lost.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] for an address that is not valid in a URI.
    pub fn new(address: Address, options: &RemoteOptions) -> Result<Self, DeviceError> {
        let name = format!("remote-{address}");
        let origin = api::wire::origin(&address).map_err(|status| {
            DeviceError::Misconfigured(format!("not an address: {}", status.message()))
        })?;
        let capabilities = Arc::new(capabilities(options));
        let format = Format::new(&name, origin, options);
        let connect_timeout = options.connect_timeout;
        let jobs_per_call = options.jobs_per_call.clamp(1, api::wire::JOBS_PER_CALL_MAX);
        let alone = AtomicBool::new(true);
        Ok(Self { name, address, connect_timeout, format, jobs_per_call, capabilities, alone })
    }

    /// Opens a separate connection, in the executor of the calling task.
    ///
    /// # Errors
    /// `UNAVAILABLE` if there is no connection.
    pub async fn connect(&self) -> Result<Connection, tonic::Status> {
        let link = Link::open(&Handle::current(), self.address.clone(), self.connect_timeout);
        let wire = link.wire().await?;
        let client = CompressionClient::with_origin(wire, self.format.origin().clone());
        Ok(Connection { client, _link: link })
    }

    /// Returns the service's description: what it accepts and which devices it has.
    ///
    /// # Errors
    /// The service's status, or `UNAVAILABLE` if there is no connection.
    pub async fn describe(&self) -> Result<DescribeResponse, tonic::Status> {
        let mut connection = self.connect().await?;
        let answer = connection.client.describe(self.format.timed(DescribeRequest {}));
        let answer = tokio::time::timeout(self.format.timeout(), answer).await;
        let late = |_| tonic::Status::deadline_exceeded("no answer in time");
        Ok(answer.map_err(late)??.into_inner())
    }
}

/// A connection to a service for calls other than jobs. Dropping it closes the connection.
#[derive(Debug)]
pub struct Connection {
    /// The generated client.
    pub client: CompressionClient<Wire>,
    _link: Link,
}

impl Device for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let here = Handle::try_current();
        let here =
            here.ok().filter(|executor| executor.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let (executor, thread) = match here {
            Some(handle) => {
                self.alone.store(false, Ordering::Relaxed);
                (handle, None)
            }
            None => {
                let thread = ConnectionThread::start().map_err(|error| {
                    DeviceError::Misconfigured(format!("a thread for {}: {error}", self.name))
                })?;
                (thread.handle().clone(), Some(thread))
            }
        };
        let link = Link::open(&executor, self.address.clone(), self.connect_timeout);
        let format = (self.format.clone(), self.jobs_per_call);
        let capabilities = Arc::clone(&self.capabilities);
        Ok(Box::new(RemoteQueue::new(capabilities, format, link, thread, waker)))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("logins_refused", self.format.logins_refused())]
    }

    fn needs_named_keys(&self) -> bool {
        true
    }

    fn successions(&self) -> Successions {
        asked::successions(&self.capabilities)
    }

    /// Returns false once a queue's connection runs on the thread that opened the queue.
    fn completes_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }
}

/// Returns the capabilities that the software of every build has. A service with fewer capabilities fails the
/// job, which then runs elsewhere.
fn capabilities(options: &RemoteOptions) -> Capabilities {
    let dialects = Codec::ALL.map(Dialect::new);
    Capabilities {
        writes: dialects.into_iter().chain([Dialect::IAA]).collect(),
        reads: dialects.to_vec(),
        kernels: if options.ciphers { vec![Kernel::AesGcm] } else { Vec::new() },
        dictionaries: false,
        work_bytes_max: options.work_bytes_max,
        queue_depth: options.queue_depth.clamp(1, api::wire::CALLS_MAX as usize),
        waiting: Waiting::Signalled,
    }
}
