//! Lines of the log on their way to the collector.

use std::sync::atomic::{AtomicUsize, Ordering};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parking_lot::RwLock;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use units::Nanos;

use super::QUEUE_MAX;
use super::attributes::{scope, string, text};

/// How serious a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Severity {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Severity {
    const fn number(self) -> (SeverityNumber, &'static str) {
        match self {
            Severity::Trace => (SeverityNumber::Trace, "TRACE"),
            Severity::Debug => (SeverityNumber::Debug, "DEBUG"),
            Severity::Info => (SeverityNumber::Info, "INFO"),
            Severity::Warn => (SeverityNumber::Warn, "WARN"),
            Severity::Error => (SeverityNumber::Error, "ERROR"),
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The time of the event, since the Unix epoch.
    pub time: Nanos,
    /// How serious it is.
    pub severity: Severity,
    /// The part of the program that it comes from.
    pub target: String,
    /// The message.
    pub message: String,
    /// The other fields, by their names.
    pub fields: Vec<(&'static str, String)>,
}

impl LogLine {
    /// Returns about how many bytes the line takes in a message.
    pub(super) fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, text)| name.len() + text.len() + AROUND_BYTES);
        self.target.len() + self.message.len() + AROUND_BYTES + fields.sum::<usize>()
    }
}

/// The bytes around a text in a message, roughly.
const AROUND_BYTES: usize = 32;

/// The queue of lines for the exporter of this process, if it exports them.
static QUEUE: RwLock<Option<mpsc::Sender<LogLine>>> = RwLock::new(None);

/// The lines that did not fit the queue since they were last counted.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Keeps the lines of this process's log from now on, and returns the end of the queue at which they come out. Earlier
/// ends get no more lines.
pub fn keep_log() -> mpsc::Receiver<LogLine> {
    let (lines, queued) = mpsc::channel(QUEUE_MAX);
    *QUEUE.write() = Some(lines);
    queued
}

/// Queues the line that `line` returns, if lines are exported. It never waits for room.
pub fn put_line(line: impl FnOnce() -> LogLine) {
    let queue = QUEUE.read();
    let Some(lines) = queue.as_ref() else { return };
    match lines.try_reserve() {
        Ok(room) => room.send(line()),
        Err(TrySendError::Full(())) => {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        // Its exporter has ended.
        Err(TrySendError::Closed(())) => {}
    }
}

/// Returns the number of lines that did not fit the queue since the last call.
pub(super) fn take_dropped() -> usize {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Returns the message that exports these lines.
pub(super) fn request<'l>(
    lines: impl Iterator<Item = &'l LogLine>,
    resource: Resource,
) -> ExportLogsServiceRequest {
    let log_records = lines.map(record).collect();
    let scoped = ScopeLogs { scope: Some(scope()), log_records, ..ScopeLogs::default() };
    let resource_logs = ResourceLogs {
        resource: Some(resource),
        scope_logs: vec![scoped],
        ..ResourceLogs::default()
    };
    ExportLogsServiceRequest { resource_logs: vec![resource_logs] }
}

fn record(line: &LogLine) -> LogRecord {
    let (number, severity) = line.severity.number();
    let fields = line.fields.iter().map(|(name, value)| text(name, value.as_str()));
    LogRecord {
        time_unix_nano: line.time.0,
        observed_time_unix_nano: line.time.0,
        severity_number: number.into(),
        severity_text: severity.to_owned(),
        body: Some(string(line.message.as_str())),
        attributes: std::iter::once(text("code.namespace", line.target.as_str()))
            .chain(fields)
            .collect(),
        ..LogRecord::default()
    }
}
