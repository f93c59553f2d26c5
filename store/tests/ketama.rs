//! Tests that the ring names the same servers as libmemcached for the same list. A small C program
//! asks libmemcached. Without a C compiler or libmemcached the test fails in CI and reports a skip
//! elsewhere.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use store::{Distribution, Ring, Server};
use units::Prng;

const KEYS: usize = 5_000;

#[test]
fn every_key_goes_where_libmemcached_sends_it() {
    let Some(oracle) = compile() else { return };
    let keys = keys();
    for (distribution, word) in [
        (Distribution::Ketama, "plain"),
        (Distribution::KetamaWeighted, "weighted"),
        (Distribution::Modula, "modula"),
    ] {
        for servers in server_lists() {
            let expected = ask(&oracle, word, &servers, &keys);
            let ring = Ring::new(&servers, distribution);
            for (key, expected) in keys.iter().zip(expected) {
                assert_eq!(ring.server(key.as_bytes()), expected, "{key} {word} {servers:?}");
            }
        }
    }
}

fn server_lists() -> Vec<Vec<Server>> {
    let list = |servers: &[(&str, u16, u32)]| {
        let server =
            |&(host, port, weight): &(&str, u16, u32)| Server { host: host.into(), port, weight };
        servers.iter().map(server).collect::<Vec<_>>()
    };
    let many: Vec<_> = (0..40)
        .map(|i| Server {
            host: format!("cache-{i}.example.org"),
            port: 11211 + i,
            weight: 1 + u32::from(i) % 5,
        })
        .collect();
    let mut prng = Prng::new(0x7269_6e67);
    let random = (0..20).map(|_| {
        let count = 2 + prng.below(12);
        let server = |i| Server {
            host: format!("10.0.0.{i}"),
            port: 11200 + prng.below(20) as u16,
            weight: 1 + prng.below(1000) as u32,
        };
        (0..count).map(server).collect::<Vec<_>>()
    });
    let random: Vec<_> = random.collect();
    let mut lists = vec![
        list(&[("127.0.0.1", 11211, 1)]),
        list(&[("127.0.0.1", 11211, 1), ("127.0.0.1", 11212, 1)]),
        list(&[("10.0.1.1", 11211, 600), ("10.0.1.2", 11211, 300), ("10.0.1.3", 11211, 200)]),
        list(&[
            ("10.0.1.1", 11211, 7),
            ("10.0.1.2", 1, 1),
            ("10.0.1.3", 65535, 13),
            ("db", 80, 29),
        ]),
        list(&[("::1", 11211, 1), ("localhost", 11211, 3), ("/run/memcached.sock", 0, 2)]),
        list(&[("a", 11211, 1), ("b", 11211, 1), ("c", 11211, 1)]),
        list(&[("a", 11211, 0), ("b", 11211, 1), ("c", 11211, 0), ("d", 11211, 2)]),
        list(&[("::1", 11211, 1), ("localhost", 11211, 1), ("/run/memcached.sock", 0, 1)]),
        many,
    ];
    lists.extend(random);
    lists
}

fn keys() -> Vec<String> {
    let mut prng = Prng::new(0x6b65_7461_6d61);
    (0..KEYS)
        .map(|i| match i % 4 {
            0 => format!("user:{i}"),
            1 => format!("{:016x}", prng.bits()),
            // If C's char is unsigned, libmemcached itself disagrees with x86 about such keys.
            2 if cfg!(target_arch = "x86_64") => format!("schlüssel:{i}"),
            _ => "k".repeat(1 + prng.below(250) as usize),
        })
        .collect()
}

fn ask(oracle: &Path, ketama: &str, servers: &[Server], keys: &[String]) -> Vec<usize> {
    let mut command = Command::new(oracle);
    command.arg(ketama);
    for server in servers {
        command.args([&server.host, &server.port.to_string(), &server.weight.to_string()]);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle was just compiled");
    let mut input = child.stdin.take().expect("piped");
    let lines = keys.join("\n") + "\n";
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the oracle runs");
    writer.join().expect("no panic").expect("the oracle reads all keys");
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).expect("numbers");
    let owners: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(owners.len(), keys.len());
    owners
}

fn compile() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ketama_oracle.c");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ketama_oracle");
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .args([&binary, &source])
        .arg("-lmemcached")
        .output();
    let trouble = match output {
        Ok(output) if output.status.success() => return Some(binary),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => format!("cc: {error}"),
    };
    let missing = format!("needs cc and libmemcached-dev to compare with libmemcached: {trouble}");
    assert!(std::env::var_os("CI").is_none(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}
