//! The answers to packets of the binary protocol and to calls of the Thrift service. Both kinds of request are served
//! by the same code, and only the form of their answers differs.

use protocol::binary::reply::Hit;
use protocol::binary::{Head, Status, reply};
use rpc::services::memcached::Memcached;
use rpc::wire::{INTERNAL_ERROR, Message, MessageKind, Writer, kind};
use rpc::{Code, Functions};

use crate::counters::Commands;

/// The request to which an answer belongs.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyTo {
    Packet(Head),
    Call(Call),
}

/// A call of the Thrift service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The number of the function.
    pub(super) function: u32,
    /// The client's number of the call.
    pub(super) sequence: i32,
}

impl ReplyTo {
    /// Counts the request.
    pub(super) fn count(self, commands: &Commands) {
        match self {
            ReplyTo::Packet(_) => commands.cmd_binary.up(),
            ReplyTo::Call(_) => commands.cmd_thrift.up(),
        }
    }

    /// Appends the answer to a hit, up to its value.
    pub(super) fn hit(self, out: &mut Vec<u8>, item: &Hit<'_>) {
        match self {
            ReplyTo::Packet(head) => reply::hit(out, head, item),
            ReplyTo::Call(call) => call.hit(out, item),
        }
    }

    /// Returns the bytes behind the value of a hit.
    pub(super) const fn tail(self) -> &'static [u8] {
        match self {
            ReplyTo::Packet(_) => &[],
            ReplyTo::Call(call) => call.tail(),
        }
    }

    /// Appends the answer to a miss of get, gat or touch.
    pub(super) fn miss(self, out: &mut Vec<u8>, key: Option<&[u8]>) {
        match self {
            ReplyTo::Packet(head) => reply::miss(out, head, key),
            ReplyTo::Call(call) => call.miss(out),
        }
    }

    /// Appends the answer to a command that is done.
    pub(super) fn done(self, out: &mut Vec<u8>, cas: u64) {
        match self {
            ReplyTo::Packet(head) => reply::done(out, head, cas),
            ReplyTo::Call(call) => call.done(out, cas),
        }
    }

    /// Appends the answer to an increment or a decrement.
    pub(super) fn number(self, out: &mut Vec<u8>, value: u64, cas: u64) {
        match self {
            ReplyTo::Packet(head) => reply::number(out, head, value, cas),
            ReplyTo::Call(call) => call.number(out, Some(value)),
        }
    }

    /// Appends an answer that is a text.
    pub(super) fn text(self, out: &mut Vec<u8>, text: &str) {
        match self {
            ReplyTo::Packet(head) => reply::text(out, head, text),
            ReplyTo::Call(call) => call.text(out, text),
        }
    }

    /// Appends a page of statistics.
    pub(super) fn stats(self, out: &mut Vec<u8>, lines: &[(String, String)]) {
        match self {
            ReplyTo::Packet(head) => {
                lines.iter().for_each(|(name, value)| reply::stat(out, head, name, value));
                reply::end_of_stats(out, head);
            }
            ReplyTo::Call(call) => call.stats(out, lines),
        }
    }

    /// Appends an answer that is not a success, with its usual text.
    pub(super) fn refused(self, out: &mut Vec<u8>, status: Status) {
        match self {
            ReplyTo::Packet(head) => reply::refused(out, head, status),
            ReplyTo::Call(call) => call.refused(out, status),
        }
    }

    /// Appends an error with another text.
    pub(super) fn failed(self, out: &mut Vec<u8>, status: Status, text: &str) {
        match self {
            ReplyTo::Packet(head) => reply::failed(out, head, status, text),
            ReplyTo::Call(call) => call.failed(out, status, text),
        }
    }
}

/// The values of the IDL's enum `Outcome`.
#[derive(Clone, Copy)]
enum Outcome {
    Stored = 0,
    NotStored = 1,
    Exists = 2,
    NotFound = 3,
}

impl Call {
    fn hit(self, out: &mut Vec<u8>, item: &Hit<'_>) {
        if self.function == Memcached::TOUCH {
            return self.bool(out, true);
        }
        let behind_bytes = item.value_bytes + self.tail().len();
        self.success(out, kind::STRUCT, 0, behind_bytes, |out| {
            item_head(out, item, self.function != Memcached::GET)
        });
    }

    const fn tail(self) -> &'static [u8] {
        // The answer to a touch has no value. In the others, the item and the result end.
        if self.function == Memcached::TOUCH { &[] } else { &[kind::STOP, kind::STOP] }
    }

    fn miss(self, out: &mut Vec<u8>) {
        match self.function {
            Memcached::TOUCH => self.bool(out, false),
            _ => self.ended(out, kind::STRUCT, 0, no_hit),
        }
    }

    fn done(self, out: &mut Vec<u8>, cas: u64) {
        match self.function {
            Memcached::DELETE => self.bool(out, true),
            function if has_outcome(function) => self.outcome(out, Outcome::Stored, cas),
            _ => self.frame(out, MessageKind::Reply, 0, 0, |out| out.stop()),
        }
    }

    fn number(self, out: &mut Vec<u8>, value: Option<u64>) {
        self.ended(out, kind::STRUCT, 0, |out| {
            let Some(value) = value else { return no_hit(out) };
            out.field(kind::BOOL, 1)?;
            out.byte(1)?;
            out.field(kind::I64, 2)?;
            // The bits of a number without a sign.
            out.i64(value as i64)?;
            out.stop()
        });
    }

    fn text(self, out: &mut Vec<u8>, text: &str) {
        self.ended(out, kind::STRING, text.len(), |out| out.string(text.as_bytes()));
    }

    fn stats(self, out: &mut Vec<u8>, lines: &[(String, String)]) {
        let bytes = |(name, value): &(String, String)| 2 * LENGTH_BYTES + name.len() + value.len();
        self.ended(out, kind::MAP, lines.iter().map(bytes).sum(), |out| {
            out.map(kind::STRING, kind::STRING, lines.len())?;
            lines.iter().try_for_each(|(name, value)| {
                out.string(name.as_bytes())?;
                out.string(value.as_bytes())
            })
        });
    }

    fn refused(self, out: &mut Vec<u8>, status: Status) {
        let outcome = match (self.function, status) {
            (Memcached::DELETE, Status::NotFound) => return self.bool(out, false),
            (Memcached::INCREMENT | Memcached::DECREMENT, Status::NotFound) => {
                return self.number(out, None);
            }
            // The binary protocol has other statuses for these than text has.
            (Memcached::ADD, Status::Exists) | (Memcached::REPLACE, Status::NotFound) => {
                Outcome::NotStored
            }
            (function, _) if !has_outcome(function) => {
                return self.failed(out, status, status.text());
            }
            (_, Status::NotStored) => Outcome::NotStored,
            (_, Status::Exists) => Outcome::Exists,
            (_, Status::NotFound) => Outcome::NotFound,
            _ => return self.failed(out, status, status.text()),
        };
        self.outcome(out, outcome, 0);
    }

    fn failed(self, out: &mut Vec<u8>, status: Status, text: &str) {
        if self.function == Memcached::GET {
            // The IDL declares no exception for this function.
            return self.frame(out, MessageKind::Exception, text.len(), 0, |out| {
                out.application_exception(text, INTERNAL_ERROR)
            });
        }
        self.frame(out, MessageKind::Reply, text.len(), 0, |out| {
            out.field(kind::STRUCT, 1)?;
            out.field(kind::STRING, 1)?;
            out.string(text.as_bytes())?;
            out.field(kind::I32, 2)?;
            out.i32(i32::from(status.code()))?;
            out.stop()?;
            out.stop()
        });
    }

    fn bool(self, out: &mut Vec<u8>, value: bool) {
        self.ended(out, kind::BOOL, 0, |out| out.byte(u8::from(value)));
    }

    fn outcome(self, out: &mut Vec<u8>, outcome: Outcome, cas: u64) {
        self.ended(out, kind::STRUCT, 0, |out| {
            out.field(kind::I32, 1)?;
            out.i32(outcome as i32)?;
            if cas != 0 {
                out.field(kind::I64, 2)?;
                out.i64(cas as i64)?;
            }
            out.stop()
        });
    }

    /// Returns the beginning of the answer with a map of `count` items, which take `items_bytes` bytes. Behind them
    /// the answer ends with [`kind::STOP`].
    pub(super) fn map_head(self, count: usize, items_bytes: usize) -> Vec<u8> {
        let mut head = Vec::new();
        self.success(&mut head, kind::MAP, 0, items_bytes + 1, |out| {
            out.map(kind::STRING, kind::STRUCT, count)
        });
        head
    }

    /// Appends an answer that returns a value, which `result` writes as a whole.
    fn ended(
        self,
        out: &mut Vec<u8>,
        kind: u8,
        text_bytes: usize,
        result: impl FnOnce(&mut Writer<'_>) -> Result<(), Code>,
    ) {
        self.success(out, kind, text_bytes, 0, |out| {
            result(out)?;
            out.stop()
        });
    }

    fn success(
        self,
        out: &mut Vec<u8>,
        kind: u8,
        text_bytes: usize,
        behind_bytes: usize,
        result: impl FnOnce(&mut Writer<'_>) -> Result<(), Code>,
    ) {
        self.frame(out, MessageKind::Reply, text_bytes, behind_bytes, |out| {
            out.field(kind, 0)?;
            result(out)
        });
    }

    /// Appends a frame with what `body` writes: texts of `text_bytes` bytes, and numbers. The frame ends with
    /// `behind_bytes` bytes that are appended later.
    fn frame(
        self,
        out: &mut Vec<u8>,
        message: MessageKind,
        text_bytes: usize,
        behind_bytes: usize,
        body: impl FnOnce(&mut Writer<'_>) -> Result<(), Code>,
    ) {
        let name = Memcached.function(self.function).map_or("", |function| function.name);
        let message = Message { kind: message, name: name.as_bytes(), sequence: self.sequence };
        let begin = out.len();
        out.resize(begin + FRAME_BYTES + text_bytes, 0);
        let written = Writer::framed(&mut out[begin..]).and_then(|mut frame| {
            frame.message(&message)?;
            body(&mut frame)?;
            frame.frame_before(behind_bytes)
        });
        out.truncate(begin + written.expect("there is room, and answers are shorter than 2 GiB"));
    }
}

/// Appends an item of the answer to a get of many keys, up to its value. [`kind::STOP`] ends it.
pub(super) fn map_item(out: &mut Vec<u8>, key: &[u8], item: &Hit<'_>) {
    let begin = out.len();
    out.resize(begin + FRAME_BYTES + key.len(), 0);
    let mut writer = Writer::unframed(&mut out[begin..]);
    let written = writer.string(key).and_then(|()| item_head(&mut writer, item, true));
    let used = writer.used();
    written.expect("there is room, and values are shorter than 2 GiB");
    out.truncate(begin + used);
}

/// Writes a `Found` or an `Item` up to its value.
fn item_head(out: &mut Writer<'_>, item: &Hit<'_>, with_cas: bool) -> Result<(), Code> {
    out.field(kind::BOOL, 1)?;
    out.byte(1)?;
    out.field(kind::I32, 3)?;
    out.i32(item.client_flags as i32)?;
    if with_cas {
        out.field(kind::I64, 4)?;
        out.i64(item.cas as i64)?;
    }
    out.field(kind::STRING, 2)?;
    out.string_head(item.value_bytes)
}

/// Writes a `Found`, an `Item` or a `Number` of a key that is not there.
fn no_hit(out: &mut Writer<'_>) -> Result<(), Code> {
    out.field(kind::BOOL, 1)?;
    out.byte(0)?;
    out.stop()
}

/// Returns whether a function returns a `Stored`.
const fn has_outcome(function: u32) -> bool {
    matches!(
        function,
        Memcached::ADD
            | Memcached::REPLACE
            | Memcached::APPEND
            | Memcached::PREPEND
            | Memcached::CAS
    )
}

/// More than an answer has without its texts and its value (bytes): the frame, the message, the name of the function,
/// and a few numbers.
const FRAME_BYTES: usize = 128;

/// The bytes in front of a string.
const LENGTH_BYTES: usize = 4;
