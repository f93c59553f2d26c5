//! Watches a lane's socket on a tokio executor. It learns of every bell by itself, whether or not earlier ones were
//! read. It learns of nothing else, such as room to write, which comes back whenever the peer has read a bell. It reads
//! nothing.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use device::lane::{Doorbell, Problem, ServedLane};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use units::ByteCount;

use super::server::LaneServer;

/// A lane's socket, watched.
#[derive(Debug)]
pub(super) struct WatchedSocket(AsyncFd<Arc<UnixStream>>);

impl WatchedSocket {
    /// Watches the socket in the executor that this is called in.
    ///
    /// # Errors
    /// The system cannot watch the socket.
    pub(super) fn new(socket: &Arc<UnixStream>) -> io::Result<Self> {
        let socket = Arc::clone(socket);
        // SAFETY: the stream has one descriptor from its making to its end, and it lives as long as the value below,
        // which has a share of it.
        let watched = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
        Ok(Self(watched?))
    }
}

impl Doorbell for WatchedSocket {
    fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut come = ready!(self.0.poll_read_ready(task))?;
        let may_be_the_end = come.ready().is_read_closed();
        come.clear_ready();
        Poll::Ready(Ok(may_be_the_end))
    }

    fn greet(&self, work_bytes_max: ByteCount) -> Result<Option<Box<dyn ServedLane>>, Problem> {
        let lane = LaneServer::greet(self.0.get_ref(), work_bytes_max)?;
        Ok(lane.map(|lane| Box::new(lane) as Box<dyn ServedLane>))
    }
}

/// Watches the service's end of a lane.
///
/// # Errors
/// The system cannot watch the socket.
pub fn watch(stream: UnixStream) -> io::Result<Box<dyn Doorbell>> {
    Ok(Box::new(WatchedSocket::new(&Arc::new(stream))?))
}
