//! Sends bad and hostile input to the built binary. Afterwards the binary must answer as before and hold no more
//! memory. The command table tests the answers to bad lines.

use rebate_tests::{Client, Server, TIMEOUT, poll_for};
use units::Prng;

/// The most bytes that bad input may leave allocated. The largest item is 1 MiB and the pools keep some bytes.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Runs `attack` on a monolith and checks that the server answers as before and has released its memory.
fn survives(attack: impl Fn(&Server)) {
    let server = Server::rebate_memcached(&["-m", "64"]);
    let mut witness = server.client();
    assert_eq!(witness.set("witness", b"here").as_deref(), Ok("STORED"));
    let before = server.rss_bytes().expect("/proc tells the resident memory");
    attack(&server);
    assert_eq!(witness.get("witness"), Ok(Some(b"here".to_vec())));
    assert!(server.client().ask(b"version").text().starts_with("VERSION "));
    let small = || {
        let now = server.rss_bytes()?;
        (now <= before + GROWTH_BYTES_MAX).then_some(())
    };
    let grown = poll_for(TIMEOUT, small).is_none();
    assert!(!grown, "resident memory grew from {before} to {:?}", server.rss_bytes());
}

#[test]
fn a_megabyte_without_a_line_end_closes_the_connection() {
    survives(|server| {
        for byte in [b'a', b' ', 0, 0xff] {
            let mut client = server.client();
            let _closed = client.send(&vec![byte; 1 << 20]);
            assert!(client.is_closed(), "still open after 1 MiB of {byte:#x}");
        }
        // memcached continues to read such a line while it arrives. The server must not store it and must not hang.
        finish(server, &[b"get ".as_slice(), &vec![b'a'; 1 << 20], b"\r\n"].concat());
    });
}

#[test]
fn garbage_lines_are_survived() {
    survives(|server| {
        let mut prng = Prng::new(1);
        for _ in 0..500 {
            let lines: Vec<u8> = (0..20).flat_map(|_| garbage(&mut prng)).collect();
            finish(server, &lines);
        }
    });
}

#[test]
fn almost_right_lines_are_survived() {
    survives(|server| {
        let mut prng = Prng::new(2);
        for _ in 0..500 {
            let lines: Vec<u8> = (0..20).flat_map(|_| almost(&mut prng)).collect();
            finish(server, &lines);
        }
    });
}

#[test]
fn huge_lengths_allocate_nothing() {
    survives(|server| {
        let lengths = ["2147483647", "4294967295", "9223372036854775807", "99999999999", "1048576"];
        let mut open: Vec<Client> = Vec::new();
        for length in lengths {
            for line in ["set a 0 0 N", "append a 0 0 N", "ms a N", "ms a N MA", "cas a 0 0 N 1"] {
                for _ in 0..10 {
                    let mut client = server.client();
                    let line = line.replace('N', length) + "\r\nsome of it";
                    client.send(line.as_bytes()).expect("the server reads");
                    open.push(client);
                }
            }
        }
        for client in &mut open {
            client.finish();
        }
    });
}

#[test]
fn half_open_connections_do_not_hinder_others() {
    survives(|server| {
        let halves =
            ["", "g", "get", "get a", "set a 0 0 5000\r\n", "set a 0 0 5000\r\nhalf", "mg a"];
        let open: Vec<Client> = (0..500)
            .map(|index| {
                let mut client = server.client();
                client.send(halves[index % halves.len()].as_bytes()).expect("the server reads");
                client
            })
            .collect();
        let mut client = server.client();
        assert_eq!(client.set("b", b"1").as_deref(), Ok("STORED"));
        assert_eq!(client.get("b"), Ok(Some(b"1".to_vec())));
        drop(open);
    });
}

#[test]
fn a_client_that_does_not_read_hinders_only_itself() {
    survives(|server| {
        let mut writer = server.client();
        let value = vec![b'x'; 500_000];
        assert_eq!(writer.set("large", &value).as_deref(), Ok("STORED"));
        // The server owes 1000 answers of 500 kB each to clients that never read.
        let mut deaf: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for client in &mut deaf {
            client.send(&b"get large\r\n".repeat(50)).expect("the server reads");
        }
        assert_eq!(writer.get("large"), Ok(Some(value)));
        assert_eq!(writer.set("b", b"1").as_deref(), Ok("STORED"));
    });
}

/// Sends lines and ends the client's stream. The connection must then end, whatever the lines meant.
fn finish(server: &Server, lines: &[u8]) {
    let mut client = server.client();
    let _closed = client.send(lines);
    let answer = client.finish();
    let open = answer.ending == rebate_tests::Ending::TimedOut;
    assert!(!open, "not closed after {}", rebate_tests::shown(lines));
}

fn garbage(prng: &mut Prng) -> Vec<u8> {
    let mut line = vec![0; 1 + prng.below(200) as usize];
    prng.fill(&mut line);
    line.extend_from_slice(b"\r\n");
    line
}

/// Returns a line of words from commands, in an order that no command accepts.
fn almost(prng: &mut Prng) -> Vec<u8> {
    const VERBS: [&str; 20] = [
        "get",
        "gets",
        "gat",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "delete",
        "incr",
        "decr",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "stats",
        "verbosity",
    ];
    const WORDS: [&str; 24] = [
        "a",
        "0",
        "1",
        "-1",
        "5",
        "noreply",
        "4294967296",
        "18446744073709551616",
        "v",
        "k",
        "q",
        "b",
        "T-1",
        "Tx",
        "MS",
        "MZ",
        "C0",
        "O",
        "N30",
        "I",
        "",
        "\0",
        "\u{ff}",
        "10",
    ];
    let mut pick = |words: &[&'static str]| words[prng.below(words.len() as u64) as usize];
    let mut line = pick(&VERBS).to_owned();
    let count = pick(&["0", "1", "2", "3", "4", "5", "6", "9"]).parse().unwrap_or(0);
    for _ in 0..count {
        line = line + " " + pick(&WORDS);
    }
    line += pick(&["\r\n", "\n", "\r\na\r\n", "\r\n\r\n", "\r\r\n"]);
    line.into_bytes()
}
