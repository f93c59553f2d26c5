//! Ketama: which of several memcached servers owns a key, in agreement with libmemcached and
//! everything built on it. It names a server and nothing more: no connections, no health, no moving
//! of keys.

use md5::{Digest, Md5};

/// Consistent hashing over a list of servers.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Ascending; the owner of a key is the first point at or after the key's hash, around the end.
    hashes: Vec<u32>,
    /// The server of the point at the same position.
    owners: Vec<u32>,
    key_hash: fn(&[u8]) -> u32,
}

impl Ring {
    /// A ring of `servers`; their order decides nothing but the index that [`Ring::server`]
    /// answers.
    ///
    /// # Panics
    /// If `servers` is empty.
    pub fn new(servers: &[Server], ketama: Ketama) -> Self {
        assert!(!servers.is_empty(), "a ring needs at least one server");
        let mut points: Vec<(u32, u32)> = Vec::new();
        if servers.len() > 1 {
            // One server with a weight is enough for libmemcached to weigh all of them.
            let weighted = ketama == Ketama::Weighted || servers.iter().any(|one| one.weight > 1);
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
        Self { hashes, owners, key_hash: ketama.hash() }
    }

    /// The index of the server that owns `key`.
    pub fn server(&self, key: &[u8]) -> usize {
        if self.hashes.is_empty() {
            return 0;
        }
        let hash = (self.key_hash)(key);
        let next = self.hashes.partition_point(|&point| point < hash);
        let owner = self.owners.get(next).or(self.owners.first());
        owner.map_or(0, |&owner| owner as usize)
    }
}

/// A memcached server as clients' server lists name it. Name and port are hashed, so they have to
/// be written as the other clients write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Host name or address; for a Unix socket its path, with port 0.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Share of the keys relative to the other servers'; 0 counts as 1, as it does there.
    pub weight: u32,
}

impl Server {
    fn plain_points(&self) -> Vec<u32> {
        (0..PLAIN_POINTS).map(|i| one_at_a_time(self.point_name(i).as_bytes())).collect()
    }

    /// A share of 160 points for each server, four from each digest. In single precision and in
    /// this order, because libmemcached computes it so and the rounding down makes the last bit
    /// visible.
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

    /// The text whose hash is a point; libmemcached leaves memcached's own port out.
    fn point_name(&self, index: u32) -> String {
        match self.port {
            PORT_DEFAULT => format!("{}-{index}", self.host),
            port => format!("{}:{port}-{index}", self.host),
        }
    }
}

/// The two ketamas of libmemcached. Clients of one fleet have to agree on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ketama {
    /// `BEHAVIOR_KETAMA`: Jenkins' one-at-a-time hash for keys, and for 100 points for each server
    /// unless one of them weighs more than 1, which makes it the points of [`Ketama::Weighted`].
    Plain,
    /// `BEHAVIOR_KETAMA_WEIGHTED`, and what most other ketama clients do: MD5 throughout, about 160
    /// points for each server in proportion to its weight.
    Weighted,
}

impl Ketama {
    fn hash(self) -> fn(&[u8]) -> u32 {
        match self {
            Ketama::Plain => one_at_a_time,
            Ketama::Weighted => md5_word,
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

/// Jenkins' one-at-a-time hash over bytes that count as signed, as C's `char` does on x86.
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
        let ring = Ring::new(&servers(1), Ketama::Weighted);
        assert!(ring.hashes.is_empty());
        assert_eq!(ring.server(b"any"), 0);
    }

    #[test]
    fn losing_one_server_moves_only_its_keys() {
        let all = servers(5);
        let (before, after) =
            (Ring::new(&all, Ketama::Weighted), Ring::new(&all[..4], Ketama::Weighted));
        let keys = (0..10_000).map(|i| format!("key:{i}"));
        for key in keys {
            let owner = before.server(key.as_bytes());
            assert!(owner == 4 || owner == after.server(key.as_bytes()), "{key} moved");
        }
    }

    #[test]
    fn every_server_gets_about_its_share() {
        let ring = Ring::new(&servers(4), Ketama::Weighted);
        let mut owned = [0; 4];
        for i in 0..40_000 {
            owned[ring.server(format!("key:{i}").as_bytes())] += 1;
        }
        assert!(owned.iter().all(|&keys| (7_000..13_000).contains(&keys)), "{owned:?}");
    }
}
