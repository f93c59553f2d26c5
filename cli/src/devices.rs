//! The devices of this build, for a server and for `rebate devices`. Which job goes where is policy's.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use device::{
    Codec, Device, DeviceError, Dialect, EngineFactory, Software, Waiting, Worker, engines,
};
use serde::Serialize;
use server::config::RuntimeSection;

use crate::{EXIT_FAILED, say};

/// Every device that a server with this configuration has, software first.
///
/// # Errors
/// The device that cannot be opened, and why.
pub(crate) fn open(config: &RuntimeSection) -> Result<server::Devices, DeviceError> {
    let mut all: Vec<Arc<dyn Device>> = vec![Arc::new(Software::new(ENGINES))];
    let worker = config.devices.iter().any(|name| name == "worker");
    if let Some(threads) = NonZeroUsize::new(config.workers).filter(|_| worker) {
        all.push(Arc::new(Worker::start(threads, WORKER_QUEUE_DEPTH, ENGINES)?));
    }
    Ok(server::Devices { all, accelerators: 0 })
}

/// The flags of `rebate devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Devices {
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// What one device can do.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    writes: Vec<String>,
    reads: Vec<String>,
    work_bytes_max: u64,
    queue_depth: usize,
    waiting: &'static str,
}

/// Everything that `rebate devices` says.
#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Row>,
    engines: Vec<EngineRow>,
}

#[derive(Debug, Serialize)]
struct EngineRow {
    name: &'static str,
    codec: &'static str,
}

impl Devices {
    /// Prints the devices of a server with the default configuration.
    pub(crate) fn run(self) -> ExitCode {
        let devices = match open(&RuntimeSection::default()) {
            Ok(devices) => devices,
            Err(error) => {
                eprintln!("rebate: {error}");
                return ExitCode::from(EXIT_FAILED);
            }
        };
        let software = Software::new(ENGINES);
        let engine =
            |&(name, codec): &(&'static str, Codec)| EngineRow { name, codec: codec.name() };
        let report = Report {
            devices: devices.all.iter().map(|device| row(device.as_ref())).collect(),
            engines: software.engines().iter().map(engine).collect(),
        };
        if self.json {
            say(&serde_json::to_string_pretty(&report).unwrap_or_default());
        } else {
            say(&table(&report));
        }
        ExitCode::SUCCESS
    }
}

fn row(device: &dyn Device) -> Row {
    let can = device.capabilities();
    let names = |dialects: &[Dialect]| dialects.iter().map(dialect).collect();
    Row {
        name: device.name().to_owned(),
        writes: names(&can.writes),
        reads: names(&can.reads),
        work_bytes_max: can.work_bytes_max.0,
        queue_depth: can.queue_depth,
        waiting: match can.waiting {
            Waiting::Inline => "inline",
            Waiting::Polled { .. } => "polled",
            Waiting::Signalled => "signalled",
        },
    }
}

fn dialect(dialect: &Dialect) -> String {
    match dialect.window_log2 {
        None => dialect.codec.name().to_owned(),
        Some(log2) => {
            let window = units::ByteCount(1u64.checked_shl(log2.into()).unwrap_or(u64::MAX));
            format!("{}/{window}", dialect.codec.name())
        }
    }
}

fn table(report: &Report) -> String {
    let mut lines = Vec::new();
    for row in &report.devices {
        let largest = units::ByteCount(row.work_bytes_max);
        lines.push(row.name.clone());
        lines.push(format!("  writes   {}", row.writes.join(", ")));
        lines.push(format!("  reads    {}", row.reads.join(", ")));
        lines.push(format!("  largest  {largest} uncompressed"));
        lines.push(format!("  waiting  {}, {} jobs a queue", row.waiting, row.queue_depth));
    }
    lines.push("engines, most preferred writer first".to_owned());
    lines.extend(report.engines.iter().map(|row| format!("  {:<10} {}", row.name, row.codec)));
    lines.join("\n")
}

const EXAMPLES: &str = "Examples:
  rebate devices
  rebate devices --json";

/// The engines of this build, most preferred writer first.
pub(crate) const ENGINES: &[EngineFactory] = &[
    drivers::isal::engine,
    engines::libdeflate::engine,
    engines::zstd::engine,
    engines::lz4::engine,
];

/// Jobs that one queue of the worker device holds at most: a few for each thread, so that none idles and a burst
/// stays on the calling core instead of waiting here.
const WORKER_QUEUE_DEPTH: NonZeroUsize = NonZeroUsize::new(64).expect("above zero");
