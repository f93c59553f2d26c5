//! Tests the service's end of lanes in this process, with the driver's client: limits, turns, tenants and the
//! end of lanes. Jobs run on a device that holds them until the test releases them, without codecs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use api::Address;
use bytes::Bytes;
use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome,
    Pool, Queue, Refused, RefusedReason, Software, Task, TenantId, Waiting,
};
use drivers::{Lane, LaneOptions, Remote, RemoteOptions};
use parking_lot::{Condvar, Mutex};
use server::config::RoleName;
use server::{Config, Devices, InheritedSockets, Platform, Server, ServerHandle};
use units::{ByteCount, Nanos};

/// The timeout of every expected event, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A device that completes its jobs while it is open, and records their tenants.
struct Gate {
    capabilities: Capabilities,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    is_open: bool,
    /// True while submissions block.
    is_stuck: bool,
    stuck: usize,
    tenants: Vec<u16>,
}

impl Gate {
    fn new(is_open: bool) -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos(0) };
        capabilities.queue_depth = 1_024;
        let inner = Inner { is_open, ..Inner::default() };
        let state = Arc::new(State { inner: Mutex::new(inner), changed: Condvar::new() });
        Arc::new(Self { capabilities, state })
    }

    fn open(&self) {
        self.state.inner.lock().is_open = true;
    }

    fn tenants(&self) -> Vec<u16> {
        self.state.inner.lock().tenants.clone()
    }

    /// Blocks submissions until [`Gate::go_on`].
    fn stick(&self) {
        self.state.inner.lock().is_stuck = true;
    }

    fn await_stuck(&self) {
        let mut inner = self.state.inner.lock();
        while inner.stuck == 0 {
            assert!(!self.state.changed.wait_for(&mut inner, TIMEOUT).timed_out(), "nobody came");
        }
    }

    fn go_on(&self) {
        self.state.inner.lock().is_stuck = false;
        self.state.changed.notify_all();
    }
}

impl Device for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(GateQueue { state: Arc::clone(&self.state), in_flight: Vec::new() }))
    }
}

struct GateQueue {
    state: Arc<State>,
    #[expect(clippy::vec_box, reason = "jobs come and go in their boxes")]
    in_flight: Vec<Box<Job>>,
}

impl Queue for GateQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        let mut inner = self.state.inner.lock();
        inner.tenants.push(job.tenant.0);
        inner.stuck += 1;
        self.state.changed.notify_all();
        while inner.is_stuck {
            self.state.changed.wait(&mut inner);
        }
        inner.stuck -= 1;
        self.in_flight.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if !self.state.inner.lock().is_open {
            return 0;
        }
        let before = done.len();
        done.extend(self.in_flight.drain(..).map(|mut job| {
            job.output.set_len(job.output_offset + RESULT_BYTES);
            let outcome = Outcome::Done { output_bytes: RESULT_BYTES };
            Completion { job, outcome, service: Nanos(1) }
        }));
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.in_flight.len()
    }
}

const RESULT_BYTES: usize = 64;

/// A compression service with one worker thread that runs every job on the gate.
struct Service {
    running: Option<ServerHandle>,
    folder: tempfile::TempDir,
}

impl Service {
    fn start(gate: &Arc<Gate>, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.server.roles = vec![RoleName::Compression];
        config.server.threads = 1;
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.lane_listen = Some(folder.path().join("lane"));
        config.runtime.offload_bytes_min = ByteCount(0);
        config.runtime.job_timeout_ms = 60_000;
        // The gate does not process its jobs, so there is nothing to verify.
        config.runtime.verify_every = 0;
        change(&mut config);
        let gate: Arc<dyn Device> = Arc::<Gate>::clone(gate);
        let devices = Devices { all: vec![Arc::new(Software::default()), gate], accelerators: 1 };
        let platform = Platform { watch_lane: Some(drivers::lane::watch), ..Platform::default() };
        let sockets = InheritedSockets::default();
        let running = Server::start_on(platform, sockets, config, devices).expect("starts");
        Self { running: Some(running), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("lane")
    }

    /// Returns a client whose first job is in flight or done, so that the handshake is complete.
    fn client(&self, pool: &Pool) -> Client {
        let waiting = Waiting::Polled { expected: Nanos(0) };
        let options = LaneOptions { work_bytes_max: ITEM_BYTES, waiting, ..LaneOptions::default() };
        let lane = Lane::new(&self.path(), &options);
        let queue = lane.open_queue(Waker::noop().clone()).expect("opens");
        let (before, mut client) = (self.begun(), Client { queue, done: Vec::new() });
        client.submit(job(pool, 0, 64));
        wait_until("a first job is begun", || {
            client.poll();
            self.begun() > before
        });
        client
    }

    fn metric(&self, name: &str) -> u64 {
        let address = self.running.as_ref().and_then(ServerHandle::admin_address).expect("listens");
        let mut stream = TcpStream::connect(address).expect("accepts");
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answers");
        let line = page.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse().expect(line)
    }

    fn begun(&self) -> u64 {
        self.metric("rebate_lane_jobs_total{result=\"begun\"}")
    }

    fn busy(&self) -> u64 {
        self.metric("rebate_lane_jobs_total{result=\"busy\"}")
    }

    /// Returns the number of lanes that were cut.
    fn stalled(&self) -> u64 {
        self.metric("rebate_lanes_stalled_total")
    }
}

/// A client with a lane, which the test polls.
struct Client {
    queue: Box<dyn Queue>,
    done: Vec<Completion>,
}

impl Client {
    fn submit(&mut self, job: Box<Job>) {
        self.queue.try_submit(job).expect("room");
    }

    fn poll(&mut self) {
        self.queue.poll(&mut self.done);
    }

    /// Returns the outcomes of the next jobs that complete.
    fn outcomes(&mut self, count: usize) -> Vec<Outcome> {
        let start = Instant::now();
        while self.done.len() < count {
            self.poll();
            assert!(start.elapsed() < TIMEOUT, "{} of {count} jobs came back", self.done.len());
            thread::yield_now();
        }
        self.done.drain(..count).map(|completion| completion.outcome).collect()
    }
}

const ITEM_BYTES: ByteCount = ByteCount::kib(64);

/// The tenant of the first peer. Those below are the tenants of roles.
const PEERS: u16 = 32_768;

fn job(pool: &Pool, tenant: u16, bytes: usize) -> Box<Job> {
    let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
    let input = Input::heap(Bytes::from(vec![7; bytes]));
    let mut job = Job::new(task, input, pool.take(bytes));
    job.tenant = TenantId(tenant);
    Box::new(job)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

const DONE: Outcome = Outcome::Done { output_bytes: RESULT_BYTES };

/// Limits a worker's lanes to 1 MiB in total and 256 KiB each.
fn small(config: &mut Config) {
    config.store.item_bytes_max = ITEM_BYTES;
    config.runtime.inflight_bytes_max = ByteCount::mib(1);
}

#[test]
fn unread_results_count_against_their_lane() {
    let gate = Gate::new(true);
    let service = Service::start(&gate, small);
    let pool = Pool::heap(ByteCount(0));
    let mut client = service.client(&pool);
    assert_eq!(client.outcomes(1), [DONE]);
    // A lane's share is two items with space for their streams: 256 KiB.
    let jobs = 24;
    for number in 1..=jobs {
        client.submit(job(&pool, 0, 16 << 10));
        wait_until("the job is taken", || service.begun() + service.busy() == 1 + number);
    }
    let all = client.outcomes(jobs as usize);
    let done = all.iter().filter(|outcome| **outcome == DONE).count();
    let busy = all.iter().filter(|outcome| **outcome == Outcome::Failed(DeviceError::Busy)).count();
    assert!((8..=16).contains(&done) && done + busy == jobs as usize, "{done} done, {busy} busy");
    client.submit(job(&pool, 0, 16 << 10));
    assert_eq!(client.outcomes(1), [DONE], "what was read counts no longer");
}

/// Submits at most `jobs_max` jobs without reading answers, until the service has no capacity. Also ends if
/// the service has closed a lane, which can happen after a long pause of the machine.
fn fill(service: &Service, pool: &Pool, jobs_max: u64) -> Client {
    let mut client = service.client(pool);
    assert_eq!(client.outcomes(1), [DONE]);
    let (begun, busy, stalled) = (service.begun(), service.busy(), service.stalled());
    for number in 1..=jobs_max {
        client.submit(job(pool, 0, 16 << 10));
        let answered = || service.begun() + service.busy() - begun - busy;
        let is_cut = || service.stalled() > stalled;
        wait_until("the job is taken", || answered() == number || is_cut());
        if service.busy() > busy || is_cut() {
            break;
        }
    }
    client
}

#[test]
fn lanes_that_read_nothing_leave_room_for_others() {
    let gate = Gate::new(true);
    let service = Service::start(&gate, small);
    let pool = Pool::heap(ByteCount(0));
    let _hostile = [(); 5].map(|()| fill(&service, &pool, u64::MAX));
    let mut honest = service.client(&pool);
    assert_eq!(honest.outcomes(1), [DONE]);
    for _ in 0..10 {
        honest.submit(job(&pool, 0, 16 << 10));
        assert_eq!(honest.outcomes(1), [DONE]);
    }
}

#[test]
fn the_unread_lane_that_holds_most_is_cut_first() {
    let gate = Gate::new(true);
    let service = Service::start(&gate, |config| {
        config.store.item_bytes_max = ITEM_BYTES;
        config.runtime.inflight_bytes_max = ByteCount::kib(256);
    });
    let pool = Pool::heap(ByteCount(0));
    // Both clients leave their answers unread for longer than the limit. A lane that holds less than the
    // average of the three is not closed.
    let (mut most, mut less) = (fill(&service, &pool, u64::MAX), fill(&service, &pool, 2));
    let mut honest = service.client(&pool);
    assert_eq!(honest.outcomes(1), [DONE]);
    honest.submit(job(&pool, 0, 64 << 10));
    let is_refused = honest.outcomes(1) == [Outcome::Failed(DeviceError::Busy)];
    assert!(is_refused || service.stalled() == 1, "there is no room until one is cut");
    wait_until("one is cut", || service.stalled() == 1);
    wait_until("its lane is over", || service.metric("rebate_lanes ") == 2);
    honest.submit(job(&pool, 0, 64 << 10));
    assert_eq!(honest.outcomes(1), [DONE]);
    let is_over = |client: &mut Client| {
        client.poll();
        client.queue.try_submit(job(&pool, 0, 64)).is_err()
    };
    wait_until("the client hears of it", || is_over(&mut most));
    assert!(!is_over(&mut less), "there is room now");
}

#[test]
fn a_drain_answers_jobs_and_ends_idle_lanes() {
    let gate = Gate::new(false);
    let mut service = Service::start(&gate, |_| {});
    let pool = Pool::heap(ByteCount(0));
    let (mut busy, mut idle) = (service.client(&pool), service.client(&pool));
    for _ in 0..2 {
        busy.submit(job(&pool, 0, 1_000));
    }
    wait_until("all four are under way", || service.begun() == 4);
    idle.queue.cancel(0);
    let (path, running) = (service.path(), service.running.take().expect("runs"));
    let draining = thread::spawn(move || running.drain(TIMEOUT));
    wait_until("nobody listens any more", || !path.exists());
    assert!(!draining.is_finished(), "there are jobs under way");
    gate.open();
    assert_eq!(busy.outcomes(3), [DONE, DONE, DONE]);
    assert!(draining.join().expect("no panic"), "no lane had to be cut");
    assert_eq!(idle.outcomes(1), [Outcome::Failed(DeviceError::Cancelled)]);
    for mut client in [busy, idle] {
        let refused = || {
            client.poll();
            client.queue.try_submit(job(&pool, 0, 1_000)).is_err()
        };
        wait_until("the lane is over", refused);
    }
}

#[test]
fn a_reload_of_the_rules_closes_lanes_without_the_right() {
    let gate = Gate::new(true);
    let rules = |right: &str| {
        let uid = rustix::process::getuid().as_raw();
        format!(
            "[roles.frontend]\ncommands = [\"{right}\"]\ntenant = 5\n\
             [[unix]]\nuid = {uid}\nrole = \"frontend\"\n"
        )
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |right| std::fs::write(file.path(), rules(right)).expect("it is written");
    write("compression-service");
    let service = Service::start(&gate, |config| {
        config.server.access_file = Some(file.path().to_owned());
    });
    let pool = Pool::heap(ByteCount(0));
    let mut client = service.client(&pool);
    assert_eq!(client.outcomes(1), [DONE]);
    assert_eq!(gate.tenants(), [5], "the role's");
    let running = service.running.as_ref().expect("runs");
    // New rules with the same right close nothing.
    running.reload_access();
    client.submit(job(&pool, 0, 1_000));
    assert_eq!(client.outcomes(1), [DONE]);
    write("read");
    running.reload_access();
    // The lane is idle, and is closed all the same.
    let refused = || {
        client.poll();
        let submitted = client.queue.try_submit(job(&pool, 0, 1_000));
        submitted.is_err_and(|refused| refused.reason == RefusedReason::Lost)
    };
    wait_until("the lane is over", refused);
    wait_until("the service has no lane", || service.metric("rebate_lanes ") == 0);
    assert_eq!(service.metric("rebate_access_refused_total{reason=\"rights\"}"), 1);
}

#[test]
fn a_lane_that_floods_leaves_the_others_their_turns() {
    let gate = Gate::new(true);
    let service = Service::start(&gate, |_| {});
    let pool = Pool::heap(ByteCount(0));
    let (mut flood, mut other) = (service.client(&pool), service.client(&pool));
    assert_eq!([flood.outcomes(1), other.outcomes(1)], [[DONE], [DONE]]);
    // This is long enough for both lanes to sleep, so that a doorbell must be noticed during the flood.
    thread::sleep(Duration::from_millis(5));
    let before = gate.tenants().len();
    gate.stick();
    flood.submit(job(&pool, 1, 64));
    gate.await_stuck();
    for _ in 1..FLOOD {
        flood.submit(job(&pool, 1, 64));
    }
    for _ in 0..20 {
        other.submit(job(&pool, 2, 64));
    }
    gate.go_on();
    assert_eq!(other.outcomes(20), vec![DONE; 20]);
    assert_eq!(flood.outcomes(FLOOD), vec![DONE; FLOOD]);
    let order = gate.tenants().split_off(before);
    let last = order.iter().rposition(|tenant| *tenant == PEERS + 1).expect("they ran");
    // This allows two turns of the other lane, and turns of the flood before, between and after them.
    assert!(last < 100, "the other's last job was the {last}th: {order:?}");
}

const FLOOD: usize = 250;

#[test]
fn a_lane_is_one_tenant_whatever_its_jobs_say() {
    let gate = Gate::new(false);
    let service = Service::start(&gate, |config| config.runtime.tenant_jobs_max = 2);
    let pool = Pool::heap(ByteCount(0));
    let (mut first, mut second) = (service.client(&pool), service.client(&pool));
    wait_until("both are under way", || gate.tenants() == [PEERS, PEERS + 1]);
    for client in [&mut first, &mut second] {
        for tenant in [7, 8, 9] {
            client.submit(job(&pool, tenant, 1_000));
        }
    }
    wait_until("all are begun", || service.begun() == 8);
    let mut in_flight = gate.tenants();
    in_flight.sort_unstable();
    assert_eq!(in_flight, [PEERS, PEERS, PEERS + 1, PEERS + 1]);
    gate.open();
    for client in [&mut first, &mut second] {
        let all = client.outcomes(4);
        assert!(all.iter().all(|outcome| matches!(outcome, Outcome::Done { .. })), "{all:?}");
    }
}

#[test]
fn connections_over_grpc_are_tenants_by_themselves_as_lanes_are() {
    let gate = Gate::new(true);
    let service = Service::start(&gate, |config| {
        config.server.grpc_listen = vec!["127.0.0.1:0".to_owned()];
    });
    let running = service.running.as_ref().expect("runs");
    let address = Address::Tcp(running.grpc_addresses()[0].to_string());
    let pool = Pool::heap(ByteCount(0));
    let _lane = service.client(&pool);
    let options = RemoteOptions {
        timeout: 2 * TIMEOUT,
        connect_timeout: TIMEOUT,
        ..RemoteOptions::default()
    };
    let remote = Remote::new(address, &options).expect("an address");
    // Each client connects after the previous one was served, and all stay connected.
    let _clients = [(); 2].map(|()| {
        let queue = remote.open_queue(Waker::noop().clone()).expect("opens");
        let mut client = Client { queue, done: Vec::new() };
        client.submit(job(&pool, 1, 1_000));
        assert_eq!(client.outcomes(1), [DONE]);
        client
    });
    assert_eq!(gate.tenants(), [PEERS, PEERS + 1, PEERS + 2]);
}
