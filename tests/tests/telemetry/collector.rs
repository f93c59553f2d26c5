//! A collector that keeps what it is sent, behind OpenTelemetry's own service interface.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use api::tonic::transport::Server;
use api::tonic::transport::server::TcpIncoming;
use api::tonic::{Request, Response, Status, async_trait};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::oneshot;

/// What a collector was sent.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Sent>>);

#[derive(Default)]
pub(crate) struct Sent {
    /// The spans, each with the instance that sent it.
    pub(crate) spans: Vec<(String, Span)>,
    /// The names of metrics, and the numbers of their data points in the last message.
    pub(crate) metrics: Vec<String>,
    /// The messages of log lines, each with its severity.
    pub(crate) lines: Vec<(String, String)>,
    /// The tokens that came with the calls.
    pub(crate) tokens: Vec<Option<String>>,
}

/// The collector. It runs on a separate thread until this value is dropped.
pub(crate) struct Collector {
    pub(crate) address: String,
    kept: Kept,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let (up, is_up) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let kept = Kept::default();
        let keeping = kept.clone();
        let thread = std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
            executor.expect("an executor").block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                up.send(listener.local_addr().expect("an address")).expect("someone waits");
                let server = Server::builder()
                    .add_service(TraceServiceServer::new(keeping.clone()))
                    .add_service(MetricsServiceServer::new(keeping.clone()))
                    .add_service(LogsServiceServer::new(keeping));
                tokio::select! {
                    _ = server.serve_with_incoming(TcpIncoming::from(listener)) => {}
                    _ = ended => {}
                }
            });
        });
        let address = is_up.recv().expect("the collector listens").to_string();
        Self { address, kept, end: Some(end), thread: Some(thread) }
    }

    /// Looks at what was sent so far.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Sent) -> T) -> T {
        look(&self.kept.0.lock().expect("no test panicked here"))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Kept {
    fn keep<T>(&self, request: Request<T>, keep: impl FnOnce(&mut Sent, T)) {
        let token = request.metadata().get("authorization");
        let token = token.and_then(|text| text.to_str().ok()).map(str::to_owned);
        let mut sent = self.0.lock().expect("no test panicked here");
        sent.tokens.push(token);
        keep(&mut sent, request.into_inner());
    }
}

#[async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.keep(request, |sent, request| {
            for from in request.resource_spans {
                let resource = from.resource.unwrap_or_default();
                let instance = resource.attributes.iter().find(|a| a.key == "service.instance.id");
                let instance = format!("{:?}", instance.and_then(|found| found.value.clone()));
                let spans = from.scope_spans.into_iter().flat_map(|scope| scope.spans);
                sent.spans.extend(spans.map(|span| (instance.clone(), span)));
            }
        });
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[async_trait]
impl MetricsService for Kept {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.keep(request, |sent, request| {
            let scopes = request.resource_metrics.into_iter().flat_map(|from| from.scope_metrics);
            let metrics = scopes.flat_map(|scope| scope.metrics);
            sent.metrics = metrics.map(|metric| metric.name).collect();
        });
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

#[async_trait]
impl LogsService for Kept {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.keep(request, |sent, request| {
            let scopes = request.resource_logs.into_iter().flat_map(|from| from.scope_logs);
            for record in scopes.flat_map(|scope| scope.log_records) {
                let message = format!("{:?}", record.body.and_then(|body| body.value));
                sent.lines.push((record.severity_text, message));
            }
        });
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}
