//! Checks house rules that the compiler does not check, by reading the source text: sizes, open ends, and where unsafe
//! code may be. The scan is rough on purpose. It counts braces and does not parse Rust.

use std::fs;
use std::path::{Path, PathBuf};

const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
const PROSE_COLUMNS_MAX: usize = 120;
const FILE_LINES_MAX: usize = 800;

/// Folders whose files were built, fetched or generated.
const NOT_OURS: [&str; 4] = ["target", ".git", "corpus", "generated"];

/// Marks of unfinished work. The words are assembled here so that this file does not match itself.
const OPEN_ENDS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

struct Source {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above")
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    collect(root(), ".rs", &mut files);
    assert!(files.len() > 20, "the scan finds the sources");
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        Source { path, text }
    };
    files.into_iter().map(source).collect()
}

fn collect(folder: &Path, ending: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            collect(&path, ending, files);
        } else if name.ends_with(ending) {
            files.push(path);
        }
    }
}

fn check(what: &str, faults: impl Fn(&Source) -> Vec<String>) {
    let found: Vec<String> = sources().iter().flat_map(faults).collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Returns the place and the text of each line that has a fault.
fn lines_with(source: &Source, fault: impl Fn(&str) -> bool) -> Vec<String> {
    let numbered = source.text.lines().enumerate().filter(|(_, line)| fault(line));
    numbered.map(|(index, line)| format!("{}:{}: {line}", source.path, index + 1)).collect()
}

#[test]
fn every_file_opens_by_saying_what_it_is_for() {
    check("no `//!` at the top", |source| {
        if source.text.starts_with("//!") { Vec::new() } else { vec![source.path.clone()] }
    });
}

#[test]
fn no_line_is_too_long() {
    check("long lines", |source| {
        lines_with(source, |line| {
            let limit = if is_prose(line) { PROSE_COLUMNS_MAX } else { LINE_COLUMNS_MAX };
            line.chars().count() > limit
        })
    });
}

/// Returns whether a line is a comment or has a text literal. rustfmt does not reflow these lines, so they may be
/// longer.
fn is_prose(line: &str) -> bool {
    let ends_as_code = line.ends_with([';', '{', '}', '(', ')']);
    line.trim_start().starts_with("//") || line.contains('"') || !ends_as_code
}

#[test]
fn no_file_is_longer_than_800_lines() {
    check("long files", |source| {
        let count = source.text.lines().count();
        // A generated file is as long as its IDL makes it. People read the IDL.
        let is_generated = source.path.starts_with("rpc/src/services/");
        let long = count > FILE_LINES_MAX && !is_generated;
        long.then(|| format!("{}: {count} lines", source.path)).into_iter().collect()
    });
}

#[test]
fn no_open_ends() {
    check("open ends", |source| {
        lines_with(source, |line| OPEN_ENDS.iter().any(|word| line.contains(word)))
    });
}

#[test]
fn unsafe_code_lives_under_drivers_and_c() {
    let word = concat!("uns", "afe");
    check("unsafe code", |source| {
        // docs/decisions/0002-unsafe-at-one-address.md says why there are two.
        if source.path.starts_with("drivers/") || source.path.starts_with("c/src/") {
            return Vec::new();
        }
        lines_with(source, |line| {
            let code = line.split("//").next().unwrap_or_default();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|found| found == word) && !code.contains('"')
        })
    });
}

/// Checks that names say what a thing is.
#[test]
fn no_item_is_called_own() {
    let word = concat!("ow", "n");
    check("names that say nothing", |source| {
        lines_with(source, |line| {
            let code = code_of(line);
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_english = [" its ", "'s ", " our ", " your ", " of "].iter().any(|before| {
                line.contains(&format!("{before}{word}"))
                    || line.contains(&format!("{before}their {word}"))
            });
            words.any(|found| found == word) && !is_english
        })
    });
}

/// Checks that papers are named by their key in `docs/references.md`.
#[test]
fn no_paper_is_called_a_seed() {
    let words = [concat!("the se", "ed's"), concat!("The se", "ed's"), concat!("SE", "ED_RATE")];
    check("papers without their key", |source| {
        lines_with(source, |line| words.iter().any(|word| line.contains(word)))
    });
}

/// Checks that the files that a document names exist. A path starts at the root or at the document. `NAME` in a path
/// stands for any name.
#[test]
fn documents_name_files_that_exist() {
    let mut documents = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    collect(&root().join("docs"), ".md", &mut documents);
    collect(&root().join("deploy"), ".md", &mut documents);
    let mut missing = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(document).unwrap_or_default();
        for word in text.split(|c: char| !(c.is_alphanumeric() || "_./-".contains(c))) {
            let path =
                word.trim_end_matches('.').trim_start_matches("../").trim_start_matches("./");
            let is_ours = path.split_once('/').is_some_and(|(folder, _)| {
                !folder.is_empty() && !NOT_OURS.contains(&folder) && root().join(folder).is_dir()
            });
            if is_ours && !path.contains("NAME") && !root().join(path).exists() {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(documents.len() > 20, "the scan finds the documents");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Returns a line without its comment and without the literals that begin and end in it. A line inside a literal of
/// several lines counts as code only if it looks like code.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut characters = line.chars().peekable();
    let mut in_literal = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_literal => _ = characters.next(),
            '"' => in_literal = !in_literal,
            '/' if !in_literal && characters.peek() == Some(&'/') => break,
            _ if in_literal => {}
            character => code.push(character),
        }
    }
    let is_text =
        line.trim_end().ends_with('\\') || code.trim_start().starts_with(char::is_uppercase);
    if is_text { String::new() } else { code }
}

#[test]
fn no_function_is_longer_than_70_lines() {
    check("long functions", |source| {
        if source.path.contains("tests/") || source.path.ends_with("tests.rs") {
            return Vec::new();
        }
        let text = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let long = functions(text).into_iter().filter(|function| function.1 > FUNCTION_LINES_MAX);
        long.map(|(line, count)| format!("{}:{line}: {count} lines", source.path)).collect()
    });
}

/// Returns the first line and the length of every function. A function runs from the line with `fn` to the line of its
/// closing brace, which rustfmt indents equally.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let is_function = code.split(['(', '<']).next().is_some_and(|head| {
            let words: Vec<&str> = head.split(' ').collect();
            words.contains(&"fn") && !code.starts_with("//")
        });
        let end = format!("{indent}}}");
        let one_line = code.ends_with('}') || code.ends_with(';');
        let closes = |line: &&&str| ***line == end || line.starts_with(&format!("{indent})"));
        let is_declaration =
            || lines[start..].iter().find(closes).is_some_and(|line| line.ends_with(';'));
        if is_function && !one_line && !is_declaration() {
            let length = lines[start..].iter().position(|line| *line == end).map_or(0, |at| at + 1);
            found.push((start + 1, length));
        }
    }
    found
}

#[test]
fn the_scan_measures_functions() {
    let body = "    x;\n".repeat(5);
    let declared = "fn decl();\nfn long_decl(\n    a: u8,\n);\n";
    let long = format!("pub fn long(\n    a: u8,\n) {{\n{body}}}\n");
    let text = format!("fn short() {{}}\n{long}{declared}{body}}}\n");
    assert_eq!(functions(&text), [(2, 9)]);
}
