//! A connection to a client or a server: TCP, TLS over TCP, a Unix socket, memory that is shared with a client on this
//! host, or one of a simulated network.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use device::near::NearStream;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::connection_table::Address;
use crate::simulated;

/// A connected stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// Boxed, because it is several times as large as the others.
    Tls(Box<tls::Stream>),
    Unix(UnixStream),
    Near(Box<dyn NearStream>),
    Simulated(Box<dyn simulated::Connection>),
}

impl Stream {
    /// Returns the number of the file descriptor, by which operators and watchers know the connection.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Tls(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Near(stream) => stream.socket().as_raw_fd(),
            Stream::Simulated(stream) => stream.descriptor(),
        }
    }

    /// Returns the address on which this end was reached.
    pub(crate) fn local_address(&self) -> Address {
        // A connection that has ended has no address.
        let tcp = |local: io::Result<SocketAddr>| {
            Address::Tcp(local.unwrap_or_else(|_| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
        };
        match self {
            Stream::Tcp(stream) => tcp(stream.local_addr()),
            Stream::Tls(stream) => tcp(stream.local_addr()),
            Stream::Unix(stream) => {
                let local = stream.local_addr().ok();
                let path = local.as_ref().and_then(|address| address.as_pathname());
                Address::Unix(path.map(Into::into))
            }
            Stream::Near(stream) => Address::Near(path_of(stream.socket())),
            Stream::Simulated(stream) => Address::Tcp(stream.local_address()),
        }
    }

    /// Returns whether the peer may be on another host.
    pub(crate) const fn is_remote(&self) -> bool {
        !matches!(self, Stream::Unix(_) | Stream::Near(_))
    }

    /// Polls whether the stream may be read. Only one task at a time may wait for that.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Tls(stream) => stream.poll_readable(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
            Stream::Near(stream) => stream.poll_readable(context),
            Stream::Simulated(stream) => stream.poll_readable(context),
        }
    }

    /// Polls whether the stream may be written. Only one task at a time may wait for that.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Tls(stream) => stream.poll_writable(context),
            Stream::Unix(stream) => stream.poll_write_ready(context),
            Stream::Near(stream) => stream.poll_writable(context),
            Stream::Simulated(stream) => stream.poll_writable(context),
        }
    }

    /// Reads available bytes. Returns `WouldBlock` if there are none, and 0 at the end of the stream.
    pub(crate) fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Stream::Tcp(stream) => stream.try_read(space),
            // A TLS stream knows by itself when its socket is empty.
            Stream::Tls(stream) => return stream.try_read(space),
            Stream::Unix(stream) => stream.try_read(space),
            Stream::Near(stream) => return stream.try_read(space),
            Stream::Simulated(stream) => return stream.try_read(space),
        };
        if matches!(read, Ok(bytes) if 0 < bytes && bytes < space.len()) {
            self.forget_readable();
        }
        read
    }

    /// Marks the socket as empty after a read that did not fill its space. This saves a call that would
    /// return `WouldBlock`. The end of the stream and later bytes are still reported.
    fn forget_readable(&self) {
        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, empty),
            Stream::Tls(_) | Stream::Near(_) | Stream::Simulated(_) => Ok(()),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, empty),
        };
    }

    /// Writes what the kernel accepts now. After `WouldBlock`, the next call must begin with the same bytes, because a
    /// TLS stream has encrypted them.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Stream::Tcp(stream), [slice]) => stream.try_write(slice),
            (Stream::Unix(stream), [slice]) => stream.try_write(slice),
            (Stream::Tcp(stream), _) => stream.try_write_vectored(slices),
            (Stream::Tls(stream), _) => stream.try_write(slices),
            (Stream::Unix(stream), _) => stream.try_write_vectored(slices),
            (Stream::Near(stream), _) => stream.try_write(slices),
            (Stream::Simulated(stream), _) => stream.try_write(slices),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, space),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, space),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, space),
            Stream::Near(stream) => poll_read(&**stream, context, space),
            Stream::Simulated(stream) => simulated::poll_read(&**stream, context, space),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Near(stream) => poll_write(&**stream, context, &[IoSlice::new(bytes)]),
            Stream::Simulated(stream) => {
                simulated::poll_write(&**stream, context, &[IoSlice::new(bytes)])
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Near(stream) => poll_write(&**stream, context, slices),
            Stream::Simulated(stream) => simulated::poll_write(&**stream, context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            Stream::Near(_) | Stream::Simulated(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Near(stream) => {
                stream.shut_down();
                Poll::Ready(Ok(()))
            }
            Stream::Simulated(stream) => {
                stream.shut_down();
                Poll::Ready(Ok(()))
            }
        }
    }
}

/// Returns the path of the Unix socket on which a connection was accepted.
fn path_of(socket: BorrowedFd<'_>) -> Option<Arc<Path>> {
    let address = rustix::net::getsockname(socket).ok()?;
    let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = address.path_bytes().filter(|path| !path.is_empty())?;
    Some(Path::new(OsStr::from_bytes(path)).into())
}

fn poll_read(
    stream: &dyn NearStream,
    context: &mut Context<'_>,
    space: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        match stream.try_read(space.initialize_unfilled()) {
            Ok(bytes) => {
                space.advance(bytes);
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(stream.poll_readable(context))?;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn poll_write(
    stream: &dyn NearStream,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        match stream.try_write(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(stream.poll_writable(context))?;
            }
            result => return Poll::Ready(result),
        }
    }
}
