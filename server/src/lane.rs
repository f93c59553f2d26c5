//! Lanes: the compression service for frontends on this host, over shared memory. Each lane is a task of its
//! worker. In a turn, a lane begins a few jobs, answers the completed jobs and wakes the client once; then
//! other tasks run. The runtime chooses the device of a job. A job without capacity is refused as busy before
//! memory is allocated for it.

use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use api::prost::Message;
use api::v1::RunRequest;
use device::lane::{
    Doorbell, NoResult, Pause, Problem, RESULT_AT, Request, RequestForm, Results, ServedLane,
    Taken, Ticket,
};
use device::{Input, Job, Task, TenantId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use runtime::Finished;
use tokio::time::Sleep;
use units::{ByteCount, Nanos};

use crate::access::{Client, Origin, Rights};
use crate::asked_job::{AskedJob, Begun, JobOutcome, NotAJob, STREAM_SLACK_BYTES};
use crate::budget::Permit;
use crate::context::{Peer, WorkerContext};
use crate::job_stages;
use crate::session::Open;
use crate::values::ResultMemory;
use crate::worker::ListenerProtocol;

/// Serves one lane to its end.
pub(crate) async fn serve(stream: UnixStream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Lane);
    let _counted = context.counters.lanes.open.during();
    // A client that the rules do not name counts as refused.
    let Ok(client) = Client::enter(&context, || Origin::from_unix(&stream)) else { return };
    if client.as_ref().is_some_and(|client| !may_use_lanes(client)) {
        return;
    }
    match converse(stream, client, &context).await {
        Ok(()) => tracing::info!("a lane ended"),
        Err(error) => tracing::warn!(%error, "a lane was cut"),
    }
}

/// Checks that the rules let the client use lanes. A refusal is counted and logged.
fn may_use_lanes(client: &Client) -> bool {
    client.check("lane", Rights::COMPRESSION_SERVICE, |_| true).is_ok()
}

async fn converse(
    stream: UnixStream,
    client: Option<Rc<Client>>,
    context: &Rc<WorkerContext>,
) -> Result<(), Box<dyn Error>> {
    let watch = context.watch_lane.ok_or("there are no lanes here")?;
    let doorbell = watch(stream)?;
    let item_bytes_max = context.limits.item_bytes_max;
    let greeted = tokio::time::timeout(GREETING_MAX, greeted(&*doorbell, item_bytes_max));
    let serving = greeted.await.map_err(|_| "the client did not greet in time")??;
    tracing::info!("a lane opened");
    let mut lane = Lane::new(serving, client, context);
    let mut place = None;
    let ended = poll_fn(|task| lane.poll(task, &*doorbell, &mut place)).await;
    lane.context.shutdown.leave(place);
    Ok(ended?)
}

async fn greeted(
    doorbell: &dyn Doorbell,
    item_bytes_max: ByteCount,
) -> Result<Box<dyn ServedLane>, Box<dyn Error>> {
    loop {
        poll_fn(|task| doorbell.poll(task)).await?;
        if let Some(serving) = doorbell.greet(item_bytes_max)? {
            return Ok(serving);
        }
    }
}

struct Lane {
    serving: Box<dyn ServedLane>,
    context: Rc<WorkerContext>,
    /// The client and its rights, if there are rules.
    client: Option<Rc<Client>>,
    peer: Peer,
    in_flight: FuturesUnordered<InFlight>,
    /// The number of bytes that the lane holds in total.
    held_bytes: Rc<Cell<u64>>,
    /// The bytes held for results, from the beginning of a job until the client has read its result.
    results: Charge,
    /// The timer of the next check whether the client has read its results. The client does not ring the
    /// doorbell when it reads.
    again: Option<Pin<Box<Sleep>>>,
    /// The time since which answers are unread, and the number of answers to read to end this wait.
    unread: Option<(Nanos, u64)>,
    /// The numbers of jobs and bytes begun in the current turn.
    begun: (usize, usize),
    turn: Arc<Turn>,
}

/// Wakes the lane after the worker's other tasks have run, including those that wait for sockets.
#[derive(Default)]
struct Turn {
    is_others: AtomicBool,
    task: AtomicWaker,
}

impl Turn {
    fn give_up(self: &Arc<Self>, task: &Context<'_>) {
        self.is_others.store(true, Ordering::Relaxed);
        self.task.register(task.waker());
        let waker = Waker::from(Arc::clone(self));
        // tokio defers this waker until it has polled for events. Otherwise it polls only once in some tens
        // of task polls, and the lane would run that many turns in succession.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    }

    fn is_own(&self) -> bool {
        !self.is_others.load(Ordering::Relaxed)
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.is_others.store(false, Ordering::Relaxed);
        self.task.wake();
    }
}

type InFlight = Pin<Box<dyn Future<Output = Done>>>;

/// What a client wants to have done, after the check of its message.
enum Wanted {
    Task(Task),
    Message(AskedJob),
}

/// A completed job.
struct Done {
    ticket: Ticket,
    finished: Finished,
    output_bytes_max: usize,
    follow_key_unknown: bool,
    _held: Held,
}

impl Lane {
    fn new(
        serving: Box<dyn ServedLane>,
        client: Option<Rc<Client>>,
        context: &Rc<WorkerContext>,
    ) -> Self {
        let held_bytes = Rc::default();
        let results = Charge::new(context, &held_bytes, 0);
        Self {
            serving,
            context: Rc::clone(context),
            client,
            peer: Peer::enter(context),
            in_flight: FuturesUnordered::new(),
            held_bytes,
            results,
            again: None,
            unread: None,
            begun: (0, 0),
            turn: Arc::default(),
        }
    }

    /// Completes when the client disconnects, or when the server drains and the client's jobs are done.
    fn poll(
        &mut self,
        task: &mut Context<'_>,
        doorbell: &dyn Doorbell,
        place: &mut Option<usize>,
    ) -> Poll<Result<(), Problem>> {
        let is_draining = self.context.is_draining();
        if is_draining && self.in_flight.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.context.shutdown.watch(place, task.waker());
        self.check_rights()?;
        let takes = !is_draining && self.turn.is_own();
        let taken = if takes { self.take()? } else { 0 };
        let answered = self.answer(task);
        self.serving.publish();
        self.results.set(self.serving.held().0);
        if taken + answered > 0 {
            self.count();
            self.go_on(task);
            return Poll::Pending;
        }
        if !is_draining && !takes {
            return Poll::Pending;
        }
        self.begun = (0, 0);
        // A draining worker begins no more jobs, so it does not check for them.
        match if is_draining { Pause::Sleep } else { self.serving.pause() } {
            Pause::Poll => task.waker().wake_by_ref(),
            Pause::Sleep => self.recheck_later(task)?,
        }
        if let Poll::Ready(ring) = doorbell.poll(task) {
            if !ring
                .is_ok_and(|may_be_disconnected| self.serving.drain_doorbells(may_be_disconnected))
            {
                return Poll::Ready(Ok(()));
            }
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Fails if the rules were replaced, and no longer let the client use lanes.
    fn check_rights(&self) -> Result<(), Problem> {
        match &self.client {
            Some(client) if client.is_outdated() && !may_use_lanes(client) => {
                Err(Problem::Peer("the rules no longer let its user use lanes".into()))
            }
            _ => Ok(()),
        }
    }

    /// Schedules another poll of the task: at once or, if this turn is used up, after the other tasks.
    fn go_on(&mut self, task: &Context<'_>) {
        let (jobs, bytes) = self.begun;
        if jobs < JOBS_PER_TURN && bytes < BYTES_PER_TURN {
            return task.waker().wake_by_ref();
        }
        self.begun = (0, 0);
        self.turn.give_up(task);
    }

    /// Polls a sleeping lane periodically while the client has unread results. Fails if the lane is stalled.
    fn recheck_later(&mut self, task: &mut Context<'_>) -> Result<(), Problem> {
        if self.results.bytes == 0 {
            return Ok(());
        }
        let again = self.again.get_or_insert_with(|| Box::pin(tokio::time::sleep(RECHECK_AFTER)));
        if again.as_mut().poll(task).is_ready() {
            self.again = None;
            task.waker().wake_by_ref();
            // A draining worker does not close stalled lanes.
            if !self.context.is_draining() && self.is_stalled() && self.blocks_others() {
                self.context.counters.lanes.stalled.up();
                let why = "it leaves its answers unread, and others need the memory";
                return Err(Problem::Peer(why.into()));
            }
        }
        Ok(())
    }

    /// Returns whether answers have been unread for [`UNREAD_MAX`].
    fn is_stalled(&mut self) -> bool {
        let now = self.context.clock.now();
        let (shown, read) = self.serving.answers();
        let (since, due) = *self.unread.get_or_insert((now, shown));
        if read >= due {
            self.unread = Some((now, shown));
        }
        read < due && now.since(since) >= UNREAD_MAX
    }

    /// Returns whether the worker's lanes hold more than half of their memory limit and this lane holds at
    /// least the average. At least one lane always holds the average.
    fn blocks_others(&self) -> bool {
        let held = self.context.lane_held_bytes.get();
        let lanes = self.context.counters.lanes.open.read().max(1);
        held > self.worker_bytes_max() / 2 && self.held_bytes.get() >= held / lanes
    }

    /// Begins the jobs of one turn.
    fn take(&mut self) -> Result<usize, Problem> {
        let (mut taken, mut bytes) = (0, 0);
        while self.begun.0 + taken < JOBS_PER_TURN && self.begun.1 + bytes < BYTES_PER_TURN {
            match self.serving.take()? {
                Taken::Nothing => break,
                Taken::Refused => self.context.counters.lanes.jobs_refused.up(),
                Taken::Job(request) => {
                    bytes += request.input_bytes.max(request.output_bytes);
                    self.begin(&request);
                }
            }
            taken += 1;
        }
        self.begun = (self.begun.0 + taken, self.begun.1 + bytes);
        Ok(taken)
    }

    fn begin(&mut self, request: &Request) {
        let ticket = Ticket(request.ticket.0);
        match self.job(request) {
            Ok((job, held, follow_key_unknown)) => {
                self.context.counters.lanes.jobs.up();
                let output_bytes_max = request.output_bytes;
                let since = Instant::now();
                let trace = job.trace.as_deref().copied();
                let trace = trace.filter(|_| self.context.recorder.takes_asked(since));
                let context = Rc::clone(&self.context);
                let begun = Begun::new(&context.runtime, job);
                self.in_flight.push(Box::pin(async move {
                    let finished = begun.finished().await;
                    if let Some(trace) = trace {
                        let recorder = &context.recorder;
                        job_stages::record_asked(recorder, trace, JOB, since, &finished);
                    }
                    Done { ticket, finished, output_bytes_max, follow_key_unknown, _held: held }
                }));
            }
            Err(why) => {
                let lanes = &self.context.counters.lanes;
                match why {
                    NoResult::Busy => lanes.jobs_busy.up(),
                    _ => lanes.jobs_refused.up(),
                }
                self.serving.fail(ticket, why, Nanos(0));
            }
        }
    }

    /// Copies the input into memory of this process and creates the job, or returns why the job is refused.
    /// The flag says whether nothing follows it for lack of the key.
    fn job(&mut self, request: &Request) -> Result<(Box<Job>, Held, bool), NoResult> {
        let wanted = match &request.form {
            RequestForm::Task(task) => Wanted::Task(task.clone()),
            RequestForm::Message(message) => Wanted::Message(self.asked(request, message)?),
        };
        let item_bytes_max = self.context.limits.item_bytes_max.as_usize();
        let (input_bytes_max, output_bytes_max) = match &wanted {
            Wanted::Task(Task::Compress { .. }) => (item_bytes_max, item_bytes_max),
            // A compressed stream may be slightly longer than its data.
            Wanted::Task(_) => (item_bytes_max + STREAM_SLACK_BYTES, item_bytes_max),
            // The message was checked.
            Wanted::Message(_) => {
                let most = item_bytes_max + STREAM_SLACK_BYTES;
                (most, most)
            }
        };
        if request.input_bytes > input_bytes_max || request.output_bytes > output_bytes_max {
            return Err(NoResult::Refused);
        }
        // The client may have read results in the meantime.
        self.results.set(self.serving.held().0);
        let results_bytes = match &wanted {
            Wanted::Task(_) => request.output_bytes,
            Wanted::Message(asked) => asked.results_bytes_max(),
        };
        let held = self.hold(request.input_bytes, results_bytes).ok_or(NoResult::Busy)?;
        let output = self.serving.output(request.output_bytes).ok_or(NoResult::Busy)?;
        self.results.set(self.serving.held().0);
        let mut input = self.context.values.pool().take_heap(request.input_bytes);
        if !self.serving.copy_input(request, &mut input) {
            return Err(NoResult::Refused);
        }
        let input = Input::pooled(input, 0..request.input_bytes);
        let mut follow_key_unknown = false;
        let mut job = match wanted {
            Wanted::Task(task) => {
                let mut job = Box::new(Job::new(task, input, output));
                (job.output_offset, job.class) = (RESULT_AT, request.class);
                job.trace = request.trace.map(Box::new);
                job
            }
            Wanted::Message(asked) => {
                follow_key_unknown = asked.follow_key_unknown;
                let memory = ResultMemory::Registered(self.serving.outputs().clone());
                asked.into_job(input, output, (memory, RESULT_AT))
            }
        };
        let now = self.context.clock.now();
        job.deadline = request.time_left.map(|left| Nanos(now.0.saturating_add(left.0)));
        job.tenant = self.tenant();
        Ok((job, held, follow_key_unknown))
    }

    /// Checks the message of a job.
    fn asked(&self, request: &Request, message: &[u8]) -> Result<AskedJob, NoResult> {
        let message = RunRequest::decode(message).map_err(|_| NoResult::Refused)?;
        if message.output_bytes as usize != request.output_bytes || !message.payload.is_empty() {
            return Err(NoResult::Refused);
        }
        let may_cipher = || match &self.client {
            Some(client) => client.check("cipher", Rights::CIPHER_SERVICE, |_| true).is_ok(),
            None => true,
        };
        AskedJob::read(&self.context, &message, request.input_bytes, may_cipher).map_err(|why| {
            match why {
                NotAJob::Invalid(_) => NoResult::Refused,
                NotAJob::UnknownKey => NoResult::UnknownKey,
            }
        })
    }

    fn tenant(&self) -> TenantId {
        let of_role = self.client.as_ref().and_then(|client| client.tenant());
        of_role.map_or_else(|| self.peer.tenant(), TenantId)
    }

    /// Reserves capacity for one more job, or returns `None` if there is no capacity.
    fn hold(&self, input_bytes: usize, results_bytes: usize) -> Option<Held> {
        let context = &self.context;
        let lane_max = (context.inflight_bytes_max.0 / LANE_SHARE).max(self.largest_bytes());
        let bytes = (input_bytes + results_bytes) as u64;
        // A lane may use at most as many jobs and bytes as are free, so that a few lanes cannot use all.
        let jobs_left = context.config.runtime.jobs_max.saturating_sub(context.jobs.get());
        let bytes_left = self.worker_bytes_max().saturating_sub(context.lane_held_bytes.get());
        let bytes_with_it = self.held_bytes.get().saturating_add(bytes);
        let fits = self.in_flight.len() < jobs_left && bytes_with_it <= bytes_left.min(lane_max);
        if !fits {
            return None;
        }
        let permit = context.budget.try_begin(input_bytes as u64)?;
        context.jobs.set(context.jobs.get() + 1);
        let input = Charge::new(context, &self.held_bytes, input_bytes as u64);
        Some(Held { context: Rc::clone(context), _input: input, _permit: permit })
    }

    /// Returns the bytes that the worker's lanes may hold together.
    fn worker_bytes_max(&self) -> u64 {
        self.context.inflight_bytes_max.0.max(self.largest_bytes())
    }

    /// Returns the bytes that one job with the largest items needs.
    fn largest_bytes(&self) -> u64 {
        2 * (self.context.limits.item_bytes_max.0 + STREAM_SLACK_BYTES as u64)
    }

    /// Answers the completed jobs and returns their number.
    fn answer(&mut self, task: &mut Context<'_>) -> usize {
        let mut answered = 0;
        while let Poll::Ready(Some(done)) = self.in_flight.poll_next_unpin(task) {
            let Done { ticket, finished, output_bytes_max, follow_key_unknown, _held } = done;
            let total = finished.total;
            let why = match JobOutcome::new(finished, output_bytes_max) {
                JobOutcome::Done { first, output, part } => {
                    let results = Results { first, output, part, follow_key_unknown };
                    if !self.serving.finish(ticket, results, total) {
                        self.context.counters.lanes.jobs_busy.up();
                    }
                    answered += 1;
                    continue;
                }
                JobOutcome::DoesNotFit => NoResult::DoesNotFit,
                JobOutcome::InvalidInput => NoResult::InvalidInput,
                JobOutcome::Busy => {
                    self.context.counters.lanes.jobs_busy.up();
                    NoResult::Busy
                }
                JobOutcome::Fault => NoResult::Fault,
            };
            self.serving.fail(ticket, why, total);
            answered += 1;
        }
        answered
    }

    fn count(&mut self) {
        let counted = self.serving.take_counters();
        let lanes = &self.context.counters.lanes;
        lanes.doorbells.add(counted.doorbells);
        lanes.copies.add(counted.copies);
        lanes.copied_bytes.add(counted.copied_bytes);
    }
}

/// The capacity that a job holds: one of the worker's jobs for other processes, and its input's memory.
struct Held {
    context: Rc<WorkerContext>,
    _input: Charge,
    _permit: Permit,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.context.jobs.set(self.context.jobs.get() - 1);
    }
}

/// Bytes that a lane holds until this value is dropped.
struct Charge {
    context: Rc<WorkerContext>,
    of_lane: Rc<Cell<u64>>,
    bytes: u64,
}

impl Charge {
    fn new(context: &Rc<WorkerContext>, of_lane: &Rc<Cell<u64>>, bytes: u64) -> Self {
        let (context, of_lane) = (Rc::clone(context), Rc::clone(of_lane));
        let mut charge = Self { context, of_lane, bytes: 0 };
        charge.set(bytes);
        charge
    }

    fn set(&mut self, bytes: u64) {
        for held in [&self.context.lane_held_bytes, &*self.of_lane] {
            held.set(held.get() - self.bytes + bytes);
        }
        self.context.counters.lanes.held_bytes.set(self.context.lane_held_bytes.get());
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The name of a lane's job in traces.
const JOB: &str = "lane job";

/// The number of jobs that a lane begins in one turn. It is large enough to share a wake-up, and small enough
/// that jobs in software do not delay other tasks for long.
const JOBS_PER_TURN: usize = 16;

/// The number of bytes that end a turn. Each job counts with its input or its output, whichever is larger.
const BYTES_PER_TURN: usize = 256 << 10;

/// The interval of checks whether the client has read its results. They count as held until then.
const RECHECK_AFTER: Duration = Duration::from_millis(100);

/// The longest time for which a client may leave answers unread while memory is short. Clients of memcached's
/// protocol have the same limit.
const UNREAD_MAX: Nanos = Nanos::secs(2);

/// The timeout of the handshake.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// The denominator of the largest share of `runtime.inflight_bytes_max` for one lane: 1 in 4.
const LANE_SHARE: u64 = 4;
