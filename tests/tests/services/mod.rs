//! Starts services that have no listener for memcached clients, and reads their pages and counters. This module knows
//! the printed lines and how to request a page. It does not know what a service should answer.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};

use rebate_tests::Process;
use rebate_tests::{TIMEOUT, rebate_command};

/// A process of `rebate serve` with gRPC and admin pages.
pub(crate) struct Service {
    process: Process,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Service {
    /// Starts the service on free ports. A `grpc_port` other than zero is reserved by the caller.
    pub(crate) fn start(role: &str, grpc_port: u16, args: &[&str]) -> Self {
        let grpc = format!("127.0.0.1:{grpc_port}");
        let ours = ["serve", "--role", role, "--grpc-listen", &grpc, "--threads", "2"];
        let mut command = rebate_command();
        command.args(ours).args(["--admin-listen", "127.0.0.1:0"]).args(args);
        let mut process = Process::start(&mut command).expect("it starts");
        let grpc = process.await_ready(TIMEOUT, "line `grpc on ADDR`", |process| {
            process.printed("grpc on ")?.parse().ok()
        });
        let grpc = grpc.expect("it serves");
        let admin = process.printed("admin on ").and_then(|text| text.parse().ok());
        let admin = admin.expect("the admin address is printed before that of gRPC");
        Self { process, grpc, admin }
    }

    /// Starts a scheduler that requests reports often, so that tests need not wait.
    pub(crate) fn scheduler(grpc_port: u16, args: &[&str]) -> Self {
        let often = ["--set", "scheduler.report_every_ms=20"];
        Self::start("scheduler", grpc_port, &[&often, args].concat())
    }
}

impl Deref for Service {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Service {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Returns the status, head and body of a page.
pub(crate) fn page(addr: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(addr).expect("admin pages accept");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("admin pages read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("admin pages answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a status");
    (status, head.to_ascii_lowercase(), body.to_owned())
}

/// Returns the samples of /metrics, by name with labels.
pub(crate) fn metrics(addr: SocketAddr) -> BTreeMap<String, f64> {
    let (status, _, body) = page(addr, "/metrics");
    assert_eq!(status, 200);
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a number");
        (name.to_owned(), value.parse().expect(line))
    };
    samples.map(read).collect()
}

/// Returns the value of a label in a sample's name.
pub(crate) fn label<'n>(name: &'n str, label: &str) -> &'n str {
    let rest = name.split_once(&format!("{label}=\"")).map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default()
}
