//! Prints the effective configuration as TOML that can be loaded again. A comment on each key has its origin
//! and says whether a reload or a restart changes it.

use std::fmt::Write;

use toml::Value;

use super::keys::{Change, Key, Kind, keys};
use super::{Config, Loaded, lookup, to_table};

/// Returns the configuration as TOML. Each key has a comment with its origin and `hot` or `restart`.
pub fn print(loaded: &Loaded) -> String {
    render(&loaded.config, |key| format!("{}, {}", loaded.origin(key.name), change(key)))
}

/// Returns the configuration as TOML without the origins of the values.
pub fn print_values(config: &Config) -> String {
    render(config, |key| change(key).to_owned())
}

fn render(config: &Config, comment: impl Fn(&Key) -> String) -> String {
    let table = to_table(config).unwrap_or_default();
    let mut text = String::new();
    let mut section = "";
    for key in keys() {
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
