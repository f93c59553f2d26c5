//! Sends metrics, recorded requests and log lines to a collector over OTLP/gRPC (OpenTelemetry Protocol 1). What cannot
//! be sent waits for the next try; what no longer fits the queue is dropped and counted. Nothing that serves clients
//! ever waits for the exporter.

mod attributes;
mod logs;
mod metrics;
mod spans;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Address, Connection};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::{Request, Status};
use units::{Nanos, unix_time};

use crate::timeline::Record;
pub use logs::{LogLine, Severity, keep_log, put_line};

/// What is sent where.
pub struct Options {
    /// The collector.
    pub address: Address,
    /// The time between two exports of metrics. `None` sends no metrics.
    pub metrics_every: Option<Duration>,
    /// The name of this process among those of its service.
    pub instance: String,
    /// The version of this program.
    pub version: &'static str,
    /// The pairs that go along with each call, such as a token.
    pub headers: Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>,
}

/// The kinds of data that are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The metrics of the process.
    Metrics,
    /// The spans of recorded requests.
    Spans,
    /// The lines of the log.
    Logs,
}

impl Signal {
    /// Every signal, in the order of its index.
    pub const ALL: [Signal; 3] = [Signal::Metrics, Signal::Spans, Signal::Logs];

    /// Returns the name for metrics and the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Metrics => "metrics",
            Signal::Spans => "spans",
            Signal::Logs => "logs",
        }
    }
}

/// The numbers of items by what became of them: data points, spans and log lines.
#[derive(Debug, Default)]
pub struct ExportCounts {
    exported: [AtomicU64; Signal::ALL.len()],
    dropped: [AtomicU64; Signal::ALL.len()],
    failures: AtomicU64,
}

impl ExportCounts {
    /// Returns the items that the collector took.
    pub fn exported(&self, signal: Signal) -> u64 {
        self.exported[signal as usize].load(Ordering::Relaxed)
    }

    /// Returns the items that were dropped, because the queue was full or the collector refused them.
    pub fn dropped(&self, signal: Signal) -> u64 {
        self.dropped[signal as usize].load(Ordering::Relaxed)
    }

    /// Returns the calls that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn add_exported(&self, signal: Signal, count: usize, rejected: i64) {
        let rejected = u64::try_from(rejected).unwrap_or(0).min(count as u64);
        self.exported[signal as usize].fetch_add(count as u64 - rejected, Ordering::Relaxed);
        self.dropped[signal as usize].fetch_add(rejected, Ordering::Relaxed);
    }

    fn add_dropped(&self, signal: Signal, count: usize) {
        self.dropped[signal as usize].fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The end of the queue of spans at which records are put in.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    records: mpsc::Sender<Arc<Record>>,
    counts: Arc<ExportCounts>,
}

impl SpanQueue {
    /// Creates a queue, and returns both of its ends.
    pub fn new(counts: Arc<ExportCounts>) -> (Self, mpsc::Receiver<Arc<Record>>) {
        let (records, queued) = mpsc::channel(QUEUE_MAX);
        (Self { records, counts }, queued)
    }

    /// Queues a record, or counts its spans as dropped.
    pub fn put(&self, record: &Arc<Record>) {
        if self.records.try_send(Arc::clone(record)).is_err() {
            self.counts.add_dropped(Signal::Spans, spans::count(record));
        }
    }
}

/// Exports until it is dropped. Its caller runs on a tokio `LocalRuntime` or `LocalSet`.
pub struct Exporter<M> {
    options: Options,
    counts: Arc<ExportCounts>,
    records: Option<mpsc::Receiver<Arc<Record>>>,
    lines: Option<mpsc::Receiver<LogLine>>,
    /// Returns the page of metrics in Prometheus' text format.
    metrics: M,
    unsent_records: VecDeque<Arc<Record>>,
    unsent_lines: VecDeque<LogLine>,
    connection: Option<Connection>,
    began: Nanos,
}

impl<M: Fn() -> String> Exporter<M> {
    /// Creates an exporter of what comes out of the queues, and of the page that `metrics` returns.
    pub fn new(
        options: Options,
        counts: Arc<ExportCounts>,
        records: Option<mpsc::Receiver<Arc<Record>>>,
        lines: Option<mpsc::Receiver<LogLine>>,
        metrics: M,
    ) -> Self {
        Self {
            options,
            counts,
            records,
            lines,
            metrics,
            unsent_records: VecDeque::new(),
            unsent_lines: VecDeque::new(),
            connection: None,
            began: unix_time().into(),
        }
    }

    /// Exports forever.
    pub async fn run(&mut self) {
        let mut next_metrics = self.options.metrics_every.map(|every| Instant::now() + every);
        let mut failed = false;
        loop {
            let pause = if failed { RETRY_AFTER } else { SEND_EVERY };
            tokio::time::sleep(pause).await;
            self.collect();
            let is_due = next_metrics.is_some_and(|due| Instant::now() >= due);
            if let (true, Some(every)) = (is_due, self.options.metrics_every) {
                next_metrics = Some(Instant::now() + every);
            }
            match self.send(is_due).await {
                Ok(()) => {
                    if failed {
                        tracing::info!("the collector at {} answers again", self.options.address);
                    }
                    failed = false;
                }
                Err(error) => {
                    self.connection = None;
                    self.counts.failures.fetch_add(1, Ordering::Relaxed);
                    if !failed {
                        let address = &self.options.address;
                        tracing::warn!("the collector at {address}: {error}; trying again");
                    }
                    failed = true;
                }
            }
        }
    }

    /// Sends what is queued, and the metrics a last time. It tries once.
    pub async fn flush(&mut self) {
        self.collect();
        if self.send(self.options.metrics_every.is_some()).await.is_err() {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes what was queued. If the collector is away for long, the oldest give way.
    fn collect(&mut self) {
        while let Some(record) = self.records.as_mut().and_then(|records| records.try_recv().ok()) {
            self.unsent_records.push_back(record);
        }
        while let Some(line) = self.lines.as_mut().and_then(|lines| lines.try_recv().ok()) {
            self.unsent_lines.push_back(line);
        }
        while self.unsent_records.len() > QUEUE_MAX {
            let spans = self.unsent_records.pop_front().map_or(0, |record| spans::count(&record));
            self.counts.add_dropped(Signal::Spans, spans);
        }
        let lines_over = self.unsent_lines.len().saturating_sub(QUEUE_MAX);
        self.unsent_lines.drain(..lines_over);
        self.counts.add_dropped(Signal::Logs, lines_over + logs::take_dropped());
    }

    async fn send(&mut self, with_metrics: bool) -> Result<(), Status> {
        if with_metrics {
            self.send_metrics().await?;
        }
        while !self.unsent_records.is_empty() {
            self.send_spans().await?;
        }
        while !self.unsent_lines.is_empty() {
            self.send_lines().await?;
        }
        Ok(())
    }

    async fn send_metrics(&mut self) -> Result<(), Status> {
        let page = (self.metrics)();
        let (request, points) = metrics::request(&page, self.resource(), self.began);
        let request = self.request(request);
        let mut client = MetricsServiceClient::with_origin(self.connected().await?, self.origin()?);
        let answer = within(client.export(request)).await?;
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_data_points);
        self.counts.add_exported(Signal::Metrics, points, rejected);
        Ok(())
    }

    async fn send_spans(&mut self) -> Result<(), Status> {
        let batch = self.unsent_records.len().min(BATCH_MAX);
        let records = self.unsent_records.range(..batch);
        let (request, count) = spans::request(records, self.resource());
        let request = self.request(request);
        let mut client = TraceServiceClient::with_origin(self.connected().await?, self.origin()?);
        let answer = taken(within(client.export(request)).await)?;
        self.unsent_records.drain(..batch);
        match answer {
            Some(answer) => {
                let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
                self.counts.add_exported(Signal::Spans, count, rejected);
            }
            None => self.counts.add_dropped(Signal::Spans, count),
        }
        Ok(())
    }

    async fn send_lines(&mut self) -> Result<(), Status> {
        let batch = self.unsent_lines.len().min(BATCH_MAX);
        let request = logs::request(self.unsent_lines.range(..batch), self.resource());
        let request = self.request(request);
        let mut client = LogsServiceClient::with_origin(self.connected().await?, self.origin()?);
        let answer = taken(within(client.export(request)).await)?;
        self.unsent_lines.drain(..batch);
        match answer {
            Some(answer) => {
                let partial = answer.partial_success;
                let rejected = partial.map_or(0, |partial| partial.rejected_log_records);
                self.counts.add_exported(Signal::Logs, batch, rejected);
            }
            None => self.counts.add_dropped(Signal::Logs, batch),
        }
        Ok(())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in &self.options.headers {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        request
    }

    fn resource(&self) -> Resource {
        let Options { instance, version, .. } = &self.options;
        let attributes = [
            attributes::text("service.name", "rebate"),
            attributes::text("service.version", *version),
            attributes::text("service.instance.id", instance),
            attributes::number("process.pid", i64::from(std::process::id())),
        ];
        Resource { attributes: attributes.into(), ..Resource::default() }
    }

    async fn connected(&mut self) -> Result<Connection, Status> {
        if let Some(open) = self.connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let opening = Connection::open(&self.options.address);
        let opened = tokio::time::timeout(CALL_LIMIT, opening).await;
        let opened = opened.map_err(|_| Status::unavailable("no connection in time"))?;
        let opened = opened.map_err(|error| Status::unavailable(error.to_string()))?;
        self.connection = Some(opened.clone());
        Ok(opened)
    }

    fn origin(&self) -> Result<tonic::transport::Uri, Status> {
        api::wire::origin(&self.options.address)
    }
}

/// Waits for an answer within the limit of a call.
async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    let late = |_| Status::unavailable(format!("no answer within {} s", CALL_LIMIT.as_secs()));
    let answered = tokio::time::timeout(CALL_LIMIT, call).await.map_err(late)?;
    answered.map(tonic::Response::into_inner)
}

/// Returns the answer of a call, or none if the collector refuses the data for good, so that the same data is not sent
/// again (OTLP specification, "Failures").
fn taken<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    use tonic::Code;
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if matches!(status.code(), Code::InvalidArgument | Code::OutOfRange) => {
            tracing::warn!("the collector refuses what it was sent: {}", status.message());
            Ok(None)
        }
        Err(status) => Err(status),
    }
}

/// The records, and likewise the lines, that wait for the exporter, and those that wait for the collector.
pub(crate) const QUEUE_MAX: usize = 2_048;

/// The records or lines of one call.
const BATCH_MAX: usize = 512;

/// The time between two looks at the queues.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// The time until the next try after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The longest wait for a connection or for an answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);
