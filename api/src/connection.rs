//! One HTTP/2 connection that calls of one thread go out on, under the generated clients. It has none of the queues and
//! layers of a [`tonic::transport::Channel`]. It does not reconnect, wait or retry: its owner does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tonic::body::Body;

use crate::{Address, wire};

/// The way into a connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Connection(SendRequest<Body>);

impl Connection {
    /// Connects, and keeps the connection going in a task of this thread: the caller runs on a tokio `LocalRuntime` or
    /// `LocalSet`.
    ///
    /// # Errors
    /// The system's errors, and the answer of the service's end to the first frames.
    pub async fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Self::over(stream).await
            }
            Address::Unix(path) => Self::over(UnixStream::connect(path).await?).await,
        }
    }

    /// Returns whether it has ended, so that no call can go out any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Self> {
        let opened = wire::client(ThisThread).handshake(TokioIo::new(stream)).await;
        let (calls, connection) = opened.map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            // Calls under way learn of it themselves.
            let _ended = connection.await;
        });
        Ok(Self(calls))
    }
}

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// An executor that keeps the connection's tasks on the thread that opened it.
#[derive(Clone, Copy, Debug)]
struct ThisThread;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for ThisThread {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}
