//! Sealed values: what the store sees of them, what clients get of values that were altered, moved or planted, how keys
//! rotate, and where keys must not be seen.

#[path = "../services/mod.rs"]
mod services;

mod mutations;
mod rotation;
mod secrecy;
mod service;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use rebate_tests::payload::{base64, payload, text};
use rebate_tests::{Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;
use services::metrics;
use tempfile::TempDir;

/// A file of keys, which can be replaced.
pub(crate) struct Keys(TempDir);

impl Keys {
    pub(crate) fn new(active: u16, ids: &[u16]) -> Self {
        let keys = Self(tempfile::tempdir().expect("a folder"));
        keys.write(active, ids);
        keys
    }

    /// Replaces the file as a whole.
    pub(crate) fn write(&self, active: u16, ids: &[u16]) {
        let table = |id: &u16| format!("[[key]]\nid = {id}\nsecret = \"{}\"\n", secret_text(*id));
        self.write_text(&format!(
            "active = {active}\n{}",
            ids.iter().map(table).collect::<String>()
        ));
    }

    pub(crate) fn write_text(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).expect("it is written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&new, mode).expect("its owner");
        std::fs::rename(&new, self.path()).expect("it is renamed");
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("keys.toml")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Returns the secret of a key. No two bytes of it are equal, so that it is found in memory only where it is.
pub(crate) fn secret(id: u16) -> [u8; 32] {
    std::array::from_fn(|index| (index as u8).wrapping_mul(37).wrapping_add(id as u8 * 53 + 11))
}

pub(crate) fn secret_text(id: u16) -> String {
    base64(&secret(id))
}

/// A frontend with keys.
pub(crate) struct Frontend {
    pub(crate) server: Server,
    pub(crate) log: PathBuf,
}

impl Frontend {
    /// Starts a frontend. `path` is the path of its values.
    pub(crate) fn start(store: &str, keys: &Keys, path: &str, args: &[&str]) -> Self {
        let log = keys.log(&format!("log-{path}-{}", args.join("").replace('/', "_")));
        let mut command = rebate_command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--threads", "2", "--store", store]);
        command.args(["--set", &format!("values.keys={}", keys.path().display())]);
        command.args(["--set", &format!("values.path={path}")]).args(args);
        let stderr = Stdio::from(std::fs::File::create(&log).expect("a log"));
        Self { server: Server::rebate_with(&mut command, stderr), log }
    }

    pub(crate) fn sealing(store: &Server, keys: &Keys, args: &[&str]) -> Self {
        Self::start(&store.as_store(), keys, "compress,encrypt", args)
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.server.admin().expect("admin pages")
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        metrics(self.admin()).get(name).copied().unwrap_or_default()
    }

    pub(crate) fn misses(&self, kind: &str) -> f64 {
        self.metric(&format!("rebate_frame_errors_total{{kind=\"{kind}\"}}"))
    }
}

pub(crate) const CLOSED: [&str; 2] = ["--foreign", "forbid"];

/// The values of a test: every form that a value can have without a seal, and short ones.
fn values() -> Vec<(String, Vec<u8>)> {
    let classes = ["text", "random", "same", "gzip", "magic", "magic2text", "magicsealed"];
    let long = classes.iter().map(|class| (class.to_string(), payload(class, 5_000)));
    let long = long.map(|(key, value)| (key, value.expect("a known class")));
    let short = [("small", "x"), ("number", "42"), ("words", "top secret words of a customer")];
    let short = short.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    long.chain(short).chain([("empty".to_owned(), Vec::new())]).collect()
}

#[test]
fn the_store_sees_only_sealed_values() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(2, &[1, 2]));
    for path in ["encrypt", "compress,encrypt"] {
        let ours = Frontend::start(&store.as_store(), &keys, path, &CLOSED);
        let (mut client, mut direct) = (ours.server.client(), store.client());
        for (key, value) in values() {
            assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
            assert_eq!(client.get(&key), Ok(Some(value.clone())), "{path}: {key}");
            let stored = direct.get(&key).expect("an answer").expect("it is stored");
            assert_eq!(stored[..4], [0xFE, 1, 2, 0], "{path}: {key}");
            let start = value.get(..8).unwrap_or(b"no value is that");
            assert!(!stored.windows(start.len()).any(|window| window == start), "{path}: {key}");
            let shrinks = path != "encrypt" && ["text", "same", "magic2text"].contains(&&key[..]);
            assert_eq!(stored.len() < value.len(), shrinks, "{path}: {key}: {}", stored.len());
            assert!(stored.len() <= value.len() + 36 + 12, "{path}: {key}: {}", stored.len());
        }
        let count = values().len() as f64;
        for direction in ["written", "read"] {
            let name = format!("rebate_sealed_values_total{{direction=\"{direction}\"}}");
            assert_eq!(ours.metric(&name), count, "{path}: {name}");
        }
        assert_eq!(ours.metric("rebate_value_key_sealed_total{key=\"2\"}"), count);
        let jobs = |op: &str| {
            let page = metrics(ours.admin());
            let start = format!("rebate_jobs_total{{op=\"{op}\"");
            page.iter()
                .filter(|(name, _)| name.starts_with(&start))
                .map(|(_, jobs)| jobs)
                .sum::<f64>()
        };
        assert_eq!((jobs("encrypt"), jobs("decrypt")), (count, count), "each step is a job");
    }
}

#[test]
fn the_example_of_the_format_is_read() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let secret = base64(&[7; 32]);
    keys.write_text(&format!("active = 1\n[[key]]\nid = 1\nsecret = \"{secret}\"\n"));
    let ours = Frontend::sealing(&store, &keys, &CLOSED);
    let mut example = vec![0xFE, 1, 1, 0, 2, 0, 0, 0];
    example.extend([9; 12]);
    example.extend([0x4F, 0xEC]);
    example.extend([0x07, 0x1E, 0x21, 0x51, 0xE1, 0x1F, 0x2E, 0xFD]);
    example.extend([0x25, 0xF2, 0xE5, 0x4D, 0x44, 0x07, 0x91, 0xBF]);
    for (key, found) in [("k", Some(b"hi".to_vec())), ("l", None)] {
        assert_eq!(store.client().set(key, &example).as_deref(), Ok("STORED"));
        assert_eq!(ours.server.client().get(key), Ok(found), "{key}");
    }
}

#[test]
fn readers_with_keys_read_what_writers_seal() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let reader = Frontend::start(&store.as_store(), &keys, "compress", &[]);
    let writer = Frontend::sealing(&store, &keys, &[]);
    let without = Server::rebate_serve(&store.as_store(), "on", &["--admin-listen", "127.0.0.1:0"]);
    let mut clients = [&reader.server, &writer.server].map(Server::client);
    for (key, value) in values() {
        for index in [0, 1] {
            assert_eq!(clients[index].set(&key, &value).as_deref(), Ok("STORED"));
            for client in &mut clients {
                assert_eq!(client.get(&key), Ok(Some(value.clone())), "{key}");
            }
        }
        // The last one to write sealed it.
        assert_eq!(without.client().get(&key), Ok(None), "{key}: no bytes without a key");
    }
    let unknown = "rebate_frame_errors_total{kind=\"seal_key_unknown\"}";
    let counted = metrics(without.admin().expect("admin pages"))[unknown];
    assert_eq!(counted, values().len() as f64);
    // Nobody removes what others can read.
    assert_eq!(without.client().ask(b"add text 0 0 1\r\nx").text(), "NOT_STORED\r\n");
    assert_eq!(clients[1].get("text"), Ok(payload("text", 5_000)));
}

#[test]
fn numbers_from_before_are_counted_and_sealed() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let ours = Frontend::sealing(&store, &keys, &[]);
    let (mut client, mut direct) = (ours.server.client(), store.client());
    assert_eq!(direct.set("n", b"41").as_deref(), Ok("STORED"));
    assert_eq!(client.ask(b"incr n 1").text(), "42\r\n");
    assert!(direct.get("n").expect("an answer").expect("it is there").starts_with(&[0xFE, 1]));
    assert_eq!(client.ask(b"decr n 2").text(), "40\r\n");
    assert_eq!(client.ask(b"ma fresh N0 J7 v").text(), "VA 1\r\n7\r\n");
    assert!(direct.get("fresh").expect("an answer").expect("it is there").starts_with(&[0xFE, 1]));
    assert_eq!(client.ask(b"ma fresh N0 J7 D3 v").text(), "VA 2\r\n10\r\n");
    assert_eq!(client.ask(b"incr nothing 1").text(), "NOT_FOUND\r\n");
    assert_eq!(client.ask(b"set w 0 0 4\r\nword").text(), "STORED\r\n");
    let refused = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    assert_eq!(client.ask(b"incr w 1").text(), refused);
}

#[test]
fn a_closed_fleet_serves_nothing_without_a_seal() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let ours = Frontend::sealing(&store, &keys, &CLOSED);
    let framing = Server::rebate_serve(&store.as_store(), "on", &[]);
    let (mut client, mut direct) = (ours.server.client(), store.client());
    assert_eq!(framing.client().set("frame", &text(5_000)).as_deref(), Ok("STORED"));
    for (key, value) in [("raw", &b"planted"[..]), ("number", b"42"), ("empty", b"")] {
        assert_eq!(direct.set(key, value).as_deref(), Ok("STORED"));
    }
    for key in ["frame", "raw", "number", "empty"] {
        assert_eq!(client.get(key), Ok(None), "{key}");
        for command in ["mg KEY v", "mg KEY s", "get other KEY", "gat 0 KEY"] {
            let answer = client.ask(command.replace("KEY", key).as_bytes()).text();
            assert!(["EN\r\n", "END\r\n"].contains(&&answer[..]), "{command} of {key}: {answer}");
        }
        assert_eq!(
            client.ask(format!("append {key} 0 0 1\r\nx").as_bytes()).text(),
            "NOT_STORED\r\n"
        );
        assert_eq!(client.ask(format!("incr {key} 1").as_bytes()).text(), "NOT_FOUND\r\n", "{key}");
    }
    assert_eq!(direct.get("number"), Ok(Some(b"42".to_vec())), "nothing was counted");
    assert!(ours.misses("unsealed_refused") >= 20.0);
    // A recache of a missing item has no value yet, and no seal.
    assert_eq!(client.ask(b"mg recached N30 v").text(), "VA 0 W\r\n\r\n");
    assert_eq!(client.ask(b"mg recached N30 v").text(), "VA 0 Z\r\n\r\n");
}

#[test]
fn a_snapshot_has_only_sealed_values() {
    let keys = Keys::new(1, &[1]);
    let file = keys.log("items");
    let named = format!("store.file={}", file.display());
    let args = ["--memory", "64MiB", "--set", &named, "--foreign", "forbid"];
    let longest = payload("random", (1 << 20) - 200).expect("a known class");
    let mut ours = Frontend::start("embedded", &keys, "compress,encrypt", &args);
    let mut client = ours.server.client();
    for (key, value) in values() {
        assert_eq!(client.set(&key, &value).as_deref(), Ok("STORED"));
    }
    assert_eq!(client.set("longest", &longest).as_deref(), Ok("STORED"));
    ours.server.signal(Signal::TERM);
    ours.server.wait_exit(TIMEOUT).expect("it ends");
    let saved = std::fs::read(&file).expect("the items are saved");
    for (key, value) in values().iter().filter(|(_, value)| value.len() > 8) {
        let start = &value[..8];
        assert!(!saved.windows(8).any(|window| window == start), "{key} is readable");
    }
    let again = Frontend::start("embedded", &keys, "compress,encrypt", &args);
    let mut client = again.server.client();
    for (key, value) in values().into_iter().chain([("longest".to_owned(), longest)]) {
        assert_eq!(client.get(&key), Ok(Some(value)), "{key}");
    }
}

#[test]
fn dictionaries_are_sealed_with_their_values() {
    let (store, keys) = (Server::memcached(&["-m", "256"]), Keys::new(1, &[1]));
    let args = ["--frame-version", "2", "--set", "values.classes=user:", "--foreign", "forbid"];
    let ours = Frontend::sealing(&store, &keys, &args);
    let record = |index: usize| {
        format!(
            "{{\"user\":{index},\"name\":\"customer number {index}\",\"country\":\"Norway\",\
             \"street\":\"{} Long Confidential Street\",\"active\":true,\"balance\":{}}}",
            index * 7 % 100,
            index * 31 % 1_000
        )
    };
    let mut client = ours.server.client();
    let is_used = |name: &str| ours.metric(name);
    let trained = poll_for(3 * TIMEOUT, || {
        for index in 0..500 {
            let value = record(index);
            assert_eq!(
                client.set(&format!("user:{index}"), value.as_bytes()).as_deref(),
                Ok("STORED")
            );
        }
        (is_used("rebate_dictionaries") >= 1.0).then_some(())
    });
    assert!(trained.is_some(), "no dictionary was trained");
    // Another process has only the store to get the dictionary from.
    for index in 0..500 {
        let value = record(index);
        assert_eq!(client.set(&format!("user:{index}"), value.as_bytes()).as_deref(), Ok("STORED"));
    }
    let other =
        Frontend::sealing(&store, &keys, &[&args[..], &["--set", "values.hot_share=0"]].concat());
    let mut reader = other.server.client();
    for index in 0..500 {
        assert_eq!(reader.get(&format!("user:{index}")), Ok(Some(record(index).into_bytes())));
    }
    // The crawler may answer the end of its list late, and leaves out what memcached moves meanwhile.
    let names = poll_for(TIMEOUT, || {
        let listed = store.client().ask(b"lru_crawler metadump all").text();
        let keys = listed.lines().filter_map(|line| line.strip_prefix("key=")?.split(' ').next());
        let names = keys.filter(|key| key.starts_with("rebate-dictionary")).map(str::to_owned);
        let names: Vec<String> = names.collect();
        (names.len() >= 2).then_some(names)
    });
    let names = names.expect("a dictionary and its class are in the store");
    let mut direct = store.client();
    for name in names {
        let name = name.replace("%3A", ":");
        let stored = direct.get(&name).expect("an answer").expect("it is there");
        assert!(stored.starts_with(&[0xFE, 1]), "{name} is readable in the store");
    }
}
