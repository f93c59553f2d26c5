//! Requests as bytes, and answers from bytes. It is a client's parser of its own, so that it shares no mistake with
//! the server's.

use std::io;

use super::stream::Stream;
use crate::history::{Answer, Ask, Bytes, Marks};
use crate::network::SUBNET;

/// A request on the wire: about one key, or a get of several keys.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) keys: Vec<String>,
    pub(super) ask: Ask,
    pub(super) exptime_s: u32,
    /// The date from which long lives of items are counted (Unix seconds).
    pub(super) unix_s: u64,
    pub(super) style: Style,
}

/// The commands that are used for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Classic,
    /// Classic commands, and gets without CAS numbers.
    Plain,
    Meta,
    /// The binary protocol, which a connection keeps.
    Packets,
}

/// Returns the flags that go with a value, so that they can be checked too.
pub(super) fn flags(value: &[u8]) -> u32 {
    value
        .iter()
        .take(32)
        .fold(7, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
        & 0xffff
}

impl Request {
    /// Appends the request, which has this place in its batch.
    pub(super) fn write(&self, place: usize, out: &mut Vec<u8>) {
        match self.style {
            Style::Packets => self.write_packets(place, out),
            Style::Classic | Style::Plain | Style::Meta => self.write_lines(out),
        }
    }

    fn write_lines(&self, out: &mut Vec<u8>) {
        let key = self.keys.first().map(String::as_str).unwrap_or_default();
        let is_meta = self.style == Style::Meta;
        let line = match &self.ask {
            Ask::Get if is_meta => format!("mg {key} v c f"),
            Ask::Get if self.style == Style::Plain => format!("get {}", self.keys.join(" ")),
            Ask::Get => format!("gets {}", self.keys.join(" ")),
            Ask::Delete if is_meta => format!("md {key}"),
            Ask::Delete => format!("delete {key}"),
            Ask::Count(delta) if is_meta => format!("ma {key} v D{delta}"),
            Ask::Count(delta) => format!("incr {key} {delta}"),
            Ask::Touch if is_meta => format!("mg {key} T{}", self.exptime()),
            Ask::Touch => format!("touch {key} {}", self.exptime()),
            Ask::Flush => "flush_all".to_owned(),
            Ask::Invalidate => format!("md {key} I T{}", self.exptime()),
            Ask::Fetch { vivifies, recaches } => {
                let made = if *vivifies { format!(" N{}", self.exptime()) } else { String::new() };
                let soon = if *recaches { LONG_S } else { SHORT_S };
                format!("mg {key} v c f{made} R{soon}")
            }
            Ask::Set(value)
            | Ask::Add(value)
            | Ask::Replace(value)
            | Ask::Append(value)
            | Ask::Cas(value, _) => {
                out.extend_from_slice(self.store_line(key, value).as_bytes());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(value);
                return out.extend_from_slice(b"\r\n");
            }
        };
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the expiry time as it is sent: a long life as the date at its end.
    pub(super) fn exptime(&self) -> u64 {
        let life_s = u64::from(self.exptime_s);
        if life_s > THIRTY_DAYS_S { self.unix_s + life_s } else { life_s }
    }

    fn store_line(&self, key: &str, value: &[u8]) -> String {
        let (flags, exptime, bytes) = (flags(value), self.exptime(), value.len());
        if self.style == Style::Meta {
            let mode = match &self.ask {
                Ask::Add(_) => " ME".to_owned(),
                Ask::Replace(_) => " MR".to_owned(),
                Ask::Append(_) => " MA".to_owned(),
                Ask::Cas(_, cas) => format!(" C{cas}"),
                _ => String::new(),
            };
            return format!("ms {key} {bytes} F{flags} T{exptime}{mode}");
        }
        let (verb, cas) = match &self.ask {
            Ask::Add(_) => ("add", String::new()),
            Ask::Replace(_) => ("replace", String::new()),
            Ask::Append(_) => ("append", String::new()),
            Ask::Cas(_, cas) => ("cas", format!(" {cas}")),
            _ => ("set", String::new()),
        };
        format!("{verb} {key} {flags} {exptime} {bytes}{cas}")
    }
}

/// Why a connection cannot be used any more.
#[derive(Debug)]
pub(super) enum Broken {
    /// It has ended.
    Ended(io::Error),
    /// The answer is none that a server may give.
    Wrong(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Ended(error)
    }
}

/// Reads answers from a connection.
pub(super) struct Answers<'c> {
    connection: &'c Stream,
    input: Vec<u8>,
    start: usize,
    /// The last error that the server has reported.
    pub(super) error: Option<String>,
}

impl<'c> Answers<'c> {
    pub(super) fn new(connection: &'c Stream) -> Self {
        Self { connection, input: Vec::new(), start: 0, error: None }
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.start > 64 << 10 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let filled = self.input.len();
        self.input.resize(filled + (16 << 10), 0);
        let read = self.connection.read(&mut self.input[filled..]).await;
        self.input.truncate(filled + *read.as_ref().unwrap_or(&0));
        if read? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    pub(super) async fn line(&mut self) -> Result<String, Broken> {
        loop {
            let rest = &self.input[self.start..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                let line = String::from_utf8_lossy(line).into_owned();
                self.start += end + 1;
                return Ok(line);
            }
            if rest.len() > 4 << 10 {
                return Err(Broken::Wrong("a line without an end".to_owned()));
            }
            self.fill().await?;
        }
    }

    /// Returns the next bytes, and leaves them where they are.
    pub(super) async fn bytes(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.input.len() - self.start < count {
            self.fill().await?;
        }
        Ok(&self.input[self.start..self.start + count])
    }

    /// Passes over bytes that were read.
    pub(super) fn skip(&mut self, count: usize) {
        self.start += count;
    }

    async fn data(&mut self, bytes: usize) -> Result<Bytes, Broken> {
        let data = self.bytes(bytes + 2).await?;
        if !data.ends_with(b"\r\n") {
            return Err(Broken::Wrong(format!(
                "{bytes} bytes of a value do not end in a line end"
            )));
        }
        let value = data[..bytes].into();
        self.skip(bytes + 2);
        Ok(value)
    }

    /// Returns whether bytes have arrived that nobody asked for.
    pub(super) fn has_more(&self) -> bool {
        let mut space = [0];
        self.start < self.input.len() || matches!(self.connection.try_read(&mut space), Ok(1..))
    }

    /// Reads the answers to the request with this place in its batch: one for each of its keys.
    pub(super) async fn next(
        &mut self,
        request: &Request,
        place: usize,
    ) -> Result<Vec<Answer>, Broken> {
        if request.style == Style::Packets {
            return self.next_packets(request, place).await;
        }
        let line = self.line().await?;
        if line.starts_with("SERVER_ERROR") || line.starts_with("ERROR Too many") {
            self.note_error(line)?;
            return Ok(vec![Answer::Unknown; request.keys.len().max(1)]);
        }
        if request.ask == Ask::Get && request.style != Style::Meta {
            return self.values(line, request).await;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (&request.ask, words[0]) {
            (_, "HD") | (Ask::Flush, "OK") => Answer::Done,
            (Ask::Delete, "DELETED") | (Ask::Touch, "TOUCHED") => Answer::Done,
            (
                Ask::Delete | Ask::Touch | Ask::Count(_) | Ask::Cas(..) | Ask::Invalidate,
                "NOT_FOUND" | "NF",
            ) => Answer::Miss,
            (Ask::Get | Ask::Touch | Ask::Fetch { .. }, "EN") => Answer::Miss,
            (Ask::Get | Ask::Count(_) | Ask::Fetch { .. }, "VA") => {
                let bytes = words.get(1).and_then(|word| word.parse().ok());
                let bytes = bytes.ok_or_else(|| wrong(request, &line))?;
                let value = self.data(bytes).await?;
                meta_answer(request, &words[2..], value).ok_or_else(|| wrong(request, &line))?
            }
            (Ask::Count(_), "CLIENT_ERROR") => Answer::NotNumber,
            (Ask::Count(_), number) => {
                Answer::Number(number.parse().map_err(|_| wrong(request, &line))?)
            }
            (
                Ask::Set(_) | Ask::Add(_) | Ask::Replace(_) | Ask::Append(_) | Ask::Cas(..),
                "STORED",
            ) => Answer::Done,
            (Ask::Add(_) | Ask::Replace(_) | Ask::Append(_), "NOT_STORED" | "NS") => {
                Answer::NotStored
            }
            (Ask::Cas(..), "EXISTS" | "EX") => Answer::Exists,
            _ => return Err(wrong(request, &line)),
        };
        Ok(vec![answer])
    }

    /// Reads the answer to the login of a text client.
    pub(super) async fn line_of_login(&mut self) -> Result<(), Broken> {
        let line = self.line().await?;
        if line.starts_with("ERROR Too many") {
            self.note_error(line)?;
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        match line.as_str() {
            "STORED" => Ok(()),
            _ => Err(Broken::Wrong(format!("the login is answered {line:?}"))),
        }
    }

    /// Records an error. Clients must not learn where the servers behind a frontend are.
    pub(super) fn note_error(&mut self, line: String) -> Result<(), Broken> {
        if line.contains(SUBNET) {
            return Err(Broken::Wrong(format!("an error tells an address: {line:?}")));
        }
        self.error = Some(line);
        Ok(())
    }

    /// Reads the rest of the answer to a classic get, whose first line is `line`.
    async fn values(&mut self, mut line: String, request: &Request) -> Result<Vec<Answer>, Broken> {
        let mut answers = vec![Answer::Miss; request.keys.len()];
        let mut next = 0;
        loop {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "END" => return Ok(answers),
                // memcached ends a get like this if it fails. The keys without a value may have one.
                "SERVER_ERROR" => {
                    self.note_error(line)?;
                    let is_missing = |answer: &&mut Answer| **answer == Answer::Miss;
                    answers.iter_mut().filter(is_missing).for_each(|one| *one = Answer::Unknown);
                    return Ok(answers);
                }
                "VALUE" => {
                    let found = words.get(1).and_then(|key| {
                        let rest = request.keys[next..].iter();
                        rest.clone().position(|asked| asked == key).map(|at| next + at)
                    });
                    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
                    let (Some(at), Some(bytes)) = (found, number(3)) else {
                        return Err(wrong(request, &line));
                    };
                    let value = self.data(bytes as usize).await?;
                    check_flags(&request.keys[at], &value, number(2))?;
                    let cas = (request.style == Style::Classic).then(|| number(4)).flatten();
                    answers[at] = Answer::Hit(value, cas);
                    next = at + 1;
                }
                _ => return Err(wrong(request, &line)),
            }
            line = self.line().await?;
        }
    }
}

fn meta_answer(request: &Request, facts: &[&str], value: Bytes) -> Option<Answer> {
    if let Ask::Count(_) = request.ask {
        return Some(Answer::Number(std::str::from_utf8(&value).ok()?.parse().ok()?));
    }
    let fact = |letter: char| {
        let text = facts.iter().find_map(|fact| fact.strip_prefix(letter))?;
        text.parse::<u64>().ok()
    };
    let (client_flags, cas) = (fact('f')?, fact('c')?);
    if let Ask::Fetch { .. } = request.ask {
        let has = |mark| facts.contains(&mark);
        let marks = Marks { is_won: has("W"), is_stale: has("X"), was_won: has("Z") };
        // An item that a fetch has made has no flags.
        let expected = if value.is_empty() { 0 } else { flags(&value) };
        return (client_flags == u64::from(expected)).then_some(Answer::Fetched(value, cas, marks));
    }
    check_flags(&request.keys[0], &value, Some(client_flags)).ok()?;
    Some(Answer::Hit(value, Some(cas)))
}

/// Checks the flags of a value. Those of appended values are those of their beginning, and are not checked.
pub(super) fn check_flags(key: &str, value: &[u8], found: Option<u64>) -> Result<(), Broken> {
    if key.starts_with(super::REGISTER) && found != Some(flags(value).into()) {
        return Err(Broken::Wrong(format!("the value of {key} has the flags {found:?}")));
    }
    Ok(())
}

pub(super) fn wrong(request: &Request, line: &str) -> Broken {
    let mut text = Vec::new();
    request.write(0, &mut text);
    text.truncate(80);
    Broken::Wrong(format!("{:?} is answered {line:?}", String::from_utf8_lossy(&text)))
}

/// A life that every item with a limited one has less of, and one that none has less of (s).
const LONG_S: u64 = 9_000;
const SHORT_S: u64 = 1;
/// Longer times until the expiry of an item are dates.
const THIRTY_DAYS_S: u64 = 30 * 24 * 60 * 60;
