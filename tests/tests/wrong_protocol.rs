//! What a client gets that speaks a protocol that is not served, and what one gets that sends no protocol at all.

use rebate_tests::{Client, Server};

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
