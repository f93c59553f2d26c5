//! What a server must answer to the frames of a client, and what its items are.

use std::collections::BTreeMap;

use rpc::Functions;
use rpc::services::memcached::Memcached;
use rpc::wire::{Message, MessageKind, Wire, kind};
use units::limits::GET_LINE_BYTES_MAX;

/// A version, flags and a value.
type Item = (u64, u32, Vec<u8>);

/// Checks that the frames of `input` that are calls have these answers, one each and in order.
pub(super) fn check_answers(input: &[u8], answers: &[u8], item_bytes_max: usize) {
    let (mut rest, mut answers) = (input, answers);
    while let Some(frame) = Frame::first(rest, item_bytes_max) {
        let answer = next_answer(&mut answers);
        match (frame.must_be_answered, &answer) {
            (true, None) => panic!("no answer to {:?}", frame.head),
            (false, None) => break,
            (_, Some(answer)) => {
                assert_eq!((answer.name, answer.sequence), (frame.head.name, frame.head.sequence));
                let is_known = Memcached.find(answer.name).is_some();
                assert!(is_known || answer.kind == MessageKind::Exception, "{answer:?}");
            }
        }
        if frame.ends_connection {
            break;
        }
        match rest.get(frame.bytes..) {
            Some(next) => rest = next,
            None => break,
        }
    }
    assert!(answers.is_empty(), "{} bytes that no call asks for", answers.len());
}

/// A frame of a call.
struct Frame<'a> {
    head: Message<'a>,
    bytes: usize,
    /// Whether it is whole. A part of a frame may be answered, if that is enough to refuse it.
    must_be_answered: bool,
    /// Whether the connection ends with its answer.
    ends_connection: bool,
}

impl<'a> Frame<'a> {
    /// Returns the frame at the front of `input`, if it is one of a call. Other bytes end the connection.
    fn first(input: &'a [u8], item_bytes_max: usize) -> Option<Self> {
        let length = i32::from_be_bytes(*input.first_chunk()?);
        let bytes = 4 + usize::try_from(length).ok()?;
        let message = &input[4..input.len().min(bytes)];
        // A name may be as long as 256 bytes.
        let head = Wire::new(message, 256).message().ok()?;
        if head.kind != MessageKind::Call {
            return None;
        }
        let function = Memcached.find(head.name);
        let bytes_max = match function {
            Some(function) if is_store(function) => item_bytes_max + 2_048,
            _ => GET_LINE_BYTES_MAX,
        };
        let is_long = bytes - 4 > bytes_max;
        let is_skipped = function.is_some_and(|one| is_store(one) || one == Memcached::GET_MANY);
        // The first two thousand bytes of a long frame tell what it is. Unknown ones end without an answer.
        let must_be_answered = bytes <= input.len() && (!is_long || function.is_some());
        Some(Self { head, bytes, must_be_answered, ends_connection: is_long && !is_skipped })
    }
}

fn is_store(function: u32) -> bool {
    matches!(
        function,
        Memcached::SET
            | Memcached::ADD
            | Memcached::REPLACE
            | Memcached::APPEND
            | Memcached::PREPEND
            | Memcached::CAS
    )
}

/// Takes the answer at the front of `answers`.
fn next_answer<'a>(answers: &mut &'a [u8]) -> Option<Message<'a>> {
    if answers.is_empty() {
        return None;
    }
    let length = answers.first_chunk().expect("a whole length");
    let end = 4 + usize::try_from(i32::from_be_bytes(*length)).expect("a length");
    let message = answers.get(4..end).expect("a whole answer");
    *answers = &answers[end..];
    let mut reader = Wire::new(message, message.len());
    let head = reader.message().expect("a message");
    assert!(matches!(head.kind, MessageKind::Reply | MessageKind::Exception), "{head:?}");
    reader.skip(kind::STRUCT).expect("a result");
    assert_eq!(reader.end(), Ok(()), "an answer is a message and nothing else");
    Some(head)
}

/// Returns a get of many keys.
pub(super) fn get_many(keys: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let keys: Vec<Vec<u8>> = keys.collect();
    let mut message = b"\x80\x01\0\x01\0\0\0\x07GetMany\0\0\0\x09\x0f\0\x09\x0b".to_vec();
    message.extend((keys.len() as u32).to_be_bytes());
    for key in keys {
        message.extend((key.len() as u32).to_be_bytes());
        message.extend(key);
    }
    message.push(0);
    [&(message.len() as u32).to_be_bytes()[..], &message].concat()
}

/// Returns the items of the answer to a get of many keys.
pub(super) fn items_of_map(answer: &[u8]) -> BTreeMap<Vec<u8>, Item> {
    let mut reader = Wire::framed(answer, answer.len()).expect("one frame");
    assert_eq!(reader.message().expect("a message").kind, MessageKind::Reply);
    assert_eq!(reader.field(), Ok((kind::MAP, 0)), "a map and no failure");
    let count = reader.map(kind::STRING, kind::STRUCT).expect("a map");
    let item = |_| {
        let key = reader.string().expect("a key").to_vec();
        let mut item = Item::default();
        loop {
            match reader.field().expect("a field") {
                (kind::STOP, _) => break,
                (kind::STRING, 2) => item.2 = reader.string().expect("a value").to_vec(),
                (kind::I32, 3) => item.1 = reader.i32().expect("flags") as u32,
                (kind::I64, 4) => item.0 = reader.i64().expect("a version") as u64,
                (kind, _) => reader.skip(kind).expect("a field"),
            }
        }
        (key, item)
    };
    (0..count).map(item).collect()
}

/// Returns the items of the answer to a `gets` line.
pub(super) fn items_of_lines(mut answer: &[u8]) -> BTreeMap<Vec<u8>, Item> {
    let mut items = BTreeMap::new();
    loop {
        let end = answer.windows(2).position(|pair| pair == b"\r\n").expect("a line");
        let line = String::from_utf8(answer[..end].to_vec()).expect("text");
        answer = &answer[end + 2..];
        if line == "END" {
            return items;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["VALUE", key, flags, bytes, cas] = words[..] else { panic!("{line}") };
        let bytes: usize = bytes.parse().expect("a length");
        let value = answer[..bytes].to_vec();
        answer = &answer[bytes + 2..];
        let item = (cas.parse().expect("a version"), flags.parse().expect("flags"), value);
        items.insert(key.as_bytes().to_vec(), item);
    }
}
