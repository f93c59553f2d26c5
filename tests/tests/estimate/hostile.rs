//! Tests `rebate estimate` against servers that are no memcached, or a broken one: it never crashes or hangs, it says
//! what is wrong, and a user can end it at any time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use rebate_tests::TIMEOUT;
use serde_json::Value;

use super::{command, interrupt, run};

/// The answer to one command.
#[derive(Clone, Copy)]
enum Answer {
    Text(&'static str),
    Endless(&'static str),
    /// No answer.
    Silence,
    /// A part of an answer, and the end of the connection.
    Close(&'static str),
}

/// A server whose answers begin as a good memcached's, with another answer to one command.
struct Fake {
    address: SocketAddr,
    asked: Receiver<()>,
}

impl Fake {
    /// Starts a server that gives `answer` to commands that begin with `bad`.
    fn new(bad: &'static str, answer: Answer) -> Self {
        Self::with(&[(bad, answer)])
    }

    /// Starts a server that gives each answer to the commands that begin with the text before it.
    fn with(answers: &[(&'static str, Answer)]) -> Self {
        let answers: Arc<[_]> = answers.into();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (report, asked) = channel();
        let report = Arc::new(report);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (report, answers) = (Arc::clone(&report), Arc::clone(&answers));
                thread::spawn(move || serve(&stream, &answers, &report));
            }
        });
        Self { address, asked }
    }

    fn estimate(&self) -> Output {
        run(&[&self.address.to_string(), "--seconds", "1", "--json"])
    }
}

fn serve(mut stream: &TcpStream, answers: &[(&str, Answer)], report: &Sender<()>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let is_meant =
            |(to, _): &&(&str, Answer)| line.starts_with(to) && (*to != "stats" || line == *to);
        let found = answers.iter().find(is_meant);
        let answer = found.map_or(Answer::Text(good(&line)), |(_, answer)| *answer);
        if found.is_some() && report.send(()).is_err() {
            return;
        }
        let is_written = match answer {
            Answer::Text(text) => stream.write_all(text.as_bytes()).is_ok(),
            Answer::Endless(text) => {
                let text = text.repeat(1_000);
                while stream.write_all(text.as_bytes()).is_ok() {}
                false
            }
            Answer::Silence => true,
            Answer::Close(text) => {
                let _ = stream.write_all(text.as_bytes());
                false
            }
        };
        if !is_written {
            return;
        }
    }
}

fn good(line: &str) -> &'static str {
    match line.split(' ').next().unwrap_or_default() {
        "version" => "VERSION 1.6.18\r\n",
        "stats" => "STAT curr_items 2\r\nSTAT uptime 5\r\nEND\r\n",
        "lru_crawler" => {
            "key=user%3A1 exp=-1 la=5 cas=2 fetch=no cls=1 size=70\r\n\
             key=user%3A2 exp=-1 la=5 cas=2 fetch=no cls=1 size=70\r\nEND\r\n"
        }
        "mg" => "VA 5 f0\r\nhello\r\n",
        "watch" => "OK\r\n",
        _ => "ERROR\r\n",
    }
}

/// The commands of a run, in their order.
const COMMANDS: [&str; 5] = ["version", "stats", "lru_crawler", "mg", "watch"];

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that a run failed with a message for people.
fn assert_failed(output: &Output, context: &str) {
    let error = error_of(output);
    assert_eq!(output.status.code(), Some(1), "{context}: {error}");
    let has_debug = error.contains(" {") || error.contains("panicked");
    let has_control = error.chars().any(|char| char.is_control() && char != '\n');
    assert!(!error.is_empty() && !has_debug && !has_control, "{context}: {error:?}");
}

#[test]
fn a_good_server_is_estimated() {
    let output = Fake::new("nothing", Answer::Silence).estimate();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn garbage_is_an_error() {
    for garbage in ["\u{1b}[2J\u{1b}]0;title\u{7}\r\n", "VA\r\n", "STAT a 1\r\nVA 7\r\n", "\0\n"] {
        for bad in ["version", "stats", "lru_crawler", "mg"] {
            let output = Fake::new(bad, Answer::Text(garbage)).estimate();
            assert_failed(&output, &format!("{bad} {garbage:?}"));
        }
    }
}

#[test]
fn an_answer_without_an_end_is_an_error() {
    for text in ["STAT a 1\r\n", "no line ends "] {
        let output = Fake::new("stats", Answer::Endless(text)).estimate();
        assert_failed(&output, text);
    }
}

#[test]
fn a_closed_connection_is_an_error() {
    for (bad, part) in [
        ("version", "VERS"),
        ("stats", "STAT curr_items 2\r\nSTA"),
        ("mg", "VA 100 f0\r\nhello"),
        ("lru_crawler", "key=a exp=-1"),
    ] {
        let output = Fake::new(bad, Answer::Close(part)).estimate();
        assert_failed(&output, bad);
        assert!(error_of(&output).contains("closed the connection"), "{}", error_of(&output));
    }
}

#[test]
fn a_value_of_another_length_is_an_error() {
    for value in ["VA 5 f0\r\nhello world\r\n", "VA 5 f0\r\nhi\r\nVA 5 f0\r\nhi\r\n"] {
        let output = Fake::new("mg", Answer::Text(value)).estimate();
        assert_failed(&output, value);
        assert!(error_of(&output).contains("another length"), "{}", error_of(&output));
    }
    for length in ["18446744073709551615", "67108865"] {
        let value: &'static str = format!("VA {length} f0\r\nhello\r\n").leak();
        assert_failed(&Fake::new("mg", Answer::Text(value)).estimate(), value);
    }
}

#[test]
fn absurd_numbers_end_no_run() {
    for text in [
        "STAT curr_items 18446744073709551615\r\nSTAT limit_maxbytes 18446744073709551615\r\n\
         STAT uptime 0\r\nSTAT get_hits 18446744073709551615\r\nSTAT cmd_get 1\r\nEND\r\n",
        "STAT curr_items -5\r\nSTAT uptime -1\r\nSTAT time 99999999999999999999\r\nEND\r\n",
        "STAT chunk_size 18446744073709551615\r\nSTAT growth_factor 0.0\r\nEND\r\n",
    ] {
        for bad in ["stats", "stats settings", "stats slabs"] {
            let output = Fake::new(bad, Answer::Text(text)).estimate();
            assert!(output.status.success(), "{bad} {text:?}: {output:?}");
        }
    }
}

#[test]
fn an_interrupt_ends_every_wait() {
    for bad in COMMANDS {
        let fake = Fake::new(bad, Answer::Silence);
        let address = fake.address.to_string();
        let child = command(&[&address, "--seconds", "10m", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        fake.asked.recv_timeout(TIMEOUT).expect("the command is sent");
        let start = Instant::now();
        interrupt(&child);
        let output = child.wait_with_output().expect("an end");
        assert!(start.elapsed().as_secs() < 5, "{bad}: {:?}", start.elapsed());
        let has_values = bad == "watch";
        assert_eq!(output.status.success(), has_values, "{bad}: {output:?}");
    }
}

/// The answers of a memcached before 1.4.31: no crawler that lists items, no meta commands, no `watch`.
const OLD: [(&str, Answer); 7] = [
    ("version", Answer::Text("VERSION 1.4.5\r\n")),
    ("lru_crawler", Answer::Text("ERROR\r\n")),
    ("mg", Answer::Text("ERROR\r\n")),
    ("watch", Answer::Text("ERROR\r\n")),
    ("stats items", Answer::Text("STAT items:1:number 2\r\nEND\r\n")),
    ("stats cachedump", Answer::Text("ITEM a:1 [5 b; 0 s]\r\nITEM a:2 [5 b; 9 s]\r\nEND\r\n")),
    ("get", Answer::Text("VALUE a:1 0 5\r\nhello\r\nEND\r\n")),
];

#[test]
fn an_old_server_is_read_in_older_ways() {
    let output = Fake::with(&OLD).estimate();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["source"]["values_read"], 2);
}

#[test]
fn one_item_is_enough() {
    let item = "key=a exp=-1 la=5 cas=2 fetch=no cls=1 size=70\r\nEND\r\n";
    let output = Fake::new("lru_crawler", Answer::Text(item)).estimate();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["source"]["values_read"], 1);
    assert!(found["total"]["compress_us"]["value"].as_f64().is_some_and(f64::is_finite));
}

#[test]
fn items_that_are_gone_are_an_error() {
    let output = Fake::new("mg", Answer::Text("EN\r\n")).estimate();
    assert_failed(&output, "all expired");
    assert!(error_of(&output).contains("no sampled value"), "{}", error_of(&output));
}

#[test]
fn a_list_of_impossible_items_is_an_error() {
    let key = "k".repeat(300);
    for line in [
        format!("key={key} exp=-1 la=5 cas=2 fetch=no cls=1 size=70\r\n"),
        "key=a exp=-1 la=5 cas=2 fetch=no cls=1 size=99999999999\r\n".to_owned(),
        "key=%zz exp=-1 la=5 cas=2 fetch=no cls=1 size=70\r\n".to_owned(),
    ] {
        let line: &'static str = line.leak();
        assert_failed(&Fake::new("lru_crawler", Answer::Endless(line)).estimate(), line);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let address = Fake::new("nothing", Answer::Silence).address.to_string();
    for form in [&["--json"][..], &[]] {
        let arguments = [&[address.as_str(), "--seconds", "1"], form].concat();
        let mut child = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an end");
        assert!(output.status.code().is_some(), "{output:?}");
        assert!(!error_of(&output).contains("panicked"), "{}", error_of(&output));
    }
}
