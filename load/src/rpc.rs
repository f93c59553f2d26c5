//! The RPC services' workloads: requests of table V's mixes, what has to answer them, recordings of both to replay,
//! and a closed-loop load over TCP: every connection asks for keys of its own, has a model of what is stored under
//! them, and compares every byte. It says nothing about latency at a given rate: that takes an open loop.

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
    /// The calls and their keys; each connection has its share of the keys, at least one.
    pub mix: Mix,
    /// The same seed asks for the same keys in the same order.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RpcReport {
    /// Requests answered after every key was given something once.
    pub requests: u64,
    /// Of them those that write: sets, posts stored.
    pub writes: u64,
    /// Of them the others.
    pub reads: u64,
    /// Reads that found nothing: the store made room.
    pub misses: u64,
    /// Answers with other bytes than the model of the store says.
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
    #[error("an answer of {0} B is announced")]
    Answer(i32),
}

/// Gives every key something once, then loads until the time is over, the requests are done or `stop` is set.
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

/// The requests of connection `number`: all connections' come to all of them.
fn share(all: u64, connections: usize, number: usize) -> u64 {
    let (count, number) = (connections as u64, number as u64);
    all / count + u64::from(number < all % count)
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
        sum.writes += report.writes;
        sum.reads += report.reads;
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
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
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
        // What went wrong then is told as well.
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

    /// Sends the request, reads its answer and judges it; how long that was under way.
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

    /// Reads a frame into `answer`; its length.
    fn read(&mut self) -> Result<usize, RpcLoadError> {
        let failed = |error| RpcLoadError::Connection { address: self.address, error };
        // Head and body mostly come at once.
        let (mut there, mut whole) = (0, READ_BYTES);
        loop {
            self.answer.resize(self.answer.len().max(whole), 0);
            let count = match self.stream.read(&mut self.answer[there..]) {
                // Where there is a time limit, a process that was stopped and goes on is told so.
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

/// From a microsecond's tenth to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("bounds in order")
}

/// Longer than any pause of a busy machine: who waits so long waits for what hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECTIONS_MAX: usize = 1024;
/// What one read asks for at least.
const READ_BYTES: usize = 4 << 10;
/// The longest answer that is read (bytes).
const ANSWER_MAX: usize = 64 << 20;
