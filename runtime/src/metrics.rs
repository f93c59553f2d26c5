//! Counts which path ran, for every job. Each core has one [`Metrics`]. Only its runtime writes it, and any thread may
//! read it. This module contains no names of protocols or pages.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Chain, Completion, DeviceError, Job, Outcome};
use policy::{Choice, Placement, Reason};
use units::{Nanos, Op};

use crate::chains::ChainKind;
use crate::slot::chain_service;

/// One core's counters.
pub struct Metrics {
    devices: Vec<String>,
    /// The counters of the jobs by device, placement, reason and op. Each element is allocated with its first job.
    paths: Vec<OnceLock<Box<Detail>>>,
    /// The chains by device, placement, reason and kind.
    chains: Vec<AtomicU64>,
    /// The chains whose ops were placed one by one, by kind.
    apart: Vec<AtomicU64>,
    fallbacks: Vec<AtomicU64>,
    lost: Vec<AtomicU64>,
    timeouts: Vec<AtomicU64>,
    probes: Vec<AtomicU64>,
    restored: Vec<AtomicU64>,
    detached: AtomicU64,
    late: AtomicU64,
    driver_restarts: AtomicU64,
    missed: Vec<AtomicU64>,
    verified: Vec<AtomicU64>,
    corrupt: Vec<AtomicU64>,
    misread: Vec<AtomicU64>,
    distrusted: Vec<AtomicU64>,
}

impl Metrics {
    pub(crate) fn new(devices: Vec<String>) -> Self {
        let count = devices.len();
        let cells = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let paths = count * PATHS * OP_PLACES;
        Self {
            paths: (0..paths).map(|_| OnceLock::new()).collect(),
            chains: cells(count * PATHS * ChainKind::ALL.len()),
            apart: cells(ChainKind::ALL.len()),
            fallbacks: cells(count * Reason::ALL.len()),
            lost: cells(count),
            timeouts: cells(count),
            probes: cells(count),
            missed: cells(count),
            verified: cells(count),
            corrupt: cells(count),
            misread: cells(count),
            distrusted: cells(count),
            restored: cells(count),
            devices,
            detached: AtomicU64::new(0),
            late: AtomicU64::new(0),
            driver_restarts: AtomicU64::new(0),
        }
    }

    /// Returns every path that ran at least once.
    pub fn paths(&self) -> Vec<PathCount> {
        let mut counts = Vec::new();
        for (index, cell) in self.paths.iter().enumerate() {
            let Some(detail) = cell.get() else { continue };
            let sizes = detail.sizes();
            let sum = |of: fn(&SizeCount) -> u64| sizes.iter().map(of).fold(0, u64::saturating_add);
            let (path, op) = (index / OP_PLACES, index % OP_PLACES);
            let (device, path) = (path / PATHS, path % PATHS);
            let (placement, reason) = (path / REASONS, path % REASONS);
            counts.push(PathCount {
                op: Op::ALL[op],
                device: self.devices[device].clone(),
                placement: Placement::ALL[placement],
                reason: Reason::ALL[reason],
                jobs: sum(|size| size.jobs),
                failed: detail.failed.load(Ordering::Relaxed),
                did_not_fit: detail.did_not_fit.load(Ordering::Relaxed),
                input_bytes: detail.input_bytes.load(Ordering::Relaxed),
                output_bytes: detail.output_bytes.load(Ordering::Relaxed),
                service: Nanos(sum(|size| size.service.0)),
                queueing: Nanos(sum(|size| size.queueing.0)),
                service_log2_ns: loads(&detail.service),
                queueing_log2_ns: loads(&detail.queueing),
                sizes,
            });
        }
        counts.retain(|count: &PathCount| count.jobs > 0);
        counts.sort_by_key(|count| count.op.index());
        counts
    }

    /// Returns the number of jobs redone in software, by the device that did not complete them and the reason.
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

    /// Returns, per device, how often it was retired and the number of jobs that timed out there.
    pub fn losses(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.lost, &self.timeouts)
    }

    /// Returns, per device, how often it was probed while retired and how often it was restored.
    pub fn probes(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.probes, &self.restored)
    }

    /// Returns the number of detached jobs.
    pub fn detached(&self) -> u64 {
        self.detached.load(Ordering::Relaxed)
    }

    /// Returns the number of completions of jobs that had timed out.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Returns how often the task that turns the core was restarted after a defect.
    pub fn driver_restarts(&self) -> u64 {
        self.driver_restarts.load(Ordering::Relaxed)
    }

    pub(crate) fn count_driver_restart(&self) {
        add(&self.driver_restarts, 1);
    }

    /// Returns the number of jobs that were done after their deadline, by device.
    pub fn missed_deadlines(&self) -> Vec<(String, u64)> {
        let counted = self.devices.iter().zip(&self.missed);
        counted.map(|(name, missed)| (name.clone(), missed.load(Ordering::Relaxed))).collect()
    }

    /// Returns, per device, the number of streams that it wrote wrong, and the number of streams that it read wrong. A
    /// stream is wrong if it does not decompress to its input.
    pub fn corrupt(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.corrupt, &self.misread)
    }

    /// Returns, per device, the number of results that were read back, and how often it was retired for wrong results.
    pub fn verified(&self) -> Vec<(String, u64, u64)> {
        self.by_device(&self.verified, &self.distrusted)
    }

    fn by_device(&self, first: &[AtomicU64], second: &[AtomicU64]) -> Vec<(String, u64, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let names = self.devices.iter().enumerate();
        names
            .map(|(index, name)| (name.clone(), read(&first[index]), read(&second[index])))
            .collect()
    }

    /// Returns the chains whose ops ran in one trip, by their path.
    pub fn chains(&self) -> Vec<ChainCount> {
        let cells = self.chains.iter().enumerate();
        let counted = cells.map(|(index, cell)| (index, cell.load(Ordering::Relaxed)));
        let counted = counted.filter(|(_, chains)| *chains > 0);
        let of = |(index, chains): (usize, u64)| {
            let (path, kind) = (index / ChainKind::ALL.len(), index % ChainKind::ALL.len());
            let (device, path) = (path / PATHS, path % PATHS);
            ChainCount {
                kind: ChainKind::ALL[kind],
                device: self.devices[device].clone(),
                placement: Placement::ALL[path / REASONS],
                reason: Reason::ALL[path % REASONS],
                chains,
            }
        };
        counted.map(of).collect()
    }

    /// Returns the number of chains whose ops the policy placed one by one.
    pub fn chains_apart(&self) -> [(ChainKind, u64); ChainKind::ALL.len()] {
        let read = |kind: ChainKind| self.apart[kind as usize].load(Ordering::Relaxed);
        ChainKind::ALL.map(|kind| (kind, read(kind)))
    }

    pub(crate) fn count_apart(&self, chain: &Chain) {
        add(&self.apart[ChainKind::from_chain(chain) as usize], 1);
    }

    /// Counts the end of a job with a chain: each op that was not counted yet, and the chain, if none of
    /// its ops is left.
    #[inline(never)]
    pub(crate) fn count_chain(&self, choice: Choice, completion: &mut Completion, total: Nanos) {
        let before = chain_service(&completion.job);
        self.count_steps(choice, &mut completion.job);
        let work_bytes = completion.job.work_bytes();
        self.count(choice, completion, work_bytes, total.since(before));
        let Some(chain) = completion.job.chain.as_ref() else { return };
        let is_done = matches!(completion.outcome, Outcome::Done { .. });
        if is_done && chain.next_op().is_none() && !chain.done().is_empty() {
            let path = choice.device() * PATHS + choice.placement as usize * REASONS;
            let path = path + choice.reason as usize;
            let kind = ChainKind::from_chain(chain) as usize;
            add(&self.chains[path * ChainKind::ALL.len() + kind], 1);
        }
    }

    /// Counts the ops of the job's chain that are done and were not counted yet.
    pub(crate) fn count_steps(&self, choice: Choice, job: &mut Job) {
        let Some(chain) = job.chain.as_mut() else { return };
        for step in chain.take_uncounted() {
            let detail = self.detail_of(choice, step.task.op());
            detail.count(step.work_bytes as u64, step.service, Nanos(0));
            add(&detail.input_bytes, step.input.len() as u64);
            add(&detail.output_bytes, step.result.len() as u64);
        }
    }

    /// Counts the end of a job, `total` after its submission.
    #[inline(always)]
    pub(crate) fn count(
        &self,
        choice: Choice,
        completion: &Completion,
        work_bytes: usize,
        total: Nanos,
    ) {
        let Completion { job, outcome, service } = completion;
        let Outcome::Done { output_bytes } = *outcome else {
            return self.count_without_result(choice, completion, total);
        };
        let detail = self.detail(choice, job);
        detail.count(work_bytes as u64, *service, total.since(*service));
        add(&detail.input_bytes, job.input.len() as u64);
        add_reported(&detail.output_bytes, output_bytes as u64);
    }

    #[inline(never)]
    fn count_without_result(&self, choice: Choice, completion: &Completion, total: Nanos) {
        let Completion { job, outcome, service } = completion;
        let detail = self.detail(choice, job);
        match outcome {
            // A cancelled job was counted when it was cancelled.
            Outcome::Failed(DeviceError::Cancelled) => return,
            Outcome::Failed(_) => add(&detail.failed, 1),
            Outcome::DoesNotFit => add(&detail.did_not_fit, 1),
            Outcome::Done { .. } => unreachable!("it has a result"),
        }
        detail.count(job.work_bytes() as u64, *service, total.since(*service));
    }

    /// Records the core time that a sampled job took for submission, polls and its owner's wake-up.
    #[cold]
    pub(crate) fn count_host(&self, choice: Choice, job: &Job, host: Nanos) {
        let detail = self.detail(choice, job);
        let size = &detail.sizes[log2(job.work_bytes() as u64)];
        add(&size.host_jobs, 1);
        add(&size.host_ns, host.0);
    }

    /// Returns the counters of the path, and allocates them with its first job.
    #[inline(always)]
    fn detail(&self, choice: Choice, job: &Job) -> &Detail {
        self.detail_of(choice, job.task.op())
    }

    #[inline(always)]
    fn detail_of(&self, choice: Choice, op: Op) -> &Detail {
        let path = choice.device() * PATHS + choice.placement as usize * REASONS;
        let index = (path + choice.reason as usize) * OP_PLACES + op.index();
        self.paths[index].get_or_init(Box::default)
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

    pub(crate) fn count_verified(&self, device: usize) {
        add(&self.verified[device], 1);
    }

    pub(crate) fn count_misread(&self, device: usize) {
        add(&self.misread[device], 1);
    }

    pub(crate) fn count_distrusted(&self, device: usize) {
        add(&self.distrusted[device], 1);
    }

    pub(crate) fn count_corrupt(&self, device: usize) {
        add(&self.corrupt[device], 1);
    }

    pub(crate) fn count_late(&self) {
        add(&self.late, 1);
    }
}

/// The number of chains of one kind whose ops ran in one trip on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainCount {
    /// The kind of chain.
    pub kind: ChainKind,
    /// The device's name.
    pub device: String,
    /// The placement, which says how the chains were waited for.
    pub placement: Placement,
    /// The reason why the policy chose this device and placement.
    pub reason: Reason,
    /// The number of chains that ended.
    pub chains: u64,
}

/// The counters of the jobs of one op on one device with one placement and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCount {
    /// The kind of work.
    pub op: Op,
    /// The device's name.
    pub device: String,
    /// The placement, which says how jobs were waited for.
    pub placement: Placement,
    /// The reason why the policy chose this device and placement.
    pub reason: Reason,
    /// The number of jobs that finished.
    pub jobs: u64,
    /// The number of finished jobs that failed.
    pub failed: u64,
    /// The number of finished jobs whose compressed result exceeds its bound.
    pub did_not_fit: u64,
    /// The number of bytes that successful jobs read.
    pub input_bytes: u64,
    /// The number of bytes that successful jobs wrote.
    pub output_bytes: u64,
    /// The sum of the jobs' service times on the device.
    pub service: Nanos,
    /// The sum of the times that jobs waited in addition to their service.
    pub queueing: Nanos,
    /// The counts by size, for sizes that occurred.
    pub sizes: Vec<SizeCount>,
    /// The number of jobs by service time. Element `n` counts the jobs from 2^n ns to below 2^(n+1) ns. The last
    /// element also counts all longer jobs.
    pub service_log2_ns: Vec<u64>,
    /// The number of jobs by queueing time, in the classes of `service_log2_ns`.
    pub queueing_log2_ns: Vec<u64>,
}

/// The counters of those jobs of one path whose size is at least 2^log2 bytes and less than 2^(log2+1) bytes. A path is
/// a combination of op, device, placement and reason. The size of a job is the size of its input, or of its result if
/// the job decompresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeCount {
    /// The size class: the binary logarithm of its smallest size in bytes.
    pub log2: u32,
    /// The number of jobs that finished.
    pub jobs: u64,
    /// The sum of the jobs' sizes in bytes. The size of a job is the size of its input, or of its result if the job
    /// decompresses.
    pub work_bytes: u64,
    /// The sum of the jobs' service times on the device.
    pub service: Nanos,
    /// The sum of the times that jobs waited in addition to their service.
    pub queueing: Nanos,
    /// The number of jobs whose cost on their core was measured. Jobs that run entirely on the core are never measured.
    pub host_jobs: u64,
    /// The sum of the times that the measured jobs took of their core.
    pub host: Nanos,
}

/// The counters of one path, which is a combination of op, device, placement and reason. The number of its jobs and
/// their times are sums over `sizes`, because a job on the fast path pays for each counter that it touches.
struct Detail {
    failed: AtomicU64,
    did_not_fit: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    sizes: [SizeCell; u64::BITS as usize],
    service: [AtomicU64; u64::BITS as usize],
    queueing: [AtomicU64; u64::BITS as usize],
}

#[derive(Default)]
struct SizeCell {
    jobs: AtomicU64,
    work_bytes: AtomicU64,
    service_ns: AtomicU64,
    queueing_ns: AtomicU64,
    host_jobs: AtomicU64,
    host_ns: AtomicU64,
}

impl Default for Detail {
    fn default() -> Self {
        Self {
            failed: AtomicU64::new(0),
            did_not_fit: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            sizes: std::array::from_fn(|_| SizeCell::default()),
            service: std::array::from_fn(|_| AtomicU64::new(0)),
            queueing: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Detail {
    #[inline(always)]
    fn count(&self, work_bytes: u64, service: Nanos, queueing: Nanos) {
        let size = &self.sizes[log2(work_bytes)];
        add(&size.jobs, 1);
        add(&size.work_bytes, work_bytes);
        add_reported(&size.service_ns, service.0);
        add(&size.queueing_ns, queueing.0);
        add(&self.service[log2(service.0)], 1);
        add(&self.queueing[log2(queueing.0)], 1);
    }

    fn sizes(&self) -> Vec<SizeCount> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let count = |(log2, cell): (usize, &SizeCell)| SizeCount {
            log2: log2 as u32,
            jobs: load(&cell.jobs),
            work_bytes: load(&cell.work_bytes),
            service: Nanos(load(&cell.service_ns)),
            queueing: Nanos(load(&cell.queueing_ns)),
            host_jobs: load(&cell.host_jobs),
            host: Nanos(load(&cell.host_ns)),
        };
        self.sizes.iter().enumerate().map(count).filter(|size| size.jobs > 0).collect()
    }
}

/// Returns the counts by class of time, without trailing zeros. The last class includes all longer times.
fn loads(counters: &[AtomicU64]) -> Vec<u64> {
    let mut counts = vec![0_u64; TIME_CLASSES];
    for (class, counter) in counters.iter().enumerate() {
        counts[class.min(TIME_CLASSES - 1)] += counter.load(Ordering::Relaxed);
    }
    counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
    counts
}

#[inline]
fn log2(value: u64) -> usize {
    (value | 1).ilog2() as usize
}

/// The number of classes of times. The last one begins at 9 minutes.
const TIME_CLASSES: usize = 40;

/// Adds without a locked instruction, because only the core's runtime writes.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Adds a number that a device reports, without a locked instruction. A nonsensical number stops the counter at its
/// maximum and does not wrap it around.
#[inline]
fn add_reported(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(by), Ordering::Relaxed);
}

/// The number of slots for reasons, a power of two, so that an index needs no multiplication.
const REASONS: usize = Reason::ALL.len().next_power_of_two();

/// The number of combinations of placement and reason, by which the jobs of one device are counted.
const PATHS: usize = Placement::ALL.len().next_power_of_two() * REASONS;

/// The number of slots for ops. Ports, which are no jobs, leave theirs empty.
const OP_PLACES: usize = Op::ALL.len().next_power_of_two();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_end_stop_at_the_end() {
        let (detail, metrics) = (Box::<Detail>::default(), Metrics::new(vec!["one".to_owned()]));
        for bytes in [1, 1, 9_000] {
            detail.count(bytes, Nanos(u64::MAX), Nanos(5));
        }
        assert!(metrics.paths[0].set(detail).is_ok());
        let path = &metrics.paths()[0];
        assert_eq!((path.jobs, path.service), (3, Nanos(u64::MAX)));
        assert_eq!((path.sizes[0].service, path.queueing), (Nanos(u64::MAX), Nanos(15)));
    }
}
