//! Tests the names that tools and dashboards read in `stats`. memcached and Rebate must both have each of them.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use rebate_tests::{Server, rebate_command};

/// The names that monitoring agents of memcached read. The agents define the list, so it must not be shortened.
const NAMES: [&str; 43] = [
    "pid",
    "uptime",
    "time",
    "version",
    "pointer_size",
    "rusage_user",
    "rusage_system",
    "max_connections",
    "curr_connections",
    "total_connections",
    "rejected_connections",
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "cmd_meta",
    "get_hits",
    "get_misses",
    "get_expired",
    "get_flushed",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "bytes_read",
    "bytes_written",
    "limit_maxbytes",
    "accepting_conns",
    "threads",
    "conn_yields",
    "bytes",
    "curr_items",
    "total_items",
    "expired_unfetched",
    "evicted_unfetched",
    "evictions",
];

#[test]
fn stats_has_the_names_that_tools_read() {
    let store = Server::memcached(&[]);
    let servers = [
        Server::memcached(&[]),
        Server::rebate_memcached(&[]),
        Server::rebate_serve(&store.as_store(), "on", &[]),
    ];
    for server in servers {
        let text = server.client().ask(b"stats").text();
        assert!(text.ends_with("END\r\n"), "{text}");
        let found: BTreeSet<&str> =
            text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next()).collect();
        let missing: Vec<&&str> = NAMES.iter().filter(|name| !found.contains(**name)).collect();
        assert!(missing.is_empty(), "{}: no {missing:?}", server.addr());
    }
}

#[test]
fn counters_count() {
    for server in [Server::memcached(&[]), Server::rebate_memcached(&[])] {
        let mut client = server.client();
        client.exchange(
            b"set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\nincr b 1\r\ndecr a 1\r\ntouch a 0\r\n\
              touch b 0\r\ndelete b\r\ndelete a\r\nflush_all\r\n",
        );
        let expected = [
            ("cmd_get", 2),
            ("get_hits", 1),
            ("get_misses", 1),
            ("cmd_set", 1),
            ("incr_hits", 1),
            ("incr_misses", 1),
            ("decr_hits", 1),
            ("touch_hits", 1),
            ("touch_misses", 1),
            ("delete_hits", 1),
            ("delete_misses", 1),
            ("cmd_flush", 1),
            ("total_items", 1),
        ];
        for (name, count) in expected {
            // The harness's sentinel is a bare get, which changes no counter.
            assert_eq!(server.stat(name), Some(count), "{name} of {}", server.addr());
        }
    }
}

#[test]
fn a_gat_counts_as_a_touch() {
    for server in [Server::memcached(&[]), Server::rebate_memcached(&[])] {
        let mut client = server.client();
        client.exchange(
            b"set a 0 0 1\r\n1\r\ngat 0 a b\r\ngats 0 a\r\nmg a v T0\r\nmg b v T0\r\nmg a v\r\nmg c v N30\r\n",
        );
        let expected = [
            ("cmd_get", 3),
            ("get_hits", 2),
            ("get_misses", 1),
            ("cmd_touch", 4),
            ("touch_hits", 3),
            ("touch_misses", 1),
        ];
        for (name, count) in expected {
            assert_eq!(server.stat(name), Some(count), "{name} of {}", server.addr());
        }
    }
}

#[test]
fn top_watches_a_server() {
    let servers = [Server::memcached(&[]), Server::rebate_memcached(&[])];
    for server in &servers {
        let mut client = server.client();
        let asking = thread::spawn({
            let address = server.addr().to_string();
            move || {
                rebate_command()
                    .args(["top", &address, "--count", "2", "--interval", "300ms", "--json"])
                    .output()
                    .expect("the binary starts")
            }
        });
        while !asking.is_finished() {
            client.exchange(b"set a 0 0 1\r\n1\r\nget a b\r\n");
            thread::sleep(Duration::from_millis(5));
        }
        let output = asking.join().expect("no panic");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(0), 2), "{text}");
        let last = text.lines().last().unwrap_or_default();
        let last: serde_json::Value = serde_json::from_str(last).expect("a line of JSON");
        let number = |name: &str| last[name].as_f64().unwrap_or(f64::NAN);
        assert!(number("gets_per_s") > 1.0 && number("sets_per_s") > 1.0, "{last}");
        assert!((0.4..0.6).contains(&number("hit_ratio")), "{last}");
        assert_eq!(number("items"), 1.0, "{last}");
    }
}

#[test]
fn stats_rebate_is_ours_alone() {
    let server = Server::rebate_memcached(&[]);
    let text = server.client().ask(b"stats rebate").text();
    assert!(text.starts_with("STAT ") && text.ends_with("END\r\n"), "{text}");
}
