//! Tests that the store reports as many bytes as the process uses, so the overhead per item is
//! correct. Each measurement runs in a separate process, because a process keeps its freed memory.
#![cfg(target_os = "linux")]

use std::process::Command;

use store::Embedded;
use store::embedded::{Fetch, Mode, NewItem, Options};
use units::ByteCount;

const NOW_S: u32 = 100;
const TOLERANCE: f64 = 0.15;

/// The environment variable that gives the case to the child process: bytes per value, number of
/// items, and budget in MiB.
const CASE: &str = "STORE_MEMORY_CASE";

#[test]
fn the_stated_bytes_are_resident() {
    let this = std::env::current_exe().expect("a test has a binary");
    let case = |case: &str| {
        let test = ["--exact", "one_case_when_asked", "--nocapture"];
        let output = Command::new(&this).args(test).env(CASE, case).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let figure = |word: &str| {
            let mut words = text.split_whitespace().skip_while(|&found| found != word);
            let number = words.nth(1).and_then(|number| number.parse::<f64>().ok());
            number.unwrap_or_else(|| panic!("{case}: no {word} in {text}"))
        };
        let (stated, resident) = (figure("stated"), figure("resident"));
        println!("{case}: stated {stated} resident {resident} {:+.3}", stated / resident - 1.0);
        assert!((stated / resident - 1.0).abs() < TOLERANCE, "{case}: {stated} or {resident}");
    };
    case("10 300000 1024");
    case("100 200000 1024");
    case("1000 60000 1024");
    // These stores are filled many times over, so what the cache remembers of evicted items counts
    // too.
    case("100 2000000 32");
    case("5000 100000 32");
}

#[test]
fn one_case_when_asked() {
    let Ok(case) = std::env::var(CASE) else { return };
    let numbers: Vec<u64> = case.split(' ').map(|word| word.parse().expect("a number")).collect();
    let (value_bytes, items, limit) = (numbers[0] as usize, numbers[1], ByteCount::mib(numbers[2]));
    let store = Embedded::new(Options { limit, evict: true, seed: 1 });
    let before = resident_bytes();
    for i in 0..items {
        let key = format!("user:profile:{i:08}");
        let item = NewItem { value: &vec![b'v'; value_bytes], ..NewItem::default() };
        store.store(key.as_bytes(), item, Mode::Set, NOW_S).expect("there is room");
        store.fetch(key.as_bytes(), &Fetch::GET, NOW_S).expect("just set");
    }
    println!("\nstated {} resident {}", store.stats().bytes, resident_bytes() - before);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has it");
    let kib = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}
