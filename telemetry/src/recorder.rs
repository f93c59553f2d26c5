//! Chooses the requests of one worker that are recorded, and turns timelines into records.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::Arc;
use std::time::{Duration, Instant};

use units::{Nanos, Prng, TraceContext, unix_time};

use crate::requests::Requests;
use crate::timeline::{
    Detail, Record, RecordedStage, Span, Stage, Timeline, Why, resume, stage_id,
};

/// Records requests of one worker.
#[derive(Debug)]
pub struct Recorder {
    requests: Arc<Requests>,
    /// The number of requests until the next that is looked at, counting that one.
    until_looked_at: Cell<u64>,
    /// The number of requests from that one until the next sampled one. 0 if it is the same.
    until_sampled: Cell<u64>,
    draws: RefCell<Prng>,
    /// The begin of the current second, and the requests in it that callers asked for.
    asked: Cell<(Option<Instant>, u32)>,
    /// The names of the devices, by their index in a path.
    devices: Vec<Arc<str>>,
}

/// Why a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// It may turn out to be slow.
    MaybeSlow,
    /// It is one in so many.
    Sampled,
}

/// The begin of a request.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// The time at which it was read.
    pub at: Instant,
    /// The name of its command.
    pub command: &'static str,
    /// Its key; empty if it has none.
    pub key: &'a [u8],
}

impl Recorder {
    /// Creates the recorder of a worker. Its draws follow from `seed` in a simulation, and else from the system.
    pub fn new(requests: Arc<Requests>, devices: Vec<Arc<str>>, seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        let draws = RefCell::new(Prng::new(seed));
        let [until_looked_at, until_sampled] = [0; 2].map(Cell::new);
        let asked = Cell::default();
        let recorder = Self { requests, until_looked_at, until_sampled, draws, asked, devices };
        recorder.set_rules();
        recorder
    }

    /// Takes over rules that have changed.
    pub fn set_rules(&self) {
        self.look_next(self.draw_gap());
    }

    /// Decides which request is looked at next: the next one while slow ones are looked for, and otherwise the one that
    /// is sampled, the last of the next `gap`.
    fn look_next(&self, gap: u64) {
        let step = if self.requests.looks_for_slow() { 1 } else { gap };
        self.until_looked_at.set(step);
        self.until_sampled.set(gap - step);
    }

    /// Returns whether the next request is to be recorded, and why.
    #[inline]
    pub fn choose(&self) -> Option<Chosen> {
        let left = self.until_looked_at.get() - 1;
        self.until_looked_at.set(left);
        if left == 0 { self.look() } else { None }
    }

    #[cold]
    fn look(&self) -> Option<Chosen> {
        match self.until_sampled.get() {
            0 => {
                self.set_rules();
                Some(Chosen::Sampled)
            }
            gap => {
                self.look_next(gap);
                self.requests.looks_for_slow().then_some(Chosen::MaybeSlow)
            }
        }
    }

    /// Makes a request that was chosen the current one of the task.
    #[cold]
    pub fn begin(&self, started: &Started<'_>, chosen: Chosen) {
        let span = (chosen == Chosen::Sampled).then(|| self.new_span());
        resume(Timeline::new(started.at, started.command, started.key, span));
    }

    /// Returns the timeline of a call, if it is to be recorded: `caller` is the context that came with it.
    pub fn begin_call(
        &self,
        started: &Started<'_>,
        caller: Option<TraceContext>,
    ) -> Option<Box<Timeline>> {
        if let Some(caller) = caller.filter(|caller| caller.is_sampled)
            && self.takes_asked(started.at)
        {
            return Some(self.begin_for(started, caller));
        }
        let span = match self.choose()? {
            // The caller has decided that its trace is not recorded.
            Chosen::Sampled if caller.is_some() => None,
            Chosen::Sampled => Some(self.new_span()),
            Chosen::MaybeSlow => None,
        };
        Some(Timeline::new(started.at, started.command, started.key, span))
    }

    /// Returns whether one more request is recorded because its caller asks for it. Callers choose freely, and must not
    /// be able to make this process record everything.
    pub fn takes_asked(&self, now: Instant) -> bool {
        let (since, count) = self.asked.get();
        let is_over = since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND);
        let (since, count) = if is_over { (Some(now), 0) } else { (since, count) };
        self.asked.set((since, count + 1));
        count < ASKED_PER_S
    }

    /// Returns the timeline of a request whose caller records it.
    pub fn begin_for(&self, started: &Started<'_>, caller: TraceContext) -> Box<Timeline> {
        let Span { span_id, .. } = self.new_span();
        let TraceContext { trace_id, span_id: parent_id, .. } = caller;
        let span = Span { trace_id, span_id, parent_id: Some(parent_id) };
        Timeline::new(started.at, started.command, started.key, Some(span))
    }

    /// Ends a request whose answer was written at `now`. It is kept if it was sampled or slow.
    pub fn end(&self, timeline: Timeline, now: Instant, client: impl FnOnce() -> String) {
        let total = Nanos::from(now.saturating_duration_since(timeline.begin));
        let is_slow = self.requests.is_slow(total);
        let why = match timeline.span {
            _ if is_slow => Why::Slow,
            Some(Span { parent_id: Some(_), .. }) => Why::Asked,
            Some(_) => Why::Sampled,
            None => return,
        };
        self.requests.keep(self.record(timeline, now, total, why, client()));
    }

    fn record(
        &self,
        timeline: Timeline,
        now: Instant,
        total: Nanos,
        why: Why,
        client: String,
    ) -> Record {
        let Timeline { begin, command, key, stages, stages_left_out, span, .. } = timeline;
        let span = span.unwrap_or_else(|| self.new_span());
        let stages = stages.into_iter().enumerate().map(|(index, stage)| {
            let Stage { kind, begin: from, end, detail } = stage;
            let until = end.unwrap_or(now);
            let (by, job) = match detail {
                Detail::None => (None, None),
                Detail::Server(name) => (Some(Arc::from(name)), None),
                Detail::Job { device, placement, reason, service } => {
                    (self.devices.get(device).cloned(), Some((placement, reason, service)))
                }
            };
            RecordedStage {
                kind,
                span_id: stage_id(span.span_id, index),
                after: from.saturating_duration_since(begin).into(),
                took: until.saturating_duration_since(from).into(),
                by,
                job,
            }
        });
        Record {
            why,
            command,
            key,
            client,
            begin: Nanos(Nanos::from(unix_time()).0.saturating_sub(total.0)),
            total,
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_id: span.parent_id,
            stages: stages.collect(),
            stages_left_out,
        }
    }

    /// Draws the number of requests until the next sampled one. Its mean is the interval of the rules. It varies, so
    /// that a client that repeats a sequence of requests does not get the same one sampled each time.
    fn draw_gap(&self) -> u64 {
        match self.requests.sample_every() {
            0 => u64::MAX,
            every => 1 + self.draws.borrow_mut().below(2 * every - 1),
        }
    }

    fn new_span(&self) -> Span {
        let mut draws = self.draws.borrow_mut();
        let trace_id = u128::from(draws.bits()) << 64 | u128::from(draws.bits());
        Span {
            trace_id: NonZeroU128::new(trace_id).unwrap_or(NonZeroU128::MAX),
            span_id: NonZeroU64::new(draws.bits()).unwrap_or(NonZeroU64::MAX),
            parent_id: None,
        }
    }
}

/// The requests that one worker records in a second because callers ask for it.
const ASKED_PER_S: u32 = 200;

const SECOND: Duration = Duration::from_secs(1);
