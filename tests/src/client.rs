//! A raw client of the text protocol: it sends bytes and returns bytes, every read under a deadline.
//! It understands nothing but the sentinel that ends an answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::{Answer, Ending, PATIENCE};

/// Every server answers in order, so this answer marks the end of the one before. The meta no-op alone would
/// do, but for rows that send it themselves.
const SENTINEL: &[u8] = b"mn\r\nget\r\nmn\r\n";
const SENTINEL_ANSWER: &[u8] = b"MN\r\nERROR\r\nMN\r\n";

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Received and not yet handed out.
    received: Vec<u8>,
    /// The time that one answer may take.
    pub deadline: Duration,
}

impl Client {
    /// Connects without Nagle's delay, so that split writes leave as they were split.
    ///
    /// # Errors
    /// If the server does not accept within our patience.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new(), deadline: PATIENCE })
    }

    /// A second handle on the connection, to send while the first reads.
    ///
    /// # Errors
    /// The system's.
    pub fn split(&self) -> io::Result<Self> {
        let stream = self.stream.try_clone()?;
        Ok(Self { stream, received: Vec::new(), deadline: self.deadline })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As the socket says; a full socket counts as an error after our patience.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a command line and reads everything that is answered to it.
    pub fn ask(&mut self, line: &[u8]) -> Answer {
        self.exchange(&[line, b"\r\n"].concat())
    }

    /// Sends bytes, then the sentinel, and returns what came before the sentinel's answer.
    pub fn exchange(&mut self, bytes: &[u8]) -> Answer {
        // A server that closes on hostile bytes may do so before it has read them all: then its answer is
        // still to be read.
        let _closed = self.send(&[bytes, SENTINEL].concat());
        self.answer()
    }

    /// Reads up to the sentinel's answer; the sentinel has been sent by the caller.
    pub fn answer(&mut self) -> Answer {
        let start = Instant::now();
        loop {
            if self.received.ends_with(SENTINEL_ANSWER) {
                let mut bytes = std::mem::take(&mut self.received);
                bytes.truncate(bytes.len() - SENTINEL_ANSWER.len());
                return Answer { bytes, ending: Ending::Complete };
            }
            if let Err(ending) = self.receive(start) {
                return Answer { bytes: std::mem::take(&mut self.received), ending };
            }
        }
    }

    /// Sends a line and reads one line, without the CR LF. `None` when none came in time.
    pub fn line(&mut self, line: &[u8]) -> Option<String> {
        self.send(&[line, b"\r\n"].concat()).ok()?;
        self.read_line()
    }

    /// Reads one line, without the CR LF. `None` when the connection ended or none came in time.
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

    /// Reads exactly `count` bytes, or `None`.
    pub fn read_exact(&mut self, count: usize) -> Option<Vec<u8>> {
        let start = Instant::now();
        while self.received.len() < count {
            self.receive(start).ok()?;
        }
        Some(self.received.drain(..count).collect())
    }

    /// `get`: the value, `None` for a miss, or the line the server said instead.
    ///
    /// # Errors
    /// The server's error line, or a word on how the connection ended.
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

    /// `set` without flags or expiry: the answer's line.
    ///
    /// # Errors
    /// A word on how the connection ended.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<String, String> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        self.send(&[head.as_bytes(), value, b"\r\n"].concat()).map_err(|e| e.to_string())?;
        self.read_line().ok_or_else(|| "connection ended".to_owned())
    }

    /// True once the server has closed this connection; false when it is still open at the deadline.
    pub fn is_closed(&mut self) -> bool {
        let start = Instant::now();
        loop {
            match self.receive(start) {
                Ok(()) => {}
                Err(ending) => return ending == Ending::Closed,
            }
        }
    }

    /// Closes our half and reads what is left until the server closes its own.
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
