//! Converts the counts that a report adds to job reports for `policy::scheduling`, summed over placements and
//! reasons. Unknown ops are ignored. The times of failed jobs are not representative, so counts with many
//! failures are left out. A few jobs take far longer than the others because a core was late or preempted;
//! their times are capped.

use std::collections::BTreeMap;

use api::v1::ReportRequest;
use policy::scheduling::{JobReport, SOFTWARE, Scheduling, SizeSums};
use units::{Nanos, Op};

use super::counts::{self, Counts, Key};
use super::history::Step;

/// Updates the fitted costs with the counts that one report adds.
pub(super) fn observe(fitted: &mut Scheduling, report: &ReportRequest, step: &Step, now: Nanos) {
    let busy = busy(step, report.threads);
    let reporter = &report.instance;
    let covered = Nanos::millis(step.covered_ms.min(COVERED_MS_MAX));
    let more = step.more.iter().map(|(key, counts)| (&**key, counts));
    for ((op, device), sums) in by_device(more, true) {
        let sizes: Vec<SizeSums> = sums.into_values().collect();
        let job_report = JobReport { reporter, op, device, covered, busy, sizes: &sizes };
        fitted.observe(&job_report, now);
    }
}

/// Returns the CPU utilization of a process's threads (0 to 1), or 0 if their number is not reported.
fn busy(step: &Step, threads: u32) -> f64 {
    let spent = step.more.iter().find(|(key, _)| **key == Key::Process);
    let spent_ns = spent.map_or(0, |(_, counts)| counts.get(counts::CPU_NS));
    let all_ns = step.covered_ms as f64 * 1e6 * f64::from(threads);
    if all_ns > 0.0 { (spent_ns as f64 / all_ns).min(1.0) } else { 0.0 }
}

/// The sums over the jobs of one op on one device, by size class. A key is the binary logarithm of the
/// smallest size of its class (bytes).
pub(super) type BySize = BTreeMap<u32, SizeSums>;

/// Returns, for each op and device, the sums over the counted jobs, by size class. A sum covers all
/// placements and the reasons for them. Counts of unknown ops and counts with many failed jobs are left out.
/// If `is_cut` is true, unusually long times are capped.
pub(super) fn by_device<'a>(
    counted: impl IntoIterator<Item = (&'a Key, &'a Counts)>,
    is_cut: bool,
) -> BTreeMap<(Op, &'a str), BySize> {
    let mut sums: BTreeMap<(Op, &str), BySize> = BTreeMap::new();
    for (key, counts) in counted {
        let Key::Path { op, device, .. } = key else { continue };
        let Some(op) = Op::ALL.into_iter().find(|known| known.name() == op) else { continue };
        let (jobs, failed) = (counts.get(counts::JOBS), counts.get(counts::FAILED));
        if failed > jobs / FAILED_DIVISOR {
            continue;
        }
        let usual = |classes: Vec<u64>| if is_cut { usual_share(&classes) } else { 1.0 };
        let service = usual(counts.service_classes());
        let queueing = usual(counts.queueing_classes());
        let by_size = sums.entry((op, device)).or_default();
        for size in counts.sizes() {
            let sum = by_size
                .entry(size.log2)
                .or_insert_with(|| SizeSums { log2: size.log2, ..SizeSums::default() });
            sum.jobs = sum.jobs.saturating_add(size.jobs);
            sum.work_bytes = sum.work_bytes.saturating_add(size.work_bytes);
            let scaled = |ns: u64, share: f64| (ns as f64 * share) as u64;
            sum.service_ns = sum.service_ns.saturating_add(scaled(size.service_ns, service));
            // The waiting time of a job in software is due to an earlier attempt on a device and not counted.
            let queueing = if device == SOFTWARE { 0.0 } else { queueing };
            sum.queueing_ns = sum.queueing_ns.saturating_add(scaled(size.queueing_ns, queueing));
            sum.host_jobs = sum.host_jobs.saturating_add(size.host_jobs);
            sum.host_ns = sum.host_ns.saturating_add(size.host_ns);
        }
    }
    sums
}

/// Returns the ratio of the capped to the uncapped sum of times. Times far above the 90th percentile are
/// capped. `log2_ns` counts jobs by the power of two of their time (ns).
fn usual_share(log2_ns: &[u64]) -> f64 {
    let total: u128 = log2_ns.iter().map(|jobs| u128::from(*jobs)).sum();
    let mut reached = 0;
    let within = |jobs: &u64| {
        reached += u128::from(*jobs);
        reached * 10 >= total * 9
    };
    let Some(high) = log2_ns.iter().position(within).filter(|_| total > 0) else { return 1.0 };
    let cut_ns = USUAL_TIMES * (high as f64 + 1.0).exp2();
    let (mut all, mut left) = (0.0, 0.0);
    for (log2, jobs) in log2_ns.iter().enumerate() {
        let middle_ns = 1.5 * (log2 as f64).exp2();
        all += *jobs as f64 * middle_ns;
        left += *jobs as f64 * middle_ns.min(cut_ns);
    }
    left / all
}

/// The cap on times, as a multiple of the 90th percentile.
const USUAL_TIMES: f64 = 4.0;

/// The limit on the covered time of a report (ms). The first report covers a process's whole life.
const COVERED_MS_MAX: u64 = 86_400_000;

/// Paths on which more than one in this many jobs failed are not used. Fewer failures change the mean time by
/// less than the error of the curves.
const FAILED_DIVISOR: u64 = 100;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use api::v1::{PathCounts, ReportRequest, SizeCounts};

    use crate::config::{ParametersWord, SchedulerConfig};
    use crate::scheduler::Scheduler;

    use super::*;

    fn path(device: &str, jobs: u64, each_ns: u64) -> PathCounts {
        let size = |log2: u32| SizeCounts {
            log2,
            jobs,
            work_bytes: jobs << log2,
            service_ns: jobs * each_ns,
            ..SizeCounts::default()
        };
        PathCounts {
            op: "compress".into(),
            device: device.into(),
            placement: "async".into(),
            reason: "policy".into(),
            jobs: 2 * jobs,
            sizes: vec![size(11), size(15)],
            ..PathCounts::default()
        }
    }

    /// Reports this range of seconds. Software takes 90 us per job, and the device takes 10 us.
    fn report(scheduler: &Scheduler, seconds: std::ops::Range<u64>, failed: u64) {
        for second in seconds {
            let device = path("virtual-iaa", 50 * second, 10_000);
            let device = PathCounts { failed: failed * second, ..device };
            let report = ReportRequest {
                instance: "one".into(),
                role: "frontend".into(),
                uptime_ms: second * 1_000,
                paths: vec![path("software", 50 * second, 90_000), device],
                cpu_ns: second * 500_000_000,
                ..ReportRequest::default()
            };
            scheduler.report(&report, Nanos::secs(second)).unwrap();
        }
    }

    fn config(parameters: ParametersWord) -> SchedulerConfig {
        SchedulerConfig { parameters, ..SchedulerConfig::default() }
    }

    #[test]
    fn what_is_reported_becomes_parameters_where_the_configuration_says_so() {
        let scheduler = Scheduler::new(&config(ParametersWord::Static));
        report(&scheduler, 1..8, 0);
        assert_eq!(scheduler.parameters().revision, 1, "static parameters stay");
        assert!(scheduler.parameters().offloads.is_empty());
        scheduler.reload(&config(ParametersWord::Fitted));
        let sent = scheduler.parameters();
        assert_eq!((sent.revision, sent.offloads.len()), (2, 1));
        assert_eq!(sent.offloads[0].device, "virtual-iaa");
        let view = scheduler.view(60_000, Nanos::secs(8));
        let gain = view.curves[0].measured_gain.unwrap();
        // Half of the jobs take 10 us instead of 90.
        assert!((gain - 1.8).abs() < 0.05, "{gain}");
        assert_eq!(view.curves[0].devices.len(), 2);
        let answer = scheduler.query(<_>::default(), Nanos::secs(8));
        assert_eq!(answer.instances[0].cpu_ns, 3_500_000_000);
        scheduler.reload(&config(ParametersWord::Static));
        assert!(scheduler.parameters().offloads.is_empty());
    }

    #[test]
    fn the_few_that_took_far_too_long_are_cut() {
        assert_eq!(usual_share(&[]), 1.0);
        assert_eq!(usual_share(&[0, 5, 90, 5]), 1.0);
        // There are 95 jobs of about 1.5 us and 5 of about 4 ms. Each of the 5 counts as 8 us.
        let mut classes = vec![0; 23];
        (classes[10], classes[21]) = (95, 5);
        let left_ns = usual_share(&classes) * (95.0 * 1_536.0 + 5.0 * 1.5 * 2_097_152.0);
        assert!((left_ns - (95.0 * 1_536.0 + 5.0 * 8_192.0)).abs() < 1.0, "{left_ns}");
        // A class with this many jobs is no exception.
        (classes[10], classes[21]) = (80, 20);
        assert_eq!(usual_share(&classes), 1.0);
    }

    #[test]
    fn a_path_on_which_jobs_fail_teaches_nothing() {
        let scheduler = Scheduler::new(&config(ParametersWord::Fitted));
        report(&scheduler, 1..8, 2);
        assert!(scheduler.parameters().offloads.is_empty());
        assert!(scheduler.parameters().probe_every > 0, "it is tried to learn");
    }
}
