//! The text form of a packet of the binary protocol, for the command table.
//!
//! ```text
//! {p:set k={k} v=value}      the opcode's name or number, then fields
//! ```
//!
//! The fields are `k` (key), `v` (value), `x` (extras in hexadecimal digits), `n` (extras of a counter: delta,
//! initial value and expiry, which may be `-` for none), `c` (cas: a number, or `cas` or `cas:index` as in the
//! table), `o` (opaque). `K`, `X` and `B` replace the lengths of key, extras and body, and `m` the first byte. A
//! storage packet without `x` has eight zero bytes, and a touch four.

use crate::answer::CasNumbers;
use crate::table::expand;

/// Returns the bytes of a packet, or `None` if the text is malformed.
pub(crate) fn packet(text: &str, cas: &CasNumbers) -> Option<Vec<u8>> {
    let mut words = text.split(' ');
    let opcode = opcode(words.next()?)?;
    let mut extras = vec![0; default_extras(opcode)];
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let (mut number, mut opaque, mut magic) = (0, 0x0a0b_0c0d, 0x80);
    let (mut key_bytes, mut extras_bytes, mut body_bytes) = (None, None, None);
    for word in words {
        let (name, text) = word.split_once('=')?;
        match name {
            "k" => key = expand(text, cas),
            "v" => value = expand(text, cas),
            "x" => extras = hexadecimal(text)?,
            "n" => extras = counter(text)?,
            "c" => number = cas_number(text, cas)?,
            "o" => opaque = text.parse().ok()?,
            "m" => magic = u8::from_str_radix(text, 16).ok()?,
            "K" => key_bytes = Some(text.parse::<u16>().ok()?),
            "X" => extras_bytes = Some(text.parse::<u8>().ok()?),
            "B" => body_bytes = Some(text.parse::<u32>().ok()?),
            _ => return None,
        }
    }
    let body = [extras.as_slice(), &key, &value].concat();
    let mut packet = vec![magic, opcode];
    packet.extend(key_bytes.unwrap_or(key.len() as u16).to_be_bytes());
    packet.extend([extras_bytes.unwrap_or(extras.len() as u8), 0, 0, 0]);
    packet.extend(body_bytes.unwrap_or(body.len() as u32).to_be_bytes());
    packet.extend(u32::to_be_bytes(opaque));
    packet.extend(u64::to_be_bytes(number));
    packet.extend(body);
    Some(packet)
}

const OPCODES: [(&str, u8); 36] = [
    ("get", 0x00),
    ("set", 0x01),
    ("add", 0x02),
    ("replace", 0x03),
    ("delete", 0x04),
    ("incr", 0x05),
    ("decr", 0x06),
    ("quit", 0x07),
    ("flush", 0x08),
    ("getq", 0x09),
    ("noop", 0x0a),
    ("version", 0x0b),
    ("getk", 0x0c),
    ("getkq", 0x0d),
    ("append", 0x0e),
    ("prepend", 0x0f),
    ("stat", 0x10),
    ("setq", 0x11),
    ("addq", 0x12),
    ("replaceq", 0x13),
    ("deleteq", 0x14),
    ("incrq", 0x15),
    ("decrq", 0x16),
    ("quitq", 0x17),
    ("flushq", 0x18),
    ("appendq", 0x19),
    ("prependq", 0x1a),
    ("verbosity", 0x1b),
    ("touch", 0x1c),
    ("gat", 0x1d),
    ("gatq", 0x1e),
    ("mechs", 0x20),
    ("auth", 0x21),
    ("step", 0x22),
    ("gatk", 0x23),
    ("gatkq", 0x24),
];

fn opcode(name: &str) -> Option<u8> {
    match OPCODES.iter().find(|(known, _)| *known == name) {
        Some((_, opcode)) => Some(*opcode),
        None => u8::from_str_radix(name, 16).ok(),
    }
}

const fn default_extras(opcode: u8) -> usize {
    match opcode {
        0x01..=0x03 | 0x11..=0x13 => 8,
        0x1c..=0x1e | 0x23 | 0x24 => 4,
        _ => 0,
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn counter(text: &str) -> Option<Vec<u8>> {
    let mut numbers = text.split(',');
    let mut double_word = || numbers.next()?.parse::<u64>().ok();
    let (delta, initial) = (double_word()?, double_word()?);
    let exptime_s = match numbers.next()? {
        "-" => u32::MAX,
        text => text.parse().ok()?,
    };
    Some([&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime_s.to_be_bytes()].concat())
}

fn cas_number(text: &str, cas: &CasNumbers) -> Option<u64> {
    if !text.starts_with("cas") {
        return text.parse().ok();
    }
    let digits = expand(&format!("{{{text}}}"), cas);
    String::from_utf8(digits).ok()?.parse().ok()
}
