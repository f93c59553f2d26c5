//! Tests that the embedded store answers as memcached does. The same random meta commands go to
//! both, and their answers must be equal, including versions. Without memcached the test fails in
//! CI and reports a skip elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use harness::Process;
use store::Embedded;
use store::embedded::{
    Counted, Delta, Fetch, Mode, NewItem, Options, Removal, Step, Stored, expiry,
};
use units::{ByteCount, Prng};

const COMMANDS: usize = 20_000;

/// The constant time of the store's clock. Expiry times are so far apart that the progress of
/// memcached's clock does not matter.
const NOW_S: u32 = 1_000;
const TTL_TOLERANCE_S: i64 = 60;

#[test]
fn meta_commands_are_answered_as_memcached_answers_them() {
    let Some(mut memcached) = Memcached::start() else { return };
    let ours = Embedded::new(Options { limit: ByteCount::mib(64), evict: true, seed: 1 });
    let mut prng = Prng::new(0x6d63);
    let mut history = Vec::new();
    for _ in 0..COMMANDS {
        let (command, expected) = Turn { ours: &ours, prng: &mut prng }.any();
        let answer = memcached.ask(&command);
        history.push(format!("{command:?} -> {answer:?}"));
        let recent = &history[history.len().saturating_sub(40)..];
        assert!(alike(&answer, &expected), "expected {expected:?}:\n{}", recent.join("\n"));
    }
}

/// Returns whether two answers are equal except for a few seconds of remaining time. An item that
/// expired long ago has a negative time, written as an unsigned number.
fn alike(answer: &str, expected: &str) -> bool {
    let (one, other) = (answer.split([' ', '\n']), expected.split([' ', '\n']));
    let ttl = |word: &str| {
        let number = word.strip_prefix('t').and_then(|number| number.parse::<i64>().ok());
        number.map(|number| if number > i64::from(i32::MAX) { -1000 } else { number })
    };
    answer.split([' ', '\n']).count() == expected.split([' ', '\n']).count()
        && one.zip(other).all(|(one, other)| match (ttl(one), ttl(other)) {
            (Some(one), Some(other)) => (one - other).abs() < TTL_TOLERANCE_S,
            _ => one == other,
        })
}

/// One random command. Each method returns the command's text for memcached and the expected
/// answer, which is made from the store's result.
struct Turn<'a> {
    ours: &'a Embedded,
    prng: &'a mut Prng,
}

impl Turn<'_> {
    fn any(mut self) -> (String, String) {
        let key = format!("k{}", self.prng.below(5));
        match self.prng.below(20) {
            0..8 => self.get(&key),
            8..12 => self.set(&key),
            12..14 => self.delete(&key),
            14..18 => self.count(&key),
            18 => self.touch(&key),
            _ => self.flush(),
        }
    }

    fn chance(&mut self, of_ten: u64) -> bool {
        self.prng.below(10) < of_ten
    }

    fn exptime(&mut self) -> (i64, u32) {
        let exptime = [0, -1, 1000, 2000, 3000][self.prng.below(5) as usize];
        (exptime, expiry(exptime, NOW_S, 1))
    }

    /// Draws some steps in a random order.
    fn steps(&mut self, letters: &str) -> (String, Vec<Step>) {
        let mut letters: Vec<char> = letters.chars().filter(|_| self.chance(4)).collect();
        for i in (1..letters.len()).rev() {
            letters.swap(i, self.prng.below(i as u64 + 1) as usize);
        }
        let mut text = String::new();
        let steps = letters.into_iter().map(|letter| {
            let (exptime, at_s) = self.exptime();
            let (exptime, at_s) =
                if letter == 'R' { (1500, NOW_S + 1500) } else { (exptime, at_s) };
            match letter {
                't' => text += " t",
                letter => text += &format!(" {letter}{exptime}"),
            }
            match letter {
                'T' => Step::Touch(at_s),
                'N' => Step::Vivify(at_s),
                'R' => Step::Recache(at_s),
                _ => Step::Ttl,
            }
        });
        let steps = steps.collect();
        (text, steps)
    }

    fn get(&mut self, key: &str) -> (String, String) {
        let (text, steps) = self.steps("TNRt");
        let bump = self.chance(7);
        let command = format!("mg {key} v c f h{text}{}\r\n", if bump { "" } else { " u" });
        let fetch = Fetch { bump, meta: true, steps: &steps };
        let Some(found) = self.ours.fetch(key.as_bytes(), &fetch, NOW_S) else {
            return (command, "EN".into());
        };
        let mut answer = format!("VA {} c{} f{}", found.value.len(), found.cas, found.flags);
        answer += if found.hit_before { " h1" } else { " h0" };
        answer += &ttl(&steps, found.exptime_s);
        for (flag, is_on) in [(" Z", found.token_sent), (" X", found.stale), (" W", found.won)] {
            answer += if is_on { flag } else { "" };
        }
        let value = String::from_utf8_lossy(&found.value);
        (command, format!("{answer}\n{value}"))
    }

    /// Draws a version that may be the item's current version.
    fn version(&mut self, key: &str) -> u64 {
        let found = self.ours.fetch(key.as_bytes(), &Fetch::PEEK, NOW_S);
        let right = found.map_or(1, |item| item.cas);
        (right + [0, 0, 1, right][self.prng.below(4) as usize]).saturating_sub(self.prng.below(2))
    }

    fn set(&mut self, key: &str) -> (String, String) {
        let value =
            ["5", "99", "x", "", "12 ", "18446744073709551615"][self.prng.below(6) as usize];
        let (exptime, exptime_s) = self.exptime();
        let flags = self.prng.below(3) as u32;
        let mut command = format!("ms {key} {} c T{exptime} F{flags}", value.len());
        let (letter, mut mode) =
            [('S', Mode::Set), ('E', Mode::Add), ('R', Mode::Replace)][self.prng.below(3) as usize];
        command += &format!(" M{letter}");
        if self.chance(3) {
            let (cas, stale_if_older) = (self.version(key), self.chance(5));
            command += &format!(" C{cas}{}", if stale_if_older { " I" } else { "" });
            if mode != Mode::Add {
                mode = Mode::Compare { cas, stale_if_older };
            }
        }
        command += &format!("\r\n{value}\r\n");
        let item = NewItem { value: value.as_bytes(), flags, exptime_s, key_is_binary: false };
        let answer = match self.ours.store(key.as_bytes(), item, mode, NOW_S).expect("room") {
            Stored::Stored { cas } => format!("HD c{cas}"),
            Stored::NotStored => "NS c0".into(),
            Stored::Exists => "EX c0".into(),
            Stored::NotFound => "NF c0".into(),
        };
        (command, answer)
    }

    fn delete(&mut self, key: &str) -> (String, String) {
        let mut command = format!("md {key}");
        let compare = self.chance(5).then(|| self.version(key));
        if let Some(cas) = compare {
            command += &format!(" C{cas}");
        }
        let removal = if self.chance(5) {
            command += " I";
            let exptime = self.chance(5).then(|| self.exptime());
            if let Some((exptime, _)) = exptime {
                command += &format!(" T{exptime}");
            }
            let exptime_s = exptime.map(|(_, exptime_s)| exptime_s);
            self.ours.invalidate(key.as_bytes(), compare, exptime_s, NOW_S)
        } else {
            self.ours.delete(key.as_bytes(), compare, NOW_S)
        };
        let answer = match removal {
            Removal::Done => "HD",
            Removal::NotFound => "NF",
            Removal::Exists => "EX",
        };
        (command + "\r\n", answer.into())
    }

    fn count(&mut self, key: &str) -> (String, String) {
        let increment = self.chance(5);
        // memcached loses a T if the number of digits grows, because it sets the time on the item
        // that it has just replaced.
        let (text, steps) = self.steps(if increment { "Nt" } else { "NTt" });
        let (by, initial) = (self.prng.below(15), self.prng.below(200));
        let compare = if self.chance(2) { self.version(key) } else { 0 };
        let mode = if increment { 'I' } else { 'D' };
        let command = format!("ma {key} v c M{mode} D{by} J{initial} C{compare}{text}\r\n");
        let delta = Delta { increment, by, compare, initial, steps: &steps };
        let answer = match self.ours.arithmetic(key.as_bytes(), &delta, NOW_S).expect("room") {
            Counted::Done { number, cas, exptime_s, .. } => {
                let bytes = number.to_string().len();
                format!("VA {bytes} c{cas}{}\n{number}", ttl(&steps, exptime_s))
            }
            Counted::NotFound => "NF".into(),
            Counted::Exists => "EX".into(),
            Counted::NotANumber => {
                "CLIENT_ERROR cannot increment or decrement non-numeric value".into()
            }
        };
        (command, answer)
    }

    fn touch(&mut self, key: &str) -> (String, String) {
        let (exptime, exptime_s) = self.exptime();
        let touched = self.ours.touch(key.as_bytes(), exptime_s, NOW_S);
        let answer = if touched { "TOUCHED" } else { "NOT_FOUND" };
        (format!("touch {key} {exptime}\r\n"), answer.into())
    }

    fn flush(&mut self) -> (String, String) {
        self.ours.flush_all(NOW_S, NOW_S);
        ("flush_all\r\n".into(), "OK".into())
    }
}

fn ttl(steps: &[Step], exptime_s: u32) -> String {
    match exptime_s {
        _ if !steps.contains(&Step::Ttl) => String::new(),
        0 => " t-1".into(),
        at_s => format!(" t{}", at_s.wrapping_sub(NOW_S)),
    }
}

struct Memcached {
    _process: Process,
    connection: BufReader<TcpStream>,
}

impl Memcached {
    fn start() -> Option<Self> {
        harness::needs_memcached("")?;
        // Without the threads that reorder items in the background. While they hold an item,
        // counting on it creates a new item, which is not marked as fetched.
        let started = harness::memcached(None, None, Stdio::null(), &["-o", "no_modern"]);
        let (process, port) = started.expect("memcached starts");
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("memcached listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Some(Self { _process: process, connection: BufReader::new(stream) })
    }

    /// Returns the answer's line, and its value on a second line.
    fn ask(&mut self, command: &str) -> String {
        self.connection.get_mut().write_all(command.as_bytes()).expect("memcached listens");
        let mut line = String::new();
        self.connection.read_line(&mut line).expect("memcached answers");
        let line = line.trim_end();
        let Some(words) = line.strip_prefix("VA ") else { return line.into() };
        let bytes: usize = words.split(' ').next().and_then(|word| word.parse().ok()).expect("VA");
        let mut value = vec![0; bytes + 2];
        self.connection.read_exact(&mut value).expect("a value follows");
        format!("{line}\n{}", String::from_utf8_lossy(&value[..bytes]))
    }
}
