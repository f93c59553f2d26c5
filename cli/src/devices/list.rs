//! `rebate devices`: lists the devices that can do jobs here, in use or not, and which job would go to which device. It
//! also lists what the compression services of the configuration report about themselves.

use std::sync::Arc;

use api::v1::DescribeResponse;
use clap::Args;
use device::{Codec, Device, Dialect, Software, Virtual, VirtualOptions, Waiting};
use drivers::Remote;
use drivers::host::{IdxdKind, Machine};
use runtime::qualification;
use serde::Serialize;
use server::config::{CompressionAddress, Config};
use units::ByteCount;
use workload::DeviceProfile;

use super::accelerators::{Accelerator, accelerators};
use super::opened::Opened;
use super::routes::{OPS, Routes, routes};
use super::{Configuration, remote_options, service_timeout};
use crate::terminal::{CliError, Column, WIDTH, print_json, print_line, table, wrapped};

/// The flags of `rebate devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Devices {
    #[command(flatten)]
    configuration: Configuration,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// The abilities of one device.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// The description of a device that only emulates an accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<String>,
    writes: Vec<String>,
    reads: Vec<String>,
    kernels: Vec<String>,
    work_bytes_max: u64,
    queue_depth: u64,
    waiting: String,
    /// The NUMA nodes on which the device is. An empty list means that it has no location.
    numa_nodes: Vec<u16>,
}

/// The report of `rebate devices`.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// The open devices of the configuration, software first.
    devices: Vec<Row>,
    /// The devices of the configuration that cannot be opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedRow>,
    /// The accelerators of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerators: Option<Vec<Accelerator>>,
    /// The devices to which jobs would go.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<Routes>,
    /// The emulated accelerators. They serve only with `--allow-virtual`.
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "virtual")]
    virtuals: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    engines: Vec<EngineRow>,
    /// The compression services of the configuration that can describe themselves: those over gRPC.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<Service>,
    /// The results of a round trip of every kind of job on each compression service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    qualified: Vec<Qualified>,
}

/// The verdict whether a compression service gives the same results as software.
#[derive(Debug, Serialize)]
struct Qualified {
    device: String,
    /// The reason why the service is not qualified.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The description that a compression service gives of itself.
#[derive(Debug, Default, Serialize)]
struct Service {
    address: String,
    devices: Vec<Row>,
    /// The largest uncompressed side of a job (bytes).
    work_bytes_max: u64,
    /// The reason why the service reported nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct RefusedRow {
    name: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct EngineRow {
    name: &'static str,
    codec: &'static str,
}

impl Devices {
    /// Prints the devices of a configuration and of this machine. The exit code is 1 if a service that the
    /// configuration names does not describe itself or gives wrong results.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let report = self.report()?;
        if self.json {
            print_json(&report)?;
        } else {
            print_line(&text(&report));
        }
        let all_answer = report.services.iter().all(|service| service.problem.is_none());
        let wrong =
            |row: &Qualified| row.problem.as_ref().is_some_and(|why| why.starts_with(WRONG));
        if all_answer && !report.qualified.iter().any(wrong) {
            Ok(())
        } else {
            Err(CliError::Failed(String::new()))
        }
    }

    /// Builds the report.
    fn report(&self) -> Result<Report, CliError> {
        let config = self.configuration.load().map_err(CliError::Usage)?;
        let machine = self.configuration.machine();
        let Opened { devices, refused } = Opened::from_config(&config).map_err(CliError::Failed)?;
        let software = Software::new(drivers::ENGINES);
        let engine =
            |&(name, codec): &(&'static str, Codec)| EngineRow { name, codec: codec.name() };
        let routes = routes(&config, &devices).map_err(CliError::Failed)?;
        let row = |device: &dyn Device| Row { numa_nodes: nodes(device, &machine), ..row(device) };
        let refused =
            refused.into_iter().map(|device| RefusedRow { name: device.name, why: device.why });
        Ok(Report {
            devices: devices.all.iter().map(|device| row(device.as_ref())).collect(),
            refused: refused.collect(),
            accelerators: Some(accelerators(&machine)),
            routes: Some(routes),
            virtuals: DeviceProfile::names()
                .map(virtual_row)
                .collect::<Result<_, _>>()
                .map_err(CliError::Failed)?,
            engines: software.engines().iter().map(engine).collect(),
            services: services(&config),
            qualified: qualified(&config, &devices.all),
        })
    }
}

/// Returns the NUMA nodes of a device that has a location. QPL's devices that use hardware are on the nodes of the
/// usable IAAs.
fn nodes(device: &dyn Device, machine: &Machine) -> Vec<u16> {
    if !["qpl-hardware", "qpl-auto"].contains(&device.name()) {
        return Vec::new();
    }
    let usable = machine.idxd_of(IdxdKind::Iaa).filter(|device| device.usable().next().is_some());
    let mut nodes: Vec<u16> = usable.filter_map(|device| device.numa_node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn virtual_row(name: &str) -> Result<Row, String> {
    let profile = DeviceProfile::find(name).map_err(|error| error.to_string())?;
    let device = Virtual::new(&profile, drivers::ENGINES, VirtualOptions::default());
    let device = device.map_err(|error| error.to_string())?;
    Ok(Row { about: Some(profile.about), ..row(&device) })
}

/// Requests a description from each service over gRPC. A lane has no message for a description.
fn services(config: &Config) -> Vec<Service> {
    let addresses = config.runtime.compression.iter().filter_map(|text| match text.parse() {
        Ok(CompressionAddress::Grpc(address)) => Some((text.clone(), address)),
        _ => None,
    });
    let ask = |(text, address)| match ask(address, config) {
        Ok(described) => service(text, described),
        Err(problem) => Service { address: text, problem: Some(problem), ..Service::default() },
    };
    addresses.map(ask).collect()
}

/// Sends a job of each kind to every compression service of the configuration.
fn qualified(config: &Config, devices: &[Arc<dyn Device>]) -> Vec<Qualified> {
    let Some((software, others)) = devices.split_first() else { return Vec::new() };
    let services = others
        .iter()
        .filter(|device| ["remote-", "lane-"].iter().any(|kind| device.name().starts_with(kind)));
    let qualify = |device: &Arc<dyn Device>| {
        let timeout = service_timeout(config);
        let verdict = qualification::qualify_service(device, software, timeout);
        let problem = verdict.err().map(|problem| problem.to_string());
        Qualified { device: device.name().to_owned(), problem }
    };
    services.map(qualify).collect()
}

fn ask(address: api::Address, config: &Config) -> Result<DescribeResponse, String> {
    let remote = Remote::new(address, &remote_options(config)?);
    let remote = remote.map_err(|error| error.to_string())?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let executor = executor.map_err(|error| error.to_string())?;
    let described = executor.block_on(remote.describe());
    executor.shutdown_background();
    described.map_err(|status| format!("{} ({:?})", status.message(), status.code()))
}

fn service(address: String, described: DescribeResponse) -> Service {
    let row = |device: api::v1::DeviceDescription| Row {
        name: device.name,
        about: None,
        writes: device.writes,
        reads: device.reads,
        // The API covers compression only.
        kernels: Vec::new(),
        work_bytes_max: device.work_bytes_max,
        queue_depth: device.queue_depth,
        waiting: device.waiting,
        numa_nodes: Vec::new(),
    };
    let devices = described.devices.into_iter().map(row).collect();
    Service { address, devices, work_bytes_max: described.work_bytes_max, problem: None }
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
        kernels: can.kernels.iter().map(|kernel| kernel.name().to_owned()).collect(),
        work_bytes_max: can.work_bytes_max.0,
        queue_depth: can.queue_depth as u64,
        waiting: waiting.to_owned(),
        numa_nodes: Vec::new(),
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

fn text(report: &Report) -> String {
    let mut lines = device_table(&report.devices);
    for refused in &report.refused {
        let why = format!("{} cannot be used: {}", refused.name, refused.why);
        lines.extend(wrapped(&why, WIDTH));
    }
    if !report.engines.is_empty() {
        let engines =
            report.engines.iter().map(|engine| format!("{} by {}", engine.codec, engine.name));
        let engines: Vec<_> = engines.collect();
        let engines = format!("software's engines, first choice first: {}", engines.join(", "));
        lines.extend(wrapped(&engines, WIDTH));
    }
    if let Some(found) = &report.accelerators {
        lines.extend([String::new(), "accelerators of this machine".to_owned()]);
        lines.extend(accelerator_lines(found));
    }
    if let Some(routes) = &report.routes {
        let title = format!("where jobs go when nothing is under way: policy {}", routes.policy);
        lines.extend([String::new(), title]);
        lines.extend(route_table(routes));
        lines.extend(routes.hints.iter().flat_map(|hint| wrapped(hint, WIDTH)));
    }
    if !report.virtuals.is_empty() {
        lines.extend([String::new(), "emulated, with --allow-virtual only".to_owned()]);
        lines.extend(device_table(&report.virtuals));
    }
    for service in &report.services {
        lines.push(String::new());
        lines.extend(service_lines(service));
    }
    for row in &report.qualified {
        let verdict = match &row.problem {
            None => format!("{} is qualified: its results are those of software", row.device),
            Some(problem) => format!("{} is not qualified: {problem}", row.device),
        };
        lines.push(String::new());
        lines.extend(wrapped(&verdict, WIDTH));
    }
    lines.join("\n")
}

fn service_lines(service: &Service) -> Vec<String> {
    let address = &service.address;
    if let Some(problem) = &service.problem {
        return wrapped(&format!("the service at {address} does not answer: {problem}"), WIDTH);
    }
    let largest = ByteCount(service.work_bytes_max);
    let title =
        format!("devices of the service at {address}, which takes up to {largest} uncompressed");
    [vec![title], device_table(&service.devices)].concat()
}

fn device_table(rows: &[Row]) -> Vec<String> {
    let columns: [Column; 7] = [
        ("device", 24),
        ("codecs", 18),
        ("kernels", 15),
        ("largest", 7),
        ("a queue", 7),
        ("completions", 11),
        ("NUMA", 5),
    ];
    let numa = |nodes: &[u16]| match nodes {
        [] => "any".to_owned(),
        nodes => nodes.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
    };
    let cells = |row: &Row| {
        vec![
            row.name.clone(),
            codecs(row),
            some(&row.kernels.join(" ")),
            ByteCount(row.work_bytes_max).to_string(),
            row.queue_depth.to_string(),
            row.waiting.clone(),
            numa(&row.numa_nodes),
        ]
    };
    table(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// Lists each codec once. The window is shown only for a device that cannot use the codec's full window.
fn codecs(row: &Row) -> String {
    let once = |dialects: &[String]| {
        let shown = dialects.iter().filter(|dialect| {
            let codec = dialect.split('/').next().unwrap_or(dialect);
            *dialect == codec || !dialects.iter().any(|other| other == codec)
        });
        shown.cloned().collect::<Vec<_>>().join(" ")
    };
    let (writes, reads) = (once(&row.writes), once(&row.reads));
    match () {
        () if writes == reads => some(&writes),
        () => format!("writes {}, reads {}", some(&writes), some(&reads)),
    }
}

fn some(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn accelerator_lines(found: &[Accelerator]) -> Vec<String> {
    if found.is_empty() {
        let none = "none: no Intel IAA, DSA or QAT and no NVIDIA BlueField on the PCI bus or under \
                    /sys/bus/dsa. Software does everything; rebate demo shows what a virtual IAA \
                    would change";
        return wrapped(none, WIDTH);
    }
    let columns: [Column; 6] = [
        ("name", 14),
        ("is", 23),
        ("state", 16),
        ("NUMA", 4),
        ("used as", 18),
        ("kept from it by", 10),
    ];
    let numa = |node: Option<u16>| node.map_or("any".to_owned(), |node| node.to_string());
    let mut rows = Vec::new();
    for accelerator in found {
        rows.push(vec![
            accelerator.name.clone(),
            accelerator.product.clone(),
            accelerator.state.clone(),
            numa(accelerator.numa_node),
            accelerator.used_as.clone(),
            accelerator.obstacle.clone().unwrap_or_default(),
        ]);
        rows.extend(accelerator.work_queues.iter().map(|queue| {
            vec![
                format!("  {}", queue.name),
                format!("{} {}", queue.mode, queue.owner),
                queue.state.clone(),
                String::new(),
                queue.limits(),
                queue.obstacles.join(", "),
            ]
        }));
    }
    table(&columns, &rows)
}

/// Formats the routes. Ops with the same routes share their lines.
fn route_table(routes: &Routes) -> Vec<String> {
    let mut ops: Vec<(Vec<&str>, Vec<[String; 4]>)> = Vec::new();
    for route in &routes.routes {
        let reason = format!("{}: {}", route.reason, route.why);
        let line = [route.sizes(), route.device.clone(), route.placement.to_owned(), reason];
        match ops.last_mut().filter(|(names, _)| names.contains(&route.op)) {
            Some((_, lines)) => lines.push(line),
            None => ops.push((vec![route.op], vec![line])),
        }
    }
    let mut shared: Vec<(Vec<&str>, Vec<[String; 4]>)> = Vec::new();
    for (names, lines) in ops {
        match shared.iter_mut().find(|(_, shared_lines)| *shared_lines == lines) {
            Some((shared_names, _)) => shared_names.extend(names),
            None => shared.push((names, lines)),
        }
    }
    let columns: [Column; 5] =
        [("op", 18), ("sizes", 16), ("device", 24), ("placement", 9), ("reason", 24)];
    let mut rows = Vec::new();
    for (names, lines) in shared {
        for (index, line) in lines.into_iter().enumerate() {
            let names = match () {
                () if index > 0 => String::new(),
                () if names.len() == OPS.len() => "every op".to_owned(),
                () => names.join(", "),
            };
            rows.push([vec![names], line.to_vec()].concat());
        }
    }
    table(&columns, &rows)
}

/// The first words of the verdict that a device returned wrong bytes.
const WRONG: &str = "WRONG RESULT";

const EXAMPLES: &str = "Examples:
  rebate devices
  rebate devices --config rebate.toml
  rebate devices --device qpl-hardware --policy bounded-offload
  rebate devices --device virtual-iaa --allow-virtual --set compress.readable_by=iaa
  rebate devices --json
  rebate devices --compression 10.0.0.7:9200,lane:/run/rebate/lane

`deflate/4KiB` means deflate with a window of 4 KiB. `rebate doctor` finds out why a device cannot be used, and how \
to fix it.";
