//! Tests the flags that meta commands have in memcached 1.6.38 and not in 1.6.18, which the command table has. The
//! answers are those of memcached's documentation.

mod services;

use rebate_tests::payload::text;
use rebate_tests::{Client, Server, TIMEOUT};
use services::Service;

fn embedded() -> [Server; 2] {
    [Server::rebate_memcached(&[]), Server::rebate_serve("embedded", "on", &[])]
}

/// Sends lines and compares each answer.
fn converse(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, answer) in lines {
        assert_eq!(client.ask(line.as_bytes()).text(), *answer, "{line:?}");
    }
}

#[test]
fn a_client_chooses_the_cas() {
    for server in embedded() {
        converse(
            &mut server.client(),
            &[
                ("ms a 1 E77 c\r\n1", "HD c77\r\n"),
                ("mg a c v", "VA 1 c77\r\n1\r\n"),
                ("gets a", "VALUE a 0 1 77\r\n1\r\nEND\r\n"),
                ("me nothing", "EN\r\n"),
                // A touch keeps it, and a change without `E` ends it.
                ("mg a T90 c", "HD c77\r\n"),
                ("cas a 0 0 1 76\r\n2", "EXISTS\r\n"),
                ("ms a 1 C77 E78 c\r\n2", "HD c78\r\n"),
                ("ma a E79 c v", "VA 1 c79\r\n3\r\n"),
                ("ms a 1 MA E80 c\r\n4", "HD c80\r\n"),
                ("mg a c v", "VA 2 c80\r\n34\r\n"),
                ("md a I E90", "HD\r\n"),
                ("mg a c", "HD c90 X W\r\n"),
                ("ms a 1 I C89 E100\r\nx", "HD\r\n"),
                ("mg a c v", "VA 1 c100 Z X\r\nx\r\n"),
                ("mg new N30 E5 c", "HD c5 W\r\n"),
                ("mg new c", "HD c5 Z\r\n"),
                ("ma number N0 J7 E6 c v", "VA 1 c6\r\n7\r\n"),
                ("ms a 1 E18446744073709551615 c\r\n1", "HD c18446744073709551615\r\n"),
                ("mg a c", "HD c18446744073709551615\r\n"),
                ("ms a 1 E18446744073709551616\r\n1", BAD_TOKEN),
                ("ms a 1 E\r\n1", BAD_TOKEN),
            ],
        );
        let mut client = server.client();
        converse(&mut client, &[("ms a 1 E9\r\n1", "HD\r\n"), ("set a 0 0 1\r\n2", "STORED\r\n")]);
        let cas = client.ask(b"mg a c").text();
        assert_ne!(cas, "HD c9\r\n", "the next change has a CAS of the server");
    }
}

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format\r\n";

#[test]
fn a_chosen_cas_of_another_item_shows_no_other_value() {
    let server = Server::rebate_serve("embedded", "on", &[]);
    let mut client = server.client();
    let (long, other) = (text(20_000), text(30_000));
    assert_eq!(client.set("a", &long).as_deref(), Ok("STORED"));
    let cas = client.ask(b"mg a c").text().trim().trim_start_matches("HD c").to_owned();
    let set = format!("ms b {} E{cas}\r\n", other.len());
    let answer = client.exchange(&[set.as_bytes(), &other[..], b"\r\n"].concat()).text();
    assert_eq!(answer, "HD\r\n");
    // Values that are read often are kept decompressed.
    for _ in 0..100 {
        assert_eq!(client.get("b"), Ok(Some(other.to_vec())));
        assert_eq!(client.get("a"), Ok(Some(long.to_vec())));
    }
}

#[test]
fn a_flush_ends_items_with_a_chosen_cas_as_all_others() {
    for server in embedded() {
        converse(
            &mut server.client(),
            &[
                ("set x 0 0 1\r\n1", "STORED\r\n"),
                ("flush_all", "OK\r\n"),
                // Its CAS is below those that were flushed.
                ("ms a 1 E1\r\n1", "HD\r\n"),
                ("mg a v c", "VA 1 c1\r\n1\r\n"),
                ("ms b 1 E18446744073709551615\r\n1", "HD\r\n"),
                ("flush_all", "OK\r\n"),
                ("mg a v", "EN\r\n"),
                ("mg b v", "EN\r\n"),
            ],
        );
    }
}

#[test]
fn a_chosen_cas_outlives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("items");
    let arguments = ["-e", file.to_str().expect("a name")];
    let mut server = Server::rebate_memcached(&arguments);
    let lines = [("ms a 2 E77 T900 F3\r\nhi", "HD\r\n"), ("set b 0 0 1\r\n1", "STORED\r\n")];
    converse(&mut server.client(), &lines);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let server = Server::rebate_memcached(&arguments);
    let lines = [("mg a v c f", "VA 2 c77 f3\r\nhi\r\n"), ("get b", "VALUE b 0 1\r\n1\r\nEND\r\n")];
    converse(&mut server.client(), &lines);
}

#[test]
fn ms_returns_the_size_of_the_whole_value() {
    for server in embedded() {
        converse(
            &mut server.client(),
            &[
                ("ms a 3 s\r\nabc", "HD s3\r\n"),
                ("ms a 2 s MA\r\nde", "HD s5\r\n"),
                ("ms a 1 s MP k O1\r\nf", "HD s6 ka O1\r\n"),
                ("ms a 1 s ME\r\nf", "NS s1\r\n"),
                ("ms nothing 4 s MA\r\nabcd", "NS s4\r\n"),
                ("ms a 3 s q\r\nabc", ""),
            ],
        );
        let mut client = server.client();
        let long = String::from_utf8(text(9_000).to_vec()).expect("text");
        let set = format!("ms b {} s\r\n{long}", long.len());
        assert_eq!(client.ask(set.as_bytes()).text(), "HD s9000\r\n", "not the stored size");
    }
}

#[test]
fn an_append_creates_the_item_if_it_may() {
    for server in embedded() {
        converse(
            &mut server.client(),
            &[
                ("ms a 2 MA\r\nhi", "NS\r\n"),
                ("ms a 2 MA N90 F5\r\nhi", "HD\r\n"),
                ("ms a 1 MA N10 s\r\n!", "HD s3\r\n"),
                ("mg a v f", "VA 3 f5\r\nhi!\r\n"),
                ("ms b 1 MP N0 T5 c E7\r\n!", "HD c7\r\n"),
                ("mg b v t", "VA 1 t-1\r\n!\r\n"),
            ],
        );
        let ttl = server.client().ask(b"mg a t").text();
        let ttl: u32 = ttl.trim().trim_start_matches("HD t").parse().expect("a number");
        assert!((60..=90).contains(&ttl), "{ttl}");
    }
}

#[test]
fn md_removes_only_the_value() {
    for server in embedded() {
        converse(
            &mut server.client(),
            &[
                ("md a x", "NF\r\n"),
                ("ms a 2 F7 T90 E5\r\nhi", "HD\r\n"),
                ("md a x C4", "EX\r\n"),
                ("md a x C5", "HD\r\n"),
                // As in memcached, it keeps the CAS, and neither flags nor time.
                ("mg a v f t c", "VA 0 f0 t-1 c5\r\n\r\n"),
                ("md a x I T30 F9 E8", "HD\r\n"),
                ("mg a v f c", "VA 0 f9 c8 X W\r\n\r\n"),
                ("md a x q", ""),
                ("md a", "HD\r\n"),
                ("mg a v", "EN\r\n"),
            ],
        );
    }
}

#[test]
fn these_flags_pass_through_a_store_service() {
    let service = Service::start("store", 0, &["--store", "embedded"]);
    let url = format!("grpc://{}", service.grpc);
    let server = Server::rebate_serve(&url, "on", &["--role", "frontend"]);
    converse(
        &mut server.client(),
        &[
            ("ms a 1 E77 c s\r\n1", "HD c77 s1\r\n"),
            ("ma a E79 c v", "VA 1 c79\r\n2\r\n"),
            ("ms b 2 MA N90\r\nhi", "HD\r\n"),
            ("ms b 1 MA N90 E9 c s\r\n!", "HD c9 s3\r\n"),
            ("mg b v c", "VA 3 c9\r\nhi!\r\n"),
            ("md a x", "HD\r\n"),
            ("mg a v", "VA 0\r\n\r\n"),
            ("mg new N30 E5 c", "HD c5 W\r\n"),
        ],
    );
}

#[test]
fn a_binary_touch_leaves_the_right_to_refill_a_stale_item() {
    let store = Server::memcached(&[]);
    for server in
        [Server::rebate_memcached(&[]), Server::rebate_serve(&store.as_store(), "on", &[])]
    {
        let mut client = server.client();
        converse(&mut client, &[("ms a 2\r\nhi", "HD\r\n"), ("md a I", "HD\r\n")]);
        // A touch of `a` for 90 s.
        let touch = b"\x80\x1c\0\x01\x04\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x5aa";
        let mut packets = server.client();
        packets.speech = rebate_tests::client::Speech::Packets;
        let answer = packets.exchange(touch).bytes;
        assert_eq!(answer.get(6..8), Some(&[0, 0][..]), "{}", answer.escape_ascii());
        converse(&mut client, &[("mg a v", "VA 2 X W\r\nhi\r\n")]);
    }
}

#[test]
fn a_number_that_is_created_is_no_hit() {
    let server = Server::rebate_memcached(&[]);
    converse(&mut server.client(), &[("ma n N0 J5", "HD\r\n")]);
    assert_eq!(server.stat("incr_hits"), Some(0));
    assert_eq!(server.stat("incr_misses"), Some(0));
    converse(&mut server.client(), &[("ma n", "HD\r\n")]);
    assert_eq!(server.stat("incr_hits"), Some(1));
}
