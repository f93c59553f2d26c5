//! Tests when compression pays, from outside: values that save little are stored as they came while the store has
//! memory to spare, and compressed once it has not. Values are the same in every form.

use std::time::{Duration, Instant};

use rebate_tests::{Client, Server};
use units::Prng;

/// Returns random text of 64 symbols, of which compression saves about a fifth.
fn value(number: usize) -> Vec<u8> {
    let mut bytes = vec![0; VALUE_BYTES];
    Prng::new(number as u64).fill(&mut bytes);
    bytes.iter().map(|byte| SYMBOLS[usize::from(byte % 64)]).collect()
}

fn write(client: &mut Client, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let stored = client.set(&format!("text:{number}"), &value(number));
        assert_eq!(stored.as_deref(), Ok("STORED"), "value {number}");
    }
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let text = client.ask(b"stats rebate").text();
    let prefix = format!("STAT {name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

fn server(memory: &str, settings: &[&str]) -> Server {
    let memory = format!("--set=store.memory={memory}");
    let settings: Vec<String> = settings.iter().map(|setting| format!("--set={setting}")).collect();
    let args = [&memory].into_iter().chain(&settings).map(String::as_str);
    Server::rebate_serve("embedded", "on", &args.collect::<Vec<_>>())
}

#[test]
fn values_that_save_little_stay_plain_with_spare_memory() {
    let server = server("64MiB", &["values.dictionaries=true"]);
    let mut client = server.client();
    write(&mut client, 0..2_000);
    assert_eq!(stat(&mut client, "written_compressed"), 0);
    let tried = stat(&mut client, "written_raw:did_not_shrink");
    let skipped = stat(&mut client, "written_raw:not_tried");
    assert_eq!(tried + skipped, 2_000);
    assert!(tried < 300, "{tried} were tried");
}

#[test]
fn values_that_save_little_are_compressed_in_a_full_store() {
    let server = server("4MiB", &[]);
    let mut client = server.client();
    let began = Instant::now();
    let mut numbers = 0;
    while stat(&mut client, "written_compressed") == 0 {
        assert!(began.elapsed() < LIMIT, "{numbers} values, and none is compressed");
        write(&mut client, numbers..numbers + 1_000);
        numbers += 1_000;
    }
    write(&mut client, numbers..numbers + 100);
    for number in 0..numbers + 100 {
        let found = client.get(&format!("text:{number}")).expect("the server answers");
        assert!(found.is_none_or(|found| found == value(number)), "value {number}");
    }
}

#[test]
fn the_rule_about_spare_memory_can_be_turned_off() {
    let server = server("64MiB", &["compress.saving_min_spare=0"]);
    let mut client = server.client();
    write(&mut client, 0..100);
    assert_eq!(stat(&mut client, "written_compressed"), 100);
}

const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const VALUE_BYTES: usize = 1_024;

const LIMIT: Duration = Duration::from_secs(60);
