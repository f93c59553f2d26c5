//! The workloads of the RPC services: requests of the mixes of \[Arcalis\] table V, a model that knows their answers,
//! recordings that can be replayed, and a closed-loop load over TCP. Every connection uses its share of the keys, has a
//! model of the values stored under them, and compares every byte. The load cannot show the latency at a given rate,
//! because that needs an open loop.

mod generator;
mod mix;
mod oracle;
mod recording;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use thiserror::Error;
use units::{Clock, Nanos, SystemClock};

pub use generator::Generator;
pub use mix::{Calls, MIXES, Mix};
pub use oracle::{Expected, Oracle, Verdict, is_exception};
pub use recording::{Recording, RecordingError};

/// A load on an RPC service.
#[derive(Clone, Debug)]
pub struct RpcSpec {
    /// The address of the server.
    pub address: SocketAddr,
    /// The number of connections, 1 to 1024. Each has its own thread and one request in flight.
    pub connections: usize,
    /// The duration. The load ends earlier if `requests` are done.
    pub duration: Nanos,
    /// The number of requests after which the load ends, if given.
    pub requests: Option<u64>,
    /// The calls and their keys. Each connection has its share of the keys, and at least one key.
    pub mix: Mix,
    /// The seed of the draws. The same seed gives the same keys in the same order.
    pub seed: u64,
}

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RpcReport {
    /// Requests that were answered after every key had been stored once.
    pub requests: u64,
    /// The number of requests that write: sets and stored posts.
    pub writes: u64,
    /// The number of requests that read.
    pub reads: u64,
    /// Reads that found nothing because the store had evicted the item.
    pub misses: u64,
    /// Answers whose bytes differ from the model's.
    pub wrong: u64,
    /// Requests answered with an exception.
    pub exceptions: u64,
    /// The longest time for which a connection sent load (s).
    pub seconds: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Median time from request to answer (ns).
    pub p50_ns: u64,
    /// The 99th percentile of the time from request to answer (ns).
    pub p99_ns: u64,
    /// The longest time from request to answer (ns).
    pub max_ns: u64,
}

/// The reason why there is no report.
#[derive(Debug, Error)]
pub enum RpcLoadError {
    /// The caller has to change the description.
    #[error("{0}")]
    BadSpec(String),
    /// A connection failed.
    #[error("{address}: {error}")]
    Connection {
        /// The server's address.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The server announced an answer that is not a valid frame. The number is the announced length (bytes).
    #[error("an answer of {0} B is announced")]
    Answer(i32),
}

/// Stores a value under every key. Then sends requests until the time is over, all are done or `stop` is set.
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
                        .and_then(|client| client.run(spec, number, clock, &ended));
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
    spec.mix.check().or_else(refuse)?;
    if spec.mix.keys < spec.connections as u64 {
        return refuse(format!("{} keys; give one for each connection, up to 2^32", spec.mix.keys));
    }
    Ok(())
}

/// Returns the number of requests of connection `number`. The shares of all connections add up to `all`.
fn share(all: u64, connections: usize, number: usize) -> u64 {
    let (count, number) = (connections as u64, number as u64);
    all / count + u64::from(number < all % count)
}

/// The counts of one connection.
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
        sum.writes += report.writes;
        sum.reads += report.reads;
        sum.misses += report.misses;
        sum.wrong += report.wrong;
        sum.exceptions += report.exceptions;
        latencies.add(of_one).expect("made alike");
    }
    // A connection's rate is its requests divided by the time in which it was loading. The total is the sum of these
    // rates.
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

/// One connection, with a model of the values under its keys.
struct Client {
    stream: TcpStream,
    address: SocketAddr,
    generator: Generator,
    oracle: Oracle,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    fn open(spec: &RpcSpec, number: usize) -> Result<Self, RpcLoadError> {
        let (count, number) = (spec.connections as u64, number as u64);
        let first = spec.mix.keys * number / count;
        let keys = spec.mix.keys * (number + 1) / count - first;
        let mix = Mix { first_key: spec.mix.first_key + first, keys, ..spec.mix.clone() };
        let open = || {
            let stream = TcpStream::connect(spec.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            Ok(stream)
        };
        let address = spec.address;
        let stream = open().map_err(|error| RpcLoadError::Connection { address, error })?;
        Ok(Self {
            stream,
            address,
            generator: Generator::new(&mix, spec.seed ^ (number << 32)),
            oracle: Oracle::new(mix.service()).expect("a mix is of a service that is there"),
            request: Vec::new(),
            answer: Vec::new(),
        })
    }

    fn run(
        mut self,
        spec: &RpcSpec,
        number: usize,
        clock: &SystemClock,
        ended: &(impl Fn() -> bool + ?Sized),
    ) -> Result<Tally, RpcLoadError> {
        let mut report = RpcReport::default();
        while !ended() && self.generator.warm(&mut self.request) {
            self.exchange(clock, &mut report)?;
        }
        // Misses of the first phase do not count, but its wrong answers and exceptions do.
        let mut report = RpcReport { misses: 0, ..report };
        let requests = spec.requests.map_or(u64::MAX, |all| share(all, spec.connections, number));
        let mut latencies = histogram();
        let begun = clock.now();
        let mut now = begun;
        while report.requests < requests && now.since(begun) < spec.duration && !ended() {
            let writes = self.generator.request(&mut self.request);
            let took = self.exchange(clock, &mut report)?;
            latencies.saturating_record(took.0);
            report.requests += 1;
            report.writes += u64::from(writes);
            report.reads += u64::from(!writes);
            now = clock.now();
        }
        Ok(Tally { report, latencies, begun, ended: now })
    }

    /// Sends the request, reads its answer and judges it. Returns the time until the answer was complete.
    fn exchange(
        &mut self,
        clock: &SystemClock,
        report: &mut RpcReport,
    ) -> Result<Nanos, RpcLoadError> {
        let expected = self.oracle.expect(&self.request);
        let begun = clock.now();
        let failed = |error| RpcLoadError::Connection { address: self.address, error };
        self.stream.write_all(&self.request).map_err(failed)?;
        let length = self.read()?;
        let took = clock.now().since(begun);
        match self.oracle.judge(&expected, &self.answer[..length]) {
            Verdict::Right => {}
            Verdict::Miss => report.misses += 1,
            Verdict::Refused => report.exceptions += 1,
            Verdict::Wrong => report.wrong += 1,
        }
        Ok(took)
    }

    /// Reads a frame into `answer` and returns its length.
    fn read(&mut self) -> Result<usize, RpcLoadError> {
        let failed = |error| RpcLoadError::Connection { address: self.address, error };
        // The head and the body mostly arrive together.
        let (mut there, mut whole) = (0, READ_BYTES);
        loop {
            self.answer.resize(self.answer.len().max(whole), 0);
            let count = match self.stream.read(&mut self.answer[there..]) {
                // A read with a timeout is interrupted when a stopped process continues.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => count.map_err(failed)?,
            };
            if count == 0 {
                return Err(failed(ErrorKind::UnexpectedEof.into()));
            }
            there += count;
            let Some(head) = self.answer[..there].first_chunk() else { continue };
            let announced = i32::from_be_bytes(*head);
            let length = usize::try_from(announced).ok().filter(|length| *length <= ANSWER_MAX);
            let length = length.ok_or(RpcLoadError::Answer(announced))?;
            whole = length + rpc::wire::FRAME_HEAD_BYTES;
            if there > whole {
                return Err(RpcLoadError::Answer(announced));
            } else if there == whole {
                return Ok(whole);
            }
        }
    }
}

/// Returns a histogram for times from a tenth of a microsecond to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("bounds in order")
}

/// The longest wait for the server, which is longer than any pause of a busy machine. After this time the server counts
/// as hanging.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECTIONS_MAX: usize = 1024;
/// The least size of a read (bytes).
const READ_BYTES: usize = 4 << 10;
/// The longest answer that is read (bytes).
const ANSWER_MAX: usize = 64 << 20;
