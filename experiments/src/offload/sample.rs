//! One measurement and its numbers: latencies, throughput, and whether the measurement is valid. The module has
//! arithmetic only.

use device::virtual_device::{LATE_SHARE_MAX, VirtualCounters};
use units::Nanos;

use crate::base::ACHIEVED_MIN_P99;

/// The results of one run of one load.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The latency of each request (ns), in ascending order.
    pub(super) latency_ns: Vec<u64>,
    pub(super) elapsed: Nanos,
    /// The time of jobs in software on the calling core.
    pub(super) software: Nanos,
    /// The time that the emulation occupied the core, beyond the cost of the profile's submissions.
    pub(super) excess: Nanos,
    /// The requests answered in the window, divided by those offered. It is 1 in a closed loop, which offers no request
    /// before an answer.
    pub(super) achieved: f64,
    /// The number of batch jobs that completed in the same time.
    pub(super) batch_jobs: usize,
    /// The reason why the sample is invalid, or None if it is valid.
    pub(super) invalid: Option<String>,
}

impl Sample {
    /// Makes a sample from latencies in any order.
    pub(super) fn new(mut latency_ns: Vec<u64>, elapsed: Nanos) -> Self {
        latency_ns.sort_unstable();
        Self { latency_ns, elapsed, achieved: 1.0, ..Self::default() }
    }

    /// Adds the counts of the emulations during the run.
    pub(super) fn emulated(self, before: &[VirtualCounters], after: &[VirtualCounters]) -> Self {
        let since = before.iter().zip(after).map(|(before, after)| after.since(*before));
        let all: Vec<VirtualCounters> = since.collect();
        let late = all.iter().find(|counters| !counters.is_valid());
        let invalid = late.map(|counters| {
            let (share, most) = (100.0 * counters.late_share(), 100.0 * LATE_SHARE_MAX);
            format!("{share:.2} % of the emulated jobs were late, more than {most} %")
        });
        let excess = Nanos(all.iter().map(|counters| counters.host_excess_ns).sum());
        Self { excess, invalid: self.invalid.or(invalid), ..self }
    }

    pub(super) fn count(&self) -> usize {
        self.latency_ns.len()
    }

    /// Returns whether nearly all offered requests were answered in time. Otherwise latency is the length of a queue.
    pub(super) fn kept_up(&self) -> bool {
        self.achieved >= ACHIEVED_MIN_P99
    }

    /// Returns a quantile of the latency (us), or NaN if the sample did not keep up.
    pub(super) fn quantile_kept_up_us(&self, share: f64) -> f64 {
        if self.kept_up() { self.quantile_us(share) } else { f64::NAN }
    }

    /// Returns the throughput of requests (1/s).
    pub(super) fn per_s(&self) -> f64 {
        self.held(self.count() as f64 / (self.elapsed.0.max(1) as f64 / 1e9))
    }

    /// Returns the throughput of batch jobs (1/s).
    pub(super) fn batch_per_s(&self) -> f64 {
        self.held(self.batch_jobs as f64 / (self.elapsed.0.max(1) as f64 / 1e9))
    }

    /// Returns the latency that this share of the requests does not exceed (us).
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        let rank = (share * self.count() as f64).ceil().max(1.0) as usize - 1;
        self.held(self.latency_ns.get(rank).map_or(f64::NAN, |ns| *ns as f64 / 1e3))
    }

    /// Returns the share of requests that took less than the limit.
    pub(super) fn under(&self, limit: Nanos) -> f64 {
        let under = self.latency_ns.partition_point(|ns| *ns < limit.0);
        self.held(under as f64 / self.count().max(1) as f64)
    }

    /// Returns a part of the elapsed time, per request (us).
    pub(super) fn per_request_us(&self, part: Nanos) -> f64 {
        self.held(part.0 as f64 / self.count().max(1) as f64 / 1e3)
    }

    /// Returns the value, or NaN if the sample is invalid.
    fn held(&self, value: f64) -> f64 {
        if self.invalid.is_some() { f64::NAN } else { value }
    }
}

/// Returns the reason why runs of a point are invalid, if any are.
pub(super) fn invalid(samples: &[Sample]) -> Option<String> {
    let reasons: Vec<&str> =
        samples.iter().filter_map(|sample| sample.invalid.as_deref()).collect();
    let first = reasons.first()?;
    Some(format!("{} of {} runs not valid: {first}", reasons.len(), samples.len()))
}

/// Returns a remark on how many runs of a point did not keep up, if any did not.
pub(super) fn behind(samples: &[Sample]) -> Option<String> {
    let late = samples.iter().filter(|sample| !sample.kept_up()).count();
    (late > 0).then(|| format!("{late} of {} runs did not keep up", samples.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_shares_and_rates_are_those_of_the_requests() {
        let sample = Sample::new((1..=100).rev().map(|us| us * 1_000).collect(), Nanos::millis(1));
        assert_eq!((sample.quantile_us(0.5), sample.quantile_us(0.99)), (50.0, 99.0));
        assert_eq!((sample.quantile_us(0.0), sample.quantile_us(1.0)), (1.0, 100.0));
        assert_eq!(sample.under(Nanos::micros(10)), 0.09);
        assert_eq!(sample.per_s(), 100_000.0);
        assert!(Sample::default().quantile_us(0.5).is_nan());
    }

    #[test]
    fn a_sample_that_did_not_keep_up_has_no_latency() {
        let kept = Sample { achieved: 0.995, ..Sample::new(vec![2_000], Nanos(1)) };
        assert_eq!(kept.quantile_kept_up_us(0.99), 2.0);
        let late = Sample { achieved: 0.99, ..kept.clone() };
        assert!(late.quantile_kept_up_us(0.99).is_nan());
        assert_eq!(behind(&[kept, late]).as_deref(), Some("1 of 2 runs did not keep up"));
    }

    #[test]
    fn a_sample_that_does_not_hold_has_no_number() {
        let sample = Sample::new(vec![1], Nanos(1));
        let late = VirtualCounters { jobs: 100, late: 1, ..VirtualCounters::default() };
        let late = sample.emulated(&[VirtualCounters::default()], &[late]);
        assert!(late.per_s().is_nan() && late.under(Nanos(2)).is_nan());
        assert!(invalid(&[late]).is_some_and(|reason| reason.starts_with("1 of 1 runs not valid")));
    }
}
