//! A CPU profile as a report of categories, and as a question about one of them. The reader is `workload::cpu`; here
//! are files, flags and layout.

use std::fs::File;
use std::path::Path;

use model::{Design, Provenance, Quantity, Strategy, Symbol};
use serde::Serialize;
use serde_json::json;
use workload::cpu::{self, Breakdown, Category, CpuProfile, Rules, StandsFor, Sums, Table};

use super::answer::sampled_share;
use super::question::{Given, Question};
use super::show::plain;
use crate::devices::{WIDTH, table, wrapped};

/// The categories of a profile.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    format: &'static str,
    /// What weights count.
    event: String,
    samples: u64,
    /// As sure as so many that are independent and weigh alike.
    independent_samples: f64,
    /// What the counts of folded stacks are taken for, where not for samples.
    counts: Option<String>,
    weight: u64,
    ipc: Option<f64>,
    leaf: Vec<Row>,
    functionality: Vec<Row>,
    advice: Vec<Advice>,
    malformed_lines: u64,
    malformed: Vec<(u64, String)>,
    other_events: u64,
    symbols: usize,
    frames_beyond: u64,
}

/// One category.
#[derive(Debug, Serialize)]
struct Row {
    category: String,
    frames: Option<&'static str>,
    share: f64,
    samples: u64,
    ipc: Option<f64>,
    /// If it took no time at all.
    speedup_at_most: Option<f64>,
    parts: Vec<Part>,
    top: Vec<Top>,
}

#[derive(Debug, Serialize)]
struct Part {
    part: String,
    share: f64,
}

#[derive(Debug, Serialize)]
struct Top {
    symbol: String,
    share: f64,
}

#[derive(Debug, Serialize)]
struct Advice {
    finding: String,
    opportunity: &'static str,
}

/// Reads a profile by our rules, and before them those of a file.
///
/// # Errors
/// What cannot be read, and why.
pub(crate) fn read(path: &Path, own_rules: Option<&Path>) -> Result<CpuProfile, String> {
    let rules = rules(own_rules)?;
    let shown = path.display();
    let read = if path == Path::new("-") {
        cpu::read(std::io::stdin().lock(), &rules)
    } else {
        let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        cpu::read(file, &rules)
    };
    read.map_err(|error| format!("profile {shown}: {error}"))
}

fn rules(own: Option<&Path>) -> Result<Rules, String> {
    let text = own.map(super::text_of).transpose()?;
    let origin = own.map(|path| path.display().to_string()).unwrap_or_default();
    let own = text.as_deref().map(|text| (origin.as_str(), text));
    let texts: Vec<(&str, &str)> = own.into_iter().chain([Rules::text()]).collect();
    Rules::new(&texts).map_err(|error| error.to_string())
}

/// Which rules match a symbol.
///
/// # Errors
/// Rules that cannot be used.
pub(crate) fn explain(symbol: &str, own: Option<&Path>, json: bool) -> Result<Vec<String>, String> {
    let rules = rules(own)?;
    // `symbol (library)`, as reports print it.
    let split = symbol.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let (name, library) = split.unwrap_or((symbol, ""));
    let found = rules.explain(name, library);
    let category = |one: &cpu::Explained| match &one.part {
        Some(part) => format!("{}, {part}", one.category),
        None => one.category.clone(),
    };
    if json {
        let rows = found.iter().map(|one| {
            json!({"table": one.table.name(), "place": one.place, "category": one.category,
                   "part": one.part, "frames": one.frames.name(), "pattern": one.pattern})
        });
        return Ok(vec![json!({"symbol": symbol, "rules": rows.collect::<Vec<_>>()}).to_string()]);
    }
    let mut lines = Vec::new();
    for own in Table::ALL {
        let mut first = true;
        for one in found.iter().filter(|one| one.table == own) {
            let counts = if first { "counts" } else { "comes too late" };
            let (place, frames, pattern) = (one.place, one.frames.name(), &one.pattern);
            let category = category(one);
            let name = own.name();
            lines
                .push(format!("{name}: {category} by rule {place} ({frames}) {pattern}: {counts}"));
            first = false;
        }
        if first {
            lines.push(format!("{}: no rule matches: uncategorised", own.name()));
        }
    }
    Ok(lines)
}

/// A question about one category: alpha alone, until sizes are put to it.
///
/// # Errors
/// The categories that there are.
pub(crate) fn question(
    profile: &CpuProfile,
    kernel: &str,
    threading: &str,
) -> Result<Question, String> {
    let category = profile.find(kernel).ok_or_else(|| {
        let all = profile.functionality.categories.iter().chain(&profile.leaf.categories);
        let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
        format!("kernel is {kernel:?}; the profile has {}", names.join(", "))
    })?;
    let threading = threading.parse().map_err(|error: model::BadParameter| error.to_string())?;
    let design = Design::new(threading, Strategy::OffChip);
    let mut question = Question::new("profile", category.name.clone(), design);
    let share = profile.share(category.sums);
    let (samples, independent) = (profile.total.samples, profile.independent_samples);
    let alpha = sampled_share(share, independent);
    let source = match independent < 0.99 * samples as f64 {
        true => {
            let as_many = plain(independent.round());
            format!(
                "{} samples of different weight, as sure as {as_many} alike",
                plain(samples as f64)
            )
        }
        false => format!("{} samples, taken as independent", plain(samples as f64)),
    };
    question.given.insert(Symbol::Alpha, Given::new(alpha, source));
    question.notes.extend(counts(profile));
    // Of however many seconds and cores the profile is.
    question.is_of_a_second = false;
    question.clock_ghz = profile.clock_ghz();
    question.clock_source = "the profile's cycles over its time";
    if profile.counts_cycles {
        let cycles = Quantity::exact(profile.total.weight as f64, Provenance::Measured);
        let source = "the weight of the profile's samples";
        question.given.insert(Symbol::C, Given::new(cycles, source));
    }
    Ok(question)
}

/// What the counts of folded stacks are taken for, where not for samples.
fn counts(profile: &CpuProfile) -> Option<String> {
    match profile.stands_for? {
        StandsFor::Samples => None,
        StandsFor::Each(unit) => {
            let unit = plain(unit as f64);
            Some(format!("counts are multiples of {unit}: each sample is taken to have that many"))
        }
        StandsFor::Unknown => Some(
            "no count is below 1,000: they are taken for weights, and each line for one sample, \
             since nothing tells how many it has"
                .to_owned(),
        ),
    }
}

/// What must hold of sizes and cycles.
pub(crate) const ONE_WHILE: &str =
    "n (the sizes) and C (the cycles) are taken to be of one and the same while";

/// C as stated by the flag.
pub(crate) fn put_cycles(question: &mut Question, cycles: f64) {
    let cycles = Quantity::exact(cycles, Provenance::Configured);
    question.given.insert(Symbol::C, Given::new(cycles, "--cycles"));
}

/// n as stated by the flag.
pub(crate) fn put_calls(question: &mut Question, calls: f64) {
    let calls = Quantity::exact(calls, Provenance::Configured);
    question.given.insert(Symbol::N, Given::new(calls, "--calls"));
}

impl Report {
    pub(crate) fn new(profile: &CpuProfile) -> Self {
        let advice = cpu::advice(profile)
            .into_iter()
            .map(|one| Advice { finding: one.finding, opportunity: one.opportunity });
        Self {
            format: profile.format,
            event: profile.event.clone(),
            samples: profile.total.samples,
            independent_samples: profile.independent_samples,
            counts: counts(profile),
            weight: profile.total.weight,
            ipc: profile.ipc(profile.total),
            leaf: rows(profile, &profile.leaf),
            functionality: rows(profile, &profile.functionality),
            advice: advice.collect(),
            malformed_lines: profile.malformed.lines,
            malformed: profile.malformed.examples.clone(),
            other_events: profile.other_events,
            symbols: profile.symbols,
            frames_beyond: profile.frames_beyond,
        }
    }
}

impl Report {
    /// Both tables: title, and names with shares.
    pub(crate) fn shares(&self) -> [(&'static str, Vec<(String, f64)>); 2] {
        let of = |rows: &[Row]| rows.iter().map(|row| (row.category.clone(), row.share)).collect();
        [("leaf functions", of(&self.leaf)), ("functionalities", of(&self.functionality))]
    }

    /// Both tables: title, and the rows under it and [`COLUMNS`].
    pub(crate) fn tables(&self) -> [(&'static str, Vec<Vec<String>>); 2] {
        let of = |rows: &[Row]| rows.iter().map(cells).collect();
        [
            ("leaf functions (table 2)", of(&self.leaf)),
            ("functionalities (table 3)", of(&self.functionality)),
        ]
    }

    /// What is said beside the tables.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let advice = self.advice.iter().map(|one| format!("{}: {}", one.finding, one.opportunity));
        self.counts.iter().cloned().chain(advice).chain(unread(self)).collect()
    }
}

/// Behind a table's title.
pub(crate) const COLUMNS: [(&str, usize); 5] =
    [("share", 8), ("frames", 9), ("IPC", 5), ("at most", 9), ("most in", 30)];

fn rows(profile: &CpuProfile, breakdown: &Breakdown) -> Vec<Row> {
    let share = |weight: u64| profile.share(Sums { weight, ..Sums::default() });
    let row = |one: &Category, uncategorised: bool| {
        let own = profile.share(one.sums);
        let top = one.top.iter().map(|(symbol, weight)| {
            let symbol = symbol.clone();
            Top { symbol, share: share(*weight) }
        });
        let parts = one
            .parts
            .iter()
            .map(|(part, sums)| Part { part: part.clone(), share: profile.share(*sums) });
        Row {
            category: one.name.clone(),
            frames: one.frames.map(cpu::Frames::name),
            share: own,
            samples: one.sums.samples,
            ipc: profile.ipc(one.sums),
            speedup_at_most: (!uncategorised && own < 1.0).then(|| 1.0 / (1.0 - own)),
            parts: parts.collect(),
            top: top.collect(),
        }
    };
    let known = breakdown.categories.iter().map(|one| row(one, false));
    known.chain([row(&breakdown.uncategorised, true)]).collect()
}

/// The report as text.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let event = match report.event.as_str() {
        "samples" => String::new(),
        event => format!(" of {event}"),
    };
    let samples = plain(report.samples as f64);
    let mut lines = vec![format!("{}: {samples} samples{event}", report.format)];
    lines.extend(report.counts.iter().flat_map(|text| wrapped(text, WIDTH)));
    for (title, rows) in report.tables() {
        lines.push(String::new());
        let columns: Vec<_> = [(title, 28)].into_iter().chain(COLUMNS).collect();
        lines.extend(table(&columns, &rows));
    }
    if !report.advice.is_empty() {
        lines.extend([
            String::new(),
            "what the findings suggest (Accelerometer's table 4)".to_owned(),
        ]);
    }
    for one in &report.advice {
        let text = format!("{}: {}", one.finding, one.opportunity);
        let wrapped = wrapped(&text, WIDTH - 2);
        let start = |index: usize| if index == 0 { "- " } else { "  " };
        lines.extend(wrapped.iter().enumerate().map(|(at, line)| format!("{}{line}", start(at))));
    }
    lines.push(String::new());
    lines.extend(unread(report));
    let range = "a profile gives alpha, not n or sizes: \"at most\" is the speedup if a category took \
                 no time. --kernel CATEGORY asks the model, with --sizes for more than a range";
    lines.extend(wrapped(range, WIDTH));
    lines
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let parts = row.parts.iter().map(|own| format!("{} {}", own.part, percent(own.share)));
    let top = row.top.iter().map(|own| format!("{} {}", own.symbol, percent(own.share)));
    let most: Vec<String> = parts.chain(top.take(TOP)).collect();
    vec![
        row.category.clone(),
        percent(row.share),
        row.frames.unwrap_or("").to_owned(),
        row.ipc.map_or(String::new(), |ipc| format!("{ipc:.2}")),
        row.speedup_at_most.map_or(String::new(), |own| format!("{:+.1} %", 100.0 * (own - 1.0))),
        most.join(", "),
    ]
}

/// Symbols of a category that fit its cell.
const TOP: usize = 2;

fn unread(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.malformed_lines > 0 {
        lines.push(format!("lines that could not be read: {}, among them", report.malformed_lines));
        let example = |(number, text): &(u64, String)| format!("  line {number}: {text}");
        lines.extend(report.malformed.iter().map(example));
    }
    if report.other_events > 0 {
        lines.push(format!("{} samples of other events are left out", report.other_events));
    }
    if report.frames_beyond > 0 {
        let (frames, symbols) = (report.frames_beyond, report.symbols);
        lines.push(format!("{frames} frames beyond {symbols} distinct symbols matched no rule"));
    }
    lines
}
