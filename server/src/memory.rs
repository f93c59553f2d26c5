//! Computes the memory limit of each part of a process from the configured limits. The code that allocates
//! memory of a part enforces the part's limit.

use device::near::NEAR_BYTES_MAX;
use units::ByteCount;

use crate::config::{Config, Services, StoreUrl};

/// The memory limit of each part of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryParts {
    /// The limit for the items of the embedded store, including keys and bookkeeping (`store.memory`).
    pub items: ByteCount,
    /// The limit for the values in flight, of all worker threads together.
    pub values: ByteCount,
    /// The limit for the buffers of clients' connections and of connections to stores.
    pub connections: ByteCount,
    /// The limit for the buffers of TLS: of clients' connections if a listener uses it, and of connections to stores.
    pub tls: ByteCount,
    /// The limit for the buffers that worker threads keep for the next value.
    pub pools: ByteCount,
    /// The limit for the results that frontends on this host have not read yet.
    pub lanes: ByteCount,
    /// The limit for the job reports of the past that a scheduler keeps.
    pub history: ByteCount,
    /// The limit for dictionaries and for samples of values, where they are not a part of `items`.
    pub dictionaries: ByteCount,
    /// The memory that is assumed for the program itself: code, stacks, metrics.
    pub program: ByteCount,
}

impl MemoryParts {
    /// Returns the parts for this configuration. If `server.memory_max` is set, values in flight get the
    /// memory that the other parts leave, up to `runtime.inflight_bytes_max` per worker thread.
    pub fn new(config: &Config) -> Self {
        let (server, runtime) = (&config.server, &config.runtime);
        let threads = server.threads.max(1) as u64;
        let services = Services::from_roles(&server.roles);
        let url = config.store.url.parse();
        let stores = url.as_ref().map_or(0, StoreUrl::servers_expected);
        // Processes report over gRPC, so a scheduler without gRPC is not started.
        let is_scheduler = services.scheduler && !server.grpc_listen.is_empty();
        let when = |used: bool, bytes: ByteCount| if used { bytes } else { ByteCount(0) };
        let connection_bytes = CONNECTION_BYTES + if stores > 0 { ANSWERS_BYTES } else { 0 };
        let is_near = services.frontend && server.near_listen.is_some();
        let connection_bytes = connection_bytes + if is_near { NEAR_BYTES_MAX } else { 0 };
        let connections =
            server.connections_max as u64 * connection_bytes + stores as u64 * threads * LINK_BYTES;
        let mut parts = Self {
            items: when(url == Ok(StoreUrl::Embedded), config.store.memory),
            values: ByteCount(0),
            connections: ByteCount(connections),
            tls: tls_memory(config, stores as u64 * threads),
            pools: ByteCount(threads * POOL_RETAINED_MAX.0),
            lanes: ByteCount(0),
            history: when(is_scheduler, config.scheduler.history_bytes_max),
            dictionaries: when(
                services.frontend && url != Ok(StoreUrl::Embedded),
                dictionary_memory(config),
            ),
            program: PROGRAM_BYTES,
        };
        // Lanes have as much memory for results as workers have for values.
        let shares = 1 + u64::from(server.lane_listen.is_some());
        let wanted = threads.saturating_mul(runtime.inflight_bytes_max.0);
        let values = match server.memory_max.0 {
            0 => wanted,
            sum => wanted.min(sum.saturating_sub(parts.sum().0) / shares),
        };
        parts.values = ByteCount(values);
        parts.lanes = ByteCount(values * (shares - 1));
        parts
    }

    /// Returns the sum of all parts.
    pub fn sum(&self) -> ByteCount {
        let sum = self.named().iter().fold(0_u64, |sum, (_, part)| sum.saturating_add(part.0));
        ByteCount(sum)
    }

    /// Returns the parts with their names on the metrics page.
    pub fn named(&self) -> [(&'static str, ByteCount); 9] {
        [
            ("items", self.items),
            ("values", self.values),
            ("connections", self.connections),
            ("tls", self.tls),
            ("pools", self.pools),
            ("lanes", self.lanes),
            ("history", self.history),
            ("dictionaries", self.dictionaries),
            ("program", self.program),
        ]
    }

    /// Returns the smallest sum with which each worker thread can hold an item of the largest size.
    pub fn sum_min(config: &Config) -> ByteCount {
        let mut parts = Self::new(config);
        let shares = 1 + u64::from(config.server.lane_listen.is_some());
        let threads = config.server.threads.max(1) as u64;
        parts.values = ByteCount(threads.saturating_mul(config.store.item_bytes_max.0));
        parts.lanes = ByteCount(parts.values.0.saturating_mul(shares - 1));
        parts.sum()
    }

    /// Returns the bytes of values in flight that one worker thread may hold.
    pub fn values_per_worker(&self, config: &Config) -> ByteCount {
        ByteCount(self.values.0 / config.server.threads.max(1) as u64)
    }
}

/// Returns the most memory that TLS takes in a process with `links` links to stores.
fn tls_memory(config: &Config, links: u64) -> ByteCount {
    let clients = match config.tls_listeners().next() {
        Some(_) => config.server.connections_max as u64,
        None => 0,
    };
    let servers = if config.tls_upstreams().next().is_some() { 2 * links } else { 0 };
    match clients + servers {
        0 => ByteCount(0),
        sessions => {
            let of_sessions = sessions.saturating_mul(tls::CONNECTION_BYTES_MAX as u64);
            ByteCount(of_sessions.saturating_add(tls::HELD_BYTES_MAX as u64))
        }
    }
}

/// Returns the most memory that dictionaries and samples take. In an embedded store they are a part of its memory, so
/// they get a sixteenth of it at most.
pub(crate) fn dictionary_memory(config: &Config) -> ByteCount {
    match config.store.url.parse() {
        Ok(StoreUrl::Embedded) => embedded_dictionary_memory(config.store.memory),
        _ => DICTIONARY_BYTES_MAX,
    }
}

fn embedded_dictionary_memory(store: ByteCount) -> ByteCount {
    DICTIONARY_BYTES_MAX.min(ByteCount(store.0 / 16))
}

/// Returns the memory that items leave to the trainer of dictionaries in an embedded store of this memory, once there
/// is a dictionary.
pub fn embedded_trainer_bytes(store: ByteCount) -> ByteCount {
    trainer_bytes(embedded_dictionary_memory(store))
}

/// Returns what the trainer's thread keeps between its turns: heap that is too fragmented to be returned, and the pages
/// of its code. Dictionaries and samples get `dictionaries`.
pub(crate) fn trainer_bytes(dictionaries: ByteCount) -> ByteCount {
    TRAINER_BYTES_MAX.min(ByteCount(dictionaries.0 / 2))
}

/// The most memory that the trainer needs between its turns.
const TRAINER_BYTES_MAX: ByteCount = ByteCount::mib(1);

/// The most memory of dictionaries and samples. A dictionary of 4 KiB that is written with takes 150 KiB.
const DICTIONARY_BYTES_MAX: ByteCount = ByteCount::mib(16);

/// The largest total size of free buffers that a worker keeps. Buffers in the memory of lanes are not kept.
pub(crate) const POOL_RETAINED_MAX: ByteCount = ByteCount::mib(8);

/// The memory of a connection (bytes): its task, its unread bytes, its small values in flight, and small
/// answers that its client has not received.
const CONNECTION_BYTES: u64 = 64 << 10;

/// The memory per connection for small values from remote stores that are not yet sent to the client (bytes):
/// 64 values of up to 2 KiB.
const ANSWERS_BYTES: u64 = 128 << 10;

/// The size of the read buffers of the two connections to a store (bytes).
const LINK_BYTES: u64 = 2 * (64 << 10);

/// The memory of a server that has been running for a while and holds no values.
const PROGRAM_BYTES: ByteCount = ByteCount::mib(24);

#[cfg(test)]
mod tests {
    use super::*;

    fn config(memory_max: ByteCount) -> Config {
        let mut config = Config::default();
        config.server.threads = 2;
        config.server.memory_max = memory_max;
        config
    }

    #[test]
    fn parts_add_up_to_the_sum_that_is_set() {
        for mib in [192, 224, 256] {
            let parts = MemoryParts::new(&config(ByteCount::mib(mib)));
            assert_eq!(parts.sum(), ByteCount::mib(mib));
        }
    }

    #[test]
    fn tls_has_a_part_if_it_is_used() {
        let mut config = config(ByteCount(0));
        assert_eq!(MemoryParts::new(&config).tls, ByteCount(0));
        config.server.listen.push("tls://127.0.0.1:0".to_owned());
        let clients = config.server.connections_max * tls::CONNECTION_BYTES_MAX;
        let expected = ByteCount((clients + tls::HELD_BYTES_MAX) as u64);
        assert_eq!(MemoryParts::new(&config).tls, expected);
        config.server.memory_max = ByteCount::mib(256);
        assert_eq!(MemoryParts::new(&config).sum(), ByteCount::mib(256), "values get less");
    }

    #[test]
    fn the_smallest_sum_has_room_for_the_largest_items() {
        let sum = MemoryParts::sum_min(&config(ByteCount(0)));
        let config = config(sum);
        let per_worker = MemoryParts::new(&config).values_per_worker(&config);
        assert_eq!(per_worker, config.store.item_bytes_max);
    }

    #[test]
    fn without_a_sum_each_part_has_its_setting() {
        let config = config(ByteCount(0));
        let parts = MemoryParts::new(&config);
        assert_eq!(parts.values_per_worker(&config), config.runtime.inflight_bytes_max);
        assert_eq!(parts.items, config.store.memory);
    }
}
