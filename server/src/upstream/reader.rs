//! Bytes from a memcached server to answers. A large value is read into a pool buffer of its own, straight from the
//! socket; a length beyond the limit is an error before anything is allocated.

use bytes::Bytes;
use device::{Buffer, Pool};
use protocol::reply::MetaOutcome;
use protocol::response::{self, ErrorKind, Parse, Response};
use smallvec::SmallVec;

use super::Expect;
use super::answer::{Answer, Returned, Value};

pub(super) struct Reader {
    pool: Pool,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// A value that is not whole yet, and what it will be.
    body: Option<(Body, Header)>,
    values: SmallVec<[Value; 1]>,
    stats: Vec<(String, String)>,
    value_bytes_max: usize,
}

struct Body {
    buffer: Buffer,
    filled: usize,
    needed: usize,
}

enum Header {
    Classic { key: SmallVec<[u8; 32]>, client_flags: u32, cas: u64 },
    Meta(Returned),
}

impl Reader {
    pub(super) fn new(pool: Pool, value_bytes_max: usize) -> Self {
        Self {
            pool,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            body: None,
            values: SmallVec::new(),
            stats: Vec::new(),
            value_bytes_max,
        }
    }

    /// Where the next bytes go.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if let Some((body, _)) = &mut self.body {
            return &mut body.buffer.space()[body.filled..body.needed];
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.input[self.end..]
    }

    /// `bytes` were put there.
    pub(super) fn filled(&mut self, bytes: usize) {
        match &mut self.body {
            Some((body, _)) => body.filled += bytes,
            None => self.end += bytes,
        }
    }

    /// The next whole answer to a request that expects it so; none until more bytes are there.
    pub(super) fn next(&mut self, expect: Option<Expect>) -> Result<Option<Answer>, String> {
        loop {
            if let Some(answer) = self.finish_body()? {
                return Ok(Some(answer));
            }
            if self.body.is_some() {
                return Ok(None);
            }
            let input = &self.input[self.start..self.end];
            let (response, consumed) = match response::parse(input) {
                Parse::Incomplete => return Ok(None),
                Parse::Malformed(error) => return Err(error.to_string()),
                Parse::Complete { response, consumed } => (response, consumed),
            };
            let Some(expect) = expect else {
                return Err("an answer that nobody asked for".to_owned());
            };
            if let Some(body_bytes) = response.body_bytes() {
                if body_bytes > self.value_bytes_max as u64 + 2 {
                    return Err(format!("a value of {} bytes", body_bytes - 2));
                }
                let header = header_of(&response);
                self.start += consumed;
                self.begin_body(body_bytes as usize, header);
                continue;
            }
            match response {
                Response::Stat { name, value } if expect == Expect::Stats => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.stats.push((text(name), text(value)));
                    self.start += consumed;
                }
                Response::End => {
                    self.start += consumed;
                    return Ok(Some(match expect {
                        Expect::Stats => Answer::Stats(std::mem::take(&mut self.stats)),
                        _ => Answer::Values(std::mem::take(&mut self.values)),
                    }));
                }
                other => {
                    let answer = answer_of(&other);
                    self.start += consumed;
                    self.values.clear();
                    self.stats.clear();
                    return Ok(Some(answer));
                }
            }
        }
    }

    /// Takes the part of a value that is here already.
    fn begin_body(&mut self, needed: usize, header: Header) {
        let here = (self.end - self.start).min(needed);
        let mut buffer = self.pool.take(needed);
        buffer.space()[..here].copy_from_slice(&self.input[self.start..self.start + here]);
        self.start += here;
        self.body = Some((Body { buffer, filled: here, needed }, header));
    }

    fn finish_body(&mut self) -> Result<Option<Answer>, String> {
        let whole = self.body.take_if(|(body, _)| body.filled == body.needed);
        let Some((Body { mut buffer, needed, .. }, header)) = whole else { return Ok(None) };
        buffer.set_len(needed);
        if !buffer.ends_with(b"\r\n") {
            return Err("a value that does not end where it should".to_owned());
        }
        // A small value is not worth a whole pool buffer for as long as it lives.
        let value = if needed <= COPY_BYTES_MAX {
            Bytes::copy_from_slice(&buffer[..needed - 2])
        } else {
            buffer.freeze(0..needed - 2)
        };
        match header {
            Header::Classic { key, client_flags, cas } => {
                self.values.push(Value { key, client_flags, cas, value });
                Ok(None)
            }
            Header::Meta(returned) => {
                let outcome = MetaOutcome::Done;
                Ok(Some(Answer::Meta { outcome, returned, value: Some(value) }))
            }
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
            _ => {}
        }
    }
    returned
}

fn answer_of(response: &Response<'_>) -> Answer {
    match response {
        Response::Stored => Answer::Stored,
        Response::NotStored => Answer::NotStored,
        Response::Exists => Answer::Exists,
        Response::NotFound => Answer::NotFound,
        Response::Number(number) => Answer::Number(*number),
        Response::Meta { outcome, flags } => {
            Answer::Meta { outcome: *outcome, returned: returned(*flags), value: None }
        }
        Response::MetaMiss { .. } => Answer::MetaMiss,
        Response::MetaDebug(rest) => Answer::MetaDebug(rest.to_vec()),
        Response::Error { kind, message } => Answer::Error(error_line(*kind, message)),
        _ => Answer::Done,
    }
}

fn error_line(kind: ErrorKind, message: &[u8]) -> Vec<u8> {
    let name: &[u8] = match kind {
        ErrorKind::Unknown => return b"ERROR".to_vec(),
        ErrorKind::Client => b"CLIENT_ERROR ",
        ErrorKind::Server => b"SERVER_ERROR ",
    };
    [name, message].concat()
}

/// One read of a busy connection; values above are read into buffers of their own.
const INPUT_BYTES: usize = 64 << 10;

/// The smallest pool block is half a KiB.
const COPY_BYTES_MAX: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use units::ByteCount;

    use super::*;

    fn feed(stream: &[u8], step: usize, expects: &[Expect]) -> Result<Vec<String>, String> {
        let mut reader = Reader::new(Pool::heap(ByteCount::mib(1)), 1 << 20);
        let mut answers = Vec::new();
        let mut rest = stream;
        while !rest.is_empty() {
            let space = reader.space();
            let bytes = rest.len().min(step).min(space.len());
            space[..bytes].copy_from_slice(&rest[..bytes]);
            rest = &rest[bytes..];
            reader.filled(bytes);
            while let Some(answer) = reader.next(expects.get(answers.len()).copied())? {
                answers.push(format!("{answer:?}"));
            }
        }
        Ok(answers)
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
            Expect::One,
            Expect::Values,
            Expect::Values,
            Expect::One,
            Expect::One,
            Expect::One,
            Expect::One,
            Expect::One,
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
        let bad: [&[u8]; 5] = [
            b"hello\r\n",
            b"VALUE k 0 99999999999\r\n",
            b"VALUE k 0 2\r\nabcd",
            b"STORED\r\nSTORED\r\n",
            b"VA 18446744073709551615\r\n",
        ];
        for stream in bad {
            let expects = [Expect::One];
            assert!(feed(stream, usize::MAX, &expects).is_err(), "{}", stream.escape_ascii());
        }
    }
}
