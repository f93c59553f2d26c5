//! Tests `rebate rpc` with the stock Thrift library, as client and as server, and with clients that misbehave.

mod greedy;
#[path = "../stock_thrift/mod.rs"]
mod stock_thrift;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

use rebate_tests::Process;
use rebate_tests::{TIMEOUT, poll_for, rebate_binary};
use rustix::process::Signal;
use serde_json::Value;

const SERVICES: [&str; 3] = ["memcached", "post-storage", "unique-id"];
const LAYOUTS: [&str; 3] = ["inline", "two-thread", "four-thread"];

struct Service {
    process: Process,
    address: SocketAddr,
}

fn started(command: &mut Command) -> Service {
    let mut process = Process::start(command).expect("it starts");
    let address = process.await_ready(TIMEOUT, "address", |process| {
        process.printed("listening on ").and_then(|text| text.parse().ok())
    });
    Service { address: address.expect("it serves"), process }
}

fn ours(service: &str, layout: &str, flags: &[&str]) -> Service {
    let mut command = Command::new(rebate_binary());
    command.args(["rpc", "serve", "--listen", "127.0.0.1:0", "--service", service]);
    // Several services run at once, and this machine may have fewer cores than threads.
    started(command.args(["--layout", layout, "--cores", "any"]).args(flags))
}

/// Runs `rebate rpc load` with these flags, which give the number of requests. Its time limit is 600 s.
fn load(address: SocketAddr, flags: &[&str]) -> Output {
    let mut command = Command::new(rebate_binary());
    let address = address.to_string();
    command.args(["rpc", "load", &address, "--json", "--duration", "600s"]).args(flags);
    command.output().expect("the binary runs")
}

fn report(output: &Output) -> Value {
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn equal_answers_from_ours_and_from_stock_servers() {
    for service in SERVICES {
        let Some(mut serve) = peer(&["serve", service]) else { return };
        let stock = started(&mut serve);
        let expected = asked(service, stock.address);
        assert!(expected.lines().count() >= 3, "{expected}");
        for layout in LAYOUTS {
            let ours = ours(service, layout, &[]);
            assert_eq!(asked(service, ours.address), expected, "{service}, {layout}");
        }
    }
}

fn asked(service: &str, address: SocketAddr) -> String {
    let mut ask = peer(&["ask", service, &address.to_string()]).expect("it is there");
    let output = ask.output().expect("python runs");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{service}: {problem}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn our_client_finds_in_a_stock_server_what_it_stored() {
    for (service, workload) in SERVICES.into_iter().zip(["memc_mid", "post_mid", "unique_id"]) {
        let Some(mut serve) = peer(&["serve", service]) else { return };
        let stock = started(&mut serve);
        let flags = ["--requests", "400", "--keys", "40", "--connections", "2"];
        let flags = [&["--workload", workload][..], &flags].concat();
        let report = report(&load(stock.address, &flags));
        assert_eq!((&report["wrong"], &report["misses"]), (&0.into(), &0.into()), "{report}");
        assert_eq!((&report["requests"], &report["exceptions"]), (&400.into(), &0.into()));
    }
}

#[test]
fn loads_end_with_no_wrong_byte_in_every_layout() {
    for layout in LAYOUTS {
        let mut service = ours("memcached", layout, &[]);
        // Three of the four connections send one request more than the fourth.
        for (shape, ratio) in [("k8_v8", "0.2"), ("k16_v32", "0.5"), ("k40_v3000", "0.8")] {
            let flags = ["--shape", shape, "--set-ratio", ratio, "--requests", "3003"];
            let report = report(&load(service.address, &[&flags[..], &["--keys", "900"]].concat()));
            assert_eq!((&report["wrong"], &report["misses"]), (&0.into(), &0.into()), "{report}");
            assert_eq!(report["requests"], 3003);
            let sum = report["writes"].as_u64().zip(report["reads"].as_u64());
            assert_eq!(sum.map(|(writes, reads)| writes + reads), Some(3003));
        }
        service.process.signal(Signal::TERM);
        let status = service.process.wait_exit(TIMEOUT).expect("it ends");
        assert!(status.success(), "{}", service.process.output());
        let output = service.process.output();
        let summary = format!("0 messages refused on 12 connections, layout {layout}");
        assert!(output.contains(&summary), "{output}");
        assert!(output.contains(&format!("layout {layout}: NetCore")), "{output}");
    }
}

#[test]
fn a_load_that_is_stopped_goes_on_where_it_was() {
    let service = ours("memcached", "inline", &[]);
    service.process.stop().expect("it stands still");
    let address = service.address.to_string();
    let mut command = Command::new(rebate_binary());
    let flags = ["--requests", "400", "--keys", "40", "--duration", "600s"];
    let mut load =
        Process::start(command.args(["rpc", "load", &address]).args(flags)).expect("it starts");
    // After this the clients of the load wait for answers.
    let has_asked = || waiting_bytes(service.address).filter(|bytes| *bytes > 0);
    assert!(poll_for(TIMEOUT, has_asked).is_some(), "{}", load.output());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        load.stop().expect("it stands still");
        load.go_on();
    }
    service.process.go_on();
    let status = load.wait_exit(TIMEOUT).expect("it ends");
    assert!(status.success(), "{}", load.output());
}

/// Returns the number of bytes that have arrived at the port and were not read, from /proc.
fn waiting_bytes(address: SocketAddr) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let port = format!(":{:04X}", address.port());
    let established = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let queues = established.filter(|words| {
        words.get(1).is_some_and(|local| local.ends_with(&port)) && words[3] == "01"
    });
    let bytes =
        queues.filter_map(|words| u64::from_str_radix(words[4].split_once(':')?.1, 16).ok());
    Some(bytes.sum())
}

#[test]
fn the_other_services_have_their_loads() {
    for (service, workload, writes) in
        [("post-storage", "post_mid", true), ("unique-id", "unique_id", false)]
    {
        let service = ours(service, "two-thread", &[]);
        let flags = ["--workload", workload, "--requests", "600", "--keys", "60"];
        let report = report(&load(service.address, &flags));
        assert_eq!((&report["wrong"], &report["misses"]), (&0.into(), &0.into()), "{report}");
        assert_eq!((&report["requests"], &report["exceptions"]), (&600.into(), &0.into()));
        assert_eq!(report["writes"].as_u64() > Some(0), writes, "{report}");
    }
}

#[test]
fn stages_are_told_at_the_end() {
    let mut service = ours("memcached", "inline", &["--time-stages"]);
    report(&load(service.address, &["--requests", "400", "--keys", "40"]));
    service.process.signal(Signal::TERM);
    service.process.wait_exit(TIMEOUT).expect("it ends");
    let output = service.process.output();
    let line = output.lines().find_map(|line| line.split_once("stages of 440 requests: network "));
    let (_, line) = line.unwrap_or_else(|| panic!("{output}"));
    let parts = [("rpc ", ", "), ("handler ", " a request")];
    for (name, end) in parts {
        let part = line.split_once(name).and_then(|(_, rest)| rest.split_once(end));
        let ns = part.and_then(|(part, _)| part.trim_end_matches(" ns").parse::<f64>().ok());
        assert!(ns.is_some_and(|ns| ns > 0.0), "{name}: {line}");
    }
}

#[test]
fn packets_are_recorded_and_replayed_in_every_layout() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("packets");
    let rebate = |flags: &[&str]| {
        let mut command = Command::new(rebate_binary());
        command.arg("rpc").args(flags).output().expect("the binary runs")
    };
    for workload in ["memc_tiny", "post_low", "unique_id"] {
        let file = path.to_str().expect("text");
        let recorded =
            rebate(&["record", file, "--workload", workload, "--requests", "500", "--keys", "50"]);
        assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
        let layouts = ["--layout", "inline,two-thread,four-thread", "--cores", "any"];
        let runs = ["--requests", "1200", "--runs", "2", "--check", "--json"];
        let report = report(&rebate(&[&["replay", file][..], &layouts, &runs].concat()));
        let rows = report["layouts"].as_array().expect("rows");
        for (row, copies) in rows.iter().zip([4, 2, 1]) {
            assert_eq!((&row["copies"], &row["threads"]), (&copies.into(), &4.into()), "{row}");
            let right = copies * 2 * (1200 + if workload == "unique_id" { 0 } else { 50 });
            assert_eq!(row["answers"]["right"], right, "{row}");
            assert!(row["requests_per_second"]["median"].as_f64() > Some(0.0), "{row}");
        }
        assert_eq!((rows.len(), &report["hops"]), (3, &Value::Array(Vec::new())));
    }
    std::fs::write(&path, "rebate-rpc 1 memcached warm=0 frames=1 bytes=9\n").expect("written");
    for (flags, words) in [
        (&["replay", path.to_str().expect("text")][..], "cut short"),
        (&["replay", "no such file"], "No such file"),
        (&["replay", "--window", "17"], "1 to 16"),
        (&["replay", "x", "--workload", "memc_mid"], "cannot be used with"),
        (&["replay", "--cores", "x"], "no core"),
        (&["replay", "--layout", "two-thread", "--cores", "0"], "1 core named"),
        (&["replay", "--workload", "post_mid", "--shape", "k8_v8"], "memc_"),
        (&["soak", "--requests", "0"], "1 request"),
    ] {
        let output = rebate(flags);
        let problem = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {problem}");
        assert!(problem.contains(words), "{flags:?}: {problem}");
    }
}

#[test]
fn a_soak_has_no_wrong_byte() {
    let mut command = Command::new(rebate_binary());
    command.args(["rpc", "soak", "--requests", "20000", "--layout", "four-thread"]);
    let report = report(&command.args(["--cores", "any", "--json"]).output().expect("it runs"));
    assert_eq!(
        (&report["requests"], &report["answers"]["right"]),
        (&20_000.into(), &20_000.into())
    );
    assert!(report["answers"]["refused_rightly"].as_u64() > Some(100), "{report}");
}

#[test]
fn a_store_that_is_full_makes_room_and_says_so() {
    let service = ours("memcached", "inline", &["--memory", "1MiB"]);
    let flags = ["--shape", "k16_v4000", "--keys", "2000", "--requests", "4000"];
    let report = report(&load(service.address, &flags));
    assert_eq!(report["wrong"], 0);
    assert!(report["misses"].as_u64() > Some(100), "{report}");
}

#[test]
fn clients_that_do_not_behave_harm_only_themselves() {
    for layout in LAYOUTS {
        let service = ours("memcached", layout, &["--message-bytes-max", "4KiB"]);
        let connect = || {
            let stream = TcpStream::connect(service.address).expect("it listens");
            stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            stream
        };
        // Frames that are too long, negative, empty, or not a call close the connection.
        for bytes in [&b"\0\x10\0\0"[..], b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x04abcd"] {
            let mut stream = connect();
            stream.write_all(bytes).expect("it is sent");
            assert_eq!(stream.read(&mut [0; 16]).expect("it is closed"), 0, "{bytes:?}");
        }
        // One client sends half a frame and disconnects. Another sends half a frame and stays.
        connect().write_all(b"\0\0\0\x20\x80\x01").expect("it is sent");
        let mut slow = connect();
        slow.write_all(b"\0\0\0\x10\x80\x01\0").expect("it is sent");
        // Several requests in one write, with a refused one among them, are answered in order.
        let call = |name: &[u8], sequence: u8| {
            let head = [b"\0\0\0\x1a\x80\x01\0\x01\0\0\0\x03", name, &[0, 0, 0, sequence]].concat();
            [&head[..], b"\x0b\0\x01\0\0\0\x03key\0"].concat()
        };
        let mut stream = connect();
        let calls = [call(b"Get", 1), call(b"Nix", 2), call(b"Get", 3)].concat();
        stream.write_all(&calls).expect("it is sent");
        for sequence in 1..=3 {
            let mut head = [0; 4];
            stream.read_exact(&mut head).expect("an answer");
            let mut body = vec![0; u32::from_be_bytes(head) as usize];
            stream.read_exact(&mut body).expect("whole");
            assert_eq!(body[3], if sequence == 2 { 3 } else { 2 }, "an exception or a reply");
            assert_eq!(body[14], sequence);
        }
        // The slow client completes its request.
        slow.write_all(b"\x01\0\0\0\x03Get\0\0\0\x07\0").expect("it is sent");
        let mut head = [0; 8];
        slow.read_exact(&mut head).expect("an answer");
        assert_eq!(head[7], 3, "a Get without a key is malformed");
    }
}

#[test]
fn bad_usage_says_what_is_valid() {
    for (flags, words) in [
        (&["serve", "--service", "memcached", "--message-bytes-max", "10"][..], "1KiB to 64MiB"),
        (&["serve", "--service", "memcached", "--memory", "0"], "64KiB to 64TiB"),
        (&["serve", "--service", "memcached", "--connections-max", "0"], "give 1 to"),
        (&["load", "nowhere"], "HOST:PORT"),
        (&["load", "127.0.0.1:1", "--shape", "v8"], "k8_v8"),
        (&["load", "127.0.0.1:1", "--shape", "k4_v8"], "give 8 to 250"),
        (&["load", "127.0.0.1:1", "--set-ratio", "2"], "give 0 to 1"),
        (&["load", "127.0.0.1:1", "--workload", "unique_id", "--shape", "k8_v8"], "memc_"),
        (&["serve", "--service", "unique-id", "--cores", "0,0", "--layout", "two-thread"], "twice"),
        (&["serve", "--service", "unique-id", "--layout", "two-thread", "--time-stages"], "inline"),
        (&["record", "/dev/null", "--shape", "k16_v1000000"], "of that length at most"),
        (&["replay", "--keys", "4294967296"], "of that length at most"),
    ] {
        let output = Command::new(rebate_binary()).arg("rpc").args(flags).output();
        let output = output.expect("the binary runs");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {problem}");
        assert!(problem.contains(words), "{flags:?}: {problem}");
    }
}

/// Returns a command that runs the stock library's peer.
fn peer(arguments: &[&str]) -> Option<Command> {
    stock_thrift::python("rpc/thrift_peer.py", arguments)
}
