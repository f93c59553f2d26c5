//! A session on a TCP socket of tokio.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::session::EXPORTED_KEY_BYTES;
use crate::{Identity, Session, Wire};

/// A TLS connection after its handshake. Dropping it tells the peer that no more bytes follow.
pub struct Stream {
    socket: TcpStream,
    session: RefCell<Session>,
}

/// Performs the handshake of `session` on `socket`.
///
/// # Errors
/// Returns any error that ends the connection. [`crate::HandshakeFailure::from_error`] has its reason.
pub async fn handshake(socket: &TcpStream, session: &mut Session) -> io::Result<()> {
    poll_fn(|task| {
        loop {
            match session.handshake(socket) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => ready!(socket.poll_read_ready(task))?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(socket.poll_write_ready(task))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    })
    .await
}

impl Stream {
    /// Combines a socket and its session, whose handshake is complete.
    pub fn new(socket: TcpStream, session: Session) -> Self {
        Self { socket, session: RefCell::new(session) }
    }

    /// Returns the identity of the peer, if it has shown a certificate.
    pub fn identity(&self) -> Option<Identity> {
        self.session.borrow().identity().cloned()
    }

    pub(crate) fn peer_expires_unix_s(&self) -> Option<i64> {
        self.session.borrow().peer_expires_unix_s()
    }

    /// Returns a key that only both ends of this connection have, see [`Session::export_key`].
    ///
    /// # Errors
    /// Returns an error of rustls.
    pub fn export_key(&self, label: &str) -> io::Result<[u8; EXPORTED_KEY_BYTES]> {
        self.session.borrow().export_key(label)
    }

    /// Returns the address of the other end.
    ///
    /// # Errors
    /// Returns the system's error if the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    /// Returns the system's error if the connection has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Polls whether the stream may be read. Only one task at a time may wait for that.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.session.borrow().may_have_more() {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(context)
    }

    /// Polls whether the socket may be written. Only one task at a time may wait for that.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(context)
    }

    /// Reads available bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there are none, and any error that ends the connection.
    pub fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        self.session.borrow_mut().read(space, &self.socket)
    }

    /// Writes bytes, see [`Session::write`]: after `WouldBlock`, the next call must begin with the same bytes.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket accepts no more bytes, and any error that ends the connection.
    pub fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.session.borrow_mut().write(slices, &self.socket)
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.session.get_mut().close(&self.socket);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS on {:?}", self.socket)
    }
}

impl Wire for TcpStream {
    fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        let received = self.try_read(space);
        if matches!(received, Ok(bytes) if 0 < bytes && bytes < space.len()) {
            // The socket is empty. Saying so saves a call that would return `WouldBlock`.
            let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.try_io(Interest::READABLE, empty);
        }
        received
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [slice] => self.try_write(slice),
            _ => self.try_write_vectored(slices),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            match stream.session.get_mut().read(space.initialize_unfilled(), &stream.socket) {
                Ok(bytes) => {
                    space.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(stream.socket.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Stream {
    fn poll_io<T>(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Session, &TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(self.session.get_mut(), &self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                ended => return Poll::Ready(ended),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_io(context, |session, socket| session.push(slices, socket))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_io(context, |session, socket| session.flush(socket))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_io(context, |session, socket| {
            session.close(socket);
            session.flush(socket)
        }))?;
        Pin::new(&mut stream.socket).poll_shutdown(context)
    }
}
