//! Tests the example service of programs over sockets: all kinds of requests, device faults, invalid peers, interrupted
//! connections, and the end of the server. No device fault may lose a request.

mod authority;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use authority::Authority;
use device::{
    Capabilities, Device, DeviceError, FaultPlan, Faulty, Queue, Software, Virtual, VirtualOptions,
    Waiting,
};
use serde_json::json;
use server::config::{ClientAuthWord, PolicyName, RoleName};
use server::programs::ProgramClient;
use server::{Config, Devices, Server, ServerHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;
use units::{ByteCount, Nanos};

/// The timeout of every expected event, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

const ANSWERED: &str = "rebate_program_requests_total{result=\"answered\"}";

/// The callers, by the subjects of their certificates. `nine` may only read items.
const RULES: &str = r#"
[roles.seven]
commands = ["programs-service", "read", "write"]
tenant = 7
[roles.eight]
commands = ["programs-service"]
tenant = 8
[roles.nine]
commands = ["read"]
[[certificates]]
name = "CN=seven"
role = "seven"
[[certificates]]
name = "CN=eight"
role = "eight"
[[certificates]]
name = "CN=nine"
role = "nine"
"#;

struct Service {
    running: ServerHandle,
    authority: Authority,
}

/// Starts a service with one thread, software and perhaps a device that is offered every job first.
fn start(other: Option<Arc<dyn Device>>, change: impl FnOnce(&mut Config)) -> Service {
    start_with(other.into_iter().collect(), change)
}

fn start_with(others: Vec<Arc<dyn Device>>, change: impl FnOnce(&mut Config)) -> Service {
    let authority = Authority::new();
    for name in ["seven", "eight", "nine"] {
        authority.sign(name);
    }
    std::fs::write(authority.path("access.toml"), RULES).expect("it is written");
    let mut config = Config::default();
    config.tls.cert_file = Some(authority.sign("service"));
    config.tls.ca_file = Some(authority.path("ca.pem"));
    config.tls.client_auth = ClientAuthWord::Request;
    config.server.access_file = Some(authority.path("access.toml"));
    config.server.roles = vec![RoleName::Programs];
    config.server.admin_listen = "127.0.0.1:0".to_owned();
    config.server.threads = 1;
    config.runtime.policy =
        PolicyName::Named(policy::NamedPolicy::find("async-offload").expect("it is listed"));
    config.runtime.offload_bytes_min = ByteCount(0);
    config.runtime.job_timeout_ms = 60_000;
    config.programs.listen = vec!["tls://127.0.0.1:0".to_owned()];
    change(&mut config);
    let software: Arc<dyn Device> = Arc::new(Software::default());
    let all: Vec<_> = [software].into_iter().chain(others).collect();
    let devices = Devices { accelerators: all.len() - 1, all };
    Service { running: Server::start(config, devices).expect("it starts"), authority }
}

impl Service {
    fn address(&self) -> SocketAddr {
        self.running.program_addresses()[0]
    }

    /// Opens a connection of a caller, which sends what the caller of the test likes.
    fn connect(&self, name: &str) -> Peer {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.expect("tokio starts");
        let (client, to) = (self.authority.client(Some(name)), self.address().to_string());
        let stream = executor.block_on(client.connect(&to, tls::Application::Plain));
        Peer { stream: stream.expect("it listens"), executor }
    }

    /// Returns the samples of the metrics page.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut stream = TcpStream::connect(self.running.admin_address().expect("it is on"));
        let stream = stream.as_mut().expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let samples = text.lines().filter(|line| line.starts_with("rebate_"));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        samples.map(sample).collect()
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        *metrics.get(name).unwrap_or_else(|| panic!("no {name} in {:#?}", metrics.keys()))
    }

    fn await_metric(&self, name: &str, wanted: f64) {
        let deadline = Instant::now() + TIMEOUT;
        // The page does not list tenants without traces.
        while self.metrics().get(name).copied().unwrap_or(0.0) != wanted {
            assert!(Instant::now() < deadline, "{name} is not {wanted}: {:#?}", self.metrics());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A connection with TLS, and what moves its bytes.
struct Peer {
    stream: tls::Stream,
    executor: tokio::runtime::Runtime,
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.executor.block_on(async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        })
    }

    /// Reads to the end of the connection.
    fn read_to_end(&mut self) -> (io::Result<()>, Vec<u8>) {
        let mut heard = Vec::new();
        let read = self.executor.block_on(async {
            let read = self.stream.read_to_end(&mut heard);
            tokio::time::timeout(TIMEOUT, read).await.expect("it ends")
        });
        (read.map(drop), heard)
    }
}

/// Runs `body` with a client that has the certificate of `name`.
fn calling<T>(service: &Service, name: &str, body: impl AsyncFnOnce(ProgramClient) -> T) -> T {
    let credentials = service.authority.client((!name.is_empty()).then_some(name));
    calling_with(service.address(), &credentials, body)
}

fn calling_with<T>(
    address: SocketAddr,
    credentials: &tls::Client,
    body: impl AsyncFnOnce(ProgramClient) -> T,
) -> T {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        let within = Nanos::secs(TIMEOUT.as_secs());
        let address = address.to_string();
        let client = ProgramClient::connect(&address, credentials, within);
        body(client.await.expect("it listens")).await
    })
}

fn request(number: usize) -> String {
    format!("{{\"number\":{number},\"text\":\"{}\"}}", "words that repeat ".repeat(number))
}

async fn echoes(client: &ProgramClient, number: usize, compress: bool) {
    let json = request(number);
    let answer = client.call("echo", json.clone(), compress).await;
    assert_eq!(answer.expect("it is answered"), json);
}

fn wrapped(plan: FaultPlan) -> Option<Arc<dyn Device>> {
    Some(Arc::new(Faulty::new(Arc::new(Software::default()), plan)))
}

#[test]
fn requests_and_answers_of_every_kind_come_through() {
    let service = start(wrapped(FaultPlan::default()), |config| config.programs.due_us = 1);
    calling(&service, "seven", async |client| {
        for number in [0, 1, 100, 1_000] {
            for compress in [false, true] {
                echoes(&client, number, compress).await;
            }
        }
        let answer = client.call("nothing", "{}", false).await.expect("it is answered");
        let said = "no function is called \"nothing\"; there are echo, read, write, call and fetch";
        assert_eq!(parsed(&answer)["error"], said);
        // A compressed request need not be JSON, but an answer must be.
        let answer = client.call("echo", "no JSON", true).await.expect("it is answered");
        assert!(answer.starts_with(br#"{"error":"#), "{answer:?}");
    });
    service.await_metric(ANSWERED, 10.0);
    let metrics = service.metrics();
    for (name, wanted) in [
        ("rebate_program_requests_total{result=\"refused\"}", 0.0),
        ("rebate_programs_started_total", 20.0),
        ("rebate_programs_finished_total", 19.0),
        ("rebate_programs_failed_total{cause=\"malformed\"}", 1.0),
        ("rebate_program_by_hand_total{message=\"answer\"}", 1.0),
        ("rebate_program_by_hand_total{message=\"request\"}", 0.0),
        ("rebate_program_steps_total{op=\"decrypt\",on=\"device\"}", 10.0),
        ("rebate_program_steps_total{op=\"decrypt\",on=\"software\"}", 0.0),
        ("rebate_program_steps_total{op=\"decompress\",on=\"device\"}", 5.0),
        ("rebate_program_steps_total{op=\"compress\",on=\"device\"}", 4.0),
        ("rebate_program_steps_total{op=\"deserialize\",on=\"device\"}", 10.0),
        ("rebate_program_steps_total{op=\"tcp\",on=\"port\"}", 19.0),
        ("rebate_programs_live", 0.0),
    ] {
        assert_eq!(metrics.get(name), Some(&wanted), "{name} in {metrics:#?}");
    }
    assert!(metrics["rebate_program_steps_late_total"] > 0.0, "nothing is done within 1 us");
}

fn parsed(answer: &[u8]) -> serde_json::Value {
    serde_json::from_slice(answer).expect("an answer is JSON")
}

/// Calls a function and returns its answer.
async fn ask(
    client: &ProgramClient,
    function: &str,
    arguments: serde_json::Value,
) -> serde_json::Value {
    let answer = client.call(function, arguments.to_string(), false).await;
    parsed(&answer.expect("it is answered"))
}

/// Uses every function, so that all of T1 to T12 run, and checks the answers.
async fn use_all(client: &ProgramClient) {
    let long = "a text that repeats, ".repeat(200);
    for (key, value) in [("short", "brief"), ("long", &long)] {
        assert_eq!(ask(client, "write", json!({"key": key, "value": value})).await["stored"], key);
        assert_eq!(ask(client, "read", json!({"key": key})).await["value"], value);
        assert_eq!(ask(client, "call", json!({"text": value})).await["text"], value);
    }
    for key in ["a", "row:abc"] {
        let row = ask(client, "read", json!({"key": key})).await;
        let row = row["value"].as_str().expect("a text");
        assert!(row.starts_with(&format!("This row of {key} is from the database.")), "{row}");
        // The row may be in the cache by now, or not yet.
        assert_eq!(ask(client, "read", json!({"key": key})).await["value"], row);
    }
    // A long request is compressed.
    for path in ["/index", &"/long".repeat(300)] {
        let page = ask(client, "fetch", json!({"path": path})).await;
        let words = format!("This page is at {path}, and");
        assert!(page["page"].as_str().expect("a text").contains(&words), "{page}");
    }
}

#[test]
fn functions_ask_the_cache_the_database_another_service_and_a_web_server() {
    let service = start(None, |config| config.server.threads = 1);
    calling(&service, "seven", async |client| {
        use_all(&client).await;
        for (function, arguments, why) in [
            ("read", json!({"key": "none:1"}), "the peer that T4 asks"),
            ("call", json!({"exception": true}), "the peer that T9 asks"),
            ("read", json!({}), "missing field `key`"),
            ("read", json!({"key": "a b"}), "key \"a b\""),
            ("write", json!({"key": "k"}), "missing field `value`"),
            ("write", json!({"key": "k", "value": 7}), "expected a string"),
            ("fetch", json!({"path": "/a b"}), "white space"),
            ("fetch", json!({"path": ""}), "begins with /"),
            ("fetch", json!({"path": "/".repeat(5_000)}), "at most 2048 bytes"),
        ] {
            let answer = ask(&client, function, arguments).await;
            let error = answer["error"].as_str().unwrap_or_else(|| panic!("{function}: {answer}"));
            assert!(error.contains(why), "{error}");
        }
    });
    let failed = |(name, _): &(&String, &f64)| name.starts_with("rebate_programs_failed_total");
    let metrics = service.metrics();
    assert_eq!(metrics.iter().filter(failed).map(|(_, count)| count).sum::<f64>(), 0.0);
    service.await_metric("rebate_programs_live", 0.0);
}

/// What a program reads and writes is in the cache of the process, under the rights of its caller.
#[test]
fn programs_use_the_cache_with_the_rights_of_their_callers() {
    let service =
        start_with_rules_of_eight("[roles.eight]\ncommands = [\"programs-service\", \"read\"]");
    calling(&service, "seven", async |client| {
        ask(&client, "write", json!({"key": "k", "value": "seven's"})).await;
    });
    calling(&service, "eight", async |client| {
        assert_eq!(ask(&client, "read", json!({"key": "k"})).await["value"], "seven's");
        let refused = ask(&client, "write", json!({"key": "k", "value": "eight's"})).await;
        assert!(refused["error"].as_str().is_some_and(|why| why.contains("T8")), "{refused}");
    });
    calling(&service, "seven", async |client| {
        assert_eq!(ask(&client, "read", json!({"key": "k"})).await["value"], "seven's");
    });
}

/// Starts a service with these rules for `eight`.
fn start_with_rules_of_eight(rules: &str) -> Service {
    start(None, |config| {
        let file = config.server.access_file.as_ref().expect("a file");
        let none = "[roles.eight]\ncommands = [\"programs-service\"]";
        assert!(RULES.contains(none));
        std::fs::write(file, RULES.replace(none, rules)).expect("it is written");
    })
}

#[test]
fn what_the_cache_refuses_is_no_miss() {
    let rules = "[roles.eight]\ncommands = [\"programs-service\", \"read\"]\nkey_prefix = \"own:\"";
    let service = start_with_rules_of_eight(rules);
    calling(&service, "eight", async |client| {
        let refused = ask(&client, "read", json!({"key": "other"})).await;
        assert!(refused["error"].is_string(), "{refused}");
        // The database has it. The role may not write, so nothing tries to fill the cache.
        let row = ask(&client, "read", json!({"key": "own:k"})).await;
        assert!(row["value"].is_string(), "{row}");
    });
    service.await_metric("rebate_programs_live", 0.0);
    let metrics = service.metrics();
    let refused =
        |reason: &str| metrics[&format!("rebate_access_refused_total{{reason=\"{reason}\"}}")];
    assert_eq!((refused("key"), refused("rights")), (1.0, 0.0));
}

/// Both run at the same time: a read that misses fills the cache while another caller writes.
#[test]
fn what_fills_the_cache_replaces_no_write() {
    let service = start(None, |_| {});
    calling(&service, "seven", async |reader| {
        let credentials = service.authority.client(Some("seven"));
        let within = Nanos::secs(TIMEOUT.as_secs());
        let address = service.address().to_string();
        let writer = ProgramClient::connect(&address, &credentials, within).await;
        let writer = writer.expect("it listens");
        for number in 0..60 {
            let key = format!("row:{number}");
            let item = json!({"key": key, "value": "written"});
            tokio::join!(ask(&reader, "read", json!({"key": key})), ask(&writer, "write", item),);
            assert_eq!(ask(&writer, "read", json!({"key": key})).await["value"], "written");
        }
    });
}

#[test]
fn the_quota_of_a_role_counts_what_its_programs_do_in_the_cache() {
    let rules = "[roles.eight]\ncommands = [\"programs-service\", \"read\", \"write\"]\n\
                 bytes_per_s = 20000\nover_quota = \"refuse\"";
    let service = start_with_rules_of_eight(rules);
    calling(&service, "eight", async |client| {
        // Compressed, the request is much shorter than the value that it stores.
        let item = json!({"key": "k", "value": "x".repeat(100_000)}).to_string();
        let stored = client.call("write", item.clone(), true).await.map(|answer| parsed(&answer));
        assert!(stored.is_ok(), "the first one may go over: {stored:?}");
        let again = client.call("write", item, true).await;
        assert!(again.is_err(), "100 kB are 5 s of the quota: {again:?}");
    });
}

#[test]
fn nine_of_ten_ops_of_served_programs_run_on_emulated_accelerators() {
    let emulated = ["iaa", "qat-4xxx", "accelflow"].map(|name| {
        let profile = workload::DeviceProfile::find(name).expect("compiled in");
        let device = Virtual::new(&profile, drivers::ENGINES, VirtualOptions::default());
        Arc::new(device.expect("its engines are there")) as Arc<dyn Device>
    });
    let service = start_with(emulated.into(), |_| ());
    calling(&service, "seven", async |client| {
        for _ in 0..5 {
            use_all(&client).await;
        }
    });
    service.await_metric("rebate_programs_live", 0.0);
    let metrics = service.metrics();
    let on = |place: &str| {
        let place = format!("on=\"{place}\"");
        let steps = metrics.iter().filter(|(name, _)| {
            name.starts_with("rebate_program_steps_total") && name.contains(&place)
        });
        steps.map(|(_, count)| count).sum::<f64>()
    };
    let (device, software, kernel) = (on("device"), on("software"), on("kernel"));
    let share = device / (device + software + kernel);
    println!("{device} on devices, {software} by software, {kernel} kernels: {share}");
    assert!(share >= 0.9, "{share}: {metrics:#?}");
}

#[test]
fn callers_side_by_side_get_their_own_answers() {
    let service = start(None, |config| config.server.threads = 2);
    let address = service.address();
    let credentials = ["seven", "eight"].map(|name| service.authority.client(Some(name)));
    thread::scope(|scope| {
        for caller in 0..8_usize {
            let credentials = &credentials[caller % 2];
            scope.spawn(move || {
                calling_with(address, credentials, async |client| {
                    for number in 0..5 {
                        echoes(&client, 100 * caller + number, number % 2 == 0).await;
                    }
                });
            });
        }
    });
    service.await_metric(ANSWERED, 40.0);
}

/// A device that supports only codecs, because a wrong result of decryption would not be detected.
struct Codecs(Software, Capabilities);

impl Codecs {
    fn new() -> Arc<Self> {
        let software = Software::default();
        let mut capabilities = software.capabilities().clone();
        capabilities.kernels.clear();
        Arc::new(Self(software, capabilities))
    }
}

impl Device for Codecs {
    fn name(&self) -> &str {
        "codecs"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        self.0.open_queue(waker)
    }
}

#[test]
fn no_request_is_lost_whatever_a_device_does() {
    let every = 2;
    let plans = [
        (FaultPlan { fail_every: every, ..FaultPlan::default() }, false),
        (FaultPlan { busy_every: every, ..FaultPlan::default() }, false),
        (FaultPlan { refuse_every: every, ..FaultPlan::default() }, false),
        (FaultPlan { lose_every: 5, ..FaultPlan::default() }, false),
        (FaultPlan { lose_after: Some(3), ..FaultPlan::default() }, false),
        (FaultPlan { hang_every: 20, ..FaultPlan::default() }, false),
        (FaultPlan { delay_polls: 3, ..FaultPlan::default() }, false),
        (FaultPlan { corrupt_every: every, ..FaultPlan::default() }, true),
        (FaultPlan { shorten_every: every, ..FaultPlan::default() }, true),
    ];
    for (plan, is_silent) in plans {
        let case = format!("{plan:?}");
        let is_slow = plan.delay_polls > 0;
        let device: Arc<dyn Device> = match is_silent {
            true => Arc::new(Faulty::new(Codecs::new(), plan)),
            false => Arc::new(Faulty::new(Arc::new(Software::default()), plan)),
        };
        let service = start(Some(device), |config| {
            config.runtime.job_timeout_ms = 30;
            config.runtime.verify_every = 1;
        });
        calling(&service, "seven", async |client| {
            for number in 0..12 {
                echoes(&client, 20 * number, true).await;
            }
        });
        service.await_metric(ANSWERED, 12.0);
        let metrics = service.metrics();
        let sum = |family: &str| {
            let matching = metrics.iter().filter(|(name, _)| name.starts_with(family));
            matching.map(|(_, value)| value).sum::<f64>()
        };
        let redone = sum("rebate_program_fallback_total") + sum("rebate_program_by_hand_total");
        assert!(is_slow || redone > 0.0, "{case}: {metrics:#?}");
    }
}

#[test]
fn a_request_without_capacity_is_done_in_software() {
    let hang = FaultPlan { hang_every: 1, ..FaultPlan::default() };
    let service = start(wrapped(hang), |config| config.programs.live_max = 1);
    let (address, credentials) = (service.address(), service.authority.client(Some("seven")));
    thread::scope(|scope| {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        // The job of this call never completes.
        let credentials = &credentials;
        let hanging = scope.spawn(move || {
            calling_with(address, credentials, async |client| {
                tokio::select! {
                    answer = client.call("echo", "{}", false) => panic!("{answer:?}"),
                    _ = ended => {}
                }
            });
        });
        service.await_metric("rebate_programs_tenant_live{tenant=\"7\"}", 1.0);
        calling(&service, "eight", async |client| echoes(&client, 100, true).await);
        let metrics = service.metrics();
        assert_eq!(metrics["rebate_programs_refused_total{cause=\"full\"}"], 2.0);
        assert_eq!(metrics["rebate_program_by_hand_total{message=\"request\"}"], 1.0);
        assert_eq!(metrics["rebate_program_by_hand_total{message=\"answer\"}"], 1.0);
        drop(end);
        hanging.join().expect("it gives up");
    });
}

/// Returns whether the service closes the connection of a caller after these bytes, without an answer.
fn is_cut_off(service: &Service, said: &[u8]) -> bool {
    let mut peer = service.connect("seven");
    // The service may close the connection before it has read everything.
    let _ = peer.send(said);
    let (ended, heard) = peer.read_to_end();
    let is_reset = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    ended.err().is_none_or(is_reset) && heard.is_empty()
}

#[test]
fn requests_that_are_none_are_cut_off() {
    let service = start(None, |config| config.programs.payload_bytes_max = ByteCount::kib(4));
    let message = |bytes: usize| {
        let length = u32::try_from(bytes).expect("small").to_be_bytes();
        [length.to_vec(), vec![0x5A; bytes.min(10_000)]].concat()
    };
    // The lengths are: empty, below and at the size of a nonce and a tag, not encrypted, and above the limit.
    for bytes in [0, 27, 28, 4_096, 4_097, u32::MAX as usize] {
        assert!(is_cut_off(&service, &message(bytes)), "{bytes}");
    }
    service.await_metric("rebate_program_requests_total{result=\"refused\"}", 6.0);
    // Other callers are served as before. The service ends the connection of a request that is too long.
    calling(&service, "seven", async |client| {
        echoes(&client, 10, true).await;
        let error = client.call("echo", request(1_000), false).await.expect_err("too long");
        assert!(error.to_string().contains("the peer is gone"), "{error}");
    });
    service.await_metric("rebate_programs_live", 0.0);
}

#[test]
fn only_callers_whose_role_may_call_are_served() {
    let service = start(None, |_| {});
    for name in ["nine", "", "seven"] {
        calling(&service, name, async |client| {
            let answer = client.call("echo", "{}", false).await;
            assert_eq!(answer.is_ok(), name == "seven", "{name:?}: {answer:?}");
        });
    }
    let refused = |reason: &str| format!("rebate_access_refused_total{{reason=\"{reason}\"}}");
    service.await_metric(&refused("rights"), 1.0);
    service.await_metric(&refused("unauthenticated"), 1.0);
    // A certificate of another authority ends the handshake.
    let other = Authority::new();
    other.sign("seven");
    std::fs::copy(service.authority.path("ca.pem"), other.path("ca.pem")).expect("copied");
    calling_with(service.address(), &other.client(Some("seven")), async |client| {
        let error = client.call("echo", "{}", false).await.expect_err("nobody signed it");
        assert!(error.to_string().contains("the peer is gone"), "{error}");
    });
    service.await_metric("rebate_tls_handshakes_failed_total{reason=\"certificate\"}", 1.0);
    // Bytes without TLS.
    let mut plain = TcpStream::connect(service.address()).expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it reads");
    service.await_metric("rebate_tls_handshakes_failed_total{reason=\"plain\"}", 1.0);
}

#[test]
fn a_reload_of_the_rules_ends_the_right_to_call() {
    let service = start(None, |_| {});
    calling(&service, "seven", async |client| {
        echoes(&client, 3, false).await;
        let rules = RULES.replacen("[\"programs-service\", ", "[", 1);
        std::fs::write(service.authority.path("access.toml"), rules).expect("it is written");
        service.running.reload_access();
        let error = client.call("echo", "{}", false).await.expect_err("it has no right");
        assert!(error.to_string().contains("the peer is gone"), "{error}");
    });
    calling(&service, "eight", async |client| echoes(&client, 3, false).await);
}

#[test]
fn connections_that_end_in_the_middle_leave_nothing() {
    let hang = FaultPlan { hang_every: 1, ..FaultPlan::default() };
    // The timeout is longer than a pause of the machine. The last request below waits for it, too.
    let service = start(wrapped(hang), |config| config.runtime.job_timeout_ms = 10_000);
    for part in [0, 1, 4, 60] {
        let whole = [100_u32.to_be_bytes().to_vec(), vec![0; 100]].concat();
        service.connect("seven").send(&whole[..part]).expect("it reads");
    }
    // The caller of this request goes away while a device has the request.
    calling(&service, "seven", async |client| {
        let call = client.call("echo", "{}", false);
        let taken = async {
            while service.metric("rebate_programs_live") != 1.0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            answer = call => panic!("{answer:?}"),
            taken = tokio::time::timeout(TIMEOUT, taken) => taken.expect("a device has it"),
        }
    });
    service.await_metric("rebate_connections{state=\"open\"}", 0.0);
    service.await_metric("rebate_programs_live", 0.0);
    calling(&service, "seven", async |client| echoes(&client, 3, false).await);
}

#[test]
fn a_slow_message_loses_the_memory_that_another_needs() {
    let service = start(None, |config| {
        config.runtime.inflight_bytes_max = ByteCount::mib(1);
        config.programs.payload_bytes_max = ByteCount::mib(1);
    });
    let mut slow = service.connect("seven");
    slow.send(&[&(1_u32 << 20).to_be_bytes()[..], &[0; 100]].concat()).expect("a part");
    let asked = Instant::now();
    calling(&service, "eight", async |client| echoes(&client, 100, true).await);
    // Without other peers that wait for memory, the slow one could take 10 s for its message.
    assert!(asked.elapsed() < Duration::from_secs(9), "{:?}", asked.elapsed());
    service.await_metric("rebate_program_requests_total{result=\"refused\"}", 1.0);
}

#[test]
fn whoever_is_silent_for_too_long_is_cut_off() {
    let service = start(None, |config| config.server.idle_timeout_s = 1);
    calling(&service, "seven", async |client| {
        echoes(&client, 3, false).await;
        service.await_metric("rebate_connections{state=\"open\"}", 0.0);
    });
    assert_eq!(service.metric("rebate_program_requests_total{result=\"refused\"}"), 0.0);
}

#[test]
fn a_drain_answers_requests_under_way() {
    // Each job takes this long, on a device that is polled.
    let late = FaultPlan { late_every: 1, late_by: Duration::from_secs(5), ..FaultPlan::default() };
    let device: Arc<dyn Device> = Arc::new(Faulty::new(Arc::new(Software::default()), late));
    assert!(matches!(device.capabilities().waiting, Waiting::Polled { .. }));
    let service = start(Some(device), |_| {});
    let address = service.address();
    let mut idle = service.connect("eight");
    let credentials = service.authority.client(Some("seven"));
    let in_flight = thread::spawn(move || {
        calling_with(address, &credentials, async |client| echoes(&client, 5, false).await);
    });
    service.await_metric("rebate_programs_live", 1.0);
    assert!(service.running.drain(TIMEOUT), "nothing was cut");
    in_flight.join().expect("it is answered");
    assert!(idle.read_to_end().1.is_empty());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
