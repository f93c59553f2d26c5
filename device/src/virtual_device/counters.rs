//! The counters of a virtual device. A measurement reads them to report what was emulated and whether its result is
//! valid.

use std::sync::atomic::{AtomicU64, Ordering};

use units::Nanos;

/// The largest share of late completions in a valid measurement.
pub const LATE_SHARE_MAX: f64 = 0.001;

/// The counts of a virtual device at some time, over all of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualCounters {
    /// Accepted jobs.
    pub jobs: u64,
    /// Jobs whose result was remembered.
    pub remembered: u64,
    /// Jobs whose result a core had to make.
    pub computed: u64,
    /// Completions that the emulation's own work made later than the profile allows.
    pub late: u64,
    /// Completions that were later because the system ran another thread on the core during the submission.
    pub preempted: u64,
    /// The time that cores spent on the emulation: hashing, lookup, copying, and making results (ns).
    pub host_ns: u64,
    /// The part of `host_ns` beyond the emulated cost of the submissions (ns). With real hardware, the cores
    /// would not have spent this time.
    pub host_excess_ns: u64,
    /// Jobs refused because the device was full.
    pub refused_full: u64,
    /// Jobs that waited for a page, if page faults were requested.
    pub faulted: u64,
    /// Results that engines handed to the engines of the next op of a chain.
    pub handed_over: u64,
}

impl VirtualCounters {
    /// Returns the counts since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            jobs: self.jobs - earlier.jobs,
            remembered: self.remembered - earlier.remembered,
            computed: self.computed - earlier.computed,
            late: self.late - earlier.late,
            preempted: self.preempted - earlier.preempted,
            host_ns: self.host_ns - earlier.host_ns,
            host_excess_ns: self.host_excess_ns - earlier.host_excess_ns,
            refused_full: self.refused_full - earlier.refused_full,
            faulted: self.faulted - earlier.faulted,
            handed_over: self.handed_over - earlier.handed_over,
        }
    }

    /// Returns each count with its name.
    pub fn named(self) -> [(&'static str, u64); 10] {
        [
            ("jobs", self.jobs),
            ("remembered", self.remembered),
            ("computed", self.computed),
            ("late", self.late),
            ("preempted", self.preempted),
            ("host_ns", self.host_ns),
            ("host_excess_ns", self.host_excess_ns),
            ("refused_full", self.refused_full),
            ("faulted", self.faulted),
            ("handed_over", self.handed_over),
        ]
    }

    /// Returns the share of jobs that completed late.
    pub fn late_share(self) -> f64 {
        if self.jobs == 0 { 0.0 } else { self.late as f64 / self.jobs as f64 }
    }

    /// Returns whether a measurement with these counts is valid: at most [`LATE_SHARE_MAX`] of the jobs were late.
    pub fn is_valid(self) -> bool {
        self.late_share() <= LATE_SHARE_MAX
    }
}

/// The reason why a completion was not on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delay {
    None,
    /// The emulation's own work took too long.
    Emulation,
    /// The system ran another thread on the core.
    System,
}

/// The counters that all queues add to.
#[derive(Default)]
pub(super) struct Counters {
    jobs: AtomicU64,
    remembered: AtomicU64,
    computed: AtomicU64,
    late: AtomicU64,
    preempted: AtomicU64,
    host_ns: AtomicU64,
    host_excess_ns: AtomicU64,
    refused_full: AtomicU64,
    faulted: AtomicU64,
    handed_over: AtomicU64,
}

impl Counters {
    pub(super) fn job(&self, host: Nanos, submit: Nanos, delay: Delay) {
        self.jobs.fetch_add(1, Ordering::Relaxed);
        match delay {
            Delay::None => 0,
            Delay::Emulation => self.late.fetch_add(1, Ordering::Relaxed),
            Delay::System => self.preempted.fetch_add(1, Ordering::Relaxed),
        };
        self.host_ns.fetch_add(host.0, Ordering::Relaxed);
        self.host_excess_ns.fetch_add(host.since(submit).0, Ordering::Relaxed);
    }

    pub(super) fn remembered(&self) {
        self.remembered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn computed(&self) {
        self.computed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and returns false, which is what a refused caller gets.
    pub(super) fn refused_full(&self) -> bool {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        false
    }

    pub(super) fn handed_over(&self) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn faulted(&self) {
        self.faulted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> VirtualCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        VirtualCounters {
            jobs: read(&self.jobs),
            remembered: read(&self.remembered),
            computed: read(&self.computed),
            late: read(&self.late),
            preempted: read(&self.preempted),
            host_ns: read(&self.host_ns),
            host_excess_ns: read(&self.host_excess_ns),
            refused_full: read(&self.refused_full),
            faulted: read(&self.faulted),
            handed_over: read(&self.handed_over),
        }
    }
}
