//! Walks over arbitrary bytes as a session walks over a client's packets. Every step must make progress, accepted
//! packets must be within the limits, a packet must be the same whatever follows it, and answers must have the
//! lengths that they claim.

use crate::ItemBytesMax;
use protocol::Limits;
use protocol::binary::reply::{self, Hit};
use protocol::binary::{Command, HEADER_BYTES, Head, Packet, Parse, Refusal, Store, parse};
use units::limits::{ITEM_OVERHEAD_BYTES, KEY_BYTES_MAX};

pub(super) fn fuzz(input: (ItemBytesMax, &[u8])) {
    let limits = Limits::from(input.0);
    let mut stream = input.1;
    loop {
        let next = match parse(stream, &limits) {
            Parse::Incomplete => return check_incomplete(stream),
            Parse::Packet { packet, consumed } => {
                check_packet(&packet, &limits);
                check_alone(&stream[..consumed], &packet, &limits);
                if packet.command == Command::Quit {
                    return;
                }
                consumed as u64 + packet.command.value_bytes().unwrap_or(0) as u64
            }
            Parse::Refused { refusal, consumed } => {
                assert!(!refusal.close || consumed == stream.len());
                check_refusal(&refusal);
                if refusal.close {
                    return;
                }
                consumed as u64 + refusal.swallow_bytes
            }
        };
        assert!(next >= HEADER_BYTES as u64, "no progress");
        match stream.get(next as usize..) {
            Some(rest) => stream = rest,
            None => return,
        }
    }
}

/// Checks that a session keeps only a header, extras and a key without a packet.
fn check_incomplete(rest: &[u8]) {
    assert!(rest.len() < HEADER_BYTES + 20 + KEY_BYTES_MAX, "{} bytes are kept", rest.len());
}

/// Checks that the packet does not depend on the bytes behind it, and needs all of its own.
fn check_alone(bytes: &[u8], packet: &Packet<'_>, limits: &Limits) {
    match parse(bytes, limits) {
        Parse::Packet { packet: same, consumed } => {
            assert_eq!((same, consumed), (*packet, bytes.len()));
        }
        other => panic!("{packet:?} alone is {other:?}"),
    }
    assert_eq!(parse(&bytes[..bytes.len() - 1], limits), Parse::Incomplete);
}

fn check_packet(packet: &Packet<'_>, limits: &Limits) {
    if let Some(key) = packet.command.key() {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
    }
    if let Command::Store(Store { key, value_bytes, .. }) = &packet.command {
        let item_bytes = ITEM_OVERHEAD_BYTES + key.len() + value_bytes;
        assert!(item_bytes <= limits.item_bytes_max.as_usize(), "{item_bytes} bytes accepted");
    }
    check_answers(packet.head, packet.command.key().unwrap_or_default());
}

fn check_refusal(refusal: &Refusal<'_>) {
    assert!(refusal.swallow_bytes <= u64::from(u32::MAX));
    assert!(refusal.unlink.is_none_or(|key| (1..=KEY_BYTES_MAX).contains(&key.len())));
    let mut out = Vec::new();
    reply::refused(&mut out, refusal.head, refusal.status);
    assert_eq!(check_answer(&out, refusal.head), out.len());
    assert_ne!(out[6..8], [0, 0], "a refusal is no success");
}

/// Composes an answer with these bytes as its value.
type Answer = fn(&mut Vec<u8>, Head, &[u8]);

/// Checks every answer to a packet with this head: it is either absent or as long as it claims.
fn check_answers(head: Head, key: &[u8]) {
    let answers: [Answer; 5] = [
        |out, head, _| reply::done(out, head, 1),
        |out, head, _| reply::number(out, head, 1, 2),
        |out, head, key| reply::miss(out, head, Some(key)),
        |out, head, _| reply::miss(out, head, None),
        |out, head, _| reply::text(out, head, "1.6.18"),
    ];
    for answer in answers {
        let mut out = Vec::new();
        answer(&mut out, head, key);
        assert_eq!(out.is_empty(), head.quiet);
        if !head.quiet {
            assert_eq!(check_answer(&out, head), out.len());
        }
    }
    let mut out = Vec::new();
    let item = Hit { key: Some(key), client_flags: 1, cas: 2, value_bytes: 3 };
    reply::hit(&mut out, head, &item);
    assert_eq!(check_answer(&out, head), out.len() + 3);
}

/// Returns the length of an answer that its header claims.
fn check_answer(out: &[u8], head: Head) -> usize {
    assert_eq!((out[0], out[1]), (0x81, head.opcode));
    assert_eq!(out[12..16], head.opaque.to_be_bytes());
    let word = [out[8], out[9], out[10], out[11]];
    HEADER_BYTES + u32::from_be_bytes(word) as usize
}
