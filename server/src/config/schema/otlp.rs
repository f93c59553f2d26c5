//! The section `[otlp]`: the collector to which metrics, spans and the log are sent.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::keys::{Key, Kind, TIME_MS_MAX, restart};

/// The collector to which metrics, spans and the log are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpConfig {
    /// The OpenTelemetry collector (OTLP over gRPC, usually port 4317): `HOST:PORT`, `tls://HOST:PORT` or the path of a
    /// Unix socket. Empty means none.
    pub address: String,
    /// What is sent, any of `metrics`, `spans` and `logs`. Spans are the requests that `[requests]` records.
    pub signals: Vec<SignalName>,
    /// The time between two exports of the metrics. Spans and lines of the log are sent after at most a second.
    pub metrics_every_ms: u64,
    /// File with lines `NAME: VALUE` that go along with each call as gRPC metadata, such as a token. Lines that begin
    /// with `#` are comments.
    pub headers_file: Option<PathBuf>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        Self {
            address: String::new(),
            signals: vec![SignalName::Metrics, SignalName::Spans, SignalName::Logs],
            metrics_every_ms: 10_000,
            headers_file: None,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("otlp.address", Kind::GrpcAddress),
    restart("otlp.signals", Kind::Choices(&["metrics", "spans", "logs"])),
    restart("otlp.metrics_every_ms", Kind::Count(100, TIME_MS_MAX)),
    restart("otlp.headers_file", Kind::Path),
];

/// A kind of data that is sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum SignalName {
    Metrics,
    Spans,
    Logs,
}
