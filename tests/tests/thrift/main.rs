//! Tests the cache's Thrift listener: stock clients in Python and C++, what memcached clients and Thrift clients read
//! of each other, rights, bad frames, limits, and the drain.

mod hostile;
#[path = "../stock_thrift/mod.rs"]
mod stock_thrift;
#[path = "../thrift_bridge/mod.rs"]
mod thrift_bridge;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rebate_tests::payload::base64;
use rebate_tests::{Bystander, Client, Server, TIMEOUT};
use rpc::services::memcached::{GetManyArgs, GetManyResult, GetResult, Memcached, SetArgs};
use rustix::process::Signal;
use tempfile::TempDir;
use thrift_bridge::{Arguments, CallAnswer, Calls};

/// A server with a Thrift listener.
struct Cache {
    server: Server,
    thrift: SocketAddr,
}

impl Cache {
    fn start(store: &str, compress: &str, args: &[&str]) -> Self {
        let ours = ["--thrift-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let server = Server::rebate_serve(store, compress, &[&ours, args].concat());
        let thrift = server.printed("thrift on ").and_then(|text| text.parse().ok());
        Self { thrift: thrift.expect("an address"), server }
    }

    fn calls(&self) -> Calls {
        Calls::connect(self.thrift).expect("it accepts")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.thrift).expect("it accepts");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream
    }

    /// Returns the sample of a metric, with its labels.
    fn metric(&self, name: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.server.admin()?).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(str::to_owned)
    }
}

fn set(calls: &mut Calls, key: &str, value: &[u8]) -> CallAnswer {
    let arguments = |args: &mut Arguments<'_, '_>| {
        args.key(key.as_bytes())?;
        args.build.set_bytes(args.block, SetArgs::VALUE, value)
    };
    calls.call(Memcached::SET, arguments).expect("an answer")
}

fn get(calls: &mut Calls, key: &str) -> Option<Vec<u8>> {
    let answer = calls.call(Memcached::GET, |args| args.key(key.as_bytes())).expect("an answer");
    let result = answer.result(1).expect("no failure");
    GetResult(result).success()?.value().map(<[u8]>::to_vec)
}

fn get_many(calls: &mut Calls, keys: &[String]) -> CallAnswer {
    let arguments = |args: &mut Arguments<'_, '_>| {
        let list = args.build.block(keys.len())?;
        for (slot, key) in keys.iter().enumerate() {
            args.build.put_bytes(list, slot, key.as_bytes())?;
        }
        args.build.head(list, keys.len() as u64);
        args.build.set_block(args.block, GetManyArgs::KEYS, list);
        Ok(())
    };
    calls.call(Memcached::GET_MANY, arguments).expect("an answer")
}

fn output(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{problem}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_stock_python_client_calls_every_function() {
    let store = Server::memcached(&[]);
    for (store, compress) in
        [("embedded", "on"), ("embedded", "off"), (&store.as_store() as &str, "on")]
    {
        let cache = Cache::start(store, compress, &[]);
        let address = cache.thrift.to_string();
        let Some(client) = stock_thrift::python("thrift/client.py", &[&address]) else { return };
        assert_eq!(output(client), include_str!("answers.txt"), "{store} {compress}");
    }
}

/// Compiles the program in C++, with the code that the stock compiler makes of the IDL.
fn compiled(folder: &TempDir) -> Option<PathBuf> {
    stock_thrift::generate("cpp:no_skeleton", "memcached", folder.path())?;
    let program = folder.path().join("program");
    let mut command = Command::new("c++");
    command.arg(stock_thrift::manifest_dir().join("tests/thrift/program.cpp"));
    command.args(["Memcached.cpp", "memcached_types.cpp"].map(|file| folder.path().join(file)));
    command.arg("-I").arg(folder.path()).arg("-o").arg(&program).arg("-lthrift");
    match command.output() {
        Err(_) => stock_thrift::missing("C++ compiler"),
        Ok(output) if !output.status.success() => {
            let problem = String::from_utf8_lossy(&output.stderr);
            let is_missing = problem.contains("thrift/") && problem.contains("No such file");
            assert!(is_missing, "{problem}");
            stock_thrift::missing("Thrift for C++ (packages libthrift-dev and libboost-dev)")
        }
        Ok(_) => Some(program),
    }
}

/// The record with this number, as `pages.py` and `program.cpp` have it.
fn page(number: usize) -> Vec<u8> {
    let (id, user) = (number * 7_919 % 999_983, number * 104_729 % 9_999_991);
    let part = format!(
        r#"{{"id":{id},"type":"order","user":{{"id":{user},"plan":"team"}},"created":"2026-01-{:02}"}}"#,
        1 + number % 28
    );
    part.repeat(if number % 100 == 99 { number } else { 1 }).into_bytes()
}

const PAGES: usize = 300;

fn write_pages(client: &mut Client) {
    for number in 0..PAGES {
        let value = page(number);
        let line = format!("set page:{number} {number} 0 {}\r\n", value.len());
        let answer = client.ask(&[line.as_bytes(), &value].concat());
        assert_eq!(answer.bytes, b"STORED\r\n", "{number}");
    }
}

fn read_pages(client: &mut Client) {
    for number in 0..PAGES {
        let value = page(number);
        let head = format!("VALUE page:{number} {number} {}\r\n", value.len());
        let expected = [head.as_bytes(), &value, b"\r\nEND\r\n"].concat();
        assert!(client.ask(format!("get page:{number}").as_bytes()).bytes == expected, "{number}");
    }
}

/// Lets clients in Python, in C++ and of memcached write pages in turn, and all others read them.
fn exchange_pages(cache: &Cache) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(&folder) else { return };
    let (address, count) = (cache.thrift.to_string(), PAGES.to_string());
    let python = |way: &str| {
        let script = stock_thrift::python("thrift/pages.py", &[way, &address, &count]);
        let printed = output(script.expect("the compiler is there, and so is the library"));
        assert_eq!(printed, format!("{PAGES} pages\n"));
    };
    let cpp = |way: &str| {
        let mut command = Command::new(&program);
        let (host, port) = (cache.thrift.ip().to_string(), cache.thrift.port().to_string());
        command.args([way, &host, &port, &count]);
        assert_eq!(output(command), format!("{PAGES} pages\n"));
    };
    let mut client = cache.server.client();
    write_pages(&mut client);
    python("read");
    cpp("read");
    client.ask(b"flush_all");
    python("write");
    read_pages(&mut client);
    cpp("read");
    client.ask(b"flush_all");
    cpp("write");
    read_pages(&mut client);
    python("read");
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let text = client.ask(b"stats rebate").text();
    let prefix = format!("STAT {name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

#[test]
fn stock_clients_read_compressed_values_of_others() {
    exchange_pages(&Cache::start("embedded", "on", &[]));
    let store = Server::memcached(&[]);
    exchange_pages(&Cache::start(&store.as_store(), "on", &[]));
}

#[test]
fn stock_clients_read_sealed_values_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys.toml");
    let text = format!("active = 3\n[[key]]\nid = 3\nsecret = \"{}\"\n", base64(&[7; 32]));
    std::fs::write(&keys, text).expect("the keys are written");
    let keys = format!("values.keys={}", keys.display());
    let args = ["--set", &keys, "--set", "values.path=compress,encrypt", "--foreign", "forbid"];
    exchange_pages(&Cache::start("embedded", "on", &args));
}

#[test]
fn stock_clients_read_values_with_a_dictionary() {
    let cache = Cache::start("embedded", "on", &["--frame-version", "2"]);
    let mut client = cache.server.client();
    let begun = Instant::now();
    let mut first = 0;
    loop {
        for number in first..first + 500 {
            let stored = client.set(&format!("page:{number}"), &page(number % 99));
            assert_eq!(stored.as_deref(), Ok("STORED"));
        }
        first += 500;
        let text = client.ask(b"stats dictionaries").text();
        let form = text.lines().find_map(|line| line.strip_prefix("STAT class:0:page:*:form "));
        if form.is_some_and(|form| form.len() == 6) {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "no dictionary in time: {form:?}");
    }
    exchange_pages(&cache);
    assert_eq!(stat(&mut client, "dictionary_missing"), 0);
}

/// The functions, whether they take a key, and the rights that they need.
const FUNCTIONS: [(u32, bool, &[&str]); 17] = [
    (Memcached::SET, true, &["write"]),
    (Memcached::GET, true, &["read"]),
    (Memcached::GETS, true, &["read"]),
    (Memcached::GET_MANY, true, &["read"]),
    (Memcached::GET_AND_TOUCH, true, &["read", "write"]),
    (Memcached::ADD, true, &["write"]),
    (Memcached::REPLACE, true, &["write"]),
    (Memcached::APPEND, true, &["write"]),
    (Memcached::PREPEND, true, &["write"]),
    (Memcached::CAS, true, &["write"]),
    (Memcached::DELETE, true, &["delete"]),
    (Memcached::TOUCH, true, &["write"]),
    (Memcached::INCREMENT, true, &["read", "write"]),
    (Memcached::DECREMENT, true, &["read", "write"]),
    (Memcached::FLUSH_ALL, false, &["flush"]),
    (Memcached::VERSION, false, &[]),
    (Memcached::STATS, false, &["stats"]),
];

/// Calls a function with some value and number, and returns whether the client may do that.
fn is_allowed(calls: &mut Calls, function: u32, key: &str) -> bool {
    let answer = match function {
        Memcached::GET_MANY => get_many(calls, &["web:a".to_owned(), key.to_owned()]),
        Memcached::STATS | Memcached::VERSION | Memcached::FLUSH_ALL => {
            calls.call(function, |_| Ok(())).expect("an answer")
        }
        _ => {
            let has_value = FUNCTIONS[..10].iter().any(|(one, ..)| *one == function)
                && !matches!(function, Memcached::GET | Memcached::GETS | Memcached::GET_AND_TOUCH);
            let call = calls.call(function, |args| {
                args.key(key.as_bytes())?;
                match (has_value, function) {
                    (true, _) => args.build.set_bytes(args.block, SetArgs::VALUE, b"1")?,
                    (_, Memcached::INCREMENT | Memcached::DECREMENT) => args.number(1, 1),
                    _ => {}
                }
                if function == Memcached::CAS {
                    args.number(4, 1);
                }
                Ok(())
            });
            call.expect("an answer")
        }
    };
    // A void function has its exception in the first slot.
    let error = if matches!(function, Memcached::SET | Memcached::FLUSH_ALL) { 0 } else { 1 };
    match answer.result(error) {
        Ok(_) => true,
        Err(line) => {
            let line = String::from_utf8(line).expect("text");
            assert!(line == "SERVER_ERROR Permission denied\r\n" || line.contains("non-numeric"));
            line.contains("non-numeric")
        }
    }
}

/// Starts a server whose clients in a network have a role with these commands and this prefix of keys.
fn restricted(folder: &TempDir, commands: &[&str], prefix: &str, network: &str) -> Cache {
    let file = folder.path().join("access.toml");
    let rules = format!(
        "[roles.one]\ncommands = {commands:?}\nkey_prefix = \"{prefix}\"\n\
         [[networks]]\ncidr = \"{network}\"\nrole = \"one\"\n"
    );
    let mut open = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let mut written = open.create(true).write(true).truncate(true).open(&file).expect("a file");
    written.write_all(rules.as_bytes()).expect("the rules are written");
    Cache::start("embedded", "on", &["--access-file", &file.display().to_string()])
}

#[test]
fn every_function_needs_the_rights_of_its_command() {
    let roles: [&[&str]; 6] =
        [&["read"], &["write"], &["delete"], &["read", "write"], &["flush"], &["stats"]];
    for role in roles {
        let folder = tempfile::tempdir().expect("a folder");
        // A role that may remove all items cannot have a prefix.
        let prefix = if role == ["flush"] { "" } else { "web:" };
        let cache = restricted(&folder, role, prefix, "127.0.0.0/8");
        let mut calls = cache.calls();
        for (function, has_key, needed) in FUNCTIONS {
            let has_rights = needed.iter().all(|right| role.contains(right));
            for key in ["web:a", "we", "other"] {
                let is_open = has_rights && (!has_key || key.starts_with(prefix));
                let is_served = is_allowed(&mut calls, function, key);
                assert_eq!(is_served, is_open, "{role:?}, function {function}, {key}");
            }
        }
    }
}

#[test]
fn clients_that_no_rule_names_may_do_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = restricted(&folder, &["all"], "", "10.0.0.0/8");
    for (function, ..) in FUNCTIONS {
        if function == Memcached::VERSION {
            continue;
        }
        let mut calls = cache.calls();
        let answer = match function {
            Memcached::GET_MANY => get_many(&mut calls, &["web:a".to_owned()]),
            _ => {
                let call = calls.call(function, |args| {
                    if !matches!(function, Memcached::FLUSH_ALL | Memcached::STATS) {
                        args.key(b"web:a")?;
                    }
                    match function {
                        Memcached::INCREMENT | Memcached::DECREMENT => args.number(1, 1),
                        Memcached::SET
                        | Memcached::ADD
                        | Memcached::REPLACE
                        | Memcached::APPEND
                        | Memcached::PREPEND
                        | Memcached::CAS => {
                            args.build.set_bytes(args.block, SetArgs::VALUE, b"1")?;
                        }
                        _ => {}
                    }
                    if function == Memcached::CAS {
                        args.number(4, 1);
                    }
                    Ok(())
                });
                call.expect("an answer")
            }
        };
        let error = if matches!(function, Memcached::SET | Memcached::FLUSH_ALL) { 0 } else { 1 };
        let line = answer.result(error).expect_err("no answer");
        assert_eq!(line, b"SERVER_ERROR Auth failure.\r\n", "function {function}");
        let again = calls.call(Memcached::VERSION, |_| Ok(()));
        assert!(again.is_err(), "the connection ends");
    }
    // Nobody holds memory for a long value of a stranger.
    let mut stream = cache.connect();
    let head =
        b"\x80\x01\0\x01\0\0\0\x03Set\0\0\0\x07\x0b\0\x01\0\0\0\x05web:a\x0b\0\x02\0\x08\0\0";
    let begun = [&[0, 8, 0, 100][..], head, &[b'v'; 4_000]].concat();
    stream.write_all(&begun).expect("it is sent");
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("an answer before the rest");
}

/// Returns a call in a frame: its name, number and arguments as they are on the wire.
fn framed(name: &str, sequence: u8, arguments: &[u8]) -> Vec<u8> {
    let name_bytes = (name.len() as u32).to_be_bytes();
    let message =
        [&b"\x80\x01\0\x01"[..], &name_bytes, name.as_bytes(), &[0, 0, 0, sequence], arguments]
            .concat();
    [&(message.len() as u32).to_be_bytes()[..], &message].concat()
}

/// Reads an answer. Returns its kind, 2 for a reply and 3 for an exception, and its number.
fn answer(stream: &mut TcpStream) -> (u8, u8) {
    let mut head = [0; 4];
    stream.read_exact(&mut head).expect("an answer");
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body).expect("whole");
    let name_bytes = u32::from_be_bytes([body[4], body[5], body[6], body[7]]) as usize;
    (body[3], body[8 + name_bytes + 3])
}

#[test]
fn clients_that_do_not_behave_harm_only_themselves() {
    let cache = Cache::start("embedded", "on", &["--threads", "1"]);
    let bystander = Bystander::start(cache.server.addr(), 2, 100, TIMEOUT);
    let key = b"\x0b\0\x01\0\0\0\x03key\0";
    // Bytes that are no call close the connection: a negative length, an empty frame, one that is no message, other
    // protocols, a reply, a oneway call, a name that is too long, and a long frame with any of these.
    let reply = b"\0\0\0\x10\x80\x01\0\x02\0\0\0\x03Get\0\0\0\x01\0";
    let oneway = b"\0\0\0\x10\x80\x01\0\x04\0\0\0\x03Get\0\0\0\x01\0";
    let name = framed(&"x".repeat(300), 1, b"\0");
    let long = [&b"\x7f\xff\xff\xff"[..], &[b'x'; 3_000]].concat();
    let http = [&b"GET / HTTP/1.1\r\n"[..], &[b'h'; 3_000]].concat();
    let bad: [&[u8]; 10] = [
        b"\xff\xff\xff\xff",
        b"\x80\x01\0\x01\0\0\0\x03Get\0\0\0\x01",
        b"\0\0\0\0",
        b"\0\0\0\x04abcd",
        b"\0\0\0\x0c\x81\x01\0\x01\0\0\0\0\0\0\0\0",
        reply,
        oneway,
        &name,
        &long,
        &http,
    ];
    for bytes in bad {
        let mut stream = cache.connect();
        stream.write_all(bytes).expect("it is sent");
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        assert!(ended.is_err() || answer.is_empty(), "{}", bytes.escape_ascii());
    }
    // Half frames wait for their rest, and end with their connection.
    cache.connect().write_all(b"\0\0\0\x20\x80\x01").expect("it is sent");
    let mut slow = cache.connect();
    let call = framed("Get", 7, key);
    slow.write_all(&call[..9]).expect("it is sent");
    // Calls in one write are answered in order, with refused ones among them.
    let calls = [
        framed("Get", 1, key),
        framed("Nix", 2, key),
        framed("Get", 3, b"\0"),
        framed("Get", 4, b"\x0f\0\x01\x0b\0\0\0\x00\0"),
        framed("Get", 5, b"\x0b\0\x01\x7f\xff\xff\xff"),
        framed("Get", 6, b"\x0b\0\x01\0\0\0\x03key\0more"),
        framed("GetMany", 7, b"\x0f\0\x09\x0b\x7f\xff\xff\xff\0"),
        framed("GetMany", 8, b"\x0f\0\x09\x08\0\0\0\x01\0\0\0\0\0"),
        framed("Get", 9, b"\x0c\0\x07\x0c\0\x01\0\0\x0b\0\x01\0\0\0\x03key\0"),
    ];
    let mut stream = cache.connect();
    stream.write_all(&calls.concat()).expect("it is sent");
    let answers: Vec<_> = (0..9).map(|_| answer(&mut stream)).collect();
    let kinds = [2, 3, 3, 3, 3, 3, 3, 3, 2];
    let expected: Vec<_> = kinds.into_iter().zip(1..).collect();
    assert_eq!(answers, expected);
    slow.write_all(&call[9..]).expect("it is sent");
    assert_eq!(answer(&mut slow), (2, 7));
    let report = bystander.stop();
    assert!(report.failures.is_empty(), "{:?}", report.failures.first());
}

#[test]
fn a_value_above_the_limit_removes_the_old_one() {
    let cache = Cache::start("embedded", "on", &[]);
    let mut calls = cache.calls();
    for length in [1 << 20, 3 << 20] {
        assert!(set(&mut calls, "key", b"old").result(0).is_ok());
        let answer = set(&mut calls, "key", &vec![b'v'; length]);
        let line = answer.result(0).expect_err("too large");
        assert_eq!(line, b"SERVER_ERROR object too large for cache\r\n");
        assert_eq!(get(&mut calls, "key"), None, "{length}");
    }
}

#[test]
fn long_answers_have_a_limit_and_leave_the_connection_usable() {
    let cache = Cache::start("embedded", "on", &["--memory", "256MiB"]);
    let mut calls = cache.calls();
    let keys: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    for key in &keys {
        assert!(set(&mut calls, key, &key.as_bytes().repeat(200_000)).result(0).is_ok());
    }
    let answer = get_many(&mut calls, &keys[..10]);
    let map = GetManyResult(answer.result(1).expect("no failure")).success().expect("a map");
    assert_eq!(map.count() / 2, 10);
    let answer = get_many(&mut calls, &keys);
    assert!(answer.result(1).is_err(), "20 values of 800 to 1,000 kB");
    assert_eq!(get(&mut calls, "key7").map(|value| value.len()), Some(800_000));
    let held = cache.metric("rebate_memory_held_bytes{part=\"values\"}").expect("a sample");
    assert_eq!(held, "0", "the answers' memory is returned");
}

#[test]
fn a_get_of_many_short_values_finds_all() {
    let store = Server::memcached(&[]);
    for store in ["embedded", &store.as_store()] {
        let cache = Cache::start(store, "on", &[]);
        let mut calls = cache.calls();
        let keys: Vec<String> = (0..3_000).map(|number| format!("key{number}")).collect();
        for key in keys.iter().step_by(2) {
            assert!(set(&mut calls, key, &key.as_bytes().repeat(40)).result(0).is_ok());
        }
        let answer = get_many(&mut calls, &keys);
        let map = GetManyResult(answer.result(1).expect("no failure")).success().expect("a map");
        assert_eq!(map.count() / 2, 1_500, "{store}");
    }
}

#[test]
fn idle_clients_and_those_above_the_limit_are_closed() {
    let args = ["--set", "server.idle_timeout_s=1", "--connections-max", "16"];
    let cache = Cache::start("embedded", "on", &args);
    let mut idle = cache.connect();
    let mut half = cache.connect();
    half.write_all(b"\0\0\0\x20\x80").expect("it is sent");
    for stream in [&mut idle, &mut half] {
        assert_eq!(stream.read(&mut [0; 16]).expect("it is closed"), 0);
    }
    let open: Vec<TcpStream> = (0..16).map(|_| cache.connect()).collect();
    let refused = open.iter().any(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_))
    });
    assert!(refused, "a place is reserved for memcached clients");
}

#[test]
fn calls_and_connections_are_counted() {
    let cache = Cache::start("embedded", "on", &[]);
    let mut calls = cache.calls();
    assert!(set(&mut calls, "key", b"value").result(0).is_ok());
    assert_eq!(get(&mut calls, "key").as_deref(), Some(&b"value"[..]));
    get_many(&mut calls, &["key".to_owned(), "none".to_owned()]);
    let expected = [
        ("rebate_thrift_calls_total", "3"),
        ("rebate_listener_connections{listener=\"thrift\"}", "1"),
        ("rebate_packets_total", "0"),
    ];
    for (name, value) in expected {
        assert_eq!(cache.metric(name).as_deref(), Some(value), "{name}");
    }
    let mut client = cache.server.client();
    let text = client.ask(b"stats").text();
    for line in ["STAT cmd_get 3", "STAT get_hits 2", "STAT cmd_set 1"] {
        assert!(text.contains(&format!("{line}\r\n")), "{line}: {text}");
    }
}

#[test]
fn a_drain_answers_the_call_in_flight_and_ends_idle_connections() {
    let store = Server::memcached(&[]);
    let mut cache = Cache::start(&store.as_store(), "on", &["--threads", "1"]);
    let mut calls = cache.calls();
    assert!(set(&mut calls, "key", b"value").result(0).is_ok());
    let mut idle = cache.connect();
    store.stop().expect("it stands still");
    let mut stream = cache.connect();
    stream.write_all(&framed("Get", 7, b"\x0b\0\x01\0\0\0\x03key\0")).expect("it is sent");
    // After round trips on the only thread, the server has read the call and sent it on.
    let mut probe = cache.server.client();
    for _ in 0..20 {
        probe.ask(b"mn");
    }
    cache.server.signal(Signal::TERM);
    assert_eq!(idle.read(&mut [0; 16]).expect("it is closed"), 0);
    store.go_on();
    assert_eq!(answer(&mut stream), (2, 7));
    let status = cache.server.wait_exit(TIMEOUT).expect("the drain ends");
    assert_eq!(status.code(), Some(0), "{}", cache.server.output());
}
