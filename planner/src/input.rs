//! Reads files of queries and files of sizes. The module also contains the compiled-in specs.

use std::io::Read;
use std::path::Path;

use crate::query::Query;
use crate::{file, program, sizes};

/// The compiled-in specs by their names.
pub const SPECS: [(&str, &str); 4] = [
    (
        "accelerometer-validation",
        include_str!("../../specs/profiles/accelerometer-validation.toml"),
    ),
    (
        "accelerometer-recommendations",
        include_str!("../../specs/profiles/accelerometer-recommendations.toml"),
    ),
    (
        "accelerometer-breakdowns",
        include_str!("../../specs/profiles/accelerometer-breakdowns.toml"),
    ),
    ("accelerometer-sizes", include_str!("../../specs/profiles/accelerometer-sizes.toml")),
];

/// Reads the queries in a file of parameters, or in the compiled-in spec of that name.
///
/// # Errors
/// The text names the problem and its place.
pub(crate) fn queries_from(path: &Path) -> Result<Vec<Query>, String> {
    let shown = path.display().to_string();
    let placed = |problem: String| format!("{shown}: {problem}");
    if let Some((_, text)) = SPECS.iter().find(|(name, _)| *name == shown) {
        return file::read(text, None).map_err(placed);
    }
    let text = text_from(path)?;
    if program::is_nine_lines(&text) {
        return Ok(vec![program::read(&text, &shown).map_err(placed)?]);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    file::read(&text, Some(folder)).map_err(placed)
}

/// Reads the sizes in a file. If the file has sizes by op, it reads those of `op`.
///
/// # Errors
/// The text names the problem and its place.
pub(crate) fn sizes_from(path: &Path, op: Option<&str>) -> Result<sizes::Read, String> {
    let text = text_from(path)?;
    sizes::read(&text, op).map_err(|problem| format!("sizes {}: {problem}", path.display()))
}

/// Reads a text file of at most [`FILE_BYTES_MAX`] bytes.
pub(crate) fn text_from(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let read = read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

const FILE_BYTES_MAX: u64 = 4 << 20;
