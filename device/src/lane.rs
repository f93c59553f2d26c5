//! The server's end of a lane. A lane carries jobs from another process on this host through memory that both
//! processes share. `drivers` implements these traits, and the program that builds a server passes a
//! [`WatchLane`] to it. The server decides what a job may cost and which device runs it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

use bytes::Bytes;
use units::{ByteCount, Nanos, TraceContext};

use crate::{Buffer, Class, Pool, Task, TenantId};

/// A function that registers a new connection with the executor of the calling thread.
pub type WatchLane = fn(UnixStream) -> io::Result<Box<dyn Doorbell>>;

/// The watched socket of a lane. Every byte that it receives is a doorbell.
pub trait Doorbell {
    /// Becomes ready when an event has arrived since the last call. Returns whether the event may be the end
    /// of the connection. The call clears the event before it returns, so any later event is reported again.
    ///
    /// # Errors
    /// An error if the executor is shutting down.
    fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>>;

    /// Answers the client's greeting. Returns none if the greeting has not arrived yet. `work_bytes_max` is the largest
    /// uncompressed side of a job that this service accepts.
    ///
    /// # Errors
    /// [`Problem`]: the peer cannot be a client of this process.
    fn greet(&self, work_bytes_max: ByteCount) -> Result<Option<Box<dyn ServedLane>>, Problem>;
}

/// One client's lane. It belongs to the thread that serves it.
pub trait ServedLane {
    /// Reads the next job from the client's ring.
    ///
    /// # Errors
    /// [`Problem::Peer`]: the client breaks the rules and must not be served any longer.
    fn take(&mut self) -> Result<Taken, Problem>;

    /// Copies the input of a job to memory that the client cannot change. This is the only copy that the
    /// service makes of a value. Returns false if the input is not within the client's memory.
    fn copy_input(&mut self, request: &Request, to: &mut Buffer) -> bool;

    /// Returns a buffer that the client can read, with space for a result of `bytes` after [`RESULT_AT`]
    /// unused bytes. Returns none when the lane's memory is exhausted.
    fn output(&self, bytes: usize) -> Option<Buffer>;

    /// Returns the pool of the buffers that [`ServedLane::output`] returns.
    fn outputs(&self) -> &Pool;

    /// Answers a job. Copies what is not in memory that the client can read. Without space for the copy, answers with
    /// [`NoResult::Busy`] and returns false.
    fn finish(&mut self, ticket: Ticket, results: Results, service: Nanos) -> bool;

    /// Answers a job that has no result.
    fn fail(&mut self, ticket: Ticket, why: NoResult, service: Nanos);

    /// Publishes all answers since the last call to the client. If the client sleeps, wakes it once.
    fn publish(&mut self);

    /// Returns the next step after a turn without a job. Before it returns `Sleep`, it announces the sleep to the
    /// client, so the client will ring the doorbell.
    fn pause(&mut self) -> Pause;

    /// Reads doorbells from the socket if many may be unread or if `may_be_disconnected` is true. Returns false if
    /// the client is gone, which only a read detects. Fewer reads save system calls here and wake-ups of the
    /// client, because a read that frees space in the socket wakes it. The caller must be notified of every
    /// doorbell even while earlier doorbells are unread (edge-triggered).
    fn drain_doorbells(&mut self, may_be_disconnected: bool) -> bool;

    /// Returns the counts since the last call and resets them.
    fn take_counters(&mut self) -> LaneCounters;

    /// Returns how many answers were published to the client since the start, and how many it has read.
    fn answers(&self) -> (u64, u64);

    /// Returns the total size of the results that the client has not read or that a device has not released.
    fn held(&self) -> ByteCount;
}

/// A client's job. Its sizes are unchecked claims of the client.
#[derive(Debug)]
pub struct Request {
    /// What the client wants to have done.
    pub form: RequestForm,
    /// The tenant of the job.
    pub tenant: TenantId,
    /// The class of the job.
    pub class: Class,
    /// The size of the input (bytes).
    pub input_bytes: usize,
    /// The size above which a result is of no use (bytes).
    pub output_bytes: usize,
    /// The time until the client stops waiting, counted from its request.
    pub time_left: Option<Nanos>,
    /// The trace of the request that needs the job, if the client records it.
    pub trace: Option<TraceContext>,
    /// The position of the input in the memory that the client shares (bytes).
    pub offset: u64,
    /// Identifies the answer to this job.
    pub ticket: Ticket,
}

/// What a client wants to have done.
#[derive(Debug)]
pub enum RequestForm {
    /// One op.
    Task(Task),
    /// What an encoded message `rebate.v1.RunRequest` says, which has no payload.
    Message(Bytes),
}

/// The results of a job.
#[derive(Debug)]
pub struct Results {
    /// The result of the job's own op and the time that it took, if an op followed.
    pub first: Option<(Bytes, Nanos)>,
    /// The buffer with the last result.
    pub output: Buffer,
    /// The part of the buffer that is the result.
    pub part: Range<usize>,
    /// Whether nothing followed for lack of the key.
    pub follow_key_unknown: bool,
}

/// Identifies the job that an answer belongs to. The client chose this number.
#[derive(Debug)]
pub struct Ticket(pub u64);

/// The result of a read of the client's ring.
#[derive(Debug)]
pub enum Taken {
    /// There was no job.
    Nothing,
    /// There was an entry that is not a valid job. The call has answered it already.
    Refused,
    /// There was a job.
    Job(Request),
}

/// The reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The compressed result would exceed the size that is of use.
    DoesNotFit,
    /// The input is not a valid stream.
    InvalidInput,
    /// A device failed the job.
    Fault,
    /// There is no capacity for the job.
    Busy,
    /// The job must not be run.
    Refused,
    /// The service has no such key for ciphers.
    UnknownKey,
}

/// The next step of a side that has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Check again after other tasks had their turn.
    Poll,
    /// Sleep until the socket is readable or one of this side's jobs completes.
    Sleep,
}

/// The counts of a lane since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// The number of times that the client was woken.
    pub doorbells: u64,
    /// The number of copied values: inputs copied into memory that the client cannot change, and results copied from
    /// other memory.
    pub copies: u64,
    /// The number of copied bytes.
    pub copied_bytes: u64,
}

/// The reason why a lane cannot be made.
#[derive(Debug)]
pub enum Problem {
    /// The other process is no valid peer for this lane. The process must change, or its operator must act.
    Peer(String),
    /// The system provides no sealed memory that can be shared. Linux does since 5.1.
    Memory(io::Error),
    /// The system provides no thread or no descriptor to wait with.
    Watch(io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Peer(why) => write!(f, "not a peer for a lane: {why}"),
            Problem::Memory(error) => write!(f, "no sealed memory: {error}"),
            Problem::Watch(error) => write!(f, "nothing to wait with: {error}"),
        }
    }
}

impl std::error::Error for Problem {}

/// The position in its buffer at which a result should begin (bytes). The bytes in front of it are unused.
/// The offset avoids a copy on a device that has results in its own memory, such as a virtual device that
/// remembers results. Without an offset, such a device replaces the buffer's memory with its own, and the
/// result must then be copied to the lane. With an offset, the device writes the result to memory that the
/// client reads, and no copy follows.
pub const RESULT_AT: usize = 32;
