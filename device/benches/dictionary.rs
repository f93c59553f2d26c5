//! Measures dictionaries on records of each kind, for each length of a dictionary: the time of the training, the bytes
//! of a stream with and without the dictionary, the time to compress and to decompress a record, and the memory. The
//! dictionary is trained on other records than those that it is measured on. Times are the thread's processor time, as
//! the median of the runs. The flags are those of `harness::Bench`.
#![allow(missing_docs)]

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use device::{Codec, Device, Dialect, Dictionary, Input, Job, Level, Outcome, Pool, Queue};
use device::{Software, Task};
use harness::Bench;
use harness::bench::thread_time;
use units::ByteCount;
use workload::{PayloadClass, Sizes, Values, Weighting};

fn main() {
    let mut bench = Bench::new("cargo bench -p device --bench dictionary", 7);
    for class in PayloadClass::RECORDS {
        let count = if bench.quick { 600 } else { 4_000 };
        let values = records(class, 0..count);
        let samples = records(class, count..count + SAMPLES);
        measure_plain(&mut bench, class, &values);
        for length in LENGTHS {
            measure_dictionary(&mut bench, class, length, &samples, &values);
        }
        measure_samples(&mut bench, class, count, &values);
    }
    bench.finish();
}

/// Measures zstd at level 3 without a dictionary. A value that does not shrink counts with its own length.
fn measure_plain(bench: &mut Bench, class: PayloadClass, values: &[Bytes]) {
    let runs: Vec<_> = bench.runs().map(|_| Times::measure(values, None)).collect();
    let raw_bytes = values.iter().map(Bytes::len).sum::<usize>() as f64 / values.len() as f64;
    bench.row(&format!("raw_bytes.{class}"), "B", None, [raw_bytes]);
    add_rows(bench, &format!("{class}.none"), &runs);
}

fn measure_dictionary(
    bench: &mut Bench,
    class: PayloadClass,
    length: usize,
    samples: &[Bytes],
    values: &[Bytes],
) {
    let name = format!("{class}.{}KiB", length >> 10);
    let trained: Vec<_> = bench.runs().map(|_| train(samples, length)).collect();
    let Some((dictionary, _)) = trained.last() else { return };
    let runs: Vec<_> = bench.runs().map(|_| Times::measure(values, Some(dictionary))).collect();
    let ms = trained.iter().map(|(_, time)| time.as_secs_f64() * 1e3);
    bench.row(&format!("train.{name}"), "ms", None, ms);
    let memory_bytes = dictionary.memory_bytes() as f64;
    bench.row(&format!("memory.{name}"), "KiB", None, [memory_bytes / 1024.0]);
    add_rows(bench, &name, &runs);
}

/// Measures what more samples give to a dictionary of 4 KiB.
fn measure_samples(bench: &mut Bench, class: PayloadClass, first: u64, values: &[Bytes]) {
    for count in [SAMPLES / 4, SAMPLES, 2 * SAMPLES, 10 * SAMPLES] {
        let (dictionary, _) = train(&records(class, first..first + count), 4 << 10);
        let streams = dictionary.stream_bytes(values.iter().map(|value| &value[..]));
        let stored = streams
            .into_iter()
            .zip(values)
            .map(|(stream, value)| stream.unwrap_or(value.len()) as f64 / values.len() as f64);
        bench.row(&format!("bytes.{class}.samples_{count}"), "B", None, [stored.sum()]);
    }
}

fn train(samples: &[Bytes], length: usize) -> (Arc<Dictionary>, Duration) {
    let samples: Vec<&[u8]> = samples.iter().map(|sample| &sample[..]).collect();
    let begun = thread_time();
    let dictionary = Dictionary::train(&samples, length).expect("records have much in common");
    (Arc::new(dictionary), thread_time() - begun)
}

fn add_rows(bench: &mut Bench, name: &str, runs: &[Times]) {
    bench.row(&format!("bytes.{name}"), "B", None, runs.iter().map(|run| run.bytes));
    bench.row(&format!("compress.{name}"), "ns", None, runs.iter().map(|run| run.compress_ns));
    bench.row(&format!("decompress.{name}"), "ns", None, runs.iter().map(|run| run.decompress_ns));
}

/// The mean over the records of one run.
struct Times {
    /// The bytes of a stream, or of the value if it does not shrink.
    bytes: f64,
    compress_ns: f64,
    decompress_ns: f64,
}

impl Times {
    fn measure(values: &[Bytes], dictionary: Option<&Arc<Dictionary>>) -> Self {
        let mut queue = Software::default().open_queue(Waker::noop().clone()).expect("it opens");
        let codec = if dictionary.is_some() { Codec::ZstdDictionary } else { Codec::Zstd };
        let dialect = Dialect::new(codec);
        let pool = Pool::heap(ByteCount::mib(1));
        let job = |task, input: &Bytes, output_bytes| {
            let mut job = Job::new(task, Input::heap(input.clone()), pool.take(output_bytes));
            job.dictionary = dictionary.cloned();
            job
        };
        let compress = |value: &Bytes| {
            job(Task::Compress { dialect, level: Level::Default }, value, value.len())
        };
        let (compressed, compress_time) = run(&mut *queue, values.iter().map(compress).collect());
        let shrunk: Vec<(Bytes, usize)> = compressed
            .into_iter()
            .zip(values)
            .filter_map(|(stream, value)| Some((stream?, value.len())))
            .filter(|(stream, raw_bytes)| stream.len() < *raw_bytes)
            .collect();
        let raw_bytes: usize = values.iter().map(Bytes::len).sum();
        let saved_bytes: usize = shrunk.iter().map(|(stream, raw)| raw - stream.len()).sum();
        let decompress = |(stream, original_bytes): &(Bytes, usize)| {
            let original_bytes = *original_bytes;
            job(Task::Decompress { dialect, original_bytes }, stream, original_bytes)
        };
        let jobs: Vec<_> = shrunk.iter().map(decompress).collect();
        let decompressed = jobs.len() as f64;
        let (_, decompress_time) = run(&mut *queue, jobs);
        let per = |time: Duration, jobs: f64| time.as_secs_f64() * 1e9 / jobs;
        Self {
            bytes: (raw_bytes - saved_bytes) as f64 / values.len() as f64,
            compress_ns: per(compress_time, values.len() as f64),
            decompress_ns: per(decompress_time, decompressed),
        }
    }
}

/// Runs the jobs one after the other. Returns the results, which are none where a stream did not fit, and the time.
fn run(queue: &mut dyn Queue, jobs: Vec<Job>) -> (Vec<Option<Bytes>>, Duration) {
    let mut done = Vec::with_capacity(jobs.len());
    let begun = thread_time();
    for job in jobs {
        queue.try_submit(Box::new(job)).expect("the queue is empty");
        queue.poll(&mut done);
    }
    let time = thread_time() - begun;
    let results = done.into_iter().map(|completion| match completion.outcome {
        Outcome::Done { output_bytes } => Some(completion.job.output.freeze(0..output_bytes)),
        Outcome::DoesNotFit => None,
        Outcome::Failed(error) => panic!("{error}"),
    });
    (results.collect(), time)
}

fn records(class: PayloadClass, ids: std::ops::Range<u64>) -> Vec<Bytes> {
    let sizes = class.record_sizes().expect("a class of records");
    let sizes = Sizes::new(&sizes, Weighting::Calls).expect("valid sizes");
    let values = Values::synthetic(class, sizes, usize::MAX, 1);
    let record = |id| {
        let mut bytes = Vec::new();
        values.append_to(id, 0, &mut bytes);
        bytes.into()
    };
    ids.map(record).collect()
}

/// The lengths of dictionaries (bytes).
const LENGTHS: [usize; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// The samples of one training, as in the server.
const SAMPLES: u64 = 1_000;
