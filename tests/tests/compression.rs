//! Tests a frontend and its compression service as two processes. Both must count the jobs. Whatever happens to the
//! service, clients must get their values and notice nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use api::tonic::Code;
use api::v1::compression_client::CompressionClient;
use api::v1::run_response::Outcome;
use api::v1::{Codec, DescribeRequest, EchoRequest, Op, RunManyRequest, RunRequest, RunResponse};
use rebate_tests::Process;
use rebate_tests::payload::payload;
use rebate_tests::server::rebate_binary;
use rebate_tests::{Load, Port, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;

/// A process that runs only the compression service.
struct Service {
    process: Process,
    address: String,
    admin: SocketAddr,
}

impl Service {
    fn start(args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", args)
    }

    fn start_at(address: &str, args: &[&str]) -> Self {
        let ours = ["serve", "--role", "compression", "--threads", "1", "--grpc-listen", address];
        let admin = ["--admin-listen", "127.0.0.1:0"];
        let mut process =
            Process::start(rebate_command().args(ours).args(admin).args(args)).expect("it starts");
        let address = process
            .await_ready(TIMEOUT, "line `grpc on ADDR`", |process| process.printed("grpc on "))
            .expect("it serves");
        let admin = process.printed("admin on ").expect("printed before `grpc on`");
        Self { process, address, admin: admin.parse().expect("an address") }
    }

    /// Returns the number of jobs that this service has done, on any of its devices.
    fn jobs(&self) -> u64 {
        sum(self.admin, "rebate_jobs_total{", &["outcome=\"done\""])
            + sum(self.admin, "rebate_jobs_total{", &["outcome=\"did_not_fit\""])
    }

    fn client(&self) -> CompressionClient<api::tonic::transport::Channel> {
        let address = self.address.parse().expect("an address");
        CompressionClient::new(api::wire::channel(&address, TIMEOUT).expect("an address"))
    }
}

/// Starts a frontend with one worker thread that offloads every value to the service.
fn frontend(service: &Service, args: &[&str]) -> Server {
    let ours = ["--role", "frontend", "--threads", "1", "--compression", &service.address];
    let pages = ["--admin-listen", "127.0.0.1:0", "--set", "runtime.offload_bytes_min=0"];
    Server::rebate_serve("embedded", "on", &[&ours[..], &pages, args].concat())
}

fn metrics(admin: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(admin).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page)
}

/// Returns the sum of all samples whose names begin with `family` and that have these labels.
fn sum(admin: SocketAddr, family: &str, labels: &[&str]) -> u64 {
    let page = metrics(admin).expect("the page of metrics");
    let ours = page.lines().filter(|line| line.starts_with(family));
    let ours = ours.filter(|line| labels.iter().all(|label| line.contains(label)));
    ours.map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)).sum()
}

fn admin(server: &Server) -> SocketAddr {
    server.admin().expect("printed before `listening on`")
}

/// Returns the number of jobs that the service did for the frontend.
fn remote_jobs(server: &Server) -> u64 {
    let remote = "device=\"remote-";
    sum(admin(server), "rebate_jobs_total{", &[remote, "outcome=\"done\""])
        + sum(admin(server), "rebate_jobs_total{", &[remote, "outcome=\"did_not_fit\""])
}

/// Returns the number of jobs that the frontend did itself because the service failed for this reason.
fn redone(server: &Server, reason: &str) -> u64 {
    let reason = format!("reason=\"{reason}\"");
    sum(admin(server), "rebate_fallback_total{", &["from=\"remote-", &reason])
}

/// Waits until the service does another job.
fn await_offload(server: &Server) {
    let before = remote_jobs(server);
    let again = poll_for(3 * TIMEOUT, || (remote_jobs(server) > before).then_some(()));
    assert!(again.is_some(), "no job goes to the service: {:?}", metrics(admin(server)));
}

fn no_harm(load: Load) {
    let seen = format!("{load:?}");
    assert!(seen.contains("errors: 0"), "clients got errors: {seen}");
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn values_come_back_and_both_ends_count_the_jobs() {
    let service = Service::start(&[]);
    let ours = frontend(&service, &[]);
    // The frontend first tests the service and does not count these jobs.
    ours.await_printed("qualified in").expect("it prints that");
    let tried = service.jobs();
    let mut client = ours.client();
    let mut keys = Vec::new();
    for class in ["text", "random", "digits", "bytes", "magictext", "lines"] {
        for length in [100, 1_000, 4_096, 20_000, 65_536, 300_000, 1_000_000] {
            let value = payload(class, length).expect("a known class");
            let key = format!("{class}_{length}");
            assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"), "{key}");
            keys.push((key, value));
        }
    }
    for (key, value) in &keys {
        assert!(client.get(key).as_ref() == Ok(&Some(value.clone())), "{key} differs");
    }
    let jobs = remote_jobs(&ours);
    assert!(jobs > 50, "{jobs} jobs were offloaded");
    assert_eq!(service.jobs(), tried + jobs, "both ends count alike");
    for reason in ["device_lost", "device_fault", "timeout", "queue_full"] {
        assert_eq!(redone(&ours, reason), 0, "{reason}");
    }
}

#[test]
fn a_unix_socket_does_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("compression");
    let service = Service::start_at(path.to_str().expect("UTF-8"), &[]);
    let ours = frontend(&service, &[]);
    let value = payload("text", 20_000).expect("a known class");
    assert_eq!(ours.client().set("a", &value).as_deref(), Ok("STORED"));
    assert_eq!(ours.client().get("a"), Ok(Some(value)));
    assert_eq!(remote_jobs(&ours), 2);
}

#[test]
fn a_killed_service_costs_no_value() {
    let port = Port::free().expect("a free port");
    let mut service = Service::start_at(&port.address().to_string(), &[]);
    let ours = frontend(&service, &[]);
    let load = Load::start(ours.addr());
    load.await_good(300);
    await_offload(&ours);
    service.process.kill();
    load.await_good(300);
    assert!(redone(&ours, "device_lost") > 0);
    let service = Service::start_at(&service.address, &[]);
    await_offload(&ours);
    load.await_good(100);
    assert!(service.jobs() > 0);
    no_harm(load);
}

#[test]
fn a_stopped_service_delays_a_request_by_the_timeout() {
    let service = Service::start(&[]);
    let ours = frontend(&service, &["--set", "runtime.job_timeout_ms=300"]);
    let load = Load::start(ours.addr());
    load.await_good(100);
    await_offload(&ours);
    let before = redone(&ours, "timeout");
    service.process.stop().expect("it stands still");
    let value = payload("text", 9_000).expect("a known class");
    assert_eq!(ours.client().set("a", &value).as_deref(), Ok("STORED"));
    load.await_good(300);
    // Each connection had one job in flight. Later the frontend sends a job now and then, to check whether the service
    // has recovered.
    let waited = redone(&ours, "timeout") - before;
    assert!((1..30).contains(&waited), "{waited} jobs waited for a service that is stopped");
    service.process.go_on();
    await_offload(&ours);
    load.await_good(100);
    no_harm(load);
}

#[test]
fn a_full_service_refuses_and_the_frontend_does_the_job() {
    // A job is in flight for a while only if another thread does it.
    let full = ["--set", "runtime.jobs_max=1", "--set", "runtime.inline_bytes_max=0"];
    let service = Service::start(&full);
    let ours = frontend(&service, &[]);
    let load = Load::start(ours.addr());
    let refused = poll_for(3 * TIMEOUT, || (redone(&ours, "queue_full") > 0).then_some(()));
    assert!(refused.is_some(), "{:?}", metrics(admin(&ours)));
    await_offload(&ours);
    load.await_good(100);
    assert_eq!(redone(&ours, "device_lost"), 0, "a full service is not a lost one");
    no_harm(load);
}

#[test]
fn a_service_that_drains_under_load_loses_nothing() {
    let mut service = Service::start(&[]);
    let ours = frontend(&service, &[]);
    let load = Load::start(ours.addr());
    load.await_good(300);
    await_offload(&ours);
    service.process.signal(Signal::TERM);
    let status = service.process.wait_exit(TIMEOUT).expect("the drain ends");
    assert_eq!(status.code(), Some(0), "{}", service.process.output());
    load.await_good(300);
    no_harm(load);
}

#[test]
fn a_bad_job_is_refused_with_value_and_range() {
    let service = Service::start(&["--item-bytes-max", "64KiB"]);
    let good = RunRequest {
        op: Op::Compress.into(),
        codec: Codec::Zstd.into(),
        output_bytes: 60_000,
        payload: payload("text", 50_000).expect("a known class").into(),
        ..RunRequest::default()
    };
    let bad = [
        (RunRequest { op: 0, ..good.clone() }, "op is 0"),
        (RunRequest { op: 9, ..good.clone() }, "op is 9; valid is 1 (compress)"),
        (RunRequest { codec: 1, ..good.clone() }, "codec is 1; valid is 3 (deflate)"),
        (RunRequest { window_log2: 300, ..good.clone() }, "window_log2 is 300; valid is 0 to 31"),
        (RunRequest { level: 3, ..good.clone() }, "level is 3"),
        (RunRequest { class: 2, ..good.clone() }, "class is 2"),
        (RunRequest { tenant: 65_536, ..good.clone() }, "tenant is 65536; valid is 0 to 65535"),
        (RunRequest { output_bytes: 65_537, ..good.clone() }, "output_bytes is 65537"),
        (RunRequest { output_bytes: u32::MAX, ..good.clone() }, "output_bytes is"),
    ];
    executor().block_on(async {
        let mut client = service.client();
        for (request, said) in bad {
            let status = client.run(request).await.expect_err(said);
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(said), "{said}: {status}");
        }
        let echo = EchoRequest { response_bytes: 65_537, ..EchoRequest::default() };
        let status = client.echo(echo).await.expect_err("too much");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");

        let stream = client.run(good.clone()).await.expect("a job").into_inner();
        assert_eq!(stream.outcome(), Outcome::Done);
        assert_eq!((stream.device.as_str(), stream.reason.as_str()), ("software", "policy"));
        assert!(stream.service_ns > 0);
        let tight = RunRequest { output_bytes: 100, ..good.clone() };
        let tight = client.run(tight).await.expect("a job").into_inner();
        assert_eq!(tight.outcome(), Outcome::DoesNotFit);

        let read = RunRequest {
            op: Op::Decompress.into(),
            output_bytes: 50_000,
            payload: stream.payload,
            ..good.clone()
        };
        let value = client.run(read.clone()).await.expect("a job").into_inner();
        assert!(value.payload == good.payload);

        let many = |jobs: Vec<RunRequest>| RunManyRequest { jobs };
        let short = RunRequest { payload: vec![7; 100].into(), ..good.clone() };
        for (jobs, said) in [
            (many(Vec::new()), "the number of jobs is 0; valid is 1 to 64"),
            (many(vec![RunRequest::default(); 65]), "is 65; valid is 1 to 64"),
            (many(vec![good.clone(), RunRequest { op: 9, ..good.clone() }]), "op is 9"),
            (many(vec![short; 5]), "output_bytes of all jobs is 300000; valid is 0 to 262144"),
        ] {
            let status = client.run_many(jobs).await.expect_err(said);
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(said), "{said}: {status}");
        }
        let broken = RunRequest { payload: vec![7; 100].into(), ..read.clone() };
        let answers = client.run_many(many(vec![read.clone(), broken, good.clone()])).await;
        let answers = answers.expect("a call").into_inner().answers;
        let outcomes: Vec<Outcome> = answers.iter().map(RunResponse::outcome).collect();
        assert_eq!(outcomes, [Outcome::Done, Outcome::InvalidInput, Outcome::Done], "in order");
        assert!(answers[0].payload == good.payload && answers[2].payload == read.payload);
        let wrong = RunRequest { output_bytes: 49_999, ..read };
        let wrong = client.run(wrong).await.expect("a job").into_inner();
        assert_eq!(wrong.outcome(), Outcome::InvalidInput);
    });
}

#[test]
fn the_service_describes_itself_and_echoes() {
    let service = Service::start(&[]);
    executor().block_on(async {
        let mut client = service.client();
        let described = client.describe(DescribeRequest {}).await.expect("an answer").into_inner();
        assert_eq!(described.work_bytes_max, 1 << 20);
        assert_eq!(described.devices[0].name, "software");
        assert!(described.devices[0].reads.iter().any(|dialect| dialect == "deflate"));
        let echo = EchoRequest { response_bytes: 4_096, payload: vec![1; 100].into() };
        let echoed = client.echo(echo).await.expect("an answer").into_inner();
        assert_eq!(echoed.payload.len(), 4_096);
    });
    let list = rebate_command()
        .args(["devices", "--compression", &format!("{},lane:/run/lane", service.address)])
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.status.success() && text.contains("software"), "{text}");
    assert!(text.contains("which takes up to 1MiB uncompressed"), "{text}");
    assert!(text.contains("lane-/run/lane"), "{text}");
}

#[test]
fn a_device_that_there_is_not_is_bad_usage() {
    for (device, said) in
        [("qat", "there are worker, qpl-hardware"), ("virtual-iaa", "--allow-virtual")]
    {
        let ended = Command::new(rebate_binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--device", device])
            .output()
            .expect("the binary runs");
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

fn executor() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("an executor")
}
