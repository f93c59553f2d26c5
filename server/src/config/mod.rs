//! The configuration. `schema` has the structs and the tables of keys with their ranges, `keys` the kinds of keys, and
//! `source` the sources of values: defaults, then the file, the environment and the flags. Unknown keys, wrong types
//! and values out of range are all reported together, so that later code can rely on a valid [`Config`].
//! `convert` turns it into the types of the lower crates.

mod address;
pub mod convert;
mod error;
mod keys;
mod path;
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
pub use keys::{Change, Key, Kind, keys};
pub use path::ValueOp;
pub(crate) use path::ValuePath;
pub use print::{print, print_values};
pub use reload::diff_for_reload;
pub use schema::*;
pub use source::{FILE_VARIABLE, Flag, Loaded, Sources, load};
pub(crate) use validate::is_of_this_host;
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
        let all = all.chain(&server.thrift_listen).chain(&self.programs.listen);
        all.filter(|address| split_tls(address).0)
    }

    /// Returns the addresses that this process reaches with TLS.
    pub fn tls_upstreams(&self) -> impl Iterator<Item = String> {
        let servers: Vec<HostPort> = match self.store.url.parse() {
            Ok(StoreUrl::Memcached(entries)) => {
                entries.iter().filter_map(|entry| entry.source.host_port().cloned()).collect()
            }
            _ => Vec::new(),
        };
        let servers = servers.into_iter().filter(|server| server.is_tls);
        let services = self.services();
        let services = services.filter(|service| matches!(service, api::Address::Tls(_)));
        servers.map(|server| server.to_string()).chain(services.map(|service| service.to_string()))
    }

    /// Returns the gRPC services that this process uses.
    fn services(&self) -> impl Iterator<Item = api::Address> {
        let stores = match self.store.url.parse() {
            Ok(StoreUrl::Grpc(services)) => services,
            _ => Vec::new(),
        };
        let scheduler = self.scheduler.address.parse::<api::Address>();
        let collector = self.otlp.address.parse::<api::Address>();
        stores.into_iter().chain(self.compression_services()).chain(scheduler).chain(collector)
    }

    /// Returns the compression services that this process reaches over gRPC.
    pub(crate) fn compression_services(&self) -> impl Iterator<Item = api::Address> {
        self.runtime.compression.iter().filter_map(|text| match text.parse() {
            Ok(CompressionAddress::Grpc(address)) => Some(address),
            _ => None,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
