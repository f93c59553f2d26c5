//! Closed-loop load on the Thrift service `Memcached`: every connection asks for keys of its own, knows what it stored
//! last, and compares every byte that it reads. It says nothing about latency at a given rate: that takes an open loop.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use rpc::call::{self, Answer};
use rpc::flat::{Build, View};
use rpc::services::memcached::{GetArgs, GetResult, Memcached, SetArgs, SetResult};
use serde::Serialize;
use thiserror::Error;
use units::{Clock, Nanos, Prng, SystemClock};
use workload::Popularity;

/// What to ask for.
#[derive(Clone, Debug)]
pub struct RpcSpec {
    /// Where.
    pub address: SocketAddr,
    /// Connections, each with a thread of its own and one request under way. 1 to 1024.
    pub connections: usize,
    /// For how long, unless `requests` are done before.
    pub duration: Nanos,
    /// How many requests in all, if that is to end it.
    pub requests: Option<u64>,
    /// The part that are sets, 0 to 1; the others are gets.
    pub set_ratio: f64,
    /// Keys in all; each connection has its share of them, at least one. Up to 2^32.
    pub keys: u64,
    /// The Zipf exponent of the keys' popularity within a connection's share.
    pub zipf_alpha: f64,
    /// The length of each key, 8 to 250 (bytes).
    pub key_bytes: usize,
    /// The length of each value, up to 1 MB (bytes).
    pub value_bytes: usize,
    /// The same seed asks for the same keys in the same order.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RpcReport {
    /// Requests answered after every key was set once.
    pub requests: u64,
    /// Of them sets.
    pub sets: u64,
    /// Of them gets.
    pub gets: u64,
    /// Gets without a value: the store made room.
    pub misses: u64,
    /// Values with other bytes than were stored last.
    pub wrong: u64,
    /// Requests answered with an exception.
    pub exceptions: u64,
    /// How long it took (s).
    pub seconds: f64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// From request to answer, median (ns).
    pub p50_ns: u64,
    /// 99th percentile (ns).
    pub p99_ns: u64,
    /// The longest (ns).
    pub max_ns: u64,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum RpcLoadError {
    /// The caller has to change it.
    #[error("{0}")]
    BadSpec(String),
    /// A connection failed.
    #[error("{address}: {error}")]
    Connection {
        /// To there.
        address: SocketAddr,
        /// How.
        error: std::io::Error,
    },
    /// The server's answer is none.
    #[error("the answer cannot be read: {0}")]
    Answer(rpc::Code),
}

/// Sets every key once, then loads until the time is over, the requests are done or `stop` is set.
pub fn run(spec: &RpcSpec, stop: &AtomicBool) -> Result<RpcReport, RpcLoadError> {
    check(spec)?;
    let clock = SystemClock::new();
    let failed = AtomicBool::new(false);
    let ended = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    let tallies = thread::scope(|scope| {
        let clients: Vec<_> = (0..spec.connections)
            .map(|number| {
                let (clock, failed, ended) = (&clock, &failed, &ended);
                scope.spawn(move || {
                    let result = Client::open(spec, number)
                        .and_then(|client| client.run(spec, clock, &ended));
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let joined = clients.into_iter().map(|client| client.join().expect("clients do not panic"));
        joined.collect::<Result<Vec<Tally>, _>>()
    })?;
    Ok(summed(&tallies))
}

fn check(spec: &RpcSpec) -> Result<(), RpcLoadError> {
    let refuse = |what: String| Err(RpcLoadError::BadSpec(what));
    if !(1..=CONNECTIONS_MAX).contains(&spec.connections) {
        return refuse(format!("{} connections; give 1 to {CONNECTIONS_MAX}", spec.connections));
    }
    if !(0.0..=1.0).contains(&spec.set_ratio) {
        return refuse(format!("a set ratio of {}; give 0 to 1", spec.set_ratio));
    }
    if !(spec.connections as u64..=1 << 32).contains(&spec.keys) {
        return refuse(format!("{} keys; give one for each connection, up to 2^32", spec.keys));
    }
    if !(spec.zipf_alpha.is_finite() && spec.zipf_alpha >= 0.0) {
        return refuse(format!("a Zipf exponent of {}; give 0 or more", spec.zipf_alpha));
    }
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&spec.key_bytes) {
        let range = format!("give {KEY_BYTES_MIN} to {KEY_BYTES_MAX}");
        return refuse(format!("keys of {} bytes; {range}", spec.key_bytes));
    }
    if spec.value_bytes > VALUE_BYTES_MAX {
        return refuse(format!("values of {} bytes; {VALUE_BYTES_MAX} at most", spec.value_bytes));
    }
    Ok(())
}

/// What one connection counted.
struct Tally {
    report: RpcReport,
    latencies: Histogram<u64>,
    begun: Nanos,
    ended: Nanos,
}

fn summed(tallies: &[Tally]) -> RpcReport {
    let mut sum = RpcReport::default();
    let mut latencies = histogram();
    for Tally { report, latencies: of_one, .. } in tallies {
        sum.requests += report.requests;
        sum.sets += report.sets;
        sum.gets += report.gets;
        sum.misses += report.misses;
        sum.wrong += report.wrong;
        sum.exceptions += report.exceptions;
        latencies.add(of_one).expect("made alike");
    }
    // While all are loading: from the last that began; what is before is counted too, so the rate is each one's own.
    let rate = |tally: &Tally| {
        tally.report.requests as f64 * 1e9 / tally.ended.since(tally.begun).0.max(1) as f64
    };
    let longest = tallies.iter().map(|tally| tally.ended.since(tally.begun).0).max();
    sum.seconds = longest.unwrap_or(0) as f64 / 1e9;
    sum.requests_per_second = tallies.iter().map(rate).sum();
    sum.p50_ns = latencies.value_at_quantile(0.5);
    sum.p99_ns = latencies.value_at_quantile(0.99);
    sum.max_ns = latencies.max();
    sum
}

/// One connection and what it knows of its keys.
struct Client {
    stream: TcpStream,
    address: SocketAddr,
    /// The first of its keys, and how often each was set.
    first: u64,
    versions: Vec<u32>,
    sequence: i32,
    key: Vec<u8>,
    value: Vec<u8>,
    frame: Vec<u8>,
    scratch: Vec<u8>,
    prng: Prng,
}

impl Client {
    fn open(spec: &RpcSpec, number: usize) -> Result<Self, RpcLoadError> {
        let (count, number) = (spec.connections as u64, number as u64);
        let first = spec.keys * number / count;
        let keys = spec.keys * (number + 1) / count - first;
        let open = || {
            let stream = TcpStream::connect(spec.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let address = spec.address;
        let stream = open().map_err(|error| RpcLoadError::Connection { address, error })?;
        let room = spec.key_bytes + spec.value_bytes + 1024;
        Ok(Self {
            stream,
            address,
            first,
            versions: vec![0; keys as usize],
            sequence: 0,
            key: Vec::new(),
            value: vec![0; spec.value_bytes],
            frame: vec![0; room],
            scratch: vec![0; 2 * room],
            prng: Prng::new(spec.seed ^ (number << 32)),
        })
    }

    fn run(
        mut self,
        spec: &RpcSpec,
        clock: &SystemClock,
        ended: &(impl Fn() -> bool + ?Sized),
    ) -> Result<Tally, RpcLoadError> {
        let mut ignored = RpcReport::default();
        for index in 0..self.versions.len() {
            if ended() {
                break;
            }
            self.set(spec, index, &mut ignored)?;
        }
        let popularity = Popularity::zipf(self.versions.len() as u64, spec.zipf_alpha);
        let each = |requests: u64| requests.div_ceil(spec.connections as u64);
        let requests = spec.requests.map_or(u64::MAX, each);
        let mut report = RpcReport::default();
        let mut latencies = histogram();
        let begun = clock.now();
        let mut now = begun;
        while report.requests < requests && now.since(begun) < spec.duration && !ended() {
            let index = popularity.draw(&mut self.prng) as usize;
            if self.prng.unit() < spec.set_ratio {
                self.set(spec, index, &mut report)?;
            } else {
                self.get(spec, index, &mut report)?;
            }
            report.requests += 1;
            let after = clock.now();
            latencies.saturating_record(after.since(now).0);
            now = after;
        }
        Ok(Tally { report, latencies, begun, ended: now })
    }

    fn set(
        &mut self,
        spec: &RpcSpec,
        index: usize,
        report: &mut RpcReport,
    ) -> Result<(), RpcLoadError> {
        self.versions[index] = self.versions[index].wrapping_add(1);
        self.name(spec, index);
        fill(spec.seed, self.first + index as u64, self.versions[index], &mut self.value);
        report.sets += 1;
        let mut build = Build::new(&mut self.scratch);
        let args = build.block(SetArgs::SLOTS).map_err(RpcLoadError::Answer)?;
        let strings = [(SetArgs::KEY, &self.key[..]), (SetArgs::VALUE, &self.value[..])];
        for (slot, bytes) in strings {
            build.set_bytes(args, slot, bytes).map_err(RpcLoadError::Answer)?;
        }
        let used = build.used();
        let length = self.exchange(Memcached::SET, args..used)?;
        let answer = self.answer(Memcached::SET, length)?;
        report.exceptions += match answer {
            Answer::Result(result) => u64::from(SetResult(result).error().is_some()),
            Answer::Exception(..) => 1,
        };
        Ok(())
    }

    fn get(
        &mut self,
        spec: &RpcSpec,
        index: usize,
        report: &mut RpcReport,
    ) -> Result<(), RpcLoadError> {
        self.name(spec, index);
        let mut expected = std::mem::take(&mut self.value);
        fill(spec.seed, self.first + index as u64, self.versions[index], &mut expected);
        report.gets += 1;
        let mut build = Build::new(&mut self.scratch);
        let args = build.block(GetArgs::SLOTS).map_err(RpcLoadError::Answer)?;
        build.set_bytes(args, GetArgs::KEY, &self.key).map_err(RpcLoadError::Answer)?;
        let used = build.used();
        let length = self.exchange(Memcached::GET, args..used)?;
        match self.answer(Memcached::GET, length)? {
            Answer::Result(result) => match GetResult(result).success() {
                Some(found) if found.hit() == Some(true) => {
                    report.wrong += u64::from(found.value() != Some(&expected[..]));
                }
                _ => report.misses += 1,
            },
            Answer::Exception(..) => report.exceptions += 1,
        }
        self.value = expected;
        Ok(())
    }

    /// Sends the call whose arguments are in `scratch` and reads the answer's frame into `frame`.
    fn exchange(
        &mut self,
        function: u32,
        args: std::ops::Range<usize>,
    ) -> Result<usize, RpcLoadError> {
        self.sequence = self.sequence.wrapping_add(1);
        let args = View::new(&self.scratch[args]);
        let length = call::write(&Memcached, function, self.sequence, args, &mut self.frame);
        let length = length.map_err(RpcLoadError::Answer)?;
        let failed = |error| RpcLoadError::Connection { address: self.address, error };
        self.stream.write_all(&self.frame[..length]).map_err(failed)?;
        // Head and body mostly come at once.
        let mut there = 0;
        loop {
            let count = self.stream.read(&mut self.frame[there..]).map_err(failed)?;
            if count == 0 {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            there += count;
            let Some(head) = self.frame[..there].first_chunk() else { continue };
            let whole = usize::try_from(i32::from_be_bytes(*head)).unwrap_or(usize::MAX);
            let whole = whole.saturating_add(rpc::wire::FRAME_HEAD_BYTES);
            if whole > self.frame.len() || there > whole {
                return Err(RpcLoadError::Answer(rpc::Code::Malformed));
            } else if there == whole {
                return Ok(whole);
            }
        }
    }

    fn answer(&mut self, function: u32, length: usize) -> Result<Answer<'_>, RpcLoadError> {
        let frame = &self.frame[..length];
        let answer = call::answer(&Memcached, function, self.sequence, frame, &mut self.scratch);
        answer.map_err(RpcLoadError::Answer)
    }

    /// The key's number in hexadecimal digits, with zeros before it.
    fn name(&mut self, spec: &RpcSpec, index: usize) {
        self.key.clear();
        let id = self.first + index as u64;
        let _ = write!(self.key, "{id:0width$x}", width = spec.key_bytes);
    }
}

/// The bytes that a key's value has after it was set so often.
fn fill(seed: u64, id: u64, version: u32, value: &mut [u8]) {
    Prng::new(seed ^ (id << 32 | u64::from(version)).wrapping_mul(ODD)).fill(value);
}

/// From a microsecond's tenth to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("bounds in order")
}

/// Spreads neighbouring numbers over all bits.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
const PATIENCE: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 1024;
/// Eight hexadecimal digits name 2^32 keys.
const KEY_BYTES_MIN: usize = 8;
const KEY_BYTES_MAX: usize = units::limits::KEY_BYTES_MAX;
const VALUE_BYTES_MAX: usize = 1_000_000;
