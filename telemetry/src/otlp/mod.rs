//! Sends metrics, recorded requests and log lines to a collector over OTLP/gRPC (OpenTelemetry Protocol 1). What cannot
//! be sent waits for the next try; what does not fit the queue or is refused is dropped and counted. Nothing that
//! serves clients ever waits for the exporter.

mod attributes;
mod logs;
mod metrics;
mod spans;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Address, Connection};
use opentelemetry_proto::tonic::collector::logs::v1::{self as logs_v1, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    self as metrics_v1, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    self as trace_v1, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::Uri;
use tonic::{Code, Request, Status};
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
    pub headers: Vec<Header>,
}

/// A name and a value of gRPC metadata.
pub type Header = (MetadataKey<Ascii>, MetadataValue<Ascii>);

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
    /// The signals that the collector refuses. It is told once.
    is_refused: [bool; Signal::ALL.len()],
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
            is_refused: Default::default(),
            began: unix_time().into(),
        }
    }

    /// Exports forever.
    pub async fn run(&mut self) {
        let mut next_metrics = self.options.metrics_every.map(|every| Instant::now() + every);
        let mut is_away = false;
        loop {
            tokio::time::sleep(if is_away { RETRY_AFTER } else { SEND_EVERY }).await;
            let mut sent = self.send_spans().await.and(self.send_lines().await);
            if let (Some(due), Some(every)) = (next_metrics, self.options.metrics_every)
                && Instant::now() >= due
            {
                next_metrics = Some(Instant::now() + every);
                sent = sent.and(self.send_metrics().await);
            }
            let address = &self.options.address;
            match &sent {
                Ok(()) if is_away => tracing::info!("the collector at {address} answers again"),
                Err(error) if !is_away => {
                    let why = error.message();
                    tracing::warn!("the collector at {address}: {why}; trying again");
                }
                _ => {}
            }
            is_away = sent.is_err();
        }
    }

    /// Sends what is queued, and the metrics a last time. It tries once.
    pub async fn flush(&mut self) {
        let _ = self.send_spans().await.and(self.send_lines().await);
        if self.options.metrics_every.is_some() {
            let _ = self.send_metrics().await;
        }
    }

    async fn send_metrics(&mut self) -> Result<(), Status> {
        let page = (self.metrics)();
        let (request, points) = metrics::request(&page, self.resource(), self.began);
        let request = self.request(request);
        let answer = match self.connected().await {
            Ok((connection, origin)) => {
                let mut client =
                    metrics_v1::metrics_service_client::MetricsServiceClient::with_origin(
                        connection, origin,
                    );
                within(client.export(request)).await
            }
            Err(error) => Err(error),
        };
        let rejected = |answer: ExportMetricsServiceResponse| {
            answer.partial_success.map_or(0, |partial| partial.rejected_data_points)
        };
        // The next page has newer numbers.
        self.ended(Signal::Metrics, points, answer.map(rejected)).map(drop)
    }

    async fn send_spans(&mut self) -> Result<(), Status> {
        loop {
            while self.unsent_records.len() < QUEUE_MAX
                && let Some(record) = self.records.as_mut().and_then(|all| all.try_recv().ok())
            {
                self.unsent_records.push_back(record);
            }
            let batch =
                batch(self.unsent_records.iter().map(|record| spans::count(record)), SPANS_MAX);
            if batch == 0 {
                return Ok(());
            }
            let records = self.unsent_records.range(..batch);
            let (request, count) = spans::request(records, self.resource());
            let request = self.request(request);
            let answer = match self.connected().await {
                Ok((connection, origin)) => {
                    let mut client =
                        trace_v1::trace_service_client::TraceServiceClient::with_origin(
                            connection, origin,
                        );
                    within(client.export(request)).await
                }
                Err(error) => Err(error),
            };
            let rejected = |answer: ExportTraceServiceResponse| {
                answer.partial_success.map_or(0, |partial| partial.rejected_spans)
            };
            self.ended(Signal::Spans, count, answer.map(rejected))?;
            self.unsent_records.drain(..batch);
        }
    }

    async fn send_lines(&mut self) -> Result<(), Status> {
        loop {
            self.counts.add_dropped(Signal::Logs, logs::take_dropped());
            while self.unsent_lines.len() < QUEUE_MAX
                && let Some(line) = self.lines.as_mut().and_then(|all| all.try_recv().ok())
            {
                self.unsent_lines.push_back(line);
            }
            let batch = batch(self.unsent_lines.iter().map(LogLine::bytes), LINES_BYTES_MAX);
            if batch == 0 {
                return Ok(());
            }
            let request = logs::request(self.unsent_lines.range(..batch), self.resource());
            let request = self.request(request);
            let answer = match self.connected().await {
                Ok((connection, origin)) => {
                    let mut client = logs_v1::logs_service_client::LogsServiceClient::with_origin(
                        connection, origin,
                    );
                    within(client.export(request)).await
                }
                Err(error) => Err(error),
            };
            let rejected = |answer: ExportLogsServiceResponse| {
                answer.partial_success.map_or(0, |partial| partial.rejected_log_records)
            };
            self.ended(Signal::Logs, batch, answer.map(rejected))?;
            self.unsent_lines.drain(..batch);
        }
    }

    /// Counts what became of a call with `count` items. Fails if they should be sent again.
    fn ended(
        &mut self,
        signal: Signal,
        count: usize,
        answer: Result<i64, Status>,
    ) -> Result<(), Status> {
        let status = match answer {
            Ok(rejected) => {
                self.counts.add_exported(signal, count, rejected);
                return Ok(());
            }
            Err(status) => status,
        };
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        if is_retryable(status.code()) {
            self.connection = None;
            return Err(status);
        }
        self.counts.add_dropped(signal, count);
        if !std::mem::replace(&mut self.is_refused[signal as usize], true) {
            let (address, name) = (&self.options.address, signal.name());
            let (code, why) = (status.code(), status.message());
            tracing::warn!("the collector at {address} refuses {name}: {code:?}: {why}");
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

    async fn connected(&mut self) -> Result<(Connection, Uri), Status> {
        let origin = api::wire::origin(&self.options.address)?;
        if let Some(open) = self.connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok((open.clone(), origin));
        }
        let opening = Connection::open(&self.options.address);
        let opened = tokio::time::timeout(CALL_LIMIT, opening).await;
        let opened = opened.map_err(|_| Status::unavailable("no connection in time"))?;
        let opened = opened.map_err(|error| Status::unavailable(error.to_string()))?;
        self.connection = Some(opened.clone());
        Ok((opened, origin))
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

/// Returns whether the same data may be sent again after a call that has failed with this code (OTLP specification 1,
/// "Failures" of OTLP/gRPC). An exhausted collector may be tried again only when it says so, in a field
/// that is not read here, so its code is not among them.
const fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// Returns how many of the first items fit one call: at least one, if there is any.
fn batch(sizes: impl Iterator<Item = usize>, max: usize) -> usize {
    let mut sum = 0;
    sizes
        .take_while(|size| {
            let is_first = sum == 0;
            sum += size.max(&1);
            is_first || sum <= max
        })
        .count()
}

/// The records, and likewise the lines, that wait for the exporter, and as many that wait for the collector.
pub(crate) const QUEUE_MAX: usize = 2_048;

/// The spans of one call, of up to about 400 bytes each. Collectors take 4 MiB.
const SPANS_MAX: usize = 2_048;

/// The log of one call (bytes).
const LINES_BYTES_MAX: usize = 1 << 20;

/// The time between two looks at the queues.
const SEND_EVERY: Duration = Duration::from_secs(1);

/// The time until the next try after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The longest wait for a connection or for an answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_least_one_item() {
        assert_eq!(batch([].into_iter(), 10), 0);
        assert_eq!(batch([100, 1].into_iter(), 10), 1);
        assert_eq!(batch([4, 4, 2, 1].into_iter(), 10), 3);
        assert_eq!(batch([0; 20].into_iter(), 10), 10);
    }
}
