//! A client's connection. It collects bytes until a frame is complete, and holds outgoing bytes
//! until they are sent. One request at a time is in flight, as with every Thrift server, so answers
//! keep their order.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use rpc::wire::FRAME_HEAD_BYTES;

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    inbound: Vec<u8>,
    /// The number of bytes of `inbound` that were already consumed.
    taken: usize,
    outbound: Vec<u8>,
    sent: usize,
    /// Whether a request is in flight.
    pub(super) awaits: bool,
    /// Whether the connection has a complete frame and waits for its turn.
    pub(super) queued: bool,
    /// Whether the client has closed its sending side or the whole connection. The socket reports
    /// this once, perhaps before all bytes were read.
    pub(super) hung_up: bool,
    /// Whether everything that the client sent was read, or reading has stopped for good.
    pub(super) ended: bool,
}

/// The content of the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inbound<'a> {
    /// A frame, including its head.
    Frame(&'a [u8]),
    /// The start of a frame. More bytes must arrive.
    Partial,
    /// A frame that is longer than allowed or has a negative length.
    TooLong,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbound: Vec::new(),
            taken: 0,
            outbound: Vec::new(),
            sent: 0,
            awaits: false,
            queued: false,
            hung_up: false,
            ended: false,
        })
    }

    /// Reads until one frame is complete or the socket is empty. A short read means that the socket
    /// is empty. The socket then reports the arrival of more bytes. After the client hung up, this
    /// function reads to the end of the stream.
    pub(super) fn read(&mut self, frame_bytes_max: usize) -> io::Result<()> {
        if self.taken == self.inbound.len() {
            self.inbound.clear();
            self.inbound.shrink_to(READ_BYTES);
            self.taken = 0;
        } else if self.taken > READ_BYTES {
            self.inbound.drain(..self.taken);
            self.taken = 0;
        }
        while self.wants_more(frame_bytes_max) {
            let begin = self.inbound.len();
            self.inbound.resize(begin + READ_BYTES, 0);
            let result = self.stream.read(&mut self.inbound[begin..]);
            self.inbound.truncate(begin + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) => self.ended = true,
                Ok(count) if count < READ_BYTES && !self.hung_up => return Ok(()),
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether to read now: there is no complete frame, and the client accepts its answers.
    pub(super) fn wants_more(&self, frame_bytes_max: usize) -> bool {
        !self.ended && self.takes_answers() && self.inbound(frame_bytes_max) == Inbound::Partial
    }

    /// Returns whether the unsent answers leave capacity for another answer.
    pub(super) fn takes_answers(&self) -> bool {
        self.outbound.len() < OUTBOUND_BYTES_MAX
    }

    /// Returns the next frame if it is complete.
    pub(super) fn inbound(&self, frame_bytes_max: usize) -> Inbound<'_> {
        let bytes = &self.inbound[self.taken..];
        let Some(head) = bytes.first_chunk::<FRAME_HEAD_BYTES>() else { return Inbound::Partial };
        match usize::try_from(i32::from_be_bytes(*head)) {
            Ok(length) if length + FRAME_HEAD_BYTES <= frame_bytes_max => {
                let frame = bytes.get(..length + FRAME_HEAD_BYTES);
                frame.map_or(Inbound::Partial, Inbound::Frame)
            }
            _ => Inbound::TooLong,
        }
    }

    /// Removes the frame that [`Connection::inbound`] returned.
    pub(super) fn consume(&mut self, frame_bytes: usize) {
        self.taken += frame_bytes;
        self.awaits = true;
    }

    /// Queues a frame to send. The queue holds at most [`OUTBOUND_BYTES_MAX`] bytes and one frame.
    pub(super) fn answer(&mut self, frame: &[u8]) {
        self.outbound.extend_from_slice(frame);
        self.awaits = false;
    }

    /// Ends the connection after a message whose header cannot be read. No more bytes are read, and
    /// the connection closes once the queued bytes are sent.
    pub(super) fn give_up(&mut self) {
        (self.awaits, self.ended) = (false, true);
        (self.inbound, self.taken) = (Vec::new(), 0);
    }

    /// Sends as many bytes as the socket takes.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.sent < self.outbound.len() {
            match self.stream.write(&self.outbound[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.outbound.clear();
        self.outbound.shrink_to(OUTBOUND_BYTES_MAX);
        Ok(())
    }

    /// Returns whether bytes wait for the socket.
    pub(super) fn has_outbound(&self) -> bool {
        self.sent < self.outbound.len()
    }
}

/// The size of one read (bytes).
const READ_BYTES: usize = 16 << 10;
/// The maximum number of unsent bytes of a client. Once it is reached, the server neither reads
/// from the client nor handles its requests.
const OUTBOUND_BYTES_MAX: usize = 256 << 10;
