//! Tests the built binary under a supervisor as systemd is one: it passes on listening sockets and is told what the
//! process does.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rebate_tests::{Client, Process, Server, TIMEOUT, rebate_binary};
use rustix::process::Signal;

/// Returns a command of `rebate` that gets the socket of its standard error as the supervisor's only one, and writes
/// its messages to its standard output.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = r#"exec 3<&2 2>&1; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@""#;
    command.args(["-c", script]).arg(rebate_binary()).args(args);
    command
}

fn passed_on(socket: &impl AsFd) -> Stdio {
    let copy: OwnedFd = socket.as_fd().try_clone_to_owned().expect("a copy");
    Stdio::from(copy)
}

fn tcp() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

fn start(socket: &impl AsFd, address: SocketAddr) -> Server {
    let address = address.to_string();
    Server::rebate_with(&mut command(&["serve", "--listen", &address]), passed_on(socket))
}

/// Starts a server that refuses `socket`, and returns its messages.
fn refused(socket: &impl AsFd) -> String {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0"]);
    let output = command.stderr(passed_on(socket)).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn clients_wait_while_a_process_is_replaced() {
    let (socket, address) = tcp();
    let mut first = start(&socket, address);
    assert_eq!(first.addr(), address);
    assert_eq!(first.client().set("key", b"value").as_deref(), Ok("STORED"));
    first.signal(Signal::TERM);
    assert!(first.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let mut waiting = Client::connect(address).expect("nobody is refused");
    waiting.send(b"version\r\n").expect("sent");
    let _second = start(&socket, address);
    assert!(waiting.read_line().is_some_and(|line| line.starts_with("VERSION")));
}

#[test]
fn a_unix_socket_of_the_supervisor_stays() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("socket");
    let socket = UnixListener::bind(&path).expect("a free path");
    let mut command = command(&["serve", "--unix-socket", path.to_str().expect("UTF-8")]);
    let mut process = Process::start_with(&mut command, passed_on(&socket)).expect("it starts");
    process.await_printed(&format!("listening on unix:{}", path.display())).expect("it serves");
    assert!(UnixStream::connect(&path).is_ok());
    process.signal(Signal::TERM);
    assert!(process.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    assert!(path.exists(), "the supervisor's socket was removed");
}

#[test]
fn a_socket_that_no_key_names_is_refused() {
    let (socket, address) = tcp();
    let errors = refused(&socket);
    assert!(errors.contains(&address.to_string()), "{errors}");
}

#[test]
fn what_does_not_listen_is_refused() {
    let (file, (connected, _other)) = (tempfile::tempfile(), UnixStream::pair().expect("two"));
    let errors = refused(&file.expect("a file"));
    assert!(errors.contains("socket 1 of 1 from the supervisor is of another kind"), "{errors}");
    let errors = refused(&connected);
    assert!(errors.contains("socket 1 of 1 from the supervisor does not listen"), "{errors}");
}

/// The supervisor's end of what a process tells it.
struct Told(UnixDatagram);

impl Told {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a free path");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        Self(socket)
    }

    /// Waits for a message that contains `text`.
    fn wait(&self, text: &str) -> String {
        let begun = Instant::now();
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while begun.elapsed() < TIMEOUT {
            let Ok(length) = self.0.recv(&mut buffer) else { break };
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if message.contains(text) {
                return message;
            }
            seen.push(message);
        }
        panic!("no {text} among {seen:?}");
    }
}

#[test]
fn a_supervisor_is_told_what_the_process_does() {
    let folder = tempfile::tempdir().expect("a directory");
    let (path, file) = (folder.path().join("notify"), folder.path().join("rebate.toml"));
    fs::write(&file, "[server]\nlisten = [\"127.0.0.1:0\"]\n").expect("written");
    let told = Told::at(&path);
    let mut command = rebate_tests::rebate_command();
    command.args(["serve", "--config", file.to_str().expect("UTF-8")]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut server = Server::rebate_with(&mut command, Stdio::piped());
    let status = format!("STATUS=serving on {}", server.addr());
    assert!(told.wait("READY=1").contains(&status));
    told.wait("WATCHDOG=1");
    told.wait("WATCHDOG=1");
    fs::write(&file, "[server]\nlisten = [\"127.0.0.1:0\"]\nconnections_max = 1\nbad = 1\n")
        .expect("written");
    server.signal(Signal::HUP);
    assert!(told.wait("RELOADING=1").contains("MONOTONIC_USEC="));
    assert!(told.wait("READY=1").contains("STATUS=not reloaded: "));
    server.signal(Signal::TERM);
    assert!(told.wait("STOPPING=1").contains("EXTEND_TIMEOUT_USEC="));
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
}
