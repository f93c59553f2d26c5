//! Tests where the time of requests is shown: in the log, on a page, and at a collector, where one get over three
//! processes must be one trace.

mod collector;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use collector::Collector;
use opentelemetry_proto::tonic::trace::v1::Span;
use rebate_tests::http::page;
use rebate_tests::payload::text;
use rebate_tests::{Process, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;
use serde_json::Value;

/// Starts a process with one role. Returns it, and where it says it is after `printed`.
fn service(role: &str, listen: [&str; 2], printed: &str, args: &[&str]) -> (Process, String) {
    let ours = ["serve", "--role", role, "--threads", "1"];
    let mut command = rebate_command();
    let mut process =
        Process::start(command.args(ours).args(listen).args(args)).expect("it starts");
    let address = process.await_ready(TIMEOUT, printed, |process| process.printed(printed));
    (process, address.expect("it serves"))
}

fn requests(admin: std::net::SocketAddr) -> Value {
    let (status, text) = page(admin, "/requests.json").expect("the page");
    assert_eq!(status, 200);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the traces so far, by their ids, of which each span is given with its instance.
fn traces(collector: &Collector) -> Vec<Vec<(String, Span)>> {
    let mut traces: BTreeMap<Vec<u8>, Vec<(String, Span)>> = BTreeMap::new();
    let spans = collector.look(|sent| sent.spans.clone());
    for (instance, span) in spans {
        traces.entry(span.trace_id.clone()).or_default().push((instance, span));
    }
    traces.into_values().collect()
}

/// Returns the first span of a trace that no other span of it caused.
fn root(trace: &[(String, Span)]) -> Option<&Span> {
    trace.iter().map(|(_, span)| span).find(|span| span.parent_span_id.is_empty())
}

/// Runs a set and a get through a frontend that compresses in the service at `compression`, and checks the get's trace.
fn check_one_trace(
    compression_listen: [&str; 2],
    printed: &str,
    as_device: impl Fn(&str) -> String,
) {
    let collector = Collector::start();
    let otlp = format!("otlp.address={}", collector.address);
    let sending = ["--set", &otlp];
    let (_store, store) = service("store", ["--grpc-listen", "127.0.0.1:0"], "grpc on ", &sending);
    let (_compression, compression) = service("compression", compression_listen, printed, &sending);
    let (store, device) = (format!("grpc://{store}"), as_device(&compression));
    let offload = ["--compression", &device, "--set", "runtime.offload_bytes_min=0"];
    let always = ["--set", "requests.sample_every=1", "--threads", "1", "--workers", "0"];
    let frontend = Server::rebate_serve(&store, "on", &[&sending[..], &offload, &always].concat());
    let value = text(20_000);
    let mut client = frontend.client();
    // The first jobs may come before the connection to the service is open.
    let whole = poll_for(3 * TIMEOUT, || {
        assert_eq!(client.set("user:1", &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get("user:1"), Ok(Some(value.clone())));
        let is_whole = |trace: &Vec<(String, Span)>| {
            let instances: BTreeSet<_> = trace.iter().map(|(instance, _)| instance).collect();
            root(trace).is_some_and(|root| root.name == "get") && instances.len() == 3
        };
        traces(&collector).into_iter().find(is_whole)
    });
    let trace =
        whole.unwrap_or_else(|| panic!("no get over three processes: {:#?}", traces(&collector)));
    let names: Vec<_> = trace.iter().map(|(_, span)| span.name.as_str()).collect();
    assert!(trace.len() >= 6, "{names:?}");
    for name in ["get", "store", "decompress", "write", "Store/Execute"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    let ids: BTreeSet<_> = trace.iter().map(|(_, span)| span.span_id.clone()).collect();
    assert_eq!(ids.len(), trace.len(), "two spans have one id");
    for (_, span) in &trace {
        assert!(span.parent_span_id.is_empty() || ids.contains(&span.parent_span_id), "{span:?}");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
    }
}

#[test]
fn a_get_over_three_processes_is_one_trace() {
    check_one_trace(["--grpc-listen", "127.0.0.1:0"], "grpc on ", str::to_owned);
}

#[test]
fn a_get_whose_job_goes_over_a_lane_is_one_trace() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("lane");
    let path = path.to_str().expect("UTF-8");
    check_one_trace(["--lane-listen", path], "lane on ", |path| format!("lane:{path}"));
}

#[test]
fn metrics_and_the_log_reach_the_collector_with_a_token() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().expect("a directory");
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "# for the collector\nAuthorization: Bearer x\n").expect("a file");
    let sets = [
        format!("otlp.address={}", collector.address),
        format!("otlp.headers_file={}", headers.display()),
        "otlp.metrics_every_ms=100".to_owned(),
    ];
    let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    let mut server = Server::rebate_serve("embedded", "on", &args);
    server.signal(Signal::HUP);
    let has_all = poll_for(2 * TIMEOUT, || {
        collector.look(|sent| {
            let has_metric = |name: &str| sent.metrics.iter().any(|metric| metric == name);
            let is_reload = |(severity, line): &(String, String)| {
                severity == "INFO" && line.contains("reloaded")
            };
            let has_metrics = has_metric("memcached_commands_total")
                && has_metric("rebate_request_duration_seconds");
            (has_metrics && sent.lines.iter().any(is_reload)).then_some(())
        })
    });
    assert!(has_all.is_some(), "{:?}", collector.look(|sent| sent.metrics.clone()));
    collector.look(|sent| {
        assert!(sent.tokens.iter().all(|token| token.as_deref() == Some("Bearer x")));
    });
    // What is logged at the end arrives too.
    server.signal(Signal::TERM);
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let is_draining = |(_, line): &(String, String)| line.contains("draining");
    assert!(collector.look(|sent| sent.lines.iter().any(is_draining)));
}

#[test]
fn a_collector_that_is_away_costs_clients_nothing() {
    let port = rebate_tests::Port::free().expect("a port");
    let address = format!("otlp.address=127.0.0.1:{}", port.number());
    let args =
        ["--set", &address, "--set", "requests.sample_every=1", "--admin-listen", "127.0.0.1:0"];
    let mut server = Server::rebate_serve("embedded", "on", &args);
    let admin = server.admin().expect("it printed the address");
    let mut client = server.client();
    let value = text(1_000);
    for _ in 0..4_000 {
        assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get("k"), Ok(Some(value.clone())));
    }
    let failed = poll_for(3 * TIMEOUT, || {
        let (_, metrics) = page(admin, "/metrics")?;
        let number = |name: &str| -> Option<u64> {
            metrics.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
        };
        let failures = number("rebate_otlp_failures_total ")?;
        let dropped = number("rebate_otlp_dropped_total{signal=\"spans\"} ")?;
        (failures > 0 && dropped > 0).then_some(())
    });
    assert!(failed.is_some(), "nothing tells of the collector");
    server.signal(Signal::TERM);
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
}

#[test]
fn slow_requests_are_logged_with_their_stages() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("log");
    let config = folder.path().join("rebate.toml");
    std::fs::write(&config, "[requests]\nslow_us = 1\nsample_every = 0\n").expect("a file");
    let log = std::fs::File::create(&path).expect("a file");
    let mut command = rebate_command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--config"]);
    command.arg(&config).args(["--log-format", "json"]);
    let mut server = Server::rebate_with(&mut command, Stdio::from(log));
    let admin = server.admin().expect("it printed the address");
    let value = text(20_000);
    let mut client = server.client();
    assert_eq!(client.set("user:1", &value).as_deref(), Ok("STORED"));
    assert_eq!(client.get("user:1"), Ok(Some(value.clone())));
    // The client may have its answer before the server has recorded the request.
    let shown = || {
        let shown = requests(admin);
        let slow = shown["slow"].as_array().expect("a list");
        slow.iter().find(|one| one["command"] == "get").cloned()
    };
    let get = poll_for(TIMEOUT, shown).expect("the get is shown");
    assert_eq!(get["key"], "user:1");
    let stages: Vec<_> = get["stages"].as_array().expect("a list").iter().collect();
    let decompress = stages.iter().find(|stage| stage["stage"] == "decompress").expect("a job");
    assert_eq!(decompress["device"], "software");
    let total = get["total_us"].as_f64().expect("a number");
    let sum: f64 = stages.iter().filter_map(|stage| stage["took_us"].as_f64()).sum();
    assert!(sum <= total, "{get}");
    assert!(
        page(admin, "/requests")
            .is_some_and(|(status, html)| status == 200 && html.contains("user:1"))
    );

    // A reload ends it.
    std::fs::write(&config, "[requests]\nslow_us = 0\nsample_every = 0\n").expect("a file");
    server.signal(Signal::HUP);
    let is_off = poll_for(TIMEOUT, || (requests(admin)["slow_us"] == 0.0).then_some(()));
    assert!(is_off.is_some());
    let before = requests(admin)["slow"].as_array().map(Vec::len);
    assert_eq!(client.get("user:1"), Ok(Some(value.clone())));
    assert_eq!(requests(admin)["slow"].as_array().map(Vec::len), before);
    server.signal(Signal::TERM);
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let log = std::fs::read_to_string(&path).expect("UTF-8");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let slow: Vec<Value> = lines.filter(|line| line["message"] == "slow request").collect();
    let get = slow.iter().find(|line| line["command"] == "get").expect("the get is logged");
    assert_eq!((&get["target"], &get["key"]), (&"server::slow".into(), &"user:1".into()));
    assert!(get["stages"].as_str().is_some_and(|stages| stages.contains("decompress ")), "{get}");
}
