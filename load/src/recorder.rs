//! The record of one generator thread during a run, and the sum of all records as a report.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use units::Nanos;

use crate::answer::{Answer, Failure, Outcome};
use crate::report::{
    ConnectionReport, GeneratorReport, LoadReport, OpReport, Percentiles, PopulateReport,
    WrongBytes,
};
use crate::source::{Op, Request};
use crate::{LoadSpec, Pace};

/// One thread's record.
pub(crate) struct Recorder {
    /// The first time at which a due request counts.
    from: Nanos,
    /// The time from which on requests no longer count.
    to: Nanos,
    ops: [OpRecord; 3],
    lateness: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    statuses: BTreeMap<&'static str, u64>,
    wrong: WrongBytes,
    cpu_from: Option<(Nanos, Nanos)>,
    cpu_utilisation: f64,
    pub(crate) unsent: u64,
    pub(crate) unanswered: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) connections: ConnectionReport,
}

struct OpRecord {
    offered: u64,
    answered: u64,
    answered_within: u64,
    hits: u64,
    misses: u64,
    errors: u64,
    value_bytes: u64,
    latency: Histogram<u64>,
    service: Histogram<u64>,
}

impl Recorder {
    /// Creates a record of the requests that are due within `from..to`.
    pub(crate) fn new(from: Nanos, to: Nanos) -> Self {
        Self {
            from,
            to,
            ops: std::array::from_fn(|_| OpRecord::new()),
            lateness: histogram(),
            errors: BTreeMap::new(),
            statuses: BTreeMap::new(),
            wrong: WrongBytes::default(),
            cpu_from: None,
            cpu_utilisation: 0.0,
            unsent: 0,
            unanswered: 0,
            bytes_out: 0,
            bytes_in: 0,
            connections: ConnectionReport::default(),
        }
    }

    /// Returns whether `request` is due in the measured window.
    pub(crate) fn counts(&self, request: &Request) -> bool {
        (self.from..self.to).contains(&request.intended)
    }

    /// Records a request that the generator took up at `now`.
    pub(crate) fn offered(&mut self, request: &Request, now: Nanos, by_the_clock: bool) {
        if self.counts(request) {
            self.ops[request.op as usize].offered += 1;
            if by_the_clock {
                self.lateness.saturating_record(now.since(request.intended).0);
            }
        }
    }

    /// Records a request that found no connection with capacity.
    pub(crate) fn not_sent(&mut self, request: &Request) {
        self.unsent += u64::from(self.counts(request));
    }

    /// Records an answer.
    pub(crate) fn answered(&mut self, answer: &Answer, now: Nanos) {
        if let Outcome::Error(why) = &answer.outcome {
            return self.failed(&answer.request, why);
        }
        let counts = self.counts(&answer.request);
        let op = &mut self.ops[answer.request.op as usize];
        // Throughput counts the answers that arrive within the window, for requests with any due time.
        op.answered_within += u64::from((self.from..self.to).contains(&now));
        if let Outcome::Wrong(what) = &answer.outcome {
            // Wrong bytes count at any time of the run.
            self.wrong.add(answer.request.id, what);
        }
        if !counts {
            return;
        }
        op.answered += 1;
        op.latency.saturating_record(now.since(answer.request.intended).0);
        op.service.saturating_record(now.since(answer.sent).0);
        match answer.outcome {
            Outcome::Hit { value_bytes } => {
                op.hits += 1;
                op.value_bytes += value_bytes as u64;
            }
            Outcome::Wrong(_) => op.hits += 1,
            Outcome::Miss => op.misses += 1,
            Outcome::Stored | Outcome::Error(_) => {}
        }
    }

    /// Records a failed request.
    pub(crate) fn failed(&mut self, request: &Request, why: &Failure) {
        if self.counts(request) {
            self.ops[request.op as usize].errors += 1;
            self.count_error(why);
        }
    }

    /// Records the thread's CPU time at the start and at the end of the window.
    pub(crate) fn watch_cpu(&mut self, now: Nanos) {
        if self.cpu_from.is_none() && now >= self.from {
            self.cpu_from = Some((now, thread_cpu()));
        }
        if let Some((from, cpu)) = self.cpu_from
            && now <= self.to
            && now > from
        {
            self.cpu_utilisation = thread_cpu().since(cpu).0 as f64 / now.since(from).0 as f64;
        }
    }

    /// Adds another thread's record.
    pub(crate) fn add(&mut self, other: Self) {
        for (op, other) in self.ops.iter_mut().zip(&other.ops) {
            op.add(other);
        }
        self.lateness.add(&other.lateness).expect(SAME_BOUNDS);
        for (message, count) in other.errors {
            *self.errors.entry(message).or_default() += count;
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.wrong.count += other.wrong.count;
        self.wrong.examples.extend(other.wrong.examples);
        self.wrong.examples.truncate(WRONG_EXAMPLES_MAX);
        self.cpu_utilisation = self.cpu_utilisation.max(other.cpu_utilisation);
        self.unsent += other.unsent;
        self.unanswered += other.unanswered;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.connections.lost += other.connections.lost;
        self.connections.reopened += other.connections.reopened;
        self.connections.failed_attempts += other.connections.failed_attempts;
    }

    /// Turns the record of a populate phase into the report of that phase.
    pub(crate) fn into_populate_report(self, elapsed_s: f64) -> PopulateReport {
        let set = &self.ops[Op::Set as usize];
        let failed = set.errors + self.unanswered + self.unsent;
        PopulateReport { stored: set.answered, failed, elapsed_s, errors: self.errors }
    }

    /// Turns the record into the report of a run whose window ended at `end`, possibly early.
    pub(crate) fn into_report(
        self,
        spec: LoadSpec,
        prepopulate: Option<PopulateReport>,
        end: Nanos,
    ) -> LoadReport {
        let measured_s = self.to.min(end).since(self.from).0 as f64 / 1e9;
        let [get, set, fill] =
            [Op::Get, Op::Set, Op::Fill].map(|op| self.ops[op as usize].report(measured_s));
        let reason = self.bottleneck(&spec.pace);
        LoadReport {
            measured_s,
            stopped_early: end < self.to,
            prepopulate,
            get,
            set,
            fill,
            unsent: self.unsent,
            unanswered: self.unanswered,
            generator: GeneratorReport {
                lateness: Percentiles::from_histogram(&self.lateness),
                cpu_utilisation: self.cpu_utilisation,
                was_bottleneck: reason.is_some(),
                reason,
            },
            errors: self.errors,
            statuses: self.statuses,
            wrong: self.wrong,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            connections: self.connections,
            spec,
        }
    }

    /// Returns the reason why the generator limited the result, or `None` if it did not.
    fn bottleneck(&self, pace: &Pace) -> Option<String> {
        let cpu = self.cpu_utilisation;
        if cpu > CPU_UTILISATION_HIGH {
            return Some(format!(
                "a generator thread was {:.0} % busy; give it more threads or a lower rate",
                cpu * 100.0
            ));
        }
        let late = Nanos(self.lateness.value_at_quantile(0.99));
        if matches!(pace, Pace::Open { .. }) && late > LATENESS_HIGH {
            return Some(format!(
                "1 % of the requests were taken up over {:.2} ms late; it lacks CPU time",
                late.0 as f64 / 1e6
            ));
        }
        None
    }

    fn count_error(&mut self, Failure { status, message }: &Failure) {
        if let Some(status) = status {
            *self.statuses.entry(status).or_default() += 1;
        }
        if let Some(count) = self.errors.get_mut(message) {
            *count += 1;
            return;
        }
        let full = self.errors.len() >= ERROR_KINDS_MAX;
        let kind = if full { "other errors" } else { message };
        *self.errors.entry(kind.to_owned()).or_default() += 1;
    }
}

impl OpRecord {
    fn new() -> Self {
        Self {
            offered: 0,
            answered: 0,
            answered_within: 0,
            hits: 0,
            misses: 0,
            errors: 0,
            value_bytes: 0,
            latency: histogram(),
            service: histogram(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.answered += other.answered;
        self.answered_within += other.answered_within;
        self.hits += other.hits;
        self.misses += other.misses;
        self.errors += other.errors;
        self.value_bytes += other.value_bytes;
        self.latency.add(&other.latency).expect(SAME_BOUNDS);
        self.service.add(&other.service).expect(SAME_BOUNDS);
    }

    fn report(&self, measured_s: f64) -> OpReport {
        let per_s = |count: u64| if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 };
        let looked_up = self.hits + self.misses;
        OpReport {
            offered: self.offered,
            offered_per_s: per_s(self.offered),
            answered: self.answered,
            achieved_per_s: per_s(self.answered_within),
            hits: self.hits,
            misses: self.misses,
            hit_ratio: (looked_up > 0).then(|| self.hits as f64 / looked_up as f64),
            errors: self.errors,
            value_bytes: self.value_bytes,
            latency: Percentiles::from_histogram(&self.latency),
            service: Percentiles::from_histogram(&self.service),
        }
    }
}

impl WrongBytes {
    fn add(&mut self, id: u64, what: &str) {
        self.count += 1;
        if self.examples.len() < WRONG_EXAMPLES_MAX {
            self.examples.push(format!("key number {id}: {what}"));
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX.0, 3).expect("valid bounds")
}

/// Returns the calling thread's CPU time.
fn thread_cpu() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The longest time that the histograms distinguish, and the longest valid request timeout.
const TIME_MAX: Nanos = Nanos::secs(3_600);
const SAME_BOUNDS: &str = "all histograms have the same bounds";
/// The greatest number of different messages that are counted. The server chooses the messages, so their number needs a
/// bound.
const ERROR_KINDS_MAX: usize = 64;
const WRONG_EXAMPLES_MAX: usize = 8;
/// The CPU utilisation above which a thread may send requests late.
const CPU_UTILISATION_HIGH: f64 = 0.9;
/// The limit for the p99 of the generator's delay. Above this limit the delay shows in the p99 of any cache.
const LATENESS_HIGH: Nanos = Nanos::millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(op: Op, intended: u64, outcome: Outcome) -> Answer {
        let request = Request { op, id: 1, intended: Nanos(intended) };
        Answer { request, sent: Nanos(intended + 10), outcome }
    }

    #[test]
    fn only_requests_due_within_the_window_count() {
        let mut recorder = Recorder::new(Nanos(100), Nanos(200));
        for intended in [99, 100, 199, 200] {
            let answer = answer(Op::Get, intended, Outcome::Hit { value_bytes: 5 });
            recorder.offered(&answer.request, Nanos(intended + 1), true);
            recorder.answered(&answer, Nanos(intended + 50));
        }
        let spec = LoadSpec::new(Vec::new());
        let report = recorder.into_report(spec, None, Nanos(200));
        assert_eq!((report.get.offered, report.get.hits, report.get.value_bytes), (2, 2, 10));
        assert_eq!((report.get.latency.max_ns, report.get.service.max_ns), (50, 40));
        // One request was due at 99 and answered at 149. The other one was due at 100 and answered at 150.
        assert_eq!(report.get.achieved_per_s, 2.0 / 1e-7);
        assert!(!report.stopped_early);
    }

    #[test]
    fn kinds_of_errors_are_bounded() {
        let mut recorder = Recorder::new(Nanos(0), Nanos(10));
        for kind in 0..1_000 {
            let message = format!("SERVER_ERROR {kind}");
            let outcome = Outcome::Error(Failure { status: Some("INTERNAL"), message });
            recorder.answered(&answer(Op::Set, 5, outcome), Nanos(6));
        }
        let report = recorder.into_report(LoadSpec::new(Vec::new()), None, Nanos(10));
        assert_eq!(report.errors.len(), ERROR_KINDS_MAX + 1);
        assert_eq!(report.errors.values().sum::<u64>(), 1_000);
        assert_eq!((report.set.errors, report.failures()), (1_000, 1_000));
        assert_eq!(report.statuses.get("INTERNAL"), Some(&1_000));
    }
}
