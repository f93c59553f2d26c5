//! How many calls of which size: bpftrace's histograms as it prints them, or counts as CSV or JSON. It reads text and
//! opens no file.

use model::{Bin, SizeHistogram};
use serde::Deserialize;

/// Sizes, and what was done with what the text left open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) sizes: SizeHistogram,
    pub(crate) notes: Vec<String>,
}

/// One entry of the JSON form, and of `sizes` in a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    bytes: Option<f64>,
    low_bytes: Option<f64>,
    high_bytes: Option<f64>,
    calls: f64,
}

impl Entry {
    /// Its bin.
    ///
    /// # Errors
    /// Neither one size nor both ends.
    pub(crate) fn bin(self) -> Result<Bin, String> {
        let (low_bytes, high_bytes) = match (self.bytes, self.low_bytes, self.high_bytes) {
            (Some(bytes), None, None) => (bytes, bytes),
            (None, Some(low), Some(high)) => (low, high),
            _ => return Err("each entry has bytes, or low_bytes and high_bytes, and calls".into()),
        };
        Ok(Bin { low_bytes, high_bytes, calls: self.calls })
    }
}

/// Reads any of the forms.
///
/// # Errors
/// What is wrong, and in which line.
pub(crate) fn read(text: &str) -> Result<Read, String> {
    let list = text.trim_start().strip_prefix('[');
    if list.is_some_and(|rest| rest.trim_start().starts_with('{')) {
        let entries =
            serde_json::from_str::<Vec<Entry>>(text).map_err(|error| error.to_string())?;
        return of_entries(&entries);
    }
    let mut found = Found::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let done = match line.as_bytes().first() {
            None | Some(b'#') => Ok(()),
            _ if line.starts_with("Attaching ") => Ok(()),
            Some(b'@') => found.map(line),
            Some(b'[' | b'(') => found.bin(line),
            Some(_) => found.csv(line, index),
        };
        done.map_err(|problem| format!("line {}: {problem}", index + 1))?;
    }
    if found.bins.is_empty() {
        return Err("no sizes: give a bpftrace histogram, CSV lines of `bytes,calls` or \
                    `low,high,calls`, or a JSON list of {\"bytes\", \"calls\"}"
            .into());
    }
    let sizes = SizeHistogram::new(found.bins).map_err(|error| error.to_string())?;
    Ok(Read { sizes, notes: found.notes })
}

/// The sizes of entries.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn of_entries(entries: &[Entry]) -> Result<Read, String> {
    let bins = entries.iter().map(|entry| entry.bin()).collect::<Result<Vec<Bin>, String>>()?;
    let sizes = SizeHistogram::new(bins).map_err(|error| error.to_string())?;
    Ok(Read { sizes, notes: Vec::new() })
}

#[derive(Default)]
struct Found {
    bins: Vec<Bin>,
    notes: Vec<String>,
    maps: usize,
}

impl Found {
    /// `@sizes:` or `@sizes[key]:`.
    fn map(&mut self, line: &str) -> Result<(), String> {
        self.maps += 1;
        if self.maps > 1 {
            return Err(format!("a second histogram, {line:?}: keep the one that is meant"));
        }
        Ok(())
    }

    /// `[64, 128)   15 |@@@   |`, `[1]  3 |@ |`, `(..., 0) 2`, `[1M, ...) 4`.
    fn bin(&mut self, line: &str) -> Result<(), String> {
        let end = line.find([')', ']']).ok_or("a bin such as [64, 128) was expected")?;
        let (bounds, rest) = (line[1..end].trim(), line[end + 1..].trim());
        let calls = rest.split([' ', '|', '\t']).next().unwrap_or_default();
        let calls: f64 = calls.parse().map_err(|_| format!("{calls:?} is no number of calls"))?;
        let (low, high) = bounds.split_once(',').unwrap_or((bounds, bounds));
        let (low, high) = (low.trim(), high.trim());
        let (low_bytes, high_bytes) = match (low, high) {
            ("...", high) => (0.0, number(high)?.max(0.0)),
            (low, "...") => (number(low)?, number(low)?),
            (low, high) => (number(low)?, number(high)?),
        };
        if low == "..." || high == "..." {
            self.notes.push(format!("the open bin {} counts as {high_bytes} B", &line[..=end]));
        }
        self.bins.push(Bin { low_bytes, high_bytes, calls });
        Ok(())
    }

    /// `bytes,calls` or `low,high,calls`; a first line of words is a header.
    fn csv(&mut self, line: &str, index: usize) -> Result<(), String> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let numbers: Result<Vec<f64>, String> = fields.iter().map(|field| number(field)).collect();
        let numbers = match numbers {
            Err(_) if index == 0 => return Ok(()),
            numbers => numbers?,
        };
        let (low_bytes, high_bytes, calls) = match numbers[..] {
            [bytes, calls] => (bytes, bytes, calls),
            [low, high, calls] => (low, high, calls),
            _ => return Err(format!("{} fields; there must be 2 or 3", fields.len())),
        };
        self.bins.push(Bin { low_bytes, high_bytes, calls });
        Ok(())
    }
}

/// A number with bpftrace's binary suffix.
fn number(text: &str) -> Result<f64, String> {
    let refuse = || format!("{text:?} is no size");
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let value: f64 = digits.parse().map_err(|_| refuse())?;
    Ok(value * (1u64 << shift) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BPFTRACE: &str = "\
Attaching 1 probe...

@bytes:
[0]                    2 |@                                                   |
[1]                    1 |                                                    |
[2, 4)                 0 |                                                    |
[512, 1K)             10 |@@@@@@@@@@                                          |
[1K, 2K)              50 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[1M, ...)              3 |@@@                                                 |
";

    #[test]
    fn bpftrace_csv_and_json_say_the_same() {
        let read_one = |text: &str| read(text).expect("sizes");
        let bpftrace = read_one(BPFTRACE);
        assert_eq!(bpftrace.sizes.calls(), 66.0);
        assert_eq!(bpftrace.sizes.share_at_least(1_024.0), 53.0 / 66.0);
        assert_eq!(bpftrace.notes, ["the open bin [1M, ...) counts as 1048576 B"]);
        let csv = read_one("bytes,calls\n100,3\n512,1K,5\n");
        let json = read_one(
            r#"[{"bytes": 100, "calls": 3}, {"low_bytes": 512, "high_bytes": 1024, "calls": 5120}]"#,
        );
        assert_eq!(csv.sizes.bins()[0], json.sizes.bins()[0]);
        assert_eq!(csv.sizes.bins()[1].high_bytes, 1_024.0);
    }

    #[test]
    fn faults_name_the_line() {
        let refused = |text: &str| read(text).expect_err("refused");
        assert!(refused("@a:\n[1] 2\n@b:\n[1] 2\n").starts_with("line 3: a second histogram"));
        assert!(refused("@a:\n[1, 2) x |\n").starts_with("line 2: \"x\" is no number of calls"));
        assert!(refused("100,2\nmany,3\n").starts_with("line 2: \"many\" is no size"));
        assert!(refused("").starts_with("no sizes"));
        assert!(refused("100,-2\n").starts_with("sizes "));
    }
}
