//! The page of requests: the latest slow ones and the latest sampled ones, each with the time of its stages, as HTML
//! and as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use report::{
    BarSeries, Bars, Category, Column, Figure, Layout, Link, Origin, Panel, Plot, Report, Section,
    Table,
};
use serde_json::{Value, json};
use telemetry::{Record, RecordedStage, Requests};
use units::{Nanos, unix_time};

use super::exposition::Exposition;
use crate::slow_log::{self, SlowLog, micros};

/// Writes the requests as JSON, newest first.
pub(super) fn json(requests: &Requests) -> String {
    let [slow, sampled, asked] = requests.latest();
    let all = |records: &[Arc<Record>]| records.iter().map(|record| object(record)).collect();
    let rules = requests.rules();
    let page: Value = json!({
        "sample_every": rules.sample_every,
        "slow_us": micros(rules.slow),
        "slow": Value::Array(all(&slow)),
        "sampled": Value::Array(all(&sampled)),
        "asked": Value::Array(all(&asked)),
    });
    format!("{page:#}\n")
}

fn object(record: &Record) -> Value {
    json!({
        "why": record.why.name(),
        "command": record.command,
        "key": record.key.escape_ascii().to_string(),
        "client": record.client,
        "begin_unix_us": record.begin.0 / 1_000,
        "total_us": micros(record.total),
        "trace_id": format!("{:032x}", record.trace_id),
        "span_id": format!("{:016x}", record.span_id),
        "parent_id": record.parent_id.map(|id| format!("{id:016x}")),
        "stages": record.stages.iter().map(stage).collect::<Vec<_>>(),
        "stages_left_out": record.stages_left_out,
    })
}

fn stage(stage: &RecordedStage) -> Value {
    let mut object = json!({
        "stage": stage.kind.name(),
        "after_us": micros(stage.after),
        "took_us": micros(stage.took),
    });
    match (&stage.by, stage.job) {
        (device, Some((placement, reason, service))) => {
            object["device"] = device.as_deref().into();
            object["placement"] = placement.into();
            object["reason"] = reason.into();
            object["service_us"] = micros(service).into();
        }
        (Some(server), None) => object["server"] = (&**server).into(),
        (None, None) => {}
    }
    object
}

/// Writes the requests as HTML.
pub(super) fn html(requests: &Requests) -> String {
    let [slow, sampled, asked] = requests.latest();
    let rules = requests.rules();
    let slow_is = match rules.slow {
        Nanos(0) => "off (requests.slow_us)".to_owned(),
        limit => format!("from {} us", micros(limit)),
    };
    let sampled_is = match rules.sample_every {
        0 => "off (requests.sample_every)".to_owned(),
        every => format!("one in {every}"),
    };
    let counts = requests.counts();
    let report = Report {
        title: "Requests".to_owned(),
        subtitle: "Where the time of requests went, from when the server turned to them until their answer was \
                   written. The latest are shown, newest first."
            .to_owned(),
        facts: vec![
            ("slow".to_owned(), slow_is),
            ("sampled".to_owned(), sampled_is),
            ("slow so far".to_owned(), counts.slow.to_string()),
            ("sampled so far".to_owned(), counts.sampled.to_string()),
            ("asked for by callers so far".to_owned(), counts.asked.to_string()),
        ],
        sections: vec![
            section("Slow requests", "slow", &slow),
            section("Sampled requests", "sampled", &sampled),
            section("Requests that callers asked to record", "asked", &asked),
        ],
    };
    let link = Link { href: "/requests.json", text: "JSON", is_here: false };
    report.served(None, &[link])
}

fn section(heading: &str, id: &str, records: &[Arc<Record>]) -> Section {
    if records.is_empty() {
        let prose = vec!["There are none.".to_owned()];
        return Section { heading: heading.to_owned(), prose, ..Section::default() };
    }
    let figure = Figure {
        id: id.to_owned(),
        caption: "Time by stage. Where stages overlap, the time counts for the one that began first. `other` is the \
                  rest: reading the command, the embedded store, and waiting for the processor."
            .to_owned(),
        panels: vec![Panel { title: String::new(), plot: Plot::Bars(bars(records)) }],
    };
    let header = [
        Column::text("request"),
        Column::text("key"),
        Column::text("client"),
        Column::number("total (us)"),
        Column::text("stages"),
        Column::text("trace"),
    ];
    let row = |(index, record): (usize, &Arc<Record>)| {
        vec![
            name(index, record),
            record.key.escape_ascii().to_string(),
            record.client.clone(),
            format!("{:.1}", micros(record.total)),
            slow_log::stages(record),
            format!("{:032x}", record.trace_id),
        ]
    };
    let table = Table {
        caption: "Each request with its stages. Waiting is what a job's device did not work on it."
            .to_owned(),
        header: header.into(),
        rows: records.iter().enumerate().map(row).collect(),
    };
    Section {
        heading: heading.to_owned(),
        figures: vec![figure],
        tables: vec![table],
        ..Section::default()
    }
}

fn bars(records: &[Arc<Record>]) -> Bars {
    let mut by_stage: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        let (shares, rest) = record.shares();
        let stages = record.stages.iter().map(|stage| stage.kind.name());
        for (stage, share) in stages.zip(shares).chain([(OTHER, rest)]) {
            let times = by_stage.entry(stage).or_insert_with(|| vec![0.0; records.len()]);
            times[index] += micros(share);
        }
    }
    let rest = by_stage.remove(OTHER).map(|times| (OTHER, times));
    let series = by_stage.into_iter().chain(rest);
    let series =
        series.map(|(stage, times)| BarSeries::new(stage, Origin::Measured, colour(stage), times));
    Bars {
        label: "time (us)".to_owned(),
        layout: Layout::Stacked,
        categories: records.iter().enumerate().map(|(i, r)| Category::new(name(i, r))).collect(),
        series: series.collect(),
        mark: None,
    }
}

/// Returns the colour of a stage, which is the same in both figures.
fn colour(stage: &str) -> usize {
    COLOURS.iter().position(|name| *name == stage).unwrap_or(COLOURS.len())
}

/// The stages by their colours. The last two share those of others, beside which they are rare.
const COLOURS: [&str; 9] =
    ["store", "decompress", "compress", "write", OTHER, "order", "memory", "encrypt", "decrypt"];

fn name(index: usize, record: &Record) -> String {
    let ago_s = Nanos::from(unix_time()).0.saturating_sub(record.begin.0) / 1_000_000_000;
    format!("{}. {}, {ago_s} s ago", index + 1, record.command)
}

/// Writes the families of recorded requests.
pub(super) fn metrics(page: &mut Exposition, requests: &Requests, slow_log: &SlowLog) {
    let counts = requests.counts();
    page.counter("rebate_requests_recorded_total", "Requests kept with their stages, by why.")
        .sample(&[("why", "sampled")], counts.sampled)
        .sample(&[("why", "asked")], counts.asked)
        .sample(&[("why", "slow")], counts.slow);
    page.counter("rebate_slow_log_lines_left_out_total", "Lines above the rate of the slow log.")
        .sample(&[], slow_log.lines_left_out.read());
}

const OTHER: &str = "other";
