//! Tests the compressed cache under load over a device that fails in one of a hundred jobs. Every value is checked.
//! There must be no wrong bytes, no lost job and nothing left behind, and the page must report what happened. The
//! server is the one that `rebate serve` runs, but in this process, because no configuration names a device that fails
//! on purpose. `scripts/faults.sh` runs the same for longer, under valgrind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use device::{Device, EngineFactory, FaultPlan, Faulty, Loss, Software, Worker, engines};
use load::{LoadReport, LoadSpec, Pace};
use policy::Reason;
use server::config::PolicyName;
use server::{Config, Devices, Server, ServerHandle};
use units::{ByteCount, Nanos};
use workload::SizeDist;

#[test]
fn jobs_that_fail() {
    survives(FaultPlan { fail_every: EVERY, ..SOUND }, &fallbacks(Reason::DeviceFault));
}

#[test]
fn a_device_that_is_busy_after_all() {
    survives(FaultPlan { busy_every: EVERY, ..SOUND }, &fallbacks(Reason::QueueFull));
}

#[test]
fn a_queue_that_refuses() {
    survives(FaultPlan { refuse_every: EVERY, ..SOUND }, &fallbacks(Reason::QueueFull));
}

#[test]
fn results_with_a_wrong_bit() {
    survives(FaultPlan { corrupt_every: EVERY, ..SOUND }, WRONG);
}

#[test]
fn results_a_byte_too_short() {
    survives(FaultPlan { shorten_every: EVERY, ..SOUND }, WRONG);
}

#[test]
fn jobs_that_come_late() {
    let late_by = Duration::from_millis(JOB_TIMEOUT_MS / 4);
    survives(FaultPlan { late_every: EVERY, late_by, ..SOUND }, &injected("late"));
}

#[test]
fn jobs_that_come_when_they_were_done_again() {
    let late_by = Duration::from_millis(2 * JOB_TIMEOUT_MS);
    survives(FaultPlan { late_every: EVERY, late_by, ..SOUND }, "rebate_jobs_late_total ");
}

#[test]
fn jobs_that_never_come_back() {
    survives(FaultPlan { hang_every: EVERY, ..SOUND }, &fallbacks(Reason::Timeout));
}

#[test]
fn a_device_that_is_lost_again_and_again() {
    survives(FaultPlan { lose_every: EVERY, ..SOUND }, &fallbacks(Reason::DeviceLost));
}

#[test]
fn a_device_that_is_lost_for_good() {
    for (loss, reason) in [(Loss::Reported, Reason::DeviceLost), (Loss::Hang, Reason::Timeout)] {
        survives(FaultPlan { lose_after: Some(EVERY), loss, ..SOUND }, &fallbacks(reason));
    }
}

#[test]
fn all_of_it_at_once() {
    let everything = FaultPlan {
        seed: 3,
        fail_every: EVERY,
        busy_every: EVERY,
        corrupt_every: EVERY,
        shorten_every: EVERY,
        refuse_every: EVERY,
        delay_polls: 2,
        late_every: EVERY,
        late_by: Duration::from_millis(JOB_TIMEOUT_MS / 2),
        hang_every: EVERY,
        lose_every: EVERY,
        ..SOUND
    };
    survives(everything, &fallbacks(Reason::Timeout));
}

/// Checks unverified writes: a wrong result that was not read back becomes a miss, as if it had been evicted. It never
/// gives other bytes.
#[test]
fn an_unverified_wrong_write_is_a_miss() {
    let cache = Cache::over(FaultPlan { corrupt_every: EVERY, ..SOUND }, Verify::Nothing);
    cache.load_until("rebate_frame_errors_total{kind=\"corrupt\"}", |report| {
        assert_eq!(report.wrong.count, 0, "{:?}", report.wrong.examples);
        report.get.misses > 0
    });
    cache.end();
}

/// Loads the cache over a device with these faults until its page has counted `proof`. No request may be affected.
fn survives(plan: FaultPlan, proof: &str) {
    let cache = Cache::over(plan, Verify::Everything);
    cache.load_until(proof, |report| {
        let populated = report.prepopulate.as_ref().map_or(0, |prepopulate| prepopulate.failed);
        let odd = [report.wrong.count, report.get.misses, report.unanswered, report.failures()];
        assert_eq!((odd, populated), ([0; 4], 0), "{report:#?}");
        assert_eq!(report.connections.lost, 0);
        true
    });
    cache.end();
}

/// A server over software and a faulty device of two threads. The device gets every job.
struct Cache {
    running: ServerHandle,
    device: Arc<dyn Device>,
}

#[derive(PartialEq)]
enum Verify {
    Everything,
    Nothing,
}

impl Cache {
    fn over(plan: FaultPlan, verify: Verify) -> Self {
        let threads = NonZeroUsize::new(2).expect("not zero");
        let depth = NonZeroUsize::new(64).expect("not zero");
        let worker = Worker::start(threads, depth, ENGINES).expect("two threads");
        let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(worker), plan));
        let mut config = Config::default();
        config.server.listen = vec!["127.0.0.1:0".to_owned()];
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.threads = 2;
        config.runtime.policy =
            PolicyName::Named(policy::NamedPolicy::find("async-offload").expect("it is listed"));
        config.runtime.offload_bytes_min = ByteCount(0);
        config.runtime.job_timeout_ms = JOB_TIMEOUT_MS;
        config.runtime.verify_every = u32::from(verify == Verify::Everything);
        let all = vec![Arc::new(Software::new(ENGINES)) as Arc<dyn Device>, Arc::clone(&device)];
        let running = Server::start(config, Devices { all, accelerators: 1 }).expect("starts");
        Self { running, device }
    }

    /// Loads the cache for the requested time. Then continues until the counter is above zero and `look` accepts a
    /// report.
    fn load_until(&self, counter: &str, mut look: impl FnMut(&LoadReport) -> bool) {
        let (start, asked) = (Instant::now(), asked());
        let (mut is_shown, mut requests) = (false, 0);
        loop {
            let report = self.load(asked.unwrap_or(ROUND));
            requests += report.get.answered + report.set.answered;
            is_shown |= look(&report);
            let counted = self.counted(counter);
            if counted > 0.0 && is_shown {
                let mut injected = self.device.counters();
                injected.retain(|(_, count)| *count > 0);
                eprintln!("{counter}: {counted}; {requests} requests; {injected:?}");
                return;
            }
            let page = || self.page();
            assert!(start.elapsed() < TIMEOUT, "{counter} {counted}, {is_shown}: {}", page());
        }
    }

    fn load(&self, duration: Duration) -> LoadReport {
        let address = self.running.addresses()[0].to_string();
        let mut spec = LoadSpec::new(vec![address.parse().expect("an address")]);
        spec.connections = 8;
        spec.pace = Pace::Closed { depth: 4 };
        spec.duration = Nanos::from(duration);
        spec.warmup = Nanos(0);
        spec.get_share = 0.5;
        spec.keys = 200;
        spec.zipf_alpha = 0.0;
        spec.value_bytes = SizeDist::Uniform { min_bytes: 100, max_bytes: 20_000 };
        spec.request_timeout = Nanos::from(TIMEOUT);
        load::run(&spec, |_| {}, &AtomicBool::new(false)).expect("a valid load")
    }

    /// Returns the sum of the samples whose text begins with `sample`.
    fn counted(&self, sample: &str) -> f64 {
        let page = self.page();
        let values = page.lines().filter(|line| line.starts_with(sample));
        values
            .map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect(line))
            .sum()
    }

    fn page(&self) -> String {
        let address: SocketAddr = self.running.admin_address().expect("pages are on");
        let mut stream = TcpStream::connect(address).expect("accepts");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answers");
        page
    }

    /// Ends the server, which closes its connections, and then drops the device with all its state.
    fn end(self) {
        let Self { running, device } = self;
        assert!(running.drain(TIMEOUT), "a connection is stuck");
        assert_eq!(Arc::strong_count(&device), 1, "something still holds the device");
    }
}

/// Returns the duration of each load, if the environment sets it.
fn asked() -> Option<Duration> {
    let text = std::env::var("REBATE_FAULTS_S").ok()?;
    Some(Duration::from_secs(text.parse().expect("whole seconds")))
}

fn fallbacks(reason: Reason) -> String {
    format!("rebate_fallback_total{{from=\"faulty-worker\",reason=\"{}\"}}", reason.name())
}

fn injected(fault: &str) -> String {
    format!("rebate_device_counter_total{{device=\"faulty-worker\",counter=\"{fault}\"}}")
}

const SOUND: FaultPlan = FaultPlan { seed: 1, ..FaultPlan::SOUND };

/// One in this many jobs has a fault.
const EVERY: u64 = 100;

/// The counters of a device's wrong results, of both directions. A device that loses its trust early may have been
/// wrong in one direction only.
const WRONG: &str = "rebate_device_corrupt_total{device=\"faulty-worker\"";

/// The timeout of a job (ms). It is far above the time of a healthy job, but short enough that a test need not wait
/// long for a job that hangs.
const JOB_TIMEOUT_MS: u64 = 200;

const ROUND: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(60);

const ENGINES: &[EngineFactory] = &[
    drivers::isal::engine,
    engines::libdeflate::engine,
    engines::zstd::engine,
    engines::lz4::engine,
];
