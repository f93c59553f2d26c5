//! The memory that each part of a process may hold, and the sum that an operator can set. This module is arithmetic
//! only. The code that takes memory of a part requests it from that part's budget.

use units::ByteCount;

use crate::config::{Config, Services, StoreUrl};

/// The most that each part of a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryParts {
    /// Items of the embedded store, keys and bookkeeping included (`store.memory`).
    pub items: ByteCount,
    /// Values in flight, of all worker threads together.
    pub values: ByteCount,
    /// Buffers of clients' connections and of connections to stores.
    pub connections: ByteCount,
    /// Buffers that worker threads keep for the next value.
    pub pools: ByteCount,
    /// Results that frontends on this host have not read yet.
    pub lanes: ByteCount,
    /// The history of job reports that a scheduler keeps.
    pub history: ByteCount,
    /// The program itself: code, stacks, metrics.
    pub program: ByteCount,
}

impl MemoryParts {
    /// Returns the parts of a process with this configuration. If the configuration sets the sum (`server.memory_max`),
    /// values in flight have what the other parts leave, at most what `runtime.inflight_bytes_max` says.
    pub fn new(config: &Config) -> Self {
        let (server, runtime) = (&config.server, &config.runtime);
        let threads = server.threads.max(1) as u64;
        let services = Services::from_roles(&server.roles);
        let url = config.store.url.parse();
        let stores = match &url {
            Ok(StoreUrl::Memcached(servers)) => servers.len(),
            Ok(StoreUrl::Grpc(services)) => services.len(),
            _ => 0,
        };
        // Processes report over gRPC, so a scheduler without gRPC has no use.
        let is_scheduler = services.scheduler && !server.grpc_listen.is_empty();
        let when = |used: bool, bytes: ByteCount| if used { bytes } else { ByteCount(0) };
        let connection_bytes = CONNECTION_BYTES + if stores > 0 { ANSWERS_BYTES } else { 0 };
        let connections =
            server.connections_max as u64 * connection_bytes + stores as u64 * threads * LINK_BYTES;
        let mut parts = Self {
            items: when(url == Ok(StoreUrl::Embedded), config.store.memory),
            values: ByteCount(0),
            connections: ByteCount(connections),
            pools: ByteCount(threads * POOL_RETAINED_MAX.0),
            lanes: ByteCount(0),
            history: when(is_scheduler, config.scheduler.history_bytes_max),
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
    pub fn named(&self) -> [(&'static str, ByteCount); 7] {
        [
            ("items", self.items),
            ("values", self.values),
            ("connections", self.connections),
            ("pools", self.pools),
            ("lanes", self.lanes),
            ("history", self.history),
            ("program", self.program),
        ]
    }

    /// Returns the smallest sum with which this configuration can serve: each worker thread can hold the largest item.
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

/// The bytes of returned buffers that a worker keeps: a few of the largest, many of the common sizes. A worker keeps
/// none of a lane's memory, which all workers share.
pub(crate) const POOL_RETAINED_MAX: ByteCount = ByteCount::mib(8);

/// The memory of a connection: its task, its unread bytes, its small values in flight, and small answers that its
/// client has not received.
const CONNECTION_BYTES: u64 = 64 << 10;

/// The memory per connection for small values that have arrived from the stores but are not yet sent to the client: 64
/// values of up to 2 KiB.
const ANSWERS_BYTES: u64 = 128 << 10;

/// The buffers of the two connections to a store, for the bytes that are read.
const LINK_BYTES: u64 = 2 * (64 << 10);

/// The memory of a server that has served for a while and holds nothing.
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
