//! Shows the comparison of compression off and on in the same memory as a table.

use experiments::compression::Comparison;

use crate::terminal::numbers;

/// Formats the comparison as text.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut lines = vec![format!("{}: {}", comparison.preset(), comparison.caption())];
    lines.extend(numbers(&comparison.rows()));
    lines.push(comparison.sentence());
    lines.join("\n") + "\n"
}
