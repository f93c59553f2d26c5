//! Tests real clients with the built binary: libmemcached's conformance tool and the Python clients. The same tests
//! run with memcached, to show that they are right. A client that cannot be installed is a failure in CI, and is
//! skipped with a message elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use rebate_tests::Server;

/// The versions of the Python clients. They work with Python 3.9 to 3.13. An upgrade is a deliberate change here.
const PACKAGES: [&str; 3] =
    ["pymemcache==4.0.0", "pylibmc==1.6.3", "python-binary-memcached==0.33.0"];

/// Runs the check for every configuration that can replace a memcached.
fn ours(check: impl Fn(&Server)) {
    check(&Server::rebate_memcached(&[]));
    check(&Server::rebate_serve("embedded", "on", &[]));
    let store = Server::memcached(&[]);
    check(&Server::rebate_serve(&store.as_store(), "on", &[]));
}

#[test]
fn memccapable_passes_what_memcached_passes() {
    for protocol in ["-a", "-b"] {
        let Some(reference) = memccapable(&Server::memcached(&[]), protocol) else { return };
        assert!(reference.len() > 20, "memccapable reports its tests: {reference:?}");
        ours(|server| assert_eq!(memccapable(server, protocol).as_ref(), Some(&reference)));
    }
}

#[test]
fn python_clients_find_in_memcached_what_they_stored() {
    python(&[&Server::memcached(&[]).addr().to_string()]);
}

#[test]
fn python_clients_find_in_ours_what_they_stored() {
    ours(|server| python(&[&server.addr().to_string()]));
}

#[test]
fn ring_agrees_with_libmemcached() {
    let stores = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
    let list = stores.each_ref().map(|store| store.addr().to_string()).join(",");
    let front = Server::rebate_serve(&format!("memcached://{list}"), "off", &[]);
    python(&["ring", &front.addr().to_string(), &list]);
}

/// Returns the lines of memccapable's report on a protocol, one per test. Returns `None` if memccapable is not
/// installed.
fn memccapable(server: &Server, protocol: &str) -> Option<Vec<String>> {
    let port = server.addr().port().to_string();
    let output = Command::new("memccapable")
        .args([protocol, "-t", "30", "-h", "127.0.0.1", "-p", &port])
        .output();
    let Ok(output) = output else {
        missing("memccapable (package libmemcached-tools)");
        return None;
    };
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = |line: &&str| line.contains("[pass]") || line.contains("[FAIL]");
    Some(report.lines().filter(verdict).map(str::to_owned).collect())
}

fn python(arguments: &[&str]) {
    let Some(python) = interpreter() else { return missing("Python with pymemcache and pylibmc") };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.py");
    let output = Command::new(python).arg(script).args(arguments).output().expect("python runs");
    assert!(output.status.success(), "{arguments:?}: {}", words(&output));
}

/// Returns Python in a virtual environment in the target folder, with the clients installed. It is created once, and
/// checked once per process.
fn interpreter() -> Option<&'static PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON
        .get_or_init(|| {
            let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-clients");
            let python = place.join("bin/python");
            let imports = ["-c", "import bmemcached, pymemcache, pylibmc"];
            if succeeds(Command::new(&python).args(imports)) {
                return Some(python);
            }
            let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place))
                && succeeds(
                    Command::new(&python).args(["-m", "pip", "install", "-q"]).args(PACKAGES),
                );
            made.then_some(python)
        })
        .as_ref()
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn words(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    format!("{out}{error}")
}

fn missing(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI needs {what}");
    eprintln!("SKIPPED: this machine has no {what}");
}
