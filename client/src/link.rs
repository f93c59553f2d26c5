//! One connection to a cache: shared memory or a socket. It writes requests and reads answers, and knows nothing of
//! their meaning.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use drivers::near::NearClient;
use protocol::binary::{Deadline, Request};
use socket2::{Domain, SockAddr, Socket, Type};
use units::host_ms;

use crate::answer::{Answer, Parsed, parse_binary};
use crate::{Address, LongWait, meta};

/// A connection.
pub(crate) struct Link {
    wire: Wire,
    /// Bytes that were read and belong to answers that were not taken.
    input: Vec<u8>,
    start: usize,
    end: usize,
    body_bytes_max: usize,
    long_wait: Option<LongWait>,
}

/// The requests of a call in the protocol of the connection.
pub(crate) struct Requests<'o> {
    out: &'o mut Vec<u8>,
    is_text: bool,
    deadline: Deadline,
}

impl Requests<'_> {
    /// Appends a request up to its value.
    pub(crate) fn push(&mut self, request: &Request<'_>, opaque: u32) {
        if self.is_text {
            meta::append(request, self.out, opaque);
        } else {
            request.append_to(self.out, opaque, self.deadline);
        }
    }

    /// Appends the value of the request that was appended last.
    pub(crate) fn push_value(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
        if self.is_text {
            self.out.extend_from_slice(b"\r\n");
        }
    }
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
        long_wait: Option<LongWait>,
    ) -> io::Result<Self> {
        let deadline = Instant::now() + limit;
        let wire = waiting(long_wait, || {
            Ok(match address {
                Address::Near(path) => Wire::Near(Box::new(NearClient::connect(path, deadline)?)),
                Address::Unix(path) => Wire::Unix(connect_unix(path, limit)?),
                Address::Tcp(address) => Wire::Tcp(connect_tcp(address, deadline)?),
            })
        })?;
        Ok(Self { wire, input: Vec::new(), start: 0, end: 0, body_bytes_max, long_wait })
    }

    /// Begins the requests of a call in `out`. It waits for their answers for `timeout`.
    pub(crate) fn requests<'o>(&self, out: &'o mut Vec<u8>, timeout: Duration) -> Requests<'o> {
        out.clear();
        let deadline = match &self.wire {
            Wire::Near(near) if near.shares_clock() => Deadline::after(host_ms(), timeout),
            _ => Deadline::default(),
        };
        Requests { out, is_text: self.is_text(), deadline }
    }

    /// Returns whether the connection speaks the meta protocol instead of the binary one.
    fn is_text(&self) -> bool {
        !matches!(self.wire, Wire::Near(_))
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
        value: Option<&[u8]>,
        deadline: Instant,
    ) -> io::Result<()> {
        let end: &[u8] = if value.is_some() && self.is_text() { b"\r\n" } else { b"" };
        let value = value.unwrap_or_default();
        let mut slices = [requests, value, end].map(IoSlice::new);
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.write(rest, deadline) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => IoSlice::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self, slices: &[IoSlice<'_>], deadline: Instant) -> io::Result<usize> {
        let wire = &mut self.wire;
        if let (Wire::Near(near), Some(_)) = (&mut *wire, self.long_wait) {
            let soon = deadline.min(Instant::now() + LONG_WAIT);
            match near.write(slices, soon) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                written => return written,
            }
        }
        waiting(self.long_wait, || match wire {
            Wire::Near(near) => near.write(slices, deadline),
            Wire::Tcp(stream) => {
                stream.set_write_timeout(Some(left(deadline)?))?;
                stream.write_vectored(slices)
            }
            Wire::Unix(stream) => {
                stream.set_write_timeout(Some(left(deadline)?))?;
                stream.write_vectored(slices)
            }
        })
    }

    /// Reads the next answer to the requests with the numbers `opaques` and passes it to `take`.
    pub(crate) fn receive<T>(
        &mut self,
        deadline: Instant,
        opaques: RangeInclusive<u32>,
        take: impl FnOnce(Answer<'_>) -> T,
    ) -> io::Result<T> {
        let is_text = self.is_text();
        loop {
            let input = &self.input[self.start..self.end];
            let parsed = if is_text {
                meta::parse(input, self.body_bytes_max, opaques.clone())
            } else {
                parse_binary(input, self.body_bytes_max)
            };
            let bytes = match parsed {
                Parsed::Incomplete { bytes } => bytes,
                Parsed::Malformed(why) => {
                    let text = String::from_utf8_lossy(input);
                    let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
                    let why = format!("{why}, and this is `{}`", text.escape_debug());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                Parsed::Answer { answer, consumed } => {
                    let taken = take(answer);
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
        let wire = &mut self.wire;
        if let (Wire::Near(near), Some(_)) = (&mut *wire, self.long_wait) {
            let soon = deadline.min(Instant::now() + LONG_WAIT);
            match near.read(space, soon) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                read => return read,
            }
        }
        waiting(self.long_wait, || {
            loop {
                let read = match wire {
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
        })
    }

    /// Returns whether the server cannot have executed the last request, because it has not read all of it.
    pub(crate) fn is_unread(&mut self) -> bool {
        match &mut self.wire {
            Wire::Near(near) => near.has_unread_bytes(),
            Wire::Tcp(_) | Wire::Unix(_) => false,
        }
    }
}

/// Runs a wait that may be long.
fn waiting<T: Send>(
    long_wait: Option<LongWait>,
    wait: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(long_wait) = long_wait else { return wait() };
    let (mut wait, mut result) = (Some(wait), None);
    long_wait(&mut || result = wait.take().map(|wait| wait()));
    result.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

/// Connects to a Unix socket. One whose backlog is full counts as one that does not answer.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect_timeout(&SockAddr::unix(path)?, limit)?;
    Ok(socket.into())
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

/// The wait for an answer over shared memory from which on it counts as long: other threads of a program whose threads
/// take turns do not wait longer.
const LONG_WAIT: Duration = Duration::from_micros(50);

/// The usual size of the buffer for answers (bytes).
const INPUT_BYTES: usize = 16 << 10;

/// The size up to which the buffer keeps the memory that a long value needed (bytes).
const INPUT_BYTES_KEPT: usize = 1 << 20;

/// The most characters of a wrong answer in an error.
const TEXT_CHARS_MAX: usize = 80;
