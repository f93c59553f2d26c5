//! Word of what comes over a lane's socket, on a tokio executor. It is told of every bell by itself, whether or not
//! earlier ones were read, and of nothing else: not of room to write, which is there again whenever the peer has read a
//! bell. It reads nothing.

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
    /// What the system says.
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

    /// Ready when something has come since the last time; whether that may be the end, too. It is forgotten by then:
    /// what comes after is news.
    ///
    /// # Errors
    /// That the executor ends.
    pub fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut come = ready!(self.0.poll_read_ready(task))?;
        let may_be_the_end = come.ready().is_read_closed();
        come.clear_ready();
        Poll::Ready(Ok(may_be_the_end))
    }
}
