//! The answer of a server, and the rules for comparing two answers. Answers are compared byte for byte, with three
//! exceptions. Cas numbers are equal if they appeared in the same order. Ages may differ by clock ticks and by the
//! time that has passed since the row began. A version equals any version.

use std::fmt::Write;

/// The bytes of the answer to one step, and how the answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The bytes as received.
    pub bytes: Vec<u8>,
    /// The end of the answer, which is complete if the sentinel was answered.
    pub ending: Ending,
}

impl Answer {
    /// Returns the bytes as text, for assertions on short answers.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The sentinel was answered, so the connection is still open.
    Complete,
    /// The server closed the connection.
    Closed,
    /// The sentinel was not answered and the connection was not closed before the deadline.
    TimedOut,
}

/// The cas numbers that one server has shown within one row, in order of first appearance.
#[derive(Clone, Debug, Default)]
pub struct CasNumbers(Vec<u64>);

impl CasNumbers {
    /// Returns the `index`th of the distinct numbers, in order of appearance.
    pub fn at(&self, index: usize) -> Option<u64> {
        self.0.get(index).copied()
    }

    /// Returns how many distinct numbers have appeared.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn index_of(&mut self, number: u64) -> usize {
        self.0.iter().position(|&seen| seen == number).unwrap_or_else(|| {
            self.0.push(number);
            self.0.len() - 1
        })
    }
}

/// A part of an answer. Each variant has its own rule of comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that are compared one by one.
    Bytes(Vec<u8>),
    /// A cas number, given as its position in the order of appearance.
    Cas(usize),
    /// An age or a time to live (s). Two values are equal if they differ by at most a tick of each server's clock and
    /// the time that has passed.
    Seconds(i64),
    /// An expired time to live. memcached shows it as 2^32 minus its uptime (s).
    Past,
}

impl Piece {
    fn equals(&self, other: &Piece, passed_s: i64) -> bool {
        match (self, other) {
            // The value -1 means "never" and is not a time. Values below -1, which `me` shows, count towards an
            // expiry.
            (Piece::Seconds(a), Piece::Seconds(b)) if *a != -1 && *b != -1 => {
                (a - b).abs() <= 2 + passed_s
            }
            _ => self == other,
        }
    }
}

/// Cuts an answer into pieces.
pub fn pieces(answer: &Answer, cas: &mut CasNumbers) -> Vec<Piece> {
    let mut cutter = Cutter { cas, done: Vec::new(), plain: Vec::new() };
    let mut rest = answer.bytes.as_slice();
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, after) = rest.split_at(end + 1);
        let data = cutter.line(line).min(after.len());
        cutter.plain.extend_from_slice(&after[..data]);
        rest = &after[data..];
    }
    cutter.plain.extend_from_slice(rest);
    cutter.flush();
    cutter.done
}

/// Cuts an answer in the binary protocol into pieces. Bytes that are no packet are compared as they are. The version
/// and the statistics are not compared, but the end of the statistics is.
pub fn packet_pieces(answer: &Answer, cas: &mut CasNumbers) -> Vec<Piece> {
    let mut cutter = Cutter { cas, done: Vec::new(), plain: Vec::new() };
    let mut rest = answer.bytes.as_slice();
    while let Some((header, after)) = rest.split_first_chunk::<24>().filter(|_| rest[0] == 0x81) {
        let [_, opcode, key_high, key_low, ..] = *header;
        let [.., b0, b1, b2, b3, _, _, _, _, c0, c1, c2, c3, c4, c5, c6, c7] = *header;
        let body_bytes = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
        let (body, after) = after.split_at(body_bytes.min(after.len()));
        rest = after;
        let is_success = header[6..8] == [0, 0];
        match opcode {
            0x10 if is_success && (key_high, key_low) != (0, 0) => continue,
            0x0b if is_success => {
                cutter.plain.extend_from_slice(b"version");
                continue;
            }
            _ => {}
        }
        cutter.plain.extend_from_slice(&header[..16]);
        let number = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
        if number == 0 {
            cutter.plain.extend_from_slice(b"no cas");
        } else {
            cutter.flush();
            let index = cutter.cas.index_of(number);
            cutter.done.push(Piece::Cas(index));
        }
        cutter.plain.extend_from_slice(body);
    }
    cutter.plain.extend_from_slice(rest);
    cutter.flush();
    cutter.done
}

/// Returns whether two answers in pieces are equal, at most `passed_s` seconds after the row's beginning.
pub fn same(a: &[Piece], b: &[Piece], passed_s: i64) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b, passed_s))
}

/// Returns bytes in readable form: escaped, and cut after 240 bytes.
pub fn shown(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes.iter().take(240) {
        let _infallible = write!(out, "{}", std::ascii::escape_default(byte));
    }
    if bytes.len() > 240 {
        let _infallible = write!(out, "... ({} bytes)", bytes.len());
    }
    out
}

struct Cutter<'a> {
    cas: &'a mut CasNumbers,
    done: Vec<Piece>,
    plain: Vec<u8>,
}

impl Cutter<'_> {
    /// Takes one line and returns how many bytes of data follow it.
    fn line(&mut self, line: &[u8]) -> usize {
        let text = String::from_utf8_lossy(line).into_owned();
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let length = |index: usize| words.get(index).and_then(|word| word.parse::<usize>().ok());
        match words[0] {
            "VALUE" => {
                self.words(&words, |index, _| (index == 4).then_some(("", Kind::Cas)));
                length(3).map_or(0, |length| length + 2)
            }
            "VA" => {
                self.words(&words, meta_kind);
                length(1).map_or(0, |length| length + 2)
            }
            "HD" | "EN" | "NS" | "EX" | "NF" => {
                self.words(&words, meta_kind);
                0
            }
            "ME" => {
                self.words(&words, debug_kind);
                0
            }
            "VERSION" => {
                self.plain.extend_from_slice(b"VERSION *\r\n");
                0
            }
            _ => {
                self.plain.extend_from_slice(line);
                0
            }
        }
    }

    fn words<'t>(
        &mut self,
        words: &[&'t str],
        kind: impl Fn(usize, &'t str) -> Option<(&'t str, Kind)>,
    ) {
        for (index, word) in words.iter().enumerate() {
            let special = kind(index, word).and_then(|(label, kind)| {
                let number: i64 = word[label.len()..].parse().ok()?;
                Some((label, kind, number))
            });
            match special {
                Some((label, Kind::Cas, number)) if number > 0 => {
                    self.plain.extend_from_slice(label.as_bytes());
                    self.flush();
                    let index = self.cas.index_of(number.unsigned_abs());
                    self.done.push(Piece::Cas(index));
                }
                Some((label, Kind::Seconds, number)) => {
                    self.plain.extend_from_slice(label.as_bytes());
                    self.flush();
                    let past = (PAST_LOWEST..1 << 32).contains(&number);
                    self.done.push(if past { Piece::Past } else { Piece::Seconds(number) });
                }
                Some((label, Kind::Ignored, _)) => self.plain.extend_from_slice(label.as_bytes()),
                _ => self.plain.extend_from_slice(word.as_bytes()),
            }
            self.plain.push(b' ');
        }
        self.plain.pop();
        self.plain.extend_from_slice(b"\r\n");
    }

    fn flush(&mut self) {
        if !self.plain.is_empty() {
            self.done.push(Piece::Bytes(std::mem::take(&mut self.plain)));
        }
    }
}

enum Kind {
    Cas,
    Seconds,
    Ignored,
}

/// The lowest number that counts as an expired time to live: 2^32 minus a day of uptime (s).
const PAST_LOWEST: i64 = (1 << 32) - 86_400;

fn meta_kind(index: usize, word: &str) -> Option<(&str, Kind)> {
    match (index, word.get(..1)?) {
        (0, _) => None,
        (_, "c") => Some(("c", Kind::Cas)),
        (_, "t") => Some(("t", Kind::Seconds)),
        (_, "l") => Some(("l", Kind::Seconds)),
        _ => None,
    }
}

/// Returns the kind of a word in the answer to `me`. The answer contains the item's location in memcached's
/// slabs, which no other server has.
fn debug_kind(_: usize, word: &str) -> Option<(&str, Kind)> {
    let label = &word[..=word.find('=')?];
    let kind = match label {
        "cas=" => Kind::Cas,
        "exp=" | "la=" => Kind::Seconds,
        "cls=" | "size=" => Kind::Ignored,
        _ => return None,
    };
    Some((label, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> Vec<Piece> {
        let answer = Answer { bytes: bytes.to_vec(), ending: Ending::Complete };
        pieces(&answer, &mut CasNumbers::default())
    }

    #[test]
    fn cas_numbers_are_equal_by_order_of_appearance() {
        let a = cut(b"VALUE a 0 1 17\r\nx\r\nVALUE b 0 1 9\r\nx\r\nEND\r\n");
        let b = cut(b"VALUE a 0 1 4\r\nx\r\nVALUE b 0 1 5\r\nx\r\nEND\r\n");
        let c = cut(b"VALUE a 0 1 4\r\nx\r\nVALUE b 0 1 4\r\nx\r\nEND\r\n");
        assert!(same(&a, &b, 0));
        assert!(!same(&a, &c, 0));
    }

    #[test]
    fn data_like_an_answer_is_compared_byte_for_byte() {
        let a = cut(b"VALUE a 0 5\r\nHD c17\r\nEND\r\n");
        let b = cut(b"VALUE a 0 5\r\nHD c18\r\nEND\r\n");
        assert!(!same(&a, &b, 0));
    }

    #[test]
    fn times_to_live_may_differ_by_passed_time() {
        assert!(same(&cut(b"HD t30\r\n"), &cut(b"HD t29\r\n"), 0));
        assert!(same(&cut(b"HD t30\r\n"), &cut(b"HD t20\r\n"), 9));
        assert!(!same(&cut(b"HD t30\r\n"), &cut(b"HD t20\r\n"), 5));
        assert!(!same(&cut(b"HD t1\r\n"), &cut(b"HD t-1\r\n"), 9));
        assert!(!same(&cut(b"HD t1\r\n"), &cut(b"HD\r\n"), 9));
    }
}
