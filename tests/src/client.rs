//! A raw client of either protocol. It sends bytes and returns bytes, and every read has a deadline. The only bytes
//! that it understands are those of the sentinel that ends an answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::{Answer, Ending, TIMEOUT};

/// The commands that are sent behind a step. Every server answers in order, so the answer to these commands marks the
/// end of the step's answer. One meta no-op is not enough, because some rows send it themselves.
const SENTINEL: &[u8] = b"mn\r\nget\r\nmn\r\n";
const SENTINEL_ANSWER: &[u8] = b"MN\r\nERROR\r\nMN\r\n";

/// The sentinel in the binary protocol: a noop with an opaque that no row uses.
const SENTINEL_PACKET: &[u8] =
    &[0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0x47, 0x1e, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0];
const SENTINEL_PACKET_ANSWER: &[u8] =
    &[0x81, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0x47, 0x1e, 0x0d, 0, 0, 0, 0, 0, 0, 0, 0];

/// The protocol that a client speaks, which decides its sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// Text and meta commands.
    Text,
    /// Packets of the binary protocol.
    Packets,
}

impl Speech {
    const fn sentinel(self) -> &'static [u8] {
        match self {
            Speech::Text => SENTINEL,
            Speech::Packets => SENTINEL_PACKET,
        }
    }

    const fn sentinel_answer(self) -> &'static [u8] {
        match self {
            Speech::Text => SENTINEL_ANSWER,
            Speech::Packets => SENTINEL_PACKET_ANSWER,
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// The bytes that were received and not yet returned.
    received: Vec<u8>,
    /// The longest time that one answer may take.
    pub deadline: Duration,
    /// The protocol of the sentinel.
    pub speech: Speech,
}

impl Client {
    /// Connects without Nagle's delay, so that each write is sent at once.
    ///
    /// # Errors
    /// The server does not accept within [`TIMEOUT`].
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, received: Vec::new(), deadline: TIMEOUT, speech: Speech::Text })
    }

    /// Returns a second handle on the connection. It can send while the first handle reads.
    ///
    /// # Errors
    /// The system refuses to duplicate the socket.
    pub fn split(&self) -> io::Result<Self> {
        let stream = self.stream.try_clone()?;
        let Self { deadline, speech, .. } = *self;
        Ok(Self { stream, received: Vec::new(), deadline, speech })
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// The connection failed, or the socket stayed full for longer than [`TIMEOUT`].
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a command line and returns the whole answer.
    pub fn ask(&mut self, line: &[u8]) -> Answer {
        self.exchange(&[line, b"\r\n"].concat())
    }

    /// Sends bytes and then the sentinel. Returns the bytes in front of the sentinel's answer.
    pub fn exchange(&mut self, bytes: &[u8]) -> Answer {
        // A server that closes on hostile bytes may close before it has read all of them. Its answer must still be
        // read.
        let _closed = self.send(&[bytes, self.speech.sentinel()].concat());
        self.answer()
    }

    /// Reads up to the sentinel's answer. The caller has sent the sentinel. A long answer may take longer than the
    /// limit for its next bytes.
    pub fn answer(&mut self) -> Answer {
        let end = self.speech.sentinel_answer();
        loop {
            if self.received.ends_with(end) {
                let mut bytes = std::mem::take(&mut self.received);
                bytes.truncate(bytes.len() - end.len());
                return Answer { bytes, ending: Ending::Complete };
            }
            if let Err(ending) = self.receive(Instant::now()) {
                return Answer { bytes: std::mem::take(&mut self.received), ending };
            }
        }
    }

    /// Sends a line and reads one line, without the CR LF. Returns `None` if no line came in time.
    pub fn line(&mut self, line: &[u8]) -> Option<String> {
        self.send(&[line, b"\r\n"].concat()).ok()?;
        self.read_line()
    }

    /// Reads one line, without the CR LF. Returns `None` if the connection ended or no line came in time.
    pub fn read_line(&mut self) -> Option<String> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            self.receive(start).ok()?;
        }
    }

    /// Reads exactly `count` bytes. Returns `None` if they do not come in time.
    pub fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        let start = Instant::now();
        while self.received.len() < count {
            self.receive(start).ok()?;
        }
        Some(self.received.drain(..count).collect())
    }

    /// Sends a `get` and returns the value, or `None` for a miss.
    ///
    /// # Errors
    /// The server's error line, or a description of how the connection ended.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let gone = || "connection ended".to_owned();
        let head = self.line(format!("get {key}").as_bytes()).ok_or_else(gone)?;
        if head == "END" {
            return Ok(None);
        }
        let mut words = head.split(' ');
        if words.next() != Some("VALUE") || words.next() != Some(key) {
            return Err(head);
        }
        let length = words.nth(1).and_then(|word| word.parse().ok());
        let length: usize = length.ok_or_else(|| head.clone())?;
        let mut value = self.read_exact(length + 2).ok_or_else(gone)?;
        let end = self.read_line().ok_or_else(gone)?;
        if !value.ends_with(b"\r\n") || end != "END" {
            return Err(format!("{head}: not ended by END but {end}"));
        }
        value.truncate(length);
        Ok(Some(value))
    }

    /// Sends a `set` without flags or expiry and returns the line of the answer.
    ///
    /// # Errors
    /// A description of how the connection ended.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<String, String> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        self.send(&[head.as_bytes(), value, b"\r\n"].concat()).map_err(|e| e.to_string())?;
        self.read_line().ok_or_else(|| "connection ended".to_owned())
    }

    /// Waits until the server has closed this connection. Returns false if it is still open at the deadline.
    pub fn is_closed(&mut self) -> bool {
        let start = Instant::now();
        loop {
            match self.receive(start) {
                Ok(()) => {}
                Err(ending) => return ending == Ending::Closed,
            }
        }
    }

    /// Closes the client's half of the connection and reads until the server closes its half.
    pub fn finish(&mut self) -> Answer {
        let _gone = self.stream.shutdown(Shutdown::Write);
        let ended = self.is_closed();
        let ending = if ended { Ending::Closed } else { Ending::TimedOut };
        Answer { bytes: std::mem::take(&mut self.received), ending }
    }

    fn receive(&mut self, start: Instant) -> Result<(), Ending> {
        let left = self.deadline.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Ending::TimedOut);
        }
        let mut chunk = [0; 64 << 10];
        let _unsupported = self.stream.set_read_timeout(Some(left));
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Ending::Closed),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => Ok(()),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(Ending::TimedOut),
                _ => Err(Ending::Closed),
            },
        }
    }
}
