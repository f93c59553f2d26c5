//! What the scheduler has gathered, and what this process tells its own scheduler, on the page of metrics. Series are
//! as many as instances may report (`scheduler.instances_max`) times the paths of each.

use units::Nanos;

use super::exposition::{Exposition, Sums, seconds};
use crate::scheduler::counts::{self, Key};
use crate::scheduler::{Reporting, Scheduler};

/// What became of reports and of parameters.
pub(super) fn reporting(page: &mut Exposition, reporting: &Reporting) {
    page.counter("rebate_scheduler_reports_total", "Reports to the scheduler, by what came of it.")
        .sample(&[("result", "kept")], reporting.kept.read())
        .sample(&[("result", "refused")], reporting.refused.read())
        .sample(&[("result", "failed")], reporting.failed.read());
    page.counter("rebate_scheduler_parameters_total", "Parameters from the scheduler, by result.")
        .sample(&[("result", "applied")], reporting.applied.read())
        .sample(&[("result", "invalid")], reporting.invalid.read());
    page.gauge("rebate_scheduler_parameters_revision", "The parameters that are followed.")
        .sample(&[], reporting.revision());
}

/// What was reported to this process.
pub(super) fn gathered(page: &mut Exposition, scheduler: &Scheduler, now: Nanos) {
    let totals = scheduler.totals(now);
    page.gauge("rebate_scheduler_instances", "Processes that have reported.")
        .sample(&[], totals.len());
    page.gauge("rebate_scheduler_instances_max", "Processes that may.")
        .sample(&[], scheduler.instances_max());
    page.gauge("rebate_scheduler_followers", "Calls that follow the parameters.")
        .sample(&[], scheduler.watching());
    page.gauge("rebate_scheduler_history_bytes", "Memory of what was gathered.")
        .sample(&[], scheduler.bytes().0);
    page.counter("rebate_scheduler_received_total", "Reports received, by what became of them.")
        .sample(&[("result", "kept")], scheduler.received.kept.read())
        .sample(&[("result", "refused")], scheduler.received.refused.read());
    let mut ages = page.gauge("rebate_scheduler_report_age_seconds", "Time since the last report.");
    for of in &totals {
        let age = seconds(Nanos(of.age_ms.saturating_mul(1_000_000)));
        ages.sample(&[("instance", &of.instance), ("role", &of.role)], age);
    }
    let paths = |name: &'static str| (name, Sums::by(PATH));
    let mut by_path = PATH_FAMILIES.map(|(name, _, _)| paths(name));
    let mut by_device =
        DEVICE_FAMILIES.map(|(name, _, _)| (name, Sums::by(["instance", "device"])));
    let mut fallbacks = Sums::by(["instance", "device", "reason"]);
    for of in &totals {
        let instance = of.instance.as_str();
        for (key, counts) in &of.counted {
            match key {
                Key::Path { op, device, placement, reason } => {
                    for ((_, sums), (_, slot, _)) in by_path.iter_mut().zip(PATH_FAMILIES) {
                        sums.add([instance, op, device, placement, reason], counts.get(slot));
                    }
                }
                Key::Device { device } => {
                    for ((_, sums), (_, slot, _)) in by_device.iter_mut().zip(DEVICE_FAMILIES) {
                        sums.add([instance, device], counts.get(slot));
                    }
                }
                Key::Fallback { device, reason } => {
                    fallbacks.add([instance, device, reason], counts.get(counts::JOBS));
                }
            }
        }
    }
    for ((name, sums), (_, _, help)) in by_path.into_iter().zip(PATH_FAMILIES) {
        if name.ends_with("_seconds_total") {
            sums.write(page.counter(name, help), |ns| seconds(Nanos(ns)));
        } else {
            sums.write(page.counter(name, help), |count| count);
        }
    }
    for ((name, sums), (_, _, help)) in by_device.into_iter().zip(DEVICE_FAMILIES) {
        sums.write(page.counter(name, help), |count| count);
    }
    let help = "Jobs that reporters redid in software, by the device that did not do them.";
    fallbacks.write(page.counter("rebate_scheduler_fallback_total", help), |count| count);
}

const PATH: [&str; 5] = ["instance", "op", "device", "placement", "reason"];

const PATH_FAMILIES: [(&str, u16, &str); 7] = [
    ("rebate_scheduler_jobs_total", counts::JOBS, "Jobs of reporters."),
    ("rebate_scheduler_jobs_failed_total", counts::FAILED, "Of these, failed."),
    (
        "rebate_scheduler_jobs_did_not_fit_total",
        counts::DID_NOT_FIT,
        "Of these, compressed to more than they may take.",
    ),
    ("rebate_scheduler_input_bytes_total", counts::INPUT_BYTES, "Bytes into jobs that were done."),
    (
        "rebate_scheduler_output_bytes_total",
        counts::OUTPUT_BYTES,
        "Bytes out of jobs that were done.",
    ),
    (
        "rebate_scheduler_service_seconds_total",
        counts::SERVICE_NS,
        "Time that devices of reporters worked.",
    ),
    (
        "rebate_scheduler_queueing_seconds_total",
        counts::QUEUEING_NS,
        "Time that jobs of reporters waited beside that.",
    ),
];

const DEVICE_FAMILIES: [(&str, u16, &str); 4] = [
    ("rebate_scheduler_device_lost_total", counts::LOST, "Times that a device was retired."),
    (
        "rebate_scheduler_device_timeouts_total",
        counts::TIMEOUTS,
        "Jobs that a device kept too long.",
    ),
    (
        "rebate_scheduler_device_probes_total",
        counts::PROBES,
        "Times that a retired device was tried again.",
    ),
    (
        "rebate_scheduler_device_restored_total",
        counts::RESTORED,
        "Times that a retired device was back.",
    ),
];
