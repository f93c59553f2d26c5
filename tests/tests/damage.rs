//! Tests how clients see items whose stored form is damaged. Such items are removed under their CAS, so that
//! `add` and `append` work again. Items that another version or configuration may be able to read are not
//! removed. The tests also cover the clocks of stores.

mod services;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use rebate_tests::payload::{base64, payload, text};
use rebate_tests::{Client, Server, TIMEOUT, poll_for};
use services::Service;

/// A store that the test reaches directly, and a Rebate in front of it. The Rebate may use a store service.
struct Pair {
    store: Server,
    ours: Server,
    _service: Option<Service>,
}

fn pairs() -> [Pair; 2] {
    let (store, behind) = (Server::memcached(&[]), Server::memcached(&[]));
    let ours = Server::rebate_serve(&store.as_store(), "on", &[]);
    let service = Service::start("store", 0, &["--store", &behind.as_store()]);
    let url = format!("grpc://{}", service.grpc);
    let front = Server::rebate_serve(&url, "on", &["--role", "frontend"]);
    [
        Pair { store, ours, _service: None },
        Pair { store: behind, ours: front, _service: Some(service) },
    ]
}

/// Stores a value through Rebate. Returns its stored form and a client of each server.
fn framed(pair: &Pair, key: &str) -> (Vec<u8>, Client, Client) {
    let (mut ours, mut store) = (pair.ours.client(), pair.store.client());
    assert_eq!(ours.set(key, &text(5_000)).as_deref(), Ok("STORED"));
    let frame = store.get(key).expect("memcached answers").expect("it is there");
    assert!(frame.starts_with(b"\xfbRb") && frame.len() < 5_000, "it is compressed");
    (frame, ours, store)
}

/// Returns damaged frames that no reader can read.
fn damaged(frame: &[u8]) -> [Vec<u8>; 3] {
    let (mut stream, mut checksum) = (frame.to_vec(), frame.to_vec());
    let middle = frame.len() / 2;
    stream[middle] ^= 0x55;
    checksum[13] ^= 1;
    [stream, checksum, frame[..10].to_vec()]
}

#[test]
fn a_get_removes_a_damaged_item() {
    for pair in pairs() {
        let (frame, mut ours, mut store) = framed(&pair, "k");
        for (index, bytes) in damaged(&frame).iter().enumerate() {
            for ask in ["get k", "gets k", "mg k v", "mg k v c", "get a k b"] {
                assert_eq!(store.set("k", bytes).as_deref(), Ok("STORED"));
                let answer = ours.ask(ask.as_bytes()).text();
                assert!(["END\r\n", "EN\r\n"].contains(&&answer[..]), "{index}: {ask}: {answer}");
                assert_eq!(store.get("k"), Ok(None), "{index}: {ask}");
                assert_eq!(ours.ask(b"add k 0 0 1\r\nx").text(), "STORED\r\n", "{index}: {ask}");
            }
        }
        assert_eq!(removed(&pair.ours), 15);
    }
}

#[test]
fn editing_a_damaged_item_removes_it() {
    for pair in pairs() {
        let (frame, mut ours, mut store) = framed(&pair, "k");
        for bytes in damaged(&frame) {
            for (ask, answer) in [
                ("append k 0 0 1\r\nx", "NOT_STORED\r\n"),
                ("prepend k 0 0 1\r\nx", "NOT_STORED\r\n"),
                ("ms k 1 MA\r\nx", "NS\r\n"),
                ("incr k 1", "NOT_FOUND\r\n"),
                ("ma k", "NF\r\n"),
            ] {
                assert_eq!(store.set("k", &bytes).as_deref(), Ok("STORED"));
                assert_eq!(ours.ask(ask.as_bytes()).text(), answer, "{ask}");
                assert_eq!(store.get("k"), Ok(None), "{ask}");
            }
        }
    }
}

#[test]
fn an_add_alone_gets_past_a_damaged_item() {
    for pair in pairs() {
        let (frame, mut ours, mut store) = framed(&pair, "k");
        for bytes in damaged(&frame) {
            for (ask, done) in [("add k 0 0 1\r\nx", "STORED\r\n"), ("ms k 1 ME\r\nx", "HD\r\n")] {
                assert_eq!(store.set("k", &bytes).as_deref(), Ok("STORED"));
                let added = || (ours.ask(ask.as_bytes()).text() == done).then_some(());
                assert!(poll_for(TIMEOUT, added).is_some(), "{ask} never stores");
            }
        }
    }
}

#[test]
fn what_another_reader_may_read_is_never_deleted() {
    for pair in pairs() {
        let (frame, mut ours, mut store) = framed(&pair, "k");
        let with = |at: usize, byte: u8| {
            let mut frame = frame.clone();
            frame[at] = byte;
            frame
        };
        // The cases change the version, the codec, the window, the flags, the dictionary, the reserved byte, and the
        // length beyond this reader's limit.
        let cases = [
            with(3, 2),
            with(4, 9),
            with(5, 99),
            with(6, 8),
            with(6, 1),
            with(7, 1),
            with(11, 0x70),
        ];
        let short = [b"\xfbRb".to_vec(), b"\xfbRb\x02short".to_vec()];
        for bytes in cases.iter().chain(&short) {
            assert_eq!(store.set("k", bytes).as_deref(), Ok("STORED"));
            for ask in ["get k", "mg k v", "mg k s", "append k 0 0 1\r\nx", "incr k 1", "ma k"] {
                ours.ask(ask.as_bytes());
            }
            for _ in 0..20 {
                assert_eq!(ours.ask(b"add k 0 0 1\r\nx").text(), "NOT_STORED\r\n");
            }
            assert_eq!(store.get("k").as_ref(), Ok(&Some(bytes.clone())), "{bytes:02x?}");
        }
        assert_eq!(removed(&pair.ours), 0);
    }
}

#[test]
fn a_frame_under_another_key_is_a_miss() {
    let store = Server::memcached(&[]);
    let ours = Server::rebate_serve(&store.as_store(), "on", &["--frame-version", "2"]);
    let (mut client, mut direct) = (ours.client(), store.client());
    for class in ["text", "same", "magic2"] {
        let value = payload(class, 5_000).expect("a known class");
        assert_eq!(client.set("k", &value).as_deref(), Ok("STORED"));
        let frame = direct.get("k").expect("memcached answers").expect("it is there");
        for ask in ["get other", "mg other v"] {
            assert_eq!(direct.set("other", &frame).as_deref(), Ok("STORED"));
            assert!(["END\r\n", "EN\r\n"].contains(&&client.ask(ask.as_bytes()).text()[..]));
            assert_eq!(direct.get("other"), Ok(None), "{class}: {ask}");
        }
        assert_eq!(client.get("k"), Ok(Some(value)), "{class}");
    }
    assert!(counted(&ours, "frame_corrupt") >= 6, "each get is counted");
    assert_eq!(removed(&ours), 6);
}

#[test]
fn both_spellings_of_a_key_read_one_frame() {
    let memcached = Server::memcached(&[]);
    for store in [memcached.as_store(), "embedded".to_owned()] {
        let ours = Server::rebate_serve(&store, "on", &["--frame-version", "2"]);
        let mut client = ours.client();
        let value = text(3_000);
        let coded = base64(b"foo");
        for written in [format!("{coded} 3000 b"), "foo 3000".to_owned()] {
            let set = [format!("ms {written}\r\n").as_bytes(), &value].concat();
            assert_eq!(client.ask(&set).text(), "HD\r\n");
            assert_eq!(client.get("foo"), Ok(Some(value.clone())), "{store}: {written}");
            let found = client.ask(format!("mg {coded} b s v").as_bytes()).text();
            assert!(found.starts_with("VA 3000 "), "{store}: {written}: {found}");
        }
        assert_eq!(counted(&ours, "frame_corrupt"), 0);
    }
}

#[test]
fn a_value_without_its_dictionary_is_a_miss_and_stays() {
    let store = Server::memcached(&[]);
    let ours = Server::rebate_serve(&store.as_store(), "on", &[]);
    let (mut client, mut direct) = (ours.client(), store.client());
    let frame = b"\xFD\x07\0\0\x01\x02\x03\x04\x20\x64\x23\x03\0x";
    assert_eq!(direct.set("k", frame).as_deref(), Ok("STORED"));
    for ask in ["get k", "mg k v"] {
        assert!(["END\r\n", "EN\r\n"].contains(&&client.ask(ask.as_bytes()).text()[..]));
    }
    assert_eq!(counted(&ours, "dictionary_missing"), 2);
    assert_eq!(counted(&ours, "frame_invalid"), 0);
    assert_eq!(direct.get("k"), Ok(Some(frame.to_vec())));
}

#[test]
fn withheld_foreign_values_are_never_deleted() {
    let store = Server::memcached(&[]);
    let forbid = ["--set", "compress.foreign=forbid"];
    let ours = Server::rebate_serve(&store.as_store(), "on", &forbid);
    let (mut ours, mut store) = (ours.client(), store.client());
    assert_eq!(store.set("k", b"foreign").as_deref(), Ok("STORED"));
    assert_eq!(ours.get("k"), Ok(None));
    assert_eq!(ours.ask(b"mg k s").text(), "EN\r\n");
    assert_eq!(ours.ask(b"add k 0 0 1\r\nx").text(), "NOT_STORED\r\n");
    assert_eq!(store.get("k"), Ok(Some(b"foreign".to_vec())));
}

#[test]
fn a_damaged_item_that_was_replaced_stays() {
    let store = Fake::start(|line, values| {
        let damaged = b"\xfbRb\x01\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00hello";
        match line.split(' ').next() {
            Some("get") => value_of(line, damaged, ""),
            // Another client has set the item between the get and the deletion.
            Some("gets") => value_of(line, damaged, " 7"),
            Some("md") => {
                values.push(line.to_owned());
                b"EX\r\n".to_vec()
            }
            Some("mn") => b"MN\r\n".to_vec(),
            _ => b"ERROR\r\n".to_vec(),
        }
    });
    let ours = Server::rebate_serve(&format!("memcached://{}", store.addr), "on", &[]);
    assert_eq!(ours.client().get("k"), Ok(None));
    assert_eq!(store.noted(), ["md k C7"]);
    assert_eq!(removed(&ours), 0);
}

fn value_of(line: &str, value: &[u8], cas: &str) -> Vec<u8> {
    let key = line.split(' ').nth(1).unwrap_or_default();
    let head = format!("VALUE {key} 0 {}{cas}\r\n", value.len());
    [head.as_bytes(), value, b"\r\nEND\r\n"].concat()
}

fn removed(ours: &Server) -> u64 {
    counted(ours, "unreadable_deleted")
}

/// Returns a counter of `stats rebate`.
fn counted(ours: &Server, name: &str) -> u64 {
    let page = ours.client().ask(b"stats rebate").text();
    let name = format!("STAT {name} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|count| count.trim().parse().ok()).expect("stats rebate counts them")
}

/// A fake memcached whose answers the test composes.
struct Fake {
    addr: SocketAddr,
    noted: std::sync::mpsc::Receiver<String>,
}

impl Fake {
    /// Starts a server that answers each line with the result of `answer`. Records what `answer` pushes.
    fn start(answer: impl Fn(&str, &mut Vec<String>) -> Vec<u8> + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let (note, noted) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, note) = (answer.clone(), note.clone());
                thread::spawn(move || Self::serve(stream, answer, &note));
            }
        });
        Self { addr, noted }
    }

    fn serve(
        mut writer: TcpStream,
        answer: impl Fn(&str, &mut Vec<String>) -> Vec<u8>,
        note: &std::sync::mpsc::Sender<String>,
    ) {
        let mut reader = BufReader::new(writer.try_clone().expect("a second handle"));
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(1..)) {
            let words = line.trim_end().to_owned();
            if let Some(bytes) = words.strip_prefix("ms ").and_then(|rest| rest.split(' ').nth(1)) {
                let bytes: usize = bytes.parse().expect("a length");
                reader.read_exact(&mut vec![0; bytes + 2]).expect("a value");
            }
            let mut notes = Vec::new();
            let bytes = answer(&words, &mut notes);
            notes.into_iter().for_each(|words| drop(note.send(words)));
            if writer.write_all(&bytes).is_err() {
                break;
            }
            line.clear();
        }
    }

    /// Waits for at least one recorded line and returns all recorded lines.
    fn noted(&self) -> Vec<String> {
        let first = self.noted.recv_timeout(TIMEOUT).expect("something is noted");
        [first].into_iter().chain(self.noted.try_iter()).collect()
    }
}

/// The store's time (s), which is in 2033 and so differs by years from the machine's clock.
const SERVER_TIME_S: i64 = 2_000_000_000;

#[test]
fn an_append_keeps_a_long_life_by_the_servers_clock() {
    const LEFT_S: i64 = 90 * 24 * 60 * 60;
    let store = Fake::start(|line, notes| match line.split(' ').next() {
        Some("mg") => format!("VA 3 f5 c7 t{LEFT_S}\r\nabc\r\n").into_bytes(),
        Some("stats") => format!("STAT pid 1\r\nSTAT time {SERVER_TIME_S}\r\nEND\r\n").into_bytes(),
        Some("ms") => {
            notes.push(line.to_owned());
            b"HD c8\r\n".to_vec()
        }
        _ => b"ERROR\r\n".to_vec(),
    });
    let ours = Server::rebate_serve(&format!("memcached://{}", store.addr), "on", &[]);
    assert_eq!(ours.client().ask(b"append k 0 0 1\r\nd").text(), "STORED\r\n");
    let noted = store.noted();
    let time = noted[0].split(' ').find_map(|flag| flag.strip_prefix('T'));
    let exptime_s: i64 = time.and_then(|time| time.parse().ok()).expect("an expiry");
    // The server subtracts the time that has passed. The difference may include a second of rounding.
    let passed_s = SERVER_TIME_S + LEFT_S - exptime_s;
    assert!((0..=TIMEOUT.as_secs() as i64).contains(&passed_s), "{noted:?}");
}

#[test]
fn an_append_keeps_a_long_life_in_every_store() {
    let memcached = Server::memcached(&[]);
    let embedded = Service::start("store", 0, &["--store", "embedded"]);
    let grpc = format!("grpc://{}", embedded.grpc);
    for ours in [
        Server::rebate_serve(&memcached.as_store(), "on", &[]),
        Server::rebate_serve("embedded", "on", &[]),
        Server::rebate_serve(&grpc, "on", &["--role", "frontend"]),
    ] {
        let mut client = ours.client();
        assert_eq!(client.ask(b"ms k 3 T2100000000\r\nabc").text(), "HD\r\n");
        let left = |client: &mut Client| -> i64 {
            let answer = client.ask(b"mg k t").text();
            answer.trim_end().strip_prefix("HD t").and_then(|t| t.parse().ok()).expect(&answer)
        };
        let before = left(&mut client);
        for _ in 0..5 {
            assert_eq!(client.ask(b"append k 0 0 1\r\nd").text(), "STORED\r\n");
        }
        let lost = before - left(&mut client);
        assert!((-5..=TIMEOUT.as_secs() as i64).contains(&lost), "{before} s less {lost} s");
    }
}
