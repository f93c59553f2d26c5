//! Checks that a stream in arbitrary pieces gives the same commands and responses as in one piece. Once the parser has
//! enough bytes, more bytes must not change its result.

use crate::{ItemBytesMax, step};
use protocol::refusal::LINE_TOO_LONG;
use protocol::{Limits, Parse, parse, response};
use units::limits::LINE_BYTES_MAX;

pub(super) fn fuzz(input: (ItemBytesMax, Vec<u8>, &[u8])) {
    let (choice, pieces, stream) = input;
    walk_requests(&Limits::from(choice), &pieces, stream);
    walk_responses(&pieces, stream);
}

fn walk_requests(limits: &Limits, pieces: &[u8], stream: &[u8]) {
    let mut arrivals = Arrivals::new(pieces, stream.len());
    let mut start = 0;
    while let Some(whole) = step(&stream[start..], limits) {
        let first = loop {
            let arrived = arrivals.end.max(start);
            match parse(&stream[start..arrived], limits) {
                Parse::Incomplete => assert!(arrivals.next(), "the last piece changed nothing"),
                first => break first,
            }
        };
        match (&first, &whole.parsed) {
            // Only a reader that sees the newline knows that the line is complete. As in memcached, a line that arrives
            // in pieces and is too long is refused before its end.
            (Parse::Refused { refusal, .. }, _) if refusal.reply == LINE_TOO_LONG => {
                assert!(whole.consumed > LINE_BYTES_MAX);
                return;
            }
            // If the connection closes, `consumed` covers all bytes that have arrived.
            (Parse::Refused { refusal, .. }, Parse::Refused { refusal: other, .. }) => {
                assert_eq!(refusal, other);
            }
            (first, whole) => assert_eq!(first, whole),
        }
        match whole.next(stream.len() - start) {
            Some(next) => start += next,
            None => return,
        }
    }
    // The whole rest is incomplete, so each part of it must be incomplete too.
    while arrivals.next() {
        let arrived = arrivals.end.max(start);
        assert_eq!(parse(&stream[start..arrived], limits), Parse::Incomplete);
    }
}

fn walk_responses(pieces: &[u8], stream: &[u8]) {
    let mut arrivals = Arrivals::new(pieces, stream.len());
    let mut start = 0;
    loop {
        let whole = response::parse(&stream[start..]);
        let first = loop {
            let first = response::parse(&stream[start..arrivals.end.max(start)]);
            if first != response::Parse::Incomplete || !arrivals.next() {
                break first;
            }
        };
        assert_eq!(first, whole);
        let response::Parse::Complete { response, consumed } = whole else { return };
        let next = (start + consumed) as u64;
        let next = next.saturating_add(response.body_bytes().unwrap_or(0));
        if next > stream.len() as u64 {
            return;
        }
        start = next as usize;
    }
}

/// The part of the stream that has arrived. It grows by one piece at a time, and then by the rest.
struct Arrivals<'a> {
    pieces: std::slice::Iter<'a, u8>,
    stream_bytes: usize,
    end: usize,
}

impl<'a> Arrivals<'a> {
    fn new(pieces: &'a [u8], stream_bytes: usize) -> Self {
        Self { pieces: pieces.iter(), stream_bytes, end: 0 }
    }

    /// Lets the next piece arrive. Returns false if all pieces had arrived.
    fn next(&mut self) -> bool {
        if self.end == self.stream_bytes {
            return false;
        }
        let left = self.stream_bytes - self.end;
        self.end += self.pieces.next().map_or(left, |piece| left.min(1 + usize::from(*piece)));
        true
    }
}
