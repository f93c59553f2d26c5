//! The service's end of a lane, as a server sees it: jobs of another process on this host, over memory that the two
//! share. `drivers` implements it, and the program that builds a server hands it [`WatchLane`]. The caller decides what
//! a job may cost and what runs it.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

use units::{ByteCount, Nanos};

use crate::{Buffer, Class, Task, TenantId};

/// Watches a new connection in the executor that it is called in.
pub type WatchLane = fn(UnixStream) -> io::Result<Box<dyn Doorbell>>;

/// A lane's socket, watched: every byte on it is a ring.
pub trait Doorbell {
    /// Is ready when something has come since the last time, and says whether that may also be the end. The event is
    /// forgotten by then, so that whatever comes after it counts as new.
    ///
    /// # Errors
    /// The executor ends.
    fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>>;

    /// Answers the client's greeting. Returns none if the greeting is not there yet. `work_bytes_max` is the largest
    /// uncompressed side of a job that this service takes.
    ///
    /// # Errors
    /// [`Problem`]: this is no client for this process.
    fn greet(&self, work_bytes_max: ByteCount) -> Result<Option<Box<dyn ServedLane>>, Problem>;
}

/// One client's lane, on the thread that serves it.
pub trait ServedLane {
    /// Takes the next job.
    ///
    /// # Errors
    /// [`Problem::Peer`]: the client breaks the rules, and is not to be served any longer.
    fn take(&mut self) -> Result<Taken, Problem>;

    /// Copies the input of a job to where the client cannot change it. This is the one copy that the service makes of a
    /// value. Returns false if the input does not lie within the client's memory.
    fn copy_input(&mut self, request: &Request, to: &mut Buffer) -> bool;

    /// Returns room for a result of so many bytes, behind [`RESULT_AT`] others, where the client can read it. Returns
    /// none when the lane's memory is exhausted.
    fn output(&self, bytes: usize) -> Option<Buffer>;

    /// Answers with that part of `output`, which is copied if it is not from [`ServedLane::output`]. Returns false if
    /// there was no room for the copy. Then the answer is [`NoResult::Busy`].
    fn finish(
        &mut self,
        ticket: Ticket,
        output: Buffer,
        part: Range<usize>,
        service: Nanos,
    ) -> bool;

    /// Answers without a result.
    fn fail(&mut self, ticket: Ticket, why: NoResult, service: Nanos);

    /// Shows the client all answers since the last call, and wakes it once if it sleeps, however many answers there
    /// are.
    fn show(&mut self);

    /// Returns the next step after a turn that found no job. `Sleep` was announced to the client: a bell will come.
    fn pause(&mut self) -> Pause;

    /// Notes that a bell has come, for a caller that learns of every bell by itself, whether or not earlier ones were
    /// read. It reads bells only once in a while. That saves a system call for each, and the client's sleeps are not
    /// disturbed by what a read gives back to its socket. Returns false if the client is gone. `may_be_gone` asks to
    /// look for that.
    fn drain_doorbells(&mut self, may_be_gone: bool) -> bool;

    /// Returns the counts since the last call.
    fn take_counters(&mut self) -> LaneCounters;

    /// Returns how many answers the client was shown since the beginning, and how many of them it has read.
    fn answers(&self) -> (u64, u64);

    /// Returns the bytes of results that the client has not read, or that a device has not let go of.
    fn held(&self) -> ByteCount;
}

/// A job as the client asked for it. Its sizes are only the client's claim.
#[derive(Debug)]
pub struct Request {
    /// The op and its parameters.
    pub task: Task,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The class of the job.
    pub class: Class,
    /// Size of the input.
    pub input_bytes: usize,
    /// The longest result that is of use.
    pub output_bytes: usize,
    /// The time until the client stops waiting, from the moment when it asked.
    pub time_left: Option<Nanos>,
    /// Where the input lies in the memory that the client shares (bytes).
    pub offset: u64,
    /// The claim to this job's answer.
    pub ticket: Ticket,
}

/// The claim to one answer: the mark that the client gave the job.
#[derive(Debug)]
pub struct Ticket(pub u64);

/// The result of a look at the client's ring.
#[derive(Debug)]
pub enum Taken {
    /// There was no job.
    Nothing,
    /// There was something that is no job. It has its answer.
    Refused,
    /// There was a job.
    Job(Request),
}

/// The reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The result would be longer than what is of use. For compression only.
    DoesNotFit,
    /// The input is no valid stream.
    InvalidInput,
    /// A device failed the job.
    Fault,
    /// There is no room for the job.
    Busy,
    /// The job is nothing that may be run.
    Refused,
}

/// The next step of a side that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Look again, after others had their turn.
    Look,
    /// Sleep until the socket is readable, or one of this side's jobs is done.
    Sleep,
}

/// The counters of a lane since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// The number of times that the client was woken.
    pub bells: u64,
    /// Values copied: inputs into memory that the client cannot change, and results that were made elsewhere.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
}

/// The reason why there is no lane.
#[derive(Debug)]
pub enum Problem {
    /// The other process is no peer for this lane. The process must change, or its operator.
    Peer(String),
    /// The system gives no memory that can be shared in this way. Linux does since 5.1.
    Memory(io::Error),
    /// The system gives no thread or no descriptor to wait with.
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

/// The place in its buffer where a result should begin, behind a few bytes that nobody needs. If a result is to begin
/// at the beginning, a device that has results in memory of its own (such as a virtual device that remembers them)
/// hands that memory over. With an offset it writes the result where the client reads, while its time runs, as hardware
/// would, and nothing is copied after that.
pub const RESULT_AT: usize = 32;
