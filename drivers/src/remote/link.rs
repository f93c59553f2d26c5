//! One HTTP/2 connection to a service, from the attempt to its end. It is never made again: its end is final.

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

/// The connection. Dropping it closes the socket, whatever is under way.
#[derive(Debug)]
pub(super) struct Link {
    state: watch::Receiver<State>,
    task: AbortHandle,
}

/// The connection's side that calls go into.
#[derive(Clone, Debug)]
pub struct Wire(http2::SendRequest<Body>);

#[derive(Debug)]
enum State {
    Connecting,
    Open(Wire),
    Gone,
}

impl Link {
    /// Begins to connect, in a task of `executor`.
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

    /// Returns the way in, once there is one.
    ///
    /// # Errors
    /// `UNAVAILABLE` when there will be none.
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
        Address::Unix(path) => {
            let stream = UnixStream::connect(path);
            let stream = tokio::time::timeout(limit, stream).await.map_err(late)??;
            converse(stream, state).await
        }
    }
}

/// Serves the connection to its end.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    state: &watch::Sender<State>,
) -> Result<(), Problem> {
    let builder = api::wire::client(TokioExecutor::new());
    let (wire, connection) = builder.handshake(TokioIo::new(stream)).await?;
    state.send_replace(State::Open(Wire(wire)));
    Ok(connection.await?)
}

/// A thread with an executor of its own, for a queue on a thread that has none. It ends with this handle.
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
            // Nothing is ever sent: the other end goes away.
            let _ = executor.block_on(ended);
            // A name that is still being resolved is not waited for.
            executor.shutdown_background();
        })?;
        Ok(Self { handle, _end: end })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
