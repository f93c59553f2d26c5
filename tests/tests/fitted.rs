//! Tests a scheduler that fits parameters to its reports and controls a frontend with an accelerator. The frontend must
//! follow the parameters, also while the scheduler is down. `rebate model` must get the service's parameters from a
//! scheduler.

mod services;

use std::net::SocketAddr;
use std::process::Command;

use rebate_tests::payload::text;
use rebate_tests::server::rebate_binary;
use rebate_tests::{Port, Server, TIMEOUT, poll_for};
use serde_json::Value;
use services::{Service, metrics};

struct Ran {
    out: String,
    err: String,
    code: Option<i32>,
}

fn model(scheduler: SocketAddr, args: &[&str]) -> Ran {
    let address = scheduler.to_string();
    let mut command = Command::new(rebate_binary());
    let output = command.args(["model", "--scheduler", &address]).args(args).output();
    let output = output.expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { out: text(&output.stdout), err: text(&output.stderr), code: output.status.code() }
}

fn work(server: &Server, values: usize) {
    let mut client = server.client();
    for n in 0..values {
        let value = text(if n % 2 == 0 { 300 + n % 700 } else { 2_000 + 16 * (n % 1_000) });
        let key = format!("k{}", n % 100);
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
        assert_eq!(client.get(&key), Ok(Some(value)));
    }
}

/// Starts a frontend that has an emulated accelerator and reports to the scheduler under the name `front`.
fn frontend(scheduler: &Service) -> Server {
    let address = scheduler.grpc.to_string();
    let ours = ["--role", "frontend", "--admin-listen", "127.0.0.1:0", "--threads", "1"];
    let reports = ["--scheduler", &address, "--set", "scheduler.instance=front"];
    let device = ["--device", "virtual-iaa", "--allow-virtual", "--codec", "deflate"];
    let readable = ["--set", "compress.readable_by=iaa"];
    let args = [&ours[..], &reports, &device, &readable].concat();
    Server::rebate_serve("embedded", "on", &args)
}

#[test]
fn fitted_parameters_are_followed_and_kept() {
    let mut scheduler = Service::scheduler(0, &["--set", "scheduler.parameters=fitted"]);
    let server = frontend(&scheduler);
    let decided = |op: &str| {
        let labels = format!("{{op=\"{op}\",device=\"virtual-iaa\"}}");
        let name = format!("rebate_scheduler_offload_bytes_min{labels}");
        metrics(scheduler.admin).get(&name).copied()
    };
    let both = poll_for(TIMEOUT, || {
        work(&server, 200);
        decided("compress").and(decided("decompress"))
    });
    assert!(both.is_some(), "{}", scheduler.output());
    server.await_printed("policy fitted-offload").expect("it prints that");
    let curve = "rebate_scheduler_curve_seconds{op=\"compress\",device=\"software\"";
    let gain = "rebate_scheduler_gain_ratio{op=\"compress\",kind=\"";
    let shown = poll_for(TIMEOUT, || {
        work(&server, 200);
        let numbers = metrics(scheduler.admin);
        let is_there = |wanted: &String| {
            numbers.iter().any(|(name, value)| name.starts_with(wanted) && *value > 0.0)
        };
        let wanted = [curve.to_owned(), format!("{gain}predicted"), format!("{gain}measured")];
        wanted.iter().all(is_there).then_some(())
    });
    assert!(shown.is_some(), "{:?}", metrics(scheduler.admin));

    scheduler.kill();
    let admin = server.admin().expect("admin pages are on");
    let failed = "rebate_scheduler_reports_total{result=\"failed\"}";
    let away = poll_for(TIMEOUT, || (metrics(admin)[failed] > 0.0).then_some(()));
    assert!(away.is_some(), "{}", server.output());
    // By now the frontend has received everything that the scheduler sent.
    let revision = || metrics(admin)["rebate_scheduler_parameters_revision"];
    let before = revision();
    work(&server, 100);
    assert!(before > 0.0);
    assert_eq!(revision(), before, "the last parameters are kept");
}

/// The scheduler fits no parameters here. Fitted ones depend on this machine's speed, and may leave too few jobs in
/// software or on the device for a model.
#[test]
fn a_model_is_made_of_reported_jobs() {
    let scheduler = Service::scheduler(0, &[]);
    let nothing = model(scheduler.grpc, &[]);
    assert_eq!(nothing.code, Some(1), "{}", nothing.out);
    assert!(nothing.err.contains("no job in the last 60 s"), "{}", nothing.err);
    let server = frontend(&scheduler);
    work(&server, 20);
    let little = || {
        let ran = model(scheduler.grpc, &[]);
        ran.err.contains("jobs in software, needs 200").then_some(ran.code)
    };
    assert_eq!(poll_for(TIMEOUT, little), Some(Some(1)));

    // The frontend times some offloaded jobs on the core.
    let answered = poll_for(TIMEOUT, || {
        work(&server, 400);
        let ran = model(scheduler.grpc, &["--op", "compress", "--json"]);
        (ran.code == Some(0) && !ran.out.contains("not reported")).then_some(ran.out)
    });
    let answer: Value = serde_json::from_str(&answered.expect("enough evidence")).expect("JSON");
    assert_eq!(answer["device"], "virtual-iaa");
    assert_eq!(answer["name"], "front: compress");
    assert!(answer["speedup"]["ci95"][0].as_f64() <= answer["speedup"]["value"].as_f64());
    let parameters = answer["parameters"].as_array().expect("a list");
    for symbol in ["alpha", "n", "o0", "Q", "L", "A"] {
        let parameter = parameters.iter().find(|parameter| parameter["symbol"] == symbol);
        let parameter = parameter.unwrap_or_else(|| panic!("no {symbol} in {answer}"));
        assert!(parameter["source"].is_string() && parameter["interval"].is_array(), "{parameter}");
        assert_eq!(parameter["provenance"], "measured", "{parameter}");
    }
    let text = model(scheduler.grpc, &["--op", "compress"]);
    assert!(text.out.contains("front: compress on virtual-iaa"), "{}", text.out);
}

#[test]
fn a_bad_or_silent_address_is_reported() {
    let nobody = Port::free().expect("a free port");
    let gone = model(nobody.address(), &[]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.err.contains("scheduler 127.0.0.1:"), "{}", gone.err);
    let mut command = Command::new(rebate_binary());
    let both = command.args(["model", "--scheduler", "127.0.0.1:1", "--file", "x"]).output();
    assert_eq!(both.expect("the binary runs").status.code(), Some(2));
}
