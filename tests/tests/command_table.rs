//! Runs the command table on memcached and on every configuration of Rebate. The answers must be equal, byte for byte.
//! The rows are in `table/`. Each run takes the answers from memcached again.

mod services;

use std::sync::OnceLock;

use rebate_tests::answer::Ending;
use rebate_tests::runner::{self, Outcome};
use rebate_tests::table::{self, Row};
use rebate_tests::{Server, shown};
use services::Service;

const TABLES: [&str; 8] = [
    include_str!("table/classic.txt"),
    include_str!("table/errors.txt"),
    include_str!("table/values.txt"),
    include_str!("table/counters.txt"),
    include_str!("table/expiry.txt"),
    include_str!("table/pipeline.txt"),
    include_str!("table/meta_get.txt"),
    include_str!("table/meta_set.txt"),
];
const META_OTHER: &str = include_str!("table/meta_other.txt");

/// Enough memory that nothing is evicted while the table runs.
const MEMORY: [&str; 2] = ["-m", "512"];

/// Returns the rows and memcached's answers, which are taken once for all tests of this binary.
fn reference() -> &'static (Vec<Row>, Vec<Vec<Outcome>>) {
    static REFERENCE: OnceLock<(Vec<Row>, Vec<Vec<Outcome>>)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let texts = TABLES.iter().chain([&META_OTHER]);
        let rows = table::with_keys(texts.flat_map(|text| table::parse(text)).collect());
        let memcached = Server::memcached(&MEMORY);
        let answers = runner::run(memcached.addr(), &rows);
        (rows, answers)
    })
}

fn check(configuration: &str, server: &Server) {
    let (rows, answers) = reference();
    let ours = runner::run(server.addr(), rows);
    let mismatches = runner::mismatches(rows, configuration, answers, &ours);
    for mismatch in &mismatches {
        println!("{}", mismatch.0);
    }
    let (wrong, all) = (mismatches.len(), rows.len());
    assert!(wrong == 0, "{configuration}: {wrong} of {all} rows differ from memcached");
}

#[test]
fn every_row_ends_in_an_answer_or_a_close() {
    let (rows, answers) = reference();
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
