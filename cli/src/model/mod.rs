//! `rebate model`: predicts what acceleration would give a service. It turns flags into one request to the planner and
//! prints the answers. It measures nothing and changes nothing.

mod fetch;
mod page;
mod profile;
mod show;

use std::path::{Path, PathBuf};

use api::{Address, LoginFile};
use clap::Args;
use fetch::Url;
use planner::profile::ProfileInput;
use planner::{Answer, Changes, Error, Outcome, Request, Source};
use serde::Serialize;
use units::Nanos;

use crate::terminal::{CliError, check_writable, print_line, write_file};
use crate::tls::TlsFlags;

/// The flags of `rebate model`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelCommand {
    /// Parameters: TOML, the nine lines of Accelerometer's public program, or a name in specs/profiles.
    #[arg(long, value_name = "FILE",
        required_unless_present_any = ["profile", "explain", "scheduler"])]
    file: Option<PathBuf>,
    /// CPU profile: the text of `perf script`, folded stacks, or pprof; - reads stdin. http://HOST:PORT profiles the
    /// server with this admin address now.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    profile: Option<PathBuf>,
    /// gRPC address of a live scheduler. The parameters of each service and op are fitted from its reports.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["file", "profile", "explain"])]
    scheduler: Option<Address>,
    /// Length of the last period whose reports are used (with --scheduler).
    #[arg(long, value_name = "TIME", default_value = "60s")]
    last: Nanos,
    /// File with the line USER:PASSWORD, for a scheduler that asks for a password.
    #[arg(long, value_name = "FILE", requires = "scheduler")]
    auth_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
    /// Category of the profile to accelerate.
    #[arg(long, value_name = "CATEGORY", requires = "profile")]
    kernel: Option<String>,
    /// File of rules that sort the profile's symbols, tried before the built-in rules (specs/rules/tax.toml).
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Only print which rules match this symbol.
    #[arg(long, value_name = "SYMBOL", conflicts_with_all = ["file", "profile"])]
    explain: Option<String>,
    /// Calls by size: a bpftrace histogram, a saved /metrics page (--op selects the op), CSV or JSON.
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// Device profile whose costs are used: a name in specs/devices or a .toml file; can be repeated. `all`
    /// means every profile that has the op.
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Op of the device profile. The default is the op in the file, or compress; with --scheduler, all ops.
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Host cycles (C) while the sizes were counted, if the profile has no cycles.
    #[arg(long, value_name = "N", requires = "profile")]
    cycles: Option<f64>,
    /// Calls (n) while the sizes were counted. The default is the number of calls in the sizes.
    #[arg(long, value_name = "N", requires = "profile")]
    calls: Option<f64>,
    /// Clock of the host, 0.1 to 10 GHz, which converts a device's time into cycles. Without it, C is taken
    /// as the cycles of one core in one second, except with --profile.
    #[arg(long, value_name = "GHZ")]
    clock_ghz: Option<f64>,
    /// Threading design of the service: Sync, Sync-OS, Async, Async-distinct or Async-no-response.
    #[arg(long, value_name = "DESIGN")]
    threading: Option<String>,
    /// Location of the accelerator: on-chip, off-chip or remote.
    #[arg(long, value_name = "WHERE")]
    strategy: Option<String>,
    /// Variant of the equations: equations (as printed), section-5 or public-program.
    #[arg(long, value_name = "READING")]
    variant: Option<String>,
    /// Seed of the random draws that give the intervals. The same seed gives the same digits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write the results to this file, as a page with figures.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    report: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// The JSON that `--json` prints. A single answer is at the top level. Several answers are in a list.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    single: Option<Answer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<planner::profile::Report>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        match error {
            Error::Input(_) => Self::usage(error),
            Error::Scheduler(_) => Self::failed(error),
        }
    }
}

impl ModelCommand {
    /// Runs the command. The exit code is 0 for success, 1 if the scheduler gave no answer or too little data, and 2
    /// for bad usage or input.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let (lines, failed) = self.lines()?;
        lines.iter().for_each(|line| print_line(line));
        failed.map_or(Ok(()), Err)
    }

    /// Returns the lines to print, and the reason if the model has no answer. The tables of a profile are printed in
    /// any case.
    fn lines(&self) -> Result<(Vec<String>, Option<CliError>), CliError> {
        if let Some(symbol) = &self.explain {
            let lines = profile::explain(symbol, self.rules.as_deref(), self.json);
            return Ok((lines.map_err(Error::Input)?, None));
        }
        if let Some(path) = &self.report {
            check_writable("--report", path)?;
        }
        let mut outcome = self.request()?.evaluate()?;
        let failed = outcome.unanswered.take().map(CliError::from);
        if let Some(path) = &self.report {
            write_file("--report", path, page::report(&outcome).html())?;
        }
        let lines = if self.json { vec![json(outcome)?] } else { text(&outcome) };
        Ok((lines, failed))
    }

    fn request(&self) -> Result<Request, CliError> {
        let source = match (&self.profile, &self.scheduler, &self.file) {
            (Some(path), _, _) => Source::Profile {
                input: self.profile_input(path)?,
                rules: self.rules.clone(),
                kernel: self.kernel.clone(),
                cycles: self.cycles,
                calls: self.calls,
            },
            (None, Some(address), _) => {
                self.tls.apply()?;
                let login = self.auth_file.as_deref().map(LoginFile::open).transpose();
                let wrong = |error| CliError::Usage(format!("--auth-file {error}"));
                Source::Scheduler {
                    address: address.clone(),
                    last: self.last.into(),
                    login: login.map_err(wrong)?,
                }
            }
            (None, None, Some(path)) => Source::Parameters(path.clone()),
            (None, None, None) => {
                return Err(CliError::usage("--file or --profile is missing"));
            }
        };
        let changes = Changes {
            threading: self.threading.clone(),
            strategy: self.strategy.clone(),
            variant: self.variant.clone(),
            sizes: self.sizes.clone(),
            op: self.op.clone(),
            clock_ghz: self.clock_ghz,
            devices: self.device.clone(),
        };
        Ok(Request { source, changes, seed: self.seed })
    }

    /// Takes a profile of a server if its address is given. Otherwise the planner reads the file.
    fn profile_input(&self, path: &Path) -> Result<ProfileInput, CliError> {
        let Some(url) = path.to_str().and_then(Url::parse) else {
            return Ok(ProfileInput::Path(path.to_owned()));
        };
        self.tls.apply()?;
        let url = url?;
        Ok(ProfileInput::Bytes(url.to_string(), url.fetch()?))
    }
}

fn json(outcome: Outcome) -> Result<String, CliError> {
    let Outcome { mut answers, profile, left_out, unanswered: _ } = outcome;
    let single = if answers.len() == 1 { answers.pop() } else { None };
    let output = Output { single, answers, profile, left_out };
    serde_json::to_string_pretty(&output).map_err(CliError::usage)
}

fn text(outcome: &Outcome) -> Vec<String> {
    let mut lines = outcome.profile.as_ref().map(profile::lines).unwrap_or_default();
    let beside = show::devices(&outcome.answers);
    if !lines.is_empty() && !beside.is_empty() {
        lines.push(String::new());
    }
    lines.extend(beside);
    for answer in &outcome.answers {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(show::lines(answer));
    }
    lines.extend(outcome.left_out.iter().map(|why| format!("left out: {why}")));
    lines
}

const EXAMPLES: &str = "Examples:
  rebate model --file accelerometer-recommendations
  rebate model --file parameters.toml --json
  rebate model --file parameters.txt --variant public-program
  rebate model --file parameters.toml --sizes sizes.txt --device iaa --device qat-4xxx
  perf script -i perf.data | rebate model --profile - --kernel Compression
  rebate model --profile - --kernel Compression --sizes sizes.txt --clock-ghz 2.5 --device all
  rebate model --profile a.folded --kernel Compression --cycles 2.3e9 --clock-ghz 2.3 --device iaa
  rebate model --profile http://127.0.0.1:9150
  rebate model --profile 'http://127.0.0.1:9150?seconds=30' --report page.html
  rebate model --scheduler 127.0.0.1:7004 --last 10m
  rebate model --scheduler 127.0.0.1:7004 --op compress --device qat-4xxx
  rebate model --scheduler tls://scheduler-1:7004 --tls-ca ca.pem --auth-file login
  rebate model --explain ZSTD_compressBlock_fast";
