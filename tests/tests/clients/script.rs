//! Reads `tests/clients/operations.txt` and writes it in the form that the client programs read: one line per
//! operation, words separated by tabs, keys and values in hex.

use std::collections::HashMap;
use std::fmt::Write;

/// One operation, as the programs perform it and as a report names it.
pub(crate) struct Operation {
    /// The line in `operations.txt` without the expected results.
    pub name: String,
    /// The line that the programs read.
    pub line: String,
    /// What a client that hides nothing reports.
    pub expected: Vec<String>,
}

/// Reads the operations.
///
/// # Panics
/// A line cannot be read. The message has the line.
pub(crate) fn read(text: &str) -> Vec<Operation> {
    let mut names = Names::default();
    let mut operations = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            continue;
        }
        if let Some((name, parts)) = line.strip_prefix('@').and_then(|rest| rest.split_once(" = "))
        {
            let value = names.bytes(parts);
            names.0.insert(name.to_owned(), value);
            continue;
        }
        let (asked, expected) = line.split_once(" => ").unwrap_or((line, ""));
        let expected = expected.split(" | ").map(|result| names.result(result)).collect();
        operations.push(Operation { name: asked.to_owned(), line: names.line(asked), expected });
    }
    operations
}

/// The bytes that have a name.
#[derive(Default)]
struct Names(HashMap<String, Vec<u8>>);

impl Names {
    /// Returns the bytes of the parts of a definition.
    fn bytes(&self, parts: &str) -> Vec<u8> {
        let mut value = Vec::new();
        for part in parts.split(" + ") {
            match part.split_once(" * ") {
                Some((count, text)) => value.extend(unescape(text).repeat(count_of(count))),
                None if part.starts_with('@') => value.extend(self.value(part)),
                None => match part.strip_suffix(" random") {
                    Some(count) => value.extend(rebate_tests::payload::random(count_of(count))),
                    None => value.extend(unescape(part)),
                },
            }
        }
        value
    }

    /// Returns the bytes of a word: those with this name, or the word itself.
    fn value(&self, word: &str) -> Vec<u8> {
        match word.strip_prefix('@') {
            Some(name) => self.0.get(name).unwrap_or_else(|| panic!("no bytes {word}")).clone(),
            None => word.into(),
        }
    }

    fn line(&self, asked: &str) -> String {
        let mut words = asked.split(' ');
        let operation = words.next().unwrap_or_default();
        let (keys, numbers) = match operation {
            "stats" | "sleep" => (0, true),
            "touch" | "gat" | "incr" | "decr" | "incr_initial" | "decr_initial" | "set_number" => {
                (1, true)
            }
            "set" | "add" | "replace" | "quiet_set" | "cas" => (2, true),
            _ => (usize::MAX, false),
        };
        let mut line = operation.to_owned();
        for (at, word) in words.enumerate() {
            let words = match word.strip_prefix("many:") {
                Some(range) if operation == "mset" => {
                    many(range).flat_map(|(key, value)| [hex(key), hex(value)]).collect()
                }
                Some(range) => many(range).map(|(key, _)| hex(key)).collect(),
                None if numbers && at >= keys => vec![word.to_owned()],
                None => vec![hex(self.value(word))],
            };
            words.iter().for_each(|word| line.extend(["\t", word]));
        }
        line
    }

    /// Returns a result as the programs print it.
    fn result(&self, text: &str) -> String {
        let Some((kind, rest)) = text.split_once(' ') else { return text.to_owned() };
        match kind {
            "value" => format!("value {}", hex(self.value(rest))),
            "values" => rest.split(' ').fold("values".to_owned(), |mut found, word| {
                let pairs: Vec<_> = match word.strip_prefix("many:") {
                    Some(range) => many(range).collect(),
                    None => {
                        let (key, value) = word.split_once('=').expect("KEY=VALUE");
                        vec![(self.value(key), self.value(value))]
                    }
                };
                for (key, value) in pairs {
                    let _ = write!(found, " {}={}", hex(key), hex(value));
                }
                found
            }),
            _ => text.to_owned(),
        }
    }
}

/// Returns the keys `many_A` to `many_B-1` with their values, which have every length up to 2 KiB.
fn many(range: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let (first, end) = range.split_once("..").unwrap_or_else(|| panic!("A..B, not {range}"));
    (count_of(first)..count_of(end))
        .map(|n| (format!("many_{n}").into_bytes(), b"value; ".repeat(n)))
}

fn count_of(text: &str) -> usize {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn hex(bytes: Vec<u8>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the bytes of a quoted text.
fn unescape(quoted: &str) -> Vec<u8> {
    let text = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let mut bytes = text.unwrap_or_else(|| panic!("no quotes: {quoted}")).bytes();
    let mut value = Vec::new();
    while let Some(byte) = bytes.next() {
        let escape = if byte == b'\\' { bytes.next() } else { None };
        value.push(match escape {
            None => byte,
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b'x') => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("\\x{digits}"))
            }
            Some(other) => other,
        });
    }
    value
}
