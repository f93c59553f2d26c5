//! `rebate load`: turns flags into a [`LoadSpec`], shows a progress bar, and prints the report as a table or JSON. The
//! crate `load` generates the load.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use harness::Progress;
use load::{Address, LoadError, LoadSpec, Pace, Payload, Phase};
use serde::Deserialize;
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, PayloadClass, Preset, SizeDist, Weighting};

use crate::terminal::{CliError, byte_count, print_json, print_line, stop_on_signal};

/// The flags of `rebate load`. A flag that is not given leaves the preset's or the default value.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Load {
    /// Where to: HOST:PORT or unix:/path, or for gRPC grpc://HOST:PORT or grpc:///path; connections are dealt out to
    /// several in turn.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Address>,
    /// Requests per second, whatever the server does [default: 1000].
    #[arg(long, value_name = "N", conflicts_with = "in_flight", allow_negative_numbers = true)]
    rate: Option<f64>,
    /// The gaps between requests [default: poisson].
    #[arg(long, value_enum, conflicts_with = "in_flight")]
    arrivals: Option<Gaps>,
    /// As fast as answers come, with this many requests in flight on each connection: for throughput, not latency.
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Connections in all [default: 16].
    #[arg(short, long, value_name = "N")]
    connections: Option<usize>,
    /// Threads of the generator [default: 1].
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// How long to measure [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// How long to load before measuring [default: 1s].
    #[arg(long, value_name = "TIME")]
    warmup: Option<Nanos>,
    /// A published workload by its name, or a file of one (NAME.toml).
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// The part of the requests that are gets; the others are sets [default: 0.9].
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    get_share: Option<f64>,
    /// How many keys there are [default: 10000].
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// How many different values each key gets in turn; 1 writes the same bytes every time [default: no limit].
    #[arg(long, value_name = "N")]
    versions: Option<u32>,
    /// Sizes of key names [default: 32].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    key_size: Option<SizeDist>,
    /// The Zipf exponent of the keys' popularity; 0 is uniform [default: 0.99].
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true)]
    zipf: Option<f64>,
    /// Sizes of values [default: 4KiB].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    value_size: Option<SizeDist>,
    /// What the value sizes count [default: calls].
    #[arg(long, value_enum)]
    weight_by: Option<WeightBy>,
    /// Larger values are cut to this [default: 1000000].
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    value_size_max: Option<ByteCount>,
    /// What values look like: html, json, numeric, random or repeat [default: html].
    #[arg(long, value_name = "CLASS", conflicts_with = "corpus")]
    payload: Option<PayloadClass>,
    /// Values are slices of the files in this directory.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Requests in flight on one connection at most [default: 32].
    #[arg(long, value_name = "N", conflicts_with = "in_flight")]
    pipeline: Option<usize>,
    /// Requests waiting for room on a connection at most; more are dropped and counted [default: 100000].
    #[arg(long, value_name = "N")]
    backlog: Option<usize>,
    /// Set the key after a get that missed, as a read-through client does.
    #[arg(long)]
    set_on_miss: bool,
    /// Do not set every key before the load.
    #[arg(long)]
    no_prepopulate: bool,
    /// Do not compare values with what was written.
    #[arg(long)]
    no_verify: bool,
    /// The expiry sent with sets (s); 0 is never [default: 0].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    expiry: Option<i32>,
    /// How long a request may take: then its connection is opened anew, or over gRPC the call cancelled. At the end,
    /// answers are waited for as long [default: 5s].
    #[arg(long, value_name = "TIME")]
    timeout: Option<Nanos>,
    /// The same seed asks for the same keys and bytes [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The report for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gaps {
    /// Exponential gaps: independent clients.
    Poisson,
    /// Equal gaps.
    Uniform,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WeightBy {
    /// Each call counts once.
    Calls,
    /// Large sizes come up more often: where the bytes are.
    Bytes,
}

impl Load {
    /// Runs the load and reports it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let spec = self.spec().map_err(CliError::Usage)?;
        let stop = stop_on_signal()?;
        let bar = Progress::new(BAR_STEPS);
        let result = load::run(&spec, |progress| show(&bar, progress), &stop);
        bar.end();
        let report = result.map_err(|error| match error {
            LoadError::BadSpec(_) | LoadError::BadSizes { .. } | LoadError::Corpus(_) => {
                CliError::usage(error)
            }
            error => CliError::failed(error),
        })?;
        if self.json {
            print_json(&report)?;
        } else {
            print_line(report.table().trim_end());
        }
        if report.wrong.count > 0 {
            return Err(CliError::Failed(format!("{} values read were wrong", report.wrong.count)));
        }
        let answered = report.get.answered + report.set.answered;
        if answered == 0 && !report.stopped_early {
            return Err(CliError::failed("no request was answered"));
        }
        Ok(())
    }

    fn spec(&self) -> Result<LoadSpec, String> {
        let mut spec = LoadSpec::new(self.targets.clone());
        if let Some(name) = &self.preset {
            spec.apply(&Preset::find(name).map_err(|error| error.to_string())?);
        }
        spec.pace = self.pace(spec.pace);
        put(&mut spec.connections, &self.connections);
        put(&mut spec.threads, &self.threads);
        put(&mut spec.duration, &self.duration);
        put(&mut spec.warmup, &self.warmup);
        put(&mut spec.get_share, &self.get_share);
        put(&mut spec.keys, &self.keys);
        put(&mut spec.versions, &self.versions);
        put(&mut spec.key_bytes, &self.key_size);
        put(&mut spec.zipf_alpha, &self.zipf);
        put(&mut spec.value_bytes, &self.value_size);
        put(&mut spec.weighting, &self.weight_by.map(Weighting::from));
        put(&mut spec.value_bytes_max, &self.value_size_max);
        put(&mut spec.payload, &self.payload.map(Payload::Class));
        put(&mut spec.payload, &self.corpus.clone().map(Payload::Corpus));
        put(&mut spec.pipeline_max, &self.pipeline);
        put(&mut spec.backlog_max, &self.backlog);
        put(&mut spec.exptime_s, &self.expiry);
        put(&mut spec.request_timeout, &self.timeout);
        put(&mut spec.seed, &self.seed);
        spec.set_on_miss = self.set_on_miss;
        spec.prepopulate = !self.no_prepopulate;
        spec.verify = !self.no_verify;
        Ok(spec)
    }

    fn pace(&self, default: Pace) -> Pace {
        match (self.in_flight, default) {
            (Some(depth), _) | (None, Pace::Closed { depth }) => Pace::Closed { depth },
            (None, Pace::Open { rate_per_s, arrivals }) => Pace::Open {
                rate_per_s: self.rate.unwrap_or(rate_per_s),
                arrivals: self.arrivals.map_or(arrivals, ArrivalKind::from),
            },
        }
    }
}

impl From<Gaps> for ArrivalKind {
    fn from(gaps: Gaps) -> Self {
        match gaps {
            Gaps::Poisson => ArrivalKind::Poisson,
            Gaps::Uniform => ArrivalKind::Uniform,
        }
    }
}

impl From<WeightBy> for Weighting {
    fn from(weight: WeightBy) -> Self {
        match weight {
            WeightBy::Calls => Weighting::Calls,
            WeightBy::Bytes => Weighting::Bytes,
        }
    }
}

/// Shows the progress of the load.
fn show(bar: &Progress, progress: &load::Progress) {
    bar.set_part(match progress.phase {
        Phase::Populate => "populate",
        Phase::WarmUp => "warm up",
        Phase::Measure => "measure",
    });
    bar.set_position((progress.fraction * BAR_STEPS as f64) as u64);
    bar.set_message(format!("{} answered, {} failed", progress.answered, progress.failed));
}

fn put<T: Clone>(field: &mut T, value: &Option<T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}

fn sizes(text: &str) -> Result<SizeDist, String> {
    #[derive(Deserialize)]
    struct Wrapped {
        sizes: SizeDist,
    }
    if text.trim_start().starts_with('{') {
        let wrapped: Result<Wrapped, _> = toml::from_str(&format!("sizes = {text}"));
        return wrapped.map(|wrapped| wrapped.sizes).map_err(|error| error.message().to_owned());
    }
    let bytes = |text: &str| byte_count(text).map_err(|error| error.to_string());
    match text.split_once("..") {
        Some((min, max)) => {
            Ok(SizeDist::Uniform { min_bytes: bytes(min)?.0, max_bytes: bytes(max)?.0 })
        }
        None => Ok(SizeDist::Fixed { bytes: bytes(text)?.0 }),
    }
}

const BAR_STEPS: u64 = 1_000;

const EXAMPLES: &str = "Examples:
  rebate load 127.0.0.1:11211
  rebate load 127.0.0.1:11211 --rate 20000 --duration 30s --value-size 64KiB --payload html
  rebate load 127.0.0.1:11211 --preset cachelib-cdn --set-on-miss --no-prepopulate --json
  rebate load 127.0.0.1:11211 --in-flight 8 --connections 32
  rebate load unix:/run/rebate.sock --value-size 100..10KiB --corpus ./pages
  rebate load grpc://127.0.0.1:50051 --rate 5000 --value-size 64KiB

Sizes are SIZE, MIN..MAX (every size alike), or a distribution as in preset files:
  --value-size '{log-normal = {mean_bytes = 900.0, sigma = 1.0, min_bytes = 1, max_bytes = 65536}}'
Ctrl-C ends the run and reports what was measured. Exit code 1: wrong bytes, or no server.";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        load: Load,
    }

    fn spec(flags: &str) -> Result<LoadSpec, String> {
        let line = format!("load 127.0.0.1:1 {flags}");
        let command = Command::try_parse_from(line.split_whitespace());
        command.map_err(|error| error.to_string())?.load.spec()
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        let expected = LoadSpec::new(vec!["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(format!("{:?}", spec("").unwrap()), format!("{expected:?}"));
    }

    #[test]
    fn flags_win_over_the_preset() {
        let spec = spec("--preset twitter-c12 --get-share 0.5 --value-size 1KiB").unwrap();
        assert_eq!((spec.get_share, spec.zipf_alpha), (0.5, 0.3048));
        assert_eq!(spec.value_bytes, SizeDist::Fixed { bytes: 1024 });
    }

    #[test]
    fn every_pace_and_size_has_a_flag() {
        let closed = spec("--in-flight 8").unwrap();
        assert_eq!(closed.pace, Pace::Closed { depth: 8 });
        let open = spec("--rate 5.5 --arrivals uniform --duration 1500ms").unwrap();
        let pace = Pace::Open { rate_per_s: 5.5, arrivals: ArrivalKind::Uniform };
        assert_eq!((open.pace, open.duration), (pace, Nanos::millis(1500)));
        let uniform = SizeDist::Uniform { min_bytes: 100, max_bytes: 10 << 10 };
        assert_eq!(sizes("100..10KiB").unwrap(), uniform);
        assert_eq!(sizes("{ fixed = { bytes = 7 } }").unwrap(), SizeDist::Fixed { bytes: 7 });
    }

    #[test]
    fn a_target_says_what_is_spoken_there() {
        for target in ["127.0.0.1:1", "unix:/run/a", "grpc://127.0.0.1:1", "grpc:///run/a"] {
            let command = Command::try_parse_from(["load", target]).unwrap();
            assert_eq!(command.load.targets[0].to_string(), target);
        }
        let mixed = spec("grpc://127.0.0.1:1").unwrap().check().unwrap_err().to_string();
        assert!(mixed.contains("all grpc:// or none"), "{mixed}");
        assert!(Command::try_parse_from(["load", "http://127.0.0.1:1"]).is_err());
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for flags in [
            "--rate 1 --in-flight 1",
            "--payload html --corpus .",
            "--value-size x",
            "--value-size {x}",
            "--duration 10",
            "--preset nonesuch",
            "--payload xml",
        ] {
            assert!(spec(flags).is_err(), "{flags}");
        }
    }
}
