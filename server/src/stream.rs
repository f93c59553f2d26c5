//! A client's or a server's connection, TCP or Unix, with the few calls that the event loops make.

use std::io::{self, IoSlice};

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Waits until it may be read, or also until it may be written.
    pub(crate) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.ready(interest).await.map(drop),
            Stream::Unix(stream) => stream.ready(interest).await.map(drop),
        }
    }

    /// Reads what is there; `WouldBlock` when nothing is, 0 at the end.
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

    /// A read that did not fill its space emptied the socket. Saying so spares the call that would only find that out;
    /// the end of the stream is not forgotten, and later bytes are news.
    fn forget_readable(&self) {
        let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, empty),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, empty),
        };
    }

    /// Writes what the kernel takes now.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            (Stream::Tcp(stream), [slice]) => stream.try_write(slice),
            (Stream::Unix(stream), [slice]) => stream.try_write(slice),
            (Stream::Tcp(stream), _) => stream.try_write_vectored(slices),
            (Stream::Unix(stream), _) => stream.try_write_vectored(slices),
        }
    }
}
