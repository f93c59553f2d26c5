//! The section of the scheduler's page with the fitted costs. For each op it shows the cost curves by size on
//! logarithmic axes, the sizes from which devices pay, and the predicted and measured gain.

use report::{Axis, Figure, Lines, Origin, Panel, Plot, Point, Section, Series, Style, Threshold};

use super::scheduler::table;
use crate::scheduler::view::{CurvePoint, OpCurves, View};

/// Returns the section of fitted costs.
pub(super) fn section(view: &View) -> Section {
    let heading = "Fitted costs".to_owned();
    if view.curves.is_empty() {
        return Section {
            heading,
            prose: vec!["No job has been reported.".to_owned()],
            ..Section::default()
        };
    }
    let sent = match view.parameters.fitted {
        true => "Sizes and shares in force are sent to those that follow.",
        false => "Nothing of this is sent: `scheduler.parameters` is static.",
    };
    Section {
        heading,
        prose: vec![sent.to_owned()],
        figures: view.curves.iter().map(figure).collect(),
        tables: vec![table(
            "Sizes, shares and gains.",
            &["op", "device"],
            &NUMBERS,
            rows(&view.curves),
        )],
        notes: vec![NOTE.to_owned()],
    }
}

fn rows(ops: &[OpCurves]) -> Vec<Vec<String>> {
    let gain = |gain: Option<f64>| gain.map_or(String::new(), |gain| format!("{gain:.2}"));
    let bytes = |bytes: Option<u64>| bytes.map_or(String::new(), size);
    let of_op = |op: &OpCurves| {
        let rows = op.devices.iter().enumerate().map(|(index, row)| {
            let first = |text: String| if index == 0 { text } else { String::new() };
            vec![
                op.op.clone(),
                row.device.clone(),
                row.jobs.to_string(),
                bytes(row.break_even_bytes),
                bytes(row.bytes_min),
                bytes(row.wait_bytes_max.filter(|bytes| *bytes > 0)),
                row.weight.map_or(String::new(), |weight| weight.to_string()),
                first(gain(op.predicted_gain)),
                first(gain(op.measured_gain)),
                row.refused_jobs.to_string(),
                row.doubted.to_string(),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    ops.iter().flat_map(of_op).collect()
}

/// Formats a size with three significant digits.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn figure(op: &OpCurves) -> Figure {
    let panel = |title: &str, time_ns: fn(&CurvePoint) -> u64| {
        let series = op.devices.iter().enumerate().map(|(index, row)| {
            let point = |point: &CurvePoint| {
                let us = time_ns(point).max(1) as f64 / 1e3;
                Point { x: point.bytes.max(1) as f64, y: us, low: None, high: None }
            };
            Series {
                name: row.device.clone(),
                label: String::new(),
                origin: Origin::Measured,
                style: Style::nth(index),
                points: row.points.iter().map(point).collect(),
            }
        });
        let thresholds = op.devices.iter().enumerate().filter_map(|(colour, row)| {
            Some(Threshold {
                name: format!("{} from", row.device),
                x: row.bytes_min? as f64,
                colour,
            })
        });
        let (x, y) = (Axis::bytes("size"), Axis::log10("time of a job (us)"));
        let (series, thresholds) = (series.collect(), thresholds.collect());
        Panel { title: title.to_owned(), plot: Plot::Lines(Lines { x, y, series, thresholds }) }
    };
    Figure {
        id: format!("cost of {}", op.op),
        caption: op.op.clone(),
        panels: vec![
            panel("from submission to completion", |point| point.latency_ns),
            panel("the device's own time", |point| point.service_ns),
        ],
    }
}

const NUMBERS: [&str; 9] = [
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

const NOTE: &str = "From submission to completion as jobs meet it now, and the device's own time. A dotted line is the \
                    size in force from which jobs go to that device; it follows the break-even. Gains are of this \
                    window: how many times faster its jobs were than all of them in software, predicted by the \
                    curves of where the parameters send them, measured as they ran; what ran elsewhere is taken to \
                    cost in software what its curve says now.";
