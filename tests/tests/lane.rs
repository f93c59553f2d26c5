//! Tests a frontend and the compression service on the same host, over a lane, as two processes. Both must count the
//! jobs. When one of them is killed, stopped or started again, clients must get every stored value, and memory must not
//! grow.

mod services;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rebate_tests::Process;
use rebate_tests::payload::{random, text};
use rebate_tests::{Load, Server, TIMEOUT, poll_for, rebate_command};
use services::metrics;

/// A process that runs only the compression service and accepts only lanes.
struct Service {
    process: Process,
    path: PathBuf,
    admin: SocketAddr,
}

impl Service {
    fn start(path: &Path) -> Self {
        let ours = ["serve", "--role", "compression", "--threads", "1"];
        let admin = ["--admin-listen", "127.0.0.1:0", "--lane-listen"];
        let mut process =
            Process::start(rebate_command().args(ours).args(admin).arg(path)).expect("it starts");
        let printed = process
            .await_ready(TIMEOUT, "line `lane on PATH`", |process| process.printed("lane on "))
            .expect("it serves");
        assert_eq!(printed, path.display().to_string());
        let admin = process.printed("admin on ").expect("printed before `lane on`");
        Self { process, path: path.to_owned(), admin: admin.parse().expect("an address") }
    }

    /// Returns the number of jobs that came over lanes since the service started.
    fn jobs(&self) -> f64 {
        metrics(self.admin)["rebate_lane_jobs_total{result=\"begun\"}"]
    }

    fn lanes(&self) -> f64 {
        metrics(self.admin)["rebate_lanes"]
    }

    /// Waits until another job comes over a lane.
    fn await_jobs(&self) {
        let before = self.jobs();
        let came = poll_for(3 * TIMEOUT, || (self.jobs() > before + 20.0).then_some(()));
        assert!(came.is_some(), "{} jobs, {before} before", self.jobs());
    }
}

/// Starts a frontend with one worker thread that offloads every value to the service.
fn frontend(path: &Path) -> Server {
    frontend_of("embedded", path, &[])
}

/// Does the same as `frontend`, with this store and these arguments.
fn frontend_of(store: &str, path: &Path, args: &[&str]) -> Server {
    let compression = format!("lane:{}", path.display());
    let ours = ["--role", "frontend", "--threads", "1", "--workers", "0"];
    let offload = ["--compression", &compression, "--set", "runtime.offload_bytes_min=0"];
    let pages = ["--admin-listen", "127.0.0.1:0"];
    Server::rebate_serve(store, "on", &[&ours[..], &offload, &pages, args].concat())
}

/// Waits until the first job of the frontend has reached the service.
fn await_lane(ours: &Server, service: &Service) {
    let mut client = ours.client();
    let value = rebate_tests::load::value("key", 2);
    let is_open = poll_for(TIMEOUT, || {
        assert_eq!(client.set("key", &value).as_deref(), Ok("STORED"));
        (service.jobs() > 0.0).then_some(())
    });
    assert!(is_open.is_some(), "no job comes over a lane");
}

fn device_counter(server: &Server, path: &Path, counter: &str) -> f64 {
    let admin = server.admin().expect("printed before `listening on`");
    let device = format!("lane-{}", path.display());
    let name = format!("rebate_device_counter_total{{device=\"{device}\",counter=\"{counter}\"}}");
    metrics(admin)[&name]
}

/// Waits until the frontend has tested the service. The test uses a separate lane, which is then closed.
fn await_qualified(ours: &Server, service: &Service) {
    ours.await_printed("qualified in").expect("it prints that");
    let is_one = poll_for(TIMEOUT, || (service.lanes() == 1.0).then_some(()));
    assert!(is_one.is_some(), "{} lanes are open", service.lanes());
}

#[test]
fn values_go_over_the_lane_and_both_sides_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let ours = frontend(&service.path);
    await_qualified(&ours, &service);
    let mut client = ours.client();
    for version in 0..200 {
        let key = format!("key_{version}");
        let value = rebate_tests::load::value(&key, version);
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&key), Ok(Some(value)));
    }
    assert!(service.jobs() > 150.0, "{}", service.jobs());
    assert_eq!((service.lanes(), device_counter(&ours, &service.path, "lanes_opened")), (1.0, 2.0));
    let results = device_counter(&ours, &service.path, "results_copied");
    assert!(results > 0.0 && results <= service.jobs(), "{results} of {} jobs", service.jobs());
    assert!(metrics(service.admin)["rebate_lane_copies_total"] >= service.jobs());
    ours.await_printed(": a lane").expect("it prints that");
    drop(ours);
    let gone = poll_for(TIMEOUT, || (service.lanes() == 0.0).then_some(()));
    assert!(gone.is_some(), "the lane of a frontend that is gone stays open");
}

/// Checks that the lane's client copies no input. Values from the client's socket and streams from the
/// store's socket are read directly into memory that the service reads. Only the bytes that are read together
/// with the line in front of a value are copied, and they are counted.
#[test]
fn only_the_bytes_read_with_the_line_are_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let store = Server::memcached(&["-m", "64"]);
    let ours = frontend_of(&store.as_store(), &service.path, &[]);
    await_qualified(&ours, &service);
    let names = ["inputs_copied", "inputs_copied_bytes", "inputs_in_place"];
    let counters = || names.map(|name| device_counter(&ours, &service.path, name));
    let (before, jobs_before) = (counters(), service.jobs());
    let mut client = ours.client();
    let (mut from_client, mut from_store) = (0.0, 0.0);
    for version in 0..30 {
        let key = format!("key_{version}");
        // The value compresses, but to more than the few KiB that have no separate memory.
        let value = [text((20 + version) << 10), random(8 << 10)].concat();
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
        from_client += READ_WITH_A_LINE_BYTES;
        let stored = store.client().get(&key).expect("an answer").expect("it is there");
        from_store += stored.len() as f64;
        assert_eq!(client.get(&key), Ok(Some(value)));
    }
    let after = counters();
    let [copied, copied_bytes, in_place] = std::array::from_fn(|at| after[at] - before[at]);
    assert_eq!((copied, copied_bytes), (0.0, 0.0));
    assert!(in_place > 40.0, "{in_place}");
    assert_eq!(in_place, service.jobs() - jobs_before);
    let all = metrics(ours.admin().expect("printed"));
    for (from, most) in [("client", from_client), ("store", from_store + 60.0)] {
        let copies = all[&format!("rebate_value_copies_total{{from=\"{from}\"}}")];
        let bytes = all[&format!("rebate_value_copied_bytes_total{{from=\"{from}\"}}")];
        assert!(copies > 0.0 && copies <= 30.0, "{copies} values from the {from}");
        assert!(bytes > 0.0 && bytes <= most, "{bytes} bytes from the {from}, {most} at most");
    }
}

/// The size of one read of a connection (bytes).
const READ_WITH_A_LINE_BYTES: f64 = 16_384.0;

#[test]
fn a_frontend_over_grpc_suggests_a_lane() {
    let service = services::Service::start("compression", 0, &[]);
    let address = service.grpc.to_string();
    let ours = ["--role", "frontend", "--threads", "1", "--workers", "0"];
    let offload = ["--compression", &address, "--set", "runtime.offload_bytes_min=0"];
    let pages = ["--admin-listen", "127.0.0.1:0"];
    let ours = Server::rebate_serve("embedded", "on", &[&ours[..], &offload, &pages].concat());
    ours.await_printed(": gRPC; it is on this host: a lane").expect("it prints that");
    let mut client = ours.client();
    let value = rebate_tests::load::value("key", 2);
    let device = format!("device=\"remote-{address}\"");
    let goes = poll_for(TIMEOUT, || {
        assert_eq!(client.set("key", &value).as_deref(), Ok("STORED"));
        let all = metrics(ours.admin().expect("printed"));
        let jobs = all.iter().filter(|(name, _)| name.starts_with("rebate_jobs_total{"));
        let jobs: f64 = jobs.filter(|(name, _)| name.contains(&device)).map(|(_, n)| n).sum();
        (jobs > 0.0).then_some(())
    });
    assert!(goes.is_some(), "no job over gRPC");
}

#[test]
fn an_idle_lane_costs_no_processor_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let ours = frontend(&service.path);
    await_lane(&ours, &service);
    let both: [&Process; 2] = [&service.process, &ours];
    let mut spent = Vec::new();
    // The time of a core that the host takes away is charged to the process on it. One bad interval is therefore not a
    // failure.
    let at_rest = poll_for(TIMEOUT, || {
        let (before, begun) = (both.map(ticks), Instant::now());
        std::thread::sleep(Duration::from_millis(1_500));
        let passed = begun.elapsed().as_secs_f64() * rustix::param::clock_ticks_per_second() as f64;
        let after = both.map(ticks).into_iter().zip(before);
        spent = after.map(|(after, before)| (after - before) as f64 / passed).collect();
        spent.iter().all(|share| *share <= IDLE_SHARE_MAX).then_some(())
    });
    assert!(at_rest.is_some(), "{spent:?} of a core for nothing");
}

/// Returns the processor time that a process has used (ticks).
fn ticks(process: &Process) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("it runs");
    let (_, behind_name) = stat.rsplit_once(") ").expect("a name in brackets");
    let user_and_system = behind_name.split(' ').skip(11).take(2);
    user_and_system.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// The largest share of a core that an idle process may use. A process that polls uses a whole core.
const IDLE_SHARE_MAX: f64 = 0.02;

/// Returns the numbers of mappings and of descriptors of lane memory that a process holds.
fn memory_of_lanes(process: &Process) -> (usize, usize) {
    let of_lanes = |name: &str| name.contains("memfd:rebate-shared");
    let folder = format!("/proc/{}", process.id());
    let maps = std::fs::read_to_string(format!("{folder}/maps")).expect("it runs");
    let files = std::fs::read_dir(format!("{folder}/fd")).expect("it runs");
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let open = names.filter(|name| of_lanes(&name.to_string_lossy())).count();
    (maps.lines().filter(|line| of_lanes(line)).count(), open)
}

/// Returns the lane memory (mappings, descriptors) of a frontend that has one lane and has lost none.
fn memory_of_a_frontend(service: &Service) -> (usize, usize) {
    let ours = frontend(&service.path);
    await_lane(&ours, service);
    memory_of_lanes(&ours)
}

/// Disturbs a frontend and its service under load, `rounds` times. Each round kills the service and starts it again,
/// stops and continues the service, and stops and continues the frontend.
fn service_faults(rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lane");
    let mut service = Service::start(&path);
    let of_one_lane = memory_of_a_frontend(&service);
    // The short timeout detects a silent service soon.
    let ours = frontend_of("embedded", &path, &["--set", "runtime.job_timeout_ms=100"]);
    let load = Load::start(ours.addr());
    service.await_jobs();
    let mut memory = Vec::new();
    for _ in 0..rounds {
        service.process.kill();
        load.await_good(50);
        service = Service::start(&path);
        service.await_jobs();

        service.process.stop().expect("it stands still");
        load.await_good(50);
        service.process.go_on();
        service.await_jobs();

        ours.stop().expect("it stands still");
        std::thread::sleep(Duration::from_millis(20));
        ours.go_on();
        load.await_good(50);
        memory.push(ours.rss_bytes().expect("it runs"));
    }
    assert_eq!(load.missed(), (0, 0), "errors, and values that were stored and not there");
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_flat(&memory);
    let back = poll_for(TIMEOUT, || (memory_of_lanes(&ours) == of_one_lane).then_some(()));
    assert!(back.is_some(), "{:?} for {of_one_lane:?} at first", memory_of_lanes(&ours));
    let lanes = poll_for(TIMEOUT, || (service.lanes() == 1.0).then_some(()));
    assert!(lanes.is_some(), "{} lanes for one frontend", service.lanes());
}

/// Kills `rounds` frontends of one service under load, one after the other. Each frontend is stopped and
/// continued before it is killed.
fn frontend_faults(rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let left = || {
        let held = metrics(service.admin)["rebate_lane_held_bytes"];
        (service.lanes(), held, memory_of_lanes(&service.process))
    };
    let mut memory = Vec::new();
    for _ in 0..rounds {
        let mut ours = frontend(&service.path);
        let load = Load::start(ours.addr());
        service.await_jobs();
        ours.stop().expect("it stands still");
        std::thread::sleep(Duration::from_millis(20));
        ours.go_on();
        load.await_good(50);
        assert_ne!(left(), (0.0, 0.0, (0, 0)), "its lane is gone before it is killed");
        ours.kill();
        let missed = load.missed();
        // The clients lose their connections. They must notice nothing else.
        let wrong = load.stop();
        assert!(wrong.iter().all(|line| !line.starts_with("wrong bytes")), "{wrong:#?}");
        assert_eq!(missed, (0, 0), "errors, and values that were stored and not there");
        let nothing = poll_for(TIMEOUT, || (left() == (0.0, 0.0, (0, 0))).then_some(()));
        assert!(nothing.is_some(), "lanes, bytes and memory of a dead frontend: {:?}", left());
        memory.push(service.process.rss_bytes().expect("it runs"));
    }
    assert_flat(&memory);
}

fn assert_flat(memory: &[u64]) {
    let (early, late) = (memory[memory.len() / 4], memory[memory.len() - 1]);
    assert!(late < early + GROWTH_BYTES_MAX, "{memory:?}");
}

#[test]
fn a_service_killed_or_stopped_costs_no_value() {
    service_faults(1);
}

#[test]
fn a_frontend_killed_leaves_nothing_with_its_service() {
    frontend_faults(4);
}

/// This test takes about four minutes, so it is ignored by default.
#[test]
#[ignore = "a hundred kills take minutes: cargo test --release -p rebate-tests --test lane -- \
            --ignored"]
fn a_service_killed_or_stopped_a_hundred_times_costs_no_value() {
    service_faults(100);
}

/// This test takes minutes, so it is ignored by default.
#[test]
#[ignore = "a hundred kills take minutes: cargo test --release -p rebate-tests --test lane -- \
            --ignored"]
fn a_hundred_frontends_killed_leave_nothing_with_their_service() {
    frontend_faults(100);
}

/// The growth of memory that the test allows (bytes), for allocators and the 50 keys of each connection. A
/// leaked part of a lane may be smaller, but it increases the number of mappings.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
