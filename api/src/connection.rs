//! One HTTP/2 connection for the calls of one thread, used by the generated clients. It has none of the queues and
//! layers of a [`tonic::transport::Channel`]. It does not reconnect, wait or retry. Its owner must do so.

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

/// A handle to a connection. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Connection(SendRequest<Body>);

impl Connection {
    /// Connects, and starts a task of this thread that drives the connection. The caller must run on a tokio
    /// `LocalRuntime` or `LocalSet`.
    ///
    /// # Errors
    /// Returns the system's errors, and the errors of the handshakes of TLS and HTTP/2 with the service. TLS uses the
    /// credentials of [`tls::outgoing`].
    pub async fn open(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Self::over(stream).await
            }
            Address::Tls(address) => {
                let stream = tls::outgoing()?.connect(address, tls::Application::Http2).await?;
                Self::over(stream).await
            }
            Address::Unix(path) => Self::over(UnixStream::connect(path).await?).await,
        }
    }

    /// Returns whether the connection has ended, so that it accepts no more calls.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Self> {
        let opened = wire::client(ThisThread).handshake(TokioIo::new(stream)).await;
        let (calls, connection) = opened.map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            // Calls in flight receive the error themselves.
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

/// An executor that runs the connection's tasks on the thread that opened it.
#[derive(Clone, Copy, Debug)]
struct ThisThread;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for ThisThread {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}
