//! The export of metrics, spans and log lines to a collector: its set-up from the configuration, and the thread that
//! sends. The thread does nothing else, so a slow collector or a long page of metrics holds up nobody.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use telemetry::Record;
use telemetry::otlp::{ExportCounts, Exporter, Header, Options, Signal, SpanQueue, keep_log};
use tokio::sync::{mpsc, oneshot};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};

use crate::StartError;
use crate::access::{read_bounded, warn_if_readable};
use crate::admin::Admin;
use crate::config::{Config, OtlpConfig, SignalName};
use crate::scheduler::instance;
use crate::supervise::keep;
use crate::worker::Plan;

/// The queue of spans, and what became of everything that was exported. Without a collector, nothing is queued.
#[derive(Default)]
pub(crate) struct Export {
    pub(crate) counts: Arc<ExportCounts>,
    spans: Option<SpanQueue>,
    /// What the thread needs, until it starts.
    set_up: Mutex<Option<SetUp>>,
}

struct SetUp {
    options: Options,
    spans: Option<mpsc::Receiver<Arc<Record>>>,
    with_log: bool,
}

impl Export {
    /// Prepares the export, if a collector is configured.
    ///
    /// # Errors
    /// The address or the file with headers is wrong.
    pub(crate) fn new(config: &Config) -> Result<Self, StartError> {
        let OtlpConfig { address, signals, metrics_every_ms, headers_file } = &config.otlp;
        if address.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: String| StartError::Config(format!("otlp.{why}"));
        let address = address.parse().map_err(|error| wrong(format!("address: {error}")))?;
        let headers = match headers_file {
            Some(path) => headers(path).map_err(|why| wrong(format!("headers_file: {why}")))?,
            None => Vec::new(),
        };
        let with_metrics = signals.contains(&SignalName::Metrics);
        let options = Options {
            address,
            metrics_every: with_metrics.then(|| Duration::from_millis(*metrics_every_ms)),
            instance: instance(config),
            version: env!("CARGO_PKG_VERSION"),
            headers,
        };
        let counts = Arc::<ExportCounts>::default();
        let queue =
            signals.contains(&SignalName::Spans).then(|| SpanQueue::new(Arc::clone(&counts)));
        let (queue, spans) = queue.unzip();
        let with_log = signals.contains(&SignalName::Logs);
        let set_up = Mutex::new(Some(SetUp { options, spans, with_log }));
        Ok(Self { counts, spans: queue, set_up })
    }

    /// Queues the spans of a request, if spans are exported.
    pub(crate) fn put(&self, record: &Arc<Record>) {
        if let Some(spans) = &self.spans {
            spans.put(record);
        }
    }

    /// Returns, for each signal, what the collector took and what was dropped.
    pub(crate) fn by_signal(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let counts = |signal: Signal| {
            (signal.name(), self.counts.exported(signal), self.counts.dropped(signal))
        };
        Signal::ALL.into_iter().map(counts)
    }
}

/// The thread that exports. Dropping it sends what is queued, within a second.
pub(crate) struct ExportThread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ExportThread {
    /// Starts the thread, if a collector is configured.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(plan: &Arc<Plan>, admin: &Arc<Admin>) -> Result<Option<Self>, StartError> {
        let Some(SetUp { options, spans, with_log }) = plan.export.set_up.lock().take() else {
            return Ok(None);
        };
        let lines = with_log.then(keep_log);
        let (admin, counts) = (Arc::clone(admin), Arc::clone(&plan.export.counts));
        let exporter = Exporter::new(options, counts, spans, lines, move || admin.metrics());
        let (end, ended) = oneshot::channel();
        let watched = Arc::clone(plan);
        let thread = std::thread::Builder::new()
            .name("rebate-otlp".to_owned())
            .spawn(move || run(&watched, exporter, ended))
            .map_err(StartError::Thread)?;
        Ok(Some(Self { end: Some(end), thread: Some(thread) }))
    }
}

impl Drop for ExportThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A defect of the exporter was logged, and ends nothing else.
            let _ = thread.join();
        }
    }
}

fn run<M: Fn() -> String>(plan: &Plan, exporter: Exporter<M>, ended: oneshot::Receiver<()>) {
    let options = tokio::runtime::LocalOptions::default();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build_local(options);
    let Ok(executor) = executor else {
        return tracing::error!("there is no event loop for otlp.address: nothing is exported");
    };
    let exporter = tokio::sync::Mutex::new(exporter);
    executor.block_on(async {
        let restarts = &plan.control.restarts_otlp;
        let exporting = keep("otlp", restarts, async || exporter.lock().await.run().await);
        tokio::select! {
            () = exporting => {}
            _ = ended => {}
        }
        let flushing = async { exporter.lock().await.flush().await };
        let _ = tokio::time::timeout(FLUSH_LIMIT, flushing).await;
    });
    executor.shutdown_background();
}

/// Reads lines `NAME: VALUE`.
fn headers(path: &Path) -> Result<Vec<Header>, String> {
    let text = read_bounded(path)?;
    warn_if_readable(path);
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            // The text may be a secret.
            let wrong = || format!("{}:{number}: give NAME: VALUE in ASCII", path.display());
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name = MetadataKey::from_bytes(name.trim().to_ascii_lowercase().as_bytes());
            let mut value: MetadataValue<Ascii> = value.trim().parse().map_err(|_| wrong())?;
            value.set_sensitive(true);
            Ok((name.map_err(|_| wrong())?, value))
        })
        .collect()
}

/// The longest time that the end of the process waits for the collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_names_and_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        std::fs::write(&path, "# a token\n\nAuthorization: Bearer a:b\nx-scope:1\n").unwrap();
        let headers = headers(&path).unwrap();
        let texts: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(texts, [("authorization", "Bearer a:b"), ("x-scope", "1")]);
    }

    #[test]
    fn a_wrong_header_is_told_without_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        for line in ["secret", "sec ret: x", "x-a: secr\u{7f}et"] {
            std::fs::write(&path, format!("x-b: 1\n{line}\n")).unwrap();
            let why = headers(&path).unwrap_err();
            assert!(why.ends_with(":2: give NAME: VALUE in ASCII"), "{why}");
        }
        assert!(headers(&folder.path().join("none")).is_err());
    }
}
