//! Limits on rates. A bucket is shared by all workers and is one number: the time until which its tokens are spent.
//! Workers take tokens in batches, so that most requests touch only memory of their worker.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use units::Nanos;

/// What the connections of one identity use together, over all workers.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) connections: AtomicUsize,
    requests: Bucket,
    bytes: Bucket,
}

/// A token bucket without a rate, which callers pass, so that a reload can change it.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The time until which tokens are spent (ns on the process's clock, [`shifted`]).
    spent_until_ns: AtomicU64,
}

impl Bucket {
    /// Takes `count` tokens at `rate` tokens per second. Returns how long to wait before they may be used. If that is
    /// more than `wait_max`, takes nothing and returns none.
    pub(crate) fn take(
        &self,
        count: u64,
        rate: u64,
        now: Nanos,
        wait_max: Duration,
    ) -> Option<Duration> {
        let now = shifted(now);
        let latest = now.0.saturating_add(Nanos::from(wait_max).0);
        let until = self.advance(count, rate, now, |until| until <= latest)?;
        Some(Duration::from_nanos(until.saturating_sub(now.0)))
    }

    /// Takes `count` tokens that were used already.
    pub(super) fn spend(&self, count: u64, rate: u64, now: Nanos) {
        self.advance(count, rate, shifted(now), |_| true);
    }

    /// Returns how long it takes until no tokens are owed.
    pub(super) fn owed(&self, now: Nanos) -> Duration {
        let until = self.spent_until_ns.load(Ordering::Relaxed);
        Duration::from_nanos(until.saturating_sub(shifted(now).0))
    }

    fn advance(&self, count: u64, rate: u64, now: Nanos, may: impl Fn(u64) -> bool) -> Option<u64> {
        let cost_ns = |tokens: u64| {
            let cost = u128::from(tokens) * 1_000_000_000 / u128::from(rate.max(1));
            u64::try_from(cost).unwrap_or(u64::MAX)
        };
        let burst_ns = Nanos::from(BURST).0.max(cost_ns(1));
        let next = |spent_until: u64| {
            let since = spent_until.max(now.0.saturating_sub(burst_ns));
            let until = since.saturating_add(cost_ns(count));
            may(until).then_some(until)
        };
        let relaxed = Ordering::Relaxed;
        let before = self.spent_until_ns.fetch_update(relaxed, relaxed, next).ok()?;
        next(before)
    }
}

/// Returns the time on a clock on which there was a whole burst before the process started. Otherwise the first clients
/// of a process would have less than their quota.
fn shifted(now: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(BURST_MAX.0))
}

/// The tokens of one identity that one worker has taken and not yet used.
#[derive(Debug)]
pub(super) struct Allowance {
    pub(super) usage: Arc<Usage>,
    requests: Cell<u64>,
    bytes: Cell<u64>,
}

impl Allowance {
    pub(super) fn new(usage: Arc<Usage>) -> Self {
        Self { usage, requests: Cell::new(0), bytes: Cell::new(0) }
    }

    /// Takes one request at `rate` requests per second, or returns as [`Bucket::take`] does.
    pub(super) fn request(&self, rate: u64, now: impl Fn() -> Nanos) -> Option<Duration> {
        if let Some(left) = self.requests.get().checked_sub(1) {
            self.requests.set(left);
            return Some(Duration::ZERO);
        }
        let batch = batch(rate);
        let wait = self.usage.requests.take(batch, rate, now(), WAIT_MAX)?;
        // Others of this worker may have taken a batch too.
        self.requests.set(self.requests.get() + batch - 1);
        Some(wait)
    }

    /// Takes bytes that were moved, at `rate` bytes per second.
    pub(super) fn spend_bytes(&self, bytes: u64, rate: u64, now: impl Fn() -> Nanos) {
        match self.bytes.get().checked_sub(bytes) {
            Some(left) => self.bytes.set(left),
            None => {
                let batch = batch(rate);
                let missing = bytes - self.bytes.replace(batch);
                self.usage.bytes.spend(missing + batch, rate, now());
            }
        }
    }

    /// Returns how long to wait until the bytes that were moved are paid, or none if that is too long.
    pub(super) fn bytes_owed(&self, now: Nanos) -> Option<Duration> {
        Some(self.usage.bytes.owed(now)).filter(|owed| *owed <= WAIT_MAX)
    }
}

/// Returns how many tokens a worker takes at once: what the identity may use in 10 ms.
const fn batch(rate: u64) -> u64 {
    let batch = rate / 100;
    if batch > 0 { batch } else { 1 }
}

/// The time whose tokens an idle identity may use at once.
const BURST: Duration = Duration::from_millis(100);

/// The longest burst: one token at the lowest rate.
const BURST_MAX: Nanos = Nanos::secs(1);

/// The longest wait of a client that is over its quota.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);
