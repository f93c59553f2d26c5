//! The part of the metrics page with the scheduler's data and with this process's reports to its scheduler.
//! The number of series is bounded by `scheduler.instances_max` times the paths of an instance.

use units::Nanos;

use super::exposition::{Exposition, Sums, seconds};
use crate::scheduler::counts::{self, Key};
use crate::scheduler::view::CurveRow;
use crate::scheduler::{Reporting, Scheduler};

/// Writes the numbers of reports and received parameters, by outcome.
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

/// Writes the counts that other processes reported to this one.
pub(super) fn history(page: &mut Exposition, scheduler: &Scheduler, now: Nanos) {
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
    let mut cpu_ns = Sums::by(["instance"]);
    for of in &totals {
        let instance = of.instance.as_str();
        for (key, counts) in &of.counted {
            match key {
                Key::Path { op, device, placement, reason } => {
                    for ((_, sums), (_, slot, _)) in by_path.iter_mut().zip(PATH_FAMILIES) {
                        sums.add([instance, op, device, placement, reason], counts.get(slot));
                    }
                }
                Key::Process => cpu_ns.add([instance], counts.get(counts::CPU_NS)),
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
    let help = "CPU time of reporters, user and system.";
    cpu_ns.write(page.counter("rebate_scheduler_cpu_seconds_total", help), |ns| seconds(Nanos(ns)));
}

/// Writes the scheduler's fitted curves and parameters.
pub(super) fn fitted(page: &mut Exposition, scheduler: &Scheduler, now: Nanos) {
    let ops = scheduler.curves(GAIN_WINDOW_MS, now);
    let mut gains = page.gauge(
        "rebate_scheduler_gain_ratio",
        "Software's time over the time of the last minute's jobs, as measured and as predicted.",
    );
    for op in &ops {
        for (kind, gain) in [("predicted", op.predicted_gain), ("measured", op.measured_gain)] {
            if let Some(gain) = gain {
                gains.sample(&[("op", &op.op), ("kind", kind)], gain);
            }
        }
    }
    let devices = || ops.iter().flat_map(|op| op.devices.iter().map(move |row| (&op.op, row)));
    for (name, help, of) in FITTED_GAUGES {
        let mut family = page.gauge(name, help);
        for (op, row) in devices() {
            if let Some(value) = of(row) {
                family.sample(&[("op", op), ("device", &row.device)], value);
            }
        }
    }
    for (name, help, of) in FITTED_COUNTERS {
        let mut family = page.counter(name, help);
        for (op, row) in devices() {
            family.sample(&[("op", op), ("device", &row.device)], of(row));
        }
    }
    let mut curve = page.gauge("rebate_scheduler_curve_seconds", "Fitted time of a job by size.");
    for (op, row) in devices() {
        for point in &row.points {
            let bytes = point.bytes.to_string();
            let parts = [
                ("service", Some(point.service_ns)),
                ("total", Some(point.latency_ns)),
                ("host", point.host_ns),
            ];
            for (part, ns) in parts {
                let Some(ns) = ns else { continue };
                let labels = [("op", op.as_str()), ("device", &row.device), ("bytes", &bytes)];
                curve.sample(&[&labels[..], &[("part", part)]].concat(), seconds(Nanos(ns)));
            }
        }
    }
}

const GAIN_WINDOW_MS: u64 = 60_000;

/// A metric of a cost curve: its name, its help text and a function that returns its value.
type OfCurve<T> = (&'static str, &'static str, fn(&CurveRow) -> T);

const FITTED_GAUGES: [OfCurve<Option<u64>>; 4] = [
    (
        "rebate_scheduler_break_even_bytes",
        "The size from which a device pays, as known now.",
        |row| row.break_even_bytes,
    ),
    ("rebate_scheduler_offload_bytes_min", "The size in force, which follows it.", |row| {
        row.bytes_min
    }),
    (
        "rebate_scheduler_wait_bytes_max",
        "Jobs up to this size are waited for; 0 for none.",
        |row| row.wait_bytes_max,
    ),
    ("rebate_scheduler_device_weight", "A device's share beside those of others.", |row| {
        row.weight.map(u64::from)
    }),
];

const FITTED_COUNTERS: [OfCurve<u64>; 3] = [
    ("rebate_scheduler_evidence_jobs_total", "Jobs that curves are learnt from.", |row| row.jobs),
    (
        "rebate_scheduler_evidence_refused_jobs_total",
        "Jobs that could not be as they were reported.",
        |row| row.refused_jobs,
    ),
    (
        "rebate_scheduler_evidence_doubted_total",
        "Times that a reporter was far from what the others agree on.",
        |row| row.doubted,
    ),
];

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
