//! The text form of catalogs. This module reads texts, reports the place of every fault, and writes
//! texts in one canonical layout. It opens no files: the caller passes names and texts.

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
    /// A description of the error, or of the text that was expected.
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

/// Returns the catalog that these texts make together. Each text has a name.
///
/// # Errors
/// Returns the first error of each text that cannot be read. If all texts can be read, returns all
/// faults of their content.
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

/// Returns the content of a text. The content is not checked.
///
/// # Errors
/// Returns the place at which the text cannot be read.
pub fn draft(name: &str, text: &str) -> Result<Draft, TextError> {
    parse(name, text).map(|parsed| parsed.draft)
}

/// Returns the text in its canonical layout, including its comments.
///
/// # Errors
/// Returns the place at which the text cannot be read. The content is not checked.
pub fn format(name: &str, text: &str) -> Result<String, TextError> {
    Ok(layout::with_comments(&parse(name, text)?))
}

/// Returns the text of a draft: its fields, traces and services, in this order.
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

/// Returns whether the language itself uses the word. Such a word cannot be a name.
pub(crate) fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || Op::ALL.iter().any(|op| op.name() == word)
}

const KEYWORDS: [&str; 21] = [
    "and", "await", "cpu", "due", "else", "field", "fork", "if", "join", "not", "or", "parallel",
    "run", "service", "tail", "takes", "trace", "trans", "with", "within", "notify",
];
