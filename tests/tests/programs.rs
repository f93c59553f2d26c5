//! Tests the example service of traces as an operator uses it. The tests start, call and end it, and check that
//! nonsense is refused. The tests of `server` cover devices and hostile callers.

use std::process::{Command, Output};

use rebate_tests::{Authority, Port, Process, TIMEOUT, rebate_binary, rebate_command};
use rustix::process::Signal;

fn rebate(args: &[&str]) -> Output {
    Command::new(rebate_binary()).args(args).output().expect("it runs")
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The callers, by the subjects of their certificates.
const RULES: &str = r#"
[roles.caller]
commands = ["programs-service"]
tenant = 7
[[certificates]]
name = "CN=seven"
role = "caller"
"#;

#[test]
fn it_is_started_called_and_ended() {
    let authority = Authority::new();
    for name in ["seven", "eight"] {
        authority.sign(name, 2100);
    }
    std::fs::write(authority.path("access.toml"), RULES).expect("it is written");
    let port = Port::free().expect("a free port");
    let listen = format!("tls://{}", port.address());
    let mut command = rebate_command();
    command.args(["serve", "--role", "programs", "--program-listen", &listen]);
    command.args(authority.server_flags()).args(authority.client_auth_flags("require"));
    command.arg("--access-file").arg(authority.path("access.toml"));
    let mut server = Process::start(&mut command).expect("it starts");
    let address = server
        .await_ready(TIMEOUT, "line `programs on ADDR`", |server| server.printed("programs on "))
        .expect("it serves");
    assert_eq!(address, listen);
    let call = |function: &str, json: &str, more: &[&str]| {
        let ours = ["trace", "call", "--within", "30s", &address, function, json];
        said(&rebate(&[&ours[..], more].concat()))
    };
    let ca = authority.text("ca.pem");
    let certificate = |name: &str| {
        let file = |end: &str| authority.text(&format!("{name}.{end}"));
        (file("pem"), file("key"))
    };
    let (seven, eight) = (certificate("seven"), certificate("eight"));
    let ours = ["--tls-ca", &ca, "--tls-cert", &seven.0, "--tls-key", &seven.1];
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
    let (code, _, problem) = call("echo", "{}", &[]);
    assert!(code == Some(2) && problem.contains("--tls-ca"), "{problem}");
    let others = ["--tls-ca", &ca, "--tls-cert", &eight.0, "--tls-key", &eight.1];
    for nobody in [&others[..], &["--tls-ca", &ca]] {
        let (code, _, problem) = call("echo", "{}", nobody);
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
    let certificate = ["--set", "tls.cert_file=/cert"];
    for (more, said_so) in [
        (&["--program-listen", "127.0.0.1:0"][..], "write tls://127.0.0.1:0"),
        (&["--program-listen", "tls://127.0.0.1:0"], "tls.cert_file: is unset"),
        (&["--role", "programs"], "no client could connect"),
        (
            &["--role", "frontend", "--program-listen", ":0"],
            "programs.listen: \":0\" is not valid; give a list of HOST:PORT",
        ),
        (
            &["--program-secrets", "secrets"],
            "programs.secrets_file is no longer a key: callers of programs are known by their \
             certificates",
        ),
        (&["--set", "programs.live_max=0"], "give a whole number from 1 to"),
    ] {
        let (code, _, problem) = said(&rebate(&[&["serve", "--check-config"], more].concat()));
        assert!(code == Some(2) && problem.contains(said_so), "{more:?}: {code:?}: {problem}");
    }
    let listen = ["--role", "programs", "--program-listen", "tls://127.0.0.1:0"];
    let (code, ..) =
        said(&rebate(&[&["serve", "--check-config"], &certificate[..], &listen].concat()));
    assert_eq!(code, Some(0));
    let (code, _, problem) = said(&rebate(&["trace", "call", "127.0.0.1:1", "echo", "{}"]));
    assert!(code == Some(2) && problem.contains("give tls://127.0.0.1:1"), "{problem}");
}
