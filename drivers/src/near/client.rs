//! The client's end of a near connection. It belongs to one thread at a time, which waits in it or polls it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::lane::Pause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pipe::{LocalSide, Pipe, received};

/// A connection to a server on this host. After an error it is of no use.
#[derive(Debug)]
pub struct NearClient(Pipe);

impl NearClient {
    /// Connects to the server that listens for near clients at `path`, and waits for its greeting at most until
    /// `deadline`.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused` if nobody listens there, `TimedOut`, `UnexpectedEof` if the server refuses
    /// this client, `InvalidData` if it is no such server, or the system's error.
    pub fn connect(path: &Path, deadline: Instant) -> io::Result<Self> {
        let mut greeting = NearGreeting::begin(connect(path, deadline)?)?;
        loop {
            if let Some(client) = greeting.finish()? {
                return Ok(client);
            }
            wait_for_bytes(&greeting.socket, deadline)?;
        }
    }

    /// Sets the longest time for which this side looks for bytes before it sleeps, as long as that pays. Zero means
    /// that it always sleeps. The default is 50 us.
    pub fn set_poll_max(&mut self, max: Duration) {
        self.0.set_poll_max(max);
    }

    /// Returns whether the server's clock is that of this process, so that a time of it means the same to both.
    pub fn shares_clock(&self) -> bool {
        self.0.shares_clock()
    }

    /// Reads available bytes, or waits for them at most until `deadline`. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `TimedOut`, `InvalidData` if the server breaks the rules of the memory, or the system's error.
    pub fn read(&mut self, space: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            match self.0.try_read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            match self.0.pause() {
                Pause::Poll => std::hint::spin_loop(),
                Pause::Sleep => self.sleep(deadline)?,
            }
        }
    }

    /// Writes some of the bytes, and waits for room at most until `deadline`. Returns their number.
    ///
    /// # Errors
    /// `TimedOut`, `BrokenPipe` if the server is gone, or as with [`NearClient::read`].
    pub fn write(&mut self, slices: &[IoSlice<'_>], deadline: Instant) -> io::Result<usize> {
        loop {
            match self.0.try_write(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
            if self.0.fall_asleep_blocked() {
                self.sleep(deadline)?;
            }
        }
    }

    /// Reads available bytes without waiting. Returns 0 at the end of the stream, which only
    /// [`NearClient::read_doorbells`] notices.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, otherwise as with [`NearClient::read`].
    pub fn try_read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(space)
    }

    /// Writes the bytes for which there is room, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room, otherwise as with [`NearClient::write`].
    pub fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write(slices)
    }

    /// Returns whether the server has not copied all bytes that were written. After the end of the stream this is
    /// final.
    pub fn has_unread_bytes(&mut self) -> bool {
        self.0.has_unread_bytes()
    }

    /// Returns whether this side may sleep until the socket is readable, which it announces to the server. It must look
    /// again if there are bytes already. `polls` says that it waits for bytes, so that it looks again for a short time
    /// while that pays. `for_room` says that it has bytes to write and no room for them.
    pub fn may_sleep(&mut self, polls: bool, for_room: bool) -> bool {
        let sleeps = if polls { self.0.pause() == Pause::Sleep } else { self.0.fall_asleep() };
        sleeps && (!for_room || self.0.fall_asleep_blocked())
    }

    /// Reads the doorbells that have arrived, and notices the end of the stream.
    pub fn read_doorbells(&mut self) {
        self.0.read_doorbells();
    }

    /// Sleeps until a doorbell or the end of the stream.
    fn sleep(&mut self, deadline: Instant) -> io::Result<()> {
        wait_for_bytes(self.0.socket(), deadline)?;
        self.0.read_doorbells();
        Ok(())
    }
}

/// A greeting that was sent to a server and may not be answered yet.
#[derive(Debug)]
pub struct NearGreeting {
    socket: Arc<UnixStream>,
    /// None once it was answered.
    local: Option<LocalSide>,
}

impl NearGreeting {
    /// Greets the server at the other end of a socket, which must be non-blocking.
    ///
    /// # Errors
    /// As with [`NearClient::connect`].
    pub fn begin(socket: UnixStream) -> io::Result<Self> {
        let mut local = LocalSide::new()?;
        local.greet(&socket)?;
        Ok(Self { socket: Arc::new(socket), local: Some(local) })
    }

    /// Returns the connection, or none if the server has not answered yet.
    ///
    /// # Errors
    /// As with [`NearClient::connect`].
    pub fn finish(&mut self) -> io::Result<Option<NearClient>> {
        let Some(peer) = received(&self.socket)? else { return Ok(None) };
        let local = self.local.take().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Some(NearClient(Pipe::new(&self.socket, local, peer))))
    }
}

impl AsFd for NearClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket().as_fd()
    }
}

/// Connects without blocking. A server whose backlog is full is asked again until the deadline.
fn connect(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path)?;
    loop {
        let family = AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(FULL_BACKLOG_PAUSE);
            }
            Err(Errno::AGAIN | Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until the socket is readable or has ended.
fn wait_for_bytes(socket: &UnixStream, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], limit.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The wait before the next attempt to connect to a server whose backlog is full.
const FULL_BACKLOG_PAUSE: Duration = Duration::from_millis(1);
