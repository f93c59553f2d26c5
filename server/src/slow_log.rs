//! Passes recorded requests on, and logs slow ones with their stages, one line each, under the target `server::slow`.
//! Their rate is bounded, and lines that are left out are counted.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use telemetry::{Record, RecordedStage, Requests, Why};
use units::{Clock, Nanos};

use crate::access::Bucket;
use crate::config::{Config, convert};
use crate::counters::Counter;
use crate::otlp::Export;

/// Writes the log of slow requests of a process.
pub(crate) struct SlowLog {
    clock: Arc<dyn Clock>,
    rate: Bucket,
    pub(crate) lines_left_out: Counter,
}

impl SlowLog {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, rate: Bucket::default(), lines_left_out: Counter::default() }
    }

    /// Logs a request if it was slow.
    pub(crate) fn note(&self, record: &Record) {
        if record.why != Why::Slow {
            return;
        }
        if self.rate.take(1, LINES_PER_S, self.clock.now(), BURST).is_none() {
            self.lines_left_out.up();
            return;
        }
        let Record { command, client, total, trace_id, .. } = record;
        let key = record.key.escape_ascii().to_string();
        let stages = stages(record);
        let trace_id = format!("{trace_id:032x}");
        let (total_us, trace_id) = (micros(*total), trace_id.as_str());
        tracing::warn!(
            target: TARGET, command, key, client, total_us, stages, trace_id, "slow request"
        );
    }
}

/// Creates the place for requests that are kept. Slow ones are logged, and all are exported.
pub(crate) fn open_requests(
    config: &Config,
    slow_log: &Arc<SlowLog>,
    export: &Arc<Export>,
) -> Arc<Requests> {
    let (slow_log, export) = (Arc::clone(slow_log), Arc::clone(export));
    let listener = move |record: &Arc<Record>| {
        slow_log.note(record);
        export.put(record);
    };
    Arc::new(Requests::new(convert::requests(config), listener))
}

/// Returns the stages in the form `decompress 812.0 us (device iaa, async, waiting 790.0 us); write 3.1 us`.
pub(crate) fn stages(record: &Record) -> String {
    let mut text = String::new();
    for stage in &record.stages {
        let between = if text.is_empty() { "" } else { "; " };
        let _ = write!(
            text,
            "{between}{} {:.1} us{}",
            stage.kind.name(),
            micros(stage.took),
            by(stage)
        );
    }
    if record.stages_left_out > 0 {
        let _ = write!(text, "; {} more", record.stages_left_out);
    }
    text
}

fn by(stage: &RecordedStage) -> String {
    match (&stage.by, stage.job) {
        (Some(device), Some((placement, reason, _))) => {
            let waiting = stage.waiting().map_or(0.0, micros);
            format!(" ({device}, {placement}, {reason}, waiting {waiting:.1} us)")
        }
        (Some(server), None) => format!(" ({server})"),
        (None, _) => String::new(),
    }
}

/// Returns a duration in microseconds, the unit of the log and of the page.
pub(crate) fn micros(Nanos(ns): Nanos) -> f64 {
    ns as f64 / 1e3
}

/// The target of the lines.
const TARGET: &str = "server::slow";

/// The longest burst of lines, in the time that they may take.
const BURST: Duration = Duration::from_secs(1);

/// The lines per second.
const LINES_PER_S: u64 = 10;
