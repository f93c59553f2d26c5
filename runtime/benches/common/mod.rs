//! The common parts of the runtime's benches: a device without latency, a job for it, and the median of several runs.
//! It measures nothing itself.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome,
    Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use policy::AsyncOffload;
use runtime::{Fallback, Limits, Reputation, RuntimeConfig};
use units::{Clock, Nanos, SystemClock};

/// A device that accepts every job at once and returns it unchanged with the next poll. All measured time is therefore
/// the host's time.
pub struct ZeroLatency {
    capabilities: Capabilities,
    /// Whether the device keeps every job and never returns it.
    keeps: bool,
    /// Whether the device's queues show the jobs inside.
    shows: bool,
}

/// A device without latency that returns the bytes already in the output as the result, see [`job_with_result`].
pub struct Remembering(Arc<ZeroLatency>);

impl Remembering {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(ZeroLatency::new()))
    }
}

impl Device for Remembering {
    fn name(&self) -> &str {
        "remembering"
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(RememberingQueue(self.0.open_queue(waker)?)))
    }
}

struct RememberingQueue(Box<dyn Queue>);

impl Queue for RememberingQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        self.0.poll(done);
        for completion in &mut done[before..] {
            let output_bytes = completion.job.output.len() - completion.job.output_offset;
            completion.outcome = Outcome::Done { output_bytes };
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }

    fn shows_jobs(&self) -> bool {
        true
    }

    fn inside(&self, tag: u64) -> Option<&Job> {
        self.0.inside(tag)
    }
}

/// Creates a job like [`job`], whose output already contains its stream.
pub fn job_with_result(pool: &Pool) -> Box<Job> {
    let mut queue = Software::default().open_queue(Waker::noop().clone()).expect("software opens");
    let mut done = Vec::new();
    queue.try_submit(job(pool)).expect("software takes any job");
    queue.poll(&mut done);
    done.pop().expect("inline").job
}

impl ZeroLatency {
    pub fn new() -> Arc<Self> {
        Self::build(false, true)
    }

    /// Creates a device whose jobs leave the thread, as far as the runtime can tell.
    pub fn unseen() -> Arc<Self> {
        Self::build(false, false)
    }

    pub fn never() -> Arc<Self> {
        Self::build(true, true)
    }

    fn build(keeps: bool, shows: bool) -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos(0) };
        capabilities.queue_depth = 128;
        Arc::new(Self { capabilities, keeps, shows })
    }
}

impl Device for ZeroLatency {
    fn name(&self) -> &str {
        "zero-latency"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let depth = self.capabilities.queue_depth;
        let inside = Vec::with_capacity(depth);
        Ok(Box::new(ZeroLatencyQueue { inside, depth, keeps: self.keeps, shows: self.shows }))
    }
}

struct ZeroLatencyQueue {
    #[expect(clippy::vec_box, reason = "jobs come and go in their boxes")]
    inside: Vec<Box<Job>>,
    depth: usize,
    keeps: bool,
    shows: bool,
}

impl Queue for ZeroLatencyQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if self.inside.len() >= self.depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        self.inside.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.keeps {
            return 0;
        }
        let outcome = || Outcome::Done { output_bytes: 0 };
        let jobs = self.inside.drain(..);
        done.extend(jobs.map(|job| Completion { job, outcome: outcome(), service: Nanos(0) }));
        done.len()
    }

    fn pending(&self) -> usize {
        self.inside.len()
    }

    fn shows_jobs(&self) -> bool {
        self.shows
    }

    fn inside(&self, tag: u64) -> Option<&Job> {
        self.inside.iter().map(Box::as_ref).find(|job| self.shows && job.tag == tag)
    }
}

/// Creates a compression of 4 KiB like those of a service: input and output are from a pool, and the output has space
/// for a frame's header.
pub fn job(pool: &Pool) -> Box<Job> {
    let mut input = pool.take(INPUT_BYTES);
    input.extend(&[7; INPUT_BYTES]);
    let mut output = pool.take(HEADER_BYTES + INPUT_BYTES);
    output.extend(&[1; HEADER_BYTES]);
    let task = Task::Compress { dialect: Dialect::new(Codec::Deflate), level: Level::Fast };
    let mut job = Job::new(task, Input::pooled(input, 0..INPUT_BYTES), output);
    job.output_offset = HEADER_BYTES;
    Box::new(job)
}

/// Whether a tool counts instructions from outside. Then nothing is timed, because the call for the time does not work
/// under the tool.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// Returns the processor time of the calling thread. It is the host's cost of the work, whatever else runs on the
/// machine.
pub fn thread_time() -> Duration {
    if IS_COUNTED.load(Ordering::Relaxed) {
        return Duration::ZERO;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the processor time of all threads.
pub fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Creates the configuration of a runtime over software and the device without latency. Every job is offloaded.
pub fn config() -> RuntimeConfig {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(Software::default()), ZeroLatency::new()];
    RuntimeConfig {
        reputation: Reputation::new(&devices),
        devices,
        policy: Arc::new(AsyncOffload { work_bytes_min: 0 }),
        compress: Fallback::Prefer,
        decompress: Fallback::Prefer,
        job_timeout: Nanos::secs(1),
        reprobe_after: Nanos::secs(1),
        clock: clock(),
        seed: 1,
        limits: Limits::NONE,
        // The benches time only the path to the device and back.
        verify_every: None,
    }
}

fn clock() -> Arc<dyn Clock> {
    match IS_COUNTED.load(Ordering::Relaxed) {
        true => Arc::new(Steady(AtomicU64::new(0))),
        false => Arc::new(SystemClock::new()),
    }
}

/// A clock whose readings are as far apart as without the counting tool, so that behaviour that depends on time stays
/// the same.
struct Steady(AtomicU64);

impl Clock for Steady {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(LOOKS_APART.0, Ordering::Relaxed))
    }
}

const LOOKS_APART: Nanos = Nanos(900);

/// The options of the command line: `--quick`, `--json`, `--jobs COUNT` and a part of a row's id. Flags of cargo are
/// ignored.
pub struct Options {
    pub quick: bool,
    /// The number of jobs of each run, to count instructions. If it is set, nothing is timed.
    pub jobs: Option<usize>,
    json: bool,
    only: Option<String>,
}

impl Options {
    pub fn from_arguments() -> Self {
        let has = |flag: &str| std::env::args().any(|argument| argument == flag);
        let mut arguments = std::env::args().skip(1);
        let (mut jobs, mut only) = (None, None);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--jobs" => jobs = arguments.next().and_then(|count| count.parse().ok()),
                other if other.starts_with("--") => {}
                _ => only = Some(argument),
            }
        }
        IS_COUNTED.store(jobs.is_some(), Ordering::Relaxed);
        Self { quick: has("--quick") || jobs.is_some(), jobs, json: has("--json"), only }
    }

    /// Returns whether this case runs. A word on the command line selects the ids that contain it.
    pub fn wants(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| id.contains(only))
    }

    pub fn runs(&self) -> std::ops::Range<usize> {
        0..if self.quick { 3 } else { 7 }
    }
}

/// The results, one per line: the median of the runs, the least and the greatest value, and whether the bar is met.
#[derive(Default)]
pub struct Rows(Vec<Row>);

struct Row {
    id: String,
    unit: &'static str,
    value: f64,
    spread: [f64; 2],
    bar: Option<Bar>,
}

#[derive(Clone, Copy)]
pub enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Rows {
    pub fn add(
        &mut self,
        id: &str,
        unit: &'static str,
        bar: Option<Bar>,
        runs: impl Iterator<Item = f64>,
    ) {
        let mut runs: Vec<f64> = runs.collect();
        runs.sort_by(f64::total_cmp);
        let (value, spread) = (runs[runs.len() / 2], [runs[0], runs[runs.len() - 1]]);
        self.0.push(Row { id: id.to_owned(), unit, value, spread, bar });
    }

    pub fn print(&self, options: &Options) {
        let rows: Vec<String> =
            self.0.iter().map(|row| if options.json { row.json() } else { row.line() }).collect();
        match options.json {
            true => println!("[{}]", rows.join(",\n ")),
            false => println!("{}", rows.join("\n")),
        }
    }
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtMost(most) => self.value <= most,
            Bar::AtLeast(least) => self.value >= least,
        })
    }

    fn bar(&self) -> String {
        match self.bar {
            Some(Bar::AtMost(most)) => format!("<= {most}"),
            Some(Bar::AtLeast(least)) => format!(">= {least}"),
            None => String::new(),
        }
    }

    fn line(&self) -> String {
        let Self { id, unit, value, spread: [least, most], .. } = self;
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let spread = format!("[{least:.1}, {most:.1}]");
        format!("{id:<36} {value:>9.1} {unit:<12} {spread:<20} {:<8} {verdict}", self.bar())
    }

    fn json(&self) -> String {
        let Self { id, unit, value, spread: [least, most], .. } = self;
        let ok = self.is_met().map_or("null".to_owned(), |met| met.to_string());
        let bar = self.bar();
        format!(
            "{{\"id\": \"{id}\", \"value\": {value}, \"unit\": \"{unit}\", \"spread\": [{least}, {most}], \
             \"bar\": \"{bar}\", \"ok\": {ok}}}"
        )
    }
}

const INPUT_BYTES: usize = 4_096;
const HEADER_BYTES: usize = 24;
