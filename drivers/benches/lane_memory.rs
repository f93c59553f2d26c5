//! Measures the cost of a lane's memory without its hop. First it reads a value that another core wrote, with the two
//! threads on cores 0 and 1. It compares a hash in place, a copy, a copy with a hash of the copy, and the hash of a
//! value that the local core wrote. Then several threads at once allocate and free blocks of a lane's memory for
//! inputs, as a frontend's workers do for each value. It prints medians of runs, and `--quick` makes the runs short.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use device::Device;
use device::cores::pin;
use drivers::{Lane, LaneOptions};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

type Problem = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    let rounds = if std::env::args().any(|arg| arg == "--quick") { 200 } else { 20_000 };
    println!("value of 64 KiB                         p10 us    p50 us    p90 us");
    for (what, read) in READS {
        let mut times = read_by_another(read, rounds)?;
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 10].as_nanos() as f64 / 1e3;
        println!("{what:<36} {:>9.2} {:>9.2} {:>9.2}", at(1), at(5), at(9));
    }
    println!();
    println!("blocks of 64 KiB taken and given back      ns of each thread");
    for threads in [1, 2, 4] {
        println!("by {threads:>2} threads at once {:>38.0}", blocks(threads, rounds * 10)?);
    }
    Ok(())
}

type Read = fn(&[u8], &mut [u8]) -> u64;

const READS: [(&str, Read); 4] = [
    ("XXH3 of the own core's", |_, local| xxh3_64(local)),
    ("XXH3 of the other core's", |other, _| xxh3_64(other)),
    ("copy", copy),
    ("copy, then XXH3 of the copy", |other, local| {
        copy(other, local);
        xxh3_64(local)
    }),
];

fn copy(other: &[u8], local: &mut [u8]) -> u64 {
    local.copy_from_slice(other);
    u64::from(black_box(&*local)[local.len() - 1])
}

/// Returns the times of reading a value. The other core writes the value again before each read.
fn read_by_another(read: Read, rounds: u64) -> Result<Vec<Duration>, Problem> {
    let value = Arc::new(Mutex::new(vec![0_u8; VALUE_BYTES]));
    // The number is odd while it is the reader's turn.
    let turn = Arc::new(AtomicU64::new(0));
    let (theirs, their_turn) = (Arc::clone(&value), Arc::clone(&turn));
    let writer = thread::spawn(move || -> Result<(), Problem> {
        pin(1)?;
        for round in 0..rounds {
            wait_for(&their_turn, 2 * round);
            theirs.lock().fill(round as u8);
            their_turn.store(2 * round + 1, Ordering::Release);
        }
        Ok(())
    });
    pin(0)?;
    let (mut local, mut times) = (vec![0; VALUE_BYTES], Vec::with_capacity(rounds as usize));
    for round in 0..rounds {
        wait_for(&turn, 2 * round + 1);
        let value = value.lock();
        local[0] = round as u8;
        let start = Instant::now();
        black_box(read(&value, &mut local));
        times.push(start.elapsed());
        drop(value);
        turn.store(2 * round + 2, Ordering::Release);
    }
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(times)
}

fn wait_for(turn: &AtomicU64, wanted: u64) {
    while turn.load(Ordering::Acquire) != wanted {
        spin_loop();
    }
}

/// Returns the cost of a block for each of `threads` threads (ns).
fn blocks(threads: usize, rounds: u64) -> Result<f64, Problem> {
    let lane = Lane::new(Path::new("/nobody/listens"), &LaneOptions::default());
    let memory = lane.input_memory().ok_or("no shared memory")?;
    let start = Arc::new(Barrier::new(threads));
    let all: Vec<_> = (0..threads)
        .map(|_| {
            let (memory, start) = (Arc::clone(&memory), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                let since = Instant::now();
                for _ in 0..rounds {
                    drop(black_box(memory.allocate(VALUE_BYTES)));
                }
                since.elapsed()
            })
        })
        .collect();
    let times = all.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked"));
    let times: Vec<Duration> = times.collect::<Result<_, _>>()?;
    let all_ns: u128 = times.iter().map(Duration::as_nanos).sum();
    Ok(all_ns as f64 / (threads as u64 * rounds) as f64)
}

const VALUE_BYTES: usize = 64 << 10;
