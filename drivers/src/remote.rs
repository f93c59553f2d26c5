//! A compression service over gRPC as a device. Each job is one call, short jobs that come together share one, and a
//! queue is one connection. A connection that ends takes its queue with it: jobs inside come back as lost, and a caller
//! that wants to try again opens another queue. So there is no reconnecting here, no retry and no placement. The API
//! knows compression and decompression; any other op is refused as unsupported.
//!
//! On a thread that runs a current-thread executor of tokio's, connection and calls live in that executor and nothing
//! crosses a thread. Anywhere else the connection gets a thread of its own, which ends with its queue.

mod link;
mod message;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use api::Address;
use api::v1::compression_client::CompressionClient;
use api::v1::{DescribeRequest, DescribeResponse};
use device::{Capabilities, Codec, Device, DeviceError, Dialect, Queue, Waiting};
use tokio::runtime::{Handle, RuntimeFlavor};
use units::{ByteCount, Clock, SystemClock, limits};

use link::{ConnectionThread, Link};
use message::Format;

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

/// The options that a service's address leaves open.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The time that the service has for each job.
    pub timeout: Duration,
    /// The time after which a connection attempt fails.
    pub connect_timeout: Duration,
    /// The most jobs that one queue holds. The wire allows [`api::wire::CALLS_MAX`].
    pub queue_depth: usize,
    /// The most short jobs that may share a call. The wire allows [`api::wire::JOBS_PER_CALL_MAX`].
    pub jobs_per_call: usize,
    /// The largest uncompressed side of a job that the service takes.
    pub work_bytes_max: ByteCount,
    /// The clock of the jobs' deadlines.
    pub clock: Arc<dyn Clock>,
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
        }
    }
}

impl Remote {
    /// Makes a device of the service at `address`. It does not ask the service anything yet: a service that is not
    /// there loses its first jobs.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] for an address that cannot stand in a URI.
    pub fn new(address: Address, options: &RemoteOptions) -> Result<Self, DeviceError> {
        let name = format!("remote-{address}");
        let origin = api::wire::origin(&address).map_err(|status| {
            DeviceError::Misconfigured(format!("not an address: {}", status.message()))
        })?;
        let capabilities = Arc::new(capabilities(options));
        let format = Format::new(origin, options);
        let connect_timeout = options.connect_timeout;
        let jobs_per_call = options.jobs_per_call.clamp(1, api::wire::JOBS_PER_CALL_MAX);
        let alone = AtomicBool::new(true);
        Ok(Self { name, address, connect_timeout, format, jobs_per_call, capabilities, alone })
    }

    /// Opens a connection beside those of the queues, in the executor that this is called in.
    ///
    /// # Errors
    /// `UNAVAILABLE` if there is no connection.
    pub async fn connect(&self) -> Result<Connection, tonic::Status> {
        let link = Link::open(&Handle::current(), self.address.clone(), self.connect_timeout);
        let wire = link.wire().await?;
        let client = CompressionClient::with_origin(wire, self.format.origin().clone());
        Ok(Connection { client, _link: link })
    }

    /// Asks the service what it accepts and which devices it has.
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

/// A connection to a service, for calls that are no jobs. It closes with this value.
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

    /// Returns false while some queue's connection is served by the thread that would wait.
    fn completes_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }
}

/// Returns what every build's software can do. A service that cannot do it fails the job, and the job is done
/// elsewhere.
fn capabilities(options: &RemoteOptions) -> Capabilities {
    let dialects = Codec::ALL.map(Dialect::new);
    Capabilities {
        writes: dialects.into_iter().chain([Dialect::IAA]).collect(),
        reads: dialects.to_vec(),
        // The API has compression only.
        kernels: Vec::new(),
        work_bytes_max: options.work_bytes_max,
        queue_depth: options.queue_depth.clamp(1, api::wire::CALLS_MAX as usize),
        waiting: Waiting::Signalled,
    }
}
