//! Serves the admin pages over HTTP/1, with one request per connection, so that each connection is short. The
//! pages share a thread with the acceptors and block it only to wait for sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use report::{Column, Link, Report, Section, Table};
use tls::Application;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tower_service::Service;

use super::hosts;
use super::{Admin, exposition, metrics, pprof, requests, scheduler};
use crate::accept::AcceptErrors;
use crate::config::split_tls;
use crate::scheduler::view::View;
use crate::supervise::keep;
use crate::tls::Tls;

/// Serves the pages for as long as the future is polled.
pub(crate) async fn serve(
    listeners: Vec<std::net::TcpListener>,
    admin: Arc<Admin>,
    errors: Arc<AcceptErrors>,
) {
    let mut acceptors = JoinSet::new();
    let is_tls = split_tls(&admin.plan.config.server.admin_listen).0;
    let tls = is_tls.then(|| Arc::clone(&admin.plan.tls));
    let pages = pages(admin);
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                let (pages, errors, tls) = (pages.clone(), Arc::clone(&errors), tls.clone());
                acceptors.spawn(async move {
                    let restarts = &errors.control.restarts_admin;
                    let accept = || accept(&listener, tls.as_ref(), &pages, &errors);
                    keep("admin", restarts, accept).await;
                });
            }
            Err(error) => tracing::error!(%error, "the admin listener could not be taken over"),
        }
    }
    while acceptors.join_next().await.is_some() {}
}

/// Accepts connections. At the limit, a new one replaces the oldest, so that no client can lock out probes.
async fn accept(
    listener: &TcpListener,
    tls: Option<&Arc<Tls>>,
    pages: &Router,
    errors: &AcceptErrors,
) {
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                while connections.try_join_next().is_some() {}
                oldest_first.retain(|connection| !connection.is_finished());
                if oldest_first.len() == CONNECTIONS_MAX
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
                let attended = attend(stream, from, tls.cloned(), pages.clone());
                oldest_first.push_back(connections.spawn(attended));
            }
            Err(error) => errors.pause(&error).await,
        }
    }
}

async fn attend(socket: TcpStream, from: SocketAddr, tls: Option<Arc<Tls>>, pages: Router) {
    let Some(tls) = tls else { return converse(socket, pages).await };
    if let Some(session) = tls.handshake(&socket, from, Application::Http1).await {
        converse(::tls::Stream::new(socket, session), pages).await;
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, pages: Router) {
    let profiles = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&profiles);
    let service = service_fn(move |request: hyper::Request<_>| {
        asked.store(request.uri().path().starts_with(PROFILES), Ordering::Relaxed);
        pages.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .keep_alive(false)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut ended = tokio::time::timeout(CONNECTION_LIMIT, &mut connection).await;
    if ended.is_err() && profiles.load(Ordering::Relaxed) {
        ended = tokio::time::timeout(PROFILE_LIMIT, connection).await;
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin connection ended"),
        Err(_) => tracing::debug!("admin connection was too slow"),
    }
}

fn pages(admin: Arc<Admin>) -> Router {
    type Admins = State<Arc<Admin>>;
    Router::new()
        .route("/", get(async || Html(index())))
        .route(
            "/metrics",
            get(async |State(admin): Admins| {
                ([(CONTENT_TYPE, exposition::CONTENT_TYPE)], metrics::render(&admin))
            }),
        )
        .route(
            "/healthz",
            get(async |State(admin): Admins| {
                health(admin.plan.liveness.problem().map_or(Ok("ok".to_owned()), Err))
            }),
        )
        .route("/readyz", get(async |State(admin): Admins| health(admin.readiness().check().await)))
        .route("/config", get(async |State(admin): Admins| admin.config()))
        .route(
            "/requests",
            get(async |State(admin): Admins| Html(requests::html(&admin.plan.requests))),
        )
        .route(
            "/requests.json",
            get(async |State(admin): Admins| {
                ([(CONTENT_TYPE, "application/json")], requests::json(&admin.plan.requests))
            }),
        )
        .route(PROFILES, get(profile))
        .route(PROFILE, get(profile))
        .route("/scheduler", get(|admin, query| snapshot(admin, query, html)))
        .route("/scheduler.json", get(|admin, query| snapshot(admin, query, json)))
        .fallback((StatusCode::NOT_FOUND, "no such page\n"))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin), guard))
        .with_state(admin)
}

/// Refuses requests for unknown hosts, and adds headers that keep browsers from caching the page, loading
/// other resources and guessing the media type.
async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let checked = hosts::check(&request, &admin.config.read().server);
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err((status, why)) => (status, why + "\n").into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NOTHING_BUT_STYLE));
    response
}

fn health(answer: Result<String, String>) -> (StatusCode, String) {
    match answer {
        Ok(text) => (StatusCode::OK, text + "\n"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
    }
}

async fn profile(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> Response {
    pprof::answer(&admin, query.as_deref()).await
}

/// Returns a page of the scheduler's data, if this process has a scheduler.
async fn snapshot(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
    show: fn(&View) -> Response,
) -> Response {
    let plan = &admin.plan;
    let Some(gathering) = &plan.scheduler else {
        let why = "this process is no scheduler: it needs the role and server.grpc_listen\n";
        return (StatusCode::NOT_FOUND, why).into_response();
    };
    show(&gathering.view(scheduler::window_ms(query.as_deref()), plan.clock.now()))
}

fn html(view: &View) -> Response {
    Html(scheduler::html(view)).into_response()
}

fn json(view: &View) -> Response {
    ([(CONTENT_TYPE, "application/json")], scheduler::json(view)).into_response()
}

fn index() -> String {
    let links = PAGES.map(|(href, _)| Link { href, text: href, is_here: href == "/" });
    let rows = PAGES.map(|(path, what)| vec![path.to_owned(), what.to_owned()]);
    let table = Table {
        caption: "What each of them shows.".to_owned(),
        header: ["page", "what"].map(Column::text).into(),
        rows: rows.into(),
    };
    let section =
        Section { heading: "Pages".to_owned(), tables: vec![table], ..Section::default() };
    let report =
        Report { title: "rebate".to_owned(), sections: vec![section], ..Report::default() };
    report.served(None, &links)
}

const PAGES: [(&str, &str); 10] = [
    ("/", "this page"),
    ("/metrics", "what the server counts, for Prometheus"),
    ("/healthz", "whether the process can do its work, and why not"),
    ("/readyz", "whether clients should be sent here, and which stores are away"),
    ("/config", "the configuration in effect"),
    ("/requests", "where the time of slow and of sampled requests went"),
    ("/requests.json", "the same for programs"),
    (PROFILE, "where the CPU time goes in the next 10 s, as a file of pprof; ?seconds=N takes N s"),
    ("/scheduler", "what was reported to this process, where it is a scheduler"),
    ("/scheduler.json", "the same for programs"),
];

/// The content security policy of the pages, which forbids loading other resources.
const NOTHING_BUT_STYLE: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The maximum number of connections per listener.
const CONNECTIONS_MAX: usize = 64;
/// The timeout for reading the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// The longest lifetime of a connection, which is Prometheus' default scrape timeout.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// The further lifetime of a connection that waits for a profile.
const PROFILE_LIMIT: Duration = Duration::from_secs(pprof::SECONDS_MAX + 10);

/// The page of profiles.
const PROFILES: &str = "/debug/pprof";
/// Its other name, under which Go's tool asks for it.
const PROFILE: &str = "/debug/pprof/profile";
