//! Reads the nine-line file of the public Accelerometer program. Each line has a name and a value, in the order C,
//! alpha, n, o0, Q, L, o1, A, Threading. As in that program, the position of a line decides and the name is only for
//! people. A line with the name of another parameter causes a note.

use model::{Design, Provenance, Quantity, Strategy, Symbol};

use crate::query::{Parameter, Query};

const PLACES: [Symbol; 8] =
    [Symbol::C, Symbol::Alpha, Symbol::N, Symbol::O0, Symbol::Q, Symbol::L, Symbol::O1, Symbol::A];

/// Returns whether a text has this nine-line form rather than TOML.
pub(crate) fn is_nine_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .next()
        .is_some_and(|line| line.split_whitespace().count() == 2 && !line.contains(['=', '[', '#']))
}

/// Reads the file. The form does not say where the accelerator is, so off-chip is assumed; the equations are the same.
///
/// # Errors
/// The text names the line and its problem.
pub(crate) fn read(text: &str, name: &str) -> Result<Query, String> {
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| !words.is_empty())
        .collect();
    if let Some(bad) = lines.iter().position(|words| words.len() != 2) {
        return Err(format!("line {} must be a name and a value", bad + 1));
    }
    if lines.len() != PLACES.len() + 1 {
        let order = "C, alpha, n, o0, Q, L, o1, A, Threading";
        return Err(format!("{} lines; there must be 9: {order}", lines.len()));
    }
    let threading = lines[PLACES.len()][1].parse().map_err(|error| format!("line 9: {error}"))?;
    let mut query = Query::new("program", name, Design::new(threading, Strategy::OffChip));
    query.of_program = true;
    for (place, (words, symbol)) in lines.iter().zip(PLACES).enumerate() {
        let given = given(symbol, words[1]);
        let given = given.map_err(|error| format!("line {}: {error}", place + 1))?;
        query.parameters.insert(symbol, given);
        let named = PLACES.iter().find(|one| one.name().eq_ignore_ascii_case(words[0]));
        // The program's name for alpha is `a`, which is not A, the accelerator's speedup.
        let is_alphas_name = symbol == Symbol::Alpha && words[0] == "a";
        if named.is_some_and(|named| *named != symbol) && !is_alphas_name {
            let (line, name) = (place + 1, words[0]);
            let note = format!("line {line} is named {name} and read as {symbol}");
            query.notes.push(format!("{note}: the place decides"));
        }
    }
    let takes = query.stated(Symbol::Alpha) > Some(0.0);
    if takes && query.stated(Symbol::N) == Some(0.0) {
        query.parameters.remove(&Symbol::N);
        query.notes.push("n is 0, and calls take alpha: alpha alone is asked of".to_owned());
    }
    Ok(query)
}

fn given(symbol: Symbol, word: &str) -> Result<Parameter, String> {
    if word == "NA" {
        let none = if symbol == Symbol::A { 1.0 } else { 0.0 };
        return Ok(Parameter::new(Quantity::exact(none, Provenance::Assumed), "NA: none"));
    }
    let refuse = |_| format!("{symbol} is {word:?}; it must be {}", symbol.valid());
    let value: f64 = word.parse().map_err(refuse)?;
    Ok(Parameter { quantity: Quantity::exact(value, Provenance::Configured), source: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AES_NI: &str =
        "C 2000000000\na 0.165844\nn 298951\no0 10\nQ 0\nL 3\no1 0\nA 6\nThreading Sync\n";

    #[test]
    fn the_file_is_told_from_toml_and_read() {
        assert!(is_nine_lines(AES_NI) && !is_nine_lines("C = 2e9\n") && !is_nine_lines("[[case]]"));
        let query = read(AES_NI, "aes").expect("valid");
        assert_eq!(query.stated(Symbol::Alpha), Some(0.165844));
        assert_eq!(query.stated(Symbol::A), Some(6.0));
        assert!(query.notes.is_empty(), "{:?}", query.notes);
    }

    #[test]
    fn faults_name_line_and_range() {
        let bad = [
            ("Sync\n", "Fibers\n", "line 9: threading is \"Fibers\"; it must be Sync, "),
            ("C 2000000000", "C x", "line 1: C is \"x\"; it must be a number above 0"),
            ("o0 10\n", "o0 10 cycles\n", "line 4 must be a name and a value"),
            ("o0 10\n", "", "8 lines; there must be 9"),
        ];
        for (old, new, text) in bad {
            let error = read(&AES_NI.replace(old, new), "aes").expect_err("refused");
            assert!(error.starts_with(text), "{error}");
        }
        let swapped =
            read(&AES_NI.replace("Q 0\nL 3", "L 0\nQ 3"), "aes").expect("the place decides");
        assert_eq!(swapped.notes.len(), 2);
        let none = read(&AES_NI.replace("n 298951", "n NA"), "aes").expect("a share alone");
        assert!(none.is_share_alone() && none.notes[0].starts_with("n is 0"), "{:?}", none.notes);
    }
}
