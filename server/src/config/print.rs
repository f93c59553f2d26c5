//! Prints the effective configuration as TOML that can be loaded again. Each key has its origin and what it takes to
//! change it.

use std::fmt::Write;

use toml::Value;

use super::keys::{Change, KEYS, Key, Kind};
use super::{Config, Loaded, lookup, to_table};

/// Prints the configuration. Each key has its origin and `hot` (a reload changes it) or `restart`.
pub fn print(loaded: &Loaded) -> String {
    render(&loaded.config, |key| format!("{}, {}", loaded.origin(key.name), change(key)))
}

/// Prints the configuration without origins, for callers that have only the values.
pub fn print_values(config: &Config) -> String {
    render(config, |key| change(key).to_owned())
}

fn render(config: &Config, comment: impl Fn(&Key) -> String) -> String {
    let table = to_table(config).unwrap_or_default();
    let mut text = String::new();
    let mut section = "";
    for key in KEYS {
        if key.section() != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            section = key.section();
            let _ = writeln!(text, "{gap}[{section}]");
        }
        // A path with a line break must not end the comment.
        let comment = comment(key).replace(char::is_control, "?");
        let _ = match (lookup(&table, key), key.kind) {
            (None, _) => writeln!(text, "# {} is unset  # {comment}", key.field()),
            (Some(Value::Integer(bits)), Kind::Mode) => {
                writeln!(text, "{} = {bits:#o}  # {comment}", key.field())
            }
            (Some(value), _) => writeln!(text, "{} = {value}  # {comment}", key.field()),
        };
    }
    text
}

fn change(key: &Key) -> &'static str {
    match key.change {
        Change::Hot => "hot",
        Change::Restart => "restart",
    }
}
