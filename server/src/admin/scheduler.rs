//! The scheduler's page and the same numbers as JSON. The page is one document without scripts that loads nothing
//! further; the browser redraws it every few seconds. It shows what [`View`] has and computes nothing. Names come from
//! the processes that report, so every text is escaped.

use std::collections::BTreeSet;
use std::fmt::Write;

use units::ByteCount;

use super::curves;
use crate::scheduler::view::{OccupancyRow, OpSizes, PathRow, SizeRow, View};

/// The window that a request asks for, `window_s=60` (ms); 0 is all that is known.
pub(super) fn window_ms(query: Option<&str>) -> u64 {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let asked = pairs.find(|(name, _)| *name == "window_s").and_then(|(_, text)| text.parse().ok());
    asked.map_or(WINDOW_MS, |seconds: u64| seconds.saturating_mul(1_000))
}

/// The view for programs.
pub(super) fn json(view: &View) -> String {
    let mut text = serde_json::to_string_pretty(view).unwrap_or_default();
    text.push('\n');
    text
}

/// The view for people.
pub(super) fn html(view: &View) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_S}\"><title>rebate scheduler</title>\
         <style>{STYLE}</style></head><body>\n<header><h1>Scheduler</h1>"
    );
    windows(&mut page, view.window_ms);
    page.push_str("</header>\n<main>\n");
    parameters(&mut page, view);
    instances(&mut page, view);
    paths(&mut page, &view.paths);
    curves::write(&mut page, view);
    sizes(&mut page, &view.sizes);
    occupancy(&mut page, &view.occupancy);
    devices(&mut page, view);
    page.push_str("</main></body></html>\n");
    page
}

fn windows(page: &mut String, shown_ms: u64) {
    page.push_str("<nav>");
    for (window_s, name) in WINDOWS {
        let here = if window_s * 1_000 == shown_ms { " aria-current=\"page\"" } else { "" };
        let _ = write!(page, "<a href=\"/scheduler?window_s={window_s}\"{here}>{name}</a>");
    }
    page.push_str("<a href=\"/scheduler.json\">JSON</a></nav>");
}

fn parameters(page: &mut String, view: &View) {
    let sent = &view.parameters;
    let bytes = |bytes: Option<u64>| bytes.map_or("own".to_owned(), |b| ByteCount(b).to_string());
    let policy = sent.policy.as_deref().unwrap_or("own");
    page.push_str("<section><h2>Parameters in force</h2><dl>");
    for (name, value) in [
        ("revision", sent.revision.to_string()),
        ("policy", policy.to_owned()),
        ("offload_bytes_min", bytes(sent.offload_bytes_min)),
        ("inline_bytes_max", bytes(sent.inline_bytes_max)),
        ("parameters", if sent.fitted { "fitted" } else { "static" }.to_owned()),
        ("followers", sent.followers.to_string()),
        ("report every", time(u128::from(view.report_every_ms) * 1_000_000)),
    ] {
        let _ = write!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    page.push_str(
        "</dl><p>What is <b>own</b> is left to each process's configuration.</p></section>\n",
    );
}

fn instances(page: &mut String, view: &View) {
    let _ = write!(page, "<section><h2>Instances ({})</h2>", view.instances.len());
    if view.instances.is_empty() {
        page.push_str("<p>No process has reported. One does when it is started with ");
        page.push_str("<code>--scheduler ADDR</code>.</p></section>\n");
        return;
    }
    head(page, &["instance", "role"], &["up", "last report", "counts cover", "revision", "jobs/s"]);
    for row in &view.instances {
        let late = row.age_ms > LATE_REPORTS * view.report_every_ms.max(1_000);
        let behind = row.parameters_revision != view.parameters.revision;
        let warn = |is: bool| if is { " class=\"bad\"" } else { "" };
        let ms = |ms: u64| time(u128::from(ms) * 1_000_000);
        let _ = writeln!(
            page,
            "<tr data-instance=\"{0}\"><td>{0}</td><td>{1}</td><td>{2}</td><td{3}>{4} ago</td>\
             <td>{5}</td><td{6}>{7}</td><td>{8}</td></tr>",
            escaped(&row.instance),
            escaped(&row.role.replace(',', ", ")),
            ms(row.uptime_ms),
            warn(late),
            ms(row.age_ms),
            ms(row.covered_ms),
            warn(behind),
            row.parameters_revision,
            amount(row.jobs_per_s)
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn paths(page: &mut String, rows: &[PathRow]) {
    page.push_str("<section><h2>Where jobs ran</h2>");
    if rows.is_empty() {
        page.push_str("<p>No job in this window.</p></section>\n");
        return;
    }
    let numbers = [
        "jobs", "jobs/s", "MB/s", "service", "p50 &lt;", "p90 &lt;", "p99 &lt;", "queueing",
        "p99 &lt;", "failed", "no gain",
    ];
    head(page, &["op", "device", "placement", "reason"], &numbers);
    for row in rows {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            escaped(&row.op),
            escaped(&row.device),
            escaped(&row.placement),
            escaped(&row.reason),
            row.jobs,
            amount(row.jobs_per_s),
            amount(row.bytes_per_s / 1e6)
        );
        let (service, queueing) = (&row.service, &row.queueing);
        let bounds = [service.p50_below_ns, service.p90_below_ns, service.p99_below_ns];
        times(page, service.mean_ns, &bounds);
        times(page, queueing.mean_ns, &[queueing.p99_below_ns]);
        let warn = if row.failed > 0 { " class=\"bad\"" } else { "" };
        let _ = writeln!(page, "<td{warn}>{}</td><td>{}</td></tr>", row.failed, row.did_not_fit);
    }
    page.push_str(
        "</tbody></table></div><p>Service and queueing are means per job. Jobs are counted in \
         classes of time, each twice as long as the one before: <b>p99 &lt; 65.5 us</b> says that 99 \
         of 100 jobs took less, a bound and not a measurement. MB/s is of uncompressed bytes; \
         <b>no gain</b> are values that did not compress to less than they may take.</p>\
         </section>\n",
    );
}

/// Writes a mean and bounds of quantiles.
fn times(page: &mut String, mean_ns: u64, bounds_ns: &[u64]) {
    let _ = write!(page, "<td class=\"mean\">{}</td>", time(u128::from(mean_ns)));
    for bound_ns in bounds_ns {
        let _ = write!(page, "<td>{}</td>", time(u128::from(*bound_ns)));
    }
}

fn sizes(page: &mut String, ops: &[OpSizes]) {
    let rows = || ops.iter().flat_map(|op| &op.classes);
    let devices: BTreeSet<&str> =
        rows().flat_map(|row| row.devices.keys().map(String::as_str)).collect();
    let color = |device: &str| {
        devices.iter().position(|known| *known == device).unwrap_or(0) % COLORS.len()
    };
    if ops.is_empty() {
        return;
    }
    page.push_str("<section><h2>Jobs by uncompressed size</h2><ul class=\"legend\">");
    for device in &devices {
        let (color, device) = (COLORS[color(device)], escaped(device));
        let _ = write!(page, "<li><i style=\"background:{color}\"></i>{device}</li>");
    }
    page.push_str("</ul><div class=\"charts\">");
    for op in ops {
        let most = op.classes.iter().map(|row| row.jobs).max().unwrap_or(1).max(1);
        let _ = write!(page, "<figure><figcaption>{}</figcaption>", escaped(&op.op));
        for row in &op.classes {
            bar(page, row, most, &color);
        }
        page.push_str("</figure>");
    }
    page.push_str("</div></section>\n");
}

fn bar(page: &mut String, row: &SizeRow, most: u64, color: &impl Fn(&str) -> usize) {
    let _ = write!(
        page,
        "<div class=\"row\"><span>from {}</span><span class=\"bar\">",
        ByteCount(row.bytes_from)
    );
    for (device, jobs) in &row.devices {
        let width = 100.0 * *jobs as f64 / most as f64;
        let (color, device) = (COLORS[color(device)], escaped(device));
        let _ = write!(
            page,
            "<i style=\"width:{width:.2}%;background:{color}\" title=\"{device}: {jobs} jobs\"></i>"
        );
    }
    let (jobs, mean) = (row.jobs, time(u128::from(row.service_mean_ns)));
    let _ = writeln!(page, "</span><span>{jobs}</span><span>{mean} each</span></div>");
}

fn occupancy(page: &mut String, rows: &[OccupancyRow]) {
    if rows.is_empty() {
        return;
    }
    page.push_str("<section><h2>Occupancy</h2>");
    head(page, &["device"], &["jobs/s", "jobs inside", "worked on", "of the core, each"]);
    for row in rows {
        let _ = writeln!(
            page,
            "<tr data-occupancy=\"{0}\"><td>{0}</td><td>{1}</td><td>{2}</td><td>{3}</td>\
             <td>{4}</td></tr>",
            escaped(&row.device),
            amount(row.jobs_per_s),
            amount(row.inside),
            amount(row.worked_on),
            row.host_mean_ns.map_or(String::new(), |ns| time(u128::from(ns)))
        );
    }
    page.push_str(
        "</tbody></table></div><p>Means of this window at any one time: jobs between submission and \
         completion, and of these the ones that the device works on, which is how many of its engines \
         are busy, or of <b>software</b> how many cores. Beside it what an offloaded job takes of the \
         core that submits it, as sampled.</p></section>\n",
    );
}

fn devices(page: &mut String, view: &View) {
    page.push_str("<section><h2>Losses and fallbacks</h2>");
    if view.devices.is_empty() {
        page.push_str("<p>None in this window.</p></section>\n");
        return;
    }
    let numbers = ["retired", "kept too long", "tried again", "was back", "redone in software"];
    head(page, &["device"], &numbers);
    for row in &view.devices {
        let fallbacks: Vec<_> =
            row.fallbacks.iter().map(|(reason, jobs)| format!("{jobs} {reason}")).collect();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&row.device),
            row.lost,
            row.timeouts,
            row.probes,
            row.restored,
            escaped(&fallbacks.join(", "))
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

/// The head of a table: columns of text, then of numbers.
pub(super) fn head(page: &mut String, texts: &[&str], numbers: &[&str]) {
    let _ = write!(page, "<div class=\"scroll\"><table class=\"t{}\"><thead><tr>", texts.len());
    for name in texts.iter().chain(numbers) {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr></thead><tbody>\n");
}

/// A duration in the unit that suits it; powers of two of nanoseconds come out round enough.
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

/// A rate with as many digits as say something.
fn amount(count: f64) -> String {
    match count {
        0.0 => "0".to_owned(),
        _ if count < 10.0 => format!("{count:.2}"),
        _ if count < 1_000.0 => format!("{count:.1}"),
        _ => format!("{count:.0}"),
    }
}

pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// A window that is long enough for rates and short enough to see a change.
const WINDOW_MS: u64 = 60_000;

const WINDOWS: [(u64, &str); 4] =
    [(10, "last 10 s"), (60, "last minute"), (600, "last 10 min"), (0, "all")];

const REFRESH_S: u32 = 5;

/// An instance is shown as late after this many missed reports.
const LATE_REPORTS: u64 = 3;

/// Colours that people who see colours differently can tell apart (Okabe and Ito). Further devices share them.
pub(super) const COLORS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--quiet:#777;--bad:#c62828}\
@media(prefers-color-scheme:dark){:root{--quiet:#aaa;--bad:#ff8a80}}\
body{font:15px/1.45 system-ui,sans-serif;margin:0;padding:0 1.5rem 3rem}\
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:1rem 2rem;\
border-bottom:1px solid var(--line)}\
h1{font-size:1.5rem;margin:1rem 0}h2{font-size:1.1rem;margin:2rem 0 .6rem}\
nav{display:flex;flex-wrap:wrap;gap:.4rem}\
nav a{padding:.15rem .7rem;border:1px solid var(--line);border-radius:1rem;\
color:inherit;text-decoration:none}\
nav a[aria-current]{background:#0072b2;border-color:#0072b2;color:#fff}\
p{max-width:60rem;color:var(--quiet);margin:.6rem 0}\
dl{display:flex;flex-wrap:wrap;gap:.6rem;margin:0}\
dl div{border:1px solid var(--line);border-radius:.4rem;padding:.35rem .8rem}\
dt{font-size:.8rem;color:var(--quiet)}dd{margin:0;font-weight:600}\
.scroll{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid var(--soft)}\
th{font-weight:600;border-bottom:1px solid var(--line)}\
.mean{border-left:1px solid var(--line)}\
.t1 :is(th,td):nth-child(-n+1),.t2 :is(th,td):nth-child(-n+2),\
.t4 :is(th,td):nth-child(-n+4){text-align:left}\
tbody tr:hover{background:var(--soft)}.bad{color:var(--bad);font-weight:600}\
.legend{display:flex;flex-wrap:wrap;gap:1.2rem;list-style:none;padding:0;margin:.4rem 0}\
.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;border-radius:.15rem}\
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(30rem,1fr));gap:1.5rem}\
.curves{width:100%;max-width:44rem}.curves text{font-size:11px;fill:currentColor}\
.grid{stroke:var(--soft)}\
figure{margin:0}figcaption{font-weight:600;margin-bottom:.3rem}\
.row{display:grid;grid-template-columns:6.5rem 1fr 4.5rem 6.5rem;gap:.6rem;align-items:center;\
font-variant-numeric:tabular-nums}\
.row span{text-align:right}.bar{display:flex;height:1rem;background:var(--soft)}\
.bar i{display:block;height:100%}";

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
        let safe = "&lt;script src=//x&gt;&quot;&#39;&amp;";
        assert!(page.contains(&format!("<td>{safe}</td><td>{safe}</td>")), "{page}");
        let read: serde_json::Value = serde_json::from_str(&json(&shown(hostile))).unwrap();
        assert_eq!(read["paths"][0]["op"], hostile);
    }

    #[test]
    fn rows_have_rates_means_and_bounds() {
        let page = html(&shown("x"));
        let row = "<td>4</td><td>2.00</td><td>0</td><td class=\"mean\">1.0 us</td><td>2.0 us</td>";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("from 4KiB") && page.contains("width:100.00%"), "{page}");
        assert!(page.contains("1.0 s ago"), "{page}");
        // 4 us of work, and 1 us of the core for the one job sampled, in 2 s.
        let row = "<tr data-occupancy=\"x\"><td>x</td><td>2.00</td><td>0.00</td><td>0.00</td>\
                   <td>1.0 us</td></tr>";
        assert!(page.contains(row), "{page}");
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
