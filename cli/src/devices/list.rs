//! `rebate devices`: what can compress and decompress here, and in a compression service that is asked.

use std::process::ExitCode;

use api::v1::DescribeResponse;
use clap::Args;
use device::{Codec, Device, Dialect, Software, Virtual, VirtualOptions, Waiting};
use drivers::Remote;
use serde::Serialize;
use server::config::Config;
use units::ByteCount;
use workload::DeviceProfile;

use super::{ENGINES, open, remote_options};
use crate::{EXIT_FAILED, EXIT_USAGE, say};

/// The flags of `rebate devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Devices {
    /// Ask the compression service at this address instead, HOST:PORT or the path of a Unix socket.
    #[arg(long, value_name = "ADDR")]
    compression: Option<String>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// What one device can do.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// What it is, for those that only emulate something.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<String>,
    writes: Vec<String>,
    reads: Vec<String>,
    work_bytes_max: u64,
    queue_depth: u64,
    waiting: String,
}

/// Everything that `rebate devices` says.
#[derive(Debug, Default, Serialize)]
struct Report {
    devices: Vec<Row>,
    /// Emulated accelerators, which serve with `--allow-virtual` only.
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "virtual")]
    virtuals: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    engines: Vec<EngineRow>,
    /// Of a service: the largest uncompressed side of a job (bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    work_bytes_max: Option<u64>,
}

#[derive(Debug, Serialize)]
struct EngineRow {
    name: &'static str,
    codec: &'static str,
}

impl Devices {
    /// Prints the devices of a server with the default configuration, or those of a service.
    pub(crate) fn run(self) -> ExitCode {
        let report = match &self.compression {
            None => own().map_err(|problem| (EXIT_FAILED, problem)),
            Some(address) => ask(address),
        };
        let report = match report {
            Ok(report) => report,
            Err((code, problem)) => {
                eprintln!("rebate: {problem}");
                return ExitCode::from(code);
            }
        };
        if self.json {
            say(&serde_json::to_string_pretty(&report).unwrap_or_default());
        } else {
            say(&table(&report));
        }
        ExitCode::SUCCESS
    }
}

fn own() -> Result<Report, String> {
    let devices = open(&Config::default())?;
    let software = Software::new(ENGINES);
    let engine = |&(name, codec): &(&'static str, Codec)| EngineRow { name, codec: codec.name() };
    Ok(Report {
        devices: devices.all.iter().map(|device| row(device.as_ref())).collect(),
        virtuals: DeviceProfile::names().map(virtual_row).collect::<Result<_, _>>()?,
        engines: software.engines().iter().map(engine).collect(),
        work_bytes_max: None,
    })
}

fn virtual_row(name: &str) -> Result<Row, String> {
    let profile = DeviceProfile::find(name).map_err(|error| error.to_string())?;
    let device = Virtual::new(&profile, ENGINES, VirtualOptions::default());
    let device = device.map_err(|error| error.to_string())?;
    Ok(Row { about: Some(profile.about), ..row(&device) })
}

/// Asks a service; the error has the exit code.
fn ask(address: &str) -> Result<Report, (u8, String)> {
    let failed = |problem: String| (EXIT_FAILED, format!("{address}: {problem}"));
    let parsed = address.parse().map_err(|error: api::BadAddress| (EXIT_USAGE, error.to_string()));
    let remote = Remote::new(parsed?, &remote_options(&Config::default()));
    let remote = remote.map_err(|error| (EXIT_USAGE, error.to_string()))?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let executor = executor.map_err(|error| failed(error.to_string()))?;
    let described = executor.block_on(remote.describe());
    let described = described
        .map_err(|status| failed(format!("{} ({:?})", status.message(), status.code())))?;
    executor.shutdown_background();
    Ok(service(described))
}

fn service(described: DescribeResponse) -> Report {
    let row = |device: api::v1::DeviceDescription| Row {
        name: device.name,
        about: None,
        writes: device.writes,
        reads: device.reads,
        work_bytes_max: device.work_bytes_max,
        queue_depth: device.queue_depth,
        waiting: device.waiting,
    };
    Report {
        devices: described.devices.into_iter().map(row).collect(),
        work_bytes_max: Some(described.work_bytes_max),
        ..Report::default()
    }
}

fn row(device: &dyn Device) -> Row {
    let can = device.capabilities();
    let names = |dialects: &[Dialect]| dialects.iter().map(dialect).collect();
    let waiting = match can.waiting {
        Waiting::Inline => "inline",
        Waiting::Polled { .. } => "polled",
        Waiting::Signalled => "signalled",
    };
    Row {
        name: device.name().to_owned(),
        about: None,
        writes: names(&can.writes),
        reads: names(&can.reads),
        work_bytes_max: can.work_bytes_max.0,
        queue_depth: can.queue_depth as u64,
        waiting: waiting.to_owned(),
    }
}

fn dialect(dialect: &Dialect) -> String {
    match dialect.window_log2 {
        None => dialect.codec.name().to_owned(),
        Some(log2) => {
            let window = ByteCount(1u64.checked_shl(log2.into()).unwrap_or(u64::MAX));
            format!("{}/{window}", dialect.codec.name())
        }
    }
}

fn table(report: &Report) -> String {
    let mut lines: Vec<String> = report.devices.iter().flat_map(described).collect();
    if !report.virtuals.is_empty() {
        lines.push("emulated, with --allow-virtual only".to_owned());
        lines.extend(report.virtuals.iter().flat_map(described));
    }
    if !report.engines.is_empty() {
        lines.push("engines, most preferred writer first".to_owned());
        lines.extend(report.engines.iter().map(|row| format!("  {:<10} {}", row.name, row.codec)));
    }
    if let Some(bytes) = report.work_bytes_max {
        lines.push(format!("the service takes up to {} uncompressed", ByteCount(bytes)));
    }
    lines.join("\n")
}

fn described(row: &Row) -> Vec<String> {
    let largest = ByteCount(row.work_bytes_max);
    let mut lines = vec![row.name.clone()];
    lines.extend(row.about.iter().map(|about| format!("  is       {about}")));
    lines.extend([
        format!("  writes   {}", row.writes.join(", ")),
        format!("  reads    {}", row.reads.join(", ")),
        format!("  largest  {largest} uncompressed"),
        format!("  waiting  {}, {} jobs a queue", row.waiting, row.queue_depth),
    ]);
    lines
}

const EXAMPLES: &str = "Examples:
  rebate devices
  rebate devices --json
  rebate devices --compression 10.0.0.7:9200";
