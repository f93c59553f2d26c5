//! Formats the report for people, with units in the headers.

use load::{LoadReport, OpReport, Pace, Percentiles};

use crate::terminal::{numbers, pairs};

/// Returns the lines of the report.
pub(super) fn lines(report: &LoadReport) -> Vec<String> {
    let mut lines = pairs(&head(report));
    lines.push(String::new());
    lines.extend(numbers(&counts(report)));
    lines.push(String::new());
    lines.extend(numbers(&times(report)));
    lines.push(
        "latency counts from when a request was due, `sent` from when it was sent".to_owned(),
    );
    lines.push(String::new());
    lines.extend(pairs(&foot(report)));
    lines
}

fn head(report: &LoadReport) -> Vec<(&'static str, String)> {
    let spec = &report.spec;
    let targets: Vec<_> = spec.targets.iter().map(ToString::to_string).collect();
    let load = match spec.pace {
        Pace::Open { rate_per_s, arrivals } => {
            format!("open loop, {rate_per_s} requests/s, {arrivals:?}")
        }
        Pace::Closed { depth } => format!("closed loop, {depth} in flight on each connection"),
    };
    let preset = spec.preset.as_deref().unwrap_or("none");
    let stopped = if report.stopped_early { ", stopped early" } else { "" };
    let mut rows = vec![
        ("target", targets.join(", ")),
        ("load", load),
        ("connections", format!("{} on {} threads", spec.connections, spec.threads)),
        ("workload", format!("{} keys, preset {preset}", spec.keys)),
        ("measured", format!("{:.2} s{stopped}", report.measured_s)),
    ];
    rows.extend(report.prepopulate.as_ref().map(|populate| {
        let (stored, failed, elapsed_s) = (populate.stored, populate.failed, populate.elapsed_s);
        ("populated", format!("{stored} keys in {elapsed_s:.2} s, {failed} failed"))
    }));
    rows
}

fn counts(report: &LoadReport) -> Vec<Vec<String>> {
    let mut rows =
        vec![row(["requests", "offered/s", "answered/s", "count", "errors", "hits", "hit %"])];
    rows.extend(ops(report).map(|(name, op)| {
        let hit_percent = op.hit_ratio.map(|ratio| format!("{:.2}", ratio * 100.0));
        vec![
            name.to_owned(),
            format!("{:.1}", op.offered_per_s),
            format!("{:.1}", op.achieved_per_s),
            op.answered.to_string(),
            op.errors.to_string(),
            op.hits.to_string(),
            hit_percent.unwrap_or_else(|| "-".to_owned()),
        ]
    }));
    rows
}

fn times(report: &LoadReport) -> Vec<Vec<String>> {
    let mut rows = vec![row(["latency [us]", "p50", "p90", "p99", "p99.9", "max", "mean"])];
    let mut add = |name: String, times: &Percentiles| {
        if times.count > 0 {
            let all = [times.p50_ns, times.p90_ns, times.p99_ns, times.p999_ns, times.max_ns];
            let all = all.into_iter().map(|ns| ns as f64).chain([times.mean_ns]);
            rows.push([name].into_iter().chain(all.map(|ns| format!("{:.1}", ns / 1e3))).collect());
        }
    };
    for (name, op) in ops(report) {
        add(name.to_owned(), &op.latency);
        add(format!("  {name} sent"), &op.service);
    }
    add("lateness".to_owned(), &report.generator.lateness);
    rows
}

fn foot(report: &LoadReport) -> Vec<(&str, String)> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let checked = if report.spec.verify { "" } else { " (not checked)" };
    let (out, back) = (mib(report.bytes_out), mib(report.bytes_in));
    let mut rows = vec![
        ("bytes", format!("{out:.1} MiB out, {back:.1} MiB in")),
        ("wrong values", format!("{}{checked}", report.wrong.count)),
    ];
    rows.extend(report.wrong.examples.iter().map(|example| ("", example.clone())));
    let counts = [
        ("not sent", report.unsent, "requests had no room on any connection"),
        ("not answered", report.unanswered, "requests had no answer at the end"),
        ("lost", report.connections.lost, "connections"),
        ("reopened", report.connections.reopened, "connections"),
        ("not reopened", report.connections.failed_attempts, "attempts"),
    ];
    let counts = counts.into_iter().filter(|(_, count, _)| *count > 0);
    rows.extend(counts.map(|(name, count, what)| (name, format!("{count} {what}"))));
    let errors = report.errors.iter();
    rows.extend(errors.map(|(message, count)| ("error", format!("{count} x {message}"))));
    let busy_percent = report.generator.cpu_utilisation * 100.0;
    rows.push(match &report.generator.reason {
        None => ("generator", format!("{busy_percent:.0} % busy, not the bottleneck")),
        Some(reason) => ("generator", format!("THE BOTTLENECK: {reason}")),
    });
    rows
}

/// Returns the kinds of requests that occurred.
fn ops(report: &LoadReport) -> impl Iterator<Item = (&'static str, &OpReport)> {
    let all = [("get", &report.get), ("set", &report.set), ("fill", &report.fill)];
    all.into_iter().filter(|(_, op)| op.offered > 0)
}

fn row(cells: [&str; 7]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
