//! One thread's queue of a lane. The service reads an input in place if the input is in the lane's region. Otherwise
//! the input is copied there. A result is copied out of the service's region, because the service must not be able to
//! change bytes after their checksum was computed. A cancelled job leaves the queue at once. Its input stays until
//! the service has answered or the lane has ended.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use api::prost::Message as _;
use api::v1::RunRequest;
use device::lane::NoResult;
use device::{
    Capabilities, Completion, DeviceError, Input, Job, Outcome, Queue, Refused, RefusedReason,
    Task, Waiting,
};
use slab::Slab;
use tokio::runtime::{Handle, RuntimeFlavor};
use units::{Clock, Nanos};

use super::entry::{self, Followed, Submission, Work};
use super::link::{Link, fresh};
use super::watch::{self, Watch};
use super::{LaneOptions, Problem};
use crate::asked::{self, Sizes, UnknownKeys, Which};
use crate::shared::memory::{ENTRIES, LocalBlock, Word};

pub(super) struct LaneQueue {
    capabilities: Arc<Capabilities>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    /// None if there was no service when the queue was opened.
    link: Option<Arc<Link>>,
    watch: Watch,
    jobs: Slab<InFlight>,
    /// The number of jobs in `jobs` that were cancelled.
    cancelled: usize,
    finished: Vec<Completion>,
    /// The number of entries written (`submitted`) and the number of answers read (`answered`).
    submitted: u64,
    answered: u64,
    /// Distinguishes jobs that use the same slot one after another.
    generation: u32,
    /// The number of consecutive polls that found nothing.
    idle_polls: u32,
    unknown_keys: Arc<UnknownKeys>,
    waker: Waker,
}

/// A job in flight at the service.
struct InFlight {
    /// None after the job was cancelled.
    job: Option<Box<Job>>,
    generation: u32,
    _placed: Placed,
    _message: Option<LocalBlock>,
}

/// An input in memory that the service reads. It is held until the service has finished with it.
enum Placed {
    /// The input is in a buffer of a pool over the region.
    Here {
        offset: u64,
        _input: Input,
    },
    Copy(LocalBlock),
}

impl Placed {
    fn new(input: &Input, link: &Link) -> Option<Self> {
        if let Some(offset) = link.region.offset_of(input) {
            link.counts.inputs_in_place.fetch_add(1, Ordering::Relaxed);
            return Some(Self::Here { offset, _input: input.clone() });
        }
        let mut block = link.region.block(input.len())?;
        block.as_mut()[..input.len()].copy_from_slice(input);
        link.counts.inputs.copied(input.len());
        Some(Self::Copy(block))
    }

    /// Returns the input's offset in the region.
    fn offset(&self) -> u64 {
        match self {
            Placed::Here { offset, .. } => *offset,
            Placed::Copy(block) => block.offset(),
        }
    }
}

/// A message in the client's region.
struct Message {
    block: LocalBlock,
    bytes: u32,
}

impl Message {
    /// Writes a message. Returns none if there is no space.
    fn new(message: &RunRequest, link: &Link) -> Option<Self> {
        let message = message.encode_to_vec();
        let mut block = link.region.block(message.len())?;
        block.as_mut()[..message.len()].copy_from_slice(&message);
        Some(Self { block, bytes: u32::try_from(message.len()).ok()? })
    }

    fn work(&self) -> Work {
        Work::Message { offset: self.block.offset(), bytes: self.bytes }
    }
}

impl LaneQueue {
    /// Makes a queue over `link`. Without a link, the queue refuses every job as lost.
    pub(super) fn new(
        capabilities: Arc<Capabilities>,
        options: &LaneOptions,
        (link, unknown_keys): (Option<Arc<Link>>, Arc<UnknownKeys>),
        waker: Waker,
    ) -> Result<Self, Problem> {
        let watch = match &link {
            Some(link) => start_watch(link, capabilities.waiting, &waker)?,
            None => Watch::None,
        };
        Ok(Self {
            capabilities,
            clock: Arc::clone(&options.clock),
            timeout: options.timeout,
            link,
            watch,
            jobs: Slab::new(),
            cancelled: 0,
            finished: Vec::new(),
            submitted: 0,
            answered: 0,
            generation: 0,
            idle_polls: 0,
            unknown_keys,
            waker,
        })
    }

    /// Writes and publishes the entry of a job whose input is `placed`, as is its message if it needs one.
    fn enter(&mut self, link: &Link, job: Box<Job>, (placed, message): (Placed, Option<Message>)) {
        self.generation = self.generation.wrapping_add(1);
        let mark = self.jobs.vacant_key() as u64 | u64::from(self.generation) << 32;
        let deadline = job.deadline.map(|deadline| deadline.since(self.clock.now()));
        let timeout = self.timeout();
        let submission = Submission {
            mark,
            work: message.as_ref().map_or_else(|| Work::Task(job.task.clone()), Message::work),
            class: job.class,
            tenant: job.tenant,
            offset: placed.offset(),
            input_bytes: job.input.len() as u32,
            output_bytes: output_bytes_max(&job, &self.capabilities),
            time_left: Some(deadline.map_or(timeout, |left| left.min(timeout))),
            trace: job.trace.as_deref().copied().filter(|_| message.is_none()),
        };
        let words = submission.encode().expect("the capabilities have no other task");
        link.local.put(self.submitted, words);
        self.submitted = self.submitted.wrapping_add(1);
        let (job, message) = (Some(job), message.map(|message| message.block));
        let generation = self.generation;
        self.jobs.insert(InFlight { job, generation, _placed: placed, _message: message });
        link.set_in_flight(self.awaited());
        if matches!(self.watch, Watch::Task(_)) {
            // The watcher reads the ring before it sleeps again, so an answer that comes before that needs no
            // doorbell.
            link.wake_up();
            link.submitted.notify_one();
        }
        link.publish(self.submitted);
    }

    /// Moves answered jobs to `finished`.
    fn advance(&mut self) {
        let Some(link) = self.link.clone() else { return };
        // This check comes first, because answers that were sent before the end are still valid.
        let disconnected = link.is_disconnected();
        let before = self.answered;
        if let Err(why) = self.read_answers(&link) {
            link.disconnect(why);
        }
        if self.answered != before {
            self.idle_polls = 0;
        } else if !disconnected && !self.jobs.is_empty() {
            self.idle_polls = self.idle_polls.wrapping_add(1);
            // An owner that polls without a watcher learns of the greeting and of the end here.
            if link.peer().is_none() || self.idle_polls.is_multiple_of(POLLS_PER_SOCKET_READ) {
                link.read_socket();
            }
        }
        if disconnected {
            self.fail_all(&link);
        }
    }

    /// Reads all answers in the ring.
    fn read_answers(&mut self, link: &Link) -> Result<(), &'static str> {
        loop {
            let Some(peer) = link.peer() else { return Ok(()) };
            let count = fresh(peer.word(Word::Tail), self.answered);
            for _ in 0..count.ok_or("it claims answers that cannot be")? {
                let answer = entry::Completion::decode(peer.entry(self.answered));
                self.answered = self.answered.wrapping_add(1);
                self.take(link, answer.ok_or("an answer is none")?)?;
            }
            if count != Some(0) {
                // All copies are made, so the service may reuse the blocks of these results.
                link.local.word(Word::Head).store(self.answered, Ordering::Release);
                link.set_in_flight(self.awaited());
            }
            // If a thread watches the socket, this side counts as asleep whenever it does not read the ring.
            if !matches!(self.watch, Watch::Thread) || link.fall_asleep() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, link: &Link, answer: entry::Completion) -> Result<(), &'static str> {
        let (key, generation) = (answer.mark as u32 as usize, (answer.mark >> 32) as u32);
        if self.jobs.get(key).is_none_or(|in_flight| in_flight.generation != generation) {
            return Err("it answers a job that it does not have");
        }
        let Some(mut job) = self.jobs.remove(key).job else {
            self.cancelled -= 1;
            return Ok(());
        };
        let is_unknown = answer.answer == Err(NoResult::UnknownKey) && job.task.is_cipher();
        if is_unknown || (answer.follow == Followed::KeyUnknown && job.chain.is_some()) {
            self.unknown_keys.record(self.clock.now());
        }
        let outcome = outcome(&mut job, link, &answer);
        let service = answer.service.min(self.timeout());
        self.finished.push(Completion { job, outcome, service });
        Ok(())
    }

    /// Frees the entries of answered cancelled jobs, because an owner without other jobs does not poll.
    fn reap_cancelled(&mut self) {
        if self.cancelled > 0 {
            self.advance();
        }
        if !self.finished.is_empty() {
            self.waker.wake_by_ref();
        }
    }

    /// Puts what the service reads of a job into the region. Returns none if there is no space.
    fn placed(&self, job: &Job, link: &Link) -> Option<(Placed, Option<Message>)> {
        let output_bytes = output_bytes_max(job, &self.capabilities);
        let now = || self.clock.now();
        let message = match asked::needed_message(job, output_bytes, &self.unknown_keys, now) {
            Some(message) => Some(Message::new(&message, link)?),
            None => None,
        };
        Some((Placed::new(&job.input, link)?, message))
    }

    fn is_full(&self) -> bool {
        // Answers that no poll has returned yet take no entry of the ring, but they still count against the depth.
        self.jobs.len() + self.finished.len() >= self.capabilities.queue_depth
    }

    /// Returns the number of unanswered jobs that were not cancelled.
    fn awaited(&self) -> usize {
        self.jobs.len() - self.cancelled
    }

    fn timeout(&self) -> Nanos {
        Nanos(u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    fn fail_all(&mut self, link: &Link) {
        for in_flight in self.jobs.drain() {
            let Some(job) = in_flight.job else { continue };
            let outcome = Outcome::Failed(DeviceError::Lost);
            self.finished.push(Completion { job, outcome, service: Nanos(0) });
        }
        self.cancelled = 0;
        link.set_in_flight(0);
    }
}

impl Queue for LaneQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.is_full() {
            self.reap_cancelled();
        }
        if self.is_full() {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let Some(link) = self.link.clone().filter(|link| !link.is_disconnected()) else {
            return Err(Refused { job, reason: RefusedReason::Lost });
        };
        if !self.unknown_keys.allow(&job.task, || self.clock.now()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if let Some(error) = misfit(&job) {
            let outcome = Outcome::Failed(error);
            self.finished.push(Completion { job, outcome, service: Nanos(0) });
            self.waker.wake_by_ref();
            return Ok(());
        }
        let mut placed = self.placed(&job, &link);
        if placed.is_none() {
            self.reap_cancelled();
            placed = self.placed(&job, &link);
        }
        let Some(placed) = placed else {
            return Err(Refused { job, reason: RefusedReason::Full });
        };
        self.enter(&link, job, placed);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.advance();
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn pending(&self) -> usize {
        self.awaited() + self.finished.len()
    }

    fn cancel(&mut self, tag: u64) {
        let in_flight = self.jobs.iter_mut().map(|(_, in_flight)| &mut in_flight.job);
        let found =
            in_flight.into_iter().find(|job| job.as_ref().is_some_and(|job| job.tag == tag));
        let Some(job) = found.and_then(Option::take) else { return };
        self.cancelled += 1;
        if let Some(link) = &self.link {
            link.set_in_flight(self.awaited());
        }
        let outcome = Outcome::Failed(DeviceError::Cancelled);
        self.finished.push(Completion { job, outcome, service: Nanos(0) });
        self.waker.wake_by_ref();
    }
}

impl Drop for LaneQueue {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.shut_down();
        }
    }
}

fn start_watch(link: &Arc<Link>, waiting: Waiting, waker: &Waker) -> Result<Watch, Problem> {
    if waiting != Waiting::Signalled {
        return Ok(Watch::None);
    }
    let current = Handle::try_current();
    let current =
        current.ok().filter(|executor| executor.runtime_flavor() == RuntimeFlavor::CurrentThread);
    let watch = match current {
        Some(executor) => watch::in_task(link, waker.clone(), &executor),
        None => {
            link.fall_asleep();
            watch::in_thread(link, waker.clone())
        }
    };
    watch.map_err(Problem::Watch)
}

/// Returns the error of a job that no service could complete.
fn misfit(job: &Job) -> Option<DeviceError> {
    if let Some(error) = asked::misfit(job) {
        return Some(error);
    }
    let is_long = u32::try_from(job.input.len()).is_err();
    is_long.then_some(DeviceError::Fault("the input is too long for a lane"))
}

fn output_bytes_max(job: &Job, capabilities: &Capabilities) -> u32 {
    asked::output_bytes_max(job, capabilities.work_bytes_max.as_usize())
}

/// Returns the outcome of a job from its answer.
fn outcome(job: &mut Job, link: &Link, answer: &entry::Completion) -> Outcome {
    let fault = |what| Outcome::Failed(DeviceError::Fault(what));
    let is_compress = matches!(job.task, Task::Compress { .. });
    match answer.answer {
        Ok(()) => copy_out(job, link, answer),
        Err(NoResult::DoesNotFit) if is_compress => Outcome::DoesNotFit,
        Err(NoResult::InvalidInput) if asked::may_be_invalid(&job.task) => {
            Outcome::Failed(DeviceError::InvalidInput("the service says it is no valid input"))
        }
        Err(NoResult::Fault) => fault("the service failed the job"),
        Err(NoResult::Busy) => Outcome::Failed(DeviceError::Busy),
        Err(NoResult::UnknownKey) if job.task.is_cipher() => Outcome::Failed(DeviceError::Busy),
        Err(NoResult::Refused) => fault("the service refused the job as invalid"),
        _ => fault("the service gave an outcome that this job cannot have"),
    }
}

fn copy_out(job: &mut Job, link: &Link, answer: &entry::Completion) -> Outcome {
    let last = (answer.offset, answer.output_bytes as usize);
    let (first, sizes) = match answer.follow {
        Followed::Yes { offset, bytes, service } => {
            let bytes = bytes as usize;
            (Some((offset, bytes)), Sizes { first: Some((bytes, service)), last: last.1 })
        }
        Followed::No | Followed::KeyUnknown => (None, Sizes { first: None, last: last.1 }),
    };
    asked::take_results(job, sizes, |job, which| {
        let place = match which {
            Which::First => first,
            Which::Last => Some(last),
        };
        let Some((offset, bytes)) = place else { return false };
        let (start, end) = (job.output_offset, job.output_offset + bytes);
        let to = &mut job.output.space()[start..end];
        if !link.peer().is_some_and(|peer| peer.copy(offset, to)) {
            return false;
        }
        link.counts.results.copied(bytes);
        job.output.set_len(end);
        true
    })
}

/// The largest number of jobs of a lane.
pub(super) const DEPTH_MAX: usize = ENTRIES as usize;

/// The number of consecutive unsuccessful polls between two reads of the socket. Each read costs a system call.
const POLLS_PER_SOCKET_READ: u32 = 1_024;

/// Connects without waiting. If the service's backlog of connections is full, the service counts as absent.
pub(super) fn connect(path: &std::path::Path) -> std::io::Result<UnixStream> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
