//! `rebate estimate`: tells what Rebate would save on the data of a live memcached. It turns flags into the planner's
//! options, opens connections, shows progress and prints. It writes nothing to the server.

mod page;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use experiments::added_time::Timer;
use harness::Progress;
use load::{Address, Protocol};
use planner::estimate::{BesideItems, Error, Options, Run, Source, estimate};
use server::HOT_VALUE_BYTES_MIN;
use server::config::{CompressConfig, ValuesConfig, convert};
use server::memory::embedded_trainer_bytes;
use units::{ByteCount, Nanos};

use crate::connect::ConnectFlags;
use crate::terminal::{
    CliError, byte_count, check_writable, print_json, print_line, stop_on_signal, warn, write_file,
};

/// The flags of `rebate estimate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Estimate {
    /// Server to read: HOST:PORT, tls://HOST:PORT or unix:/path. Nothing is written to it.
    #[arg(value_name = "ADDRESS", required_unless_present = "corpus")]
    address: Option<Address>,
    /// Read values from the files in this directory instead. The name of a file is its key.
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    corpus: Option<PathBuf>,
    /// Maximum number of values that are requested per second, 1 to 1000000.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Maximum number of bytes that are read per second, of the list of items and of values; at least 64KiB.
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = byte_rate)]
    byte_rate: ByteCount,
    /// Number of values that are read, 30 to 100000. Together they have at most 64 MiB.
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = value_parser!(u32).range(30..=100_000))]
    sample: u32,
    /// Time for which the clients' requests are watched, 1s to 10m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = watch_time)]
    seconds: Nanos,
    /// Seed of the sample and of the intervals [the same data gives the same sizes].
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Price of a GB of memory per month, in any currency.
    #[arg(long, value_name = "PRICE", value_parser = price, allow_hyphen_values = true)]
    price_gb_month: Option<f64>,
    /// Prefix of keys that are one class; can be repeated. Other keys are classed by their form.
    #[arg(long = "class", value_name = "PREFIX")]
    classes: Vec<String>,
    /// Also write the estimate to this file, as a page with figures.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectFlags,
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        match error {
            Error::Input(_) => Self::usage(error),
            Error::Failed(_) | Error::Stopped => Self::failed(error),
        }
    }
}

impl Estimate {
    /// Runs the command. The exit code is 0 for success, 1 if the server could not be read, and 2 for bad usage or
    /// input.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let options = self.options()?;
        let connector = self.connect.connector()?;
        let stop = stop_on_signal()?;
        let bar = Progress::new(BAR_STEPS);
        let mut progress = |progress: planner::estimate::Progress| {
            bar.set_part(progress.part);
            bar.set_position((progress.fraction * BAR_STEPS as f64) as u64);
            bar.set_message(progress.message);
        };
        let mut timer = Timer::new(self.classes.clone());
        let mut run = Run { stop: &stop, progress: &mut progress, timer: Some(&mut timer) };
        let found = match (&self.address, &self.corpus) {
            (Some(address), _) => {
                let connect = || connector.connect(address, READ_MAX);
                estimate(&Source::Server(&address.to_string(), &connect), &options, &mut run)
            }
            (None, Some(folder)) => estimate(&Source::Corpus(folder), &options, &mut run),
            (None, None) => return Err(CliError::usage("ADDRESS or --corpus is missing")),
        };
        bar.end();
        let found = found.map_err(|error| match (&error, &self.address) {
            (Error::Failed(_), Some(address)) => CliError::Failed(format!("{address}: {error}")),
            _ => CliError::from(error),
        })?;
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            warn("stopped early; the estimate is from what was read until then");
        }
        if self.json {
            print_json(&found)?;
        } else {
            show::lines(&found).iter().for_each(|line| print_line(line));
        }
        match &self.out {
            Some(path) => write_file("--out", path, page::report(&found).html()),
            None => Ok(()),
        }
    }

    fn options(&self) -> Result<Options, CliError> {
        if let Some(address) =
            self.address.as_ref().filter(|address| address.protocol == Protocol::Grpc)
        {
            return Err(CliError::Usage(format!(
                "{address}: only memcached's protocol lists items"
            )));
        }
        if let Some(path) = &self.out {
            check_writable("--out", path)?;
        }
        if let Some(class) = self.classes.iter().find(|class| class.is_empty()) {
            return Err(CliError::Usage(format!(
                "--class {class:?}: a prefix has at least 1 byte"
            )));
        }
        if self.classes.len() > CLASSES_MAX {
            let count = self.classes.len();
            return Err(CliError::Usage(format!("{count} times --class: at most {CLASSES_MAX}")));
        }
        Ok(Options {
            form: convert::form(&CompressConfig::default()),
            engines: drivers::ENGINES.to_vec(),
            values: self.sample as usize,
            requests_per_s: f64::from(self.rate),
            bytes_per_s: self.byte_rate.0 as f64,
            watch: self.seconds.into(),
            seed: self.seed,
            beside: BesideItems {
                hot_share: ValuesConfig::default().hot_share,
                hot_bytes_min: HOT_VALUE_BYTES_MIN,
                trainer_bytes: embedded_trainer_bytes,
            },
            price_gb_month: self.price_gb_month,
            prefixes: self.classes.clone(),
        })
    }
}

fn byte_rate(text: &str) -> Result<ByteCount, String> {
    let rate = byte_count(text).map_err(|error| error.to_string())?;
    if rate < BYTE_RATE_MIN {
        Err(format!("{rate} per second; at least {BYTE_RATE_MIN}"))
    } else {
        Ok(rate)
    }
}

fn watch_time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = match text.parse::<u64>() {
        Ok(seconds) => Nanos(seconds.saturating_mul(1_000_000_000)),
        Err(_) => text.parse().map_err(|error: units::NotATime| error.to_string())?,
    };
    if (WATCH_MIN..=WATCH_MAX).contains(&time) {
        Ok(time)
    } else {
        Err("valid are 1s to 10m".to_owned())
    }
}

fn price(text: &str) -> Result<f64, String> {
    let price: f64 = text.parse().map_err(|_| "a price is a number".to_owned())?;
    if price.is_finite() && price >= 0.0 {
        Ok(price)
    } else {
        Err("a price is 0 or more".to_owned())
    }
}

const BAR_STEPS: u64 = 1_000;
const BYTE_RATE_MIN: ByteCount = ByteCount::kib(64);
const WATCH_MIN: Nanos = Nanos::secs(1);
const WATCH_MAX: Nanos = Nanos::secs(600);

/// The most classes that can be named.
const CLASSES_MAX: usize = 32;

/// The longest read without bytes. Between two reads, a stop is noticed.
const READ_MAX: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "Examples:
  rebate estimate 10.0.0.1:11211
  rebate estimate 10.0.0.1:11211 --price-gb-month 3.5 --out estimate.html
  rebate estimate 10.0.0.1:11211 --rate 500 --byte-rate 1MiB --seconds 30s
  rebate estimate unix:/run/memcached.sock --class user: --class session: --json
  rebate estimate tls://cache-1:11211 --tls-ca ca.pem --auth-file users.txt
  rebate estimate --corpus ./values

Ctrl-C ends the reading; the estimate is then made from what was read. A second Ctrl-C ends the command.
The exit code is 1 if the server could not be read.";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::terminal::flags;

    fn parsed(line: &str) -> Result<Estimate, String> {
        flags(line)
    }

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        for (flag, expected) in [("5", 5), ("5s", 5), ("2m", 120)] {
            let command = parsed(&format!("127.0.0.1:1 --seconds {flag}")).unwrap();
            assert_eq!(command.seconds, Nanos::secs(expected));
        }
    }

    #[test]
    fn flags_out_of_range_are_refused() {
        for flags in [
            "",
            "127.0.0.1:1 --corpus .",
            "127.0.0.1:1 --rate 0",
            "127.0.0.1:1 --sample 5",
            "127.0.0.1:1 --seconds 0",
            "127.0.0.1:1 --seconds 11m",
            "127.0.0.1:1 --byte-rate 1k",
            "127.0.0.1:1 --price-gb-month -1",
            "127.0.0.1:1 --price-gb-month x",
        ] {
            assert!(parsed(flags).is_err(), "{flags}");
        }
    }

    #[test]
    fn a_page_without_a_folder_is_refused_at_once() {
        let error = parsed("127.0.0.1:1 --out /nonexistent/x.html").unwrap().options().unwrap_err();
        assert!(error.to_string().contains("--out /nonexistent"), "{error}");
        assert!(parsed("127.0.0.1:1 --out x.html").unwrap().options().is_ok());
    }

    #[test]
    fn only_memcached_can_be_read() {
        let error = parsed("grpc://127.0.0.1:1").unwrap().options().unwrap_err();
        assert!(error.to_string().contains("only memcached's protocol"), "{error}");
    }
}
