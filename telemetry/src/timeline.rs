//! The timeline of a request: its stages, each with its begin and its end. A task works on one request at a time, and
//! the stages that any code of the task opens belong to that request. If the request is not recorded, opening a stage
//! costs a look at one byte.

use std::cell::Cell;
use std::future::Future;
use std::num::{NonZeroU32, NonZeroU64, NonZeroU128};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project_lite::pin_project;
use smallvec::SmallVec;
use units::{Nanos, Op, TraceContext};

thread_local! {
    /// What the code that runs now belongs to. Code without a timeline looks only at this byte.
    static STATE: Cell<State> = const { Cell::new(State::Outside) };

    /// The timeline of the request that the task which runs now works on, with [`State::Recorded`].
    static CURRENT: Cell<Option<Box<Timeline>>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It belongs to no task with a place for a timeline.
    Outside,
    /// The task works on a request that is not recorded, or on none.
    Unrecorded,
    /// The task works on the request of [`CURRENT`].
    Recorded,
}

/// Polls `future`, which is a whole task, with a place for a timeline. Without it, nothing is recorded.
pub const fn scope<F: Future>(future: F) -> Scope<F> {
    Scope { future, place: None }
}

pin_project! {
    /// See [`scope`].
    #[must_use]
    #[derive(Debug)]
    pub struct Scope<F> {
        #[pin]
        future: F,
        place: Option<Box<Timeline>>,
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        within(this.place, || this.future.poll(task))
    }
}

/// Runs `poll` as code of the task of `place`. Tasks do not poll each other. A panic leaves a timeline
/// behind until the next recorded request takes its place.
#[inline]
fn within<T>(place: &mut Option<Box<Timeline>>, poll: impl FnOnce() -> T) -> T {
    put(place.take());
    let polled = poll();
    if STATE.get() == State::Recorded {
        *place = CURRENT.take();
    }
    STATE.set(State::Outside);
    polled
}

/// Makes this the timeline of the task that runs.
#[inline]
fn put(timeline: Option<Box<Timeline>>) {
    match timeline {
        None => STATE.set(State::Unrecorded),
        recorded => {
            CURRENT.set(recorded);
            STATE.set(State::Recorded);
        }
    }
}

/// Makes the task work on the request of `timeline`.
pub fn resume(timeline: Box<Timeline>) {
    if STATE.get() != State::Outside {
        put(Some(timeline));
    }
}

/// Returns the timeline of the request that the task has worked on until now, and ends that work.
pub fn suspend() -> Option<Box<Timeline>> {
    if STATE.get() != State::Recorded {
        return None;
    }
    STATE.set(State::Unrecorded);
    let mut timeline = CURRENT.take()?;
    timeline.suspended_at = Instant::now();
    Some(timeline)
}

/// Adds a stage of the current request that has ended.
#[cold]
pub fn add(kind: Kind, begin: Instant, end: Instant) {
    with(|timeline| timeline.add(kind, begin, end, Detail::None));
}

/// Opens a stage of the current request.
#[inline]
pub fn open(kind: Kind) -> OpenStage {
    let place = match STATE.get() {
        State::Recorded => with(|timeline| timeline.open(kind)).flatten(),
        State::Outside | State::Unrecorded => None,
    };
    OpenStage { place }
}

/// Names the key of the current request, if it is recorded.
#[inline]
pub fn set_key<K: AsRef<[u8]>>(key: impl FnOnce() -> K) {
    if STATE.get() == State::Recorded {
        with(|timeline| timeline.key = beginning(key().as_ref()));
    }
}

/// Calls `use_it` with the current timeline, if there is one.
#[cold]
fn with<T>(use_it: impl FnOnce(&mut Timeline) -> T) -> Option<T> {
    if STATE.get() != State::Recorded {
        return None;
    }
    let mut timeline = CURRENT.take()?;
    let result = use_it(&mut timeline);
    CURRENT.set(Some(timeline));
    Some(result)
}

/// Polls `future` as the work on the request of `timeline`. Then, or when it is dropped before, `end` gets the
/// timeline.
pub fn recording<F: Future, E: FnOnce(Box<Timeline>) + Unpin>(
    timeline: Box<Timeline>,
    future: F,
    end: E,
) -> Recording<F, E> {
    Recording { inner: Box::pin(future), place: Some(timeline), end: Some(end) }
}

/// See [`recording`].
#[must_use]
pub struct Recording<F, E: FnOnce(Box<Timeline>)> {
    inner: Pin<Box<F>>,
    place: Option<Box<Timeline>>,
    end: Option<E>,
}

impl<F: Future, E: FnOnce(Box<Timeline>) + Unpin> Future for Recording<F, E> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let Self { inner, place, .. } = &mut *self;
        let polled = within(place, || inner.as_mut().poll(task));
        if polled.is_ready() {
            self.finish();
        }
        polled
    }
}

impl<F, E: FnOnce(Box<Timeline>)> Recording<F, E> {
    fn finish(&mut self) {
        if let (Some(timeline), Some(end)) = (self.place.take(), self.end.take()) {
            end(timeline);
        }
    }
}

impl<F, E: FnOnce(Box<Timeline>)> Drop for Recording<F, E> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What a request waited for or did in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It waited for other requests of its connection.
    Order,
    /// It waited for memory of the budget for values in flight.
    Memory,
    /// It waited for the answer of a store.
    Store,
    /// A job ran on a device or in software.
    Job(Op),
    /// The socket took the answer.
    Write,
}

impl Kind {
    /// Returns the name of the stage.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Order => "order",
            Kind::Memory => "memory",
            Kind::Store => "store",
            Kind::Job(op) => op.name(),
            Kind::Write => "write",
        }
    }
}

/// What else is known of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// Where a job ran.
    Job {
        /// The index of the device.
        device: usize,
        /// How the job was waited for.
        placement: &'static str,
        /// Why the policy chose this path.
        reason: &'static str,
        /// The time that the device worked on it. The rest of the stage is waiting.
        service: Nanos,
    },
    /// The name of the server that answered.
    Server(Box<str>),
}

/// An opened stage of the current request. It does nothing if that is not recorded.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct OpenStage {
    place: Option<StagePlace>,
}

/// The place of a stage.
#[derive(Clone, Copy, Debug)]
struct StagePlace {
    /// The number of its timeline among those of the thread.
    timeline: NonZeroU32,
    index: u8,
}

impl OpenStage {
    /// Returns whether the stage is recorded.
    pub const fn is_recorded(self) -> bool {
        self.place.is_some()
    }

    /// Returns the context for what is asked of others in this stage, if the request is sampled.
    pub fn context(self) -> Option<TraceContext> {
        let StagePlace { timeline, index } = self.place?;
        with(|current| current.context(usize::from(index)).filter(|_| current.number == timeline))?
    }

    /// Closes the stage.
    #[inline]
    pub fn close(self) {
        self.close_with(|| Detail::None);
    }

    /// Closes the stage, of which more is known.
    #[inline]
    pub fn close_with(self, detail: impl FnOnce() -> Detail) {
        if let Some(place) = self.place {
            close(place, Instant::now(), detail());
        }
    }

    /// Closes the stage, which has ended at `end`.
    #[inline]
    pub fn close_at(self, end: Instant, detail: impl FnOnce() -> Detail) {
        if let Some(place) = self.place {
            close(place, end, detail());
        }
    }
}

#[cold]
fn close(StagePlace { timeline, index }: StagePlace, end: Instant, detail: Detail) {
    with(|current| {
        // Another request may be current, for which this one's future is dropped.
        let stage = current.stages.get_mut(usize::from(index));
        if let Some(stage) = stage.filter(|_| current.number == timeline) {
            (stage.end, stage.detail) = (Some(end), detail);
        }
    });
}

/// Returns the number of the next timeline of this thread.
fn next_number() -> NonZeroU32 {
    thread_local! {
        static LAST: Cell<u32> = const { Cell::new(0) };
    }
    let number = NonZeroU32::new(LAST.get().wrapping_add(1)).unwrap_or(NonZeroU32::MIN);
    LAST.set(number.get());
    number
}

/// The stages so far of a request that is recorded.
#[derive(Debug)]
pub struct Timeline {
    number: NonZeroU32,
    pub(crate) begin: Instant,
    /// The time at which the task turned to others, or the begin.
    suspended_at: Instant,
    pub(crate) command: &'static str,
    pub(crate) key: Box<[u8]>,
    pub(crate) stages: SmallVec<[Stage; STAGES_INLINE]>,
    pub(crate) stages_left_out: usize,
    /// The place in a trace, if the request is sampled.
    pub(crate) span: Option<Span>,
}

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) trace_id: NonZeroU128,
    pub(crate) span_id: NonZeroU64,
    /// The span of the caller, if that sent one.
    pub(crate) parent_id: Option<NonZeroU64>,
}

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) kind: Kind,
    pub(crate) begin: Instant,
    /// None while the stage is open.
    pub(crate) end: Option<Instant>,
    pub(crate) detail: Detail,
}

impl Timeline {
    pub(crate) fn new(
        begin: Instant,
        command: &'static str,
        key: &[u8],
        span: Option<Span>,
    ) -> Box<Self> {
        Box::new(Self {
            number: next_number(),
            begin,
            suspended_at: begin,
            command,
            key: beginning(key),
            stages: SmallVec::new(),
            stages_left_out: 0,
            span,
        })
    }

    fn open(&mut self, kind: Kind) -> Option<StagePlace> {
        if self.stages.len() == STAGES_MAX {
            self.stages_left_out += 1;
            return None;
        }
        let index = self.stages.len() as u8;
        self.stages.push(Stage { kind, begin: Instant::now(), end: None, detail: Detail::None });
        Some(StagePlace { timeline: self.number, index })
    }

    /// Adds a stage that has ended.
    pub fn add(&mut self, kind: Kind, begin: Instant, end: Instant, detail: Detail) {
        match self.stages.len() {
            STAGES_MAX => self.stages_left_out += 1,
            _ => self.stages.push(Stage { kind, begin, end: Some(end), detail }),
        }
    }

    /// Records that the request has waited for others since it was suspended, until `now`.
    pub fn add_order(&mut self, now: Instant) {
        if self.suspended_at < now {
            self.add(Kind::Order, self.suspended_at, now, Detail::None);
        }
    }

    fn context(&self, index: usize) -> Option<TraceContext> {
        let Span { trace_id, span_id, .. } = self.span?;
        Some(TraceContext { trace_id, span_id: stage_id(span_id, index), is_sampled: true })
    }
}

/// Returns the id of a request's stage in the trace. It is a bijection of the request's id for each index (the
/// finalizer of SplitMix64), so that different requests do not share one.
pub(crate) fn stage_id(span_id: NonZeroU64, index: usize) -> NonZeroU64 {
    let mut bits = span_id.get().wrapping_add(GOLDEN.wrapping_mul(index as u64 + 1));
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    NonZeroU64::new(bits ^ bits >> 31).unwrap_or(NonZeroU64::MAX)
}

/// 2^64 divided by the golden ratio, the increment of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Why it is kept.
    pub why: Why,
    /// The name of its command.
    pub command: &'static str,
    /// The beginning of its key. Empty if it has none.
    pub key: Box<[u8]>,
    /// The address of its client, if that is known.
    pub client: String,
    /// The time at which it was read, since the Unix epoch.
    pub begin: Nanos,
    /// The time from then until its answer was written.
    pub total: Nanos,
    /// The id of its trace.
    pub trace_id: NonZeroU128,
    /// The id of the request in the trace.
    pub span_id: NonZeroU64,
    /// The span of the caller that asked, if it sent one.
    pub parent_id: Option<NonZeroU64>,
    /// Its stages, in the order in which they began.
    pub stages: Vec<RecordedStage>,
    /// The number of further stages.
    pub stages_left_out: usize,
}

/// Why a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is one in so many.
    Sampled,
    /// Its caller records it, too.
    Asked,
    /// It was slow.
    Slow,
}

impl Why {
    /// Returns the word for pages and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Sampled => "sampled",
            Why::Asked => "asked",
            Why::Slow => "slow",
        }
    }
}

/// A stage of a request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedStage {
    /// What the request waited for or did.
    pub kind: Kind,
    /// The id of the stage in the trace.
    pub span_id: NonZeroU64,
    /// The time from the begin of the request to that of the stage.
    pub after: Nanos,
    /// How long the stage took.
    pub took: Nanos,
    /// The device of a job or the server that answered.
    pub by: Option<Arc<str>>,
    /// The placement of a job, its reason, and the time that the device worked on it.
    pub job: Option<(&'static str, &'static str, Nanos)>,
}

impl RecordedStage {
    /// Returns how long a job waited: the time that its device did not work on it.
    pub fn waiting(&self) -> Option<Nanos> {
        self.job.map(|(_, _, service)| Nanos(self.took.0.saturating_sub(service.0)))
    }
}

fn beginning(key: &[u8]) -> Box<[u8]> {
    key[..key.len().min(KEY_BYTES_MAX)].into()
}

/// The bytes of a key that are kept.
const KEY_BYTES_MAX: usize = 64;

/// The stages that need no memory of their own.
const STAGES_INLINE: usize = 4;

/// The stages that are kept of one request.
const STAGES_MAX: usize = 64;

impl Record {
    /// Returns how much of the total went to each stage, and the rest. Time in which several stages were open counts
    /// for the one that was opened first, so the sum is the total.
    pub fn shares(&self) -> (Vec<Nanos>, Nanos) {
        let mut until = 0;
        let mut rest = self.total.0;
        let share = |stage: &RecordedStage| {
            let end = stage.after.0.saturating_add(stage.took.0).min(self.total.0);
            let share = end.saturating_sub(stage.after.0.max(until));
            until = until.max(end);
            rest = rest.saturating_sub(share);
            Nanos(share)
        };
        let shares = self.stages.iter().map(share).collect();
        (shares, Nanos(rest))
    }
}
