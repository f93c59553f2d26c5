//! Compares `rebate memcached` with memcached in equal memory, on records as caches hold them: small values that have
//! much in common. Both caches get the same requests from one client. Every record is written once, in an order that
//! has nothing to do with popularity, and all records together do not fit. Then a client reads by Zipf's law and sets
//! what it misses. The module draws no conclusions.

mod client;

use std::sync::atomic::{AtomicBool, Ordering};

use harness::{Process, memcached_is_here, start_memcached};
use serde::{Serialize, Serializer};
use units::{ByteCount, Prng};
use workload::{PayloadClass, Popularity, Sizes, Values, Weighting};

use client::Client;

/// The results for all kinds of records.
#[derive(Debug, Serialize)]
pub struct RecordComparison {
    /// The memory of each cache, as in `-m`.
    pub memory: ByteCount,
    /// The results of each kind that was measured on every cache.
    pub kinds: Vec<RecordKind>,
}

/// The results for one kind of records.
#[derive(Debug, Serialize)]
pub struct RecordKind {
    /// The kind.
    #[serde(serialize_with = "name")]
    pub class: PayloadClass,
    /// The mean size of a record (bytes).
    pub record_bytes: f64,
    /// The number of keys.
    pub keys: u64,
    /// The number of counted gets.
    pub gets: u64,
    /// The results of memcached. There are none if it is not installed.
    pub memcached: Option<Cached>,
    /// The results of `rebate memcached`.
    pub rebate: Cached,
}

/// The results of one cache.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cached {
    /// The items that the cache holds at the end.
    pub items: f64,
    /// The share of the counted gets that hit.
    pub hit_ratio: f64,
    /// The CPU time of the server per counted get, with the sets of the misses (us).
    pub cpu_us: f64,
    /// The sets that the cache refused. Their records count as missed when they are read.
    pub refused: u64,
    /// The resident memory of the server at the end (bytes).
    pub rss_bytes: f64,
}

/// A cache of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Memcached,
    Rebate,
}

impl RecordComparison {
    /// Returns the number of steps of [`RecordComparison::measure`].
    pub fn steps() -> usize {
        PayloadClass::RECORDS.len() * caches().len()
    }

    /// Measures every kind of records on every cache. Calls `progress` with the name of the step, its number and the
    /// part of it that is done. Once `stop` is set, the result has the kinds that were finished.
    ///
    /// # Errors
    /// A server does not serve, or a value was wrong.
    pub fn measure(
        memory: ByteCount,
        mut progress: impl FnMut(&str, usize, f64),
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let mut comparison = Self { memory, kinds: Vec::new() };
        for class in PayloadClass::RECORDS {
            let requests = Requests::new(class, memory)?;
            let mut found = [None; 2];
            for (index, cache) in caches().iter().enumerate() {
                let step = comparison.kinds.len() * caches().len() + index;
                let name = format!("{class}, {}", cache.name());
                let on_batch = |fraction: f64| {
                    progress(&name, step, fraction);
                    if stop.load(Ordering::Relaxed) { Err(Halt::Stopped) } else { Ok(()) }
                };
                match requests.run(*cache, memory, on_batch) {
                    Ok(cached) => found[*cache as usize] = Some(cached),
                    Err(Halt::Stopped) => return Ok(comparison),
                    Err(Halt::Failed(reason)) => return Err(format!("{name}: {reason}")),
                }
            }
            let [memcached, Some(rebate)] = found else { continue };
            let (record_bytes, keys) = (requests.record_bytes, requests.keys);
            let gets = requests.gets();
            comparison.kinds.push(RecordKind {
                class,
                record_bytes,
                keys,
                gets,
                memcached,
                rebate,
            });
        }
        Ok(comparison)
    }
}

impl RecordKind {
    /// Returns how many items Rebate holds where memcached holds one.
    pub fn items_ratio(&self) -> Option<f64> {
        self.memcached.map(|memcached| self.rebate.items / memcached.items)
    }
}

impl Cache {
    const fn name(self) -> &'static str {
        match self {
            Cache::Memcached => "memcached",
            Cache::Rebate => "rebate memcached",
        }
    }

    /// Starts the cache with one thread. Returns its process and its port.
    fn start(self, memory: ByteCount) -> Result<(Process, u16), String> {
        if self == Cache::Memcached {
            return start_memcached(memory, 1, None);
        }
        let megabytes = (memory.0 >> 20).max(1).to_string();
        // Like memcached, it refuses to run as root without -u and ignores -u for anyone else.
        let arguments = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", "-1", "-t", "1", "-m"];
        let arguments = arguments.into_iter().chain([&megabytes[..]]).map(str::to_owned);
        let mut process = Process::rebate(self.name(), &arguments.collect::<Vec<_>>(), None)?;
        let [address] = process.lines_after(["listening on "])?;
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        port.map(|port| (process, port)).ok_or_else(|| format!("no port in {address:?}"))
    }
}

/// The reason why a run has no result.
enum Halt {
    Stopped,
    Failed(String),
}

impl From<String> for Halt {
    fn from(reason: String) -> Self {
        Halt::Failed(reason)
    }
}

/// The requests that every cache gets for one kind of records.
struct Requests {
    values: Values,
    record_bytes: f64,
    keys: u64,
}

impl Requests {
    fn new(class: PayloadClass, memory: ByteCount) -> Result<Self, String> {
        let sizes = class.record_sizes().ok_or_else(|| format!("{class} has no records"))?;
        let sizes = Sizes::new(&sizes, Weighting::Calls).map_err(|error| error.to_string())?;
        let record_bytes = sizes.mean_bytes();
        let item_bytes = ITEM_BYTES_MIN + record_bytes * STORED_SHARE_MIN;
        let keys = (memory.0 as f64 / item_bytes) as u64;
        let values = Values::synthetic(class, sizes, usize::MAX, SEED);
        Ok(Self { values, record_bytes, keys })
    }

    /// Returns the number of gets that are counted. As many precede them, so that the cache holds what is popular.
    const fn gets(&self) -> u64 {
        (self.keys / 2).next_multiple_of(BATCH)
    }

    /// Runs all requests on a new process of `cache`. Calls `on_batch` after each batch with the part that is done.
    fn run(
        &self,
        cache: Cache,
        memory: ByteCount,
        mut on_batch: impl FnMut(f64) -> Result<(), Halt>,
    ) -> Result<Cached, Halt> {
        let (process, port) = cache.start(memory)?;
        let mut client = Client::connect(port, &self.values)?;
        if cache == Cache::Rebate {
            client.await_dictionary()?;
        }
        let (mut done, all) = (0, self.keys + 2 * self.gets());
        let mut on_batch = || {
            done += BATCH;
            on_batch(done as f64 / all as f64)
        };
        self.fill(&mut client, &mut on_batch)?;
        let mut draws = Draws::new(self.keys);
        self.read(&mut client, &mut draws, &mut on_batch)?;
        let cpu_s = process.cpu_s();
        let hits = self.read(&mut client, &mut draws, &mut on_batch)?;
        let cpu_s = process.cpu_s() - cpu_s;
        let items = client.stat("curr_items")?;
        if items >= self.keys as f64 {
            return Err(Halt::Failed(format!("all {} records fit", self.keys)));
        }
        Ok(Cached {
            items,
            hit_ratio: hits as f64 / self.gets() as f64,
            cpu_us: cpu_s * 1e6 / self.gets() as f64,
            refused: client.refused(),
            rss_bytes: process.rss_bytes().unwrap_or_default() as f64,
        })
    }

    /// Writes every record once.
    fn fill(
        &self,
        client: &mut Client<'_>,
        mut on_batch: impl FnMut() -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        for first in (0..self.keys).step_by(BATCH as usize) {
            let numbers = first..self.keys.min(first + BATCH);
            client.set(&numbers.map(|number| number * STRIDE % self.keys).collect::<Vec<_>>())?;
            on_batch()?;
        }
        Ok(())
    }

    /// Reads records by their popularity, and writes those that are missed. Returns the number of hits.
    fn read(
        &self,
        client: &mut Client<'_>,
        draws: &mut Draws,
        mut on_batch: impl FnMut() -> Result<(), Halt>,
    ) -> Result<u64, Halt> {
        let mut hits = 0;
        for _ in 0..self.gets() / BATCH {
            let ids = draws.batch();
            let missed = client.get(&ids)?;
            hits += (ids.len() - missed.len()) as u64;
            client.set(&missed)?;
            on_batch()?;
        }
        Ok(hits)
    }
}

/// The keys of the gets, the same for every cache.
struct Draws {
    prng: Prng,
    popularity: Popularity,
}

impl Draws {
    fn new(keys: u64) -> Self {
        Self { prng: Prng::new(SEED), popularity: Popularity::zipf(keys, ZIPF_ALPHA) }
    }

    fn batch(&mut self) -> Vec<u64> {
        (0..BATCH).map(|_| self.popularity.draw(&mut self.prng)).collect()
    }
}

/// Returns the caches that can be started here.
fn caches() -> &'static [Cache] {
    if memcached_is_here() { &[Cache::Memcached, Cache::Rebate] } else { &[Cache::Rebate] }
}

fn name<S: Serializer>(class: &PayloadClass, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(class.name())
}

/// The requests of one batch.
const BATCH: u64 = 100;

/// The popularity of the keys, as in YCSB.
const ZIPF_ALPHA: f64 = 0.99;

/// The bytes of an item that no cache can save: a part of the record, and the key with what the store adds. No cache
/// holds all records if there are so many keys that each would have only these bytes.
const STORED_SHARE_MIN: f64 = 0.1;
const ITEM_BYTES_MIN: f64 = 45.0;

/// The distance of two records that are written one after the other. It is a prime, so every record gets its turn.
const STRIDE: u64 = 2_147_483_647;

const SEED: u64 = 1;
