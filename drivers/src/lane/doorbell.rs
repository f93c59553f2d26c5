//! The watched socket of a lane, as the server of this process sees it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll};

use device::lane::{Doorbell, Problem, ServedLane};
use units::ByteCount;

use super::server::LaneServer;
use crate::shared::doorbell::WatchedSocket;

impl Doorbell for WatchedSocket {
    fn poll(&self, task: &mut Context<'_>) -> Poll<io::Result<bool>> {
        WatchedSocket::poll(self, task)
    }

    fn greet(&self, work_bytes_max: ByteCount) -> Result<Option<Box<dyn ServedLane>>, Problem> {
        let lane = LaneServer::greet(self.socket(), work_bytes_max)?;
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
