//! The pages over HTTP/1: one request per connection, so that a connection lives a few seconds whatever its client
//! does. Shares its thread with the acceptors and never waits on it but for sockets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::hosts;
use super::{Admin, exposition, metrics, scheduler};
use crate::accept::AcceptErrors;
use crate::supervise::keep;

/// Serves the pages for as long as it is polled.
pub(crate) async fn serve(
    listeners: Vec<std::net::TcpListener>,
    admin: Arc<Admin>,
    errors: Arc<AcceptErrors>,
) {
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                let (admin, errors) = (Arc::clone(&admin), Arc::clone(&errors));
                acceptors.spawn(async move {
                    let restarts = &errors.control.restarts_admin;
                    keep("admin", restarts, || accept(&listener, &admin, &errors)).await;
                });
            }
            Err(error) => tracing::error!(%error, "the admin listener could not be taken over"),
        }
    }
    while acceptors.join_next().await.is_some() {}
}

/// Accepts connections. A new connection takes the place of the oldest, so a client that holds many cannot keep a probe
/// from its answer.
async fn accept(listener: &TcpListener, admin: &Arc<Admin>, errors: &AcceptErrors) {
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                while connections.try_join_next().is_some() {}
                oldest_first.retain(|connection| !connection.is_finished());
                if oldest_first.len() == CONNECTIONS_MAX
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
                oldest_first.push_back(connections.spawn(attend(stream, Arc::clone(admin))));
            }
            Err(error) => errors.pause(&error).await,
        }
    }
}

async fn attend(stream: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(|request| {
        let admin = &admin;
        async move { Ok::<_, Infallible>(answer(admin, &request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .keep_alive(false)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin connection ended"),
        Err(_) => tracing::debug!("admin connection was too slow"),
    }
}

async fn answer<B>(admin: &Admin, request: &hyper::Request<B>) -> Response<Full<Bytes>> {
    if let Err((status, why)) = hosts::check(request, &admin.config.read().server) {
        return page(status, TEXT, format!("{why}\n"));
    }
    let path = request.uri().path();
    if !PAGES.iter().any(|(known, _)| *known == path) {
        return page(StatusCode::NOT_FOUND, TEXT, "no such page\n".to_owned());
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
        "/metrics" => page(StatusCode::OK, exposition::CONTENT_TYPE, metrics::render(admin)),
        "/healthz" => health(admin.plan.vitals.problem().map_or(Ok("ok".to_owned()), Err)),
        "/readyz" => health(admin.readiness().check().await),
        "/config" => page(StatusCode::OK, TEXT, admin.config()),
        "/scheduler" | "/scheduler.json" => snapshot(admin, path, request.uri().query()),
        _ => page(StatusCode::OK, HTML, index()),
    }
}

fn health(answer: Result<String, String>) -> Response<Full<Bytes>> {
    match answer {
        Ok(text) => page(StatusCode::OK, TEXT, format!("{text}\n")),
        Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
    }
}

/// The scheduler's pages, where this process is one.
fn snapshot(admin: &Admin, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let plan = &admin.plan;
    let Some(gathering) = &plan.scheduler else {
        let why = "this process is no scheduler: it needs the role and server.grpc_listen\n";
        return page(StatusCode::NOT_FOUND, TEXT, why.to_owned());
    };
    let view = gathering.view(scheduler::window_ms(query), plan.clock.now());
    match path {
        "/scheduler.json" => page(StatusCode::OK, JSON, scheduler::json(&view)),
        _ => page(StatusCode::OK, HTML, scheduler::html(&view)),
    }
}

fn page(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NOTHING_BUT_STYLE));
    response
}

fn index() -> String {
    let mut html = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n\
         <title>rebate</title>\n<h1>rebate</h1>\n<ul>\n"
        .to_owned();
    for (path, what) in PAGES.iter().filter(|(path, _)| *path != "/") {
        let _ = writeln!(html, "<li><a href=\"{path}\">{path}</a>: {what}</li>");
    }
    html.push_str("</ul>\n</html>\n");
    html
}

const PAGES: [(&str, &str); 7] = [
    ("/", "this page"),
    ("/metrics", "what the server counts, for Prometheus"),
    ("/healthz", "whether the process can do its work, and why not"),
    ("/readyz", "whether clients should be sent here, and which stores are away"),
    ("/config", "the configuration in effect"),
    ("/scheduler", "what was reported to this process, where it is a scheduler"),
    ("/scheduler.json", "the same for programs"),
];

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Pages load nothing further, from any host.
const NOTHING_BUT_STYLE: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A few scrapers, probes and people, per listener.
const CONNECTIONS_MAX: usize = 64;
/// A request of any of them is a few hundred bytes in one packet.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Prometheus waits 10 s for a scrape by default.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
