//! Lanes: (de)compression for frontends on this host, over memory that the two processes share. A lane is a task of its
//! worker: each turn takes a few jobs, answers those that are done and wakes the client once, so that lanes have their
//! turns one after the other. Which device runs a job is the runtime's; what is one too many is refused as busy before
//! anything is allocated for it.

use std::error::Error;
use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use device::{DeviceError, Input, Job, Outcome, Task};
use drivers::lane::{NoResult, Pause, Problem, Request, Serving, Taken, Ticket};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use runtime::Finished;
use tokio::io::Interest;
use units::Nanos;

use crate::context::WorkerContext;
use crate::counters::Counter;
use crate::session::Open;

/// Serves one lane to its end.
pub(crate) async fn serve(stream: UnixStream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context);
    let _counted = Counted::count(&context.counters.lanes.open);
    match converse(stream, &context).await {
        Ok(()) => tracing::info!("a lane ended"),
        Err(error) => tracing::warn!(%error, "a lane was cut"),
    }
}

async fn converse(stream: UnixStream, context: &Rc<WorkerContext>) -> Result<(), Box<dyn Error>> {
    let wake = tokio::net::UnixStream::from_std(stream.try_clone()?)?;
    let socket = Arc::new(stream);
    let greeted = tokio::time::timeout(GREETING_MAX, greeted(&wake, &socket));
    let serving = greeted.await.map_err(|_| "the client did not greet in time")??;
    tracing::info!("a lane opened");
    let (context, under_way) = (Rc::clone(context), FuturesUnordered::new());
    let mut lane = Lane { serving, context, under_way, held_bytes: Rc::default() };
    let mut place = None;
    let ended = poll_fn(|task| lane.poll(task, &wake, &mut place)).await;
    lane.context.ending.leave(place);
    Ok(ended?)
}

async fn greeted(
    wake: &tokio::net::UnixStream,
    socket: &Arc<UnixStream>,
) -> Result<Serving, Box<dyn Error>> {
    loop {
        wake.readable().await?;
        forget(wake);
        if let Some(serving) = Serving::greet(socket)? {
            return Ok(serving);
        }
    }
}

/// Forgets that the socket was readable, before it is read: what comes after the read is news.
fn forget(wake: &tokio::net::UnixStream) {
    let nothing = || Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
    let _ = wake.try_io(Interest::READABLE, nothing);
}

struct Lane {
    serving: Serving,
    context: Rc<WorkerContext>,
    under_way: FuturesUnordered<UnderWay>,
    /// What its jobs hold.
    held_bytes: Rc<std::cell::Cell<u64>>,
}

type UnderWay = Pin<Box<dyn Future<Output = Done>>>;

/// A job that came back.
struct Done {
    ticket: Ticket,
    finished: Finished,
    output_bytes_max: usize,
    _held: Held,
}

impl Lane {
    /// Ready when the client is gone, or when this server drains and the client's jobs are done.
    fn poll(
        &mut self,
        task: &mut Context<'_>,
        wake: &tokio::net::UnixStream,
        place: &mut Option<usize>,
    ) -> Poll<Result<(), Problem>> {
        let is_draining = self.context.is_draining();
        if is_draining && self.under_way.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.context.ending.watch(place, task.waker());
        let taken = if is_draining { 0 } else { self.take()? };
        let answered = self.answer(task);
        self.serving.show();
        if taken + answered > 0 {
            self.count();
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.serving.pause() == Pause::Look {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(ready) = wake.poll_read_ready(task) {
            forget(wake);
            if ready.is_err() || !self.serving.listen() {
                return Poll::Ready(Ok(()));
            }
            task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Begins the jobs of one turn.
    fn take(&mut self) -> Result<usize, Problem> {
        for taken in 0..JOBS_PER_TURN {
            match self.serving.take()? {
                Taken::Nothing => return Ok(taken),
                Taken::Refused => self.context.counters.lanes.jobs_refused.up(),
                Taken::Job(request) => self.begin(request),
            }
        }
        Ok(JOBS_PER_TURN)
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

    /// The job, in memory of this process; or why there is none.
    fn job(&mut self, request: &Request) -> Result<(Job, Held), NoResult> {
        let item_bytes_max = self.context.limits.item_bytes_max.as_usize();
        let input_bytes_max = match request.task {
            Task::Compress { .. } => item_bytes_max,
            // A stream may be longer than what it came from, by little.
            _ => item_bytes_max + STREAM_SLACK_BYTES,
        };
        if request.input_bytes > input_bytes_max || request.output_bytes > item_bytes_max {
            return Err(NoResult::Refused);
        }
        let bytes = (request.input_bytes + request.output_bytes) as u64;
        let held = Held::take(&self.context, &self.held_bytes, bytes).ok_or(NoResult::Busy)?;
        let output = self.serving.output(request.output_bytes).ok_or(NoResult::Busy)?;
        let mut input = self.context.values.pool().take(request.input_bytes);
        if !self.serving.copy_input(request, &mut input) {
            return Err(NoResult::Refused);
        }
        let input = Input::pooled(input, 0..request.input_bytes);
        let mut job = Job::new(request.task.clone(), input, output);
        let now = self.context.clock.now();
        job.deadline = request.time_left.map(|left| Nanos(now.0.saturating_add(left.0)));
        (job.tenant, job.class) = (request.tenant, request.class);
        Ok((job, held))
    }

    /// Answers the jobs that are done.
    fn answer(&mut self, task: &mut Context<'_>) -> usize {
        let mut answered = 0;
        while let Poll::Ready(Some(done)) = self.under_way.poll_next_unpin(task) {
            let Done { ticket, finished, output_bytes_max, _held } = done;
            let Finished { job, outcome, total, .. } = finished;
            let why = match outcome {
                // A buffer may have more room than was asked for.
                Outcome::Done { output_bytes } if output_bytes <= output_bytes_max => {
                    self.serving.finish(ticket, job.output, output_bytes, total);
                    answered += 1;
                    continue;
                }
                Outcome::Done { .. } | Outcome::DoesNotFit => NoResult::DoesNotFit,
                Outcome::Failed(DeviceError::InvalidInput(_)) => NoResult::InvalidInput,
                Outcome::Failed(_) => NoResult::Fault,
            };
            self.serving.fail(ticket, why, total);
            answered += 1;
        }
        answered
    }

    fn count(&mut self) {
        let tally = self.serving.tally();
        let lanes = &self.context.counters.lanes;
        lanes.bells.add(tally.bells);
        lanes.copies.add(tally.copies);
        lanes.copied_bytes.add(tally.copied_bytes);
    }
}

/// One of the jobs that the worker may have under way for others, and the bytes that it holds.
struct Held {
    context: Rc<WorkerContext>,
    of_lane: Rc<std::cell::Cell<u64>>,
    bytes: u64,
}

impl Held {
    fn take(
        context: &Rc<WorkerContext>,
        of_lane: &Rc<std::cell::Cell<u64>>,
        bytes: u64,
    ) -> Option<Self> {
        let worker_max = context.inflight_bytes_max.0;
        let two_items = 2 * (context.limits.item_bytes_max.0 + STREAM_SLACK_BYTES as u64);
        let lane_max = (worker_max / LANE_SHARE).max(two_items);
        let fits = |held: u64, max: u64| held.saturating_add(bytes) <= max;
        let has_room = context.jobs.get() < context.jobs_max
            && fits(context.lane_held_bytes.get(), worker_max.max(two_items))
            && fits(of_lane.get(), lane_max);
        if !has_room {
            return None;
        }
        context.jobs.set(context.jobs.get() + 1);
        context.lane_held_bytes.set(context.lane_held_bytes.get() + bytes);
        of_lane.set(of_lane.get() + bytes);
        Some(Self { context: Rc::clone(context), of_lane: Rc::clone(of_lane), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Self { context, of_lane, bytes } = self;
        context.jobs.set(context.jobs.get() - 1);
        context.lane_held_bytes.set(context.lane_held_bytes.get() - *bytes);
        of_lane.set(of_lane.get() - *bytes);
    }
}

/// Counts a lane for as long as it lives, however it ends.
struct Counted<'a>(&'a Counter);

impl<'a> Counted<'a> {
    fn count(open: &'a Counter) -> Self {
        open.up();
        Self(open)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.down();
    }
}

/// Jobs of one lane that are begun before the worker's other tasks have their turn: enough to share one wake-up, few
/// enough that the software path holds nobody up for long.
const JOBS_PER_TURN: usize = 16;

/// A client that connects and says nothing does not keep its place.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// One lane's jobs hold at most this share of `runtime.inflight_bytes_max`.
const LANE_SHARE: u64 = 4;

const STREAM_SLACK_BYTES: usize = 64 << 10;
