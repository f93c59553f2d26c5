//! The configuration: one struct per concern (`schema`), one table of keys with their ranges (`keys`), and the sources
//! that set them (`source`): default < file < environment < flag. Unknown keys, wrong types and values out of range are
//! all refused here, together, so that no code behind this module has to doubt a [`Config`]. `convert` turns its words
//! into the values that the lower crates take.

mod address;
pub mod convert;
mod error;
mod keys;
mod print;
mod reload;
mod schema;
mod source;
mod validate;

use toml::{Table, Value};

pub use address::{CompressionAddress, HostPort, NotAnAddress, StoreUrl};
pub use error::{ConfigError, Origin};
pub use keys::{Change, KEYS, Key, Kind};
pub use print::{print, print_values};
pub use reload::diff_for_reload;
pub use schema::*;
pub use source::{FILE_VARIABLE, Flag, Loaded, Sources, load};
pub use validate::validate;

/// Returns `config` as TOML values. It fails only if a count is beyond TOML's 64-bit signed integers.
fn to_table(config: &Config) -> Result<Table, ConfigError> {
    Table::try_from(config)
        .map_err(|error| ConfigError::new(None, Origin::Default, &error.to_string()))
}

/// Returns the value of `key`; none if the key is unset.
fn lookup<'t>(table: &'t Table, key: &Key) -> Option<&'t Value> {
    table.get(key.section())?.get(key.field())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
