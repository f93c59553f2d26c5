//! The server's end of a near connection: a client on the same host whose requests come through memory that both
//! processes share, as a stream of bytes without the kernel. `drivers` implements this trait, and the program that
//! builds a server passes a [`WatchNear`] to it. The server serves the bytes as it serves those of a socket.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

/// A function that registers a new connection with the executor of the calling thread.
pub type WatchNear = fn(UnixStream) -> io::Result<Box<dyn NearStream>>;

/// A near connection. It behaves like a non-blocking socket; dropping it closes it.
pub trait NearStream: fmt::Debug + Send {
    /// Answers the client's greeting. No other method but [`NearStream::socket`] may be called before. Only one
    /// task at a time may poll a connection.
    ///
    /// # Errors
    /// `InvalidData` if the peer is no client, `UnexpectedEof` if it is gone, or the system's error if there is no
    /// memory that can be shared.
    fn poll_greeting(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls whether the connection may be read. It may wake the task at once while it expects bytes soon.
    ///
    /// # Errors
    /// The executor's error if it is shutting down.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls whether the connection may be written.
    ///
    /// # Errors
    /// The executor's error if it is shutting down.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Copies available bytes. Returns 0 at the end of the stream. The client cannot change the copy.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, `InvalidData` if the client breaks the rules of the memory.
    fn try_read(&self, space: &mut [u8]) -> io::Result<usize>;

    /// Writes the bytes for which there is room, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room, `InvalidData` if the client breaks the rules of the memory, `BrokenPipe` if it
    /// is gone.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the stream for the client. It can still read what was written.
    fn shut_down(&self);

    /// Returns the Unix socket of the handshake, whose peer is the client.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Returns the memory that is shared with the client (bytes): this side's, and the client's ring, which is mapped.
    fn held_bytes(&self) -> u64;

    /// Returns the counts since the last call and resets them.
    fn take_counters(&self) -> NearCounters;
}

/// The counts of a near connection since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearCounters {
    /// The number of times that the client was woken.
    pub doorbells: u64,
    /// The number of times that this side began to sleep.
    pub sleeps: u64,
    /// 1 if the client has broken the rules of the memory, once.
    pub broken: u64,
}

/// The most memory that an implementation may have of its own for one connection (bytes). A server plans for it.
pub const NEAR_BYTES_MAX: u64 = 132 << 10;
