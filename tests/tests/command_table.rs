//! Runs the tables of commands and of packets on memcached and on every configuration of Rebate. The answers must be
//! equal, byte for byte. The rows are in `table/`. Each run takes the answers from memcached again.

mod near_bridge;
mod services;
mod thrift_bridge;

use std::net::SocketAddr;
use std::sync::OnceLock;

use rebate_tests::answer::Ending;
use rebate_tests::client::Speech;
use rebate_tests::payload::base64;
use rebate_tests::runner::{self, Outcome};
use rebate_tests::table::{self, Row};
use rebate_tests::{Server, shown};
use services::Service;
use tempfile::TempDir;
use thrift_bridge::INEXPRESSIBLE;

const TEXT: [&str; 9] = [
    include_str!("table/classic.txt"),
    include_str!("table/errors.txt"),
    include_str!("table/values.txt"),
    include_str!("table/counters.txt"),
    include_str!("table/expiry.txt"),
    include_str!("table/pipeline.txt"),
    include_str!("table/meta_get.txt"),
    include_str!("table/meta_set.txt"),
    include_str!("table/meta_other.txt"),
];
const BINARY: &str = include_str!("table/binary.txt");

/// Enough memory that nothing is evicted while the table runs.
const MEMORY: [&str; 2] = ["-m", "512"];

/// The rows of one protocol and memcached's answers to them.
struct Reference {
    speech: Speech,
    rows: Vec<Row>,
    answers: Vec<Vec<Outcome>>,
}

impl Reference {
    fn new(speech: Speech, texts: &[&str]) -> Self {
        let rows = texts.iter().flat_map(|text| table::parse(text)).collect();
        let rows = table::with_keys(rows);
        let memcached = Server::memcached(&MEMORY);
        let answers = runner::run_in(memcached.addr(), &rows, speech);
        Self { speech, rows, answers }
    }

    fn check(&self, configuration: &str, addr: SocketAddr) {
        let Self { speech, rows, answers } = self;
        let ours = runner::run_in(addr, rows, *speech);
        let mismatches = runner::mismatches(rows, configuration, answers, &ours);
        for mismatch in &mismatches {
            println!("{}", mismatch.0);
        }
        let (wrong, all) = (mismatches.len(), rows.len());
        assert!(wrong == 0, "{configuration}: {wrong} of {all} rows differ from memcached");
    }
}

/// Returns the references of both protocols, which are made once for all tests of this binary.
fn references() -> &'static [Reference; 2] {
    static REFERENCES: OnceLock<[Reference; 2]> = OnceLock::new();
    REFERENCES.get_or_init(|| {
        [Reference::new(Speech::Text, &TEXT), Reference::new(Speech::Packets, &[BINARY])]
    })
}

/// Runs the commands on a server.
fn check(configuration: &str, server: &Server) {
    let [commands, _] = references();
    commands.check(configuration, server.addr());
}

/// Runs the packets on a server.
fn check_packets(configuration: &str, server: &Server) {
    let [_, packets] = references();
    packets.check(configuration, server.addr());
}

#[test]
fn every_row_ends_in_an_answer_or_a_close() {
    let [Reference { rows, answers, .. }, _] = references();
    let steps =
        rows.iter().zip(answers).flat_map(|(row, steps)| steps.iter().map(move |s| (row, s)));
    let hanging = steps.filter(|(_, step)| step.answer.ending == Ending::TimedOut);
    let named: Vec<String> = hanging
        .map(|(row, step)| format!("[{}] {}: {}", row.story, row.title, shown(&step.sent)))
        .collect();
    assert!(named.is_empty(), "memcached itself does not answer:\n{}", named.join("\n"));
}

#[test]
fn memcached_answers_as_memcached() {
    check("twin", &Server::memcached(&MEMORY));
}

#[test]
fn monolith_answers_as_memcached() {
    check("embedded-monolith", &Server::rebate_memcached(&MEMORY));
}

#[test]
fn embedded_store_with_compression_answers_as_memcached() {
    check("embedded-on", &Server::rebate_serve("embedded", "on", &[]));
}

#[test]
fn embedded_store_without_compression_answers_as_memcached() {
    check("embedded-off", &Server::rebate_serve("embedded", "off", &[]));
}

#[test]
fn memcached_store_with_compression_answers_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-on", &Server::rebate_serve(&store.as_store(), "on", &[]));
}

#[test]
fn memcached_store_without_compression_answers_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-off", &Server::rebate_serve(&store.as_store(), "off", &[]));
}

#[test]
fn memcached_store_read_only_answers_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-read-only", &Server::rebate_serve(&store.as_store(), "read-only", &[]));
}

/// Returns the arguments with which values are sealed and no others are served, with a file of keys in `folder`.
fn sealed(folder: &TempDir) -> Vec<String> {
    let keys = folder.path().join("keys.toml");
    let secret = base64(&[7; 32]);
    let text = format!("active = 3\n[[key]]\nid = 3\nsecret = \"{secret}\"\n");
    std::fs::write(&keys, text).expect("the keys are written");
    let keys = format!("values.keys={}", keys.display());
    let args = ["--set", &keys, "--set", "values.path=compress,encrypt", "--foreign", "forbid"];
    args.map(str::to_owned).into()
}

fn sealing(store: &str, more: &[&str]) -> (Server, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let args = sealed(&folder);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
    (Server::rebate_serve(store, "on", &args), folder)
}

#[test]
fn sealed_values_in_the_embedded_store_answer_as_memcached() {
    check("embedded-on-sealed", &sealing("embedded", &[]).0);
}

#[test]
fn sealed_values_in_memcached_answer_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-on-sealed", &sealing(&store.as_store(), &[]).0);
}

#[test]
fn sealed_values_behind_a_store_service_answer_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let service = Service::start("store", 0, &["--store", &store.as_store()]);
    let url = format!("grpc://{}", service.grpc);
    check("store-on-sealed-grpc", &sealing(&url, &["--role", "frontend"]).0);
}

#[test]
fn sealed_values_answer_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check_packets("store-on-sealed", &sealing(&store.as_store(), &[]).0);
}

fn before(service: &Service, compress: &str) -> Server {
    let url = format!("grpc://{}", service.grpc);
    Server::rebate_serve(&url, compress, &["--role", "frontend"])
}

#[test]
fn memcached_behind_a_store_service_answers_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let service = Service::start("store", 0, &["--store", &store.as_store()]);
    check("store-on-grpc", &before(&service, "on"));
}

#[test]
fn memcached_behind_a_store_service_without_compression_answers_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let service = Service::start("store", 0, &["--store", &store.as_store()]);
    check("store-off-grpc", &before(&service, "off"));
}

#[test]
fn the_embedded_store_behind_a_service_answers_as_memcached() {
    let service = Service::start("store", 0, &["--store", "embedded"]);
    check("embedded-grpc", &before(&service, "on"));
}

#[test]
fn monolith_answers_packets_as_memcached() {
    check_packets("embedded-monolith", &Server::rebate_memcached(&MEMORY));
}

#[test]
fn embedded_store_answers_packets_as_memcached() {
    check_packets("embedded-off", &Server::rebate_serve("embedded", "off", &[]));
}

#[test]
fn memcached_store_with_compression_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check_packets("store-on", &Server::rebate_serve(&store.as_store(), "on", &[]));
}

#[test]
fn memcached_store_without_compression_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check_packets("store-off", &Server::rebate_serve(&store.as_store(), "off", &[]));
}

#[test]
fn memcached_behind_a_store_service_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let service = Service::start("store", 0, &["--store", &store.as_store()]);
    check_packets("store-on-grpc", &before(&service, "on"));
}

/// Starts a server that near clients can reach. Returns an address whose connections are near connections to it.
fn near(store: &str, compress: &str) -> (Server, SocketAddr, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("near");
    let listen = path.display().to_string();
    let server = Server::rebate_serve(store, compress, &["--near-listen", &listen]);
    let bridge = near_bridge::listen(path).expect("the bridge listens");
    (server, bridge, folder)
}

#[test]
fn embedded_store_answers_near_clients_as_memcached() {
    let (_server, addr, _folder) = near("embedded", "off");
    for reference in references() {
        reference.check("embedded-off-near", addr);
    }
}

#[test]
fn memcached_store_with_compression_answers_packets_of_near_clients_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let (_server, addr, _folder) = near(&store.as_store(), "on");
    let [_, packets] = references();
    packets.check("store-on-near", addr);
}

/// Runs the commands that Thrift calls express on a server, and compares their answers.
fn check_calls(configuration: &str, store: &str, compress: &str) {
    let args = ["--thrift-listen", "127.0.0.1:0"];
    let server = Server::rebate_serve(store, compress, &args);
    let thrift = server.printed("thrift on ").and_then(|text| text.parse().ok());
    let addr = thrift_bridge::listen(thrift.expect("an address")).expect("the bridge listens");
    let [Reference { rows, answers, .. }, _] = references();
    let ours = runner::run_in(addr, rows, Speech::Text);
    let is_other = |step: &Outcome| contains(&step.answer.bytes, INEXPRESSIBLE);
    let is_expressed = |row: &usize| !ours[*row].iter().any(is_other);
    let expressed: Vec<usize> = (0..rows.len()).filter(is_expressed).collect();
    assert!(expressed.len() >= ROWS_EXPRESSED_MIN, "{} rows", expressed.len());
    let of = |all: &[Vec<Outcome>]| -> Vec<Vec<Outcome>> {
        expressed.iter().map(|row| all[*row].clone()).collect()
    };
    let rows: Vec<Row> = expressed.iter().map(|row| rows[*row].clone()).collect();
    let mismatches = runner::mismatches(&rows, configuration, &of(answers), &of(&ours));
    for mismatch in &mismatches {
        println!("{}", mismatch.0);
    }
    let (wrong, all) = (mismatches.len(), rows.len());
    assert!(wrong == 0, "{configuration}: {wrong} of {all} rows differ from memcached");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The least number of rows that calls express. With fewer, the bridge would have lost some.
const ROWS_EXPRESSED_MIN: usize = 100;

#[test]
fn embedded_store_answers_calls_as_memcached() {
    check_calls("embedded-off-thrift", "embedded", "off");
}

#[test]
fn embedded_store_with_compression_answers_calls_as_memcached() {
    check_calls("embedded-on-thrift", "embedded", "on");
}

#[test]
fn memcached_store_with_compression_answers_calls_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check_calls("store-on-thrift", &store.as_store(), "on");
}
