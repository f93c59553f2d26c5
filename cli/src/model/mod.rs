//! `rebate model`: what acceleration would give a service, from parameters, sizes, device profiles, CPU profiles and
//! what a live scheduler has gathered. It measures nothing and changes nothing.

mod answer;
mod device;
mod file;
mod page;
mod profile;
mod program;
mod question;
mod scheduler;
mod show;
mod sizes;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::Address;
use clap::Args;
use model::{Strategy, Threading, Variant};
use serde::Serialize;
use units::Nanos;

pub(crate) use answer::{Answer, ask};
pub(crate) use question::Published;
use question::{Question, Sizes};

use crate::load::time;
use crate::{EXIT_FAILED, EXIT_USAGE, say};

/// The flags of `rebate model`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelCommand {
    /// Parameters: TOML, the public Accelerometer program's nine lines, or the name of a spec in specs/profiles.
    #[arg(long, value_name = "FILE",
        required_unless_present_any = ["profile", "explain", "scheduler"])]
    file: Option<PathBuf>,
    /// A CPU profile: the text of `perf script`, folded stacks, or pprof; - reads stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    profile: Option<PathBuf>,
    /// A live scheduler's gRPC address: parameters fitted from what services report to it, per service and op.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["file", "profile", "explain"])]
    scheduler: Option<Address>,
    /// What the scheduler gathered in this last while.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    last: Nanos,
    /// Which category of the profile to accelerate.
    #[arg(long, value_name = "CATEGORY", requires = "profile")]
    kernel: Option<String>,
    /// Rules that sort the profile's symbols, tried before our own (specs/rules/tax.toml).
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Say which rules match a symbol, and do nothing else.
    #[arg(long, value_name = "SYMBOL", conflicts_with_all = ["file", "profile"])]
    explain: Option<String>,
    /// How many calls of which size: a bpftrace histogram, a saved page of /metrics (--op says whose), CSV or JSON.
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// The costs of this device profile (specs/devices, or a .toml file); may be given again. `all` is every one that
    /// has the op.
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Which of the device's ops; without it compress, what the file says, or all that the scheduler knows.
    #[arg(long, value_name = "OP")]
    op: Option<String>,
    /// Host cycles (C) of the time in which the sizes were counted, where the profile has no cycles.
    #[arg(long, value_name = "N", requires = "profile")]
    cycles: Option<f64>,
    /// Calls (n) in that time, if not those that the sizes count.
    #[arg(long, value_name = "N", requires = "profile")]
    calls: Option<f64>,
    /// The host's clock, to turn a device's time into cycles; without it C counts as one core's second, unless it is a
    /// profile's.
    #[arg(long, value_name = "GHZ")]
    clock_ghz: Option<f64>,
    /// How the service would offload: Sync, Sync-OS, Async, Async-distinct or Async-no-response.
    #[arg(long, value_name = "DESIGN")]
    threading: Option<String>,
    /// Where the accelerator would be: on-chip, off-chip or remote.
    #[arg(long, value_name = "WHERE")]
    strategy: Option<String>,
    /// Which reading of the equations: equations, section-5 or public-program.
    #[arg(long, value_name = "READING")]
    variant: Option<String>,
    /// Of the draws that give the intervals; the same seed gives the same digits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The same as a page with figures, beside what is printed.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    report: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    json: bool,
}

/// Everything that is said; one answer stands at the top, several in a list.
#[derive(Debug, Serialize)]
struct Output {
    #[serde(flatten)]
    single: Option<Answer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<profile::Report>,
    /// Of what the scheduler knows too little.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

/// What went wrong, and the exit code that says whose it is.
struct Failed(u8, String);

impl From<String> for Failed {
    fn from(problem: String) -> Self {
        Self(EXIT_USAGE, problem)
    }
}

impl ModelCommand {
    /// Exit codes: 0 done, 1 the scheduler gave no answer or too little, 2 bad usage or input.
    pub(crate) fn run(self) -> ExitCode {
        let (lines, failed) = match self.lines() {
            Ok(said) => said,
            Err(failed) => (Vec::new(), Some(failed)),
        };
        lines.iter().for_each(|line| say(line));
        match failed {
            None => ExitCode::SUCCESS,
            Some(Failed(code, problem)) => crate::load::fail(code, &problem),
        }
    }

    /// What to say, and what of it all cannot be answered: a profile is worth its table even then.
    fn lines(&self) -> Result<(Vec<String>, Option<Failed>), Failed> {
        if let Some(symbol) = &self.explain {
            return Ok((profile::explain(symbol, self.rules.as_deref(), self.json)?, None));
        }
        self.clock_ghz.map(device::checked_ghz).transpose()?;
        let mut left_out = Vec::new();
        let (report, questions) = match (&self.profile, &self.scheduler) {
            (Some(path), _) => {
                let (report, question) = self.profiled(path)?;
                (Some(report), question.into_iter().collect())
            }
            (None, Some(address)) => {
                let live = self.live(address)?;
                left_out = live.left_out;
                (None, live.questions)
            }
            (None, None) => (None, self.filed()?),
        };
        let (mut answers, mut failed) = (Vec::new(), None);
        for question in questions {
            match self.answers(question, &mut left_out) {
                Ok(own) => answers.extend(own),
                Err(problem) if report.is_some() => failed = Some(Failed::from(problem)),
                Err(problem) => return Err(problem.into()),
            }
        }
        if let Some(path) = &self.report {
            let page = page::of(&answers, report.as_ref(), &left_out).html();
            let written = std::fs::write(path, page);
            let unwritten = |error| Failed(EXIT_FAILED, format!("{}: {error}", path.display()));
            written.map_err(unwritten)?;
        }
        if self.json {
            let single = answers.len() == 1;
            let output = Output {
                single: if single { answers.pop() } else { None },
                answers,
                profile: report,
                left_out,
            };
            let text = serde_json::to_string_pretty(&output);
            let text = text.map_err(|error| error.to_string())?;
            return Ok((vec![text], failed));
        }
        let mut lines = report.as_ref().map(profile::lines).unwrap_or_default();
        let beside = show::devices(&answers);
        if !lines.is_empty() && !beside.is_empty() {
            lines.push(String::new());
        }
        lines.extend(beside);
        for answer in &answers {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(show::lines(answer));
        }
        lines.extend(left_out.iter().map(|why| format!("left out: {why}")));
        Ok((lines, failed))
    }

    /// The questions that a scheduler's counts bear out, under the flags.
    fn live(&self, address: &Address) -> Result<scheduler::Live, Failed> {
        let asked = scheduler::Asked {
            address,
            last: self.last.into(),
            op: self.op.as_deref(),
            clock_ghz: self.clock_ghz,
            has_profiles: !self.device.is_empty(),
        };
        let live = scheduler::questions(&asked);
        let mut live = live.map_err(|problem| Failed(EXIT_FAILED, problem))?;
        for question in &mut live.questions {
            self.overrule(question)?;
        }
        Ok(live)
    }

    /// The questions of the file, under the flags.
    fn filed(&self) -> Result<Vec<Question>, String> {
        let path = self.file.as_deref().ok_or("--file or --profile is missing")?;
        let mut questions = questions_of(path)?;
        for question in &mut questions {
            self.overrule(question)?;
        }
        Ok(questions)
    }

    fn profiled(&self, path: &Path) -> Result<(profile::Report, Option<Question>), String> {
        let read = profile::read(path, self.rules.as_deref())?;
        let report = profile::Report::new(&read);
        let Some(kernel) = &self.kernel else { return Ok((report, None)) };
        let threading = self.threading.as_deref().unwrap_or(Threading::Async.name());
        let mut question = profile::question(&read, kernel, threading)?;
        self.overrule(&mut question)?;
        if let Some(cycles) = self.cycles {
            profile::put_cycles(&mut question, cycles);
        }
        if let Some(calls) = self.calls {
            profile::put_calls(&mut question, calls);
        }
        if question.stated(model::Symbol::N).is_some()
            && question.stated(model::Symbol::C).is_none()
        {
            let how = "--cycles says how many the host spent while the sizes were counted";
            return Err(format!("the profile has no cycles (C): {how}"));
        }
        if question.stated(model::Symbol::N).is_some() {
            question.notes.push(profile::ONE_WHILE.to_owned());
        }
        if question.stated(model::Symbol::N).is_some() && question.devices.is_empty() {
            return Err("what an offload costs is unknown (o0, L, A): --device NAME".to_owned());
        }
        Ok((report, Some(question)))
    }

    /// What the flags say in place of the file.
    fn overrule(&self, question: &mut Question) -> Result<(), String> {
        let bad = |error: model::BadParameter| error.to_string();
        if let Some(word) = &self.strategy {
            question.put_at(word.parse::<Strategy>().map_err(bad)?);
        }
        if let Some(word) = &self.threading {
            question.design.threading = word.parse::<Threading>().map_err(bad)?;
        }
        if let Some(word) = &self.variant {
            question.design.variant = word.parse::<Variant>().map_err(bad)?;
        }
        if let Some(path) = &self.sizes {
            let read = sizes_of(path, self.op.as_deref())?;
            let source = Some(format!("{}, {}", path.display(), read.what));
            let (histogram, provenance) = (read.sizes, read.provenance);
            question.sizes = Some(Sizes { histogram, provenance, source });
            question.notes.extend(read.notes);
            question.op = read.op.unwrap_or_else(|| question.op.clone());
        }
        if let Some(ghz) = self.clock_ghz {
            (question.clock_ghz, question.clock_source) = (Some(ghz), "as stated");
        }
        if let Some(op) = &self.op {
            question.op.clone_from(op);
        }
        question.devices.extend(self.device.iter().cloned());
        Ok(())
    }

    /// As asked, and for each device; for devices alone where only they have costs. Of all devices, those that do not
    /// know the work are left out.
    fn answers(
        &self,
        mut question: Question,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<Answer>, String> {
        let mut answers = Vec::new();
        if question.is_share_alone() && !question.devices.is_empty() {
            let devices = std::mem::take(&mut question.devices).join(", ");
            question.notes.push(format!("{devices}: what it costs depends on the sizes (--sizes)"));
        }
        let has_costs = question.given.contains_key(&model::Symbol::L);
        let devices = std::mem::take(&mut question.devices);
        let mut on_devices = Vec::new();
        for name in &devices {
            if name != ALL {
                on_devices.push(device::with_device(&question, name)?);
                continue;
            }
            for name in device::all_that_offload() {
                match device::with_device(&question, &name) {
                    Ok(own) => on_devices.push(own),
                    Err(why) => left_out.push(why),
                }
            }
        }
        if !devices.is_empty() && on_devices.is_empty() {
            return Err(std::mem::take(left_out).join("; "));
        }
        if devices.is_empty() || has_costs {
            answers.push(ask(question, self.seed)?);
        }
        for question in on_devices {
            answers.push(ask(question, self.seed)?);
        }
        Ok(answers)
    }
}

/// In place of a device's name: every profile.
const ALL: &str = "all";

/// The specs that are compiled in.
pub(crate) const SPECS: [(&str, &str); 4] = [
    (
        "accelerometer-validation",
        include_str!("../../../specs/profiles/accelerometer-validation.toml"),
    ),
    (
        "accelerometer-recommendations",
        include_str!("../../../specs/profiles/accelerometer-recommendations.toml"),
    ),
    (
        "accelerometer-breakdowns",
        include_str!("../../../specs/profiles/accelerometer-breakdowns.toml"),
    ),
    ("accelerometer-sizes", include_str!("../../../specs/profiles/accelerometer-sizes.toml")),
];

/// The answers to a compiled-in spec's questions.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn answers_of_spec(text: &str) -> Result<Vec<Answer>, String> {
    let questions = file::read(text, None)?;
    questions.into_iter().map(|question| ask(question, 1)).collect()
}

fn questions_of(path: &Path) -> Result<Vec<Question>, String> {
    let shown = path.display().to_string();
    let placed = |problem: String| format!("{shown}: {problem}");
    if let Some((_, text)) = SPECS.iter().find(|(name, _)| *name == shown) {
        return file::read(text, None).map_err(placed);
    }
    let text = text_of(path)?;
    if program::is_nine_lines(&text) {
        return Ok(vec![program::read(&text, &shown).map_err(placed)?]);
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    file::read(&text, Some(folder)).map_err(placed)
}

/// The sizes in a file; those of an op, where they are by op.
fn sizes_of(path: &Path, op: Option<&str>) -> Result<sizes::Read, String> {
    let text = text_of(path)?;
    sizes::read(&text, op).map_err(|problem| format!("sizes {}: {problem}", path.display()))
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let read = read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

const FILE_BYTES_MAX: u64 = 4 << 20;

const EXAMPLES: &str = "Examples:
  rebate model --file accelerometer-recommendations
  rebate model --file parameters.toml --json
  rebate model --file parameters.txt --variant public-program
  rebate model --file parameters.toml --sizes sizes.txt --device iaa --device qat-4xxx
  perf script -i perf.data | rebate model --profile - --kernel Compression
  rebate model --profile - --kernel Compression --sizes sizes.txt --clock-ghz 2.5 --device all
  rebate model --profile a.folded --kernel Compression --sizes sizes.txt --cycles 2.3e9 --clock-ghz 2.3 --device iaa
  rebate model --scheduler 127.0.0.1:7004 --last 10m
  rebate model --scheduler 127.0.0.1:7004 --op compress --device qat-4xxx
  rebate model --explain ZSTD_compressBlock_fast";
