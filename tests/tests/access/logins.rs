//! Tests logins of memcached's text protocol against memcached, and with arbitrary bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use rebate_tests::Server;
use units::Prng;

use super::Text;

#[test]
fn logins_are_answered_as_in_memcached() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "alice:secret\na:b:c\nu1:p\nu2:p\nu3:p\nu4:p\nu5:p\nu6:p\nu7:p\n")
        .expect("a file");
    let file = file.to_str().expect("text");
    let servers = [Server::memcached(&["-Y", file]), Server::rebate_memcached(&["-Y", file])];
    for steps in login_steps() {
        let [theirs, ours] = thread::scope(|scope| {
            let started = [&servers[0], &servers[1]]
                .map(|server| scope.spawn(|| conversation(server, &steps)));
            started.map(|thread| thread.join().expect("a conversation"))
        });
        let shown: Vec<_> = steps
            .iter()
            .map(|step| step[..step.len().min(60)].escape_ascii().to_string())
            .collect();
        assert_eq!(ours, theirs, "{shown:?}");
    }
}

/// Sends each step and reads all that comes within a short time. The end of the connection is a word.
fn conversation(server: &Server, steps: &[Vec<u8>]) -> Vec<String> {
    let mut stream = TcpStream::connect(server.addr()).expect("it accepts");
    stream.set_nodelay(true).expect("no delay");
    let mut answers = Vec::new();
    for step in steps {
        let _closed = stream.write_all(step);
        let mut answer = Vec::new();
        let mut some = [0; 65_536];
        // An answer comes at once. The pause after it shows that there is no more.
        stream.set_read_timeout(Some(Duration::from_millis(60))).expect("a timeout");
        loop {
            match stream.read(&mut some) {
                Ok(0) => break answer.extend_from_slice(b"(end)"),
                Ok(count) => answer.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    break answer.extend_from_slice(b"(end)");
                }
                Err(_) => break,
            }
        }
        answers.push(String::from_utf8_lossy(&answer).into_owned());
    }
    answers
}

fn login_steps() -> Vec<Vec<Vec<u8>>> {
    let login = |value: &str| format!("set x 0 0 {}\r\n{value}\r\n", value.len()).into_bytes();
    let get = b"get a\r\n".to_vec();
    let mut steps: Vec<Vec<Vec<u8>>> = Vec::new();
    for line in [
        "get a",
        "gets a b",
        "gat 1 a",
        "delete a",
        "incr a 1",
        "touch a 1",
        "version",
        "quit",
        "mn",
        "mg a v",
        "me a",
        "md a",
        "ma a",
        "flush_all",
        "stats",
        "verbosity 1",
        "watch",
        "shutdown",
        "lru_crawler metadump all",
        "bogus",
        "",
        "get",
        "set",
        "set x",
        "set x 0 0 abc",
        "set x 0 0 -1",
        "set x 0 0 \t",
        "SET x 0 0 1",
    ] {
        steps.push(vec![format!("{line}\r\n").into_bytes(), get.clone()]);
    }
    for verb in ["add", "replace", "append", "prepend", "cas", "ms"] {
        steps.push(vec![format!("{verb} x 0 0 12\r\nalice secret\r\n").into_bytes(), get.clone()]);
    }
    for value in [
        "alice secret",
        "alice wrong",
        "alicesecret",
        "alice secret more",
        " alice  secret ",
        "alice\tsecret",
        "a b:c",
        "u6 p",
        "u7 p",
        "u1 p",
        "",
        "a",
        "alice ",
        "alice secret\0x",
        "alice\0secret",
        "nobody x",
        "alice secret\r",
    ] {
        steps.push(vec![login(value), get.clone(), login("alice secret"), b"get x\r\n".to_vec()]);
    }
    for head in [
        "set x 0 0 12 noreply",
        " set  x  a  b  12",
        "set x 0 0 +12",
        "set x 0 0 012",
        "set x 0 0 12\t",
        "set x 0 0 12x",
        "set x 0 0 12 more words and more",
        "set x 0 0 12\0 junk",
        "set x 0 0 0x0c",
    ] {
        steps.push(vec![format!("{head}\r\nalice secret\r\n").into_bytes(), get.clone()]);
    }
    steps.push(vec![
        format!("set {} 0 0 12\r\nalice secret\r\n", "k".repeat(300)).into_bytes(),
        get.clone(),
    ]);
    steps.push(vec![b"set x 0 0 12\nalice secret\r\n".to_vec(), get.clone()]);
    steps.push(vec![b"set x 0 0 12\r\nalice secretXX\r\n".to_vec(), get.clone()]);
    steps.push(vec![b"set x 0 0 12\r\nalice se".to_vec(), b"cret\r\n".to_vec(), get.clone()]);
    for count in [2, 20, 21, 22, 41, 42, 61, 62] {
        steps.push(vec![get.repeat(count)]);
    }
    steps.push(vec![[login("alice wrong"), login("alice secret"), get.clone()].concat()]);
    steps.push(vec![[get.repeat(3), login("alice secret"), get.repeat(2)].concat()]);
    for bytes in [2_047, 2_048, 2_049, 5_000] {
        steps.push(vec!["x".repeat(bytes).into_bytes()]);
    }
    for bytes in [2_048, 16_000, 16_382] {
        steps.push(vec![login(&"y".repeat(bytes)), get.clone()]);
    }
    steps.push(vec![b"\n".to_vec(), b"g\n".to_vec()]);
    steps
}

#[test]
fn any_bytes_leave_a_login_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokens");
    std::fs::write(&file, "alice:secret\n").expect("a file");
    let mut server = Server::rebate_memcached(&["-Y", file.to_str().expect("text")]);
    let mut random = Prng::new(7);
    let words = [
        "set",
        "x",
        "0",
        "12",
        "alice",
        "secre",
        "\r\n",
        "\n",
        " ",
        "\0",
        "-1",
        "noreply",
        "get a\r\n",
        "\u{80}",
        "16382",
    ];
    for round in 0..300 {
        let length = random.below(12) + 1;
        let sent: String = (0..length)
            .map(|_| {
                words[random.below(words.len() as u64) as usize].to_owned()
                    + [" ", ""][random.below(2) as usize]
            })
            .collect();
        let mut text = Text::connect(server.addr());
        let _closed = text.0.write_all(sent.as_bytes());
        text.0.shutdown(Shutdown::Write).expect("the end");
        let mut answer = Vec::new();
        let _reset = text.0.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let is_closed =
            answer.split_terminator("\r\n").all(|line| line.starts_with("CLIENT_ERROR "));
        assert!(is_closed, "round {round}: {sent:?}: {answer}");
    }
    assert!(server.exited().is_none());
    assert_eq!(Text::connect(server.addr()).log_in("alice", "secret"), "STORED\r\n");
}
