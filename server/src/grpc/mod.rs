//! gRPC connections: HTTP/2 on the worker's event loop. This module charges memory and enforces deadlines,
//! and passes each call to the service that its path names. The other files have the services.

mod cache;
mod call;
mod caller;
mod charge;
mod compression;
mod health;
mod router;
mod scheduler;
mod store;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::access::{Client, Origin};
use crate::context::WorkerContext;
use crate::session::Open;
use crate::stream::Stream;
use crate::worker::ListenerProtocol;
use caller::Callers;
use charge::Meter;
pub(crate) use health::Health;
use router::Router;

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, from: Option<SocketAddr>, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Grpc);
    let _counted = context.counters.grpc.connections.during();
    let origin = Origin::new(&stream, from);
    let Ok(client) = Client::enter(&context, || origin.clone()) else { return };
    let callers = Callers::new(&context, client, &origin);
    if let Err(error) = converse(stream, &context, callers).await {
        tracing::debug!(%error, "gRPC connection ended");
    }
}

async fn converse(
    stream: Stream,
    context: &Rc<WorkerContext>,
    callers: Callers,
) -> hyper::Result<()> {
    let meter = Meter::of_connection(context);
    let router = Rc::new(Router::new(context, Rc::clone(&meter), callers));
    let answer = move |request| Rc::clone(&router).answer(request);
    let mut builder = http2::Builder::new(ThisThread);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(api::wire::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(api::wire::CONNECTION_WINDOW_BYTES)
        .max_frame_size(api::wire::FRAME_BYTES_MAX)
        .max_concurrent_streams(api::wire::CALLS_MAX)
        // A frontend may cancel all of its jobs at once; this is not an attack.
        .max_pending_accept_reset_streams(Some(api::wire::CALLS_MAX as usize))
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    let mut watch = ShutdownWatch { context, at: None };
    let mut stalled = pin!(meter.stalled());
    let mut is_shutting_down = false;
    poll_fn(|task| {
        if !is_shutting_down && context.is_draining() {
            connection.as_mut().graceful_shutdown();
            is_shutting_down = true;
        } else if !is_shutting_down {
            context.shutdown.watch(&mut watch.at, task.waker());
        }
        match connection.as_mut().poll(task) {
            // A stalled connection is closed, and its calls are dropped with it.
            Poll::Pending => stalled.as_mut().poll(task).map(Ok),
            ended => ended,
        }
    })
    .await
}

/// The registration of a connection to be woken when the server drains.
struct ShutdownWatch<'a> {
    context: &'a WorkerContext,
    at: Option<usize>,
}

impl Drop for ShutdownWatch<'_> {
    fn drop(&mut self) {
        self.context.shutdown.leave(self.at);
    }
}

/// Runs calls on the thread of their connection.
#[derive(Clone, Copy)]
struct ThisThread;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for ThisThread {
    fn execute(&self, call: F) {
        tokio::task::spawn_local(call);
    }
}

/// The largest headers of one call (bytes). This is gRPC's default.
const HEADER_BYTES_MAX: u32 = 16 << 10;

/// The interval of pings. A client that disappears is detected within this time plus the timeout.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
