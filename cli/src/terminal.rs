//! Terminal functions that all commands share: lines on stdout, tables and paragraphs of 100 columns, and the error
//! with which a command ends. This module does not know what is shown.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use serde::Serialize;
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use signal_hook::flag;
use units::{ByteCount, NotAByteCount};

use crate::log;

/// The reason why a command ends without success. The variant tells who has to act. The text is empty if the command
/// has already printed the reason.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The command line or an input is not valid.
    Usage(String),
    /// The work was tried and failed.
    Failed(String),
}

impl CliError {
    /// Returns the exit code: 1 if the work failed, 2 for bad usage or input.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => EXIT_FAILED,
        }
    }

    /// Turns an error's text into a failure of the work.
    pub(crate) fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Turns an error's text into bad usage.
    pub(crate) fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::Failed(text)) = self;
        f.write_str(text)
    }
}

/// The exit code of failed work. A second signal also ends a process with this code.
const EXIT_FAILED: u8 = 1;

/// Writes a warning to stderr. If stderr cannot be written, the warning is dropped.
pub(crate) fn warn(text: &str) {
    log::line(&format!("rebate: {text}"));
}

/// Parses a size, and warns about a unit that the next version refuses.
///
/// # Errors
/// The text is not a size.
pub(crate) fn byte_count(text: &str) -> Result<ByteCount, NotAByteCount> {
    let count = text.parse()?;
    if let Some(advice) = ByteCount::outdated_unit(text) {
        warn(&advice);
    }
    Ok(count)
}

/// Prints a line to stdout at once. If the other end is closed, the error is ignored, because the reader has seen
/// enough.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints text or bytes without adding a line end. Otherwise it works as [`print_line`].
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_ref()).and_then(|()| out.flush());
}

/// Prints a value as JSON on several lines.
///
/// # Errors
/// The value cannot be serialized.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    print_line(&serde_json::to_string_pretty(value).map_err(CliError::failed)?);
    Ok(())
}

/// Writes a file that a flag names.
///
/// # Errors
/// The file cannot be written. The error names the flag and the file.
pub(crate) fn write_file(
    flag: &str,
    path: &std::path::Path,
    text: impl AsRef<[u8]>,
) -> Result<(), CliError> {
    let unwritten = |error| CliError::Failed(format!("{flag} {}: {error}", path.display()));
    std::fs::write(path, text).map_err(unwritten)
}

/// Checks that a file that a flag names can be written, so that a mistake shows before long work. The file stays as it
/// is. A pipe is not opened, because that may wait for its reader.
///
/// # Errors
/// The file cannot be written. The error names the flag and the file.
pub(crate) fn check_writable(flag: &str, path: &std::path::Path) -> Result<(), CliError> {
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| CliError::Usage(format!("{flag} {}: {error}", path.display())))?;
    if found.is_err() {
        // It had to be made for the check.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Returns a flag that the first SIGINT or SIGTERM sets. The second signal ends the process.
///
/// # Errors
/// The signals cannot be handled.
pub(crate) fn stop_on_signal() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let register = |signal| {
        flag::register_conditional_shutdown(signal, EXIT_FAILED.into(), Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))
    };
    for signal in [SIGINT, SIGTERM] {
        let problem = |error| CliError::Failed(format!("cannot handle signals: {error}"));
        register(signal).map_err(problem)?;
    }
    Ok(stop)
}

/// The title and largest width of a column.
pub(crate) type Column = (&'static str, usize);

/// Formats rows under their titles, with text aligned to the left. A column is as wide as its content, up to its bound.
/// A longer text continues in the next line. Words are not broken, so that a path can be copied.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> Vec<String> {
    let mut table = plain_table();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width((WIDTH + GAP) as u16);
    table.set_header(columns.iter().map(|(title, _)| *title));
    table.add_rows(rows);
    for (index, (title, bound)) in columns.iter().enumerate() {
        let cells = rows.iter().map(|row| row[index].as_str()).chain([*title]);
        let longest_word = cells.flat_map(str::split_whitespace).map(|word| word.chars().count());
        let bound = longest_word.max().unwrap_or(0).max(*bound);
        let is_last = index + 1 == columns.len();
        if let Some(column) = table.column_mut(index).filter(|_| !is_last) {
            let padded = u16::try_from(bound + GAP).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(padded)));
        }
    }
    lines(table)
}

/// Formats names and what belongs to them, one pair on each line.
pub(crate) fn pairs(rows: &[(&str, String)]) -> Vec<String> {
    let mut table = plain_table();
    table.add_rows(rows.iter().map(|(name, text)| [*name, text]));
    lines(table)
}

/// Formats rows of numbers. The first row is the head. The first column is aligned to the left and numbers to the
/// right.
pub(crate) fn numbers(rows: &[Vec<String>]) -> Vec<String> {
    let mut table = plain_table();
    table.add_rows(rows);
    table
        .column_iter_mut()
        .skip(1)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    lines(table)
}

/// Breaks the text between words into lines of at most `width` characters. Returns at least one line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width).break_words(false);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// Creates a table without borders.
fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table
}

fn lines(mut table: Table) -> Vec<String> {
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The terminal's width (columns).
pub(crate) const WIDTH: usize = 100;

/// The number of blanks between two columns.
const GAP: usize = 2;

/// Parses the flags of one command, for tests.
#[cfg(test)]
pub(crate) fn flags<F: clap::Args>(line: &str) -> Result<F, String> {
    let command = F::augment_args(clap::Command::new("rebate").no_binary_name(true));
    let matches = command.try_get_matches_from(line.split_whitespace());
    let flags = matches.and_then(|matches| F::from_arg_matches(&matches));
    flags.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells_need() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let long = ["word"; 20].join(" ");
        let rows = [row(["a", "one two three", "x", &long]), row(["bb", "", "unbreakable", "y"])];
        let lines = table(&[("n", 10), ("words", 7), ("third", 4), ("last", 4)], &rows);
        assert_eq!(lines[0], "n   words    third        last");
        assert_eq!(lines[1], format!("a   one two  x            {}", ["word"; 15].join(" ")));
        assert_eq!(lines[2], format!("    three                 {}", ["word"; 5].join(" ")));
        assert_eq!(lines[3], "bb           unbreakable  y");
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
    }

    #[test]
    fn a_checked_file_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        std::fs::write(&old, "text").expect("written");
        for path in [&old, &new] {
            assert!(check_writable("--out", path).is_ok());
        }
        assert_eq!(std::fs::read_to_string(&old).ok().as_deref(), Some("text"));
        assert!(!new.exists());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_bad_usage() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("missing/file")] {
            let error = check_writable("--out", &path).expect_err("it cannot be written");
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().starts_with("--out "), "{error}");
        }
        assert!(check_writable("--out", std::path::Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn numbers_stand_below_each_other() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = numbers(&[row(["op", "p50", "p99"]), row(["get", "1.5", "100.0"])]);
        assert_eq!(lines, ["op   p50    p99", "get  1.5  100.0"]);
    }

    #[test]
    fn texts_stand_behind_their_names() {
        let rows = [("load", "open loop".to_owned()), ("connections", "4".to_owned())];
        assert_eq!(pairs(&rows), ["load         open loop", "connections  4"]);
    }

    #[test]
    fn paragraphs_break_between_words_only() {
        assert_eq!(
            wrapped("a long/path/that/cannot/break b", 8),
            ["a", "long/path/that/cannot/break", "b"]
        );
        assert_eq!(wrapped("", 8), [""]);
    }
}
