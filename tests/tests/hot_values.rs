//! Tests that clients of the embedded store never see a kept value that is older than the store's, whatever changes the
//! item, and that kept values save decompression.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rebate_tests::payload::{payload, text};
use rebate_tests::{Client, Server};

fn server(arguments: &[&str]) -> Server {
    Server::rebate_serve("embedded", "on", arguments)
}

/// Returns a counter of `stats rebate`.
fn counted(server: &Server, name: &str) -> u64 {
    let page = server.client().ask(b"stats rebate").text();
    let name = format!("STAT {name} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|count| count.trim().parse().ok()).expect("stats rebate counts them")
}

/// Reads the value until it is kept, and once more.
fn warm(client: &mut Client, key: &str, value: &[u8]) {
    for _ in 0..4 {
        assert_eq!(client.get(key), Ok(Some(value.to_vec())));
    }
}

#[test]
fn reads_of_a_hot_value_decompress_it_twice() {
    let server = server(&[]);
    let mut client = server.client();
    let value = text(3_000);
    assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
    for ask in ["get k", "gets k", "mg k v", "gat 100 k", "mg k s v c f t", "mg aw== b v"] {
        for _ in 0..3 {
            let found = client.ask(ask.as_bytes()).bytes;
            let body = found.windows(value.len()).any(|part| part == value);
            assert!(body, "{ask}");
        }
    }
    assert!(client.ask(b"mg k s").text().starts_with("HD s3000"));
    assert_eq!(counted(&server, "read_compressed"), 2);
    assert_eq!(counted(&server, "read_hot"), 16);
    assert!(counted(&server, "logical_bytes_read") >= 18 * 3_000);
}

#[test]
fn no_share_keeps_no_value() {
    let server = server(&["--set", "values.hot_share=0"]);
    let mut client = server.client();
    let value = text(3_000);
    assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
    warm(&mut client, "k", &value);
    assert_eq!(counted(&server, "read_hot"), 0);
    assert_eq!(counted(&server, "read_compressed"), 4);
}

#[test]
fn values_without_compression_are_not_kept() {
    let server = server(&[]);
    let mut client = server.client();
    for class in ["random", "same", "magic2"] {
        let value = payload(class, 3_000).expect("a known class");
        assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
        warm(&mut client, "k", &value);
    }
    assert_eq!(counted(&server, "read_hot"), 0);
}

#[test]
fn every_change_of_an_item_is_seen_at_once() {
    let server = server(&[]);
    let mut client = server.client();
    let (old, new) = (text(3_000), [b"#", &text(2_999)[..]].concat());
    let set = |line: &str| [line.as_bytes(), b"\r\n", &new].concat();
    let changes: [(Vec<u8>, Option<Vec<u8>>); 10] = [
        (set("set k 0 0 3000"), Some(new.clone())),
        (set("replace k 0 0 3000"), Some(new.clone())),
        (set("ms k 3000"), Some(new.clone())),
        (set("ms aw== 3000 b"), Some(new.clone())),
        (b"append k 0 0 1\r\n!".to_vec(), Some([&old[..], b"!"].concat())),
        (b"ms k 1 MP\r\n!".to_vec(), Some([b"!", &old[..]].concat())),
        (b"delete k".to_vec(), None),
        (b"touch k -1".to_vec(), None),
        (b"gat -1 k".to_vec(), None),
        (b"flush_all".to_vec(), None),
    ];
    for (change, expected) in changes {
        assert_eq!(client.set("k", &old).as_deref(), Ok("STORED"));
        let before = counted(&server, "read_hot");
        warm(&mut client, "k", &old);
        assert!(counted(&server, "read_hot") >= before + 2);
        client.ask(&change);
        let line = String::from_utf8_lossy(&change[..change.len().min(20)]).into_owned();
        assert_eq!(client.get("k"), Ok(expected), "{line}");
    }
}

#[test]
fn a_write_brings_the_new_hot_value() {
    let server = server(&[]);
    let mut client = server.client();
    let (old, new) = (text(3_000), [b"#", &text(2_999)[..]].concat());
    assert_eq!(client.set("k", &old).as_deref(), Ok("STORED"));
    warm(&mut client, "k", &old);
    let read_hot = || counted(&server, "read_hot");
    let before = read_hot();
    assert_eq!(client.set("k", &new).as_deref(), Ok("STORED"));
    assert_eq!(client.get("k"), Ok(Some(new.clone())));
    assert_eq!(read_hot(), before + 1);
    // The CAS that a client gives may be that of another value.
    let given = [b"ms k 3000 E77\r\n", &old[..]].concat();
    assert_eq!(client.ask(&given).text(), "HD\r\n");
    assert_eq!(client.get("k"), Ok(Some(old)));
    assert_eq!(read_hot(), before + 1);
}

#[test]
fn a_stale_item_shows_its_marks_with_a_hot_value() {
    let server = server(&[]);
    let mut client = server.client();
    let value = text(3_000);
    assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
    warm(&mut client, "k", &value);
    assert_eq!(client.ask(b"md k I T30").text(), "HD\r\n");
    let first = client.ask(b"mg k v").bytes;
    assert!(first.starts_with(b"VA 3000 X W\r\n"), "it may refill the item");
    for _ in 0..3 {
        let later = client.ask(b"mg k v").bytes;
        let head = &later[..later.len().min(13)];
        assert_eq!(String::from_utf8_lossy(head), "VA 3000 Z X\r\n");
        assert!(later[13..].starts_with(&value));
    }
}

/// The value of a number: it compresses, and its first digits are the number.
fn numbered(number: u64) -> Vec<u8> {
    format!("{number:012} {}", "some words that repeat ".repeat(60)).into_bytes()
}

#[test]
fn no_reader_sees_a_value_older_than_acknowledged() {
    const KEYS: usize = 4;
    const WRITES: u64 = 1_500;
    let server = server(&["--threads", "3"]);
    // The number of each key's last acknowledged write. A deletion counts as one.
    let acknowledged: [AtomicU64; KEYS] = Default::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (server, acknowledged, is_over) = (&server, &acknowledged, &is_over);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut key = reader;
                    while !is_over.load(Ordering::Acquire) {
                        key = (key + 1) % KEYS;
                        let at_least = acknowledged[key].load(Ordering::Acquire);
                        // Several reads of one version make it hot.
                        for _ in 0..4 {
                            let found = client.get(&format!("k{key}")).expect("an answer");
                            let Some(found) = found else { continue };
                            let number = str::from_utf8(&found[..12]).expect("digits");
                            let number: u64 = number.parse().expect("digits");
                            assert!(number >= at_least, "{number} after {at_least}");
                            assert_eq!(found, numbered(number));
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..KEYS)
            .map(|key| {
                let (server, acknowledged) = (&server, &acknowledged);
                scope.spawn(move || {
                    let (mut client, name) = (server.client(), format!("k{key}"));
                    for number in 1..=WRITES {
                        if number % 50 == 0 {
                            client.ask(format!("delete {name}").as_bytes());
                        } else {
                            let written = client.set(&name, &numbered(number));
                            assert_eq!(written.as_deref(), Ok("STORED"));
                        }
                        acknowledged[key].store(number, Ordering::Release);
                        // Readers need some reads between writes.
                        for _ in 0..number % 7 {
                            client.get(&name).expect("an answer");
                        }
                    }
                })
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Release);
        written.into_iter().for_each(|writer| writer.expect("no write failed"));
        readers.into_iter().for_each(|reader| reader.join().expect("no read was too old"));
    });
    assert!(counted(&server, "read_hot") > 1_000);
}
