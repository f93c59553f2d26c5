//! Devices that are tried before a server uses them: which are used, which are not, and that its page says so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Device, FaultPlan, Faulty, Software};
use server::config::PolicyName;
use server::{Config, Devices, Server};
use units::ByteCount;

fn software() -> Arc<dyn Device> {
    Arc::new(Software::default())
}

fn faulty(plan: FaultPlan) -> Arc<dyn Device> {
    Arc::new(Faulty::new(software(), plan))
}

fn over(device: &Arc<dyn Device>) -> Devices {
    Devices { all: vec![software(), Arc::clone(device)], accelerators: 1 }
}

fn is_withdrawn(devices: &Devices) -> bool {
    let counted = devices.all[1].counters().contains(&("withdrawn", 1));
    assert_eq!(counted, devices.all[1].capabilities().writes.is_empty(), "all of it or nothing");
    counted
}

#[test]
fn only_a_device_that_gives_wrong_bytes_is_not_used() {
    let plans = [
        (FaultPlan::default(), false),
        (FaultPlan { corrupt_every: 1, ..FaultPlan::default() }, true),
        (FaultPlan { shorten_every: 1, ..FaultPlan::default() }, true),
        (FaultPlan { fail_every: 1, ..FaultPlan::default() }, false),
        (FaultPlan { lose_every: 1, ..FaultPlan::default() }, false),
    ];
    for (plan, expected) in plans {
        let told = format!("{plan:?}");
        let device = faulty(plan);
        let devices = over(&device).qualified(0);
        assert_eq!(is_withdrawn(&devices), expected, "{told}");
        assert_eq!(devices.all[1].name(), device.name(), "it keeps its place");
        assert_eq!(devices.accelerators, 1);
    }
}

#[test]
fn a_device_that_does_not_answer_delays_the_start_once_and_is_used() {
    let device = faulty(FaultPlan { hang_every: 1, ..FaultPlan::default() });
    assert!(!is_withdrawn(&over(&device).qualified(0)));
    // Not once for each kind of job.
    assert!(device.counters().contains(&("hung", 1)), "{:?}", device.counters());
}

#[test]
fn a_service_is_not_asked() {
    let device = faulty(FaultPlan { corrupt_every: 1, ..FaultPlan::default() });
    assert!(!is_withdrawn(&over(&device).qualified(1)));
    assert!(device.counters().contains(&("corrupted", 0)), "{:?}", device.counters());
}

#[test]
fn a_server_does_without_a_withdrawn_device_and_its_page_names_it() {
    let device = faulty(FaultPlan { corrupt_every: 1, ..FaultPlan::default() });
    let mut config = Config::default();
    config.server.listen = vec!["127.0.0.1:0".to_owned()];
    config.server.admin_listen = "127.0.0.1:0".to_owned();
    config.server.threads = 1;
    config.runtime.policy = PolicyName::AsyncOffload;
    config.runtime.offload_bytes_min = ByteCount(0);
    let running = Server::start(config, over(&device).qualified(0)).expect("starts");
    let value = "a value that compresses well, ".repeat(100);
    let set = format!("set key 0 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(asked(running.addresses()[0], &format!("{set}quit\r\n")), "STORED\r\n");
    let answer = asked(running.addresses()[0], "get key\r\nquit\r\n");
    assert_eq!(answer, format!("VALUE key 0 {}\r\n{value}\r\nEND\r\n", value.len()));
    let admin = running.admin_address().expect("pages are on");
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let page = asked(admin, request);
    let named = "{device=\"faulty-software\",counter=\"withdrawn\"} 1";
    assert!(page.contains(named), "{page}");
    let jobs: Vec<_> = page.lines().filter(|line| line.starts_with("rebate_jobs_total{")).collect();
    assert!(jobs.iter().all(|line| line.contains("device=\"software\"")), "{jobs:#?}");
    let counts = jobs.iter().map(|line| line.rsplit(' ').next().expect("a value"));
    let jobs: f64 = counts.map(|text| text.parse::<f64>().expect("a number")).sum();
    assert_eq!(jobs, 2.0, "what was tried before is in no count");
}

/// All that is answered until the connection closes.
fn asked(address: std::net::SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(text.as_bytes()).expect("is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answers");
    answer
}
