//! Watches a lane's socket on a tokio executor. It learns of every bell by itself, whether or not earlier ones were
//! read. It learns of nothing else, such as room to write, which comes back whenever the peer has read a bell. It reads
//! nothing.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A lane's socket, watched.
#[derive(Debug)]
pub struct Bells(AsyncFd<Arc<UnixStream>>);

impl Bells {
    /// Watches the socket in the executor that this is called in.
    ///
    /// # Errors
    /// The system cannot watch the socket.
    pub fn of(socket: &Arc<UnixStream>) -> io::Result<Self> {
        let socket = Arc::clone(socket);
        // SAFETY: the stream has one descriptor from its making to its end, and it lives as long as the value below,
        // which has a share of it.
        let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// The socket.
    pub fn socket(&self) -> &Arc<UnixStream> {
        self.0.get_ref()
    }

    /// Is ready when something has come since the last time, and says whether that may also be the end. The event is
    /// forgotten by then, so that whatever comes after it counts as new.
    ///
    /// # Errors
    /// The executor ends.
    pub fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut come = ready!(self.0.poll_read_ready(task))?;
        let may_be_the_end = come.ready().is_read_closed();
        come.clear_ready();
        Poll::Ready(Ok(may_be_the_end))
    }
}
