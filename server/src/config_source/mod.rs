//! The sources of a configuration and how it is shown: default < file < environment < flag, each key with its origin.
//! Unknown keys, wrong types and values out of range are all refused here, together, so that no code behind this module
//! has to doubt a [`Config`]. [`crate::config`] says what a key means.

mod address;
mod error;
mod keys;
mod layers;
mod print;
mod reload;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::{Table, Value};

use crate::config::Config;

pub use address::{CompressionAddress, HostPort, NotAnAddress, StoreUrl};
pub use error::{ConfigError, Origin};
pub use keys::{Change, KEYS, Key, Kind};
pub use print::{print, print_values};
pub use reload::diff_for_reload;
pub use validate::validate;

/// The environment variable that names a configuration file; a `--config` flag wins over it.
pub const FILE_VARIABLE: &str = "REBATE_CONFIG";

/// Everything that may set a key. Later fields win over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration that holds where no source sets a key.
    pub defaults: Config,
    /// The file of `--config`; without it, the file that [`FILE_VARIABLE`] names.
    pub file: Option<PathBuf>,
    /// The process's environment; only names starting with `REBATE_` are looked at.
    pub environment: Vec<(String, String)>,
    /// Flags in the order given; the last one of a key wins.
    pub flags: Vec<Flag>,
}

/// A command-line flag that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag as the user knows it, for messages: `--listen`.
    pub name: String,
    /// The key it sets, such as `server.listen`.
    pub key: String,
    /// The value as text; lists are separated by commas.
    pub value: String,
}

/// A configuration with the origin of every key.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The effective values, valid.
    pub config: Config,
    /// What works in this version and will be refused in the next, each with its source.
    pub warnings: Vec<String>,
    origins: BTreeMap<&'static str, Origin>,
}

impl Loaded {
    /// Returns where the value of `key` comes from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }
}

/// Reads every source and lays them over each other; all that is wrong is reported at once.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<ConfigError>> {
    let mut errors = Vec::new();
    let mut settings = Vec::new();
    if let Some(path) = layers::file_path(sources) {
        settings.extend(layers::from_file(&path, &mut errors));
    }
    settings.extend(layers::from_environment(&sources.environment, &mut errors));
    settings.extend(layers::from_flags(&sources.flags, &mut errors));

    let mut table = to_table(&sources.defaults).map_err(|error| vec![error])?;
    let (mut origins, mut warnings) = (BTreeMap::new(), Vec::new());
    for setting in settings {
        let advice = setting.key.advice(&setting.value);
        warnings.extend(
            advice.map(|advice| format!("{}: {}: {advice}", setting.origin, setting.key.name)),
        );
        origins.insert(setting.key.name, setting.origin);
        insert(&mut table, setting.key, setting.value);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if origins.contains_key("server.unix_socket") && !origins.contains_key("server.listen") {
        turn_tcp_off(&mut table);
    }
    let config = Config::deserialize(Value::Table(table))
        .map_err(|error| vec![ConfigError::new(None, Origin::Default, error.message())])?;
    let loaded = Loaded { config, warnings, origins };
    let errors: Vec<_> = validate(&loaded.config)
        .into_iter()
        .map(|error| error.placed(|key| loaded.origin(key).clone()))
        .collect();
    if errors.is_empty() { Ok(loaded) } else { Err(errors) }
}

/// `config` as TOML values; fails only where a count is beyond TOML's 64-bit signed integers.
fn to_table(config: &Config) -> Result<Table, ConfigError> {
    Table::try_from(config)
        .map_err(|error| ConfigError::new(None, Origin::Default, &error.to_string()))
}

/// Turns TCP off for an operator who names a Unix socket and no TCP address, as memcached does.
fn turn_tcp_off(table: &mut Table) {
    if let Some(key) = Key::named("server.listen") {
        insert(table, key, Value::Array(Vec::new()));
    }
}

fn insert(table: &mut Table, key: &Key, value: Value) {
    let section = table.entry(key.section()).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.field().to_owned(), value);
    }
}

/// The value of `key`, none where the key is unset.
fn lookup<'t>(table: &'t Table, key: &Key) -> Option<&'t Value> {
    table.get(key.section())?.get(key.field())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
