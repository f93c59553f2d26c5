//! One connection to the server: requests out, lines and values in. The answers to what was sent at once have a limit
//! of time, lines and values have one of bytes, and each wait ends if the user wants no more. It does not know what is
//! asked.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol::response::{self, Parse, Response};

use super::Error;

/// A connected byte stream. Its reads must end with [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::TimedOut`] after
/// a tenth of a second or so without bytes, so that the caller notices a stop and the end of its time.
pub trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// Opens a connection to the server.
pub type Connect<'a> = dyn Fn() -> io::Result<Box<dyn Connection>> + 'a;

/// One connection with the bytes that were read and not used.
pub(super) struct Link<'a> {
    stream: Box<dyn Connection>,
    input: Vec<u8>,
    used: usize,
    /// Set if the user wants no more to be read.
    stop: &'a AtomicBool,
    /// The longest wait for the answers to what was sent at once. Values have more time by their length.
    answer_max: Duration,
    /// The time at which all answers to the last request must have come.
    answered_by: Instant,
}

impl<'a> Link<'a> {
    pub(super) fn open(connect: &Connect<'_>, stop: &'a AtomicBool) -> Result<Self, Error> {
        let stream =
            connect().map_err(|error| Error::Failed(format!("cannot connect: {error}")))?;
        let (input, answered_by) = (Vec::new(), Instant::now() + ANSWER_MAX);
        Ok(Self { stream, input, used: 0, stop, answer_max: ANSWER_MAX, answered_by })
    }

    pub(super) fn send(&mut self, requests: &[u8]) -> Result<(), Error> {
        self.answered_by = Instant::now() + self.answer_max;
        self.stream
            .write_all(requests)
            .map_err(|error| Error::Failed(format!("cannot send: {error}")))
    }

    /// Reads short answers although the user wants no more, with little time for each.
    pub(super) fn answer_soon(&mut self) {
        if self.stop.load(Ordering::Relaxed) {
            (self.stop, self.answer_max) = (&NEVER, LAST_ANSWER_MAX);
        }
    }

    /// Sends a line and reads the beginning of the answer's first line.
    pub(super) fn ask(&mut self, line: &str) -> Result<String, Error> {
        self.send(format!("{line}\r\n").as_bytes())?;
        Ok(excerpt(&self.line()?))
    }

    /// Reads a line without its end.
    pub(super) fn line(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(line) = self.buffered_line()? {
                return Ok(line);
            }
            self.read_more()?;
        }
    }

    /// Returns the next line that has been read already.
    pub(super) fn buffered_line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let rest = &self.input[self.used..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            if rest.len() > LINE_BYTES_MAX {
                let text = format!("the server sent a line of more than {LINE_BYTES_MAX} bytes");
                return Err(Error::Failed(text));
            }
            return Ok(None);
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
        self.used += end + 1;
        Ok(Some(line))
    }

    /// Reads one response line of memcached and passes it to `read`, which returns none for a response that is no
    /// answer to `request`.
    pub(super) fn response<T>(
        &mut self,
        request: &str,
        read: impl FnOnce(Response<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        loop {
            let rest = &self.input[self.used..];
            match response::parse(rest) {
                Parse::Complete { response, consumed } => {
                    let line = excerpt(&rest[..consumed]);
                    let wrong = || Error::Failed(format!("`{request}` is answered with {line:?}"));
                    let done = read(response).ok_or_else(wrong);
                    self.used += consumed;
                    return done;
                }
                Parse::Incomplete => {}
                Parse::Malformed(_) => {
                    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
                    let line = excerpt(line);
                    let text = format!(
                        "`{request}` is answered with {line:?}, which memcached never says"
                    );
                    return Err(Error::Failed(text));
                }
            }
            self.read_more()?;
        }
    }

    /// Reads a value of this length, and the CR LF behind it. The caller bounds the length.
    pub(super) fn value(&mut self, bytes: usize) -> Result<Vec<u8>, Error> {
        self.answered_by += Duration::from_secs_f64(bytes as f64 / SLOWEST_BYTES_PER_S);
        while self.input.len() - self.used < bytes + 2 {
            self.read_more()?;
        }
        let (value, end) = self.input[self.used..self.used + bytes + 2].split_at(bytes);
        if end != b"\r\n" {
            let text =
                format!("the server announced a value of {bytes} bytes and sent another length");
            return Err(Error::Failed(text));
        }
        let value = value.to_vec();
        self.used += bytes + 2;
        Ok(value)
    }

    /// Waits for bytes.
    fn read_more(&mut self) -> Result<usize, Error> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if Instant::now() >= self.answered_by {
                let text = format!("the server did not answer within {:?}", self.answer_max);
                return Err(Error::Failed(text));
            }
            if let Some(bytes) = self.read_available()? {
                return Ok(bytes);
            }
        }
    }

    /// Reads once. Returns none if no byte came in time.
    pub(super) fn read_available(&mut self) -> Result<Option<usize>, Error> {
        self.input.drain(..std::mem::take(&mut self.used));
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[before..]);
        self.input.truncate(before + read.as_ref().copied().unwrap_or(0));
        match read {
            Ok(0) => Err(Error::Failed("the server closed the connection".to_owned())),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(Error::Failed(format!("cannot read: {error}"))),
            },
        }
    }
}

/// Returns the beginning of a line, as text for messages.
pub(super) fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line.trim_ascii_end()).chars().take(EXCERPT_CHARS).collect()
}

/// The longest wait for the answers to what was sent at once, and for those after a stop.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const LAST_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Nobody stops an answer that is as short as this.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The slowest server whose values are read.
const SLOWEST_BYTES_PER_S: f64 = (256 << 10) as f64;

/// The part of a line that messages show.
const EXCERPT_CHARS: usize = 80;

/// The most bytes of one read. Pauses between reads keep the rate.
const READ_BYTES: usize = 64 << 10;

/// The longest line. A key of 250 bytes takes up to 750 in a list.
const LINE_BYTES_MAX: usize = 4_096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;

    /// A server whose answers are prepared. Each read gives one piece.
    #[derive(Clone, Default)]
    pub(in crate::estimate) struct Script {
        pub(in crate::estimate) pieces: Rc<RefCell<VecDeque<Vec<u8>>>>,
        pub(in crate::estimate) sent: Rc<RefCell<Vec<u8>>>,
    }

    impl Script {
        pub(in crate::estimate) fn new(pieces: &[&str]) -> Self {
            let script = Self::default();
            script.pieces.borrow_mut().extend(pieces.iter().map(|piece| piece.as_bytes().to_vec()));
            script
        }
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = self.pieces.borrow_mut().pop_front().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    /// A server that repeats an answer for ever, or that never answers if there is none.
    pub(in crate::estimate) struct Endless(pub(in crate::estimate) &'static [u8]);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let bytes = buffer.len() / self.0.len() * self.0.len();
            buffer[..bytes]
                .chunks_exact_mut(self.0.len())
                .for_each(|to| to.copy_from_slice(self.0));
            Ok(bytes)
        }
    }

    impl Write for Endless {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(in crate::estimate) fn endless<'a>(
        answer: &'static [u8],
        stop: &'a AtomicBool,
    ) -> Link<'a> {
        Link::open(&move || Ok(Box::new(Endless(answer)) as Box<dyn Connection>), stop).unwrap()
    }

    /// No user wants an end.
    pub(in crate::estimate) static GO_ON: AtomicBool = AtomicBool::new(false);

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(in crate::estimate) fn link(script: &Script) -> Link<'static> {
        let script = script.clone();
        Link::open(&move || Ok(Box::new(script.clone()) as Box<dyn Connection>), &GO_ON).unwrap()
    }

    #[test]
    fn lines_and_values_are_put_together_from_pieces() {
        let script = Script::new(&["VERSION 1", ".6\r\nVA 5 s5\r\nab", "c\r\n", "\r\nEN\r\n"]);
        let mut link = link(&script);
        assert_eq!(link.ask("version").unwrap(), "VERSION 1.6");
        let bytes = link.response("mg", |response| Some(response.body_bytes())).unwrap();
        assert_eq!(bytes, Some(7));
        assert_eq!(link.value(5).unwrap(), b"abc\r\n");
        assert_eq!(link.line().unwrap(), b"EN");
        assert_eq!(script.sent.borrow().as_slice(), b"version\r\n");
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let error = link(&Script::new(&["OK"])).line().unwrap_err();
        assert_eq!(error.to_string(), "the server closed the connection");
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let error = link(&Script::new(&[&long])).line().unwrap_err();
        assert!(error.to_string().contains("more than 4096 bytes"), "{error}");
    }

    #[test]
    fn a_value_of_another_length_is_refused() {
        let mut link = link(&Script::new(&["abcdef\r\n"]));
        let error = link.value(4).unwrap_err();
        assert!(error.to_string().contains("another length"), "{error}");
    }

    #[test]
    fn a_wrong_answer_is_shown_as_a_line() {
        for line in ["STAT a 1\r\n", "\u{1b}[2J nonsense\r\n"] {
            let script = Script::new(&[line]);
            let error = link(&script).response::<()>("mg", |_| None).unwrap_err().to_string();
            assert!(error.starts_with("`mg` is answered with \""), "{error}");
            assert!(!error.contains("Stat {") && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn a_user_who_stops_waits_for_no_answer() {
        let stop = AtomicBool::new(true);
        let mut link = endless(b"", &stop);
        assert_eq!(link.ask("version"), Err(Error::Stopped));
    }

    #[test]
    fn answers_have_a_limit_of_time() {
        let mut link = endless(b"", &GO_ON);
        link.answered_by = Instant::now();
        let error = link.line().unwrap_err();
        assert!(error.to_string().contains("within 10s"), "{error}");
    }
}
