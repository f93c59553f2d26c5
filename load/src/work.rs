//! The requests of one generator thread. The module takes requests up when they are due, stores them while no
//! connection has capacity, and counts them when they are answered. It is the same for every protocol and touches no
//! socket.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{Clock, Nanos, SystemClock};

use crate::answer::{Answer, Content, Failure, Outcome};
use crate::recorder::Recorder;
use crate::source::{Op, Request, Source};
use crate::spec::LoadSpec;

/// The data that all threads of a phase share.
pub(crate) struct Shared<'a> {
    pub(crate) spec: &'a LoadSpec,
    pub(crate) content: Content<'a>,
    /// The end of the load. No request is due at or after this time.
    pub(crate) end: Nanos,
    pub(crate) clock: SystemClock,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) counters: Counters,
}

/// The counts of all threads so far, for the progress display.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) answered: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// One thread's requests.
pub(crate) struct Work<'a> {
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) recorder: Recorder,
    source: Source,
    /// Requests that became due while no connection had capacity.
    backlog: VecDeque<Request>,
    in_flight: usize,
    /// The number of requests in flight that were due within the measured window.
    in_flight_counted: u64,
    version: u32,
    last_answer: Nanos,
    /// Answers that are not yet added to the shared counters. `failed` counts such failures.
    answered: u64,
    failed: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>, source: Source, recorder: Recorder) -> Self {
        Self {
            shared,
            recorder,
            source,
            backlog: VecDeque::new(),
            in_flight: 0,
            in_flight_counted: 0,
            version: 0,
            last_answer: shared.clock.now(),
            answered: 0,
            failed: 0,
        }
    }

    /// Returns whether the phase was stopped, or is over including the wait for late answers.
    pub(crate) fn is_finished(&self, now: Nanos) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) {
            return true;
        }
        let idle = self.in_flight == 0 && self.backlog.is_empty();
        let request_timeout = self.shared.spec.request_timeout;
        match &self.source {
            // The phase ends when everything is stored, or when the server has been silent for longer than any request
            // may take.
            Source::Populate { ids, .. } => {
                let silent = now.since(self.last_answer) > request_timeout + request_timeout;
                (ids.is_empty() && idle) || silent
            }
            Source::Open(open) if open.next_due() < self.shared.end => false,
            Source::Open(_) | Source::Closed { .. } => {
                let end = self.shared.end;
                now >= end && (idle || now >= end + request_timeout)
            }
        }
    }

    /// Returns the time until which the thread may sleep: the next due time, or `housekeeping` if that is earlier.
    pub(crate) fn wake_at(&self, housekeeping: Nanos) -> Nanos {
        match &self.source {
            Source::Open(open) if open.next_due() < self.shared.end => {
                open.next_due().min(housekeeping)
            }
            _ => housekeeping,
        }
    }

    /// Takes up every due request.
    pub(crate) fn take_due(&mut self, now: Nanos) {
        let Source::Open(open) = &mut self.source else { return };
        let end = self.shared.end;
        while open.next_due() <= now && open.next_due() < end {
            let request = open.take();
            self.recorder.offered(&request, now, true);
            if self.backlog.len() < self.shared.spec.backlog_max {
                self.backlog.push_back(request);
            } else {
                self.recorder.not_sent(&request);
            }
        }
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns the request that has waited longest for a connection with capacity.
    pub(crate) fn next_waiting(&mut self) -> Option<Request> {
        self.backlog.pop_front()
    }

    /// Returns the number of requests to keep in flight on each connection, or `None` in an open loop.
    pub(crate) fn depth(&self) -> Option<usize> {
        match self.source {
            Source::Open(_) => None,
            Source::Closed { depth, .. } | Source::Populate { depth, .. } => Some(depth),
        }
    }

    /// Returns the request that is sent at `now`, or `None` in an open loop or after the end.
    pub(crate) fn next_now(&mut self, now: Nanos) -> Option<Request> {
        if now >= self.shared.end {
            return None;
        }
        let request = self.source.next_now(now)?;
        self.recorder.offered(&request, now, false);
        Some(request)
    }

    /// Records that `request` was passed to a connection. Returns the version of the value to write.
    pub(crate) fn sent(&mut self, request: &Request) -> u32 {
        self.in_flight += 1;
        self.in_flight_counted += u64::from(self.recorder.counts(request));
        let next = self.version.wrapping_add(u32::from(request.op != Op::Get));
        self.version = next % self.shared.spec.versions;
        self.version
    }

    /// Records an answer that came at `now`. Returns the set that follows a miss.
    pub(crate) fn answered(&mut self, answer: &Answer, now: Nanos) -> Option<Request> {
        self.finish_request(&answer.request);
        self.last_answer = now;
        self.recorder.answered(answer, now);
        let failed = matches!(answer.outcome, Outcome::Error(_) | Outcome::Wrong(_));
        self.failed += u64::from(failed);
        self.answered += u64::from(!failed);
        let Shared { spec, end, .. } = *self.shared;
        if !spec.set_on_miss || now >= end || answer.outcome != Outcome::Miss {
            return None;
        }
        let request = Request { op: Op::Fill, id: answer.request.id, intended: now };
        self.recorder.offered(&request, now, false);
        Some(request)
    }

    /// Records that a request will have no answer.
    pub(crate) fn failed(&mut self, request: &Request, why: &Failure) {
        self.finish_request(request);
        self.failed += 1;
        self.recorder.failed(request, why);
    }

    fn finish_request(&mut self, request: &Request) {
        self.in_flight -= 1;
        self.in_flight_counted -= u64::from(self.recorder.counts(request));
    }

    /// Does the periodic work, which may be slightly delayed: CPU time and progress.
    pub(crate) fn run_housekeeping(&mut self, now: Nanos) {
        self.recorder.watch_cpu(now);
        let counters = &self.shared.counters;
        counters.answered.fetch_add(std::mem::take(&mut self.answered), Ordering::Relaxed);
        counters.failed.fetch_add(std::mem::take(&mut self.failed), Ordering::Relaxed);
    }

    /// Counts the requests that are left at the end of the phase, and returns the record.
    pub(crate) fn settle(mut self) -> Recorder {
        for request in self.backlog.drain(..) {
            self.recorder.not_sent(&request);
        }
        if let Source::Populate { ids, .. } = &self.source {
            self.recorder.unsent += ids.end - ids.start;
        }
        self.recorder.unanswered += self.in_flight_counted;
        self.recorder
    }
}

/// The interval of housekeeping. The thread notices the stop flag, a timeout or a retry at most this late.
pub(crate) const HOUSEKEEPING_EVERY: Nanos = Nanos::millis(10);
/// The longest time for reopening a lost connection.
pub(crate) const OPEN_TIMEOUT: Nanos = Nanos::secs(1);
pub(crate) const BACKOFF_FIRST: Nanos = Nanos::millis(10);
/// The longest pause between two attempts to reconnect. With it, the generator finds a restarted server within about a
/// second.
pub(crate) const BACKOFF_LAST: Nanos = Nanos::millis(1_000);
