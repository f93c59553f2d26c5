//! A frontend and the compression service next door, over a lane, as two processes: both count the jobs, and whoever
//! is killed, stopped or started again, clients get their values and memory stays what it was.

mod services;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rebate_tests::payload::{random, text};
use rebate_tests::process::Process;
use rebate_tests::server::rebate_binary;
use rebate_tests::{Load, PATIENCE, Server, poll_for};
use rustix::process::Signal;
use services::metrics;

/// A process with the compression service alone, behind a lane and nothing else.
struct Service {
    process: Process,
    path: PathBuf,
    admin: SocketAddr,
}

impl Service {
    fn start(path: &Path) -> Self {
        let ours = ["serve", "--role", "compression", "--threads", "1"];
        let admin = ["--admin-listen", "127.0.0.1:0", "--lane-listen"];
        let mut command = Command::new(rebate_binary());
        let mut process = Process::start(command.args(ours).args(admin).arg(path));
        let printed = process
            .await_ready(PATIENCE, "line `lane on PATH`", |process| process.printed("lane on "));
        assert_eq!(printed, path.display().to_string());
        let admin = process.printed("admin on ").expect("printed before `lane on`");
        Self { process, path: path.to_owned(), admin: admin.parse().expect("an address") }
    }

    /// Jobs that came over lanes since it started.
    fn jobs(&self) -> f64 {
        metrics(self.admin)["rebate_lane_jobs_total{result=\"begun\"}"]
    }

    fn lanes(&self) -> f64 {
        metrics(self.admin)["rebate_lanes"]
    }

    /// Waits until jobs come over a lane again.
    fn await_jobs(&self) {
        let before = self.jobs();
        let came = poll_for(3 * PATIENCE, || (self.jobs() > before + 20.0).then_some(()));
        assert!(came.is_some(), "{} jobs, {before} before", self.jobs());
    }
}

/// A frontend with one worker thread that offloads every value to the service, and finds a silent one soon.
fn frontend(path: &Path) -> Server {
    frontend_of("embedded", path)
}

/// As `frontend`, of that store.
fn frontend_of(store: &str, path: &Path) -> Server {
    let compression = format!("lane:{}", path.display());
    let ours = ["--role", "frontend", "--threads", "1", "--workers", "0"];
    let offload = ["--compression", &compression, "--set", "runtime.offload_bytes_min=0"];
    let pages = ["--admin-listen", "127.0.0.1:0", "--set", "runtime.job_timeout_ms=100"];
    Server::rebate_serve(store, "on", &[&ours[..], &offload, &pages].concat())
}

fn device_counter(server: &Server, path: &Path, counter: &str) -> f64 {
    let admin = server.admin().expect("printed before `listening on`");
    let device = format!("lane-{}", path.display());
    let name = format!("rebate_device_counter_total{{device=\"{device}\",counter=\"{counter}\"}}");
    metrics(admin)[&name]
}

#[test]
fn values_go_over_the_lane_and_both_sides_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let ours = frontend(&service.path);
    let mut client = ours.client();
    for version in 0..200 {
        let key = format!("key_{version}");
        let value = rebate_tests::load::value(&key, version);
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&key), Ok(Some(value)));
    }
    assert!(service.jobs() > 150.0, "{}", service.jobs());
    assert_eq!((service.lanes(), device_counter(&ours, &service.path, "lanes_opened")), (1.0, 1.0));
    let results = device_counter(&ours, &service.path, "results_copied");
    assert!(results > 0.0 && results <= service.jobs(), "{results} of {} jobs", service.jobs());
    assert!(metrics(service.admin)["rebate_lane_copies_total"] >= service.jobs());
    let logged = ours.output();
    assert!(logged.contains(": a lane"), "{logged}");
    drop(ours);
    let gone = poll_for(PATIENCE, || (service.lanes() == 0.0).then_some(()));
    assert!(gone.is_some(), "the lane of a frontend that is gone stays open");
}

/// A value is read from the client's socket to where the service reads it, a stream from the store's.
#[test]
fn the_frontend_copies_no_value_on_its_way_to_the_service() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start(&folder.path().join("lane"));
    let store = Server::memcached(&["-m", "64"]);
    let ours = frontend_of(&store.as_store(), &service.path);
    let mut client = ours.client();
    for version in 0..30 {
        let key = format!("key_{version}");
        // It shrinks, and to more than the few KiB that are read with others.
        let value = [text((20 + version) << 10), random(8 << 10)].concat();
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&key), Ok(Some(value)));
    }
    let counter = |name| device_counter(&ours, &service.path, name);
    assert_eq!((counter("inputs_copied"), counter("inputs_copied_bytes")), (0.0, 0.0));
    assert!(counter("inputs_in_place") > 40.0, "{}", counter("inputs_in_place"));
    assert_eq!(counter("inputs_in_place"), service.jobs());
}

#[test]
fn over_grpc_a_frontend_says_so_and_that_a_lane_would_do() {
    let service = services::Service::start("compression", 0, &[]);
    let address = service.grpc.to_string();
    let ours = ["--role", "frontend", "--threads", "1", "--workers", "0"];
    let offload = ["--compression", &address, "--set", "runtime.offload_bytes_min=0"];
    let pages = ["--admin-listen", "127.0.0.1:0"];
    let ours = Server::rebate_serve("embedded", "on", &[&ours[..], &offload, &pages].concat());
    let logged = ours.output();
    assert!(logged.contains(": gRPC; it is on this host: a lane"), "{logged}");
    let mut client = ours.client();
    let value = rebate_tests::load::value("key", 2);
    let device = format!("device=\"remote-{address}\"");
    let goes = poll_for(PATIENCE, || {
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
    let mut client = ours.client();
    let value = rebate_tests::load::value("key", 2);
    assert_eq!(client.set("key", &value).as_deref(), Ok("STORED"));
    let spent = |admin| metrics(admin)["process_cpu_seconds_total"];
    let admins = [service.admin, ours.admin().expect("printed")];
    let before = admins.map(spent);
    std::thread::sleep(Duration::from_millis(600));
    for (admin, before) in admins.into_iter().zip(before) {
        let spent = spent(admin) - before;
        assert!(spent < 0.1, "{spent} s in 0.6 s of nothing");
    }
}

/// Under load: the service killed and started again, the service stopped and let go on, another frontend of the same
/// service killed in the middle of its jobs; so many times each.
fn faults(rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lane");
    let mut service = Service::start(&path);
    let ours = frontend(&path);
    let load = Load::start(ours.addr());
    service.await_jobs();
    let mut memory = Vec::new();
    for _ in 0..rounds {
        service.process.kill();
        load.await_good(50);
        service = Service::start(&path);
        service.await_jobs();

        service.process.signal(Signal::STOP);
        load.await_good(50);
        service.process.signal(Signal::CONT);
        service.await_jobs();

        let mut other = frontend(&path);
        let others = Load::start(other.addr());
        others.await_good(50);
        other.kill();
        // Its clients lose their connections, which is all that they may notice.
        let wrong = others.stop();
        assert!(wrong.iter().all(|line| !line.starts_with("wrong bytes")), "{wrong:#?}");
        load.await_good(50);
        service.await_jobs();

        ours.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(20));
        ours.signal(Signal::CONT);
        load.await_good(50);
        memory.push(ours.rss_bytes().expect("it runs"));
    }
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let (early, late) = (memory[memory.len() / 4], memory[memory.len() - 1]);
    assert!(late < early + GROWTH_BYTES_MAX, "{memory:?}");
    let lanes = poll_for(PATIENCE, || (service.lanes() == 1.0).then_some(()));
    assert!(lanes.is_some(), "{} lanes for one frontend", service.lanes());
}

#[test]
fn either_side_killed_or_stopped_costs_no_value() {
    faults(2);
}

/// `cargo test --release -p rebate-tests --test lane -- --ignored` (about four minutes).
#[test]
#[ignore = "minutes: cargo test --release -p rebate-tests --test lane -- --ignored"]
fn either_side_killed_or_stopped_a_hundred_times_costs_no_value() {
    faults(100);
}

/// What allocators and the 50 keys of each connection still move; a lost half would be a multiple, in time.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
