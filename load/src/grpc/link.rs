//! One HTTP/2 connection, set up as `api::wire` defines. The module counts the connection's bytes and reports its end.
//! A channel of the client library would hide both and reconnect by itself. The module makes no calls.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use api::tonic::body::Body;
use api::wire;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::address::{Address, Endpoint};

/// A connection that is up.
pub(super) struct Link {
    pub(super) sender: http2::SendRequest<Body>,
    /// A future that drives the connection until its end.
    pub(super) life: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The numbers of bytes that all connections of a thread have written and read.
#[derive(Default)]
pub(super) struct Traffic {
    out: AtomicU64,
    input: AtomicU64,
}

impl Traffic {
    /// Returns the numbers of bytes written and read.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.out.load(Ordering::Relaxed), self.input.load(Ordering::Relaxed))
    }
}

/// Creates a link over a connected socket.
pub(super) async fn adopt(
    address: &Address,
    socket: OwnedFd,
    traffic: &Arc<Traffic>,
) -> io::Result<Link> {
    match &address.endpoint {
        Endpoint::Tls { host, .. } => {
            secure(TcpStream::from_std(socket.into())?, host, traffic).await
        }
        Endpoint::Tcp(_) => handshake(TcpStream::from_std(socket.into())?, traffic).await,
        Endpoint::Unix(_) => handshake(UnixStream::from_std(socket.into())?, traffic).await,
        // No address has gRPC and shared memory.
        Endpoint::Near(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Creates a link over a new socket.
pub(super) async fn open(address: &Address, traffic: &Arc<Traffic>) -> io::Result<Link> {
    match &address.endpoint {
        Endpoint::Tcp(place) => {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            handshake(stream, traffic).await
        }
        Endpoint::Tls { place, host } => {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            secure(stream, host, traffic).await
        }
        Endpoint::Unix(path) => handshake(UnixStream::connect(path).await?, traffic).await,
        Endpoint::Near(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

async fn secure(stream: TcpStream, host: &str, traffic: &Arc<Traffic>) -> io::Result<Link> {
    let mut session = tls::outgoing()?.session(host, tls::Application::Http2)?;
    tls::handshake(&stream, &mut session).await?;
    handshake(tls::Stream::new(stream, session), traffic).await
}

async fn handshake<S>(stream: S, traffic: &Arc<Traffic>) -> io::Result<Link>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let counted = Counted { stream, traffic: Arc::clone(traffic) };
    let (sender, connection) = wire::client(TokioExecutor::new())
        .handshake(TokioIo::new(counted))
        .await
        .map_err(io::Error::other)?;
    // The connection's error is ignored here, because the calls on the connection report it.
    let life = Box::pin(async move { connection.await.unwrap_or_default() });
    Ok(Link { sender, life })
}

/// A stream that counts its bytes.
struct Counted<S> {
    stream: S,
    traffic: Arc<Traffic>,
}

impl<S> Counted<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.traffic.out.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        self.traffic.input.fetch_add(bytes as u64, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
