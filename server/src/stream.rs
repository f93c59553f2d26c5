//! A client's or a server's connection, TCP or Unix, with the few calls that the event loops make.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Polls whether the stream may be read. Only one task at a time may wait for that.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// Polls whether the stream may be written. Only one task at a time may wait for that.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    /// Reads what is there. Returns `WouldBlock` if nothing is there, and 0 at the end of the stream.
    pub(crate) fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Stream::Tcp(stream) => stream.try_read(space),
            Stream::Unix(stream) => stream.try_read(space),
        };
        if matches!(read, Ok(bytes) if 0 < bytes && bytes < space.len()) {
            self.forget_readable();
        }
        read
    }

    /// Marks the socket as empty, because a read that did not fill its space has emptied it. This saves the call that
    /// would only find the socket empty. The end of the stream is not forgotten, and later bytes are reported.
    fn forget_readable(&self) {
        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, empty),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, empty),
        };
    }

    /// Writes what the kernel accepts now.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Stream::Tcp(stream), [slice]) => stream.try_write(slice),
            (Stream::Unix(stream), [slice]) => stream.try_write(slice),
            (Stream::Tcp(stream), _) => stream.try_write_vectored(slices),
            (Stream::Unix(stream), _) => stream.try_write_vectored(slices),
        }
    }
}
