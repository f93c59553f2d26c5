//! Tests the pages as a scraper and a prober see them. The parser of the text format is stricter than theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Software;
use runtime::trace::{Counted, TraceMetrics};
use socket2::{Domain, Socket, Type};
use units::Nanos;

use super::exposition::Exposition;
use super::metrics::{self, Workers};
use super::{programs, sealing};
use crate::config::Config;
use crate::counters::{Control, Counters};
use crate::{Devices, Server, ServerHandle, StartError};

/// A parsed and checked metrics page: the value of each sample, by its name and labels as written.
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Parses a page. Panics if the format does not allow it.
    fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut samples = BTreeMap::new();
        let mut families = BTreeSet::new();
        let mut family = (String::new(), String::new());
        let mut helped = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a help");
                assert!(help.ends_with('.') && !help.contains('\\'), "{line}");
                name.clone_into(&mut helped);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and a type");
                assert_eq!(name, helped, "HELP comes first");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(families.insert(name.to_owned()), "{name} twice");
                family = (name.to_owned(), kind.to_owned());
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a series and a value");
                let value: f64 = value.parse().expect("a number");
                check_sample(&family, series, value);
                assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
            }
        }
        check_histograms(&samples);
        Self(samples)
    }

    fn value(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} among {:#?}", self.0.keys()))
    }
}

fn check_sample((family, kind): &(String, String), series: &str, value: f64) {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{name} in {family}"));
    let suffixes: &[&str] =
        if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    assert!(suffixes.contains(&suffix), "{name} in {family}");
    assert!(["rebate_", "process_", "memcached_"].iter().any(|known| name.starts_with(known)));
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    assert!(name.bytes().all(word), "{name}");
    // memcached's exporter named this family before the convention.
    let total = family.ends_with("_total") || family == "memcached_uptime_seconds";
    assert_eq!(kind == "counter", total, "{family} is a {kind}");
    assert!(value.is_finite() && value >= 0.0, "{series} {value}");
    let labels = labels.strip_suffix('}').expect("labels end");
    let mut seen = BTreeSet::new();
    for label in labels.split_terminator("\",") {
        let (label, text) = label.split_once("=\"").expect("a label and its quoted value");
        assert!(label.bytes().all(word) && seen.insert(label), "{series}");
        assert!(!text.trim_end_matches('"').contains(['"', '\\']), "{series}");
    }
}

/// Checks that the buckets of each histogram are cumulative in the order of their bounds, in which they are written.
fn check_histograms(samples: &BTreeMap<String, f64>) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, count) in samples {
        let Some((name, labels)) = series.split_once("_bucket{") else { continue };
        let (labels, bound) = labels.split_once(",le=\"").expect("a bound, last");
        let bound = bound.trim_end_matches("\"}");
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
        buckets.entry(format!("{name}_count{{{labels}}}")).or_default().push((bound, *count));
    }
    for (total, mut counts) in buckets {
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(counts.is_sorted_by_key(|(_, count)| *count), "{total} is cumulative");
        let (bound, last) = *counts.last().unwrap();
        assert!(bound.is_infinite() && last == samples[&total], "{total} is the last bucket");
        assert!(samples.contains_key(&total.replace("_count{", "_sum{")), "{total} has a sum");
    }
}

fn start(change: impl FnOnce(&mut Config)) -> Result<ServerHandle, StartError> {
    let mut config = Config::default();
    config.server.listen = vec!["127.0.0.1:0".to_owned()];
    config.server.admin_listen = "127.0.0.1:0".to_owned();
    config.server.threads = 2;
    change(&mut config);
    let devices = Devices { all: vec![Arc::new(Software::default())], accelerators: 0 };
    Server::start(config, devices)
}

fn ask(admin: SocketAddr, request: &str) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(admin).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_ascii_lowercase(), body.to_owned()))
}

fn page(running: &ServerHandle, path: &str) -> (u16, String) {
    let admin = running.admin_address().expect("admin pages are on");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (status, _, body) = ask(admin, &request).expect("an answer");
    (status, body)
}

fn scrape(running: &ServerHandle) -> Metrics {
    let (status, body) = page(running, "/metrics");
    assert_eq!(status, 200);
    Metrics::read(&body)
}

/// Sends commands and reads `lines` lines of replies.
fn talk(client: &mut TcpStream, commands: &[u8], lines: usize) {
    client.write_all(commands).unwrap();
    let mut reader = BufReader::new(client);
    for _ in 0..lines {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.starts_with("ERROR") && !line.is_empty(), "{line:?}");
    }
}

/// Answers probes as memcached does.
fn answer_probes(mut stream: TcpStream) {
    let mut probe = [0; 4];
    while stream.read_exact(&mut probe).is_ok() && &probe == b"mn\r\n" {
        if stream.write_all(b"MN\r\n").is_err() {
            break;
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn what_clients_do_is_counted() {
    let running = start(|_| {}).unwrap();
    let fresh = scrape(&running);
    assert_eq!(fresh.value("rebate_commands_total{command=\"get\",result=\"hit\"}"), 0.0);
    let mut client = TcpStream::connect(running.addresses()[0]).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let value = "all work and no play ".repeat(1_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\nset b 0 0 1\r\n7\r\n", value.len());
    talk(&mut client, set.as_bytes(), 2);
    talk(&mut client, b"get a b c\r\nincr b 1\r\ndelete a\r\ndelete a\r\n", 8);
    let metrics = scrape(&running);
    for (series, wanted) in [
        ("rebate_commands_total{command=\"get\",result=\"hit\"}", 2.0),
        ("rebate_commands_total{command=\"get\",result=\"miss\"}", 1.0),
        ("rebate_commands_total{command=\"set\",result=\"any\"}", 2.0),
        ("rebate_commands_total{command=\"incr\",result=\"hit\"}", 1.0),
        ("rebate_commands_total{command=\"delete\",result=\"miss\"}", 1.0),
        ("memcached_commands_total{command=\"delete\",status=\"hit\"}", 1.0),
        ("rebate_connections{state=\"open\"}", 1.0),
        ("rebate_values_written_total{form=\"compressed\"}", 1.0),
        ("rebate_values_written_total{form=\"raw\",reason=\"small\"}", 1.0),
        ("rebate_values_read_total{form=\"compressed\"}", 1.0),
        ("rebate_value_bytes_total{direction=\"read\",stage=\"logical\"}", 21_001.0),
        ("rebate_job_size_bytes_bucket{op=\"compress\",le=\"16383\"}", 0.0),
        ("rebate_job_size_bytes_bucket{op=\"compress\",le=\"32767\"}", 1.0),
        ("rebate_job_size_bytes_count{op=\"decompress\"}", 1.0),
        ("rebate_store_items", 1.0),
        ("memcached_current_items", 1.0),
    ] {
        assert_eq!(metrics.value(series), wanted, "{series}");
    }
    let jobs = |op: &str| {
        let of = format!("rebate_jobs_total{{op=\"{op}\",device=\"software\",");
        let done = |name: &str| name.starts_with(&of) && name.ends_with("outcome=\"done\"}");
        metrics.0.iter().filter(|(name, _)| done(name)).map(|(_, count)| count).sum::<f64>()
    };
    assert_eq!((jobs("compress"), jobs("decompress")), (1.0, 1.0));
    assert!(metrics.value("process_resident_memory_bytes") > 0.0);
    assert!(metrics.value("process_open_fds") > 3.0);
    assert!(metrics.value("process_cpu_seconds_total") > 0.0);
}

#[test]
fn every_counter_is_shown_by_its_own_number() {
    let counters = Counters::default();
    let mut numbers = BTreeMap::new();
    let named = counters.commands.named().into_iter().chain(counters.values.named());
    let named = named.chain(counters.grpc.named()).chain(counters.lanes.named());
    let named = named.chain(counters.near.named());
    let named = named.chain(counters.programs.named()).chain(counters.tasks.named());
    let control = Control::default();
    let named = named.chain(control.named()).chain(counters.access.named());
    let raw = counters.raw.iter().map(|counter| ("raw", counter));
    for (index, (name, counter)) in named.chain(raw).enumerate() {
        counter.add(1_000_000 + index as u64);
        numbers.insert(counter.read().to_string(), name);
    }
    counters.durations[0].record(Nanos(1));
    let all = [Arc::new(counters)];
    let workers = Workers(&all);
    let mut page = Exposition::default();
    metrics::clients(&mut page, &workers);
    metrics::commands(&mut page, &workers);
    metrics::values(&mut page, &workers);
    sealing::values(&mut page, &workers);
    sealing::reloads(&mut page, &control);
    metrics::upstream(&mut page, &workers);
    metrics::grpc(&mut page, &workers);
    metrics::access(&mut page, &workers, &control);
    metrics::lanes(&mut page, &workers);
    metrics::near(&mut page, &workers);
    metrics::tasks(&mut page, &workers, &control, &[]);
    programs::connections(&mut page, &workers);
    assert_shown(page, &numbers);
}

/// Checks that the page can be parsed and contains each number.
fn assert_shown<T: std::fmt::Debug>(page: Exposition, numbers: &BTreeMap<String, T>) {
    let text = page.finish();
    Metrics::read(&text);
    let shown: BTreeSet<&str> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let missing: Vec<_> =
        numbers.iter().filter(|(number, _)| !shown.contains(number.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn everything_that_programs_count_is_shown_by_its_own_number() {
    let executor = TraceMetrics::default();
    let mut numbers = BTreeMap::new();
    for (index, what) in Counted::all().enumerate() {
        executor.add(what, 1_000_000 + index as u64);
        // The page shows the sum over the two executors.
        numbers.insert((2 * executor.read(what)).to_string(), what);
    }
    let executor = Arc::new(executor);
    let mut page = Exposition::default();
    programs::executors(&mut page, &[Arc::clone(&executor), executor]);
    assert_shown(page, &numbers);
}

#[test]
fn pages_answer_their_methods_and_no_others() {
    let running = start(|_| {}).unwrap();
    for (path, status) in
        [("/", 200), ("/healthz", 200), ("/readyz", 200), ("/config", 200), ("/nosuch", 404)]
    {
        assert_eq!(page(&running, path).0, status, "{path}");
    }
    let admin = running.admin_address().unwrap();
    let (status, head, _) =
        ask(admin, "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(status == 405 && head.contains("allow: get,head"), "{head}");
    let (status, _, body) =
        ask(admin, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!((status, body.as_str()), (200, ""));
    let (_, head, _) = ask(admin, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let index = page(&running, "/").1;
    assert!(index.contains("href=\"/metrics\"") && index.contains("href=\"/config\""), "{index}");
}

#[test]
fn hostile_clients_leave_the_pages_to_others() {
    let running = start(|_| {}).unwrap();
    let admin = running.admin_address().unwrap();
    let silent: Vec<_> = (0..150).map(|_| TcpStream::connect(admin).unwrap()).collect();
    let endless = format!("GET / HTTP/1.1\r\nX: {}\r\n", "a".repeat(1 << 20));
    for bytes in [endless.as_bytes(), &[0; 100], b"GET\r\n\r\n", b"\r\n\r\n\r\n"] {
        let mut stream = TcpStream::connect(admin).unwrap();
        let _ = stream.write_all(bytes);
    }
    assert_eq!(page(&running, "/healthz").0, 200);
    drop(silent);
}

#[test]
fn the_page_of_the_configuration_follows_reloads() {
    let running = start(|_| {}).unwrap();
    assert!(page(&running, "/config").1.contains("connections_max = 1024"));
    let mut config = Config::default();
    config.server.connections_max = 77;
    running.reload(config);
    running.reload_failed();
    assert!(page(&running, "/config").1.contains("connections_max = 77"));
    let metrics = scrape(&running);
    assert_eq!(metrics.value("rebate_config_reloads_total{result=\"success\"}"), 1.0);
    assert_eq!(metrics.value("rebate_config_reloads_total{result=\"failure\"}"), 1.0);
    assert_eq!(metrics.value("rebate_connections_max"), 77.0);
    assert!(metrics.value("rebate_config_last_reload_success_timestamp_seconds") > 1.6e9);
}

#[test]
fn a_ring_that_nobody_answers_for_is_not_ready() {
    // The socket is bound, so that no other test gets its port. It does not listen yet, so it refuses connections.
    let memcached = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    memcached.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let gone = memcached.local_addr().unwrap().as_socket().unwrap();
    let running = start(|config| config.store.url = format!("memcached://{gone}")).unwrap();
    let (status, why) = page(&running, "/readyz");
    assert!(status == 503 && why.contains(&gone.to_string()), "{why}");
    assert_eq!(page(&running, "/healthz").0, 200);
    assert!(!scrape(&running).0.contains_key("rebate_store_items"));
    memcached.listen(16).unwrap();
    // A port that only accepts connections is not enough.
    let memcached = std::net::TcpListener::from(memcached);
    let (silent, _) = memcached.accept().unwrap();
    assert_eq!(page(&running, "/readyz").0, 503);
    drop(silent);
    std::thread::spawn(move || {
        for stream in memcached.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_probes(stream));
        }
    });
    until("ready with the server back", || page(&running, "/readyz").0 == 200);
    let metrics = scrape(&running);
    assert_eq!(metrics.value("rebate_ready"), 1.0);
    for worker in 0..2 {
        let series = format!("rebate_upstream_up{{worker=\"{worker}\",server=\"{gone}\"}}");
        assert_eq!(metrics.value(&series), 1.0);
    }
}

#[test]
fn a_draining_server_says_so_until_its_end() {
    let running = start(|_| {}).unwrap();
    let admin = running.admin_address().unwrap();
    let mut client = TcpStream::connect(running.addresses()[0]).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    // An unfinished command keeps its session from ending, and with it the drain.
    talk(&mut client, b"version\r\n", 1);
    client.write_all(b"set a 0 0 10\r\nabc").unwrap();
    let metrics = || {
        let (_, _, body) = ask(admin, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Metrics::read(&body).value("rebate_client_bytes_total{direction=\"read\"}")
    };
    until("the server reads the command", || metrics() >= 26.0);
    let draining = std::thread::spawn(move || running.drain(TIMEOUT));
    until("not ready", || {
        let (status, _, body) =
            ask(admin, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        status == 503 && body == "draining\n"
    });
    assert_eq!(metrics(), 26.0);
    talk(&mut client, b"defghij\r\n", 1);
    assert!(draining.join().unwrap(), "nothing was cut");
    assert!(TcpStream::connect(admin).is_err(), "the pages are gone with the server");
}

#[test]
fn a_taken_admin_address_refuses_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let failed = start(|config| config.server.admin_listen.clone_from(&address));
    match failed {
        Err(StartError::Listen { address: named, .. }) => assert_eq!(named, address),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("started on a taken address"),
    }
    let off = start(|config| config.server.admin_listen.clear()).unwrap();
    assert_eq!(off.admin_address(), None);
}
