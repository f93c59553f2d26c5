//! What clients send: frames of calls, of which some are wrong.

use arbitrary::Arbitrary;
use rpc::Functions;
use rpc::services::memcached::Memcached;

use crate::Value;

/// The clients, one after another.
#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    small_items: bool,
    pieces: [u8; 3],
    first: Vec<Action<'a>>,
    second: Vec<Action<'a>>,
    /// The number of bytes that are missing at the end of what each client sends.
    missing_bytes: u8,
}

#[derive(Arbitrary, Debug)]
enum Action<'a> {
    Call { function: u8, old_form: bool, sequence: i32, fields: Vec<Field<'a>> },
    /// A call of which one byte is another.
    Changed { function: u8, fields: Vec<Field<'a>>, at: u16, byte: u8 },
    /// A frame whose length is wrong.
    Lying { length: i32, function: u8, fields: Vec<Field<'a>> },
    /// A call of any name.
    Named { name: &'a [u8], rest: &'a [u8] },
    Bytes(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Field<'a> {
    Key(Key<'a>),
    Value(Value<'a>),
    Flags(i32),
    Expiry(i8),
    Cas(i64),
    Delta(i64),
    Delay(u8),
    Page(&'a [u8]),
    Keys(Vec<Key<'a>>),
    /// The same key many times.
    Repeated(Key<'a>, u16),
    /// A field of another kind or number.
    Other { kind: u8, number: i16, bytes: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
enum Key<'a> {
    Name(u8),
    Bytes(&'a [u8]),
}

/// What one client sends, and the lengths of reads and writes at the server's end.
pub(super) struct Sent {
    pub(super) bytes: Vec<u8>,
    pub(super) pieces: Vec<usize>,
}

/// The keys that most calls use. Some of them no line can hold.
pub(super) fn names() -> impl Iterator<Item = Vec<u8>> {
    (0..4).map(|number| name(number).to_vec())
}

fn name(number: u8) -> [u8; 2] {
    [b'k', b'0' + number % 4]
}

impl Input<'_> {
    pub(super) fn item_bytes_max(&self) -> usize {
        if self.small_items { 1 << 10 } else { 1 << 20 }
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = Sent> {
        // A client whose every piece is empty would never end.
        let pieces: Vec<usize> = self.pieces.iter().map(|piece| usize::from(*piece) * 64).collect();
        let pieces = if pieces.iter().all(|piece| *piece == 0) { Vec::new() } else { pieces };
        [&self.first, &self.second].into_iter().map(move |actions| {
            let mut bytes = Vec::new();
            actions.iter().for_each(|action| action.append(&mut bytes));
            bytes.truncate(bytes.len().min(SENT_BYTES_MAX));
            bytes.truncate(bytes.len() - bytes.len().min(usize::from(self.missing_bytes)));
            Sent { bytes, pieces: pieces.clone() }
        })
    }
}

impl Action<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Action::Call { function, old_form, sequence, fields } => {
                out.extend(framed(&message(name_of(*function), *old_form, *sequence, fields)));
            }
            Action::Changed { function, fields, at, byte } => {
                let mut frame = framed(&message(name_of(*function), false, 1, fields));
                let at = usize::from(*at) % frame.len();
                frame[at] = *byte;
                out.extend(frame);
            }
            Action::Lying { length, function, fields } => {
                out.extend(length.to_be_bytes());
                out.extend(message(name_of(*function), false, 2, fields));
            }
            Action::Named { name, rest } => {
                let message = [message(name, false, 3, &[]), rest.to_vec()].concat();
                out.extend(framed(&message));
            }
            Action::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

fn name_of(function: u8) -> &'static [u8] {
    let count = Memcached::STATS + 1;
    let found = Memcached.function(u32::from(function) % count);
    found.expect("a number below the count").name.as_bytes()
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes(), message].concat()
}

fn message(name: &[u8], old_form: bool, sequence: i32, fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    if !old_form {
        out.extend([0x80, 1, 0, 1]);
    }
    string(&mut out, name);
    if old_form {
        out.push(1);
    }
    out.extend(sequence.to_be_bytes());
    fields.iter().for_each(|field| field.append(&mut out));
    out.push(0);
    out
}

impl Field<'_> {
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Field::Key(key) => texts(out, 1, &key.bytes()),
            Field::Value(value) => texts(out, 2, &value.bytes(VALUE_BYTES_MAX)),
            Field::Flags(flags) => number(out, 8, 3, &flags.to_be_bytes()),
            Field::Expiry(expiry_s) => number(out, 8, 4, &i32::from(*expiry_s).to_be_bytes()),
            Field::Cas(cas) => number(out, 10, 5, &cas.to_be_bytes()),
            Field::Delta(delta) => number(out, 10, 6, &delta.to_be_bytes()),
            Field::Delay(delay_s) => number(out, 8, 7, &i32::from(*delay_s).to_be_bytes()),
            Field::Page(page) => texts(out, 8, page),
            Field::Keys(keys) => list(out, keys.len(), keys.iter().map(Key::bytes)),
            Field::Repeated(key, count) => {
                let count = usize::from(*count);
                list(out, count, std::iter::repeat_n(key.bytes(), count));
            }
            Field::Other { kind, number, bytes } => {
                out.push(*kind);
                out.extend(number.to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }
}

impl Key<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Key::Name(number) => name(*number).to_vec(),
            Key::Bytes(bytes) => bytes.to_vec(),
        }
    }
}

fn number(out: &mut Vec<u8>, kind: u8, number: u8, bytes: &[u8]) {
    out.extend([kind, 0, number]);
    out.extend_from_slice(bytes);
}

fn texts(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.extend([11, 0, number]);
    string(out, bytes);
}

fn list(out: &mut Vec<u8>, count: usize, keys: impl Iterator<Item = Vec<u8>>) {
    out.extend([15, 0, 9, 11]);
    out.extend((count as u32).to_be_bytes());
    keys.for_each(|key| string(out, &key));
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// More than the longest value of the largest items (bytes).
const VALUE_BYTES_MAX: usize = 5 << 18;

/// The most bytes that a client sends.
const SENT_BYTES_MAX: usize = 4 << 20;
