//! Records where the time of a session's requests goes. A session works on one request at a time: it suspends the
//! timeline of a request that is in flight, and resumes it to write the answer.

use std::time::Instant;

use telemetry::Started;
use telemetry::timeline::{self, Detail, Kind, Timeline};

use super::Session;
use super::connection::Transport;
use super::pipeline::{Issued, Pending};

impl Session {
    /// Begins the timeline of a request that was read at `at`, if it is chosen. The caller of a command in memory has
    /// one already, which gets the key.
    #[inline]
    pub(super) fn observe<K: AsRef<[u8]>>(
        &mut self,
        at: Instant,
        named: impl FnOnce() -> (&'static str, K),
    ) {
        if let Transport::Memory { .. } = self.transport {
            return timeline::set_key(|| named().1);
        }
        if let Some(chosen) = self.context.recorder.choose() {
            let (command, key) = named();
            self.context.recorder.begin(&Started { at, command, key: key.as_ref() }, chosen);
            self.is_recorded = true;
        }
    }

    /// Returns a request in flight, whose timeline rests until its answer is written.
    pub(super) fn pending<'a>(&mut self, since: Instant, issued: Issued<'a>) -> Pending<'a> {
        Pending { since, issued, timeline: self.suspend_timeline() }
    }

    /// Ends the work on the timeline of the current request, if it has one.
    #[inline]
    pub(super) fn suspend_timeline(&mut self) -> Option<Box<Timeline>> {
        if !std::mem::take(&mut self.is_recorded) {
            return None;
        }
        timeline::suspend()
    }

    /// Continues with the timeline of a request.
    #[inline]
    pub(super) fn resume_timeline(&mut self, timeline: Option<Box<Timeline>>) {
        if let Some(timeline) = timeline {
            timeline::resume(timeline);
            self.is_recorded = true;
        }
    }

    /// Lays the timeline of the current request aside, while others of the connection are answered.
    #[cold]
    pub(super) fn rest_timeline(&mut self) {
        self.resting = self.suspend_timeline();
    }

    /// Continues with the timeline that was laid aside.
    #[cold]
    pub(super) fn continue_timeline(&mut self) {
        if let Some(mut timeline) = self.resting.take() {
            timeline.add_order(Instant::now());
            self.resume_timeline(Some(timeline));
        }
    }

    /// Ends the work on the timeline of a request whose answer is ready. If many answers wait to be written, the time
    /// for that is not recorded.
    #[cold]
    pub(super) fn answer_is_ready(&mut self) {
        let Some(timeline) = self.suspend_timeline() else { return };
        match self.unwritten.len() {
            UNWRITTEN_MAX => self.end_timeline(*timeline, Instant::now()),
            _ => self.unwritten.push(*timeline),
        }
    }

    /// Ends the timelines of the requests whose answers were written, or could not be, since `since`. If the current
    /// request is recorded, a part of its own answer may have been written. It gets a stage for that.
    #[cold]
    pub(super) fn answers_are_written(&mut self, since: Instant) {
        let now = Instant::now();
        if self.is_recorded {
            timeline::add(Kind::Write, since, now);
        }
        for mut timeline in std::mem::take(&mut self.unwritten) {
            timeline.add_order(since);
            timeline.add(Kind::Write, since, now, Detail::None);
            self.end_timeline(timeline, now);
        }
    }

    fn end_timeline(&self, timeline: Timeline, now: Instant) {
        self.context.recorder.end(timeline, now, || self.origin().to_string());
    }
}

/// The requests whose time of writing is recorded, of those that are written at once.
const UNWRITTEN_MAX: usize = 16;
