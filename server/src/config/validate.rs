//! Checks whether a configuration can be served: every key is in its range and the relations between keys hold.

use super::error::{ConfigError, Origin};
use super::keys::KEYS;
use super::{Config, Services, StoreUrl, lookup, to_table};
use units::ByteCount;

use crate::memory::MemoryParts;

/// Returns everything that is wrong with `config`. The origins of its values are not known here.
pub fn validate(config: &Config) -> Vec<ConfigError> {
    let table = match to_table(config) {
        Ok(table) => table,
        Err(error) => return vec![error],
    };
    let out_of_range = KEYS.iter().filter_map(|key| {
        let problem = key.check(lookup(&table, key)?).err()?;
        Some(ConfigError::new(Some(key.name), Origin::Default, &problem))
    });
    let mut errors: Vec<_> = out_of_range.collect();
    let mut refuse = |key, problem: String| {
        errors.push(ConfigError::new(Some(key), Origin::Default, &problem));
    };
    check_doors(config, &mut refuse);
    check_sizes(config, &mut refuse);
    check_memory(config, &mut refuse);
    errors
}

/// A function that takes a key and what is wrong with the key.
type Refuse<'a> = &'a mut dyn FnMut(&'static str, String);

/// Checks that clients can connect to every service of the process.
fn check_doors(config: &Config, refuse: Refuse<'_>) {
    let (server, programs) = (&config.server, &config.programs);
    let services = Services::from_roles(&server.roles);
    if server.roles.is_empty() {
        refuse("server.roles", "is empty: this process would serve nothing".into());
    }
    if server.lane_listen.is_some() && !services.compression {
        refuse(
            "server.lane_listen",
            "is set and server.roles has no compression: there is nothing to serve there".into(),
        );
    }
    let has_programs = !programs.listen.is_empty();
    if has_programs && !services.programs {
        refuse(
            "programs.listen",
            "is set and server.roles has no programs: there is nothing to serve there".into(),
        );
    }
    if has_programs && programs.secrets_file.is_none() {
        refuse(
            "programs.secrets_file",
            "is unset: no caller of programs.listen could be read".into(),
        );
    }
    let is_reachable =
        !server.grpc_listen.is_empty() || server.lane_listen.is_some() || has_programs;
    if !services.frontend && !is_reachable && !server.roles.is_empty() {
        refuse(
            "server.grpc_listen",
            "is empty, as is programs.listen, and server.roles has no frontend: no client could \
             connect"
                .into(),
        );
    }
    if services.frontend && server.listen.is_empty() && server.unix_socket.is_none() {
        refuse(
            "server.listen",
            "is empty and there is no server.unix_socket: no client could connect".into(),
        );
    }
}

/// Checks that each bounded size fits into the size that bounds it.
fn check_sizes(config: &Config, refuse: Refuse<'_>) {
    let store = &config.store;
    let memory_min = store.item_bytes_max.0.saturating_mul(ITEMS_IN_MEMORY_MIN);
    if store.url.parse() == Ok(StoreUrl::Embedded) && store.memory.0 < memory_min {
        let item = store.item_bytes_max;
        let needed = ByteCount(memory_min);
        refuse(
            "store.memory",
            format!(
                "{} is too little for store.item_bytes_max = {item}; give at least {needed} or \
                 lower store.item_bytes_max",
                store.memory
            ),
        );
    }
    if store.retry_min_ms > store.retry_max_ms {
        refuse(
            "store.retry_min_ms",
            format!("{} is above store.retry_max_ms = {}", store.retry_min_ms, store.retry_max_ms),
        );
    }
    let payload_bytes_max = config.programs.payload_bytes_max;
    let has_programs = !config.programs.listen.is_empty();
    if has_programs && config.runtime.inflight_bytes_max < payload_bytes_max {
        refuse(
            "programs.payload_bytes_max",
            format!(
                "{payload_bytes_max} is above runtime.inflight_bytes_max = {}: the largest request \
                 could never be read",
                config.runtime.inflight_bytes_max
            ),
        );
    }
    if config.runtime.inflight_bytes_max < store.item_bytes_max {
        refuse(
            "runtime.inflight_bytes_max",
            format!(
                "{} is below store.item_bytes_max = {}: the largest item could never be served",
                config.runtime.inflight_bytes_max, store.item_bytes_max
            ),
        );
    }
}

/// Checks that the parts of the memory fit into the whole.
fn check_memory(config: &Config, refuse: Refuse<'_>) {
    let (sum, sum_min) = (config.server.memory_max, MemoryParts::sum_min(config));
    if sum != ByteCount(0) && sum < sum_min {
        let parts = MemoryParts::new(config);
        refuse(
            "server.memory_max",
            format!(
                "{sum} is too little: items take {} (store.memory), connections {} \
                 (server.connections_max = {}), buffers {}, a scheduler {}, the program {}, and values in \
                 flight at least {} for each of {} worker threads; give at least {sum_min}",
                parts.items,
                parts.connections,
                config.server.connections_max,
                parts.pools,
                parts.history,
                parts.program,
                config.store.item_bytes_max,
                config.server.threads,
            ),
        );
    }
}

/// memcached's rule: the largest item takes at most half of the memory. Otherwise storing it would evict everything.
const ITEMS_IN_MEMORY_MIN: u64 = 2;
