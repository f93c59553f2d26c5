//! Lays out tables and paragraphs for a terminal of 100 columns. Widths are in characters. A text that is too long for
//! its column continues in the next line. Only a word that is longer than its column sticks out.

/// The title and largest width of a column.
pub(crate) type Column = (&'static str, usize);

/// Lays out rows under their titles. Columns are as wide as their content, up to their bound, and the last one gets the
/// remaining width.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> Vec<String> {
    let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rows: Vec<&Vec<String>> = [&titles].into_iter().chain(rows).collect();
    let mut widths: Vec<usize> = Vec::new();
    for (index, (_, bound)) in columns.iter().enumerate() {
        let used: usize = widths.iter().map(|width| width + GAP.len()).sum();
        let last = index + 1 == columns.len();
        let bound = if last { WIDTH.saturating_sub(used).max(*bound) } else { *bound };
        let cells = rows.iter().flat_map(|row| wrapped(&row[index], bound));
        widths.push(cells.map(|line| length(&line)).max().unwrap_or(0));
    }
    let lines = rows.iter().flat_map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width));
        lines_of(&cells.collect::<Vec<_>>(), &widths)
    });
    lines.collect()
}

fn lines_of(row: &[Vec<String>], widths: &[usize]) -> Vec<String> {
    let height = row.iter().map(Vec::len).max().unwrap_or(0);
    let line = |index: usize| {
        let cell = |(cell, width): (&Vec<String>, &usize)| {
            let text = cell.get(index).map_or("", String::as_str);
            format!("{text}{}", " ".repeat(width.saturating_sub(length(text))))
        };
        let cells: Vec<String> = row.iter().zip(widths).map(cell).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Breaks the text between words into lines of at most `width`. Returns at least one line. The first keeps its
/// indentation.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let indentation = &text[..text.len() - text.trim_start().len()];
    let mut lines = vec![indentation.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the start");
        if line.trim().is_empty() {
            line.push_str(word);
        } else if length(line) + 1 + length(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The terminal's width (columns).
pub(crate) const WIDTH: usize = 100;

const GAP: &str = "  ";

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
}
