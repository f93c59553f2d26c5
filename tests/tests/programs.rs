//! Tests the example service of traces as an operator uses it. The tests start, call and end it, and check that
//! nonsense is refused. The tests of `server` cover devices and hostile callers.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use rebate_tests::Process;
use rebate_tests::{Port, TIMEOUT, rebate_binary, rebate_command};
use rustix::process::Signal;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("it is written");
        path
    }
}

fn rebate(args: &[&str]) -> Output {
    Command::new(rebate_binary()).args(args).output().expect("it runs")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn it_is_started_called_and_ended() {
    let folder = Folder::new();
    let secrets = folder.file("secrets", "7 a secret of tenant seven\n");
    let secrets = secrets.to_str().expect("UTF-8");
    let others = folder.file("others", "7 another secret of seven\n8 a secret of eight's\n");
    let others = others.to_str().expect("UTF-8");
    let port = Port::free().expect("a free port");
    let listen = port.address().to_string();
    let serve = ["serve", "--role", "programs", "--program-listen", &listen];
    let secrets_of_all = ["--program-secrets", secrets];
    let mut server =
        Process::start(rebate_command().args(serve).args(secrets_of_all)).expect("it starts");
    let address = server
        .await_ready(TIMEOUT, "line `programs on ADDR`", |server| server.printed("programs on "))
        .expect("it serves");
    let call = |function: &str, json: &str, more: &[&str]| {
        let ours = ["trace", "call", "--within", "30s", &address, function, json];
        said(&rebate(&[&ours[..], more].concat()))
    };
    let ours = ["--secrets", secrets, "--tenant", "7"];
    let json = format!("{{\"text\":\"{}\"}}", "hello ".repeat(1_000));
    for more in [&[][..], &["--compress"]] {
        let answer = call("echo", &json, &[&ours, more].concat());
        assert_eq!(answer, (Some(0), format!("{json}\n"), String::new()));
    }
    let (code, answer, _) = call("other", "{}", &ours);
    assert!(code == Some(0) && answer.contains("no function is called"), "{answer}");
    // `rebate` reports the caller's own faults. If the service cannot read a message, it closes without an answer.
    let (code, _, problem) = call("echo", "{", &ours);
    assert!(code == Some(2) && problem.contains("not JSON"), "{problem}");
    let (code, _, problem) = call("echo", "{}", &["--secrets", secrets, "--tenant", "8"]);
    assert!(code == Some(2) && problem.contains("tenant 8 has no secret"), "{problem}");
    for tenant in ["7", "8"] {
        let (code, _, problem) = call("echo", "{}", &["--secrets", others, "--tenant", tenant]);
        assert!(code == Some(1) && problem.contains(&address), "{problem}");
    }
    server.signal(Signal::TERM);
    let ended = server.wait_exit(TIMEOUT).expect("it ends");
    assert!(ended.success(), "{}", server.output());
    let (code, _, problem) = call("echo", "{}", &ours);
    assert!(code == Some(1) && problem.contains("refused"), "{problem}");
}

#[test]
fn what_cannot_be_served_is_refused_before_it_starts() {
    let folder = Folder::new();
    let short = folder.file("short", "# ours\n7 too short\n");
    let short = short.to_str().expect("UTF-8");
    let listen = ["--program-listen", "127.0.0.1:0"];
    for (more, said_so) in [
        (&listen[..], "programs.secrets_file: is unset"),
        (&["--role", "programs"], "no client could connect"),
        (
            &["--role", "frontend", "--program-listen", ":0", "--program-secrets", short],
            "programs.listen: \":0\" is not valid; give a list of HOST:PORT",
        ),
        (
            &["--program-listen", "127.0.0.1:0", "--program-secrets", short],
            "short:2: a secret of 9 bytes; give 16 and more",
        ),
        (&["--set", "programs.live_max=0"], "give a whole number from 1 to"),
    ] {
        let (code, _, problem) = said(&rebate(&[&["serve", "--check-config"], more].concat()));
        assert!(code == Some(2) && problem.contains(said_so), "{more:?}: {code:?}: {problem}");
    }
}
