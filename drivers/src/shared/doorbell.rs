//! Watches a socket of doorbells on a tokio executor. The watch reports every doorbell, whether or not earlier
//! doorbells were read. It reports no other event, such as free space for writing, which would occur whenever the peer
//! has read a doorbell. It does not read the socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket of doorbells that an executor watches.
#[derive(Debug)]
pub(crate) struct WatchedSocket(AsyncFd<Arc<UnixStream>>);

impl WatchedSocket {
    /// Registers the socket with the executor of the calling task.
    ///
    /// # Errors
    /// The system's error if it cannot watch the socket.
    pub(crate) fn new(socket: &Arc<UnixStream>) -> io::Result<Self> {
        let socket = Arc::clone(socket);
        // SAFETY: the stream keeps one descriptor for its whole life, and the value below shares ownership of the
        // stream.
        let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(watched?))
    }

    pub(crate) fn socket(&self) -> &Arc<UnixStream> {
        self.0.get_ref()
    }

    /// Becomes ready when an event has arrived since the last call. Returns whether the event may be the end of the
    /// connection.
    ///
    /// # Errors
    /// An error if the executor is shutting down.
    pub(crate) fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut come = ready!(self.0.poll_read_ready(task))?;
        let may_be_the_end = come.ready().is_read_closed();
        come.clear_ready();
        Poll::Ready(Ok(may_be_the_end))
    }
}
