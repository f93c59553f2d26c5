//! The circuit breaker of a device. It decides at which share of wrong or failed results the device is
//! retired, and when the device is probed again. It is a pure state machine without a queue or a clock.

use units::Nanos;

/// Counts the faults of a device, and opens when their share exceeds the tolerated share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    /// The level of wrong results among the results that were read back.
    read_back: Bucket,
    /// The level of wrong results that callers found, among all results.
    reported: Bucket,
    /// The level of failed jobs among all jobs.
    failed: Bucket,
    /// The time of the next probe, while the breaker is open.
    probe_at: Option<Nanos>,
    /// The latest wait before a probe. It is kept while the breaker is closed, because a device that is wrong again
    /// before it has earned trust waits twice as long.
    wait: Nanos,
    /// The number of results since the breaker closed.
    results: u64,
}

/// The way in which a device was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The runtime read a result back, and it was wrong.
    ReadBack,
    /// A caller's checksum refused a result.
    Reported,
    /// The device failed a job.
    Failed,
}

impl Breaker {
    /// Counts `jobs` results that the device gave since the last call.
    pub(crate) fn count(&mut self, jobs: u64) {
        self.results = self.results.saturating_add(jobs);
        self.reported.leak(jobs as f64 * WRONG_SHARE);
        self.failed.leak(jobs as f64 * FAILED_SHARE);
    }

    /// Records a result that was read back and is right.
    pub(crate) fn right(&mut self) {
        self.read_back.leak(WRONG_SHARE);
    }

    /// Records that the device was wrong. Returns true if this opens the breaker.
    pub(crate) fn wrong(&mut self, how: Wrong, now: Nanos, first_wait: Nanos) -> bool {
        let is_over = match how {
            Wrong::ReadBack => self.read_back.add(WRONG_MAX),
            Wrong::Reported => self.reported.add(WRONG_MAX),
            Wrong::Failed => self.failed.add(FAILED_MAX),
        };
        if self.is_open() || !is_over {
            return false;
        }
        let is_trusted = self.wait == Nanos(0) || self.results >= EARNED_RESULTS;
        self.wait = if is_trusted { first_wait } else { doubled(self.wait, first_wait) };
        self.probe_at = Some(Nanos(now.0.saturating_add(self.wait.0)));
        true
    }

    pub(crate) fn is_open(&self) -> bool {
        self.probe_at.is_some()
    }

    /// Returns the time of the next probe, or none while the breaker is closed.
    pub(crate) fn probe_at(&self) -> Option<Nanos> {
        self.probe_at
    }

    /// Returns whether one job may be a probe now. If so, sets the next probe's time after a longer wait, in
    /// case this probe fails.
    pub(crate) fn try_probe(&mut self, now: Nanos, first_wait: Nanos) -> bool {
        let is_due = self.probe_at.is_some_and(|probe_at| now >= probe_at);
        if is_due {
            self.wait = doubled(self.wait, first_wait);
            self.probe_at = Some(Nanos(now.0.saturating_add(self.wait.0)));
        }
        is_due
    }

    /// Closes the breaker, because a probe's result is right. The device serves again. If it fails again before it has
    /// earned trust, the breaker opens for longer.
    pub(crate) fn close(&mut self) {
        if self.probe_at.take().is_some() {
            self.results = 0;
            (self.read_back, self.reported) = (Bucket(WRONG_MAX - 1.0), Bucket(WRONG_MAX - 1.0));
            self.failed = Bucket(FAILED_MAX - 1.0);
        }
    }
}

/// A leaky bucket. A fault raises its level by one, and a result lowers it by the tolerated share of faults.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(f64);

impl Bucket {
    fn leak(&mut self, by: f64) {
        self.0 = (self.0 - by).max(0.0);
    }

    fn add(&mut self, max: f64) -> bool {
        self.0 = (self.0 + 1.0).min(max);
        self.0 >= max - ROUNDING
    }
}

fn doubled(wait: Nanos, first_wait: Nanos) -> Nanos {
    let longest = first_wait.0.saturating_mul(WAITS_MAX);
    Nanos(wait.0.saturating_mul(2).clamp(first_wait.0, longest.max(first_wait.0)))
}

/// The tolerated share of wrong results. A device that is wrong once in a thousand results stays in service. A device
/// that is wrong once in a hundred results does not.
const WRONG_SHARE: f64 = 1.0 / 256.0;

/// The number of wrong results in a row that open the breaker.
const WRONG_MAX: f64 = 5.0;

/// The tolerated share of failed jobs. It is high, because failed jobs are redone and cost only time.
const FAILED_SHARE: f64 = 1.0 / 8.0;

/// The number of failed jobs in a row that open the breaker.
const FAILED_MAX: f64 = 32.0;

/// The number of results with which a restored device earns trust. The next wait is then the shortest again.
pub(crate) const EARNED_RESULTS: u64 = 1_024;

/// The longest wait between probes, in multiples of the first wait.
pub(crate) const WAITS_MAX: u64 = 64;

/// A level counts as full if it is at most this far below its maximum. The tolerance compensates for the leak
/// between consecutive faults.
const ROUNDING: f64 = 0.25;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Prng;

    use super::*;

    const FIRST: Nanos = Nanos::secs(1);

    /// Simulates the read-back of `results` results, with the given share of wrong ones. Returns the number of wrong
    /// results at which the breaker opened, if it opened.
    fn wrong_until_open(share: f64, results: u64, seed: u64) -> Option<u64> {
        let (mut breaker, mut draws, mut wrong) = (Breaker::default(), Prng::new(seed), 0);
        for _ in 0..results {
            breaker.count(1);
            if draws.unit() >= share {
                breaker.right();
                continue;
            }
            wrong += 1;
            if breaker.wrong(Wrong::ReadBack, Nanos(0), FIRST) {
                return Some(wrong);
            }
        }
        None
    }

    #[test]
    fn one_wrong_result_in_a_thousand_is_borne() {
        for seed in 0..20 {
            assert_eq!(wrong_until_open(0.001, 20_000, seed), None, "seed {seed}");
        }
    }

    proptest! {
        #[test]
        fn twenty_wrong_results_open_it_at_shares_that_matter(
            share in 0.01..1.0,
            seed in any::<u64>(),
        ) {
            let wrong = wrong_until_open(share, 100_000, seed);
            prop_assert!(wrong.is_some_and(|wrong| wrong <= 20), "{wrong:?} at {share}");
        }

        #[test]
        fn waits_never_shrink_before_trust_is_earned(
            good in prop::collection::vec(0..EARNED_RESULTS, 1..30),
        ) {
            let (mut breaker, mut now, mut last) = (Breaker::default(), Nanos(0), Nanos(0));
            for jobs in good {
                while !breaker.wrong(Wrong::ReadBack, now, FIRST) {}
                let wait = breaker.probe_at().expect("open").since(now);
                prop_assert!(wait >= last && wait.0 <= FIRST.0 * WAITS_MAX);
                now = Nanos(now.0 + wait.0);
                prop_assert!(!breaker.try_probe(Nanos(now.0 - 1), FIRST));
                prop_assert!(breaker.try_probe(now, FIRST));
                prop_assert!(!breaker.try_probe(now, FIRST), "one probe at a time");
                breaker.close();
                breaker.count(jobs);
                last = wait;
            }
        }
    }

    #[test]
    fn failed_probes_double_the_wait_up_to_its_bound() {
        let mut breaker = Breaker::default();
        while !breaker.wrong(Wrong::Reported, Nanos(0), FIRST) {}
        let mut waits = Vec::new();
        let mut now = Nanos(0);
        for _ in 0..9 {
            let due = breaker.probe_at().expect("open");
            waits.push(due.since(now).0 / FIRST.0);
            now = due;
            assert!(breaker.try_probe(now, FIRST));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn earned_trust_makes_the_next_wait_short_again() {
        let mut breaker = Breaker::default();
        while !breaker.wrong(Wrong::ReadBack, Nanos(0), FIRST) {}
        assert!(breaker.try_probe(FIRST, FIRST));
        breaker.close();
        breaker.count(EARNED_RESULTS);
        while !breaker.wrong(Wrong::ReadBack, Nanos(0), FIRST) {}
        assert_eq!(breaker.probe_at(), Some(FIRST));
    }

    #[test]
    fn a_device_that_fails_half_its_jobs_is_retired() {
        let mut breaker = Breaker::default();
        let failed = (1..).find(|_| {
            breaker.count(2);
            breaker.wrong(Wrong::Failed, Nanos(0), FIRST)
        });
        assert!(failed.is_some_and(|failed| failed < 64), "{failed:?}");
    }
}
