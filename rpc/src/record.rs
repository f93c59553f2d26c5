//! The content of App.Recv and App.Resp: a head that identifies the request, then a block. This
//! module reads and writes no fields.

use crate::command::Code;
use crate::flat::{Build, View};

/// A request as the application receives it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The engine's number for the request. The response repeats it.
    pub token: u64,
    /// The number of the function.
    pub function: u32,
    /// The generation of the service, as [`crate::Engine::load`] returned it.
    pub generation: u32,
    /// The arguments.
    pub body: View<'a>,
}

impl<'a> Record<'a> {
    /// Reads the record in these bytes. The record must end where the bytes end.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        Some(Self {
            token: u64_at(head, 0),
            function: u64_at(head, 8) as u32,
            generation: (u64_at(head, 8) >> 32) as u32,
            body: View::new(rest),
        })
    }

    /// Writes the head of a request. The request's block follows it.
    pub(crate) fn head(bytes: &mut [u8], token: u64, function: u32, generation: u32) {
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        let which = u64::from(generation) << 32 | u64::from(function);
        bytes[8..16].copy_from_slice(&which.to_le_bytes());
        bytes[16..RECORD_HEAD_BYTES].fill(0);
    }
}

/// A response as the application writes it: the block of a result, or the reason why there is no
/// result.
#[derive(Debug)]
pub struct Reply<'a> {
    token: u64,
    head: &'a mut [u8; RECORD_HEAD_BYTES],
    /// The builder of the result's block.
    pub body: Build<'a>,
}

impl<'a> Reply<'a> {
    /// Begins the response to this request in this buffer.
    pub fn to(request: &Record<'_>, buffer: &'a mut [u8]) -> Result<Self, Code> {
        let (head, rest) = buffer.split_first_chunk_mut().ok_or(Code::Oversized)?;
        Ok(Self { token: request.token, head, body: Build::new(rest) })
    }

    /// Replaces a refused response in its buffer by a refusal with `code`, so that the request is
    /// not lost. Returns the record's length. Returns `None` if the response was itself a refusal,
    /// because another refusal would fail too.
    pub fn again(buffer: &mut [u8], code: Code) -> Option<usize> {
        let (head, rest) = buffer.split_first_chunk_mut()?;
        let (token, kind) = (u64_at(head, 0), u64_at(head, 8));
        (kind != EXCEPTION).then(|| Reply { token, head, body: Build::new(rest) }.refuse(code))
    }

    /// Completes the response with the block at `place`. Returns the record's length for the
    /// engine.
    pub fn seal(self, place: usize) -> usize {
        self.finish(REPLY, place as u64)
    }

    /// Completes the response without a result. The caller gets an application exception for this
    /// code. Returns the record's length for the engine.
    pub fn refuse(self, code: Code) -> usize {
        self.finish(EXCEPTION, code as u64)
    }

    fn finish(self, kind: u64, what: u64) -> usize {
        self.head[..8].copy_from_slice(&self.token.to_le_bytes());
        self.head[8..16].copy_from_slice(&kind.to_le_bytes());
        self.head[16..24].copy_from_slice(&what.to_le_bytes());
        RECORD_HEAD_BYTES + self.body.used()
    }
}

/// A response as the engine reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response<'a> {
    pub(crate) token: u64,
    pub(crate) what: Result<View<'a>, Code>,
}

impl<'a> Response<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Code> {
        let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or(Code::Truncated)?;
        let what = match u64_at(head, 8) {
            REPLY => {
                let place = usize::try_from(u64_at(head, 16)).ok();
                let block = place.and_then(|place| rest.get(place..)).ok_or(Code::Malformed)?;
                Ok(View::new(block))
            }
            EXCEPTION => Err(Code::numbered(u64_at(head, 16)).ok_or(Code::Malformed)?),
            _ => return Err(Code::Malformed),
        };
        Ok(Self { token: u64_at(head, 0), what })
    }
}

fn u64_at(head: &[u8; RECORD_HEAD_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The size of a record's head, which precedes the block (bytes).
pub const RECORD_HEAD_BYTES: usize = 24;
const REPLY: u64 = 0;
const EXCEPTION: u64 = 1;
