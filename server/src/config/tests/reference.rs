//! Compares the tables of docs/operating/configuration.md with the sections of `schema`: each row has a key, its flag,
//! its default, the way to change it, and the comment of its field.
//!
//! `REBATE_RECORD=write cargo test -p server --lib reference` writes these tables again.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::*;

/// The source of each section, in the order of [`keys`].
pub(super) const SOURCES: [(&str, &str); 10] = [
    ("server", include_str!("../schema/server.rs")),
    ("store", include_str!("../schema/store.rs")),
    ("compress", include_str!("../schema/compress.rs")),
    ("values", include_str!("../schema/values.rs")),
    ("runtime", include_str!("../schema/runtime.rs")),
    ("scheduler", include_str!("../schema/scheduler.rs")),
    ("programs", include_str!("../schema/programs.rs")),
    ("requests", include_str!("../schema/requests.rs")),
    ("otlp", include_str!("../schema/otlp.rs")),
    ("tls", include_str!("../schema/tls.rs")),
];

/// The defaults that depend on the machine.
const DEFAULTS: [(&str, &str); 1] = [("server.threads", "the cores, at most 4")];

const HEAD: &str =
    "\n\n| key | default | change | meaning, and the effect of other values |\n|---|---|---|---|\n";

#[test]
fn the_reference_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operating/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let defaults = to_table(&Config::default()).unwrap();
    let mut wanted = document.clone();
    for (section, source) in SOURCES {
        let title = format!("\n## [{section}]");
        let (before, rest) = wanted.split_once(&title).expect("each section has a title");
        let (preface, rest) = rest.split_once(HEAD).expect("each section has a table");
        assert!(!preface.contains("\n## "), "[{section}] has no table");
        let after = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
        let rows = rows(section, source, &defaults);
        wanted = format!("{before}{title}{preface}{HEAD}{rows}{after}");
    }
    if std::env::var_os("REBATE_RECORD").is_some_and(|mode| mode == "write") {
        fs::write(&path, wanted).unwrap();
        return;
    }
    for (found, wanted) in document.lines().zip(wanted.lines()) {
        assert_eq!(found, wanted, "the top of this test says how to write the tables again");
    }
    assert_eq!(document.len(), wanted.len());
}

/// Returns the rows of a section, which are in the order of its fields.
fn rows(section: &str, source: &str, defaults: &Table) -> String {
    let mut rows = String::new();
    for (key, meaning) in meanings(section, source) {
        assert!(!meaning.contains('|'), "{}: {meaning:?}", key.name);
        let flag = key.flag.map_or(String::new(), |flag| format!(" (`{flag}`)"));
        let change = match key.change {
            Change::Hot => "hot",
            Change::Restart => "restart",
        };
        let default = default(key, defaults);
        let meaning = meaning.trim_end_matches('.');
        rows += &format!("| `{}`{flag} | {default} | {change} | {meaning} |\n", key.field());
    }
    rows
}

/// Returns the keys of a section with the comments of their fields.
pub(super) fn meanings(section: &str, source: &str) -> Vec<(&'static Key, String)> {
    let mut rest = source;
    let mut found = Vec::new();
    for key in keys().filter(|key| key.section() == section) {
        let declared = format!("    pub {}: ", key.field());
        let (before, after) = rest.split_once(&declared).expect("keys have the order of fields");
        rest = after;
        let is_comment = |line: &&str| line.trim_start().starts_with("///");
        let lines: Vec<&str> = before.lines().rev().take_while(|line| is_part(line)).collect();
        let lines = lines.iter().rev().filter(|line| is_comment(line));
        let words = lines.map(|line| line.trim_start().trim_start_matches('/').trim());
        let meaning = words.collect::<Vec<_>>().join(" ");
        assert!(!meaning.is_empty(), "{} has no comment", key.name);
        found.push((key, meaning));
    }
    found
}

/// Returns whether the line belongs to the comment or the attributes of a field.
fn is_part(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("#[")
}

fn default(key: &Key, defaults: &Table) -> String {
    if let Some((_, words)) = DEFAULTS.iter().find(|(name, _)| *name == key.name) {
        return (*words).to_owned();
    }
    match (lookup(defaults, key), key.kind) {
        (None, _) => "unset".to_owned(),
        (Some(Value::Integer(bits)), Kind::Mode) => format!("`{bits:#o}`"),
        (Some(Value::String(size)), Kind::Bytes(..)) => format!("`{size}`"),
        (Some(value), _) => format!("`{value}`"),
    }
}
