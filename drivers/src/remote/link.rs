//! One HTTP/2 connection to a service, from the connection attempt to its end. It never reconnects.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use api::Address;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// The connection. Dropping it closes the socket, even if calls are in flight.
#[derive(Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    task: AbortHandle,
}

/// The part of the connection that starts calls.
#[derive(Clone, Debug)]
pub struct Wire(http2::SendRequest<Body>);

#[derive(Debug)]
enum State {
    Connecting,
    Open(Wire),
    Gone,
}

impl Link {
    /// Starts to connect, in a task of `executor`.
    pub(super) fn open(executor: &Handle, address: Address, connect_timeout: Duration) -> Self {
        let (set, state) = watch::channel(State::Connecting);
        let task = executor.spawn(async move {
            match connect(&address, connect_timeout, &set).await {
                Ok(()) => tracing::info!("{address} closed the connection"),
                Err(error) => tracing::warn!("compression service {address}: {error}"),
            }
            set.send_replace(State::Gone);
        });
        Self { state, task: task.abort_handle() }
    }

    /// Returns whether the connection failed or has ended.
    pub(super) fn is_gone(&self) -> bool {
        match &*self.state.borrow() {
            State::Connecting => self.state.has_changed().is_err(),
            State::Open(wire) => wire.0.is_closed(),
            State::Gone => true,
        }
    }

    /// Waits for the connection and returns its part that starts calls.
    ///
    /// # Errors
    /// `UNAVAILABLE` when the connection failed.
    pub(super) fn wire(&self) -> impl Future<Output = Result<Wire, Status>> + use<> {
        let mut state = self.state.clone();
        async move {
            let known = state.wait_for(|state| !matches!(state, State::Connecting)).await;
            match known.as_deref() {
                Ok(State::Open(wire)) => Ok(wire.clone()),
                _ => Err(Status::unavailable("no connection to the service")),
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Service<hyper::Request<Body>> for Wire {
    type Response = hyper::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

async fn connect(
    address: &Address,
    limit: Duration,
    state: &watch::Sender<State>,
) -> Result<(), Problem> {
    let late = |_| format!("no connection within {} ms", limit.as_millis());
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address);
            let stream = tokio::time::timeout(limit, stream).await.map_err(late)??;
            stream.set_nodelay(true)?;
            converse(stream, state).await
        }
        Address::Tls(address) => {
            let client = tls::outgoing()?;
            let stream = client.connect(address, tls::Application::Http2);
            let stream = tokio::time::timeout(limit, stream).await.map_err(late)??;
            converse(stream, state).await
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path);
            let stream = tokio::time::timeout(limit, stream).await.map_err(late)??;
            converse(stream, state).await
        }
    }
}

/// Runs the connection until its end.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    state: &watch::Sender<State>,
) -> Result<(), Problem> {
    let builder = api::wire::client(TokioExecutor::new());
    let (wire, connection) = builder.handshake(TokioIo::new(stream)).await?;
    state.send_replace(State::Open(Wire(wire)));
    Ok(connection.await?)
}

/// A thread with its own executor, for a queue on a thread without an executor. The thread ends when this handle is
/// dropped.
#[derive(Debug)]
pub(super) struct ConnectionThread {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl ConnectionThread {
    pub(super) fn start() -> io::Result<Self> {
        let executor = Builder::new_current_thread().enable_all().build()?;
        let handle = executor.handle().clone();
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("remote".to_owned()).spawn(move || {
            // The channel never sends a value. Its other end is dropped.
            let _ = executor.block_on(ended);
            // The shutdown does not wait for a name that is still being resolved.
            executor.shutdown_background();
        })?;
        Ok(Self { handle, _end: end })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
