//! Tests dictionaries from outside: values of a class shrink, every server reads what any server wrote, and a lost
//! dictionary is a miss and never wrong bytes.

use std::time::{Duration, Instant};

use rebate_tests::{Client, Server, rebate_command};

/// Returns record number `number`, which has its structure in common with all others.
fn record(number: usize) -> Vec<u8> {
    let (id, user) = (number * 7_919 % 999_983, number * 104_729 % 9_999_991);
    format!(
        r#"{{"id":{id},"type":"order","user":{{"id":{user},"plan":"team"}},"created":"2026-01-{:02}"}}"#,
        1 + number % 28
    )
    .into_bytes()
}

fn write(client: &mut Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let stored = client.set(&format!("order:{number}"), &record(number));
        assert_eq!(stored.as_deref(), Ok("STORED"), "record {number}");
    }
}

/// Reads records and returns how many are there. Each must be the one that was written.
fn read(client: &mut Client, numbers: std::ops::Range<usize>) -> usize {
    let is_there = |number: &usize| match client.get(&format!("order:{number}")) {
        Ok(Some(value)) => {
            assert_eq!(value, record(*number), "record {number}");
            true
        }
        Ok(None) => false,
        Err(error) => panic!("record {number}: {error}"),
    };
    numbers.filter(is_there).count()
}

/// Returns the page `stats dictionaries`.
fn page(client: &mut Client) -> Vec<(String, String)> {
    let text = client.ask(b"stats dictionaries").text();
    let stats = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    stats.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Writes records until the class has a dictionary, and returns its id.
fn wait_for_dictionary(client: &mut Client) -> String {
    let began = Instant::now();
    let mut first = 0;
    loop {
        write(client, first..first + 500);
        first += 500;
        let form = page(client).into_iter().find(|(name, _)| name == "class:0:order:*:form");
        match form {
            Some((_, form)) if form.len() == 6 => return form,
            found => assert!(began.elapsed() < LIMIT, "no dictionary in time: {found:?}"),
        }
    }
}

/// Waits until `is_met`, or fails with the description.
fn wait(what: &str, mut is_met: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_met() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LIMIT: Duration = Duration::from_secs(30);

fn stat(client: &mut Client, name: &str) -> u64 {
    let text = client.ask(b"stats rebate").text();
    let prefix = format!("STAT {name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

fn frontend(store: &Server) -> Server {
    Server::rebate_serve(&store.as_store(), "on", &["--frame-version", "2"])
}

#[test]
fn records_shrink_once_their_class_has_a_dictionary() {
    let server = Server::rebate_memcached(&["-t", "2"]);
    let mut client = server.client();
    wait_for_dictionary(&mut client);
    let before =
        (stat(&mut client, "logical_bytes_written"), stat(&mut client, "stored_bytes_written"));
    write(&mut client, 0..1_000);
    let after =
        (stat(&mut client, "logical_bytes_written"), stat(&mut client, "stored_bytes_written"));
    let (logical, stored) = (after.0 - before.0, after.1 - before.1);
    assert!(stored * 2 < logical, "{stored} of {logical} bytes");
    assert_eq!(read(&mut client, 0..1_000), 1_000);
    let appended = client.ask(b"append order:7 0 0 1\r\n!").text();
    assert_eq!(appended, "STORED\r\n");
    assert_eq!(client.get("order:7"), Ok(Some([&record(7)[..], b"!"].concat())));
    assert_eq!(stat(&mut client, "dictionary_missing"), 0);
}

#[test]
fn every_frontend_reads_what_any_frontend_wrote() {
    let store = Server::memcached(&[]);
    let writers = [frontend(&store), frontend(&store)];
    std::thread::scope(|scope| {
        for writer in &writers {
            scope.spawn(|| wait_for_dictionary(&mut writer.client()));
        }
    });
    let [one, two] = &writers;
    write(&mut one.client(), 0..500);
    write(&mut two.client(), 500..1_000);
    let late = frontend(&store);
    for reader in [one, two, &late] {
        assert_eq!(read(&mut reader.client(), 0..1_000), 1_000);
    }
    // A frontend that only reads compressed values reads these, too.
    let reading = Server::rebate_serve(&store.as_store(), "read-only", &[]);
    assert_eq!(read(&mut reading.client(), 0..1_000), 1_000);
}

#[test]
fn a_lost_dictionary_is_a_miss_until_it_is_stored_again() {
    let store = Server::memcached(&[]);
    let mut direct = store.client();
    let mut writer = frontend(&store);
    let id = wait_for_dictionary(&mut writer.client());
    write(&mut writer.client(), 0..100);
    let key = format!("rebate-dictionary:{id}:0");
    wait("the writer stores a deleted dictionary again", || {
        direct.ask(format!("delete {key}").as_bytes());
        std::thread::sleep(Duration::from_millis(300));
        direct.get(&key).is_ok_and(|found| found.is_some())
    });
    writer.kill();
    let dictionary = direct.get(&key).expect("memcached answers").expect("it is stored");
    assert_eq!(direct.ask(format!("delete {key}").as_bytes()).text(), "DELETED\r\n");
    let reader = frontend(&store);
    let mut client = reader.client();
    assert_eq!(read(&mut client, 0..100), 0);
    assert_eq!(stat(&mut client, "dictionary_missing"), 100);
    // A wrong dictionary under the key, and then the right one.
    assert_eq!(direct.set(&key, &record(1)).as_deref(), Ok("STORED"));
    assert_eq!(read(&mut frontend(&store).client(), 0..100), 0);
    assert_eq!(direct.set(&key, &dictionary).as_deref(), Ok("STORED"));
    assert_eq!(read(&mut frontend(&store).client(), 0..100), 100);
    wait("the reader searches again", || read(&mut client, 0..100) == 100);
}

#[test]
fn made_up_ids_cost_other_clients_nothing() {
    let store = Server::memcached(&[]);
    let server = frontend(&store);
    let id = wait_for_dictionary(&mut server.client());
    write(&mut server.client(), 0..100);
    let mut direct = store.client();
    let frame = direct.get("order:1").expect("memcached answers").expect("it is stored");
    assert_eq!(frame[0], 0xFD, "{id}");
    for number in 0..2_000_u32 {
        let mut planted = frame.clone();
        planted[1..4].copy_from_slice(&(0x10_0000 + number).to_le_bytes()[..3]);
        assert_eq!(direct.set(&format!("planted:{number}"), &planted).as_deref(), Ok("STORED"));
    }
    let (mut hostile, mut polite) = (server.client(), server.client());
    for number in 0..2_000 {
        assert_eq!(hostile.get(&format!("planted:{number}")), Ok(None));
        if number % 20 == 0 {
            assert_eq!(read(&mut polite, 0..5), 5);
        }
    }
    let asked = store.stat("get_misses").expect("a count");
    assert!(asked < 1_500, "{asked} searches for 2000 made-up ids");
}

#[test]
fn an_operator_drops_a_dictionary() {
    let server = Server::rebate_memcached(&[]);
    let mut client = server.client();
    let id = wait_for_dictionary(&mut client);
    let key = format!("rebate-dictionary:{id}:0");
    assert_eq!(client.set(&key, b"dropped").as_deref(), Ok("STORED"));
    wait("the dictionary is dropped", || {
        !page(&mut client).iter().any(|(name, _)| name.starts_with(&format!("dictionary:{id}")))
    });
    write(&mut client, 0..10);
    assert_eq!(read(&mut client, 0..10), 10);
}

#[test]
fn dictionaries_can_be_turned_off() {
    let server = Server::rebate_serve("embedded", "on", &["--set", "values.dictionaries=false"]);
    let mut client = server.client();
    write(&mut client, 0..3_000);
    assert_eq!(page(&mut client), []);
}

/// Runs `rebate dict` and returns the exit code and what it printed.
fn dict(arguments: &[&str]) -> (Option<i32>, String) {
    let done = rebate_command().arg("dict").args(arguments).output().expect("the binary runs");
    let text = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_dictionary_moves_from_one_server_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("orders.dict");
    let file = file.to_str().expect("a name in UTF-8");
    let (one, two) = (Server::rebate_memcached(&[]), Server::rebate_memcached(&[]));
    let id = wait_for_dictionary(&mut one.client());
    let address = |server: &Server| server.addr().to_string();
    let (code, text) = dict(&["list", &address(&one)]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("order:*") && text.contains(&id), "{text}");
    let (code, text) = dict(&["export", &address(&one), &id, "--out", file]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(dict(&["show", file]), (code, text));
    let (code, text) = dict(&["import", &address(&two), file, "--class", "order:*"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(wait_for_dictionary(&mut two.client()), id);
    let (code, text) = dict(&["drop", &address(&two), &id]);
    assert_eq!(code, Some(0), "{text}");
    wait("the dictionary is dropped", || {
        !dict(&["list", &address(&two), "--json"]).1.contains(&format!("\"id\": \"{id}\""))
    });
}

#[test]
fn bad_dictionaries_and_servers_are_refused_with_the_reason() {
    let store = Server::memcached(&[]);
    let address = store.addr().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("any.dict");
    std::fs::write(&file, [b'x'; 300]).expect("the file is written");
    let file = file.to_str().expect("a name in UTF-8");
    let injected = "x 0 0 0\r\n\r\nflush_all\r\nset b";
    let cases: [(&[&str], i32, &str); 9] = [
        (&["list", &address], 1, "no server of Rebate"),
        (&["list", "127.0.0.1:1"], 1, "127.0.0.1:1"),
        (&["export", &address, "a1b2c3", "--out", "/dev/null"], 1, "no dictionary a1b2c3"),
        (&["export", &address, "xyz", "--out", "/dev/null"], 2, "six hexadecimal digits"),
        (&["drop", &address, "a1b2c3"], 1, "no dictionary a1b2c3"),
        (&["import", &address, file, "--class", injected], 2, "1 to 64 printable"),
        (&["import", &address, file, "--class", ""], 2, "1 to 64 printable"),
        (&["show", "/dev/null"], 2, "256 to 65536"),
        (&["train", "--corpus", "/nonexistent", "--out", "/dev/null"], 2, "/nonexistent"),
    ];
    for (arguments, expected, reason) in cases {
        let (code, text) = dict(arguments);
        assert_eq!(code, Some(expected), "{arguments:?}: {text}");
        assert!(text.contains(reason), "{arguments:?}: {text}");
    }
}
