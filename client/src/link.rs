//! One connection to a cache: shared memory or a socket. It writes requests and reads answers, and knows nothing of
//! their meaning.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use drivers::near::NearClient;
use protocol::binary::response::{self, Parse, Response};

use crate::Address;

/// A connection.
pub(crate) struct Link {
    wire: Wire,
    /// Bytes that were read and belong to answers that were not taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
    body_bytes_max: usize,
}

enum Wire {
    Near(Box<NearClient>),
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Link {
    /// Connects to an address.
    pub(crate) fn connect(
        address: &Address,
        limit: Duration,
        body_bytes_max: usize,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + limit;
        let wire = match address {
            Address::Near(path) => Wire::Near(Box::new(NearClient::connect(path, deadline)?)),
            Address::Unix(path) => Wire::Unix(UnixStream::connect(path)?),
            Address::Tcp(address) => Wire::Tcp(connect_tcp(address, deadline)?),
        };
        Ok(Self { wire, input: Vec::new(), start: 0, end: 0, body_bytes_max })
    }

    /// Sets the longest time for which a read looks for bytes in shared memory before it sleeps.
    pub(crate) fn set_poll_max(&mut self, max: Duration) {
        match &mut self.wire {
            Wire::Near(near) => near.set_poll_max(max),
            Wire::Tcp(_) | Wire::Unix(_) => {}
        }
    }

    /// Writes requests and a value that belongs to the last of them.
    pub(crate) fn send(
        &mut self,
        requests: &[u8],
        value: &[u8],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut slices = [IoSlice::new(requests), IoSlice::new(value)];
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let written = match &mut self.wire {
                Wire::Near(near) => near.write(rest, deadline),
                Wire::Tcp(stream) => {
                    stream.set_write_timeout(Some(left(deadline)?))?;
                    stream.write_vectored(rest)
                }
                Wire::Unix(stream) => {
                    stream.set_write_timeout(Some(left(deadline)?))?;
                    stream.write_vectored(rest)
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the next answer and passes it to `take`.
    pub(crate) fn receive<T>(
        &mut self,
        deadline: Instant,
        take: impl FnOnce(Response<'_>) -> T,
    ) -> io::Result<T> {
        loop {
            let bytes =
                match response::parse(&self.input[self.start..self.end], self.body_bytes_max) {
                    Parse::Incomplete { bytes } => bytes,
                    Parse::Malformed(why) => {
                        let text = String::from_utf8_lossy(&self.input[self.start..self.end]);
                        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
                        let why = format!("{why}, and this is `{}`", text.escape_debug());
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                    Parse::Response { response, consumed } => {
                        let taken = take(response);
                        self.start += consumed;
                        return Ok(taken);
                    }
                };
            self.make_room(bytes);
            let read = self.read(deadline)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.end += read;
        }
    }

    /// Makes room for an answer of `bytes` at the front of which the unread bytes are.
    fn make_room(&mut self, bytes: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + bytes > self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.input.len() < self.start + bytes {
            self.input.resize((self.start + bytes).max(INPUT_BYTES), 0);
        } else if self.input.len() > INPUT_BYTES_KEPT && bytes <= INPUT_BYTES && self.end == 0 {
            // One long value does not keep its memory for ever.
            self.input = vec![0; INPUT_BYTES];
        }
    }

    fn read(&mut self, deadline: Instant) -> io::Result<usize> {
        let space = &mut self.input[self.end..];
        loop {
            let read = match &mut self.wire {
                Wire::Near(near) => near.read(space, deadline),
                Wire::Tcp(stream) => {
                    stream.set_read_timeout(Some(left(deadline)?))?;
                    stream.read(space)
                }
                Wire::Unix(stream) => {
                    stream.set_read_timeout(Some(left(deadline)?))?;
                    stream.read(space)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Returns whether the server cannot have executed the last request, because it has not read all of it.
    pub(crate) fn is_unread(&mut self) -> bool {
        match &mut self.wire {
            Wire::Near(near) => near.has_unread_bytes(),
            Wire::Tcp(_) | Wire::Unix(_) => false,
        }
    }
}

fn connect_tcp(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the time left. A socket cannot have a timeout of zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The usual size of the buffer for answers (bytes).
const INPUT_BYTES: usize = 16 << 10;

/// The size up to which the buffer keeps the memory that a long value needed (bytes).
const INPUT_BYTES_KEPT: usize = 1 << 20;

/// The most characters of a wrong answer in an error.
const TEXT_CHARS_MAX: usize = 80;
