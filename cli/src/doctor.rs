//! `rebate doctor`: finds the reasons why devices of a configuration or accelerators of this machine do not work. For
//! each it says who can fix it with which command. It changes nothing. The only jobs that it runs are a few test jobs.

mod accelerators;
mod dpdk;
mod finding;
mod machine;
mod mending;
mod round_trip;
mod service;
mod work_queue;

use clap::Args;
use drivers::host::{IdxdKind, Machine};
use drivers::qpl::{LIBRARY_VARIABLE, NumaNode, Path, Qpl, QplOptions};
use serde::Serialize;
use server::config::Config;
use units::ByteCount;

use crate::devices::{Configuration, Opened, Refused, qpl_options};
use crate::terminal::{CliError, WIDTH, print_json, print_line, wrapped};
use finding::{Finding, Mend, Severity};
use round_trip::RoundTrip;

/// The flags of `rebate doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    configuration: Configuration,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Everything that `rebate doctor` reports.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether all devices of the configuration work.
    ok: bool,
    /// The devices of the configuration.
    configured: Vec<String>,
    machine: Vec<Finding>,
    devices: Vec<Finding>,
    round_trips: Vec<RoundTrip>,
}

/// The features of the machine that the configuration needs. A fault in a needed feature is a problem. Any other fault
/// is a note.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// Whether the configuration names an IAA.
    iaa: bool,
    /// Whether the IAA has completed its round trip. Then an old kernel or a missing library is only a note.
    iaa_works: bool,
    /// Whether the configuration names hardware behind DPDK.
    dpdk: bool,
    /// The NUMA nodes whose IAAs QPL uses. `transfer_bytes` is the largest job that QPL sends to an IAA.
    numa: NumaNode,
    transfer_bytes: ByteCount,
}

impl Doctor {
    /// Prints the findings. The exit code is 0 if the devices of the configuration have no problem.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let config = self.configuration.load().map_err(CliError::Usage)?;
        let machine = self.configuration.machine();
        let report = examine(&config, &machine).map_err(CliError::Failed)?;
        if self.json {
            print_json(&report)?;
        } else {
            print_line(&text(&report));
        }
        if report.ok { Ok(()) } else { Err(CliError::Failed(String::new())) }
    }
}

fn examine(config: &Config, machine: &Machine) -> Result<Report, String> {
    let Opened { devices, refused } = Opened::from_config(config)?;
    let configured: Vec<_> = devices.all.iter().map(|device| device.name().to_owned()).collect();
    let mut of_devices: Vec<Finding> = refused.iter().map(cannot_serve).collect();
    let mut round_trips = Vec::new();
    for device in &devices.all {
        let (finding, trip) = round_trip::finding(device.as_ref(), Severity::Problem)?;
        of_devices.push(service::explained(finding, config));
        round_trips.extend(trip);
    }
    let tried = |name: &str| {
        configured.iter().any(|device| device == name)
            || refused.iter().any(|device| device.name == name)
    };
    let options = qpl_options(&config.runtime)?;
    for (finding, trip) in unasked(machine, &options, tried)? {
        of_devices.push(finding);
        round_trips.extend(trip);
    }
    let wanted = Wanted::by(config, &options, &round_trips);
    let mut findings = machine::findings(machine);
    findings.extend(accelerators::findings(machine, wanted));
    findings.extend(dpdk::findings(machine, wanted));
    let ok =
        findings.iter().chain(&of_devices).all(|finding| finding.severity != Severity::Problem);
    let refused = refused.into_iter().map(|device| device.name);
    let configured = configured.into_iter().chain(refused).collect();
    Ok(Report { ok, configured, machine: findings, devices: of_devices, round_trips })
}

impl Wanted {
    fn by(config: &Config, options: &QplOptions, round_trips: &[RoundTrip]) -> Self {
        let names = &config.runtime.devices;
        let hardware = Path::Hardware.device();
        // The name of software behind DPDK is its driver. The name of hardware is an address or the kernel's name.
        let behind_dpdk = |name: &str| {
            name.strip_prefix("dpdk-").is_some_and(|driver| !driver.starts_with("compress_"))
        };
        Self {
            iaa: names.iter().any(|name| name == hardware),
            iaa_works: round_trips.iter().any(|trip| trip.device == hardware),
            dpdk: names.iter().any(|name| behind_dpdk(name)),
            numa: options.numa,
            transfer_bytes: options.transfer_bytes_max,
        }
    }
}

fn cannot_serve(refused: &Refused) -> Finding {
    let what = format!("cannot be used: {}", refused.why);
    let name = refused.name.clone();
    Finding::new(Severity::Problem, &name, what).mend(Mend::text(
        "Whoever configures the server",
        format!("mends that, or takes {name} out of runtime.devices or runtime.compression"),
    ))
}

/// Tests QPL's devices that are not configured, if QPL's library is named or this machine has an IAA.
fn unasked(
    machine: &Machine,
    options: &QplOptions,
    tried: impl Fn(&str) -> bool,
) -> Result<Vec<(Finding, Option<RoundTrip>)>, String> {
    let has_iaa = machine.idxd_of(IdxdKind::Iaa).any(|device| device.usable().next().is_some());
    let named = std::env::var_os(LIBRARY_VARIABLE).is_some_and(|value| !value.is_empty());
    let mut found = Vec::new();
    for path in [Path::Software, Path::Hardware] {
        let sensible = if path == Path::Hardware { has_iaa } else { has_iaa || named };
        if tried(path.device()) || !sensible {
            continue;
        }
        found.push(match Qpl::open(path, options) {
            Ok(device) => round_trip::finding(&device, Severity::Note)?,
            Err(error) => {
                let what = format!("not in this configuration, and would not open: {error}");
                (Finding::new(Severity::Note, path.device(), what), None)
            }
        });
    }
    Ok(found)
}

fn text(report: &Report) -> String {
    let mut lines = vec!["this machine".to_owned()];
    lines.extend(report.machine.iter().flat_map(Finding::lines));
    lines.push("one round trip on each device, times of first jobs".to_owned());
    lines.extend(report.devices.iter().flat_map(Finding::lines));
    let count = |severity| {
        let all = report.machine.iter().chain(&report.devices);
        all.filter(|finding| finding.severity == severity).count()
    };
    let names = report.configured.join(", ");
    let verdict = match count(Severity::Problem) {
        0 => format!("nothing is wrong for the devices of this configuration: {names}"),
        1 => format!("1 problem for the devices of this configuration: {names}"),
        many => format!("{many} problems for the devices of this configuration: {names}"),
    };
    lines.extend(wrapped(&verdict, WIDTH));
    lines.join("\n")
}

const EXAMPLES: &str = "Examples:
  rebate doctor
  rebate doctor --device qpl-hardware
  rebate doctor --compression lane:/run/rebate/lane
  rebate doctor --config rebate.toml --json

A finding is ok, a note, or a problem. A problem keeps a device of the configuration from working.
Exit codes: 0 no problem, 1 problems, 2 bad usage or configuration.";
