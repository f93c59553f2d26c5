//! Reads `perf script` text and folded stacks line by line, and pprof profiles sample by sample. Stores only
//! the first matching rule of each table for a sample. Counts lines that cannot be read, and continues.

use std::io::{self, Read};

use memchr::{memchr_iter, memrchr};

use super::breakdown::{Breakdown, Category, CpuProfile, Malformed, Sums};
use super::events::{Events, KINDS, Kind};
use super::lines::Lines;
use super::pprof::{self, Pprof, Sample};
use super::rules::{NONE, Ranks, Rules, TABLES, Table};
use super::symbols::{Symbol, Symbols};
use super::weights::Weights;

/// The reason why no profile could be read.
#[derive(Debug, thiserror::Error)]
pub enum CpuProfileError {
    /// The stream could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The input is not in a supported format.
    #[error("this is {0}")]
    Binary(&'static str),
    /// A part of the profile is longer than its limit.
    #[error("this is {what} {bytes} bytes; valid are 1 to {bytes_max}: sample less")]
    TooLong {
        /// The name of the part that is too long, as the error message prints it.
        what: &'static str,
        /// The length of the part (bytes).
        bytes: u64,
        /// The greatest valid length (bytes).
        bytes_max: u64,
    },
    /// No sample could be read.
    #[error(
        "no sample could be read from {lines} lines{example}; a profile is the text of \
             `perf script`, folded stacks (lines of `frame;frame;leaf COUNT`), or pprof's protobuf"
    )]
    Nothing {
        /// The number of lines of the input.
        lines: u64,
        /// The first line that could not be read.
        example: String,
    },
}

/// The limits of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest line that is read (bytes). Longer lines are skipped.
    pub line_bytes_max: usize,
    /// The most distinct symbols that are stored.
    pub symbols_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes_max: 256 << 10, symbols_max: 1 << 18 }
    }
}

/// Reads a profile to its end, within the default limits.
pub fn read(input: impl Read, rules: &Rules) -> Result<CpuProfile, CpuProfileError> {
    read_within(input, rules, Limits::default())
}

/// Reads a profile to its end, within these limits.
pub fn read_within(
    mut input: impl Read,
    rules: &Rules,
    limits: Limits,
) -> Result<CpuProfile, CpuProfileError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    if let Some((_, what)) = BINARY.into_iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(CpuProfileError::Binary(what));
    }
    if head.iter().any(|byte| *byte < b'\t') {
        if !pprof::may_be(&head) {
            return Err(CpuProfileError::Binary("no text, and no pprof profile"));
        }
        return read_pprof(head.as_slice().chain(input), rules, limits);
    }
    let mut lines = Lines::new(head.as_slice().chain(input), limits.line_bytes_max);
    let mut tally = Tally::new(rules, limits.symbols_max);
    let mut malformed = Malformed::default();
    while let Some(line) = lines.next()? {
        if !tally.line(line) {
            let line = line[..line.len().min(EXAMPLE_BYTES)].to_vec();
            malformed.note(lines.number(), &line);
        }
    }
    tally.end_sample();
    malformed.lines += lines.too_long();
    if tally.is_empty() {
        let first = malformed.examples.first();
        let example =
            first.map(|(number, text)| format!("; line {number} is {text:?}")).unwrap_or_default();
        return Err(CpuProfileError::Nothing { lines: lines.number(), example });
    }
    Ok(tally.profile(malformed))
}

fn read_pprof(
    input: impl Read,
    rules: &Rules,
    limits: Limits,
) -> Result<CpuProfile, CpuProfileError> {
    let profile = Pprof::new(pprof::bytes(input)?)?;
    let mut tally = Tally::new(rules, limits.symbols_max);
    let kind = tally.events.kind(profile.event.as_bytes()).unwrap_or(Kind::Other);
    // If instructions are the weights of a profile, they count as `Other`.
    let kind = if kind == Kind::Instructions { Kind::Other } else { kind };
    (tally.format, tally.event) = (Some(Format::Pprof), Some(profile.event.clone()));
    let mut malformed = Malformed::default();
    let mut frames = 0;
    for index in 0..profile.count() {
        let Some(sample) = profile.sample(index) else {
            malformed.note(index as u64 + 1, UNREADABLE);
            continue;
        };
        frames += sample.frames.len();
        if frames > pprof::ALL_FRAMES_MAX {
            return Err(CpuProfileError::Binary(pprof::TOO_MANY_FRAMES));
        }
        tally.sample(kind, &sample);
    }
    if tally.is_empty() {
        return Err(CpuProfileError::Binary("a pprof profile without a sample that can be read"));
    }
    Ok(tally.profile(malformed))
}

const UNREADABLE: &[u8] = b"a sample with a location that is not there, or above 4,096 frames";
const HEAD_BYTES: u64 = 8;
const EXAMPLE_BYTES: usize = 80;

/// The first bytes of binary files that are not profiles, each with the advice for the user.
const BINARY: [(&[u8], &str); 1] =
    [(b"PERFILE2", "perf.data: run `perf script -i FILE` and give its output")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Perf,
    Folded,
    Pprof,
}

/// The parts of a sample's stack that the result needs.
#[derive(Clone, Copy, Debug)]
struct Stack {
    /// The kind of the sample. None for a sample that is not used.
    kind: Option<Kind>,
    count: u64,
    leaf: Option<u32>,
    frames: u64,
    /// The first rule of each table that matches.
    rank: [u16; TABLES],
}

impl Stack {
    fn new(kind: Option<Kind>, count: u64) -> Self {
        Self { kind, count, leaf: None, frames: 0, rank: [NONE; TABLES] }
    }

    fn meets(&mut self, ranks: &[Ranks; TABLES], is_leaf: bool) {
        for (rank, of_symbol) in self.rank.iter_mut().zip(ranks) {
            *rank = (*rank).min(if is_leaf { of_symbol.as_leaf } else { of_symbol.above });
        }
    }
}

/// The samples and their weight, by the kind of event. The used kind is known only at the end of a profile.
type Counts = [Counted; KINDS];

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    samples: u64,
    weight: u64,
}

impl Counted {
    fn add(&mut self, samples: u64, weight: u64) {
        self.samples = self.samples.saturating_add(samples);
        self.weight = self.weight.saturating_add(weight);
    }
}

struct Tally<'a> {
    rules: &'a Rules,
    symbols: Symbols,
    format: Option<Format>,
    events: Events,
    /// The unit of the weights, if the format states one unit for the whole profile.
    event: Option<String>,
    open: Option<Stack>,
    total: Counts,
    weights: [Weights; KINDS],
    sums: [Vec<Counts>; TABLES],
    uncategorised: [Counts; TABLES],
    /// The number of samples that are not used because another event of the same kind is used.
    left_out: u64,
}

impl<'a> Tally<'a> {
    fn new(rules: &'a Rules, symbols_max: usize) -> Self {
        Self {
            rules,
            symbols: Symbols::new(symbols_max),
            format: None,
            events: Events::default(),
            event: None,
            open: None,
            total: Counts::default(),
            weights: Default::default(),
            sums: Table::ALL.map(|table| vec![Counts::default(); rules.in_table(table).len()]),
            uncategorised: [Counts::default(); TABLES],
            left_out: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.total.iter().all(|weighed| weighed.weight == 0)
    }

    /// Reads a line. Returns false if the line could not be read.
    fn line(&mut self, line: &[u8]) -> bool {
        match self.format {
            Some(Format::Perf) => self.perf(line),
            Some(Format::Folded) => self.folded(line),
            Some(Format::Pprof) => false,
            None if line.trim_ascii().is_empty() || line.starts_with(b"#") => true,
            // The first line that has a known form decides the format of the profile.
            None if header(line).is_some() => {
                self.format = Some(Format::Perf);
                self.perf(line)
            }
            None if folded_count(line).is_some() => {
                self.format = Some(Format::Folded);
                self.folded(line)
            }
            None => false,
        }
    }

    fn folded(&mut self, line: &[u8]) -> bool {
        if line.is_empty() || line.starts_with(b"#") {
            return true;
        }
        let Some((frames, count)) = folded_count(line) else { return false };
        let mut stack = Stack::new(Some(Kind::Other), count);
        let mut from = 0;
        for end in memchr_iter(b';', frames).chain([frames.len()]) {
            let is_leaf = end == frames.len();
            let (symbol, library) = annotated(&frames[from..end]);
            self.frame(&mut stack, symbol, library, is_leaf);
            from = end + 1;
        }
        self.end(&stack);
        true
    }

    fn perf(&mut self, line: &[u8]) -> bool {
        if line.is_empty() || line.trim_ascii().is_empty() {
            self.end_sample();
            return true;
        }
        if line[0].is_ascii_whitespace()
            && let Some(mut stack) = self.open.take()
        {
            let frame = perf_frame(line);
            if let Some((symbol, library)) = frame {
                let is_leaf = stack.frames == 0;
                self.frame(&mut stack, symbol, library, is_leaf);
            }
            self.open = Some(stack);
            return frame.is_some();
        }
        self.end_sample();
        if line[0] == b'#' {
            return true;
        }
        let Some(header) = header(line) else { return false };
        let mut stack = Stack::new(self.events.kind(header.event), header.period);
        match header.frame {
            Some((symbol, library)) => {
                self.frame(&mut stack, symbol, library, true);
                self.end(&stack);
            }
            None => self.open = Some(stack),
        }
        true
    }

    fn frame(&mut self, stack: &mut Stack, symbol: &[u8], library: &[u8], is_leaf: bool) {
        stack.frames += 1;
        let Some(index) = self.symbols.index(self.rules, symbol, library) else { return };
        if is_leaf {
            stack.leaf = Some(index);
        }
        stack.meets(&self.symbols.get(index).ranks, is_leaf);
    }

    fn end_sample(&mut self) {
        if let Some(stack) = self.open.take() {
            self.end(&stack);
        }
    }

    fn end(&mut self, stack: &Stack) {
        match stack.kind {
            Some(kind) => self.add(stack, kind, 1, stack.count),
            None => self.left_out += 1,
        }
    }

    fn sample(&mut self, kind: Kind, sample: &Sample<'_>) {
        let Sample { weight, samples, instructions, frames } = sample;
        let mut stack = Stack::new(Some(kind), *weight);
        for (index, (symbol, library)) in frames.iter().enumerate() {
            self.frame(&mut stack, symbol, library, index == 0);
        }
        self.add(&stack, kind, *samples, *weight);
        if *instructions > 0 {
            self.add(&stack, Kind::Instructions, 0, *instructions);
        }
    }

    fn add(&mut self, stack: &Stack, kind: Kind, samples: u64, weight: u64) {
        let at = kind as usize;
        self.total[at].add(samples, weight);
        self.weights[at].add(samples, weight);
        for table in 0..TABLES {
            let counted = self.sums[table].get_mut(usize::from(stack.rank[table]));
            counted.unwrap_or(&mut self.uncategorised[table])[at].add(samples, weight);
        }
        if let Some(leaf) = stack.leaf {
            self.symbols.add_leaf_weight(leaf, kind, weight);
        }
    }

    /// Returns the kind of sample from which shares of cycles are computed: the best kind that the profile has.
    fn kind(&self) -> Kind {
        let has = |kind: &Kind| self.total[*kind as usize].weight > 0;
        Kind::ALL.into_iter().find(has).unwrap_or(Kind::Other)
    }

    /// Returns the sums of the result: the samples of the kind that is used, and the instructions.
    fn sums(&self, counts: &Counts) -> Sums {
        let kind = self.kind();
        let Counted { samples, weight } = counts[kind as usize];
        let instructions = match kind {
            Kind::Instructions => 0,
            _ => counts[Kind::Instructions as usize].weight,
        };
        let samples = match self.format {
            Some(Format::Folded) => {
                self.weights[kind as usize].stands_for().samples(samples, weight)
            }
            _ => samples,
        };
        Sums { samples, weight, instructions }
    }

    fn profile(self, malformed: Malformed) -> CpuProfile {
        let kind = self.kind();
        let samples_of = |kind: Kind| self.total[kind as usize].samples;
        // The time gives the clock rate if cycles are known. Instructions give the IPC with every other kind.
        let is_used = |sampled: &Kind| match sampled {
            Kind::Clock => kind == Kind::Cycles,
            sampled => *sampled == kind || *sampled == Kind::Instructions,
        };
        let unused = Kind::ALL.into_iter().filter(|sampled| !is_used(sampled)).map(samples_of);
        let other_events = self.left_out + unused.sum::<u64>();
        let named = self.event.clone().or_else(|| self.events.names(kind));
        let (total, weights) = (self.sums(&self.total), &self.weights[kind as usize]);
        let is_folded = self.format == Some(Format::Folded);
        let clock_ns = self.total[Kind::Clock as usize].weight;
        CpuProfile {
            format: match self.format {
                Some(Format::Perf) => "perf script",
                Some(Format::Pprof) => "pprof",
                Some(Format::Folded) | None => "folded stacks",
            },
            event: named.unwrap_or_else(|| "samples".to_owned()),
            counts_cycles: kind == Kind::Cycles,
            clock_ns: (kind == Kind::Cycles && clock_ns > 0).then_some(clock_ns),
            total,
            stands_for: is_folded.then(|| weights.stands_for()),
            independent_samples: match is_folded {
                true => weights.independent_folded(),
                false => weights.independent(),
            },
            leaf: self.breakdown(Table::Leaf),
            functionality: self.breakdown(Table::Functionality),
            malformed,
            other_events,
            symbols: self.symbols.count(),
            frames_beyond: self.symbols.beyond(),
        }
    }

    fn breakdown(&self, table: Table) -> Breakdown {
        let rules = self.rules.in_table(table);
        let mut categories: Vec<Category> = Vec::new();
        for (rule, counts) in rules.iter().zip(&self.sums[table as usize]) {
            let sums = &self.sums(counts);
            let frames = rule.frames(table);
            let at = categories.iter().position(|one| one.name == rule.category);
            let at = at.unwrap_or_else(|| {
                let (sums, parts, top) = (Sums::default(), Vec::new(), Vec::new());
                let name = rule.category.clone();
                categories.push(Category { name, frames: Some(frames), sums, parts, top });
                categories.len() - 1
            });
            let category = &mut categories[at];
            category.frames = category.frames.filter(|common| *common == frames);
            category.sums.add(*sums);
            if let Some(name) = &rule.part {
                match category.parts.iter_mut().find(|(part, _)| part == name) {
                    Some((_, total)) => total.add(*sums),
                    None => category.parts.push((name.clone(), *sums)),
                }
            }
        }
        let empty = Sums::default();
        categories.retain(|one| one.sums != empty);
        categories.sort_by_key(|one| std::cmp::Reverse(one.sums.weight));
        for category in &mut categories {
            category.parts.retain(|(_, sums)| *sums != empty);
            category.parts.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.weight));
        }
        let mut uncategorised = Category {
            name: UNCATEGORISED.to_owned(),
            frames: None,
            sums: self.sums(&self.uncategorised[table as usize]),
            parts: Vec::new(),
            top: Vec::new(),
        };
        if table == Table::Leaf {
            let all = categories.iter_mut().chain([&mut uncategorised]);
            all.for_each(|category| category.top = self.top(&category.name));
        }
        Breakdown { categories, uncategorised }
    }

    /// Returns the leaf functions with the most weight in a category. The list is empty if no category has that name.
    fn top(&self, category: &str) -> Vec<(String, u64)> {
        let rules = self.rules.in_table(Table::Leaf);
        let is_of = |symbol: &Symbol| {
            let rank = usize::from(symbol.ranks[Table::Leaf as usize].as_leaf);
            rules.get(rank).map_or(UNCATEGORISED, |rule| rule.category.as_str()) == category
        };
        let all = self.symbols.with_leaf_weights(self.kind());
        let mut heaviest: Vec<(&Symbol, u64)> =
            all.filter(|(symbol, weight)| *weight > 0 && is_of(symbol)).collect();
        heaviest.sort_by(|one, other| {
            other.1.cmp(&one.1).then_with(|| one.0.text().cmp(&other.0.text()))
        });
        heaviest.truncate(TOP);
        heaviest.into_iter().map(|(symbol, weight)| (symbol.text(), weight)).collect()
    }
}

const TOP: usize = 5;
const UNCATEGORISED: &str = "uncategorised";

/// Splits `frame;frame;leaf COUNT` into the frames and the count.
fn folded_count(line: &[u8]) -> Option<(&[u8], u64)> {
    let line = line.trim_ascii_end();
    let at = memrchr(b' ', line)?;
    let frames = line[..at].trim_ascii();
    let count = number(&line[at + 1..])?;
    (!frames.is_empty()).then_some((frames, count))
}

/// Returns the symbol and the library of a frame in a folded stack. The suffix that marks where the frame ran is
/// removed. A frame of the kernel gets the kernel's name as its library.
fn annotated(frame: &[u8]) -> (&[u8], &[u8]) {
    for mark in [b"_[i]", b"_[j]"] {
        if let Some(symbol) = frame.strip_suffix(mark) {
            return (symbol, b"");
        }
    }
    frame.strip_suffix(b"_[k]").map_or((frame, b"".as_slice()), |symbol| (symbol, KERNEL))
}

/// The name that perf gives to a symbol that it could not resolve.
const UNKNOWN: &[u8] = b"[unknown]";
const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// The first line of a `perf script` sample.
struct Header<'a> {
    event: &'a [u8],
    period: u64,
    /// The only frame of a sample without a stack.
    frame: Option<(&'a [u8], &'a [u8])>,
}

/// Reads `comm pid [cpu] time: period event:`, in which every part but the event may be missing. A sample without a
/// stack has its only frame after the event.
fn header(line: &[u8]) -> Option<Header<'_>> {
    let line = line.trim_ascii();
    let (head, frame) = if line.ends_with(b":") {
        (line, None)
    } else {
        let mut frame = None;
        let mut end = line.len();
        while let Some(at) = line[..end].windows(2).rposition(|pair| pair == b": ") {
            end = at + 1;
            frame = perf_frame(&line[end..]);
            if frame.is_some() {
                break;
            }
        }
        (&line[..end], Some(frame?))
    };
    let mut words = head.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let last = words.next()?;
    let before = words.next()?;
    let event = &last[..last.iter().rposition(|byte| *byte != b':')? + 1];
    // A line of prose may also end with a colon. Only a sample has a process or a time.
    if !head.split(u8::is_ascii_whitespace).any(is_time_or_process) {
        return None;
    }
    if is_time_or_process(event) {
        return Some(Header { event: b"samples", period: 1, frame });
    }
    Some(Header { event, period: number(before).unwrap_or(1), frame })
}

fn is_time_or_process(word: &[u8]) -> bool {
    let numeric = |byte: &u8| byte.is_ascii_digit() || b"./:".contains(byte);
    word.first().is_some_and(u8::is_ascii_digit) && word.iter().all(numeric)
}

/// Reads `ADDRESS symbol+0xOFFSET (library)`.
fn perf_frame(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (address, rest) = (&line[..end], line[end..].trim_ascii_start());
    let address = address.strip_prefix(b"0x").unwrap_or(address);
    if address.is_empty() || !address.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let deleted = rest.strip_suffix(b" (deleted))");
    let closed = deleted.or_else(|| rest.strip_suffix(b")")).unwrap_or(b"");
    let (symbol, library) = match memrchr(b'(', closed) {
        Some(at) if at == 0 || closed[at - 1] == b' ' => (&closed[..at], &closed[at + 1..]),
        _ => (rest, b"".as_slice()),
    };
    let symbol = symbol.trim_ascii_end();
    let offset = memrchr(b'+', symbol).filter(|at| symbol[*at..].starts_with(b"+0x"));
    let symbol = offset.map_or(symbol, |at| &symbol[..at]);
    Some((if symbol.is_empty() { UNKNOWN } else { symbol }, library))
}

/// Returns a whole number in decimal digits. A number that is too large becomes the largest u64.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = text.iter().map(|digit| u64::from(digit - b'0'));
    Some(digits.fold(0, |sum: u64, digit| sum.saturating_mul(10).saturating_add(digit)))
}
