//! A CPU profile as a report of categories, and as a query about one of its categories. `workload::cpu` reads the
//! profile.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use model::{Design, Provenance, Quantity, Strategy, Symbol};
use serde::Serialize;
use workload::cpu::{self, Breakdown, Category, Rules, StandsFor, Sums};
pub use workload::cpu::{CpuProfile, Explained};

use crate::answer::sampled_share;
use crate::number::plain;
use crate::query::{Parameter, Query};

/// The categories of a profile.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The format of the file.
    pub format: &'static str,
    /// The event that the weights count.
    pub event: String,
    /// The number of samples that were read.
    pub samples: u64,
    /// The number of independent samples of equal weight that would give the same certainty as these samples.
    pub independent_samples: f64,
    /// The assumed meaning of the counts in folded stacks, or `None` if they count samples.
    pub counts: Option<String>,
    /// The sum of the samples' weights.
    pub weight: u64,
    /// Instructions per cycle, or `None` if the profile lacks one of the two.
    pub ipc: Option<f64>,
    /// The categories of leaf functions (\[Accelerometer\], table 2).
    pub leaf: Vec<Row>,
    /// The categories of functionalities (\[Accelerometer\], table 3).
    pub functionality: Vec<Row>,
    /// Suggestions that follow from the findings in the profile (\[Accelerometer\], table 4).
    pub advice: Vec<Advice>,
    /// The number of lines that could not be read.
    pub malformed_lines: u64,
    /// The first lines that could not be read, with their line numbers.
    pub malformed: Vec<(u64, String)>,
    /// The number of samples of other events, which do not count.
    pub other_events: u64,
    /// The number of distinct symbols that were sorted into categories.
    pub symbols: usize,
    /// The number of frames whose symbols exceed the limit of distinct symbols. They matched no rule.
    pub frames_beyond: u64,
}

/// One category.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The name of the category.
    pub category: String,
    /// The frames of a stack that the category's rules read: leaf or inclusive.
    pub frames: Option<&'static str>,
    /// The category's share of the profile's weight.
    pub share: f64,
    /// The number of samples in the category.
    pub samples: u64,
    /// The category's instructions per cycle, or `None` if the profile lacks one of the two.
    pub ipc: Option<f64>,
    /// The speedup of the service if the category took no time. It is the upper bound for any accelerator.
    pub speedup_at_most: Option<f64>,
    /// The parts of the category that rules name.
    pub parts: Vec<Part>,
    /// The symbols of the category with the largest shares.
    pub top: Vec<Top>,
}

/// A part of a category.
#[derive(Debug, Serialize)]
pub struct Part {
    /// The name of the part.
    pub part: String,
    /// The part's share of the profile's weight.
    pub share: f64,
}

/// A symbol of a category.
#[derive(Debug, Serialize)]
pub struct Top {
    /// The name of the symbol.
    pub symbol: String,
    /// The symbol's share of the profile's weight.
    pub share: f64,
}

/// A suggestion that follows from a finding.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// The finding.
    pub finding: String,
    /// The kind of acceleration that the finding suggests.
    pub opportunity: &'static str,
}

/// Where a profile is.
#[derive(Clone, Debug)]
pub enum ProfileInput {
    /// The path of a file. `-` is the standard input.
    Path(PathBuf),
    /// The bytes of a file, and where they come from.
    Bytes(String, Vec<u8>),
}

impl fmt::Display for ProfileInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Bytes(origin, _) => f.write_str(origin),
        }
    }
}

/// Reads a profile. The rules in the file `more_rules` are tried before the built-in rules.
///
/// # Errors
/// The text names the part that cannot be read, and the reason.
pub fn read(input: &ProfileInput, more_rules: Option<&Path>) -> Result<CpuProfile, String> {
    let rules = rules(more_rules)?;
    let read = match input {
        ProfileInput::Path(path) if path == Path::new("-") => {
            cpu::read(std::io::stdin().lock(), &rules)
        }
        ProfileInput::Path(path) => {
            let file = File::open(path).map_err(|error| format!("cannot read {input}: {error}"))?;
            cpu::read(file, &rules)
        }
        ProfileInput::Bytes(_, bytes) => cpu::read(&bytes[..], &rules),
    };
    read.map_err(|error| format!("profile {input}: {error}"))
}

fn rules(more: Option<&Path>) -> Result<Rules, String> {
    let text = more.map(crate::input::text_from).transpose()?;
    let origin = more.map(|path| path.display().to_string()).unwrap_or_default();
    let more = text.as_deref().map(|text| (origin.as_str(), text));
    let texts: Vec<(&str, &str)> = more.into_iter().chain([Rules::text()]).collect();
    Rules::new(&texts).map_err(|error| error.to_string())
}

/// Returns the rules of both tables that match a symbol, in the order in which they are tried. The symbol may end with
/// its library in parentheses, as in reports.
///
/// # Errors
/// The rules cannot be used.
pub fn explain(symbol: &str, more_rules: Option<&Path>) -> Result<Vec<Explained>, String> {
    let split = symbol.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
    let (name, library) = split.unwrap_or((symbol, ""));
    Ok(rules(more_rules)?.explain(name, library))
}

/// Creates a query about one category. Only alpha is known until sizes are added.
///
/// # Errors
/// There is no such category; the error lists the existing categories.
pub fn query(profile: &CpuProfile, kernel: &str, threading: &str) -> Result<Query, String> {
    let category = profile.find(kernel).ok_or_else(|| {
        let all = profile.functionality.categories.iter().chain(&profile.leaf.categories);
        let names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
        format!("kernel is {kernel:?}; the profile has {}", names.join(", "))
    })?;
    let threading = threading.parse().map_err(|error: model::BadParameter| error.to_string())?;
    let design = Design::new(threading, Strategy::OffChip);
    let mut query = Query::new("profile", category.name.clone(), design);
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
    query.parameters.insert(Symbol::Alpha, Parameter::new(alpha, source));
    query.notes.extend(counts(profile));
    // The profile covers an unknown number of seconds and cores, so C does not count one second of one core.
    query.is_of_a_second = false;
    query.clock_ghz = profile.clock_ghz();
    query.clock_source = "the profile's cycles over its time";
    if profile.counts_cycles {
        let cycles = Quantity::exact(profile.total.weight as f64, Provenance::Measured);
        let source = "the weight of the profile's samples";
        query.parameters.insert(Symbol::C, Parameter::new(cycles, source));
    }
    Ok(query)
}

/// Describes the assumed meaning of the counts in folded stacks. Returns `None` if they count samples.
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

impl Report {
    /// Returns the report of a profile.
    pub fn new(profile: &CpuProfile) -> Self {
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

fn rows(profile: &CpuProfile, breakdown: &Breakdown) -> Vec<Row> {
    let share = |weight: u64| profile.share(Sums { weight, ..Sums::default() });
    let row = |one: &Category, uncategorised: bool| {
        let category_share = profile.share(one.sums);
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
            share: category_share,
            samples: one.sums.samples,
            ipc: profile.ipc(one.sums),
            speedup_at_most: (!uncategorised && category_share < 1.0)
                .then(|| 1.0 / (1.0 - category_share)),
            parts: parts.collect(),
            top: top.collect(),
        }
    };
    let known = breakdown.categories.iter().map(|one| row(one, false));
    known.chain([row(&breakdown.uncategorised, true)]).collect()
}
