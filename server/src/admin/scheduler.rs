//! The scheduler's page with the numbers of [`View`], as HTML (which reloads every few seconds) and as JSON.

use std::collections::BTreeSet;

use report::{
    BarSeries, Bars, Category, Column, Figure, Layout, Link, Origin, Panel, Plot, Report, Section,
    Table,
};
use units::ByteCount;

use super::curves;
use crate::scheduler::view::{
    DeviceRow, InstanceRow, OccupancyRow, OpSizes, PathRow, SizeRow, View,
};

/// Returns the window that a query such as `window_s=60` requests (ms). 0 means the whole history.
pub(super) fn window_ms(query: Option<&str>) -> u64 {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let asked = pairs.find(|(name, _)| *name == "window_s").and_then(|(_, text)| text.parse().ok());
    asked.map_or(WINDOW_MS, |seconds: u64| seconds.saturating_mul(1_000))
}

/// Writes the view as JSON.
pub(super) fn json(view: &View) -> String {
    let mut text = serde_json::to_string_pretty(view).unwrap_or_default();
    text.push('\n');
    text
}

/// Writes the view as HTML.
pub(super) fn html(view: &View) -> String {
    let windows = WINDOWS.map(|(window_s, text)| {
        (format!("/scheduler?window_s={window_s}"), text, window_s * 1_000 == view.window_ms)
    });
    let windows =
        windows.iter().map(|(href, text, is_here)| Link { href, text, is_here: *is_here });
    let json = Link { href: "/scheduler.json", text: "JSON", is_here: false };
    let report = Report {
        title: "Scheduler".to_owned(),
        subtitle: "Parameters in force, and what was reported. What is `own` is left to each process's configuration."
            .to_owned(),
        facts: parameters(view),
        sections: vec![
            instances(view),
            paths(&view.paths),
            curves::section(view),
            sizes(&view.sizes),
            occupancy(&view.occupancy),
            devices(view),
        ],
    };
    report.served(Some(REFRESH_S), &windows.chain([json]).collect::<Vec<_>>())
}

fn parameters(view: &View) -> Vec<(String, String)> {
    let sent = &view.parameters;
    let bytes = |bytes: Option<u64>| bytes.map_or("own".to_owned(), |b| ByteCount(b).to_string());
    let facts = [
        ("revision", sent.revision.to_string()),
        ("policy", sent.policy.as_deref().unwrap_or("own").to_owned()),
        ("offload_bytes_min", bytes(sent.offload_bytes_min)),
        ("inline_bytes_max", bytes(sent.inline_bytes_max)),
        ("parameters", if sent.fitted { "fitted" } else { "static" }.to_owned()),
        ("followers", sent.followers.to_string()),
        ("report every", ms(view.report_every_ms)),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

fn instances(view: &View) -> Section {
    let row = |row: &InstanceRow| {
        let is_late = row.age_ms > LATE_REPORTS * view.report_every_ms.max(1_000);
        let is_behind = row.parameters_revision != view.parameters.revision;
        vec![
            row.instance.clone(),
            row.role.replace(',', ", "),
            ms(row.uptime_ms),
            format!("{} ago{}", ms(row.age_ms), if is_late { " (late)" } else { "" }),
            ms(row.covered_ms),
            format!("{}{}", row.parameters_revision, if is_behind { " (behind)" } else { "" }),
            amount(row.jobs_per_s),
        ]
    };
    let columns = ["up", "last report", "counts cover", "revision", "jobs/s"];
    let rows: Vec<_> = view.instances.iter().map(row).collect();
    let heading = format!("Instances ({})", rows.len());
    let none = "No process has reported. One does when it is started with `--scheduler ADDR`.";
    tabulated(
        &heading,
        none,
        table("Processes that report.", &["instance", "role"], &columns, rows),
    )
}

fn paths(rows: &[PathRow]) -> Section {
    let numbers = [
        "jobs", "jobs/s", "MB/s", "service", "p50 <", "p90 <", "p99 <", "queueing", "p99 <",
        "failed", "no gain",
    ];
    let row = |row: &PathRow| {
        let (service, queueing) = (&row.service, &row.queueing);
        let times = [
            service.mean_ns,
            service.p50_below_ns,
            service.p90_below_ns,
            service.p99_below_ns,
            queueing.mean_ns,
            queueing.p99_below_ns,
        ];
        let counts = [row.jobs.to_string(), amount(row.jobs_per_s), amount(row.bytes_per_s / 1e6)];
        [&row.op, &row.device, &row.placement, &row.reason]
            .map(Clone::clone)
            .into_iter()
            .chain(counts)
            .chain(times.map(|ns| time(u128::from(ns))))
            .chain([row.failed, row.did_not_fit].map(|count| count.to_string()))
            .collect()
    };
    let texts = ["op", "device", "placement", "reason"];
    let table = table("Paths of jobs.", &texts, &numbers, rows.iter().map(row).collect());
    let section = tabulated("Where jobs ran", "No job in this window.", table);
    Section { notes: vec![PATHS_NOTE.to_owned()], ..section }
}

fn sizes(ops: &[OpSizes]) -> Section {
    let rows = || ops.iter().flat_map(|op| &op.classes);
    let devices: BTreeSet<&str> =
        rows().flat_map(|row| row.devices.keys().map(String::as_str)).collect();
    let panel = |op: &OpSizes| {
        let name = |row: &SizeRow| {
            let mean = time(u128::from(row.service_mean_ns));
            Category::new(format!("from {}, {mean} each", ByteCount(row.bytes_from)))
        };
        let series = devices.iter().enumerate().map(|(colour, device)| {
            let jobs = |row: &SizeRow| row.devices.get(*device).map_or(0.0, |jobs| *jobs as f64);
            BarSeries::new(*device, Origin::Measured, colour, op.classes.iter().map(jobs))
        });
        let bars = Bars {
            label: "jobs".to_owned(),
            layout: Layout::Stacked,
            categories: op.classes.iter().map(name).collect(),
            series: series.collect(),
            mark: None,
        };
        Panel { title: op.op.clone(), plot: Plot::Bars(bars) }
    };
    let figure = || Figure {
        id: "sizes".to_owned(),
        caption: "Jobs by uncompressed size and device.".to_owned(),
        panels: ops.iter().map(panel).collect(),
    };
    Section {
        heading: "Jobs by uncompressed size".to_owned(),
        figures: (!ops.is_empty()).then(figure).into_iter().collect(),
        ..Section::default()
    }
}

fn occupancy(rows: &[OccupancyRow]) -> Section {
    let row = |row: &OccupancyRow| {
        vec![
            row.device.clone(),
            amount(row.jobs_per_s),
            amount(row.inside),
            amount(row.worked_on),
            row.host_mean_ns.map_or(String::new(), |ns| time(u128::from(ns))),
        ]
    };
    let numbers = ["jobs/s", "jobs inside", "worked on", "of the core, each"];
    let table =
        table("Means of this window.", &["device"], &numbers, rows.iter().map(row).collect());
    let section = tabulated("Occupancy", "No job in this window.", table);
    Section { notes: vec![OCCUPANCY_NOTE.to_owned()], ..section }
}

fn devices(view: &View) -> Section {
    let row = |row: &DeviceRow| {
        let redone = row.fallbacks.iter().map(|(reason, jobs)| format!("{jobs} {reason}"));
        let counts = [row.lost, row.timeouts, row.probes, row.restored];
        std::iter::once(row.device.clone())
            .chain(counts.map(|count| count.to_string()))
            .chain([redone.collect::<Vec<_>>().join(", ")])
            .collect()
    };
    let numbers = ["retired", "kept too long", "tried again", "was back", "redone in software"];
    let rows = view.devices.iter().map(row).collect();
    let table = table("What devices did not do.", &["device"], &numbers, rows);
    tabulated("Losses and fallbacks", "None in this window.", table)
}

/// Returns a section with a table or, if the table is empty, with the text `none`.
fn tabulated(heading: &str, none: &str, table: Table) -> Section {
    let (prose, tables) = match table.rows.is_empty() {
        true => (vec![none.to_owned()], Vec::new()),
        false => (Vec::new(), vec![table]),
    };
    Section { heading: heading.to_owned(), prose, tables, ..Section::default() }
}

/// Returns a table with columns of text, followed by columns of numbers.
pub(super) fn table(
    caption: &str,
    texts: &[&str],
    numbers: &[&str],
    rows: Vec<Vec<String>>,
) -> Table {
    let texts = texts.iter().map(|name| Column::text(*name));
    let header = texts.chain(numbers.iter().map(|name| Column::number(*name))).collect();
    Table { caption: caption.to_owned(), header, rows }
}

fn ms(ms: u64) -> String {
    time(u128::from(ms) * 1_000_000)
}

/// Formats a duration in a suitable unit, with one decimal if the number is below 100.
pub(super) fn time(ns: u128) -> String {
    let (unit_ns, unit) = match ns {
        0 => return "0".to_owned(),
        1..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        1_000_000_000..120_000_000_000 => (1e9, "s"),
        120_000_000_000..7_200_000_000_000 => (60e9, "min"),
        _ => (3_600e9, "h"),
    };
    let amount = ns as f64 / unit_ns;
    let digits = usize::from(amount < 100.0);
    format!("{amount:.digits$} {unit}")
}

/// Formats a rate, with at most two decimals.
fn amount(count: f64) -> String {
    match count {
        0.0 => "0".to_owned(),
        _ if count < 10.0 => format!("{count:.2}"),
        _ if count < 1_000.0 => format!("{count:.1}"),
        _ => format!("{count:.0}"),
    }
}

/// The default window (ms).
const WINDOW_MS: u64 = 60_000;

const WINDOWS: [(u64, &str); 4] =
    [(10, "last 10 s"), (60, "last minute"), (600, "last 10 min"), (0, "all")];

const REFRESH_S: u32 = 5;

/// The number of missed reports after which an instance is shown as late.
const LATE_REPORTS: u64 = 3;

const PATHS_NOTE: &str = "Service and queueing are means per job. Jobs are counted in classes of time, each twice \
                          as long as the one before: `p99 < 65.5 us` says that 99 of 100 jobs took less, a bound \
                          and not a measurement. MB/s is of uncompressed bytes; `no gain` are values that did not \
                          compress to less than they may take.";

const OCCUPANCY_NOTE: &str = "Means of this window at any one time: jobs between submission and completion, and of \
                              these the ones that the device works on, which is how many of its engines are busy, \
                              or of `software` how many cores. Beside it what an offloaded job takes of the core \
                              that submits it, as sampled.";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use api::v1::{PathCounts, ReportRequest, SizeCounts};
    use units::Nanos;

    use super::*;
    use crate::config::SchedulerConfig;
    use crate::scheduler::Scheduler;

    fn shown(text: &str) -> View {
        let scheduler = Scheduler::new(&SchedulerConfig::default());
        let path = PathCounts {
            op: text.into(),
            device: text.into(),
            placement: text.into(),
            reason: text.into(),
            jobs: 4,
            service_ns: 4_000,
            sizes: vec![SizeCounts {
                log2: 12,
                jobs: 4,
                host_jobs: 1,
                host_ns: 1_000,
                ..SizeCounts::default()
            }],
            service_log2_ns: [vec![0; 10], vec![4]].concat(),
            ..PathCounts::default()
        };
        let report = ReportRequest {
            instance: text.into(),
            role: text.into(),
            uptime_ms: 2_000,
            paths: vec![path],
            ..ReportRequest::default()
        };
        scheduler.report(&report, Nanos::secs(1)).unwrap();
        scheduler.view(WINDOW_MS, Nanos::secs(2))
    }

    #[test]
    fn names_cannot_become_markup() {
        let hostile = "<script src=//x>\"'&";
        let page = html(&shown(hostile));
        assert!(!page.contains("<script") && !page.contains("\"'&"), "{page}");
        let safe = "&lt;script src=//x&gt;&quot;'&amp;";
        assert!(page.contains(&format!("<td>{safe}</td><td>{safe}</td>")), "{page}");
        let read: serde_json::Value = serde_json::from_str(&json(&shown(hostile))).unwrap();
        assert_eq!(read["paths"][0]["op"], hostile);
    }

    #[test]
    fn rows_have_rates_means_and_bounds() {
        let page = html(&shown("x"));
        let cells = |cells: &[&str]| -> String {
            cells.iter().map(|cell| format!("<td class=\"n\">{cell}</td>")).collect()
        };
        assert!(page.contains(&cells(&["4", "2.00", "0", "1.0 us", "2.0 us"])), "{page}");
        assert!(
            page.contains("from 4KiB, 0 each") && page.contains("each, x: 4</title>"),
            "{page}"
        );
        assert!(page.contains("1.0 s ago"), "{page}");
        // 4 us of work, and 1 us of the core for the one job sampled, in 2 s.
        let row =
            "<th scope=\"row\">x</th>".to_owned() + &cells(&["2.00", "0.00", "0.00", "1.0 us"]);
        assert!(page.contains(&row), "{page}");
    }

    #[test]
    fn windows_are_read_from_the_query() {
        for (query, wanted_ms) in [
            (None, 60_000),
            (Some("window_s=10"), 10_000),
            (Some("a=b&window_s=0"), 0),
            (Some("window_s=x"), 60_000),
            (Some("window_s=99999999999999999999"), 60_000),
            (Some("window_s=18446744073709551615"), u64::MAX),
        ] {
            assert_eq!(window_ms(query), wanted_ms, "{query:?}");
        }
    }

    #[test]
    fn times_are_in_the_unit_that_suits_them() {
        for (ns, wanted) in [
            (0, "0"),
            (512, "512 ns"),
            (2_048, "2.0 us"),
            (131_072, "131 us"),
            (90_000_000_000, "90.0 s"),
            (7_200_000_000_000, "2.0 h"),
        ] {
            assert_eq!(time(ns), wanted);
        }
    }
}
