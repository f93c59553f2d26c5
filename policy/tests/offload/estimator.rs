//! Estimates like those of a runtime: moving averages of completions per size class, and a slope per device for the
//! queue. They lag behind, and they know nothing of engines, content or slowdowns.

use policy::Placement;
use units::Nanos;

/// The weight of the newest completion. [`FIRST_IN_A_WHILE`] is the weight of the first completion in a
/// while, because old estimates say little and probes of an arm that is not chosen are rare.
const NEW: f64 = 1.0 / 8.0;
const FIRST_IN_A_WHILE: f64 = 1.0 / 2.0;

/// A completion counts as the first in a while if more arrivals than this, of all sizes, have come since the last
/// completion of its class.
const WHILE: u64 = 1_000;

/// The number of completions from which a class is known. A single completion says too little, and an arm that looks
/// bad is rarely tried again.
const KNOWN_AFTER: u32 = 4;

const CLASSES: usize = 24;

#[derive(Clone)]
struct Device {
    /// The time with an empty queue, by size class.
    alone_ns: [Option<f64>; CLASSES],
    host_ns: [Option<f64>; CLASSES],
    /// The number of completions seen, by size class.
    seen: [u32; CLASSES],
    /// The number of arrivals at the last completion of a class.
    learnt: [u64; CLASSES],
    /// The time that each job in flight on the device adds.
    per_job_ns: f64,
}

pub(crate) struct Estimator {
    devices: Vec<Device>,
    last: [Option<(usize, Placement)>; CLASSES],
    arrivals: u64,
    arrived_ns: f64,
    gap_ns: f64,
}

impl Estimator {
    pub(crate) fn new(devices: usize) -> Self {
        let unknown = Device {
            alone_ns: [None; CLASSES],
            host_ns: [None; CLASSES],
            seen: [0; CLASSES],
            learnt: [0; CLASSES],
            per_job_ns: 0.0,
        };
        Self {
            devices: vec![unknown; devices],
            last: [None; CLASSES],
            arrivals: 0,
            arrived_ns: 0.0,
            gap_ns: 1e6,
        }
    }

    /// Updates the estimates with a job that found `depth` other jobs in the device when it was submitted, and
    /// completed between the two times `took_ns` after its submission (ns). The error is the distance of the expected
    /// time from this interval, so that a late poll does not count against the device. The time per job in the device
    /// (slope) gets the part of the error that corresponds to the queue. The time with an empty queue (base) gets the
    /// rest.
    pub(crate) fn learn(&mut self, device: usize, bytes: usize, took_ns: (f64, f64), depth: usize) {
        let device = &mut self.devices[device];
        let age = self.arrivals - device.learnt[class(bytes)];
        device.learnt[class(bytes)] = self.arrivals;
        let seen = &mut device.seen[class(bytes)];
        *seen += 1;
        let new = if age > WHILE { FIRST_IN_A_WHILE } else { NEW }.max(1.0 / f64::from(*seen));
        let depth = depth as f64;
        let queued = device.per_job_ns * depth;
        let alone = device.alone_ns[class(bytes)].get_or_insert((took_ns.1 - queued).max(0.0));
        let estimated = *alone + queued;
        let error = estimated.clamp(took_ns.0, took_ns.1) - estimated;
        let part = depth / (depth + DEPTH_OF_EQUAL_PARTS);
        *alone = (*alone + new * (1.0 - part) * error).max(0.0);
        if depth > 0.0 {
            device.per_job_ns = (device.per_job_ns + NEW * part * error / depth).max(0.0);
        }
    }

    /// Records the arrival of a job.
    pub(crate) fn arrived(&mut self, at_ns: f64) {
        self.gap_ns += (at_ns - self.arrived_ns - self.gap_ns) / 64.0;
        self.arrived_ns = at_ns;
        self.arrivals += 1;
    }

    pub(crate) fn gap(&self) -> Option<Nanos> {
        Some(Nanos(self.gap_ns as u64))
    }

    pub(crate) fn learn_host(&mut self, device: usize, bytes: usize, took_ns: f64) {
        let host = self.devices[device].host_ns[class(bytes)].get_or_insert(took_ns);
        *host += NEW * (took_ns - *host);
    }

    /// Returns the expected time to completion and the expected host time.
    pub(crate) fn estimate(
        &self,
        device: usize,
        bytes: usize,
        depth: usize,
    ) -> (Option<Nanos>, Option<Nanos>) {
        let known = &self.devices[device];
        let ns = |ns: f64| Nanos(ns as u64);
        let alone =
            known.alone_ns[class(bytes)].filter(|_| known.seen[class(bytes)] >= KNOWN_AFTER);
        let estimated = alone.map(|alone| ns(alone + known.per_job_ns * depth as f64));
        (estimated, known.host_ns[class(bytes)].map(ns))
    }

    pub(crate) fn remember(&mut self, bytes: usize, place: (usize, Placement)) {
        self.last[class(bytes)] = Some(place);
    }

    pub(crate) fn last(&self, bytes: usize) -> Option<(usize, Placement)> {
        self.last[class(bytes)]
    }
}

/// An estimate is the time with an empty queue plus a time for each job in the device. An error of the estimate
/// corrects both. If the device holds this number of jobs, each of the two gets half of the error.
const DEPTH_OF_EQUAL_PARTS: f64 = 2.0;

fn class(bytes: usize) -> usize {
    bytes.checked_ilog2().unwrap_or(0) as usize
}
