//! The part of the scheduler's page that shows what was fitted: per op the cost curves by size on logarithmic axes, the
//! sizes from which devices pay, and the gain as predicted and as measured. It computes no cost.

use std::fmt::Write;

use units::ByteCount;

use super::scheduler::{COLORS, escaped, head, time};
use crate::scheduler::view::{CurvePoint, CurveRow, OpCurves, View};

/// Writes the section.
pub(super) fn write(page: &mut String, view: &View) {
    page.push_str("<section><h2>Fitted costs</h2>");
    if view.curves.is_empty() {
        page.push_str("<p>No job has been reported.</p></section>\n");
        return;
    }
    let sent = match view.parameters.fitted {
        true => "Sizes and shares in force are sent to those that follow.",
        false => "Nothing of this is sent: <code>scheduler.parameters</code> is static.",
    };
    let _ = write!(page, "<p>{sent}</p>");
    table(page, &view.curves);
    page.push_str("<div class=\"charts\">");
    view.curves.iter().for_each(|op| figure(page, op));
    page.push_str(
        "</div><p>Time of a job against its size, both logarithmic: from submission to completion as \
         jobs meet it now, and dashed the device's own time. A vertical line is the size in force from \
         which jobs go to that device; it follows the break-even. Gains are of this window: how many \
         times faster its jobs were than all of them in software, <b>predicted</b> by the curves of \
         where the parameters send them, <b>measured</b> as they ran; what ran elsewhere is taken to \
         cost in software what its curve says now.</p></section>\n",
    );
}

fn table(page: &mut String, ops: &[OpCurves]) {
    let numbers = [
        "learnt from",
        "break-even",
        "in force",
        "waited for up to",
        "share",
        "predicted gain",
        "measured gain",
        "refused",
        "doubted",
    ];
    head(page, &["op", "device"], &numbers);
    for op in ops {
        let gain = |gain: Option<f64>| gain.map_or(String::new(), |gain| format!("{gain:.2}"));
        for (index, row) in op.devices.iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let bytes = |bytes: Option<u64>| bytes.map_or(String::new(), size);
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(&op.op),
                escaped(&row.device),
                row.jobs,
                bytes(row.break_even_bytes),
                bytes(row.bytes_min),
                bytes(row.wait_bytes_max.filter(|bytes| *bytes > 0)),
                row.weight.map_or(String::new(), |weight| weight.to_string()),
                first(gain(op.predicted_gain)),
                first(gain(op.measured_gain)),
                row.refused_jobs,
                row.doubted
            );
        }
    }
    page.push_str("</tbody></table></div>");
}

/// Sizes in force are no round numbers; three digits are enough.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn figure(page: &mut String, op: &OpCurves) {
    let Some(axes) = Axes::new(op) else { return };
    let name = escaped(&op.op);
    let _ = write!(page, "<figure><figcaption>{name}</figcaption><ul class=\"legend\">");
    for (index, row) in op.devices.iter().enumerate() {
        let (color, device) = (color(index), escaped(&row.device));
        let _ = write!(page, "<li><i style=\"background:{color}\"></i>{device}</li>");
    }
    let _ = write!(
        page,
        "</ul><svg class=\"curves\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"cost of {name} by size\">"
    );
    axes.grid(page);
    for (index, row) in op.devices.iter().enumerate() {
        curve(page, &axes, row, color(index));
    }
    page.push_str("</svg></figure>");
}

fn curve(page: &mut String, axes: &Axes, row: &CurveRow, color: &str) {
    let line = |of: fn(&CurvePoint) -> u64| {
        let at =
            |point: &CurvePoint| format!("{:.1},{:.1}", axes.x(point.bytes), axes.y(of(point)));
        row.points.iter().map(at).collect::<Vec<_>>().join(" ")
    };
    let (latency, service) = (line(|point| point.latency_ns), line(|point| point.service_ns));
    for (of, dash) in [(latency, "none"), (service, "4 4")] {
        let _ = write!(
            page,
            "<polyline points=\"{of}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dash}\"/>"
        );
    }
    if let Some(bytes) = row.bytes_min {
        let (x, device) = (axes.x(bytes), escaped(&row.device));
        let _ = write!(
            page,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"{color}\" \
             stroke-dasharray=\"1 3\"><title>{device} from {}</title></line>",
            HEIGHT - BOTTOM,
            size(bytes)
        );
    }
}

fn color(index: usize) -> &'static str {
    COLORS[index % COLORS.len()]
}

/// Powers of two of bytes, powers of ten of nanoseconds.
struct Axes {
    from_log2: f64,
    to_log2: f64,
    from_log10: f64,
    to_log10: f64,
}

impl Axes {
    /// Returns axes that hold all points, or none when there are no points.
    fn new(op: &OpCurves) -> Option<Self> {
        let points = || op.devices.iter().flat_map(|row| &row.points);
        let bytes = || points().map(|point| point.bytes.max(1));
        let times = || points().flat_map(|point| [point.service_ns, point.latency_ns]);
        let log10 = |ns: u64| (ns.max(1) as f64).log10();
        let (from, to) = (bytes().min()?.ilog2(), bytes().max()?.ilog2());
        let (from_log10, to_log10) = (log10(times().min()?).floor(), log10(times().max()?).ceil());
        Some(Self {
            from_log2: f64::from(from),
            to_log2: f64::from(to.max(from + 1)),
            from_log10,
            to_log10: to_log10.max(from_log10 + 1.0),
        })
    }

    fn x(&self, bytes: u64) -> f64 {
        let log2 = (bytes.max(1) as f64).log2().clamp(self.from_log2, self.to_log2);
        let along = (log2 - self.from_log2) / (self.to_log2 - self.from_log2);
        LEFT + along * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ns: u64) -> f64 {
        let log10 = (ns.max(1) as f64).log10();
        let along = (log10 - self.from_log10) / (self.to_log10 - self.from_log10);
        HEIGHT - BOTTOM - along * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, page: &mut String) {
        for log10 in self.from_log10 as u32..=self.to_log10 as u32 {
            let ns = 10_u64.saturating_pow(log10);
            let y = self.y(ns);
            let _ = write!(
                page,
                "<path d=\"M{LEFT} {y:.1}H{}\" class=\"grid\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                time(u128::from(ns)).replace(".0 ", " ")
            );
        }
        let (from, to) = (self.from_log2 as u32, self.to_log2 as u32);
        let every = (to - from).div_ceil(LABELS_MAX).max(1) as usize;
        for log2 in (from..=to).step_by(every) {
            let bytes = 1_u64 << log2;
            let x = self.x(bytes);
            let (low, size) = (HEIGHT - BOTTOM, ByteCount(bytes));
            let _ = write!(
                page,
                "<path d=\"M{x:.1} {TOP}V{low}\" class=\"grid\"/><text x=\"{x:.1}\" y=\"{}\" \
                 text-anchor=\"middle\">{size}</text>",
                low + 16.0
            );
        }
    }
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 24.0;

/// More labels would touch each other.
const LABELS_MAX: u32 = 7;
