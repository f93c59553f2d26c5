//! Measures the cost of a lane's memory without its hop. First it reads a value that another core wrote, with the two
//! threads on cores 0 and 1. It compares a hash in place, a copy, a copy with a hash of the copy, and the hash of a
//! value that the local core wrote. Then several threads at once allocate and free blocks of a lane's memory for
//! inputs, as a frontend's workers do for each value. For a read it prints the 10th, 50th and 90th percentiles. The
//! flags are those of `harness::Bench`.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use device::Device;
use drivers::{Lane, LaneOptions};
use harness::{Bench, quantile};
use parking_lot::Mutex;
use units::cores::pin;
use xxhash_rust::xxh3::xxh3_64;

type Problem = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    let mut bench = Bench::new("cargo bench -p drivers --bench lane_memory", 1);
    let rounds = if bench.quick { 200 } else { 20_000 };
    for (what, read) in READS {
        let runs = bench.runs().map(|_| read_by_another(read, rounds));
        let mut runs: Vec<_> = runs.collect::<Result<_, _>>()?;
        let us = |times: &mut Vec<Duration>, share| quantile(times, share).as_secs_f64() * 1e6;
        let runs: Vec<_> =
            runs.iter_mut().map(|times| [0.1, 0.5, 0.9].map(|share| us(times, share))).collect();
        bench.rows(&format!("{what}.64KiB"), [("p10", "us"), ("p50", "us"), ("p90", "us")], &runs);
    }
    for threads in [1, 2, 4] {
        let runs: Result<Vec<_>, _> = bench.runs().map(|_| blocks(threads, rounds * 10)).collect();
        bench.row(&format!("allocate_and_free.{threads}_threads.64KiB"), "ns", None, runs?);
    }
    bench.finish();
    Ok(())
}

type Read = fn(&[u8], &mut [u8]) -> u64;

const READS: [(&str, Read); 4] = [
    ("hash_of_own", |_, local| xxh3_64(local)),
    ("hash_of_other", |other, _| xxh3_64(other)),
    ("copy", copy),
    ("copy_then_hash", |other, local| {
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

/// Returns the mean time to allocate and free a block when `threads` threads do it at once (ns).
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
