//! Runs every fuzz target without a fuzzer: first each input of its corpus, and then randomly changed inputs for half a
//! second. A fuzzer finds more in ten minutes (`fuzz/run 600`). This finds what a change has broken, and needs no other
//! build.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzz::{TARGETS, Target};
use units::Prng;

/// The time for changed inputs of one target, if `REBATE_FUZZ_MS` does not say another.
const CHANGED: Duration = Duration::from_millis(500);

/// The longest input, as in fuzz/run.
const INPUT_BYTES_MAX: usize = 8_192;

#[test]
fn every_target_accepts_its_corpus_and_changed_inputs() {
    let changed = std::env::var("REBATE_FUZZ_MS").map_or(CHANGED, |text| {
        Duration::from_millis(text.parse().expect("REBATE_FUZZ_MS is a number of milliseconds"))
    });
    let seed = RandomState::new().hash_one(0);
    let tokens = tokens();
    std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| TARGETS.iter().skip(half).step_by(2));
        for targets in halves {
            scope.spawn(|| targets.for_each(|target| run(target, changed, seed, &tokens)));
        }
    });
}

fn run(target: &Target, changed: Duration, seed: u64, tokens: &[Vec<u8>]) {
    let corpus = corpus(target.name);
    for input in &corpus {
        check(target, input);
    }
    let mut random = Prng::new(seed);
    let (start, mut runs) = (Instant::now(), 0_u64);
    while start.elapsed() < changed {
        let mut input = corpus[below(&mut random, corpus.len())].clone();
        for _ in 0..=below(&mut random, 4) {
            change(&mut input, &corpus, tokens, &mut random);
        }
        input.truncate(INPUT_BYTES_MAX);
        check(target, &input);
        runs += 1;
    }
    println!("{}: {} inputs of the corpus, {runs} changed ones", target.name, corpus.len());
}

/// Runs the target once. If it panics, keeps the input where fuzz/run keeps those of its crashes.
fn check(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target.run(input))).is_ok() {
        return;
    }
    let folder = here().join("artifacts").join(target.name);
    fs::create_dir_all(&folder).expect("a folder for the input");
    let path = folder.join(format!("crash-{:016x}", crc32c::crc32c(input)));
    fs::write(&path, input).expect("the input is written");
    panic!("{} fails on {} bytes, kept as {}", target.name, input.len(), path.display());
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], tokens: &[Vec<u8>], random: &mut Prng) {
    let at = below(random, input.len() + 1);
    let bytes = below(random, (input.len() - at).min(64) + 1);
    match below(random, 7) {
        0 if at < input.len() => input[at] ^= 1 << below(random, 8),
        1 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff][below(random, 5)],
        2 => drop(input.drain(at..at + bytes)),
        3 => {
            let copy = input[at..at + bytes].to_vec();
            input.splice(at..at, copy);
        }
        4 => {
            let drawn = (0..=below(random, 16)).map(|_| random.bits() as u8).collect::<Vec<_>>();
            input.splice(at..at, drawn);
        }
        5 => drop(input.splice(at..at, tokens[below(random, tokens.len())].iter().copied())),
        _ => {
            let other = &corpus[below(random, corpus.len())];
            input.truncate(at);
            input.extend_from_slice(&other[below(random, other.len() + 1)..]);
        }
    }
}

/// Returns a number below `end`, which is not 0.
fn below(random: &mut Prng, end: usize) -> usize {
    random.below(end as u64) as usize
}

/// Returns the inputs of the target's corpus, and the empty one.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let path = here().join("seeds").join(format!("{name}.tar.zst"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = tar::Archive::new(zstd::Decoder::new(file).expect("zstd"));
    let mut inputs = vec![Vec::new()];
    for entry in archive.entries().expect("a tar archive") {
        let mut input = Vec::new();
        entry.expect("an entry").read_to_end(&mut input).expect("a whole entry");
        inputs.push(input);
    }
    assert!(inputs.len() > 1, "{} has no input", path.display());
    inputs
}

/// Returns the words of memcached's protocol that libFuzzer gets as a dictionary.
fn tokens() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(here().join("memcached.dict")).expect("the dictionary");
    let quoted = text.lines().filter(|line| !line.starts_with('#'));
    let words = quoted.filter_map(|line| line.split_once('"')?.1.rsplit_once('"'));
    words.map(|(word, _)| word.replace("\\x0d\\x0a", "\r\n").into_bytes()).collect()
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
