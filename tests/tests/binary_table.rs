//! Runs the table of packets on memcached and on every configuration of Rebate. The answers must be equal, byte for
//! byte. The rows are in `table/binary.txt`. Each run takes the answers from memcached again.

mod services;

use std::sync::OnceLock;

use rebate_tests::client::Speech;
use rebate_tests::runner::{self, Outcome};
use rebate_tests::table::{self, Row};
use rebate_tests::{Client, Server};
use services::Service;

/// Enough memory that nothing is evicted while the table runs.
const MEMORY: [&str; 2] = ["-m", "512"];

/// Returns the rows and memcached's answers, which are taken once for all tests of this binary.
fn reference() -> &'static (Vec<Row>, Vec<Vec<Outcome>>) {
    static REFERENCE: OnceLock<(Vec<Row>, Vec<Vec<Outcome>>)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let rows = table::with_keys(table::parse(include_str!("table/binary.txt")));
        let memcached = Server::memcached(&MEMORY);
        let answers = runner::run_in(memcached.addr(), &rows, Speech::Packets);
        (rows, answers)
    })
}

fn check(configuration: &str, server: &Server) {
    let (rows, answers) = reference();
    let ours = runner::run_in(server.addr(), rows, Speech::Packets);
    let mismatches = runner::mismatches(rows, configuration, answers, &ours);
    for mismatch in &mismatches {
        println!("{}", mismatch.0);
    }
    let (wrong, all) = (mismatches.len(), rows.len());
    assert!(wrong == 0, "{configuration}: {wrong} of {all} rows differ from memcached");
}

#[test]
fn monolith_answers_packets_as_memcached() {
    check("embedded-monolith", &Server::rebate_memcached(&MEMORY));
}

#[test]
fn embedded_store_answers_packets_as_memcached() {
    check("embedded-off", &Server::rebate_serve("embedded", "off", &[]));
}

#[test]
fn memcached_store_with_compression_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-on", &Server::rebate_serve(&store.as_store(), "on", &[]));
}

#[test]
fn memcached_store_without_compression_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    check("store-off", &Server::rebate_serve(&store.as_store(), "off", &[]));
}

#[test]
fn memcached_behind_a_store_service_answers_packets_as_memcached() {
    let store = Server::memcached(&MEMORY);
    let service = Service::start("store", 0, &["--store", &store.as_store()]);
    let url = format!("grpc://{}", service.grpc);
    check("store-on-grpc", &Server::rebate_serve(&url, "on", &["--role", "frontend"]));
}

/// A noop whose opaque is `abcd`.
const NOOP: &[u8] = b"\x80\x0a\0\0\0\0\0\0\0\0\0\0abcd\0\0\0\0\0\0\0\0";

fn answer(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut client: Client = server.client();
    let _closed = client.send(bytes);
    client.finish().bytes
}

#[test]
fn a_packet_is_refused_in_a_packet_where_only_text_is_served() {
    let server = Server::rebate_memcached(&["-B", "ascii"]);
    let bytes = answer(&server, NOOP);
    assert_eq!(bytes[..8], *b"\x81\x0a\0\0\0\0\0\x81", "unknown command");
    assert_eq!(bytes[12..16], *b"abcd");
    assert!(bytes.ends_with(b"the binary protocol is not served here"));
    assert_eq!(server.stat("refused_binary"), Some(1));
}

#[test]
fn text_is_refused_in_text_where_only_packets_are_served() {
    let server = Server::rebate_memcached(&["-B", "binary"]);
    let bytes = answer(&server, b"version\r\n");
    assert_eq!(bytes, b"CLIENT_ERROR only the binary protocol is served here\r\n");
    assert_eq!(answer(&server, NOOP).len(), 24);
}

#[test]
fn garbage_between_packets_is_told_and_counted() {
    let server = Server::rebate_memcached(&[]);
    let bytes = answer(&server, &[NOOP, b"garbage"].concat());
    assert!(bytes.len() > 24 && bytes.ends_with(b"Invalid magic"), "{}", bytes.escape_ascii());
    assert_eq!(server.stat("bad_magic"), Some(1));
    assert_eq!(server.stat("cmd_binary"), Some(1));
}
