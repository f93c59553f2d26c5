//! Tests what other clients and the health pages see while something outside the data path fails: the log, the limit on
//! open files, a server of a ring, the limit on connections. The times are printed. The limits in these tests only end
//! waits that hang.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{PipeReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rebate_tests::http::page;
use rebate_tests::{Bystander, Port, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

const ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];
/// Sets the timeout for the servers of a ring to its default. Servers in tests otherwise have a longer timeout.
const IMPATIENT: [&str; 2] = ["--set", "store.timeout_ms=1000"];

fn serve(store: &str, args: &[&str], stderr: impl Into<Stdio>) -> Server {
    let ours = ["serve", "--listen", "127.0.0.1:0", "--threads", "2", "--store", store];
    Server::rebate_with(rebate_command().args(ours).args(ADMIN).args(args), stderr)
}

fn admin_of(server: &Server) -> SocketAddr {
    server.admin().expect("the admin address is printed before `listening on`")
}

fn status(server: &Server, path: &str) -> Option<u16> {
    page(admin_of(server), path).map(|(status, _)| status)
}

fn metric(server: &Server, name: &str) -> Option<f64> {
    let (_, text) = page(admin_of(server), "/metrics")?;
    let line = text
        .lines()
        .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Waits until /readyz has this status. Returns the time that this took, and the page.
fn await_ready(server: &Server, wanted: u16) -> (Duration, String) {
    let since = Instant::now();
    let body = poll_for(TIMEOUT, || {
        let (status, body) = page(admin_of(server), "/readyz")?;
        (status == wanted).then_some(body)
    });
    let body = body.unwrap_or_else(|| panic!("/readyz is not {wanted}\n{}", server.output()));
    (since.elapsed(), body)
}

fn end(server: &mut Server) {
    server.signal(Signal::TERM);
    let ended = server.wait_exit(TIMEOUT).expect("the drain ends");
    assert_eq!(ended.code(), Some(0));
}

/// Kills memcached under clients, starts it again, and ends the server. The server writes its log to `log`.
fn outage_with_log(what: &str, log: impl Into<Stdio>, reader: Option<PipeReader>) {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let mut ours = serve(&store.as_store(), &[], log);
    let bystander = Bystander::start(ours.addr(), 2, 500, TIMEOUT);
    await_ready(&ours, 200);
    drop(reader);
    store.kill();
    let (gone, _) = await_ready(&ours, 503);
    assert_eq!(status(&ours, "/healthz"), Some(200), "the process can do its work");
    let _store = Server::memcached_at(port.number(), &[]);
    let since = Instant::now();
    let mut client = ours.client();
    let stored = || (client.set("a", b"1").as_deref() == Ok("STORED")).then_some(());
    assert!(poll_for(TIMEOUT, stored).is_some(), "clients do not recover");
    let recovered = since.elapsed();
    let (back, _) = await_ready(&ours, 200);
    let lost = metric(&ours, "rebate_log_lines_lost_total{reason=\"write_failed\"}");
    assert!(lost > Some(0.0), "{lost:?} lines were lost");
    let report = bystander.stop();
    end(&mut ours);
    println!(
        "{what}: not ready after {gone:?}; clients served {recovered:?} and ready {back:?} after the restart; {} \
         requests done, {} failed, p99 {:?}",
        report.latencies.len(),
        report.failures.len(),
        report.quantile(0.99)
    );
}

/// Writes a configuration file with this compression level.
fn configuration(level: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rebate.toml");
    std::fs::write(&file, format!("[compress]\nlevel = \"{level}\"\n")).expect("it is written");
    (folder, file)
}

/// Changes the level in the file and waits until the server uses it.
fn reload(server: &Server, file: &Path, level: &str) {
    let wanted = format!("level = \"{level}\"");
    std::fs::write(file, format!("[compress]\n{wanted}\n")).expect("it is written");
    server.signal(Signal::HUP);
    let is_shown = || page(admin_of(server), "/config")?.1.contains(&wanted).then_some(());
    assert!(poll_for(TIMEOUT, is_shown).is_some(), "{wanted} is not taken over");
}

#[test]
fn a_closed_log_costs_clients_nothing() {
    let (reader, log) = std::io::pipe().expect("a pipe");
    outage_with_log("closed log", log, Some(reader));
}

#[test]
fn a_full_disk_of_the_log_costs_clients_nothing() {
    let full = File::options().write(true).open("/dev/full").expect("there is one");
    outage_with_log("full disk", full, None);
}

#[test]
fn a_log_that_is_never_read_freezes_nothing() {
    let (reader, log) = std::io::pipe().expect("a pipe");
    let (_folder, file) = configuration("fast");
    let shown = file.display().to_string();
    let args = ["-vv", "--config", &shown, "--grpc-listen", "127.0.0.1:0"];
    let mut ours = serve("embedded", &args, log);
    let grpc = ours.printed("grpc on ").expect("printed before `listening on`");
    let bystander = Bystander::start(ours.addr(), 2, 500, TIMEOUT);
    // At this log level every HTTP/2 frame gives several lines. These are far more than the pipe and the queue hold.
    let mut pings = TcpStream::connect(&grpc).expect("gRPC accepts");
    pings.set_write_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    pings.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it reads");
    let mut answers = pings.try_clone().expect("a second handle");
    let reading = thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let lost = poll_for(TIMEOUT, || {
        pings.write_all(&b"\0\0\x08\x06\0\0\0\0\0rebate!!".repeat(1_000)).expect("it reads");
        let lost = metric(&ours, "rebate_log_lines_lost_total{reason=\"queue_full\"}")?;
        (lost > 0.0).then_some(lost)
    });
    assert!(lost.is_some(), "no line is lost");
    pings.shutdown(Shutdown::Both).expect("it is open");
    let _answers = reading.join();
    reload(&ours, &file, "high");
    assert_eq!(status(&ours, "/readyz"), Some(200));
    let report = bystander.stop();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    end(&mut ours);
    drop(reader);
    println!("{} requests, p99 {:?}", report.latencies.len(), report.quantile(0.99));
}

#[test]
fn a_reload_with_a_closed_log_is_done() {
    let (_folder, file) = configuration("fast");
    let (reader, log) = std::io::pipe().expect("a pipe");
    let mut ours = serve("embedded", &["--config", &file.display().to_string()], log);
    let mut client = ours.client();
    assert_eq!(client.set("a", b"1").as_deref(), Ok("STORED"));
    drop(reader);
    for level in ["high", "default"] {
        reload(&ours, &file, level);
    }
    assert_eq!(client.get("a"), Ok(Some(b"1".to_vec())), "the store is what it was");
    end(&mut ours);
}

#[test]
fn memcacheds_flags_log_without_waiting_as_well() {
    let (reader, log) = std::io::pipe().expect("a pipe");
    let args = ["memcached", "-p", "-1", "-l", "127.0.0.1", "-U", "0", "-u", "root", "-vvv"];
    let mut ours = Server::rebate_with(rebate_command().args(args), log);
    drop(reader);
    let mut client = ours.client();
    ours.signal(Signal::HUP);
    assert_eq!(client.set("a", b"1").as_deref(), Ok("STORED"));
    end(&mut ours);
}

/// Returns the number of the next descriptor that the process would open. If this number is set as the limit,
/// the process can open no further descriptor. It is the least of several readings, because the process opens files
/// for moments.
fn next_descriptor(server: &Server) -> u64 {
    let least = (0..20).map(|_| {
        thread::sleep(Duration::from_millis(5));
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.id())).expect("it runs");
        let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let numbers: BTreeSet<u64> = numbers.collect();
        (0..).find(|number| !numbers.contains(number)).expect("a limit is set")
    });
    least.min().expect("twenty readings")
}

fn limit_descriptors(server: &Server, limit: u64) {
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id()));
    let limits = limits.expect("it runs");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let new = Rlimit { current: Some(limit), maximum: hard };
    prlimit(pid, Resource::Nofile, new).expect("a child's limit may be set");
}

#[test]
fn without_descriptors_clients_wait_and_others_are_served() {
    let ours = serve("embedded", &[], Stdio::piped());
    let bystander = Bystander::start(ours.addr(), 2, 500, TIMEOUT);
    let mut established = ours.client();
    assert_eq!(established.set("a", b"1").as_deref(), Ok("STORED"));
    let since = Instant::now();
    limit_descriptors(&ours, next_descriptor(&ours));
    let waiting: Vec<_> = (0..32).map(|_| ours.client()).collect();
    ours.await_printed("accepting failed").expect("it prints that");
    // An acceptor retries a hundred times per second. The log must still accept other lines.
    thread::sleep(Duration::from_millis(1_500));
    for _ in 0..100 {
        assert_eq!(established.get("a"), Ok(Some(b"1".to_vec())));
    }
    limit_descriptors(&ours, 1_024);
    let mut last = waiting.into_iter().next_back().expect("there are 32");
    last.deadline = TIMEOUT;
    assert_eq!(last.get("a"), Ok(Some(b"1".to_vec())), "it is served once there is room");
    let passed_s = since.elapsed().as_secs_f64();
    let errors = metric(&ours, "rebate_accept_errors_total");
    assert!(errors > Some(0.0), "{errors:?}");
    let lines = ours.output().matches("accepting failed").count();
    assert!(lines as f64 <= passed_s + 2.0, "{lines} lines in {passed_s} s");
    let report = bystander.stop();
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    println!("{errors:?} failed attempts, {lines} lines; p99 {:?}", report.quantile(0.99));
}

#[test]
fn clients_leave_descriptors_to_pages_and_servers() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let ours = serve(&store.as_store(), &[], Stdio::piped());
    await_ready(&ours, 200);
    limit_descriptors(&ours, next_descriptor(&ours) + 48);
    let mut clients: Vec<_> = (0..64).map(|_| ours.client()).collect();
    let mut is_refused = clients.pop().expect("there are 64");
    let refused = is_refused.read_line();
    assert_eq!(refused.as_deref(), Some("ERROR Too many open connections"));
    store.kill();
    await_ready(&ours, 503);
    let _store = Server::memcached_at(port.number(), &[]);
    await_ready(&ours, 200);
    assert_eq!(clients[0].set("a", b"1").as_deref(), Ok("STORED"));
    assert_eq!(metric(&ours, "rebate_accept_errors_total"), Some(0.0));
}

#[test]
fn more_connections_than_the_system_allows_are_lowered() {
    let (_folder, file) = configuration("fast");
    let shown = file.display().to_string();
    let args = ["--connections-max", "2000000000", "--config", &shown];
    let mut ours = serve("embedded", &args, Stdio::piped());
    let max = metric(&ours, "rebate_connections_max").expect("it is shown");
    assert!((1.0..2e9).contains(&max), "{max}");
    ours.await_printed("instead of 2000000000").expect("it prints that");
    reload(&ours, &file, "high");
    assert_eq!(metric(&ours, "rebate_connections_max"), Some(max), "a reload does not raise it");
    end(&mut ours);
}

#[test]
fn readiness_follows_stopped_servers_by_its_rule() {
    let stores: Vec<_> = (0..3).map(|_| Server::memcached(&[])).collect();
    let ring: Vec<_> = stores.iter().map(|store| store.addr().to_string()).collect();
    let ring = format!("memcached://{}", ring.join(","));
    let rules = ["any", "most", "all"];
    let servers = rules.map(|rule| {
        let rule = format!("server.ready_when={rule}");
        serve(&ring, &[&IMPATIENT[..], &["--set", &rule]].concat(), Stdio::piped())
    });
    let expect = |what: &str, wanted: [u16; 3]| {
        let since = Instant::now();
        for ((server, rule), wanted) in servers.iter().zip(rules).zip(wanted) {
            await_ready(server, wanted);
            println!("{what}: {rule} is {wanted} after {:?}", since.elapsed());
        }
    };
    expect("all up", [200; 3]);
    stores[0].stop().expect("it stands still");
    expect("one stopped", [200, 200, 503]);
    let names = |server: &Server| {
        let (_, body) = page(admin_of(server), "/readyz")?;
        body.contains(&format!("{} is away for workers 0, 1", stores[0].addr())).then_some(())
    };
    for server in &servers {
        assert!(poll_for(TIMEOUT, || names(server)).is_some(), "the server is not named");
    }
    stores[1].stop().expect("it stands still");
    expect("two stopped", [200, 503, 503]);
    stores[2].stop().expect("it stands still");
    expect("all stopped", [503; 3]);
    for server in &servers {
        assert_eq!(status(server, "/healthz"), Some(200));
    }
    stores.iter().for_each(|store| store.go_on());
    expect("all go on", [200; 3]);
}

#[test]
fn a_long_wait_between_attempts_delays_no_readiness() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let minute = ["--set", "store.retry_min_ms=60000", "--set", "store.retry_max_ms=60000"];
    let ours = serve(&store.as_store(), &minute, Stdio::piped());
    await_ready(&ours, 200);
    store.kill();
    let mut client = ours.client();
    assert!(client.get("a").is_err(), "nobody can answer");
    await_ready(&ours, 503);
    let _store = Server::memcached_at(port.number(), &[]);
    let (back, _) = await_ready(&ours, 200);
    println!("ready {back:?} after the server is back");
    assert_eq!(client.set("a", b"1").as_deref(), Ok("STORED"), "ready is true of clients");
}

#[test]
fn grpc_health_agrees_with_readiness() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let ours = serve(&store.as_store(), &["--grpc-listen", "127.0.0.1:0"], Stdio::piped());
    let grpc = ours.printed("grpc on ").expect("printed before `listening on`");
    let says = |wanted: &str, service: &str| {
        let mut ask = rebate_command();
        let ask = ask.args(["health", &grpc, "--service", service]);
        let is_said = || {
            let said = ask.output().ok()?;
            (String::from_utf8_lossy(&said.stdout).trim() == wanted).then_some(())
        };
        assert!(poll_for(TIMEOUT, is_said).is_some(), "{service:?} is not {wanted}");
    };
    says("serving", "");
    store.kill();
    says("not serving", "");
    says("not serving", "rebate.v1.Cache");
    says("serving", "rebate.v1.Compression");
    let _store = Server::memcached_at(port.number(), &[]);
    says("serving", "");
}

#[test]
fn idle_clients_leave_places_for_grpc_and_lanes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lane");
    let lane = path.display().to_string();
    let others = ["--grpc-listen", "127.0.0.1:0", "--lane-listen", &lane];
    let few = ["--connections-max", "64"];
    let ours = serve("embedded", &[&others[..], &few].concat(), Stdio::piped());
    let grpc = ours.printed("grpc on ").expect("printed before `listening on`");
    let mut idle: Vec<_> = (0..64).map(|_| ours.client()).collect();
    let mut last = idle.pop().expect("there are 64");
    assert_eq!(last.read_line().as_deref(), Some("ERROR Too many open connections"));
    let said = rebate_command().args(["health", &grpc]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "serving");
    let _lane = UnixStream::connect(&path).expect("lanes are accepted");
    let open = || metric(&ours, "rebate_listener_connections{listener=\"lane\"}");
    assert!(poll_for(TIMEOUT, || (open()? == 1.0).then_some(())).is_some(), "{:?}", open());
    for (listener, reserved) in [("memcached", 4.0), ("grpc", 4.0), ("lane", 4.0)] {
        let name = format!("rebate_listener_connections_reserved{{listener=\"{listener}\"}}");
        assert_eq!(metric(&ours, &name), Some(reserved), "{listener}");
    }
    assert_eq!(metric(&ours, "rebate_connections_max"), Some(64.0));
}

#[test]
fn admin_pages_refuse_names_of_others() {
    let ours = serve("embedded", &["--set", "server.admin_hosts=cache-1"], Stdio::piped());
    for (host, wanted) in [("evil.example", "403"), ("cache-1:9150", "200"), ("localhost", "200")] {
        let mut stream = TcpStream::connect(admin_of(&ours)).expect("admin accepts");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let request = format!("GET /config HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer");
        assert_eq!(answer.split(' ').nth(1), Some(wanted), "{host}");
        assert_eq!(answer.contains("connections_max"), wanted == "200", "{host}");
    }
}

#[test]
fn many_probes_at_once_are_answered() {
    let store = Server::memcached(&[]);
    let ours = serve(&store.as_store(), &IMPATIENT, Stdio::piped());
    store.stop().expect("it stands still");
    await_ready(&ours, 503);
    let ask = || {
        thread::spawn({
            let admin = admin_of(&ours);
            move || page(admin, "/readyz").map(|(status, _)| status)
        })
    };
    let asked: Vec<_> = (0..32).map(|_| ask()).collect();
    for probe in asked {
        assert_eq!(probe.join().expect("it ends"), Some(503));
    }
}
