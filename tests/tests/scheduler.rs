//! Tests the scheduler with processes that report to it. Its counts must equal the counts of the processes, whichever
//! process is killed. Its parameters must reach them without a restart. Strangers must not be able to fill its memory.

mod services;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use api::tonic::{Code, Status};
use api::v1::scheduler_client::SchedulerClient;
use api::v1::{ParametersRequest, PathCounts, QueryRequest, QueryResponse, ReportRequest};
use rebate_tests::payload::text;
use rebate_tests::{Load, Port, Server, TIMEOUT, poll_for};
use rustix::process::Signal;
use services::{Service, label, metrics};

type Client = SchedulerClient<api::tonic::transport::Channel>;

/// A client of a scheduler, with the runtime for its calls.
struct Caller(tokio::runtime::Runtime, SocketAddr);

impl Caller {
    fn new(addr: SocketAddr) -> Self {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self(executor.expect("an executor"), addr)
    }

    fn call<T, F: Future<Output = T>>(&self, call: impl FnOnce(Client) -> F) -> T {
        self.0.block_on(async {
            let address: api::Address = self.1.to_string().parse().expect("an address");
            let channel = api::wire::channel(&address, TIMEOUT).expect("a channel");
            let client = SchedulerClient::new(channel).max_encoding_message_size(usize::MAX);
            call(client.max_decoding_message_size(usize::MAX)).await
        })
    }

    fn query(&self, query: QueryRequest) -> QueryResponse {
        let answer = self.call(|mut client| async move { client.query(query).await });
        answer.expect("an answer").into_inner()
    }

    fn report(&self, report: ReportRequest) -> Result<(), Status> {
        self.call(|mut client| async move { client.report(report).await }).map(|_| ())
    }
}

/// The numbers of jobs, bytes in and bytes out, by op and device. Jobs are also divided by placement and reason.
type Totals = BTreeMap<String, u64>;

fn paths(scheduler: &Service, instance: &str) -> Vec<PathCounts> {
    let query = QueryRequest { instance: instance.to_owned(), ..QueryRequest::default() };
    let instances = Caller::new(scheduler.grpc).query(query).instances;
    instances.into_iter().flat_map(|of| of.paths).collect()
}

fn gathered(scheduler: &Service, instance: &str) -> Totals {
    let mut totals = Totals::new();
    let mut add = |name: String, count: u64| *totals.entry(name).or_default() += count;
    for path in &paths(scheduler, instance) {
        let PathCounts { op, device, placement, reason, .. } = path;
        add(format!("jobs {op} {device} {placement} {reason}"), path.jobs);
        add(format!("input {op} {device}"), path.input_bytes);
        add(format!("output {op} {device}"), path.output_bytes);
    }
    totals
}

fn counted(admin: SocketAddr) -> Totals {
    let mut totals = Totals::new();
    for (name, value) in metrics(admin) {
        let (op, device) = (label(&name, "op"), label(&name, "device"));
        let key = if name.starts_with("rebate_jobs_total") {
            let (placement, reason) = (label(&name, "placement"), label(&name, "reason"));
            format!("jobs {op} {device} {placement} {reason}")
        } else if name.starts_with("rebate_job_bytes_total") {
            format!("{} {op} {device}", label(&name, "direction"))
        } else {
            continue;
        };
        *totals.entry(key).or_default() += value as u64;
    }
    totals
}

fn sum(mut one: Totals, other: &Totals) -> Totals {
    for (name, count) in other {
        *one.entry(name.clone()).or_default() += count;
    }
    one
}

/// Waits until the scheduler has exactly these counts of the instance. A report may lack some counters of a
/// job that is being counted, so the classes of a path add up to its jobs only when no job runs.
fn await_gathered(scheduler: &Service, instance: &str, wanted: &Totals) {
    let equal = poll_for(TIMEOUT, || (gathered(scheduler, instance) == *wanted).then_some(()));
    let found = gathered(scheduler, instance);
    assert!(equal.is_some(), "{found:#?}\nis not\n{wanted:#?}\n{}", scheduler.output());
    for path in paths(scheduler, instance) {
        assert_eq!(path.sizes.iter().map(|size| size.jobs).sum::<u64>(), path.jobs, "{path:?}");
        assert_eq!(path.service_log2_ns.iter().sum::<u64>(), path.jobs, "{path:?}");
    }
}

/// Starts a frontend that reports under this name. Values above 1 KiB go to the worker device.
fn frontend(scheduler: &Service, instance: &str, args: &[&str]) -> Server {
    let address = scheduler.grpc.to_string();
    let instance = format!("scheduler.instance={instance}");
    let ours = ["--role", "frontend", "--admin-listen", "127.0.0.1:0", "--threads", "2"];
    let reports = ["--scheduler", &address, "--set", &instance, "--device", "worker"];
    let large = ["--set", "runtime.inline_bytes_max=1KiB"];
    Server::rebate_serve("embedded", "on", &[&ours[..], &reports, &large, args].concat())
}

fn admin(server: &Server) -> SocketAddr {
    server.admin().expect("admin pages are on")
}

fn work(server: &Server, values: usize) {
    let mut client = server.client();
    for n in 0..values {
        let value = text(200 + 97 * n);
        assert_eq!(client.set(&format!("k{n}"), &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&format!("k{n}")), Ok(Some(value)));
    }
}

#[test]
fn what_is_gathered_is_what_the_processes_count() {
    let scheduler = Service::scheduler(0, &[]);
    let one = frontend(&scheduler, "one", &[]);
    let two = frontend(&scheduler, "two", &["--policy", "always-software"]);
    work(&one, 60);
    work(&two, 40);
    for (server, name) in [(&one, "one"), (&two, "two")] {
        let counts = counted(admin(server));
        assert!(counts.keys().any(|key| key.starts_with("jobs decompress")), "{counts:?}");
        await_gathered(&scheduler, name, &counts);
    }
    let both = sum(counted(admin(&one)), &counted(admin(&two)));
    assert_eq!(gathered(&scheduler, ""), both);
    assert!(both["jobs compress worker async large"] > 0, "{both:?}");
    // The scheduler's own page of metrics must show the same jobs.
    let shown = metrics(scheduler.admin);
    let jobs = shown.iter().filter(|(name, _)| name.starts_with("rebate_scheduler_jobs_total{"));
    let jobs: f64 = jobs.map(|(_, count)| count).sum();
    let wanted: u64 =
        both.iter().filter(|(name, _)| name.starts_with("jobs ")).map(|(_, count)| count).sum();
    assert_eq!(jobs, wanted as f64);
    assert_eq!(shown["rebate_scheduler_instances"], 2.0);
    let kept = metrics(admin(&one))["rebate_scheduler_reports_total{result=\"kept\"}"];
    assert!(kept > 0.0, "{kept}");
    // Long after the work, the latest interval has no jobs, but it must still be covered.
    let idle = poll_for(TIMEOUT, || {
        let query = QueryRequest { last_ms: 300, ..QueryRequest::default() };
        let answer = Caller::new(scheduler.grpc).query(query).instances;
        let covered = answer.iter().all(|of| of.covered_ms > 0 && of.covered_ms <= 400);
        (covered && answer.iter().all(|of| of.paths.is_empty())).then_some(())
    });
    assert!(idle.is_some(), "the last 300 ms hold counts of long ago");
}

#[test]
fn a_killed_scheduler_is_missed_by_nobody_and_counts_resume() {
    let port = Port::free().expect("a free port");
    let mut scheduler = Service::scheduler(port.number(), &[]);
    let server = frontend(&scheduler, "one", &[]);
    let load = Load::start(server.addr());
    load.await_good(300);
    let failed = |wanted: &str| {
        let name = format!("rebate_scheduler_reports_total{{result=\"{wanted}\"}}");
        metrics(admin(&server))[&name]
    };
    assert!(poll_for(TIMEOUT, || (failed("kept") > 0.0).then_some(())).is_some());
    scheduler.kill();
    assert!(poll_for(TIMEOUT, || (failed("failed") > 0.0).then_some(())).is_some());
    load.await_good(1_000);
    let scheduler = Service::scheduler(port.number(), &[]);
    let before = failed("kept");
    assert!(poll_for(TIMEOUT, || (failed("kept") > before).then_some(())).is_some());
    load.await_good(300);
    assert_eq!(load.stop(), Vec::<String>::new());
    await_gathered(&scheduler, "one", &counted(admin(&server)));
    server.await_printed("takes reports again").expect("it prints that");
    let warnings = server.output().matches("does not take reports").count();
    assert_eq!(warnings, 1, "one warning per outage:\n{}", server.output());
}

#[test]
fn a_frontend_that_was_started_again_is_counted_on() {
    let scheduler = Service::scheduler(0, &[]);
    let mut server = frontend(&scheduler, "one", &[]);
    work(&server, 20);
    let first = counted(admin(&server));
    await_gathered(&scheduler, "one", &first);
    server.kill();
    let server = frontend(&scheduler, "one", &[]);
    work(&server, 10);
    await_gathered(&scheduler, "one", &sum(first, &counted(admin(&server))));
}

#[test]
fn parameters_reach_a_frontend_without_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("scheduler.toml");
    let write = |text: &str| fs::write(&file, format!("[scheduler]\n{text}\n")).expect("written");
    write("policy = \"own\"");
    let scheduler = Service::scheduler(0, &["--config", &file.display().to_string()]);
    let server = frontend(&scheduler, "one", &[]);
    let mut client = server.client();
    let mut await_path = |device: &str, reason: &str| {
        let path = format!("op=\"compress\",device=\"{device}\"");
        let path = format!("{path},placement=\"async\",reason=\"{reason}\",outcome=\"done\"");
        let name = format!("rebate_jobs_total{{{path}}}");
        let jobs = || metrics(admin(&server)).get(&name).copied().unwrap_or(0.0);
        let before = jobs();
        poll_for(TIMEOUT, || {
            assert_eq!(client.set("k", &text(5_000)).as_deref(), Ok("STORED"));
            (jobs() > before).then_some(())
        })
    };
    assert!(await_path("worker", "large").is_some(), "its own policy");
    write("policy = \"async-offload\"\noffload_bytes_min = \"4KiB\"");
    scheduler.signal(Signal::HUP);
    assert!(await_path("worker", "policy").is_some(), "{}", server.output());
    // The revision changes only after the workers have received the parameters.
    let revision = || metrics(admin(&server))["rebate_scheduler_parameters_revision"];
    assert!(poll_for(TIMEOUT, || (revision() == 2.0).then_some(())).is_some(), "{}", revision());
    write("policy = \"own\"");
    scheduler.signal(Signal::HUP);
    assert!(await_path("worker", "large").is_some(), "its own policy again");
    assert!(poll_for(TIMEOUT, || (revision() == 3.0).then_some(())).is_some(), "{}", revision());
    // Invalid parameters are not sent.
    write("policy = \"magic\"");
    scheduler.signal(Signal::HUP);
    scheduler.await_printed("not reloaded").expect("it prints that");
    assert_eq!(revision(), 3.0);
}

fn hostile(instance: &str, paths: Vec<PathCounts>) -> ReportRequest {
    ReportRequest {
        instance: instance.to_owned(),
        role: "frontend".to_owned(),
        epoch: 1,
        uptime_ms: 1,
        paths,
        ..ReportRequest::default()
    }
}

fn path(device: &str, jobs: u64) -> PathCounts {
    PathCounts {
        op: "compress".to_owned(),
        device: device.to_owned(),
        placement: "sync".to_owned(),
        reason: "policy".to_owned(),
        jobs,
        ..PathCounts::default()
    }
}

#[test]
fn hostile_reports_are_refused_within_bounded_memory() {
    let memory = "scheduler.history_bytes_max=4MiB";
    let scheduler =
        Service::scheduler(0, &["--set", memory, "--set", "scheduler.instances_max=64"]);
    let caller = Caller::new(scheduler.grpc);
    caller.report(hostile("good", vec![path("d", 10)])).expect("a good report");
    let rss_before = scheduler.rss_bytes().expect("memory is known");
    let huge = "x".repeat(100_000);
    let many = |count| (0..count).map(|n| path(&format!("d{n}"), 1)).collect::<Vec<_>>();
    let codes = |report| caller.report(report).expect_err("refused").code();
    assert_eq!(codes(hostile(&huge, Vec::new())), Code::InvalidArgument);
    assert_eq!(codes(hostile("a", vec![path(&huge, 1)])), Code::InvalidArgument);
    assert_eq!(codes(hostile("a", many(1_000))), Code::InvalidArgument);
    assert_eq!(codes(hostile("good", vec![path("d", 9)])), Code::FailedPrecondition);
    for _ in 0..2 {
        // The first message is too long. The second is short but would be large in memory.
        assert_eq!(codes(hostile("a", many(1_000_000))), Code::OutOfRange);
        let empty = vec![PathCounts::default(); 100_000];
        assert_eq!(codes(hostile("a", empty)), Code::InvalidArgument);
    }
    // A silent instance is replaced by new ones after a while, so the good instance reports again first.
    caller.report(hostile("good", vec![path("d", 10)])).expect("the same again");
    // Valid reports under many new names are accepted up to the configured limits, and no further.
    let answers: Vec<_> = (0..100)
        .map(|n| caller.report(hostile(&format!("new{n}"), many(200))).map_err(|why| why.code()))
        .collect();
    assert!(answers[..10].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[99], Err(Code::ResourceExhausted), "{answers:?}");
    let held = metrics(scheduler.admin)["rebate_scheduler_history_bytes"];
    assert!(held <= f64::from(4 << 20), "{held}");
    let rss = scheduler.rss_bytes().expect("memory is known");
    assert!(rss < rss_before + (96 << 20), "{rss_before} -> {rss}");
    caller.report(hostile("good", vec![path("d", 11)])).expect("good reports are still kept");
    let good = QueryRequest { instance: "good".to_owned(), ..QueryRequest::default() };
    assert_eq!(caller.query(good).instances[0].paths[0].jobs, 11);
}

#[test]
fn followers_are_bounded_and_let_go_when_the_scheduler_drains() {
    let mut scheduler = Service::scheduler(0, &["--set", "scheduler.instances_max=2"]);
    let caller = Caller::new(scheduler.grpc);
    let drained = &scheduler;
    caller.call(|client| async move {
        let follow = || async {
            let request = ParametersRequest::default();
            Ok::<_, Status>(client.clone().parameters(request).await?.into_inner())
        };
        let mut one = follow().await.expect("the first follows");
        let two = follow().await.expect("the second follows");
        let revision = one.message().await.expect("parameters").map(|sent| sent.revision);
        assert_eq!(revision, Some(1));
        let refused = follow().await.err().map(|status| status.code());
        assert_eq!(refused, Some(Code::ResourceExhausted));
        drop(two);
        let deadline = Instant::now() + TIMEOUT;
        let mut three = follow().await;
        while three.is_err() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
            three = follow().await;
        }
        assert!(three.is_ok(), "one that left makes room");
        drop(three);
        drained.signal(Signal::TERM);
        let end = tokio::time::timeout(TIMEOUT, one.message()).await.expect("the stream ends");
        assert!(matches!(end, Ok(None)), "{end:?}");
    });
    assert!(scheduler.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
}
