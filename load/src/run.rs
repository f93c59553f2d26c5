//! A run from the start to the report. It prepares the workload, opens the connections, populates the servers and loads
//! them.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use units::{Clock, Nanos, Prng, SystemClock};
use workload::{Arrivals, BadSizes, Corpus, CorpusError, Keys, Popularity, Sizes, Values};

use crate::address::{Address, Opening, Protocol};
use crate::answer::Content;
use crate::engine::Engine;
use crate::grpc;
use crate::recorder::Recorder;
use crate::report::{LoadReport, PopulateReport};
use crate::source::{Mix, Source};
use crate::spec::{BadSpec, LoadSpec, Pace, Payload};
use crate::work::{Counters, Shared, Work};

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The description is invalid. The caller must fix it.
    #[error(transparent)]
    BadSpec(#[from] BadSpec),
    /// A size distribution is invalid. The caller must fix it.
    #[error("{which}: {error}")]
    BadSizes {
        /// The name of the distribution.
        which: &'static str,
        /// The reason why the distribution is invalid.
        error: BadSizes,
    },
    /// The corpus is unusable. The operator must fix it.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A server is unreachable. The operator must start it or fix its address.
    #[error("cannot connect to {address}: {reason}")]
    Unreachable {
        /// The server's address.
        address: Address,
        /// The system's reason.
        reason: String,
    },
    /// The server stored none of the keys. The operator must look at the server.
    #[error("the server stored none of {keys} keys: {reason}")]
    NothingStored {
        /// The number of keys sent.
        keys: u64,
        /// The most frequent error.
        reason: String,
    },
    /// A system call failed. The operator must fix the machine.
    #[error("the load generator cannot run: {0}")]
    System(#[from] Errno),
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Populate,
    WarmUp,
    Measure,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// The part of the phase that is done, 0 to 1.
    pub fraction: f64,
    /// The number of requests answered since the populate phase or the load began.
    pub answered: u64,
    /// The number of requests that failed since the populate phase or the load began.
    pub failed: u64,
}

/// An open connection that is passed to a thread.
pub(crate) struct Opened {
    pub(crate) address: Address,
    pub(crate) socket: OwnedFd,
}

/// The parts that are prepared once and used by every phase.
struct Prepared<'a> {
    spec: &'a LoadSpec,
    keys: Keys,
    values: Values,
    clock: SystemClock,
    stop: &'a AtomicBool,
}

/// Runs `spec` to its end or until `stop` is set, and reports the measurements. Calls `progress` about ten
/// times per second. Slow servers can extend the run only by a bounded time.
pub fn run(
    spec: &LoadSpec,
    mut progress: impl FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadReport, LoadError> {
    spec.check()?;
    raise_file_limit(spec.connections as u64 + OTHER_FILES);
    let prepared = Prepared::new(spec, stop)?;
    let populated = if spec.prepopulate && !stop.load(Ordering::Relaxed) {
        Some(prepared.populate(&mut progress)?)
    } else {
        None
    };
    prepared.load(populated, &mut progress)
}

impl<'a> Prepared<'a> {
    fn new(spec: &'a LoadSpec, stop: &'a AtomicBool) -> Result<Self, LoadError> {
        let bad = |which| move |error| LoadError::BadSizes { which, error };
        let keys = Keys::new(spec.keys, &spec.key_bytes, spec.seed).map_err(bad("key sizes"))?;
        let sizes = Sizes::new(&spec.value_bytes, spec.weighting).map_err(bad("value sizes"))?;
        let longest = spec.value_bytes_max.as_usize();
        let values = match &spec.payload {
            Payload::Class(class) => Values::synthetic(*class, sizes, longest, spec.seed),
            Payload::Corpus(folder) => {
                let corpus = Corpus::read(Path::new(folder))?;
                Values::from_corpus(corpus, sizes, longest, spec.seed)
            }
        };
        Ok(Self { spec, keys, values, clock: SystemClock::new(), stop })
    }

    fn populate(&self, progress: &mut impl FnMut(&Progress)) -> Result<PopulateReport, LoadError> {
        let start = self.clock.now();
        let shared = self.shared(Nanos(u64::MAX));
        let source = |thread| Source::Populate {
            depth: self.spec.pipeline_max,
            ids: share_of(self.spec.keys, thread, self.threads()),
        };
        let report = |counters: &Counters, _| {
            let (answered, failed) = counters.read();
            let fraction = (answered + failed) as f64 / self.spec.keys as f64;
            progress(&Progress { phase: Phase::Populate, fraction, answered, failed });
        };
        let recorder = self.phase(&shared, (Nanos(0), Nanos(u64::MAX)), source, report)?;
        let elapsed_s = self.clock.now().since(start).0 as f64 / 1e9;
        let report = recorder.into_populate_report(elapsed_s);
        if report.stored == 0 && !self.stop.load(Ordering::Relaxed) {
            let worst = report.errors.into_iter().max_by_key(|(_, count)| *count);
            let reason = worst.map_or_else(|| "no answers".to_owned(), |(message, _)| message);
            return Err(LoadError::NothingStored { keys: self.spec.keys, reason });
        }
        Ok(report)
    }

    fn load(
        &self,
        populated: Option<PopulateReport>,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<LoadReport, LoadError> {
        let spec = self.spec;
        let begin = self.clock.now() + HEAD_START;
        let from = begin + spec.warmup;
        let to = from + spec.duration;
        let shared = self.shared(to);
        let source = |thread| self.source(thread, begin);
        let report = |counters: &Counters, now: Nanos| {
            let (answered, failed) = counters.read();
            let (phase, since, length) = if now < from {
                (Phase::WarmUp, begin, spec.warmup)
            } else {
                (Phase::Measure, from, spec.duration)
            };
            let fraction = (now.since(since).0 as f64 / length.0.max(1) as f64).min(1.0);
            progress(&Progress { phase, fraction, answered, failed });
        };
        let recorder = self.phase(&shared, (from, to), source, report)?;
        Ok(recorder.into_report(spec.clone(), populated, self.clock.now()))
    }

    /// Creates the source of one thread's requests.
    fn source(&self, thread: usize, begin: Nanos) -> Source {
        let spec = self.spec;
        let mix = Mix {
            prng: Prng::new(spec.seed ^ (thread as u64 + 1) << 32),
            get_share: spec.get_share,
            popularity: Popularity::zipf(spec.keys, spec.zipf_alpha),
        };
        match spec.pace {
            Pace::Closed { depth } => Source::Closed { depth, mix },
            Pace::Open { rate_per_s, arrivals } => {
                let connections = share_of(spec.connections as u64, thread, self.threads());
                let share = (connections.end - connections.start) as f64 / spec.connections as f64;
                let phase = thread as f64 / self.threads() as f64;
                Source::open(Arrivals::new(arrivals, rate_per_s * share, phase), mix, begin)
            }
        }
    }

    /// Runs one engine per thread over new connections, and adds up their records.
    fn phase(
        &self,
        shared: &Shared<'_>,
        (from, to): (Nanos, Nanos),
        source: impl Fn(usize) -> Source,
        mut report: impl FnMut(&Counters, Nanos),
    ) -> Result<Recorder, LoadError> {
        let mut connections = self.connect()?.into_iter();
        let protocol = self.spec.targets[0].protocol;
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..self.threads() {
                let share = share_of(self.spec.connections as u64, thread, self.threads());
                let thread_connections =
                    connections.by_ref().take((share.end - share.start) as usize).collect();
                let (source, recorder) = (source(thread), Recorder::new(from, to));
                let work = Work::new(shared, source, recorder);
                let run = move || match protocol {
                    Protocol::Memcached => Engine::new(work, thread_connections)?.run(),
                    Protocol::Grpc => grpc::run(work, thread_connections),
                };
                threads.push(scope.spawn(run));
            }
            let mut next_report = Nanos(0);
            while !threads.iter().all(|thread| thread.is_finished()) {
                thread::sleep(WATCH_EVERY);
                let now = self.clock.now();
                if now >= next_report {
                    next_report = now + REPORT_EVERY;
                    report(&shared.counters, now);
                }
            }
            let mut total = Recorder::new(from, to);
            for thread in threads {
                match thread.join() {
                    Ok(recorder) => total.add(recorder?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(total)
        })
    }

    fn shared(&self, end: Nanos) -> Shared<'_> {
        let spec = self.spec;
        Shared {
            spec,
            content: Content {
                keys: &self.keys,
                values: &self.values,
                verify: spec.verify,
                exptime_s: spec.exptime_s,
                value_bytes_max: spec.value_bytes_max.as_usize(),
            },
            end,
            clock: self.clock.clone(),
            stop: self.stop,
            counters: Counters::default(),
        }
    }

    fn threads(&self) -> usize {
        self.spec.threads.min(self.spec.connections)
    }

    /// Opens every connection. The error names the server that could not be reached.
    fn connect(&self) -> Result<Vec<Opened>, LoadError> {
        let deadline = self.clock.now() + CONNECT_TIMEOUT;
        let targets = self.spec.targets.iter().cycle().take(self.spec.connections);
        let addresses: Vec<_> = targets.collect();
        let mut connections = Vec::with_capacity(addresses.len());
        for group in addresses.chunks(CONNECTS_AT_ONCE) {
            let fail = |address: &Address, error: Errno| LoadError::Unreachable {
                address: address.clone(),
                reason: std::io::Error::from(error).to_string(),
            };
            let mut opened = Vec::with_capacity(group.len());
            for address in group {
                let opening = self.open(address, deadline).map_err(|error| fail(address, error))?;
                opened.push((*address, opening));
            }
            for (address, opening) in opened {
                let socket = match opening {
                    Opening::Done(socket) => socket,
                    Opening::Pending(socket) => {
                        let done = self.finish(&socket, deadline);
                        done.map_err(|error| fail(address, error))?;
                        socket
                    }
                };
                connections.push(Opened { address: address.clone(), socket });
            }
        }
        Ok(connections)
    }

    /// Begins a connection. If the queue of a unix socket is full, it tries again until `deadline`.
    fn open(&self, address: &Address, deadline: Nanos) -> Result<Opening, Errno> {
        loop {
            match address.open() {
                Err(Errno::AGAIN) if self.clock.now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                opening => return opening,
            }
        }
    }

    /// Waits until a socket is connected or `deadline` has passed.
    fn finish(&self, socket: &OwnedFd, deadline: Nanos) -> Result<(), Errno> {
        let mut ready = [PollFd::new(socket, PollFlags::OUT)];
        let is_ready = retry_on_intr(|| {
            let left = deadline.since(self.clock.now());
            let left = Timespec {
                tv_sec: (left.0 / 1_000_000_000) as i64,
                tv_nsec: (left.0 % 1_000_000_000) as i64,
            };
            rustix::event::poll(&mut ready, Some(&left))
        })?;
        if is_ready == 0 { Err(Errno::TIMEDOUT) } else { sockopt::socket_error(socket)? }
    }
}

impl Counters {
    fn read(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// Returns the range of `count` items that belongs to one of `threads`.
fn share_of(count: u64, thread: usize, threads: usize) -> Range<u64> {
    let cut = |thread: usize| (u128::from(count) * thread as u128 / threads as u128) as u64;
    cut(thread)..cut(thread + 1)
}

/// Raises the soft limit of open files towards `wanted`. If that fails, opening the sockets reports it.
fn raise_file_limit(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let current = Some(wanted.min(limit.maximum.unwrap_or(u64::MAX)));
        let _refused = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}

/// The time after which the run fails if a connection is not up.
const CONNECT_TIMEOUT: Nanos = Nanos::secs(3);
/// The number of connections that are opened at once. It is less than the queue of every listener, so that no handshake
/// is dropped.
const CONNECTS_AT_ONCE: usize = 64;
/// The number of open files other than connections: standard streams, pollers, timers and a corpus.
const OTHER_FILES: u64 = 64;
/// The time between the start of a phase and its first due request. It lets every thread get ready. A thread that needs
/// longer shows as lateness.
const HEAD_START: Nanos = Nanos::millis(2);
const WATCH_EVERY: Duration = Duration::from_millis(5);
const REPORT_EVERY: Nanos = Nanos::millis(100);
