//! Measures which engine is best for which size. It prints the median time of one operation and the ratio, by class,
//! size, engine and level. Each engine is measured at the levels of its table. Run it with
//! `cargo run --release -p drivers --example codec_choice [DIRECTORY]`.
//! The first class is the content of the directory's files. Without a directory it is HTML from
//! /usr/share/doc and /usr/lib, or C headers if there is no HTML.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use device::contract::payload::Payload;
use device::engines::{libdeflate, lz4, zstd};
use device::{Dialect, Engine, Level};
use drivers::isal;
use harness::quantile;
use units::Prng;

fn main() {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let classes = [
        files(directory.as_deref()),
        ("json".to_owned(), json(CORPUS_BYTES)),
        ("numbers".to_owned(), Payload::Numbers.bytes(CORPUS_BYTES, 1)),
        ("random".to_owned(), Payload::Random.bytes(CORPUS_BYTES, 1)),
    ];
    println!("| class | bytes | engine | level | window | compress us | read us | ratio |");
    println!("|---|---|---|---|---|---|---|---|");
    for (class, corpus) in &classes {
        for bytes in SIZES {
            let blocks = blocks(corpus, bytes);
            for row in ROWS {
                row.measure(class, &blocks);
            }
        }
    }
}

/// One measurement of an engine at a level in a dialect.
struct Row {
    make: fn() -> Box<dyn Engine>,
    level: Level,
    window_log2: Option<u8>,
}

impl Row {
    fn measure(&self, class: &str, blocks: &[&[u8]]) {
        let mut engine = (self.make)();
        let mut reader = if engine.reads() { (self.make)() } else { libdeflate::engine() };
        let dialect = Dialect { codec: engine.codec(), window_log2: self.window_log2 };
        if !engine.writes(dialect, blocks[0].len()) {
            return;
        }
        let (mut write_ns, mut read_ns, mut streams) = (Vec::new(), Vec::new(), Vec::new());
        for pass in 0..=PASSES {
            streams.clear();
            for block in blocks {
                let mut stream = vec![0; block.len() + block.len() / 8 + 1_024];
                let start = Instant::now();
                let written = engine.compress(dialect, self.level, block, &mut stream);
                write_ns.push(start.elapsed().as_nanos() as u64);
                stream.truncate(written.expect("ample room"));
                streams.push(stream);
            }
            read_ns.extend(read(&mut *reader, &streams, blocks));
            if pass == 0 {
                // The first pass makes contexts and fills caches, so its times are dropped.
                write_ns.clear();
                read_ns.clear();
            }
        }
        let window = self.window_log2.map_or("-".to_owned(), |window| window.to_string());
        println!(
            "| {class} | {} | {} | {:?} | {window} | {:.2} | {:.2} | {:.2} |",
            blocks[0].len(),
            engine.name(),
            self.level,
            quantile(&mut write_ns, 0.5) as f64 / 1e3,
            quantile(&mut read_ns, 0.5) as f64 / 1e3,
            ratio(&streams, blocks),
        );
    }
}

/// Returns the time of each read and checks the results.
fn read(engine: &mut dyn Engine, streams: &[Vec<u8>], blocks: &[&[u8]]) -> Vec<u64> {
    let mut output = vec![0; blocks[0].len()];
    let mut times_ns = Vec::with_capacity(blocks.len());
    for (stream, block) in streams.iter().zip(blocks) {
        let start = Instant::now();
        let outcome = engine.decompress(black_box(stream), &mut output);
        times_ns.push(start.elapsed().as_nanos() as u64);
        assert!(outcome.is_ok() && output == *block, "{} differs", engine.name());
    }
    times_ns
}

fn ratio(streams: &[Vec<u8>], blocks: &[&[u8]]) -> f64 {
    let compressed: usize = streams.iter().map(Vec::len).sum();
    let original: usize = blocks.iter().map(|block| block.len()).sum();
    original as f64 / compressed as f64
}

/// Returns blocks of this size, spread evenly over the corpus. The larger the blocks, the fewer there are.
fn blocks(corpus: &[u8], bytes: usize) -> Vec<&[u8]> {
    let fitting = corpus.len() / bytes;
    let count = (WORK_BYTES / bytes).clamp(4, 200).min(fitting);
    let stride = corpus.len() / count;
    (0..count).map(|index| &corpus[index * stride..][..bytes]).collect()
}

/// Returns the name of the class of real files, and their joined content.
fn files(directory: Option<&Path>) -> (String, Vec<u8>) {
    let found = |roots: &[&Path], extension: Option<&str>| {
        let mut corpus = Vec::new();
        let mut folders: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            for path in entries.filter(|entry| !entry.path().is_symlink()).map(|entry| entry.path())
            {
                let fits =
                    extension.is_none_or(|wanted| path.extension().is_some_and(|e| e == wanted));
                if path.is_dir() {
                    folders.push(path);
                } else if fits && corpus.len() < CORPUS_BYTES {
                    corpus.extend(std::fs::read(&path).unwrap_or_default());
                }
            }
        }
        corpus
    };
    if let Some(directory) = directory {
        return (directory.display().to_string(), found(&[directory], None));
    }
    let html = found(&[Path::new("/usr/share/doc"), Path::new("/usr/lib")], Some("html"));
    if html.len() >= CORPUS_BYTES / 2 {
        return ("html".to_owned(), html);
    }
    let headers = found(&[Path::new("/usr/include")], Some("h"));
    if headers.len() >= CORPUS_BYTES / 2 {
        return ("headers".to_owned(), headers);
    }
    ("text".to_owned(), Payload::Text.bytes(CORPUS_BYTES, 1))
}

/// Returns records like those that services log: the same keys in each, and values of a few kinds.
fn json(count: usize) -> Vec<u8> {
    let mut draws = Prng::new(7);
    let mut bytes = Vec::new();
    while bytes.len() < count {
        let (id, user) = (draws.below(1 << 40), draws.below(90_000));
        let state = ["active", "pending", "closed", "archived"][draws.below(4) as usize];
        let (amount, flag) = (draws.below(1_000_000), draws.below(2) == 0);
        let record = format!(
            "{{\"id\":\"{id:010x}\",\"user\":{{\"name\":\"user{user}\",\"verified\":{flag}}},\
             \"state\":\"{state}\",\"amount\":{}.{:02},\"tags\":[\"{state}\",\"t{}\"]}},\n",
            amount / 100,
            amount % 100,
            draws.below(50),
        );
        bytes.extend_from_slice(record.as_bytes());
    }
    bytes
}

const fn row(make: fn() -> Box<dyn Engine>, level: Level) -> Row {
    Row { make, level, window_log2: None }
}

const ROWS: [Row; 11] = [
    row(isal::engine, Level::Fast),
    row(isal::engine, Level::Default),
    row(isal::engine, Level::High),
    Row { make: isal::engine, level: Level::Default, window_log2: Some(12) },
    Row { make: isal::engine, level: Level::High, window_log2: Some(12) },
    row(libdeflate::engine, Level::Fast),
    row(libdeflate::engine, Level::High),
    row(zstd::engine, Level::Fast),
    row(zstd::engine, Level::Default),
    row(zstd::engine, Level::High),
    row(lz4::engine, Level::Fast),
];

const SIZES: [usize; 8] =
    [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The number of measured passes over the blocks. An unmeasured pass precedes them.
const PASSES: usize = 5;

/// The approximate amount of data in one pass (bytes).
const WORK_BYTES: usize = 2 << 20;

/// The size of the corpus (bytes). It is large enough for several different blocks of 1 MiB.
const CORPUS_BYTES: usize = 8 << 20;
