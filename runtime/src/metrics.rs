//! Which path ran, counted for every job. One [`Metrics`] per core, written by its runtime alone
//! and read by whoever shows it. No names of protocols or pages here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Job, Outcome};
use policy::{Placement, Reason};
use units::{Nanos, Op};

use crate::entry::Path;

/// One core's counters.
pub struct Metrics {
    devices: Vec<String>,
    paths: Vec<PathCell>,
    fallbacks: Vec<AtomicU64>,
    lost: Vec<AtomicU64>,
    timeouts: Vec<AtomicU64>,
    probes: Vec<AtomicU64>,
    restored: Vec<AtomicU64>,
    detached: AtomicU64,
    late: AtomicU64,
    missed: Vec<AtomicU64>,
    corrupt: Vec<AtomicU64>,
}

impl Metrics {
    pub(crate) fn new(devices: Vec<String>) -> Self {
        let count = devices.len();
        let cells = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let paths = OPS.len() * count * Placement::ALL.len() * Reason::ALL.len();
        Self {
            paths: (0..paths).map(|_| PathCell::default()).collect(),
            fallbacks: cells(count * Reason::ALL.len()),
            lost: cells(count),
            timeouts: cells(count),
            probes: cells(count),
            missed: cells(count),
            corrupt: cells(count),
            restored: cells(count),
            devices,
            detached: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    /// Every path that ran at least once.
    pub fn paths(&self) -> Vec<PathCount> {
        let mut counts = Vec::new();
        for (index, cell) in self.paths.iter().enumerate() {
            let Some(detail) = cell.detail.get() else { continue };
            let sizes = detail.sizes();
            let sum = |of: fn(&SizeCount) -> u64| sizes.iter().map(of).fold(0, u64::saturating_add);
            let (rest, reason) = (index / Reason::ALL.len(), index % Reason::ALL.len());
            let (rest, placement) = (rest / Placement::ALL.len(), rest % Placement::ALL.len());
            let (op, device) = (rest / self.devices.len(), rest % self.devices.len());
            counts.push(PathCount {
                op: OPS[op],
                device: self.devices[device].clone(),
                placement: Placement::ALL[placement],
                reason: Reason::ALL[reason],
                jobs: sum(|size| size.jobs),
                failed: cell.failed.load(Ordering::Relaxed),
                did_not_fit: cell.did_not_fit.load(Ordering::Relaxed),
                input_bytes: cell.input_bytes.load(Ordering::Relaxed),
                output_bytes: cell.output_bytes.load(Ordering::Relaxed),
                service: Nanos(sum(|size| size.service.0)),
                queueing: Nanos(sum(|size| size.queueing.0)),
                service_log2_ns: loads(&detail.service),
                queueing_log2_ns: loads(&detail.queueing),
                sizes,
            });
        }
        counts.retain(|count: &PathCount| count.jobs > 0);
        counts
    }

    /// Jobs redone in software, by the device that did not do them and the reason.
    pub fn fallbacks(&self) -> Vec<(String, Reason, u64)> {
        let cells = self.fallbacks.iter().enumerate();
        let counted = cells.map(|(index, cell)| (index, cell.load(Ordering::Relaxed)));
        counted
            .filter(|(_, count)| *count > 0)
            .map(|(index, count)| {
                let (device, reason) = (index / Reason::ALL.len(), index % Reason::ALL.len());
                (self.devices[device].clone(), Reason::ALL[reason], count)
            })
            .collect()
    }

    /// Times that each device was retired, and jobs it kept too long.
    pub fn losses(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.lost, &self.timeouts)
    }

    /// Times that each device was tried again while retired, and times that it was back.
    pub fn probes(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.probes, &self.restored)
    }

    /// Jobs whose owner went away first.
    pub fn detached(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }

    /// Completions of jobs that had timed out.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Jobs that were done after their deadline, by device.
    pub fn missed_deadlines(&self) -> Vec<(String, u64)> {
        let counted = self.devices.iter().zip(&self.missed);
        counted.map(|(name, missed)| (name.clone(), missed.load(Ordering::Relaxed))).collect()
    }

    /// Streams of each device that software did not read back as their input.
    pub fn corrupt(&self) -> Vec<(String, u64)> {
        let counted = self.devices.iter().zip(&self.corrupt);
        counted.map(|(name, corrupt)| (name.clone(), corrupt.load(Ordering::Relaxed))).collect()
    }

    fn by_device(&self, first: &[AtomicU64], second: &[AtomicU64]) -> Vec<(String, u64, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let names = self.devices.iter().enumerate();
        names
            .map(|(index, name)| (name.clone(), read(&first[index]), read(&second[index])))
            .collect()
    }

    #[inline]
    pub(crate) fn count(
        &self,
        path: &Path,
        outcome: &Outcome,
        job: &Job,
        service: Nanos,
        queueing: Nanos,
    ) {
        let index =
            (job.task.op().index() * self.devices.len() + path.device) * Placement::ALL.len();
        let index = (index + path.placement as usize) * Reason::ALL.len() + path.reason as usize;
        let cell = &self.paths[index];
        let detail = cell.detail.get_or_init(Box::default);
        detail.count(job.work_bytes() as u64, service, queueing);
        match outcome {
            Outcome::Done { output_bytes } => {
                add(&cell.input_bytes, job.input.len() as u64);
                add(&cell.output_bytes, *output_bytes as u64);
            }
            Outcome::DoesNotFit => add(&cell.did_not_fit, 1),
            Outcome::Failed(_) => add(&cell.failed, 1),
        }
    }

    pub(crate) fn count_fallback(&self, device: usize, reason: Reason) {
        let index = device * Reason::ALL.len() + reason as usize;
        add(&self.fallbacks[index], 1);
    }

    pub(crate) fn count_lost(&self, device: usize) {
        add(&self.lost[device], 1);
    }

    pub(crate) fn count_timeout(&self, device: usize) {
        add(&self.timeouts[device], 1);
    }

    pub(crate) fn count_probe(&self, device: usize) {
        add(&self.probes[device], 1);
    }

    pub(crate) fn count_restored(&self, device: usize) {
        add(&self.restored[device], 1);
    }

    pub(crate) fn count_detached(&self) {
        add(&self.detached, 1);
    }

    pub(crate) fn count_missed(&self, device: usize) {
        add(&self.missed[device], 1);
    }

    pub(crate) fn count_corrupt(&self, device: usize) {
        add(&self.corrupt[device], 1);
    }

    pub(crate) fn count_late(&self) {
        add(&self.late, 1);
    }
}

/// What one path did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCount {
    /// The kind of work.
    pub op: Op,
    /// The device's name.
    pub device: String,
    /// How it was waited for.
    pub placement: Placement,
    /// Why there.
    pub reason: Reason,
    /// Jobs finished.
    pub jobs: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Of these, compressed to more than their bound.
    pub did_not_fit: u64,
    /// Bytes read by the jobs that were done.
    pub input_bytes: u64,
    /// Bytes written by the jobs that were done.
    pub output_bytes: u64,
    /// Time the device worked, summed.
    pub service: Nanos,
    /// Time jobs waited beside that, summed.
    pub queueing: Nanos,
    /// The same by size; only sizes that occurred.
    pub sizes: Vec<SizeCount>,
    /// Jobs by service time: `[n]` counts those from 2^n ns to below 2^(n+1) ns, the last all beyond.
    pub service_log2_ns: Vec<u64>,
    /// Jobs by queueing time, likewise.
    pub queueing_log2_ns: Vec<u64>,
}

/// Jobs of one path whose uncompressed side has from 2^log2 bytes to below 2^(log2+1) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeCount {
    /// The class.
    pub log2: u32,
    /// Jobs finished.
    pub jobs: u64,
    /// Bytes of the uncompressed side, summed.
    pub work_bytes: u64,
    /// Time the device worked, summed.
    pub service: Nanos,
    /// Time jobs waited beside that, summed.
    pub queueing: Nanos,
}

/// Jobs and times are the sums over `detail.sizes`: a job on the fast path pays for each counter that it touches.
#[derive(Default)]
struct PathCell {
    failed: AtomicU64,
    did_not_fit: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    /// Made with the path's first job: most paths never run.
    detail: OnceLock<Box<Detail>>,
}

/// One path's jobs by size and by time.
struct Detail {
    sizes: [SizeCell; SIZE_CLASSES],
    service: [AtomicU64; TIME_CLASSES],
    queueing: [AtomicU64; TIME_CLASSES],
}

#[derive(Default)]
struct SizeCell {
    jobs: AtomicU64,
    work_bytes: AtomicU64,
    service_ns: AtomicU64,
    queueing_ns: AtomicU64,
}

impl Default for Detail {
    fn default() -> Self {
        Self {
            sizes: std::array::from_fn(|_| SizeCell::default()),
            service: std::array::from_fn(|_| AtomicU64::new(0)),
            queueing: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Detail {
    fn count(&self, work_bytes: u64, service: Nanos, queueing: Nanos) {
        let size = &self.sizes[log2(work_bytes, SIZE_CLASSES)];
        add(&size.jobs, 1);
        add(&size.work_bytes, work_bytes);
        add(&size.service_ns, service.0);
        add(&size.queueing_ns, queueing.0);
        add(&self.service[log2(service.0, TIME_CLASSES)], 1);
        add(&self.queueing[log2(queueing.0, TIME_CLASSES)], 1);
    }

    fn sizes(&self) -> Vec<SizeCount> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let count = |(log2, cell): (usize, &SizeCell)| SizeCount {
            log2: log2 as u32,
            jobs: load(&cell.jobs),
            work_bytes: load(&cell.work_bytes),
            service: Nanos(load(&cell.service_ns)),
            queueing: Nanos(load(&cell.queueing_ns)),
        };
        self.sizes.iter().enumerate().map(count).filter(|size| size.jobs > 0).collect()
    }
}

/// The counters without the zeros at the end.
fn loads(counters: &[AtomicU64]) -> Vec<u64> {
    let mut counts: Vec<u64> =
        counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
    counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
    counts
}

fn log2(value: u64, classes: usize) -> usize {
    (value.max(1).ilog2() as usize).min(classes - 1)
}

/// Up to 1 GiB, the largest item there can be.
const SIZE_CLASSES: usize = 31;

/// Up to 18 minutes.
const TIME_CLASSES: usize = 40;

/// Adds without a locked instruction: only the core's own runtime writes. A device that reports nonsense as its time
/// stops a counter at its end and does not turn it back.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
}

/// The ops that are jobs, in the order of their index; those after them are a trace's own.
const OPS: [Op; 6] =
    [Op::Compress, Op::Decompress, Op::Encrypt, Op::Decrypt, Op::Checksum, Op::Copy];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_end_stop_at_the_end() {
        let (detail, metrics) = (Box::<Detail>::default(), Metrics::new(vec!["one".to_owned()]));
        for bytes in [1, 1, 9_000] {
            detail.count(bytes, Nanos(u64::MAX), Nanos(5));
        }
        assert!(metrics.paths[0].detail.set(detail).is_ok());
        let path = &metrics.paths()[0];
        assert_eq!((path.jobs, path.service), (3, Nanos(u64::MAX)));
        assert_eq!((path.sizes[0].service, path.queueing), (Nanos(u64::MAX), Nanos(15)));
    }

    #[test]
    fn indices_match_the_table() {
        for (index, op) in OPS.into_iter().enumerate() {
            assert_eq!(op.index(), index);
        }
    }
}
