//! Opens the scheduler's page in a browser. Its rows must be there, and the page must send no request to another host.

mod services;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::thread;

use rebate_tests::payload::text;
use rebate_tests::{Server, TIMEOUT, poll_for};
use serde_json::Value;
use services::{Service, metrics, page};

/// Returns the document as the browser renders it, and the hosts that its requests went to.
fn browse(url: &str) -> (String, BTreeSet<String>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("net.json");
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-default-apps", "--disable-extensions"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", folder.path().join("user").display()))
        .arg(format!("--log-net-log={}", log.display()))
        .args(["--dump-dom", url])
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!("chromium does not start ({error}); install it: apt-get install -y chromium")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    (dom, hosts(&log))
}

/// Returns the hosts to which the documents sent requests, from the browser's log. Internal requests of the
/// browser have no origin and are ignored. They stay on this machine because no name is resolved.
fn hosts(log: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(log).expect("chromium writes its log");
    let log: Value = serde_json::from_str(&text).expect("the log is JSON");
    let events = log["events"].as_array().expect("events").iter();
    let of_documents = events.filter(|event| {
        event["params"]["initiator"].as_str().is_some_and(|origin| origin.starts_with("http"))
    });
    let host = |event: &Value| {
        let (_, rest) = event["params"]["url"].as_str()?.split_once("//")?;
        Some(rest.split('/').next()?.to_owned())
    };
    of_documents.filter_map(host).collect()
}

/// Serves one document to any client, with a thread for each connection.
fn serve(body: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _request = stream.read(&mut [0; 4_096]);
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
                let _gone = stream.write_all([head, body].concat().as_bytes());
            });
        }
    });
    addr
}

#[test]
fn a_document_that_asks_others_is_found_out() {
    let addr = serve("<!doctype html><img src=\"http://elsewhere.invalid/x.png\">");
    let (_, hosts) = browse(&format!("http://{addr}/"));
    assert!(hosts.contains("elsewhere.invalid"), "{hosts:?}");
}

#[test]
fn the_page_of_the_scheduler_loads_nothing_further() {
    let scheduler = Service::scheduler(0, &[]);
    let address = scheduler.grpc.to_string();
    let server = Server::rebate_serve(
        "embedded",
        "on",
        &[
            &["--role", "frontend", "--scheduler", &address, "--device", "worker"][..],
            &["--set", "scheduler.instance=front-1", "--set", "runtime.inline_bytes_max=1KiB"],
            // Each get is a job.
            &["--set", "values.hot_share=0"],
        ]
        .concat(),
    );
    let mut client = server.client();
    // There are so many jobs that software's cost also counts as known.
    for n in 0..160 {
        let value = text(100 + 100 * (n % 40));
        assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get("k"), Ok(Some(value)));
    }
    let jobs = || {
        let all = metrics(scheduler.admin);
        let all = all.iter().filter(|(name, _)| name.starts_with("rebate_scheduler_jobs_total{"));
        all.map(|(_, jobs)| jobs).sum::<f64>()
    };
    assert!(poll_for(TIMEOUT, || (jobs() >= 318.0).then_some(())).is_some(), "{}", jobs());

    let (dom, hosts) = browse(&format!("http://{}/scheduler", scheduler.admin));
    for wanted in [
        "<th scope=\"row\">front-1</th><td>frontend</td>",
        "<th scope=\"row\">compress</th><td>worker</td><td>async</td><td>large</td>",
        "<th scope=\"row\">decompress</th><td>software</td><td>software</td><td>policy</td>",
        "from 2KiB",
        "<dt>revision</dt><dd>1</dd>",
        ">Fitted costs</h2>",
        ">Occupancy</h2>",
        "<th scope=\"row\">worker</th>",
        "<th scope=\"row\">software</th>",
        ">predicted gain</th>",
        ">measured gain</th>",
        ">p50 &lt;</th>",
        ">p99 &lt;</th>",
        ">jobs/s</th>",
    ] {
        assert!(dom.contains(wanted), "no {wanted} in {dom}");
    }
    let drawn = dom.matches("class=\"line\" d=\"M").count();
    // The samples of the legend are lines, too.
    let samples = dom.matches("class=\"line\" d=\"M0.0 8.0L38.0 8.0\"").count();
    assert!(samples > 0 && drawn > samples, "{dom}");
    assert!(!dom.contains("<script") && !dom.contains("src="), "{dom}");
    let address = scheduler.admin.to_string();
    assert!(hosts.iter().all(|host| *host == address), "{hosts:?}");

    let (_, head, _) = page(scheduler.admin, "/scheduler");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    let (_, head, body) = page(scheduler.admin, "/scheduler.json?window_s=600");
    assert!(head.contains("content-type: application/json"), "{head}");
    let view: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(view["window_ms"], 600_000);
    assert_eq!(view["instances"][0]["instance"], "front-1");
    let rows = |of: &str| view[of].as_array().cloned().unwrap_or_default();
    let on = |device: &str| {
        let found = rows("occupancy").into_iter().find(|row| row["device"] == device);
        found.unwrap_or_else(|| panic!("no {device} in {view}"))
    };
    let worker = on("worker");
    assert!(worker["worked_on"].as_f64() > Some(0.0), "{worker}");
    assert!(worker["inside"].as_f64() >= worker["worked_on"].as_f64(), "{worker}");
    assert!(worker["host_mean_ns"].as_u64() > Some(0), "{worker}");
    let paths = rows("paths");
    let offloaded = paths.iter().find(|row| row["device"] == "worker" && row["op"] == "compress");
    let offloaded = offloaded.expect("a path of the worker");
    for (part, quantile) in [("service", "p50_below_ns"), ("queueing", "p99_below_ns")] {
        assert!(offloaded[part][quantile].as_u64() > Some(0), "{offloaded}");
    }
    let curves = rows("curves");
    assert!(curves[0]["measured_gain"].as_f64() > Some(0.0), "{curves:?}");
    assert!(curves[0]["predicted_gain"].as_f64() > Some(0.0), "{curves:?}");
}
