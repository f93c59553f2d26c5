//! Handles a connection that the server refuses while the worker's other connection to it is open. The other
//! connection carries all requests, and the refused one is retried periodically. To keep the order of
//! requests, it is used again only when the other connection has none in flight.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::socket::Socket;
use crate::stream::Stream;

impl Socket {
    /// Sets the connection that carries the requests while the server refuses this one.
    pub(super) fn set_other(&self, other: &Rc<Self>) {
        *self.other.borrow_mut() = Rc::downgrade(other);
    }

    /// Returns whether requests should use the other connection.
    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        self.refused.get() && self.open_other().is_some()
    }

    /// Returns the other connection if it is open.
    #[cold]
    pub(super) fn open_other(&self) -> Option<Rc<Self>> {
        self.other.borrow().upgrade().filter(|other| other.stream.borrow().is_some())
    }

    /// Records that the server has refused this connection, for the reason `why`. Requests then use the other
    /// connection until [`Socket::come_back`] ends.
    pub(super) fn refuse(&self, why: &str) {
        if !self.refused.replace(true) {
            let server = &self.address;
            tracing::warn!(
                server,
                why,
                "memcached refuses one of two connections: the other is used for all"
            );
        }
    }

    /// Waits until the server accepts this connection, and returns it. Returns `None` if the other connection
    /// is closed, so that this one must be used.
    pub(super) async fn come_back(&self) -> Option<Stream> {
        let stream = loop {
            let retry_after = self.timing.get().retry_max;
            tokio::select! {
                biased;
                () = sleep(retry_after) => {}
                // A request for this connection means that the other one is closed, too.
                () = poll_fn(|task| self.work.poll(task)) => {}
            }
            let Some(other) = self.open_other() else { break None };
            if !self.waiting.borrow().is_empty() {
                self.move_waiting_to(&other);
            }
            let Some(stream) = self.greet().await else { continue };
            while !other.is_idle() {
                // Requests for this connection came while the other one was closed. They would wait for as long as
                // the other one is busy.
                if !self.is_idle() {
                    self.move_waiting_to(&other);
                }
                sleep(ORDER_PAUSE).await;
            }
            tracing::info!(server = self.address, "memcached has room for both connections again");
            break Some(stream);
        };
        self.refused.set(false);
        stream
    }

    /// Opens a connection and waits for an answer on it. Returns `None` if the server refuses it.
    async fn greet(&self) -> Option<Stream> {
        let limit = self.timing.get().connect;
        let greeting = async {
            let stream = self.connect().await.ok()?;
            if self.speaks_packets() {
                // It has answered the login.
                return Some(stream);
            }
            stream.try_write(&[IoSlice::new(b"mn\r\n")]).ok()?;
            let mut line = [0; 64];
            let mut filled = 0;
            while filled < line.len() && !line[..filled].ends_with(b"\n") {
                poll_fn(|task| stream.poll_readable(task)).await.ok()?;
                match stream.try_read(&mut line[filled..]) {
                    Ok(0) => return None,
                    Ok(bytes) => filled += bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return None,
                }
            }
            // An old memcached does not know the command, but answers.
            (!line.starts_with(b"ERROR Too many")).then_some(stream)
        };
        timeout(limit, greeting).await.ok()?
    }
}

/// The interval of checks whether the other connection has no requests in flight.
const ORDER_PAUSE: Duration = Duration::from_millis(1);
