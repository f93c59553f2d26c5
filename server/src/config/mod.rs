//! The configuration. `schema` has the structs, `keys` the table of keys with their ranges, and `source` the
//! sources of values: defaults, then the file, the environment and the flags. Unknown keys, wrong types and
//! values out of range are all reported together, so that later code can rely on a valid [`Config`].
//! `convert` turns it into the types of the lower crates.

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

pub use address::{
    CompressionAddress, HostPort, NotAnAddress, RingEntry, RingSource, StoreUrl, TLS_PREFIX,
    split_tls,
};
pub use error::{ConfigError, Origin};
pub use keys::{Change, KEYS, Key, Kind};
pub use print::{print, print_values};
pub use reload::diff_for_reload;
pub use schema::*;
pub use source::{FILE_VARIABLE, Flag, Loaded, Sources, load};
pub use validate::{exposed, validate};

/// Returns `config` as TOML values. Fails if a count exceeds TOML's 64-bit signed integers.
fn to_table(config: &Config) -> Result<Table, ConfigError> {
    Table::try_from(config)
        .map_err(|error| ConfigError::new(None, Origin::Default, &error.to_string()))
}

/// Returns the value of `key`, or `None` if the key is unset.
fn lookup<'t>(table: &'t Table, key: &Key) -> Option<&'t Value> {
    table.get(key.section())?.get(key.field())
}

impl Config {
    /// Returns the addresses at which this process serves TLS, as they are written.
    pub fn tls_listeners(&self) -> impl Iterator<Item = &String> {
        let server = &self.server;
        let all = server.listen.iter().chain(&server.grpc_listen).chain([&server.admin_listen]);
        all.chain(&self.programs.listen).filter(|address| split_tls(address).0)
    }

    /// Returns the addresses that this process reaches with TLS.
    pub fn tls_upstreams(&self) -> impl Iterator<Item = String> {
        let stores: Vec<String> = match self.store.url.parse() {
            Ok(StoreUrl::Memcached(entries)) => {
                let named = entries.iter().filter_map(|entry| entry.source.host_port());
                named.map(ToString::to_string).collect()
            }
            Ok(StoreUrl::Grpc(services)) => services.iter().map(ToString::to_string).collect(),
            Ok(StoreUrl::Embedded) | Err(_) => Vec::new(),
        };
        let services = self.runtime.compression.iter().chain([&self.scheduler.address]).cloned();
        stores
            .into_iter()
            .chain(services)
            .filter(|address| split_tls(address.strip_prefix("grpc://").unwrap_or(address)).0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
