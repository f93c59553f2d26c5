//! The rules that assign each key to one of several memcached servers: both ketamas and modula, as
//! libmemcached computes them. The ring only names a server: it has no connections, does not check
//! health, and does not move keys.

use md5::{Digest, Md5};

/// The assignment of keys to a list of servers.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The hashes of all points, in ascending order. The owner of a key is the first point at or
    /// after the key's hash; behind the last point the search continues at the first. Modula has no
    /// points.
    hashes: Vec<u32>,
    /// The server of each point, at the same index as the point's hash.
    owners: Vec<u32>,
    /// The number of servers.
    servers: usize,
    key_hash: fn(&[u8]) -> u32,
}

impl Ring {
    /// Builds a ring of `servers`. With ketama their order decides only the index that
    /// [`Ring::server`] returns. With modula it decides which server owns a key.
    pub fn new(servers: &[Server], distribution: Distribution) -> Self {
        let mut points: Vec<(u32, u32)> = Vec::new();
        if servers.len() > 1 && distribution != Distribution::Modula {
            // libmemcached weighs all servers as soon as one of them has a weight above 1.
            let weighted = distribution == Distribution::KetamaWeighted
                || servers.iter().any(|one| one.weight > 1);
            let total_weight: u64 =
                servers.iter().map(|server| u64::from(server.weight.max(1))).sum();
            for (index, server) in (0..).zip(servers) {
                let hashes = if weighted {
                    server.weighted_points(total_weight, servers.len())
                } else {
                    server.plain_points()
                };
                points.extend(hashes.into_iter().map(|hash| (hash, index)));
            }
        }
        points.sort_unstable();
        let (hashes, owners) = points.into_iter().unzip();
        Self { hashes, owners, servers: servers.len(), key_hash: distribution.hash() }
    }

    /// Returns the index of the server that owns `key`. It is 0 if there are no servers.
    pub fn server(&self, key: &[u8]) -> usize {
        if self.servers < 2 {
            return 0;
        }
        let hash = (self.key_hash)(key);
        if self.hashes.is_empty() {
            return hash as usize % self.servers;
        }
        let next = self.hashes.partition_point(|&point| point < hash);
        let owner = self.owners.get(next).or(self.owners.first());
        owner.map_or(0, |&owner| owner as usize)
    }

    /// Returns the index of the first server from the owner of `key` on that `is_good`. The order is
    /// that of the points with ketama, and that of the list with modula.
    pub fn first_good(&self, key: &[u8], is_good: impl Fn(usize) -> bool) -> Option<usize> {
        if self.hashes.is_empty() {
            let owner = self.server(key);
            return (owner..self.servers).chain(0..owner).find(|&server| is_good(server));
        }
        let hash = (self.key_hash)(key);
        let next = self.hashes.partition_point(|&point| point < hash);
        let (before, from) = self.owners.split_at(next);
        let mut owners = from.iter().chain(before).map(|&owner| owner as usize);
        owners.find(|&server| is_good(server))
    }
}

/// A memcached server as clients' server lists name it. Name and port are hashed, so they must be
/// written exactly as the other clients write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The host name or address. For a Unix socket it is the path, with port 0.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The share of the keys relative to the other servers. A weight of 0 counts as 1, as in
    /// libmemcached.
    pub weight: u32,
}

impl Server {
    fn plain_points(&self) -> Vec<u32> {
        (0..PLAIN_POINTS).map(|i| one_at_a_time(self.point_name(i).as_bytes())).collect()
    }

    /// Returns the points of a server with a weight: its share of 160 points per server, four from
    /// each digest. libmemcached computes in single precision and in this order. Both are kept here
    /// because the result is rounded down, so the last bit matters.
    fn weighted_points(&self, total_weight: u64, servers: usize) -> Vec<u32> {
        let share = self.weight.max(1) as f32 / total_weight as f32;
        let digests = share * WEIGHTED_POINTS / 4.0 * servers as f32 + 1e-10;
        (0..digests as u32)
            .flat_map(|i| {
                let digest: [u8; 16] = Md5::digest(self.point_name(i)).into();
                let (words, _) = digest.as_chunks::<4>();
                [0, 1, 2, 3].map(|word| u32::from_le_bytes(words[word]))
            })
            .collect()
    }

    /// Returns the text whose hash is a point. Like libmemcached, it omits the port if it is
    /// memcached's default.
    fn point_name(&self, index: u32) -> String {
        match self.port {
            PORT_DEFAULT => format!("{}-{index}", self.host),
            port => format!("{}:{port}-{index}", self.host),
        }
    }
}

/// The rules of libmemcached. All clients of a fleet must use the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// `BEHAVIOR_KETAMA`: Jenkins' one-at-a-time hash for keys and points, with 100 points per
    /// server. If a server weighs more than 1, the points are those of
    /// [`Distribution::KetamaWeighted`].
    Ketama,
    /// `BEHAVIOR_KETAMA_WEIGHTED`, the variant of most other ketama clients: MD5 for keys and
    /// points, with about 160 points per server in proportion to its weight.
    KetamaWeighted,
    /// `DISTRIBUTION_MODULA`, libmemcached's default: the one-at-a-time hash of the key, modulo the
    /// number of servers. Weights have no effect, and most keys move if the list changes.
    Modula,
}

impl Distribution {
    fn hash(self) -> fn(&[u8]) -> u32 {
        match self {
            Distribution::Ketama | Distribution::Modula => one_at_a_time,
            Distribution::KetamaWeighted => md5_word,
        }
    }
}

const PORT_DEFAULT: u16 = 11_211;
const PLAIN_POINTS: u32 = 100;
const WEIGHTED_POINTS: f32 = 160.0;

fn md5_word(key: &[u8]) -> u32 {
    let [b0, b1, b2, b3, ..]: [u8; 16] = Md5::digest(key).into();
    u32::from_le_bytes([b0, b1, b2, b3])
}

/// Computes Jenkins' one-at-a-time hash. Bytes count as signed, as C's `char` does on x86.
fn one_at_a_time(key: &[u8]) -> u32 {
    let mixed = key.iter().fold(0u32, |hash, &byte| {
        let hash = hash.wrapping_add(byte as i8 as u32);
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ (mixed >> 11);
    mixed.wrapping_add(mixed << 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: u16) -> Vec<Server> {
        (0..count).map(|i| Server { host: "10.0.0.1".into(), port: 11211 + i, weight: 1 }).collect()
    }

    #[test]
    fn a_single_server_owns_everything_without_points() {
        let ring = Ring::new(&servers(1), Distribution::KetamaWeighted);
        assert!(ring.hashes.is_empty());
        assert_eq!(ring.server(b"any"), 0);
    }

    #[test]
    fn losing_one_server_moves_only_its_keys() {
        let all = servers(5);
        let (before, after) = (
            Ring::new(&all, Distribution::KetamaWeighted),
            Ring::new(&all[..4], Distribution::KetamaWeighted),
        );
        let keys = (0..10_000).map(|i| format!("key:{i}"));
        for key in keys {
            let owner = before.server(key.as_bytes());
            assert!(owner == 4 || owner == after.server(key.as_bytes()), "{key} moved");
        }
    }

    #[test]
    fn first_good_skips_only_bad_servers() {
        let all = servers(5);
        for distribution in [Distribution::KetamaWeighted, Distribution::Modula] {
            let ring = Ring::new(&all, distribution);
            for key in (0..1_000).map(|i| format!("key:{i}")) {
                let owner = ring.server(key.as_bytes());
                assert_eq!(ring.first_good(key.as_bytes(), |_| true), Some(owner));
                let other = ring.first_good(key.as_bytes(), |server| server != owner);
                assert!(other.is_some_and(|other| other != owner), "{key}");
                assert_eq!(ring.first_good(key.as_bytes(), |_| false), None);
            }
        }
    }

    #[test]
    fn first_good_is_the_owner_without_the_bad_server() {
        let all = servers(5);
        let ring = Ring::new(&all, Distribution::KetamaWeighted);
        let without = Ring::new(&all[..4], Distribution::KetamaWeighted);
        for key in (0..10_000).map(|i| format!("key:{i}")) {
            let found = ring.first_good(key.as_bytes(), |server| server != 4);
            assert_eq!(found, Some(without.server(key.as_bytes())), "{key}");
        }
    }

    #[test]
    fn a_ring_without_servers_names_none() {
        let ring = Ring::new(&[], Distribution::Ketama);
        assert_eq!(ring.first_good(b"any", |_| true), None);
    }

    #[test]
    fn every_server_gets_about_its_share() {
        let ring = Ring::new(&servers(4), Distribution::KetamaWeighted);
        let mut owned = [0; 4];
        for i in 0..40_000 {
            owned[ring.server(format!("key:{i}").as_bytes())] += 1;
        }
        assert!(owned.iter().all(|&keys| (7_000..13_000).contains(&keys)), "{owned:?}");
    }
}
