//! The golden matrix. Every device writes every codec that it has, at every level and in each of its
//! dialects. Every other device that reads the codec must read these bytes back, and so must the system's
//! zlib, gzip, zstd and lz4. The devices must also read what these tools write. Anything that a machine lacks
//! (a tool, QPL, DPDK) is skipped, and the skip is reported. The contract suite covers damaged streams.

#[allow(dead_code, reason = "only honest ones are wanted")]
#[path = "../lane/service.rs"]
mod lane_service;
#[allow(dead_code, reason = "only honest ones are wanted")]
#[path = "../remote/service.rs"]
mod remote_service;
#[path = "../support/mod.rs"]
mod support;
mod tools;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use device::contract::inflate::inflate;
use device::contract::payload::Payload;
use device::{
    Codec, Device, Dialect, EngineFactory, Level, Outcome, RefusedReason, Software, Task, Virtual,
    VirtualOptions, Worker, engines,
};
use drivers::qpl::{Huffman, LIBRARY_VARIABLE, Path};
use drivers::{ENGINES, Lane, LaneOptions, Qpl, QplOptions, Remote, RemoteOptions};
use support::{TIMEOUT, bound, job, open, result, skipped};
use tools::{Tool, tools};
use units::ByteCount;
use workload::DeviceProfile;

#[test]
fn everyone_reads_what_anyone_writes_in_deflate() {
    Matrix::new(Codec::Deflate).check([11, 9]);
}

#[test]
fn everyone_reads_what_anyone_writes_in_zstd() {
    Matrix::new(Codec::Zstd).check([5, 5]);
}

#[test]
fn everyone_reads_what_anyone_writes_in_lz4() {
    Matrix::new(Codec::Lz4).check([5, 5]);
}

/// The parties that write and read one codec, and their streams. Each different stream is listed once, with all of
/// its writers.
struct Matrix {
    codec: Codec,
    parties: Parties,
    tools: Vec<Tool>,
    values: Vec<Bytes>,
    streams: HashMap<Stream, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stream {
    dialect: Dialect,
    /// The index of the value.
    value: usize,
    bytes: Bytes,
}

impl Matrix {
    fn new(codec: Codec) -> Self {
        let classes = Payload::ALL.into_iter();
        let values = classes.flat_map(|class| SIZES.map(|bytes| class.bytes(bytes, bytes as u64)));
        let large = Payload::Text.bytes(1 << 20, 1);
        Self {
            codec,
            parties: Parties::new(codec),
            tools: tools(codec),
            values: values.chain([large]).map(Bytes::from).collect(),
            streams: HashMap::new(),
        }
    }

    /// Checks all writers, windows and readers. At least `writers` devices must write and at least `readers` devices
    /// must read.
    fn check(mut self, [writers, readers]: [usize; 2]) {
        assert!(self.parties.devices.len() >= writers, "{} writers", self.parties.devices.len());
        self.write();
        self.keep_their_windows();
        let read = self.read();
        assert!(read >= readers, "{read} readers");
    }

    /// Lets every device and tool write every value.
    fn write(&mut self) {
        for (name, device) in &self.parties.devices {
            let can = device.capabilities();
            let dialects = can.writes.iter().filter(|dialect| dialect.codec == self.codec);
            for (dialect, level) in
                dialects.flat_map(|dialect| LEVELS.map(|level| (*dialect, level)))
            {
                let task = Task::Compress { dialect, level };
                let values = self.values.iter().enumerate();
                let values: Vec<_> =
                    values.filter(|(_, value)| can.accepts(&task, value.len())).collect();
                let asked = values.iter().map(|(_, value)| (task.clone(), Bytes::clone(value)));
                let written = run_all(device.as_ref(), asked.collect());
                for ((value, original), outcome) in values.into_iter().zip(written) {
                    let Ok(bytes) = outcome else {
                        panic!("{name}: {task:?} of {} bytes: {outcome:?}", original.len());
                    };
                    let stream = Stream { dialect, value, bytes };
                    self.streams.entry(stream).or_default().push(format!("{name} {level:?}"));
                }
            }
        }
        for tool in &self.tools {
            for (value, bytes) in tool.write(&self.values).into_iter().enumerate() {
                let Some(bytes) = bytes else { continue };
                let stream = Stream { dialect: Dialect::new(self.codec), value, bytes };
                self.streams.entry(stream).or_default().push(tool.name.to_owned());
            }
        }
    }

    /// Checks that a deflate stream reaches no further back than its dialect promises.
    fn keep_their_windows(&self) {
        for (stream, writers) in &self.streams {
            let (Codec::Deflate, Some(window)) = (stream.dialect.codec, stream.dialect.window_log2)
            else {
                continue;
            };
            let original = &self.values[stream.value];
            let strict = inflate(&stream.bytes, original.len()).expect("a valid stream");
            assert!(strict.bytes == *original, "a strict reader differs on {writers:?}");
            assert!(strict.reach_bytes <= 1 << window, "{} by {writers:?}", strict.reach_bytes);
        }
    }

    /// Lets every device that reads the codec read every stream that it accepts, and every tool read all streams.
    /// Returns the number of reading devices.
    fn read(&self) -> usize {
        let mut readers = 0;
        for (name, device) in &self.parties.devices {
            let reads = &device.capabilities().reads;
            if !reads.iter().any(|dialect| dialect.codec == self.codec) {
                continue;
            }
            let task = |stream: &Stream| Task::Decompress {
                dialect: stream.dialect,
                original_bytes: self.values[stream.value].len(),
            };
            let can = |stream: &&Stream| {
                device.capabilities().accepts(&task(stream), self.values[stream.value].len())
            };
            let streams: Vec<_> = self.streams.keys().filter(can).collect();
            let asked = streams.iter().map(|stream| (task(stream), stream.bytes.clone()));
            let read = run_all(device.as_ref(), asked.collect());
            for (stream, outcome) in streams.iter().zip(read) {
                let original = &self.values[stream.value];
                let writers = &self.streams[*stream];
                let Ok(read) = outcome else {
                    panic!("{name} reads {} bytes of {writers:?}: {outcome:?}", original.len());
                };
                assert!(read == original, "{name} reads something else than {writers:?} wrote");
            }
            assert!(!streams.is_empty(), "{name} reads nothing");
            readers += 1;
        }
        let all: Vec<(&[u8], &[u8])> =
            self.streams.keys().map(|stream| self.sides(stream)).collect();
        for tool in &self.tools {
            if tool.reads(&all) {
                continue;
            }
            let wrong = self.streams.iter().find(|(stream, _)| !tool.reads(&[self.sides(stream)]));
            panic!(
                "{} does not read what {:?} wrote",
                tool.name,
                wrong.map(|(_, writers)| writers)
            );
        }
        readers
    }

    /// Returns the stream and its original.
    fn sides<'s>(&'s self, stream: &'s Stream) -> (&'s [u8], &'s [u8]) {
        (&stream.bytes, &self.values[stream.value])
    }
}

/// Runs the jobs, as many at once as the queue accepts. Returns the results in the order of the jobs.
fn run_all(device: &dyn Device, jobs: Vec<(Task, Bytes)>) -> Vec<Result<Bytes, Outcome>> {
    let mut queue = open(device);
    let mut results: Vec<_> = jobs.iter().map(|_| None).collect();
    let mut waiting = jobs.into_iter().zip(0..).map(|((task, input), tag)| {
        let capacity = match task {
            Task::Decompress { original_bytes, .. } => original_bytes,
            _ => bound(input.len()),
        };
        let mut job = job(task, input, capacity);
        job.tag = tag;
        job
    });
    let (mut next, mut done, start) = (waiting.next(), Vec::new(), Instant::now());
    while next.is_some() || queue.pending() > 0 {
        while let Some(job) = next.take() {
            match queue.try_submit(job) {
                Ok(()) => next = waiting.next(),
                Err(refused) => {
                    assert_eq!(refused.reason, RefusedReason::Full, "{}", device.name());
                    next = Some(refused.job);
                    break;
                }
            }
        }
        if queue.poll(&mut done) == 0 {
            assert!(start.elapsed() < TIMEOUT, "{}: jobs never came back", device.name());
            thread::yield_now();
        }
        for completion in done.drain(..) {
            let tag = completion.job.tag as usize;
            results[tag] = Some(result(completion));
        }
    }
    results.into_iter().map(|result| result.expect("every job came back")).collect()
}

/// The parties: every device of this build, software with each single engine, and the services behind some of them.
struct Parties {
    devices: Vec<(String, Arc<dyn Device>)>,
    _lane: lane_service::Service,
    _remote: remote_service::Service,
    _folder: tempfile::TempDir,
}

impl Parties {
    fn new(codec: Codec) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("lane");
        let lane = lane_service::Service::start_at(&socket, lane_service::Manner::Honest);
        let remote = remote_service::Service::start(remote_service::Manner::Honest);
        let work_bytes_max = ByteCount::mib(16);
        let (timeout, connect_timeout) = (TIMEOUT, TIMEOUT);
        let options =
            RemoteOptions { work_bytes_max, timeout, connect_timeout, ..RemoteOptions::default() };
        let far = Remote::new(remote.address.clone(), &options).expect("an address");
        let near = Lane::new(&socket, &LaneOptions { work_bytes_max, ..LaneOptions::default() });
        let threads = NonZeroUsize::new(2).expect("not zero");
        let worker = Worker::start(threads, threads.saturating_mul(threads), ENGINES);
        let mut devices: Vec<(String, Arc<dyn Device>)> = vec![
            ("software".to_owned(), Arc::new(Software::new(ENGINES))),
            ("worker".to_owned(), Arc::new(worker.expect("two threads"))),
            ("remote".to_owned(), Arc::new(far)),
            ("lane".to_owned(), Arc::new(near)),
        ];
        for (name, of_codec) in EACH {
            devices.push((name.to_owned(), Arc::new(Software::new(of_codec))));
        }
        if codec == Codec::Deflate {
            devices.extend(virtuals());
            devices.extend(qpl());
            devices.extend(dpdk());
        }
        devices.retain(|(_, device)| {
            device.capabilities().writes.iter().any(|dialect| dialect.codec == codec)
        });
        Self { devices, _lane: lane, _remote: remote, _folder: folder }
    }
}

/// Returns the virtual devices that compress. The BlueFields only compress, because no times of their
/// decompression are published.
fn virtuals() -> impl Iterator<Item = (String, Arc<dyn Device>)> {
    let names = ["iaa", "qat-4xxx", "qat-8970", "bluefield2", "bluefield2-arm"];
    names.into_iter().map(|name| {
        let profile = DeviceProfile::find(name).expect("it ships");
        let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
        let device: Arc<dyn Device> = Arc::new(device.expect("deflate is at hand"));
        (device.name().to_owned(), device)
    })
}

/// Returns QPL's paths with each Huffman code if the environment names the library. Includes the hardware path if
/// there is hardware.
fn qpl() -> Vec<(String, Arc<dyn Device>)> {
    let Some(library) = std::env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty()) else {
        skipped("golden", &format!("QPL: {LIBRARY_VARIABLE} names no libqpl.so"));
        return Vec::new();
    };
    let mut devices: Vec<(String, Arc<dyn Device>)> = Vec::new();
    for (path, huffman) in Path::ALL
        .into_iter()
        .flat_map(|path| [Huffman::Dynamic, Huffman::Fixed].map(|huffman| (path, huffman)))
    {
        let library = Some(library.clone().into());
        let options = QplOptions { library, huffman, ..QplOptions::default() };
        match Qpl::open(path, &options) {
            Ok(device) => {
                devices.push((format!("{} {huffman:?}", device.name()), Arc::new(device)))
            }
            Err(error) if path == Path::Software => panic!("{error}"),
            Err(error) => skipped("golden", &error.to_string()),
        }
    }
    devices
}

#[cfg(feature = "dpdk")]
fn dpdk() -> Vec<(String, Arc<dyn Device>)> {
    use drivers::dpdk::Eal;
    use drivers::{Dpdk, DpdkOptions};

    let names = ["compress_isal", "compress_zlib"];
    let eal = match Eal::start(&names.map(str::to_owned), &[]) {
        Ok(eal) => eal,
        Err(error) => {
            skipped("golden", &error.to_string());
            assert!(std::env::var_os("REBATE_DPDK_REQUIRED").is_none(), "{error}");
            return Vec::new();
        }
    };
    let open = |name: &str| {
        let device = Dpdk::open(eal, name, DpdkOptions::default()).expect("the device opens");
        (device.name().to_owned(), Arc::new(device) as Arc<dyn Device>)
    };
    names.map(open).into()
}

#[cfg(not(feature = "dpdk"))]
fn dpdk() -> Vec<(String, Arc<dyn Device>)> {
    skipped("golden", "DPDK: this build is without the feature dpdk");
    Vec::new()
}

/// Software with each single engine. An engine that only writes is followed by an engine that reads.
const EACH: [(&str, &[EngineFactory]); 4] = [
    ("isal", &[drivers::isal::engine, engines::libdeflate::engine]),
    ("libdeflate", &[engines::libdeflate::engine]),
    ("zstd", &[engines::zstd::engine]),
    ("lz4_flex", &[engines::lz4::engine]),
];

const LEVELS: [Level; 3] = [Level::Fast, Level::Default, Level::High];

/// The sizes of the values (bytes): empty, almost empty, both sides of a small window, and a little above the size of
/// QPL's pieces. One value of 1 MiB is added to them.
const SIZES: [usize; 7] = [0, 1, 100, 4_096, 4_097, (32 << 10) + 300, 64 << 10];
