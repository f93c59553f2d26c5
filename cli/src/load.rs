//! `rebate load`: turns flags into a [`LoadSpec`], shows a progress bar, and prints the report as a table or JSON. The
//! crate `load` generates the load.

mod show;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use harness::Progress;
use load::{Address, LoadError, LoadSpec, Pace, Payload, Phase};
use serde::Deserialize;
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, PayloadClass, Preset, SizeDist, Weighting};

use crate::terminal::{CliError, byte_count, print_json, print_line, stop_on_signal};
use crate::tls::TlsFlags;

/// The flags of `rebate load`. A flag that is not given keeps the value of the preset or the default.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Load {
    /// Server: HOST:PORT, unix:/path or near:/path for memcached, grpc://HOST:PORT or grpc:///path for gRPC. With
    /// tls:// before HOST it uses TLS. Connections are distributed among several servers in turn.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Address>,
    #[command(flatten)]
    tls: TlsFlags,
    /// Requests per second, even if the server is slow [default: 1000].
    #[arg(long, value_name = "N", conflicts_with = "in_flight", allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Distribution of the gaps between requests [default: poisson].
    #[arg(long, value_enum, conflicts_with = "in_flight")]
    arrivals: Option<Gaps>,
    /// Requests in flight on each connection, instead of a fixed rate. This measures throughput, not latency.
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Total number of connections [default: 16].
    #[arg(short, long, value_name = "N")]
    connections: Option<usize>,
    /// Number of threads of the load generator [default: 1].
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Duration of the measurement [default: 10s].
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Duration of the load before the measurement [default: 1s].
    #[arg(long, value_name = "TIME")]
    warmup: Option<Nanos>,
    /// Workload: the name of a published workload, or a file in the same form (NAME.toml).
    #[arg(long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// Fraction of the requests that are gets; the others are sets [default: 0.9].
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    get_share: Option<f64>,
    /// Number of keys [default: 10000].
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Number of different values of each key; with 1, every set writes the same bytes [default: no limit].
    #[arg(long, value_name = "N")]
    versions: Option<u32>,
    /// Sizes of key names in bytes [default: 32].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    key_size: Option<SizeDist>,
    /// Zipf exponent of the keys' popularity; with 0, all keys are equally popular [default: 0.99].
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true)]
    zipf: Option<f64>,
    /// Sizes of values [default: 4KiB].
    #[arg(long, value_name = "SIZES", value_parser = sizes)]
    value_size: Option<SizeDist>,
    /// Whether the value sizes are distributed over calls or over bytes [default: calls].
    #[arg(long, value_enum)]
    weight_by: Option<WeightBy>,
    /// Maximum size of a value; larger values are cut to this size [default: 1000000].
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    value_size_max: Option<ByteCount>,
    /// Content of the values: html, json, numeric, random or repeat, or records as small values of real caches:
    /// record-json, record-session, record-protobuf or record-html [default: html].
    #[arg(long, value_name = "CLASS", conflicts_with = "corpus")]
    payload: Option<PayloadClass>,
    /// Use slices of the files in this directory as values.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Maximum number of requests in flight on a connection [default: 32].
    #[arg(long, value_name = "N", conflicts_with = "in_flight")]
    pipeline: Option<usize>,
    /// Maximum number of waiting requests; further requests are dropped and counted [default: 100000].
    #[arg(long, value_name = "N")]
    backlog: Option<usize>,
    /// Set the key after each get that misses, as a read-through client does.
    #[arg(long)]
    set_on_miss: bool,
    /// Do not store a value under every key before the load.
    #[arg(long)]
    no_prepopulate: bool,
    /// Do not compare the values that are read with the written values.
    #[arg(long)]
    no_verify: bool,
    /// Expiry time of the items in seconds; with 0, items never expire [default: 0].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    expiry: Option<i32>,
    /// Time limit of a request. Afterwards its connection is closed and opened again, or its gRPC call is
    /// cancelled. At the end, the load generator also waits this long for answers [default: 5s].
    #[arg(long, value_name = "TIME")]
    timeout: Option<Nanos>,
    /// Seed of the random draws. The same seed gives the same keys and bytes [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gaps {
    /// Exponential gaps, as from independent clients.
    Poisson,
    /// Equal gaps.
    Uniform,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WeightBy {
    /// Sizes are distributed over calls: each call counts once.
    Calls,
    /// Sizes are distributed over bytes: each call counts once per byte, so large sizes are more frequent.
    Bytes,
}

impl Load {
    /// Runs the load and reports it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        self.tls.apply()?;
        let spec = self.spec().map_err(CliError::Usage)?;
        let stop = stop_on_signal()?;
        let bar = Progress::new(BAR_STEPS);
        let result = load::run(&spec, |progress| advance(&bar, progress), &stop);
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
            show::lines(&report).iter().for_each(|line| print_line(line));
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
fn advance(bar: &Progress, progress: &load::Progress) {
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

SIZES is a size, a range MIN..MAX (all sizes are equally likely), or a distribution as in preset files:
  --value-size '{log-normal = {mean_bytes = 900.0, sigma = 1.0, min_bytes = 1, max_bytes = 65536}}'
Ctrl-C ends the run and prints the report so far. The exit code is 1 if values were wrong or no server answered.";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::terminal::flags;

    fn spec(line: &str) -> Result<LoadSpec, String> {
        flags::<Load>(&format!("127.0.0.1:1 {line}"))?.spec()
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
            let load = flags::<Load>(target).unwrap();
            assert_eq!(load.targets[0].to_string(), target);
        }
        let mixed = spec("grpc://127.0.0.1:1").unwrap().check().unwrap_err().to_string();
        assert!(mixed.contains("all grpc:// or none"), "{mixed}");
        assert!(flags::<Load>("http://127.0.0.1:1").is_err());
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
