//! The numbers on the scheduler's page and in its JSON for a window of time: rates, means and bounds of
//! quantiles, by size, device and path. A path is a combination of op, device, placement and reason.

use std::collections::BTreeMap;

use api::v1::PolicyParameters;
use model::cost::CostCurve;
use policy::scheduling::{Fitted, Scheduling};
use serde::Serialize;
use units::{Nanos, Op};

use super::counts::{self, Counts, Key};
use super::history::{Filter, InstanceSnapshot};
use super::{Scheduler, learn};
use crate::config::ParametersWord;

/// All numbers on the scheduler's page.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// The length of the window that ends now (ms). 0 means the whole history.
    pub(crate) window_ms: u64,
    pub(crate) report_every_ms: u64,
    pub(crate) parameters: Sent,
    pub(crate) instances: Vec<InstanceRow>,
    pub(crate) paths: Vec<PathRow>,
    pub(crate) sizes: Vec<OpSizes>,
    pub(crate) occupancy: Vec<OccupancyRow>,
    pub(crate) devices: Vec<DeviceRow>,
    pub(crate) curves: Vec<OpCurves>,
}

/// The fitted curves of one op.
#[derive(Debug, Serialize)]
pub(crate) struct OpCurves {
    pub(crate) op: String,
    /// The predicted speedup: the time of the window's jobs in software, divided by their time on the devices
    /// to which they are sent. `None` if the time in software is unknown.
    pub(crate) predicted_gain: Option<f64>,
    pub(crate) measured_gain: Option<f64>,
    pub(crate) devices: Vec<CurveRow>,
}

/// The fitted curve of one op on one device.
#[derive(Debug, Serialize)]
pub(crate) struct CurveRow {
    pub(crate) device: String,
    /// The number of jobs from which the curve was fitted.
    pub(crate) jobs: u64,
    /// The number of jobs whose reports were implausible.
    pub(crate) refused_jobs: u64,
    /// The number of times that a process reported values very different from those of the other processes.
    pub(crate) doubted: u64,
    /// The current estimate of the size from which the device pays.
    pub(crate) break_even_bytes: Option<u64>,
    /// The fitted size below which jobs are not offloaded to the device. It follows the break-even size.
    pub(crate) bytes_min: Option<u64>,
    pub(crate) weight: Option<u16>,
    /// The size up to which callers wait for their jobs. 0 means that they never wait.
    pub(crate) wait_bytes_max: Option<u64>,
    pub(crate) points: Vec<CurvePoint>,
}

/// A size and the times that a job of this size takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CurvePoint {
    pub(crate) bytes: u64,
    /// The time for which the device works on the job.
    pub(crate) service_ns: u64,
    /// The currently observed time from submission to completion. Unusually long times are capped.
    pub(crate) latency_ns: u64,
    /// The time on the calling core, if it was measured.
    pub(crate) host_ns: Option<u64>,
}

/// The parameters that the scheduler sends. Processes keep their configured value for a `None`.
#[derive(Debug, Serialize)]
pub(crate) struct Sent {
    pub(crate) revision: u64,
    /// True if fitted parameters are sent.
    pub(crate) fitted: bool,
    pub(crate) policy: Option<String>,
    pub(crate) offload_bytes_min: Option<u64>,
    pub(crate) inline_bytes_max: Option<u64>,
    pub(crate) followers: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct InstanceRow {
    pub(crate) instance: String,
    pub(crate) role: String,
    pub(crate) uptime_ms: u64,
    pub(crate) age_ms: u64,
    pub(crate) covered_ms: u64,
    pub(crate) parameters_revision: u64,
    pub(crate) jobs_per_s: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PathRow {
    pub(crate) op: String,
    pub(crate) device: String,
    pub(crate) placement: String,
    pub(crate) reason: String,
    pub(crate) jobs: u64,
    pub(crate) failed: u64,
    pub(crate) did_not_fit: u64,
    pub(crate) jobs_per_s: f64,
    /// The rate of uncompressed bytes per second.
    pub(crate) bytes_per_s: f64,
    pub(crate) service: Times,
    pub(crate) queueing: Times,
}

/// The mean and the percentiles of a time. Each percentile is an upper bound that is a power of two.
#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) mean_ns: u64,
    pub(crate) p50_below_ns: u64,
    pub(crate) p90_below_ns: u64,
    pub(crate) p99_below_ns: u64,
}

/// The jobs of one op, by size class.
#[derive(Debug, Serialize)]
pub(crate) struct OpSizes {
    pub(crate) op: String,
    pub(crate) classes: Vec<SizeRow>,
}

/// The jobs with an uncompressed size from `bytes_from` to below twice `bytes_from`.
#[derive(Debug, Serialize)]
pub(crate) struct SizeRow {
    pub(crate) bytes_from: u64,
    pub(crate) jobs: u64,
    pub(crate) service_mean_ns: u64,
    /// The number of jobs by device.
    pub(crate) devices: BTreeMap<String, u64>,
}

/// The average occupancy of one device.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OccupancyRow {
    pub(crate) device: String,
    pub(crate) jobs_per_s: f64,
    /// The average number of jobs in flight, including those that wait or are being transferred.
    pub(crate) inside: f64,
    /// The average number of jobs in service: busy engines, or busy cores for software.
    pub(crate) worked_on: f64,
    /// The mean time of a job on the calling core (ns), if it was measured.
    pub(crate) host_mean_ns: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct DeviceRow {
    pub(crate) device: String,
    pub(crate) lost: u64,
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    pub(crate) restored: u64,
    /// The number of jobs that software repeated, by reason.
    pub(crate) fallbacks: BTreeMap<String, u64>,
}

impl Scheduler {
    /// Returns the view of the last `window_ms`. 0 means the whole history.
    pub(crate) fn view(&self, window_ms: u64, now: Nanos) -> View {
        let filter = Filter { last_ms: window_ms, ..Filter::default() };
        let snapshots = self.history.lock().query(&filter, now);
        let parameters = self.sent();
        let sums = summed(&snapshots);
        View {
            window_ms,
            report_every_ms: self.report_every_ms.load(std::sync::atomic::Ordering::Relaxed),
            parameters,
            instances: snapshots.iter().map(instance).collect(),
            paths: sums.iter().filter_map(|(key, sum)| path(key, sum)).collect(),
            sizes: sizes(&sums),
            occupancy: occupancy(&sums),
            devices: devices(&sums),
            curves: curves(&self.fitted.lock(), &sums, now),
        }
    }

    /// Returns the fitted curves and decisions, with the gains in the last `window_ms`.
    pub(crate) fn curves(&self, window_ms: u64, now: Nanos) -> Vec<OpCurves> {
        let filter = Filter { last_ms: window_ms, ..Filter::default() };
        let snapshots = self.history.lock().query(&filter, now);
        curves(&self.fitted.lock(), &summed(&snapshots), now)
    }

    fn sent(&self) -> Sent {
        let PolicyParameters { revision, policy, offload_bytes_min, inline_bytes_max, .. } =
            self.parameters();
        let fitted = self.config.lock().parameters == ParametersWord::Fitted;
        let followers = self.watching();
        Sent { revision, fitted, policy, offload_bytes_min, inline_bytes_max, followers }
    }
}

fn curves(fitted: &Scheduling, sums: &BTreeMap<&Key, Sum>, now: Nanos) -> Vec<OpCurves> {
    let ran = learn::by_device(sums.iter().map(|(key, sum)| (*key, &sum.counts)), false);
    let mut ops: BTreeMap<Op, OpCurves> = BTreeMap::new();
    for of in fitted.fitted(now) {
        let row = ops.entry(of.op).or_insert_with(|| {
            let ran = ran.iter().filter(|((op, _), _)| *op == of.op);
            let ran = ran
                .flat_map(|((_, device), sizes)| sizes.values().map(move |sums| (*device, *sums)));
            let gain = fitted.gain(of.op, ran);
            OpCurves {
                op: of.op.name().to_owned(),
                predicted_gain: gain.map(|gain| gain.predicted),
                measured_gain: gain.map(|gain| gain.measured),
                devices: Vec::new(),
            }
        });
        row.devices.push(curve(&of));
    }
    ops.into_values().collect()
}

fn curve(of: &Fitted<'_>) -> CurveRow {
    let (first, end) = of.seen_bytes.unwrap_or((1, 1));
    let point = |log2: u32| {
        let bytes = 1_u64 << log2;
        let at = |curve: &CostCurve| curve.service.at(bytes as usize) as u64;
        let (service_ns, latency_ns) = (at(of.service), at(of.latency));
        CurvePoint { bytes, service_ns, latency_ns, host_ns: of.host.map(at) }
    };
    CurveRow {
        device: of.device.to_owned(),
        jobs: of.jobs,
        refused_jobs: of.refused_jobs,
        doubted: of.doubted,
        break_even_bytes: of.break_even_bytes,
        bytes_min: of.decision.map(|decision| decision.bytes_min),
        weight: of.decision.map(|decision| decision.weight),
        wait_bytes_max: of.decision.map(|decision| decision.wait_bytes_max),
        points: (first.ilog2()..=end.ilog2()).map(point).collect(),
    }
}

fn summed(snapshots: &[InstanceSnapshot]) -> BTreeMap<&Key, Sum> {
    let mut sums: BTreeMap<&Key, Sum> = BTreeMap::new();
    for of in snapshots {
        for (key, counts) in &of.counted {
            sums.entry(key).or_default().add(counts, of.covered_ms);
        }
    }
    sums
}

/// The sum of one key's counts over instances.
#[derive(Default)]
struct Sum {
    counts: Counts,
    jobs_per_s: f64,
    bytes_per_s: f64,
    /// The average number of jobs in flight.
    inside: f64,
    /// The average number of jobs in service.
    worked_on: f64,
}

impl Sum {
    /// Adds the counts of one instance. Rates are summed, because instances may cover different times.
    fn add(&mut self, counts: &Counts, covered_ms: u64) {
        self.counts.add(counts);
        let work_bytes = counts.sizes().iter().map(|size| size.work_bytes as f64).sum();
        self.jobs_per_s += per_s(counts.get(counts::JOBS) as f64, covered_ms);
        self.bytes_per_s += per_s(work_bytes, covered_ms);
        let at_a_time = |slot| per_s(counts.get(slot) as f64, covered_ms) * 1e-9;
        self.worked_on += at_a_time(counts::SERVICE_NS);
        self.inside += at_a_time(counts::SERVICE_NS) + at_a_time(counts::QUEUEING_NS);
    }
}

fn per_s(count: f64, covered_ms: u64) -> f64 {
    if covered_ms == 0 { 0.0 } else { count * 1e3 / covered_ms as f64 }
}

fn instance(of: &InstanceSnapshot) -> InstanceRow {
    let paths = of.counted.iter().filter(|(key, _)| matches!(key, Key::Path { .. }));
    let jobs: u64 = paths.map(|(_, counts)| counts.get(counts::JOBS)).fold(0, u64::saturating_add);
    InstanceRow {
        instance: of.instance.clone(),
        role: of.role.clone(),
        uptime_ms: of.uptime_ms,
        age_ms: of.age_ms,
        covered_ms: of.covered_ms,
        parameters_revision: of.revision,
        jobs_per_s: per_s(jobs as f64, of.covered_ms),
    }
}

fn path(key: &Key, sum: &Sum) -> Option<PathRow> {
    let Key::Path { op, device, placement, reason } = key else { return None };
    let counts = &sum.counts;
    let jobs = counts.get(counts::JOBS);
    let times = |slot, classes: &[u64]| Times {
        mean_ns: counts.get(slot).checked_div(jobs).unwrap_or(0),
        p50_below_ns: below_ns(classes, 50),
        p90_below_ns: below_ns(classes, 90),
        p99_below_ns: below_ns(classes, 99),
    };
    Some(PathRow {
        op: op.clone(),
        device: device.clone(),
        placement: placement.clone(),
        reason: reason.clone(),
        jobs,
        failed: counts.get(counts::FAILED),
        did_not_fit: counts.get(counts::DID_NOT_FIT),
        jobs_per_s: sum.jobs_per_s,
        bytes_per_s: sum.bytes_per_s,
        service: times(counts::SERVICE_NS, &counts.service_classes()),
        queueing: times(counts::QUEUEING_NS, &counts.queueing_classes()),
    })
}

/// Returns the upper bound of the class with the percentile `percent` of the jobs, or 0 without jobs.
fn below_ns(classes: &[u64], percent: u128) -> u64 {
    let total: u128 = classes.iter().map(|count| u128::from(*count)).sum();
    let mut reached = 0;
    for (log2, count) in classes.iter().enumerate() {
        reached += u128::from(*count);
        if total > 0 && reached * 100 >= total * percent {
            return 1_u64.checked_shl(log2 as u32 + 1).unwrap_or(u64::MAX);
        }
    }
    0
}

fn sizes(sums: &BTreeMap<&Key, Sum>) -> Vec<OpSizes> {
    let mut ops: BTreeMap<&str, BTreeMap<u32, (SizeRow, u64)>> = BTreeMap::new();
    for (key, sum) in sums {
        let Key::Path { op, device, .. } = key else { continue };
        for size in sum.counts.sizes() {
            let empty = || {
                let bytes_from = 1 << size.log2;
                let devices = BTreeMap::new();
                (SizeRow { bytes_from, jobs: 0, service_mean_ns: 0, devices }, 0)
            };
            let classes = ops.entry(op.as_str()).or_default();
            let (row, service_ns) = classes.entry(size.log2).or_insert_with(empty);
            row.jobs = row.jobs.saturating_add(size.jobs);
            *service_ns = service_ns.saturating_add(size.service_ns);
            let of = row.devices.entry(device.clone()).or_default();
            *of = of.saturating_add(size.jobs);
        }
    }
    let finished = |(mut row, service_ns): (SizeRow, u64)| {
        row.service_mean_ns = service_ns.checked_div(row.jobs).unwrap_or(0);
        row
    };
    let op = |(op, classes): (&str, BTreeMap<u32, (SizeRow, u64)>)| OpSizes {
        op: op.to_owned(),
        classes: classes.into_values().map(finished).collect(),
    };
    ops.into_iter().map(op).collect()
}

fn occupancy(sums: &BTreeMap<&Key, Sum>) -> Vec<OccupancyRow> {
    let mut rows: BTreeMap<&str, (OccupancyRow, u64, u64)> = BTreeMap::new();
    for (key, sum) in sums {
        let Key::Path { device, .. } = key else { continue };
        let (row, host_jobs, host_ns) = rows.entry(device).or_default();
        row.jobs_per_s += sum.jobs_per_s;
        row.inside += sum.inside;
        row.worked_on += sum.worked_on;
        for size in sum.counts.sizes() {
            *host_jobs = host_jobs.saturating_add(size.host_jobs);
            *host_ns = host_ns.saturating_add(size.host_ns);
        }
    }
    let named = |(device, (row, host_jobs, host_ns)): (&str, (OccupancyRow, u64, u64))| {
        let host_mean_ns = host_ns.checked_div(host_jobs);
        OccupancyRow { device: device.to_owned(), host_mean_ns, ..row }
    };
    rows.into_iter().map(named).collect()
}

fn devices(sums: &BTreeMap<&Key, Sum>) -> Vec<DeviceRow> {
    let mut rows: BTreeMap<&str, DeviceRow> = BTreeMap::new();
    for (key, sum) in sums {
        let counts = &sum.counts;
        match key {
            Key::Path { .. } | Key::Process => {}
            Key::Device { device } => {
                let row = rows.entry(device).or_default();
                row.lost = counts.get(counts::LOST);
                row.timeouts = counts.get(counts::TIMEOUTS);
                row.probes = counts.get(counts::PROBES);
                row.restored = counts.get(counts::RESTORED);
            }
            Key::Fallback { device, reason } => {
                let row = rows.entry(device).or_default();
                row.fallbacks.insert(reason.clone(), counts.get(counts::JOBS));
            }
        }
    }
    let named = |(device, row): (&str, DeviceRow)| DeviceRow { device: device.to_owned(), ..row };
    rows.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_of_their_class() {
        assert_eq!(below_ns(&[], 50), 0);
        assert_eq!(below_ns(&[0, 0], 99), 0);
        // Nine jobs below 2 us, one below 1 ms.
        let mut classes = vec![0; 20];
        (classes[10], classes[19]) = (9, 1);
        assert_eq!(below_ns(&classes, 50), 1 << 11);
        assert_eq!(below_ns(&classes, 90), 1 << 11);
        assert_eq!(below_ns(&classes, 99), 1 << 20);
        let last = [vec![0; 63], vec![u64::MAX]].concat();
        assert_eq!(below_ns(&last, 50), u64::MAX);
    }
}
