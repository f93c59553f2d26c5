//! Reads how many calls have which size: from bpftrace's printed histograms, from a saved page of Rebate's
//! metrics, or from counts as CSV or JSON.

use std::collections::BTreeMap;

use model::{Bin, Provenance, SizeHistogram};
use serde::Deserialize;

/// Sizes, with notes on how the reader interpreted unclear points of the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) sizes: SizeHistogram,
    /// The provenance: measured if a tool counted the sizes, and configured if a person wrote them down.
    pub(crate) provenance: Provenance,
    /// The kind of the text, such as "a page of metrics", for the source note of an answer.
    pub(crate) what: &'static str,
    /// The op that has these sizes, if the text names it.
    pub(crate) op: Option<String>,
    pub(crate) notes: Vec<String>,
}

/// An entry of the JSON form, and of `sizes` in a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    bytes: Option<f64>,
    low_bytes: Option<f64>,
    high_bytes: Option<f64>,
    calls: f64,
}

impl Entry {
    /// Returns the entry's bin.
    ///
    /// # Errors
    /// The entry has neither a size nor both ends of a range.
    pub(crate) fn bin(self) -> Result<Bin, String> {
        let (low_bytes, high_bytes) = match (self.bytes, self.low_bytes, self.high_bytes) {
            (Some(bytes), None, None) => (bytes, bytes),
            (None, Some(low), Some(high)) => (low, high),
            _ => return Err("each entry has bytes, or low_bytes and high_bytes, and calls".into()),
        };
        Ok(Bin { low_bytes, high_bytes, calls: self.calls })
    }
}

/// Reads text in any of the forms. From metrics it reads the sizes of `op`, which may be omitted if there is only one
/// op.
///
/// # Errors
/// The text names the problem and its line.
pub(crate) fn read(text: &str, op: Option<&str>) -> Result<Read, String> {
    if text.lines().any(|line| line.starts_with(FAMILY)) {
        return from_metrics(text, op);
    }
    let list = text.trim_start().strip_prefix('[');
    if list.is_some_and(|rest| rest.trim_start().starts_with('{')) {
        let entries =
            serde_json::from_str::<Vec<Entry>>(text).map_err(|error| error.to_string())?;
        return from_entries(&entries);
    }
    let mut found = Parser::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let done = match line.as_bytes().first() {
            None | Some(b'#') => Ok(()),
            _ if line.starts_with("Attaching ") => Ok(()),
            Some(b'@') => found.map(line),
            Some(b'[' | b'(') => found.bin(line),
            Some(_) => found.csv(line),
        };
        done.map_err(|problem| format!("line {}: {problem}", index + 1))?;
    }
    if found.bins.is_empty() {
        return Err("no sizes: give a bpftrace histogram, CSV lines of `bytes,calls` or \
                    `low,high,calls`, or a JSON list of {\"bytes\", \"calls\"}"
            .into());
    }
    let sizes = SizeHistogram::new(found.bins).map_err(|error| error.to_string())?;
    let (provenance, what) = match found.of_bpftrace {
        true => (Provenance::Measured, "a bpftrace histogram"),
        false => (Provenance::Configured, "a list of sizes"),
    };
    Ok(Read { sizes, provenance, what, op: None, notes: found.notes })
}

/// Returns the sizes of entries.
///
/// # Errors
/// An entry or the resulting histogram is invalid; the text says why.
pub(crate) fn from_entries(entries: &[Entry]) -> Result<Read, String> {
    let bins = entries.iter().map(|entry| entry.bin()).collect::<Result<Vec<Bin>, String>>()?;
    let sizes = SizeHistogram::new(bins).map_err(|error| error.to_string())?;
    let (provenance, what) = (Provenance::Configured, "a list of sizes");
    Ok(Read { sizes, provenance, what, op: None, notes: Vec::new() })
}

/// Reads the jobs of one op from a saved page of metrics.
fn from_metrics(text: &str, op: Option<&str>) -> Result<Read, String> {
    let mut ops: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    let mut uptime_s = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(seconds) = line.strip_prefix(UPTIME) {
            uptime_s = seconds.trim().parse::<f64>().ok();
        }
        let Some(sample) = line.strip_prefix(FAMILY) else { continue };
        let (op, bound, jobs) = bucket(sample)
            .ok_or_else(|| format!("line {}: {line:?} is no number of jobs", index + 1))?;
        ops.entry(op).or_default().push((bound, jobs));
    }
    ops.retain(|_, buckets| buckets.iter().any(|(_, jobs)| *jobs > 0.0));
    let names = ops.keys().copied().collect::<Vec<_>>().join(", ");
    let op = match op {
        Some(op) => op.to_owned(),
        None if ops.len() == 1 => names.clone(),
        None => return Err(format!("--op says whose sizes are meant; there are {names}")),
    };
    let buckets = ops.remove(op.as_str());
    let buckets = buckets.ok_or_else(|| format!("no job of {op:?}; there are {names}"))?;
    let sizes =
        SizeHistogram::new(bins_from_buckets(buckets)?).map_err(|error| error.to_string())?;
    let since = uptime_s.map_or(String::new(), |uptime_s: f64| format!(" {uptime_s:.0} s before"));
    let note = format!("the sizes are of all jobs since the process's start{since}");
    let (provenance, what) = (Provenance::Measured, "a page of metrics");
    Ok(Read { sizes, provenance, what, op: Some(op), notes: vec![note] })
}

/// Parses `{op="compress",le="127"} 15`, with or without a timestamp behind it, into the op, the bound, and the number
/// of jobs up to the bound.
fn bucket(sample: &str) -> Option<(&str, f64, f64)> {
    let (labels, value) = sample.strip_prefix('{')?.split_once("\"}")?;
    let (mut op, mut bound) = (None, None);
    for label in labels.split("\",") {
        match label.split_once("=\"")? {
            ("op", name) => op = Some(name),
            ("le", "+Inf") => bound = Some(f64::INFINITY),
            ("le", text) => bound = text.parse().ok(),
            _ => {}
        }
    }
    let jobs = value.split_whitespace().next()?.parse().ok()?;
    Some((op?, bound?, jobs))
}

/// Turns cumulative buckets into bins between adjacent bounds. If one page has several processes, the jobs of all
/// processes are added for each bound.
fn bins_from_buckets(mut buckets: Vec<(f64, f64)>) -> Result<Vec<Bin>, String> {
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut bins = Vec::new();
    let (mut low_bytes, mut below) = (0.0, 0.0);
    for same in buckets.chunk_by(|one, other| one.0 == other.0) {
        let (bound, upto) = (same[0].0, same.iter().map(|bucket| bucket.1).sum::<f64>());
        let high_bytes = if bound.is_finite() { bound + 1.0 } else { low_bytes };
        let calls = upto - below;
        if calls < 0.0 {
            return Err(format!("fewer jobs up to {bound} B than below: is it one page?"));
        }
        bins.push(Bin { low_bytes, high_bytes, calls });
        (low_bytes, below) = (high_bytes, upto);
    }
    Ok(bins)
}

/// The metric that counts the jobs of one process by size.
const FAMILY: &str = "rebate_job_size_bytes_bucket";
const UPTIME: &str = "memcached_uptime_seconds ";

#[derive(Default)]
struct Parser {
    bins: Vec<Bin>,
    notes: Vec<String>,
    maps: usize,
    of_bpftrace: bool,
    /// True if a line of words came before the first numbers.
    has_header: bool,
}

impl Parser {
    /// Reads a line such as `@sizes:` or `@sizes[key]:`.
    fn map(&mut self, line: &str) -> Result<(), String> {
        self.maps += 1;
        if self.maps > 1 {
            return Err(format!("a second histogram, {line:?}: keep the one that is meant"));
        }
        Ok(())
    }

    /// Reads a bin such as `[64, 128)   15 |@@@   |`, `[1]  3 |@ |`, `(..., 0) 2` or `[1M, ...) 4`.
    fn bin(&mut self, line: &str) -> Result<(), String> {
        self.of_bpftrace = true;
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

    /// Reads a line `bytes,calls` or `low,high,calls`. A first line that has only words is a header.
    fn csv(&mut self, line: &str) -> Result<(), String> {
        let mut reader = csv::ReaderBuilder::new();
        let reader = reader.has_headers(false).trim(csv::Trim::All);
        let record = reader.from_reader(line.as_bytes()).into_records().next();
        let record = record.transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        let fields: Vec<&str> = record.iter().collect();
        let numbers: Result<Vec<f64>, String> = fields.iter().map(|field| number(field)).collect();
        let is_word = |field: &&str| !field.contains(|letter: char| letter.is_ascii_digit());
        if !self.has_header && self.bins.is_empty() && fields.iter().all(is_word) {
            self.has_header = true;
            return Ok(());
        }
        let numbers = numbers?;
        let (low_bytes, high_bytes, calls) = match numbers[..] {
            [bytes, calls] => (bytes, bytes, calls),
            [low, high, calls] => (low, high, calls),
            _ => return Err(format!("{} fields; there must be 2 or 3", fields.len())),
        };
        self.bins.push(Bin { low_bytes, high_bytes, calls });
        Ok(())
    }
}

/// Parses a number with bpftrace's binary suffix.
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
        let read_one = |text: &str| read(text, None).expect("sizes");
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
        let quoted = read_one("\"bytes, or more\",\"calls\"\n\"100\",\"3\"\n512,1K,5\n");
        assert_eq!(quoted.sizes, csv.sizes);
        assert_eq!(bpftrace.provenance, Provenance::Measured);
        assert_eq!([csv.provenance, json.provenance], [Provenance::Configured; 2]);
    }

    const METRICS: &str = "\
# HELP rebate_job_size_bytes Jobs by the size of their uncompressed side.
# TYPE rebate_job_size_bytes histogram
rebate_job_size_bytes_bucket{op=\"compress\",le=\"511\"} 0
rebate_job_size_bytes_bucket{op=\"compress\",le=\"1023\"} 10
rebate_job_size_bytes_bucket{op=\"compress\",le=\"2047\"} 60
rebate_job_size_bytes_bucket{op=\"compress\",le=\"+Inf\"} 60
rebate_job_size_bytes_sum{op=\"compress\"} 83000
rebate_job_size_bytes_bucket{op=\"decompress\",le=\"+Inf\"} 0
memcached_uptime_seconds 40.5
";

    #[test]
    fn a_page_of_metrics_has_the_jobs_of_one_op() {
        let one = read(METRICS, None).expect("sizes");
        assert_eq!((one.sizes.calls(), one.op.as_deref()), (60.0, Some("compress")));
        assert_eq!(one.sizes.share_at_least(1_024.0), 50.0 / 60.0);
        assert_eq!(one.sizes.bins().last().map(|bin| bin.high_bytes), Some(2_048.0));
        assert_eq!(one.provenance, Provenance::Measured);
        assert!(one.notes[0].ends_with("since the process's start 40 s before"), "{:?}", one.notes);
        let two = METRICS.replace("\"decompress\",le=\"+Inf\"} 0", "\"decompress\",le=\"127\"} 7");
        assert_eq!(read(&two, Some("decompress")).expect("sizes").sizes.calls(), 7.0);
        let refused = |text: &str, op| read(text, op).expect_err("refused");
        assert!(refused(&two, None).ends_with("there are compress, decompress"));
        assert!(
            refused(&two, Some("crc32c")).starts_with("no job of \"crc32c\"; there are compress")
        );
        assert!(refused(&METRICS.replace("} 10", "} x"), None).starts_with("line 4: "));
        assert!(refused(&METRICS.replace("} 10", "} 70"), None).contains("is it one page?"));
    }

    #[test]
    fn faults_name_the_line() {
        let refused = |text: &str| read(text, None).expect_err("refused");
        assert!(refused("@a:\n[1] 2\n@b:\n[1] 2\n").starts_with("line 3: a second histogram"));
        assert!(refused("@a:\n[1, 2) x |\n").starts_with("line 2: \"x\" is no number of calls"));
        assert!(refused("100,2\nmany,3\n").starts_with("line 2: \"many\" is no size"));
        assert!(refused("1.5KB,10\n100,2\n").starts_with("line 1: \"1.5KB\" is no size"));
        assert!(refused("bytes,calls\nbytes,calls\n").starts_with("line 2: \"bytes\" is no size"));
        assert!(refused("").starts_with("no sizes"));
        assert!(refused("100,-2\n").starts_with("sizes "));
    }
}
