//! The requests of a process that are kept: the latest sampled ones and the latest slow ones. It counts them, and gives
//! each to the listener, which logs slow ones and may export all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use units::Nanos;

use crate::timeline::{Record, Why};

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The mean number of requests of which one is sampled. 0 samples none.
    pub sample_every: u64,
    /// The time from which a request is slow. 0 looks for none.
    pub slow: Nanos,
}

/// The requests that are kept.
pub struct Requests {
    sample_every: AtomicU64,
    /// The time from which a request is slow (ns). `u64::MAX` for none.
    slow_ns: AtomicU64,
    sampled: AtomicU64,
    asked: AtomicU64,
    slow: AtomicU64,
    kept: Mutex<Kept>,
    listener: Listener,
}

/// A function that gets each record.
type Listener = Box<dyn Fn(&Arc<Record>) + Send + Sync>;

#[derive(Default)]
struct Kept {
    slow: VecDeque<Arc<Record>>,
    sampled: VecDeque<Arc<Record>>,
    asked: VecDeque<Arc<Record>>,
}

/// The numbers of requests that were kept so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that were one in so many, and not slow.
    pub sampled: u64,
    /// Those that their callers record, and that were not slow.
    pub asked: u64,
    /// The slow ones.
    pub slow: u64,
}

impl Requests {
    /// Creates the place for records, which passes each on to `listener`.
    pub fn new(rules: Rules, listener: impl Fn(&Arc<Record>) + Send + Sync + 'static) -> Self {
        let requests = Self {
            sample_every: AtomicU64::default(),
            slow_ns: AtomicU64::default(),
            sampled: AtomicU64::default(),
            asked: AtomicU64::default(),
            slow: AtomicU64::default(),
            kept: Mutex::default(),
            listener: Box::new(listener),
        };
        requests.set_rules(rules);
        requests
    }

    /// Replaces the rules. Each recorder takes them over with [`crate::Recorder::set_rules`].
    pub fn set_rules(&self, Rules { sample_every, slow: Nanos(slow_ns) }: Rules) {
        self.sample_every.store(sample_every, Ordering::Relaxed);
        self.slow_ns.store(if slow_ns == 0 { u64::MAX } else { slow_ns }, Ordering::Relaxed);
    }

    /// Returns the latest requests of each kind, newest first: the slow ones, the sampled ones, and those that callers
    /// asked for.
    pub fn latest(&self) -> [Vec<Arc<Record>>; 3] {
        let kept = self.kept.lock();
        [&kept.slow, &kept.sampled, &kept.asked]
            .map(|records| records.iter().rev().cloned().collect())
    }

    /// Returns how many were kept so far.
    pub fn counts(&self) -> Counts {
        Counts {
            sampled: self.sampled.load(Ordering::Relaxed),
            asked: self.asked.load(Ordering::Relaxed),
            slow: self.slow.load(Ordering::Relaxed),
        }
    }

    /// Returns the rules.
    pub fn rules(&self) -> Rules {
        let slow = match self.slow_ns.load(Ordering::Relaxed) {
            u64::MAX => Nanos(0),
            slow_ns => Nanos(slow_ns),
        };
        Rules { sample_every: self.sample_every(), slow }
    }

    pub(crate) fn looks_for_slow(&self) -> bool {
        self.slow_ns.load(Ordering::Relaxed) != u64::MAX
    }

    pub(crate) fn is_slow(&self, total: Nanos) -> bool {
        total.0 >= self.slow_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn sample_every(&self) -> u64 {
        self.sample_every.load(Ordering::Relaxed)
    }

    pub(crate) fn keep(&self, record: Record) {
        let count = match record.why {
            Why::Sampled => &self.sampled,
            Why::Asked => &self.asked,
            Why::Slow => &self.slow,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let record = Arc::new(record);
        let forgotten = {
            let mut kept = self.kept.lock();
            let records = match record.why {
                Why::Slow => &mut kept.slow,
                Why::Sampled => &mut kept.sampled,
                Why::Asked => &mut kept.asked,
            };
            records.push_back(Arc::clone(&record));
            // It is freed without the lock.
            (records.len() > KEPT_MAX).then(|| records.pop_front())
        };
        drop(forgotten);
        (self.listener)(&record);
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("rules", &self.rules()).finish_non_exhaustive()
    }
}

/// The requests that are kept of each kind.
const KEPT_MAX: usize = 32;
