//! Lanes: (de)compression for frontends on this host, over memory that the two processes share. A lane is a task of its
//! worker. Each turn begins a few jobs, answers the jobs that are done and wakes the client once, so that lanes take
//! turns. The runtime decides which device runs a job. A job for which there is no capacity is refused as busy before
//! anything is allocated for it.

use std::cell::Cell;
use std::error::Error;
use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use device::lane::{
    Doorbell, NoResult, Pause, Problem, RESULT_AT, Request, ServedLane, Taken, Ticket,
};
use device::{DeviceError, Input, Job, Outcome, Task};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use runtime::Finished;
use tokio::time::Sleep;
use units::{ByteCount, Nanos};

use crate::budget::Permit;
use crate::context::{Peer, WorkerContext};
use crate::session::Open;
use crate::worker::ListenerProtocol;

/// Serves one lane to its end.
pub(crate) async fn serve(stream: UnixStream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Lane);
    let _counted = context.counters.lanes.open.during();
    match converse(stream, &context).await {
        Ok(()) => tracing::info!("a lane ended"),
        Err(error) => tracing::warn!(%error, "a lane was cut"),
    }
}

async fn converse(stream: UnixStream, context: &Rc<WorkerContext>) -> Result<(), Box<dyn Error>> {
    let watch = context.watch_lane.ok_or("there are no lanes here")?;
    let doorbell = watch(stream)?;
    let item_bytes_max = context.limits.item_bytes_max;
    let greeted = tokio::time::timeout(GREETING_MAX, greeted(&*doorbell, item_bytes_max));
    let serving = greeted.await.map_err(|_| "the client did not greet in time")??;
    tracing::info!("a lane opened");
    let mut lane = Lane::new(serving, context);
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
    peer: Peer,
    under_way: FuturesUnordered<UnderWay>,
    /// The bytes that the lane holds in total.
    held_bytes: Rc<Cell<u64>>,
    /// The held bytes for blocks of results, from a job's beginning until the client has read its result.
    results: Charge,
    /// The timer of the next check whether the client has read its results. Reading rings no doorbell.
    again: Option<Pin<Box<Sleep>>>,
    /// The start of the current wait for the client, and the number of answers that it must have read to end the wait.
    unread: Option<(Nanos, u64)>,
    /// The jobs and bytes begun since the lane last found no job or gave up its turn.
    begun: (usize, usize),
    turn: Arc<Turn>,
}

/// Wakes the lane after the worker's other tasks have had their turns, including those that wait for their sockets.
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
        // tokio keeps the waker until it has polled the system for events. By itself it polls once in some tens of
        // polls of tasks, and the lane would have that many turns one after the other.
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

type UnderWay = Pin<Box<dyn Future<Output = Done>>>;

/// A completed job.
struct Done {
    ticket: Ticket,
    finished: Finished,
    output_bytes_max: usize,
    _held: Held,
}

impl Lane {
    fn new(serving: Box<dyn ServedLane>, context: &Rc<WorkerContext>) -> Self {
        let held_bytes = Rc::default();
        let results = Charge::new(context, &held_bytes, 0);
        Self {
            serving,
            context: Rc::clone(context),
            peer: Peer::enter(context),
            under_way: FuturesUnordered::new(),
            held_bytes,
            results,
            again: None,
            unread: None,
            begun: (0, 0),
            turn: Arc::default(),
        }
    }

    /// Returns ready when the client is gone, or when this server drains and the client's jobs are done.
    fn poll(
        &mut self,
        task: &mut Context<'_>,
        doorbell: &dyn Doorbell,
        place: &mut Option<usize>,
    ) -> Poll<Result<(), Problem>> {
        let is_draining = self.context.is_draining();
        if is_draining && self.under_way.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.context.shutdown.watch(place, task.waker());
        let takes = !is_draining && self.turn.is_own();
        let taken = if takes { self.take()? } else { 0 };
        let answered = self.answer(task);
        self.serving.show();
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
        // A draining worker begins no more jobs, so it does not check the ring.
        match if is_draining { Pause::Sleep } else { self.serving.pause() } {
            Pause::Look => task.waker().wake_by_ref(),
            Pause::Sleep => self.look_again(task)?,
        }
        if let Poll::Ready(ring) = doorbell.poll(task) {
            if !ring.is_ok_and(|may_be_gone| self.serving.drain_doorbells(may_be_gone)) {
                return Poll::Ready(Ok(()));
            }
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Has the task polled again: at once, or after the other tasks' turns if this turn is used up.
    fn go_on(&mut self, task: &Context<'_>) {
        let (jobs, bytes) = self.begun;
        if jobs < JOBS_PER_TURN && bytes < BYTES_PER_TURN {
            return task.waker().wake_by_ref();
        }
        self.begun = (0, 0);
        self.turn.give_up(task);
    }

    /// Has a sleeping lane polled again at intervals while the client has results to read.
    fn look_again(&mut self, task: &mut Context<'_>) -> Result<(), Problem> {
        if self.results.bytes == 0 {
            return Ok(());
        }
        let again = self.again.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK_AGAIN)));
        if again.as_mut().poll(task).is_ready() {
            self.again = None;
            task.waker().wake_by_ref();
            // A draining worker does not check what was read.
            if !self.context.is_draining() && self.is_stalled() && self.is_in_the_way() {
                self.context.counters.lanes.stalled.up();
                let why = "it leaves its answers unread, and others need the memory";
                return Err(Problem::Peer(why.into()));
            }
        }
        Ok(())
    }

    /// Returns whether some answers have been unread for too long.
    fn is_stalled(&mut self) -> bool {
        let now = self.context.clock.now();
        let (shown, read) = self.serving.answers();
        let (since, due) = *self.unread.get_or_insert((now, shown));
        if read >= due {
            self.unread = Some((now, shown));
        }
        read < due && now.since(since) >= UNREAD_MAX
    }

    /// Returns whether the worker's lanes hold more than half of their memory and this lane holds at least the average.
    /// There is always at least one lane that does.
    fn is_in_the_way(&self) -> bool {
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
                    self.begin(request);
                }
            }
            taken += 1;
        }
        self.begun = (self.begun.0 + taken, self.begun.1 + bytes);
        Ok(taken)
    }

    fn begin(&mut self, request: Request) {
        match self.job(&request) {
            Ok((job, held)) => {
                self.context.counters.lanes.jobs.up();
                let output_bytes_max = request.output_bytes;
                let ticket = request.ticket;
                let run = self.context.runtime.run(Box::new(job));
                self.under_way.push(Box::pin(async move {
                    let finished = run.await;
                    Done { ticket, finished, output_bytes_max, _held: held }
                }));
            }
            Err(why) => {
                let lanes = &self.context.counters.lanes;
                match why {
                    NoResult::Busy => lanes.jobs_busy.up(),
                    _ => lanes.jobs_refused.up(),
                }
                self.serving.fail(request.ticket, why, Nanos(0));
            }
        }
    }

    /// Creates the job in memory of this process, or returns why there is no job.
    fn job(&mut self, request: &Request) -> Result<(Job, Held), NoResult> {
        let item_bytes_max = self.context.limits.item_bytes_max.as_usize();
        let input_bytes_max = match request.task {
            Task::Compress { .. } => item_bytes_max,
            // A stream may be slightly longer than the data that it came from.
            _ => item_bytes_max + STREAM_SLACK_BYTES,
        };
        if request.input_bytes > input_bytes_max || request.output_bytes > item_bytes_max {
            return Err(NoResult::Refused);
        }
        // The client may have read results in the meantime.
        self.results.set(self.serving.held().0);
        let held = self.hold(request).ok_or(NoResult::Busy)?;
        let output = self.serving.output(request.output_bytes).ok_or(NoResult::Busy)?;
        self.results.set(self.serving.held().0);
        let mut input = self.context.values.pool().take_heap(request.input_bytes);
        if !self.serving.copy_input(request, &mut input) {
            return Err(NoResult::Refused);
        }
        let input = Input::pooled(input, 0..request.input_bytes);
        let mut job = Job::new(request.task.clone(), input, output);
        job.output_offset = RESULT_AT;
        let now = self.context.clock.now();
        job.deadline = request.time_left.map(|left| Nanos(now.0.saturating_add(left.0)));
        (job.tenant, job.class) = (self.peer.tenant(), request.class);
        Ok((job, held))
    }

    /// Reserves capacity for one more job, if there is any.
    fn hold(&self, request: &Request) -> Option<Held> {
        let context = &self.context;
        let lane_max = (context.inflight_bytes_max.0 / LANE_SHARE).max(self.largest_bytes());
        let bytes = (request.input_bytes + request.output_bytes) as u64;
        // A lane has at most as many jobs and bytes as it leaves to others. A few lanes therefore cannot take
        // everything.
        let jobs_left = context.jobs_max.saturating_sub(context.jobs.get());
        let bytes_left = self.worker_bytes_max().saturating_sub(context.lane_held_bytes.get());
        let bytes_with_it = self.held_bytes.get().saturating_add(bytes);
        let has_room =
            self.under_way.len() < jobs_left && bytes_with_it <= bytes_left.min(lane_max);
        if !has_room {
            return None;
        }
        let permit = context.budget.try_begin(request.input_bytes as u64)?;
        context.jobs.set(context.jobs.get() + 1);
        let input = Charge::new(context, &self.held_bytes, request.input_bytes as u64);
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

    /// Answers the jobs that are done and returns their number.
    fn answer(&mut self, task: &mut Context<'_>) -> usize {
        let mut answered = 0;
        while let Poll::Ready(Some(done)) = self.under_way.poll_next_unpin(task) {
            let Done { ticket, finished, output_bytes_max, _held } = done;
            let Finished { job, outcome, total, .. } = finished;
            let why = match outcome {
                // A buffer may be longer than requested, so the result may be too long.
                Outcome::Done { output_bytes } if output_bytes <= output_bytes_max => {
                    let result = job.output_offset..job.output_offset + output_bytes;
                    if !self.serving.finish(ticket, job.output, result, total) {
                        self.context.counters.lanes.jobs_busy.up();
                    }
                    answered += 1;
                    continue;
                }
                Outcome::Done { .. } | Outcome::DoesNotFit => NoResult::DoesNotFit,
                Outcome::Failed(DeviceError::InvalidInput(_)) => NoResult::InvalidInput,
                Outcome::Failed(DeviceError::Busy) => {
                    self.context.counters.lanes.jobs_busy.up();
                    NoResult::Busy
                }
                Outcome::Failed(_) => NoResult::Fault,
            };
            self.serving.fail(ticket, why, total);
            answered += 1;
        }
        answered
    }

    fn count(&mut self) {
        let counted = self.serving.take_counters();
        let lanes = &self.context.counters.lanes;
        lanes.bells.add(counted.bells);
        lanes.copies.add(counted.copies);
        lanes.copied_bytes.add(counted.copied_bytes);
    }
}

/// The capacity that one job takes: one of the worker's jobs for others, and the memory of the input.
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

/// The number of jobs that one lane begins before the worker's other tasks have their turn. They are enough to share
/// one wake-up, and few enough that the software path does not delay others for long.
const JOBS_PER_TURN: usize = 16;

/// The bytes of input, or of output if that is larger, that end a turn as well. Large values take long on the software
/// path.
const BYTES_PER_TURN: usize = 256 << 10;

/// The time for which results that the client has already read may still count as held.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The time for which a client may leave its answers unread while others wait for the memory. Clients of memcached's
/// protocol have the same limit.
const UNREAD_MAX: Nanos = Nanos::secs(2);

/// The time in which a client must greet. A client that connects and says nothing loses its connection.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// One lane holds at most one part in this many of `runtime.inflight_bytes_max`.
const LANE_SHARE: u64 = 4;

const STREAM_SLACK_BYTES: usize = 64 << 10;
