//! The text form: read, checked with the place of every fault, and written in one canonical layout. It reads no files:
//! the caller hands in names and texts.

mod layout;
mod lexer;
mod parser;
mod print;

use std::fmt;

use units::Op;

use crate::catalog::{Catalog, Draft};
use crate::fault::{Fault, Owner};
use parser::{Parsed, parse};

/// An error in a text, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The name of the text, as the caller gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The text that was expected, or the error.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

impl std::error::Error for TextError {}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Returns the catalog that these texts, each with its name, make together.
///
/// # Errors
/// The first error of each text that cannot be read. If all can be read, every fault of their content.
pub fn read(files: &[(&str, &str)]) -> Result<Catalog, Vec<TextError>> {
    let parsed: Vec<_> = files.iter().map(|(name, text)| parse(name, text)).collect();
    let errors: Vec<TextError> =
        parsed.iter().filter_map(|parsed| parsed.as_ref().err().cloned()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let parsed: Vec<Parsed> = parsed.into_iter().flatten().collect();
    let mut draft = Draft::default();
    for one in &parsed {
        draft.fields.extend(one.draft.fields.iter().cloned());
        draft.traces.extend(one.draft.traces.iter().cloned());
        draft.services.extend(one.draft.services.iter().cloned());
    }
    draft.check().map_err(|faults| {
        let mut errors: Vec<TextError> =
            faults.into_iter().map(|fault| locate(fault, files, &parsed)).collect();
        let file = |error: &TextError| files.iter().position(|(name, _)| *name == error.file);
        errors.sort_by_key(|error| (file(error), error.line, error.column));
        errors
    })
}

/// Returns the content of a text, not checked.
///
/// # Errors
/// The place where it cannot be read.
pub fn draft(name: &str, text: &str) -> Result<Draft, TextError> {
    parse(name, text).map(|parsed| parsed.draft)
}

/// Returns the text in its canonical layout, with comments.
///
/// # Errors
/// The place where it cannot be read. Faults that only a check finds do not matter here.
pub fn format(name: &str, text: &str) -> Result<String, TextError> {
    Ok(layout::with_comments(&parse(name, text)?))
}

/// Returns the text of a draft: fields, traces, services.
pub fn print(draft: &Draft) -> String {
    layout::plain(&print::lines(draft))
}

fn locate(fault: Fault, files: &[(&str, &str)], parsed: &[Parsed]) -> TextError {
    let count = |one: &Parsed| match fault.owner {
        Owner::Field(_) => one.fields.len(),
        Owner::Trace(_) => one.traces.len(),
        Owner::Service(_) => one.services.len(),
    };
    let (Owner::Field(mut index) | Owner::Trace(mut index) | Owner::Service(mut index)) =
        fault.owner;
    for (one, (name, _)) in parsed.iter().zip(files) {
        if index >= count(one) {
            index -= count(one);
            continue;
        }
        let located = match fault.owner {
            Owner::Field(_) => &one.fields[index],
            Owner::Trace(_) => &one.traces[index],
            Owner::Service(_) => &one.services[index],
        };
        let node = fault.node.and_then(|node| located.nodes.get(node));
        let place = *node.unwrap_or(&located.name);
        let message = fault.what.to_string();
        let file = (*name).to_owned();
        return TextError { file, line: place.line, column: place.column, message };
    }
    TextError { file: String::new(), line: 0, column: 0, message: fault.what.to_string() }
}

/// Returns whether the language uses the word itself, so that it cannot be a name.
pub(crate) fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || Op::ALL.iter().any(|op| op.name() == word)
}

const KEYWORDS: [&str; 21] = [
    "and", "await", "cpu", "due", "else", "field", "fork", "if", "join", "not", "or", "parallel",
    "run", "service", "tail", "takes", "trace", "trans", "with", "within", "notify",
];
