//! A closed loop on a cache whose server is killed, stopped and started meanwhile, for `bench/near_kills.py`. It goes
//! on after errors, and prints one line of JSON when its standard input ends.
//!
//! ```text
//! endure ADDRESS [--keys N] [--value-bytes N] [--timeout-s S]
//! ```
//!
//! Nine of ten calls are gets and the others sets. A value that is missing is set again. Each value that is read is
//! compared with what this process wrote; it begins with its key and the number of the write. The line has the
//! numbers of calls, of failed and of missing ones, and of failed ones that took the whole timeout; the longest call;
//! and what this process has after it has dropped the client, more than before: open descriptors, and mappings of
//! shared memory. A wrong value ends the program with status 1 at once, because it may be killed before it reports.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rebate_client::{Client, Options, Write};

/// What is known of a key.
#[derive(Clone, Default)]
struct Known {
    /// The number of the last write that is certain, and of the last one that was begun.
    written: u64,
    begun: u64,
}

#[derive(Default)]
struct Counts {
    calls: u64,
    failed: u64,
    missing: u64,
    timed_out: u64,
    longest: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().ok_or("an address is missing")?;
    let (mut keys, mut value_bytes, mut timeout) = (100, 200, Duration::from_secs(10));
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--keys" => keys = value.parse()?,
            "--value-bytes" => value_bytes = value.parse()?,
            "--timeout-s" => timeout = Duration::from_secs_f64(value.parse()?),
            _ => return Err(format!("{word} is no flag of this program").into()),
        }
    }
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    let before = held();
    let options = Options { connect_timeout: timeout, timeout, ..Options::default() };
    let mut client = Client::new(&[&address], options)?;
    let counts = run(&mut client, keys, value_bytes, timeout, &has_ended);
    drop(client);
    let [descriptors, mappings] = [0, 1].map(|at| held()[at] as i64 - before[at] as i64);
    let Counts { calls, failed, missing, timed_out, longest } = counts;
    let longest_us = longest.as_micros();
    println!(
        "{{\"calls\": {calls}, \"failed\": {failed}, \"missing\": {missing}, \
         \"timed_out\": {timed_out}, \"longest_us\": {longest_us}, \
         \"descriptors\": {descriptors}, \"mappings\": {mappings}}}",
    );
    Ok(())
}

fn run(
    client: &mut Client,
    keys: usize,
    value_bytes: usize,
    timeout: Duration,
    has_ended: &AtomicBool,
) -> Counts {
    let mut counts = Counts::default();
    let mut known = vec![Known::default(); keys];
    let mut sets_next = false;
    while !has_ended.load(Ordering::Relaxed) {
        let at = counts.calls as usize % keys;
        let key = format!("{}:{at:06}", std::process::id());
        let key = key.as_bytes();
        let sets = sets_next || counts.calls % 10 == 0 || known[at].begun == 0;
        sets_next = false;
        counts.calls += 1;
        let since = Instant::now();
        let result = if sets {
            known[at].begun += 1;
            let number = known[at].begun;
            let set = client.set(key, &value(key, number, value_bytes), Write::default());
            set.map(|_| known[at].written = number)
        } else {
            client.get(key).map(|item| match item {
                None => {
                    counts.missing += 1;
                    // The next turn is this key's again.
                    counts.calls -= 1;
                    sets_next = true;
                }
                Some(item) => {
                    let Known { written, begun } = known[at];
                    // A write whose end is not known may have been done or not.
                    let may_be = (written..=begun).rev();
                    let mut may_be = may_be.map(|number| value(key, number, value_bytes));
                    if !may_be.any(|value| value == item.value) {
                        eprintln!("a wrong value of {}", String::from_utf8_lossy(key));
                        std::process::exit(1);
                    }
                }
            })
        };
        let took = since.elapsed();
        counts.longest = counts.longest.max(took);
        if result.is_err() {
            counts.failed += 1;
            counts.timed_out += u64::from(took >= timeout);
            // A server that is gone is not asked as fast as this process can.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    counts
}

/// Returns a value that names its key and its write.
fn value(key: &[u8], number: u64, bytes: usize) -> Vec<u8> {
    let mut value = key.to_vec();
    value.extend_from_slice(format!(" write {number}; ").as_bytes());
    value.iter().copied().cycle().take(bytes).collect()
}

/// Returns the numbers of open descriptors and of mappings of shared memory.
fn held() -> [usize; 2] {
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    [descriptors, maps.lines().filter(|line| line.contains("memfd:rebate-shared")).count()]
}
