//! Parses the bytes of a memcached server into answers. A large value is read from the socket into a separate
//! pool buffer. A value that is too long, or for which there is no memory, is skipped and fails only its own
//! request. Invalid bytes are an error before memory is allocated.

use std::sync::Arc;

use bytes::Bytes;
use device::{Buffer, Pool};
use protocol::reply::MetaOutcome;
use protocol::response::{self, ErrorKind, Parse, Response};
use smallvec::SmallVec;
use units::ByteCount;

use super::answer::{Answer, Returned, Value};
use super::{Expect, Limits};
use crate::budget::{Budget, Permit};
use crate::counters::Counters;

pub(super) struct Reader {
    pool: Pool,
    budget: Budget,
    counters: Arc<Counters>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// The value that is being read, if any.
    body: Option<Body>,
    /// True if the last value was long. The next read is then short, to copy little of the next value.
    is_long: bool,
    /// The number of VALUE lines of the answer so far.
    value_lines: usize,
    values: SmallVec<[Value; 1]>,
    stats: Vec<(String, String)>,
    /// The number of bytes that the answer so far holds uncharged.
    uncharged_bytes: usize,
    /// The reason why the answer cannot be stored. The rest of the answer is skipped.
    refusal: Option<Refusal>,
    /// The total size of the answer's values that need a permit, for a refusal for lack of memory (bytes).
    wanted_bytes: u64,
    value_bytes_max: usize,
    stats_bytes_max: ByteCount,
}

/// The reason why the bytes are not an answer. The connection must be closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The bytes are not memcached's protocol.
    Nonsense(String),
    /// The server has reached its connection limit. It closes the connection without reading any request.
    TooManyClients,
}

impl From<String> for Unreadable {
    fn from(what: String) -> Self {
        Self::Nonsense(what)
    }
}

impl From<&str> for Unreadable {
    fn from(what: &str) -> Self {
        Self::Nonsense(what.to_owned())
    }
}

/// The bytes of a value after its line, including CR LF.
enum Body {
    Kept { buffer: Buffer, filled: usize, needed: usize, header: Header, permit: Option<Permit> },
    Skipped { left: usize, header: Header },
}

enum Header {
    Classic { key: SmallVec<[u8; 32]>, client_flags: u32, cas: u64 },
    Meta(Returned),
}

/// The reason why an answer is skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    TooLarge,
    OverBudget,
}

enum Step {
    /// More bytes are needed.
    Wait,
    Next,
    Answered(Answer),
}

impl Reader {
    /// Creates a reader with the given limits.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            pool: limits.pool.clone(),
            budget: limits.budget.clone(),
            counters: Arc::clone(&limits.counters),
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            body: None,
            is_long: false,
            value_lines: 0,
            values: SmallVec::new(),
            stats: Vec::new(),
            uncharged_bytes: 0,
            refusal: None,
            wanted_bytes: 0,
            value_bytes_max: limits.value_bytes_max,
            stats_bytes_max: limits.held_bytes_max,
        }
    }

    /// Returns the buffer for the next bytes.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if let Some(Body::Kept { buffer, filled, needed, .. }) = &mut self.body {
            return &mut buffer.space()[*filled..*needed];
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.is_long {
                return &mut self.input[..BEGINNING_BYTES];
            }
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.input[self.end..]
    }

    /// Records that `bytes` bytes were written into [`Self::space`].
    pub(super) fn filled(&mut self, bytes: usize) {
        match &mut self.body {
            Some(Body::Kept { filled, .. }) => *filled += bytes,
            _ => self.end += bytes,
        }
    }

    /// Returns the next complete answer to a request that expects `expect`, or `None` if more bytes are
    /// needed. `granted` is the permit that the request took in advance.
    pub(super) fn next(
        &mut self,
        expect: Option<Expect>,
        granted: &mut Option<Permit>,
    ) -> Result<Option<Answer>, Unreadable> {
        loop {
            let step = match self.body.take() {
                Some(body) => self.go_on(body)?,
                None => self.line(expect, granted)?,
            };
            match step {
                Step::Wait => return Ok(None),
                Step::Next => {}
                Step::Answered(answer) => return Ok(Some(self.finish(answer))),
            }
        }
    }

    /// Returns whether all bytes that were read belong to answers that were returned.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end && self.body.is_none() && self.value_lines == 0
    }

    fn line(
        &mut self,
        expect: Option<Expect>,
        granted: &mut Option<Permit>,
    ) -> Result<Step, Unreadable> {
        let input = &self.input[self.start..self.end];
        let (response, line_bytes) = match response::parse(input) {
            Parse::Incomplete => return Ok(Step::Wait),
            Parse::Malformed(error) => return Err(error.to_string().into()),
            Parse::Complete { response, consumed } => (response, consumed),
        };
        let line = || input[..line_bytes.min(EXCERPT_BYTES)].trim_ascii_end().escape_ascii();
        let Some(expect) = expect else {
            return Err(format!("`{}`, which nobody asked for", line()).into());
        };
        let step = match (expect, &response) {
            (Expect::Values { keys_max }, Response::Value { value_bytes, .. }) => {
                if self.value_lines >= keys_max {
                    return Err(
                        format!("`{}`, after values for all {keys_max} keys", line()).into()
                    );
                }
                let (value_bytes, header) = (*value_bytes, header_of(&response));
                return self.begin(line_bytes, value_bytes, header, granted);
            }
            (Expect::Meta, Response::MetaValue { value_bytes, .. }) => {
                let (value_bytes, header) = (*value_bytes, header_of(&response));
                return self.begin(line_bytes, value_bytes, header, granted);
            }
            (Expect::Values { .. }, Response::End) => {
                Step::Answered(Answer::Values(std::mem::take(&mut self.values)))
            }
            (Expect::Stats, Response::Stat { name, value }) => {
                self.uncharged_bytes += line_bytes + size_of::<(String, String)>();
                if self.uncharged_bytes as u64 > self.stats_bytes_max.0 {
                    self.refusal = Some(Refusal::OverBudget);
                    self.stats = Vec::new();
                } else {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.stats.push((text(name), text(value)));
                }
                Step::Next
            }
            (Expect::Stats, Response::End) => {
                Step::Answered(Answer::Stats(std::mem::take(&mut self.stats)))
            }
            (_, Response::Error { kind: ErrorKind::Unknown, message })
                if message.starts_with(TOO_MANY_CLIENTS) =>
            {
                return Err(Unreadable::TooManyClients);
            }
            (_, other) => match answer_of(expect, other) {
                Some(answer) => Step::Answered(answer),
                None => return Err(format!("`{}` to a request for {expect}", line()).into()),
            },
        };
        self.start += line_bytes;
        Ok(step)
    }

    /// Begins a value after its line, with the bytes that were already read.
    fn begin(
        &mut self,
        line_bytes: usize,
        value_bytes: u64,
        header: Header,
        granted: &mut Option<Permit>,
    ) -> Result<Step, Unreadable> {
        if value_bytes >= ABSURD_BYTES {
            return Err(format!("a value of {value_bytes} bytes").into());
        }
        let needed = value_bytes as usize + 2;
        let small = needed <= COPY_BYTES_MAX;
        self.is_long = needed >= LONG_BYTES;
        let body_start = self.start + line_bytes;
        let here = (self.end - body_start).min(needed);
        if small && here < needed {
            return Ok(Step::Wait);
        }
        self.start = body_start;
        self.value_lines += 1;
        let permit = self.charge(needed, granted);
        if self.refusal.is_some() {
            self.values = SmallVec::new();
            self.body = Some(Body::Skipped { left: needed, header });
            return Ok(Step::Next);
        }
        let input = &self.input[self.start..self.start + here];
        self.start += here;
        if here > 0 {
            self.counters.values.stored_copies.up_unshared();
            self.counters.values.stored_copied_bytes.add_unshared(here as u64);
        }
        if small {
            // A small value is copied, so that it does not keep a whole pool buffer.
            let value = input.strip_suffix(b"\r\n").map(Bytes::copy_from_slice).ok_or(UNENDED)?;
            return Ok(self.keep(
                header,
                match permit {
                    Some(permit) => permit.attach(value),
                    None => value,
                },
            ));
        }
        let mut buffer = self.pool.take(needed);
        buffer.space()[..here].copy_from_slice(input);
        self.body = Some(Body::Kept { buffer, filled: here, needed, header, permit });
        Ok(Step::Next)
    }

    /// Takes the permit for a value. Returns `None` for a small value in a small answer, and if the answer is
    /// refused because the value is too long or there is no memory.
    fn charge(&mut self, needed: usize, granted: &mut Option<Permit>) -> Option<Permit> {
        if needed - 2 > self.value_bytes_max {
            self.refusal = Some(Refusal::TooLarge);
            return None;
        }
        let uncharged_bytes = self.uncharged_bytes + needed + size_of::<Value>();
        if needed <= COPY_BYTES_MAX && uncharged_bytes <= ANSWER_UNCHARGED_BYTES_MAX {
            self.uncharged_bytes = uncharged_bytes;
            return None;
        }
        let bytes = needed as u64;
        self.wanted_bytes += bytes;
        let has_enough =
            |granted: &mut Permit| (granted.bytes() >= bytes).then(|| granted.split(bytes));
        let permit = granted.as_mut().and_then(has_enough).or_else(|| self.budget.try_begin(bytes));
        if permit.is_none() {
            self.refusal = self.refusal.or(Some(Refusal::OverBudget));
        }
        permit
    }

    fn go_on(&mut self, body: Body) -> Result<Step, Unreadable> {
        match body {
            Body::Kept { filled, needed, .. } if filled < needed => {
                self.body = Some(body);
                Ok(Step::Wait)
            }
            Body::Kept { mut buffer, needed, header, permit, .. } => {
                buffer.set_len(needed);
                if !buffer.ends_with(b"\r\n") {
                    return Err(UNENDED.into());
                }
                let value = buffer.freeze(0..needed - 2);
                Ok(self.keep(
                    header,
                    match permit {
                        Some(permit) => permit.attach(value),
                        None => value,
                    },
                ))
            }
            Body::Skipped { mut left, header } => {
                let skipped = (left - 2).min(self.end - self.start);
                self.start += skipped;
                left -= skipped;
                match &self.input[self.start..self.end] {
                    [b'\r', b'\n', ..] if left == 2 => {
                        self.start += 2;
                        Ok(self.keep(header, Bytes::new()))
                    }
                    [_, _, ..] if left == 2 => Err(UNENDED.into()),
                    _ => {
                        self.body = Some(Body::Skipped { left, header });
                        Ok(Step::Wait)
                    }
                }
            }
        }
    }

    fn keep(&mut self, header: Header, value: Bytes) -> Step {
        match header {
            Header::Classic { .. } if self.refusal.is_some() => Step::Next,
            Header::Classic { key, client_flags, cas } => {
                self.values.push(Value { key, client_flags, cas, value });
                Step::Next
            }
            Header::Meta(returned) => {
                let outcome = MetaOutcome::Done;
                Step::Answered(Answer::Meta { outcome, returned, value: Some(value) })
            }
        }
    }

    /// Clears the state of the answer, in preparation for the next one.
    fn finish(&mut self, answer: Answer) -> Answer {
        if !matches!(answer, Answer::Values(_) | Answer::Stats(_)) {
            self.values.clear();
            self.stats.clear();
        }
        (self.value_lines, self.uncharged_bytes) = (0, 0);
        let bytes = std::mem::take(&mut self.wanted_bytes);
        match (self.refusal.take(), answer) {
            (None, answer) => answer,
            (Some(Refusal::TooLarge), _) => Answer::Error(TOO_LARGE.as_bytes().into()),
            // The lack of memory concerns something other than values.
            (Some(Refusal::OverBudget), _) if bytes == 0 => {
                Answer::Error(OUT_OF_MEMORY.as_bytes().into())
            }
            (Some(Refusal::OverBudget), Answer::Meta { returned, .. }) => {
                Answer::OverBudget { bytes, returned: Some(returned) }
            }
            (Some(Refusal::OverBudget), _) => Answer::OverBudget { bytes, returned: None },
        }
    }
}

fn header_of(response: &Response<'_>) -> Header {
    match response {
        Response::Value { key, client_flags, cas, .. } => Header::Classic {
            key: SmallVec::from_slice(key),
            client_flags: *client_flags,
            cas: cas.unwrap_or(0),
        },
        Response::MetaValue { flags, .. } => Header::Meta(returned(*flags)),
        _ => Header::Meta(Returned::default()),
    }
}

fn returned(flags: protocol::Flags<'_>) -> Returned {
    let mut returned = Returned::default();
    for (letter, argument) in flags {
        let number =
            || std::str::from_utf8(argument).ok().and_then(|text| text.parse::<u64>().ok());
        match letter {
            b'c' => returned.cas = number().unwrap_or(0),
            b'f' => returned.client_flags = number().unwrap_or(0) as u32,
            b't' => returned.ttl_s = number().map(|ttl_s| ttl_s as u32),
            b'l' => returned.idle_s = number().unwrap_or(0) as u32,
            b'h' => returned.fetched = argument == b"1",
            b'W' => returned.won = true,
            b'X' => returned.stale = true,
            b'Z' => returned.already_won = true,
            b'b' => returned.binary_key = true,
            b's' => returned.has_size = true,
            _ => {}
        }
    }
    returned
}

/// Returns the answer in a line without a value, or `None` if the line is not a valid answer to the request.
fn answer_of(expect: Expect, response: &Response<'_>) -> Option<Answer> {
    use Expect as E;
    use Response as R;
    Some(match (expect, response) {
        // A server that does not know the command interprets its value as commands.
        (E::Written | E::MetaWritten, R::Error { kind: ErrorKind::Unknown, .. }) => return None,
        // memcached before 1.6 does not know the command, but it answers.
        (E::Noop, R::Error { kind: ErrorKind::Unknown, .. }) => Answer::Done,
        (_, R::Error { kind, message }) => Answer::Error(error_line(*kind, message)[..].into()),
        (E::Written, R::Stored) => Answer::Stored,
        (E::Written, R::NotStored) => Answer::NotStored,
        (E::Written, R::Exists) => Answer::Exists,
        (E::Written | E::Found | E::Number, R::NotFound) => Answer::NotFound,
        (E::Found, R::Deleted | R::Touched) | (E::Done, R::Ok) => Answer::Done,
        (E::Stats, R::Reset | R::Ok) | (E::Noop, R::MetaNoop) => Answer::Done,
        (E::Number, R::Number(number)) => Answer::Number(*number),
        (E::Meta | E::MetaWritten, R::Meta { outcome, flags }) => {
            Answer::Meta { outcome: *outcome, returned: returned(*flags), value: None }
        }
        (E::Meta | E::Debug, R::MetaMiss { .. }) => Answer::MetaMiss,
        (E::Debug, R::MetaDebug(rest)) => Answer::MetaDebug(rest.to_vec()),
        _ => return None,
    })
}

fn error_line(kind: ErrorKind, message: &[u8]) -> Vec<u8> {
    let name: &[u8] = match kind {
        ErrorKind::Unknown => return b"ERROR".to_vec(),
        ErrorKind::Client => b"CLIENT_ERROR ",
        ErrorKind::Server => b"SERVER_ERROR ",
    };
    [name, message].concat()
}

/// The buffer size of one read of a busy connection (bytes).
const INPUT_BYTES: usize = 64 << 10;

/// The buffer size for the line of a value with the longest key (bytes).
const BEGINNING_BYTES: usize = 512;

/// The size from which a value is long (bytes). Copying it takes about as long as a system call.
const LONG_BYTES: usize = 24 << 10;

/// The largest value that is copied out of the input (bytes). Larger values are read into pool buffers.
const COPY_BYTES_MAX: usize = 2 << 10;

/// The length from which a value is invalid (bytes). No memcached has such values (`-I` is at most 1 GiB), so
/// the parser must have misinterpreted data as a line.
const ABSURD_BYTES: u64 = 1 << 30;

/// The number of bytes of an unexpected line that its error repeats.
const EXCERPT_BYTES: usize = 64;

/// The number of bytes that one answer may hold uncharged.
const ANSWER_UNCHARGED_BYTES_MAX: usize = 32 << 10;

/// memcached's text after `ERROR ` for a client above the connection limit.
const TOO_MANY_CLIENTS: &[u8] = b"Too many open connections";

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory writing get response";
const UNENDED: &str = "a value that does not end where it should";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const ONE_KEY: Expect = Expect::Values { keys_max: 1 };

    fn reader(pool: Pool, held_bytes_max: ByteCount) -> Reader {
        let value_bytes_max = 1 << 20;
        let budget = Budget::new(held_bytes_max.0);
        let (counters, clock) = (Arc::default(), Arc::new(units::ManualClock::default()));
        Reader::new(&Limits {
            pool,
            budget,
            counters,
            value_bytes_max,
            held_bytes_max,
            login: None,
            clock,
            network: None,
        })
    }

    fn feed(stream: &[u8], step: usize, expects: &[Expect]) -> Result<Vec<String>, Unreadable> {
        feed_holding(ByteCount::mib(4), stream, step, expects)
    }

    fn feed_holding(
        held_bytes_max: ByteCount,
        stream: &[u8],
        step: usize,
        expects: &[Expect],
    ) -> Result<Vec<String>, Unreadable> {
        let mut reader = reader(Pool::heap(ByteCount::mib(1)), held_bytes_max);
        let mut answers = Vec::new();
        let mut rest = stream;
        while !rest.is_empty() {
            let space = reader.space();
            let bytes = rest.len().min(step).min(space.len());
            space[..bytes].copy_from_slice(&rest[..bytes]);
            rest = &rest[bytes..];
            reader.filled(bytes);
            while let Some(answer) = reader.next(expects.get(answers.len()).copied(), &mut None)? {
                answers.push(format!("{answer:?}"));
            }
        }
        Ok(answers)
    }

    fn line(text: &str) -> String {
        format!("{:?}", Answer::Error(text.as_bytes().into()))
    }

    fn value(bytes: usize) -> Vec<u8> {
        [format!("VALUE k 0 {bytes}\r\n").into_bytes(), vec![b'z'; bytes], b"\r\n".to_vec()]
            .concat()
    }

    #[test]
    fn answers_are_the_same_however_the_bytes_arrive() {
        let mut stream = b"STORED\r\nEND\r\nVALUE a 7 3 99\r\nx\r\n\r\n".to_vec();
        stream.extend_from_slice(b"VALUE b 0 0\r\n\r\nVALUE c 1 100000\r\n");
        stream.extend_from_slice(&vec![b'z'; 100_000]);
        stream.extend_from_slice(b"\r\nEND\r\nVA 5 f1 c2 t-1 W\r\nhello\r\nEN\r\nHD c9\r\n12\r\n");
        stream.extend_from_slice(
            b"SERVER_ERROR out of memory\r\nSTAT a 1\r\nSTAT b two words\r\nEND\r\n",
        );
        let expects = [
            Expect::Written,
            ONE_KEY,
            Expect::Values { keys_max: 3 },
            Expect::Meta,
            Expect::Meta,
            Expect::MetaWritten,
            Expect::Number,
            Expect::Written,
            Expect::Stats,
        ];
        let whole = feed(&stream, usize::MAX, &expects).expect("a valid stream");
        assert_eq!(whole.len(), expects.len());
        assert!(whole[2].contains("client_flags: 7, cas: 99"), "{}", &whole[2][..200]);
        assert!(whole[8].contains("two words"), "{}", whole[8]);
        for step in [1, 2, 3, 7, 1_000, 65_536] {
            assert_eq!(feed(&stream, step, &expects).as_ref(), Ok(&whole), "{step} at a time");
        }
    }

    #[test]
    fn what_a_server_must_not_send_ends_the_connection() {
        let bad: [(Expect, &[u8]); 18] = [
            (ONE_KEY, b"hello\r\n"),
            (ONE_KEY, b"VALUE k 0 99999999999\r\n"),
            (ONE_KEY, b"VALUE k 0 1073741824\r\n"),
            (ONE_KEY, b"VALUE k 0 2\r\nabcd"),
            (ONE_KEY, b"VALUE k 0 1\r\na\r\nVALUE k 0 1\r\nb\r\nEND\r\n"),
            (ONE_KEY, b"STORED\r\n"),
            (ONE_KEY, b"HD\r\n"),
            (Expect::Written, b"STORED\r\nSTORED\r\n"),
            (Expect::Written, b"END\r\n"),
            (Expect::Written, b"ERROR\r\n"),
            (Expect::MetaWritten, b"ERROR\r\n"),
            (Expect::MetaWritten, b"VA 1\r\na\r\n"),
            (Expect::Meta, b"VA 18446744073709551615\r\n"),
            (Expect::Meta, b"VALUE k 0 1\r\na\r\n"),
            (Expect::Found, b"STORED\r\n"),
            (Expect::Number, b"DELETED\r\n"),
            (Expect::Done, b"1\r\n"),
            (Expect::Stats, b"VALUE k 0 1\r\na\r\n"),
        ];
        for (expect, stream) in bad {
            let answers = feed(stream, usize::MAX, &[expect]);
            assert!(answers.is_err(), "{}: {answers:?}", stream.escape_ascii());
        }
    }

    #[test]
    fn an_error_line_answers_every_request() {
        let all = [ONE_KEY, Expect::Written, Expect::MetaWritten, Expect::Found, Expect::Number];
        let more = [Expect::Meta, Expect::Debug, Expect::Done, Expect::Noop];
        for expect in all.into_iter().chain(more) {
            let answers = feed(b"SERVER_ERROR busy\r\n", usize::MAX, &[expect]);
            assert_eq!(answers, Ok(vec![line("SERVER_ERROR busy")]), "{expect}");
        }
        assert_eq!(feed(b"ERROR\r\n", usize::MAX, &[Expect::Meta]), Ok(vec![line("ERROR")]));
        let done = Ok(vec![format!("{:?}", Answer::Done)]);
        assert_eq!(feed(b"ERROR\r\n", usize::MAX, &[Expect::Noop]), done, "an old memcached");
    }

    #[test]
    fn too_long_a_value_fails_its_own_request_only() {
        let expects = [Expect::Values { keys_max: 3 }, Expect::Meta, ONE_KEY];
        let long = value((1 << 20) + 1);
        let meta = [format!("VA {}\r\n", 3 << 20).into_bytes(), vec![b'y'; 3 << 20]].concat();
        let stream = [&value(5), &long, &value(5), &b"END\r\n"[..], &meta, b"\r\n", b"END\r\n"];
        let stream = stream.concat();
        let expected = vec![line(TOO_LARGE), line(TOO_LARGE), "Values([])".to_owned()];
        for step in [1_001, 65_536, usize::MAX] {
            assert_eq!(feed(&stream, step, &expects).as_ref(), Ok(&expected), "{step} at a time");
        }
        let unended = [&long[..long.len() - 2], b"zz"].concat();
        assert_eq!(feed(&unended, usize::MAX, &expects), Err(UNENDED.into()));
    }

    #[test]
    fn values_without_memory_are_read_past() {
        let expects = [Expect::Values { keys_max: 9 }, ONE_KEY];
        let held_bytes_max = ByteCount::kib(10);
        let next = [value(1), b"END\r\n".to_vec()].concat();
        for many in [value(9_000).repeat(9), value(20_000).repeat(2)] {
            let stream = [&many, &b"END\r\n"[..], &next].concat();
            for step in [7, usize::MAX] {
                let answers =
                    feed_holding(held_bytes_max, &stream, step, &expects).expect("a valid stream");
                assert!(answers[0].starts_with("OverBudget"), "{}", answers[0]);
                assert!(answers[1].contains("client_flags"), "{}", answers[1]);
            }
        }
        let stats = [&b"STAT a b\r\n".repeat(1_000)[..], b"END\r\n"].concat();
        let answers = feed_holding(held_bytes_max, &stats, usize::MAX, &[Expect::Stats]);
        assert_eq!(answers, Ok(vec![line(OUT_OF_MEMORY)]));
    }

    #[test]
    fn small_values_take_nothing_from_the_pool() {
        let pool = Pool::heap(ByteCount::mib(1));
        let mut reader = reader(pool.clone(), ByteCount::mib(1));
        for byte in value(2_000) {
            reader.space()[0] = byte;
            reader.filled(1);
            assert!(matches!(reader.next(Some(ONE_KEY), &mut None), Ok(None)));
        }
        assert_eq!((pool.outstanding(), pool.retained()), (ByteCount(0), ByteCount(0)));
    }

    #[test]
    fn only_copied_bytes_of_a_value_are_counted() {
        let mut reader = reader(Pool::heap(ByteCount::mib(1)), ByteCount::mib(1));
        let mut copied_of = |value_bytes: usize, step: usize| {
            let stream = [value(value_bytes), b"END\r\n".to_vec()].concat();
            let read = |reader: &Reader| {
                let counters = &reader.counters.values;
                (counters.stored_copies.read(), counters.stored_copied_bytes.read())
            };
            let (mut rest, before) = (&stream[..], read(&reader));
            while !rest.is_empty() {
                let space = reader.space();
                let bytes = rest.len().min(space.len()).min(step);
                space[..bytes].copy_from_slice(&rest[..bytes]);
                rest = &rest[bytes..];
                reader.filled(bytes);
                while reader.next(Some(ONE_KEY), &mut None).expect("a valid stream").is_some() {}
            }
            let after = read(&reader);
            (after.0 - before.0, after.1 - before.1)
        };
        let line_bytes = |value_bytes| value(value_bytes).len() - value_bytes - 2;
        assert_eq!(copied_of(1_000, usize::MAX), (1, 1_002));
        assert_eq!(copied_of(10_000, usize::MAX), (1, 10_002));
        assert_eq!(copied_of(10_000, line_bytes(10_000)), (0, 0));
        assert_eq!(copied_of(50_000, usize::MAX), (1, 50_002));
        let beginning = BEGINNING_BYTES - line_bytes(50_000);
        assert_eq!(copied_of(50_000, usize::MAX), (1, beginning as u64), "one like it before");
    }

    #[test]
    fn few_bytes_behind_a_long_value_are_copied() {
        let mut reader = reader(Pool::heap(ByteCount::mib(1)), ByteCount::mib(1));
        let mut feed = |stream: &[u8]| {
            let (mut rest, mut copied) = (stream, 0);
            while !rest.is_empty() {
                let into_input = reader.body.is_none();
                let space = reader.space();
                let bytes = rest.len().min(space.len());
                space[..bytes].copy_from_slice(&rest[..bytes]);
                copied += if into_input { bytes } else { 0 };
                rest = &rest[bytes..];
                reader.filled(bytes);
                while reader.next(Some(ONE_KEY), &mut None).expect("a valid stream").is_some() {}
            }
            copied
        };
        let long = [value(50_000), b"END\r\n".to_vec()].concat();
        let short = [value(1_000), b"END\r\n".to_vec()].concat();
        assert!(feed(&long) > 50_000, "nothing tells that it is coming");
        assert!(feed(&long) < 1_000);
        // The first of these takes two reads, and the second takes one again.
        assert_eq!((feed(&short), feed(&short)), (short.len(), short.len()));
        assert!(feed(&long) > 50_000);
    }
}
