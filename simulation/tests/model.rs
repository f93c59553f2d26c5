//! Compares the model of memcached with the real one: the same commands get the same bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use simulation::memcached::{Memcached, Step};
use units::Prng;

/// Draws a command on few keys, with whatever flags a ring sends.
fn draw(random: &mut Prng) -> Vec<u8> {
    let plain = format!("key:{}", random.below(4));
    // Whether a count keeps the mark of a stale item depends on background threads, so counts have keys without it.
    let counter = format!("num:{}", random.below(3));
    let key = if random.below(3) == 0 { &counter } else { &plain };
    let other = format!("key:{}", random.below(4));
    let value = match random.below(4) {
        0 => random.below(200).to_string(),
        1 => String::new(),
        _ => "v".repeat(1 + random.below(40) as usize),
    };
    let bytes = value.len();
    let flags = random.below(1_000);
    // Long enough that nothing expires during the test.
    let exptime = [0, 5_000, 8_000][random.below(3) as usize];
    let cas = if random.below(8) == 0 { 0 } else { 1 + random.below(60) };
    let number = random.below(1_000);
    let store = |verb: &str| format!("{verb} {key} {flags} {exptime} {bytes}\r\n{value}\r\n");
    // Whether memcached pads a number that gets shorter depends on its background threads, so none does here.
    let tail = "t".repeat(random.below(20) as usize);
    let extend =
        |verb: &str| format!("{verb} {key} {flags} {exptime} {}\r\n{tail}\r\n", tail.len());
    let mode = ["", " MS", " ME", " MR"][random.below(4) as usize];
    let compare = if random.below(3) == 0 { format!(" C{cas}") } else { String::new() };
    let soon = [1, 6_000, 9_000][random.below(3) as usize];
    let line = match random.below(29) {
        0..3 => store("set"),
        3 => store("add"),
        4 => store("replace"),
        5 => extend("append"),
        6 => extend("prepend"),
        7 => format!("cas {key} {flags} {exptime} {bytes} {cas}\r\n{value}\r\n"),
        8 => format!("get {key} {other}\r\n"),
        9 => format!("gets {key} {other}\r\n"),
        10 => format!("gat {exptime} {key}\r\n"),
        11 => format!("gats {exptime} {key} {other}\r\n"),
        12 => format!("delete {key}\r\n"),
        13 => format!("touch {key} {exptime}\r\n"),
        14 => format!("incr {counter} {number}\r\n"),
        15 => format!("decr {counter} 0\r\n"),
        16 => format!("mg {key} v f c t\r\n"),
        17 => format!("mg {key} s k O7 v c\r\n"),
        18 => format!("mg {key} T{exptime} t\r\n"),
        19 => format!("ms {key} {bytes} c F{flags} T{exptime}{compare}{mode}\r\n{value}\r\n"),
        20 => format!("md {key} q{compare}\r\nmn\r\n"),
        21 => format!("md {plain}{compare} I T{exptime}\r\n"),
        22 => format!("ma {counter} v MI D{number} J{number} N{exptime} t c\r\n"),
        23 => format!("ma {counter} v MD D0{compare}\r\n"),
        24 => format!("ms {key} {} c MA{compare}\r\n{tail}\r\n", tail.len()),
        25 => format!("ms {key} {} c MP{compare}\r\n{tail}\r\n", tail.len()),
        26 => format!("mg {plain} v f c t N{exptime}\r\n"),
        27 => format!("mg {plain} v f c t R{soon}\r\n"),
        _ => format!("mg {plain} s t N{exptime} R{soon}\r\n"),
    };
    line.into_bytes()
}

#[test]
fn the_model_answers_as_memcached_does() {
    let Some(()) = harness::needs_memcached("1.6.18") else { return };
    let (mut process, port) =
        harness::memcached(None, None, Stdio::inherit(), &[]).expect("it starts");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let mut model = Memcached::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date").as_secs();
    model.set_time(now as i64);
    let random = &mut Prng::new(22);
    let (mut asked, mut wrong) = (Vec::new(), Vec::new());
    for round in 0..4_000 {
        let command = draw(random);
        asked.push(String::from_utf8_lossy(&command).into_owned());
        let mut expected = Vec::new();
        let mut taken = 0;
        while taken < command.len() {
            match model.step(&command[taken..], &mut expected) {
                Step::Served(bytes) => taken += bytes,
                other => panic!("{command:?}: {other:?}"),
            }
        }
        // The answer ends where that to the next command begins.
        let answer = ask(&mut stream, &command);
        let (answer, expected) = (without_times(&answer), without_times(&expected));
        if answer != expected {
            let last = &asked[asked.len().max(6) - 6..];
            wrong.push(format!("{round}: {answer:?}, not {expected:?}, after {last:?}"));
        }
    }
    let first = &wrong[..wrong.len().min(9)];
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", wrong.len(), first.join("\n"));
    process.kill();
}

/// Sends a command, and returns the bytes of its answer.
fn ask(stream: &mut TcpStream, command: &[u8]) -> Vec<u8> {
    stream.write_all(&[command, END].concat()).expect("it reads");
    let mut answer = Vec::new();
    let mut space = [0; 4_096];
    while !answer.ends_with(b"MN\r\nVERSION 1.6.18\r\n") {
        let bytes = stream
            .read(&mut space)
            .unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&answer)));
        assert!(bytes > 0, "it has closed the connection");
        answer.extend_from_slice(&space[..bytes]);
    }
    answer.truncate(answer.len() - b"MN\r\nVERSION 1.6.18\r\n".len());
    answer
}

/// Commands whose answers no other command has.
const END: &[u8] = b"mn\r\nversion\r\n";

/// Returns a text without the time that is left, which depends on when a second begins.
fn without_times(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let is_time = |word: &str| {
        word.strip_prefix('t').is_some_and(|rest| rest.parse::<i64>().is_ok_and(|left| left > 0))
    };
    // The last flag of an answer ends with its line, and a value may follow.
    text.split_inclusive([' ', '\n']).filter(|word| !is_time(word.trim_end())).collect()
}
