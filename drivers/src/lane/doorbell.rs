//! Watches a lane's socket on a tokio executor. The watch reports every doorbell, whether or not earlier doorbells
//! were read. It reports no other event, such as free space for writing, which would occur whenever the peer has read
//! a doorbell. It does not read the socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use device::lane::{Doorbell, Problem, ServedLane};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use units::ByteCount;

use super::server::LaneServer;

/// The watched socket of a lane.
#[derive(Debug)]
pub(super) struct WatchedSocket(AsyncFd<Arc<UnixStream>>);

impl WatchedSocket {
    /// Registers the socket with the executor of the calling task.
    ///
    /// # Errors
    /// The system's error if it cannot watch the socket.
    pub(super) fn new(socket: &Arc<UnixStream>) -> io::Result<Self> {
        let socket = Arc::clone(socket);
        // SAFETY: the stream keeps one descriptor for its whole life, and the value below shares ownership of the
        // stream.
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
/// The system's error if it cannot watch the socket.
pub fn watch(stream: UnixStream) -> io::Result<Box<dyn Doorbell>> {
    Ok(Box::new(WatchedSocket::new(&Arc::new(stream))?))
}
