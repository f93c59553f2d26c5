//! `rebate top`: watches a server and shows what it does, once an interval. It reads memcached's pages of statistics,
//! so it works with every server that clients reach, and with memcached itself. It changes nothing on the server.

mod show;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use load::{Address, Dictionaries, Sample, View};
use units::Nanos;

use crate::client::Client;
use crate::connect::{ConnectFlags, Connector};
use crate::terminal::{CliError, print_line, stop_on_signal};
use show::{History, Screen};

/// The flags of `rebate top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// Server of Rebate, or memcached.
    #[arg(value_name = "ADDRESS")]
    address: Address,
    /// Time between two readings, 100ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Nanos,
    /// Number of readings that are shown. Without it, the command runs until Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one line of JSON for each reading.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectFlags,
}

impl Top {
    /// Runs the command. The exit code is 0 at the end or after Ctrl-C, 1 if the server cannot be reached, and 2 for
    /// bad usage.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let connector = self.connect.connector()?;
        let stop = stop_on_signal()?;
        let mut client = Some(Client::open(&self.address, &connector)?);
        let mut before = sample(client.as_mut().expect("just opened"))?;
        let mut screen = Screen::new(std::io::stdout().is_terminal() && !self.json);
        let mut history = History::default();
        let mut left = self.count;
        while left != Some(0) && wait(self.interval.into(), &stop) {
            match self.reading(&mut client, &connector) {
                Ok(after) => {
                    let view = View::between(&before, &after);
                    before = after;
                    history.add(&view);
                    self.show(&mut screen, &view, &history)?;
                }
                // Whoever watches a server wants to see it come back.
                Err(error) if left.is_none() => {
                    client = None;
                    screen.show(&[error.to_string(), "trying again".to_owned()]);
                }
                Err(error) => return Err(error),
            }
            left = left.map(|count| count - 1);
        }
        Ok(())
    }

    /// Reads the server's statistics, on a new connection if the last one has failed.
    fn reading(
        &self,
        client: &mut Option<Client>,
        connector: &Connector,
    ) -> Result<Sample, CliError> {
        let open = match client.take() {
            Some(open) => open,
            None => Client::open(&self.address, connector)?,
        };
        sample(client.insert(open))
    }

    fn show(&self, screen: &mut Screen, view: &View, history: &History) -> Result<(), CliError> {
        if self.json {
            print_line(&serde_json::to_string(view).map_err(CliError::failed)?);
        } else {
            screen.show(&show::lines(&self.address.to_string(), view, history));
        }
        Ok(())
    }
}

fn sample(client: &mut Client) -> Result<Sample, CliError> {
    let general = client.stats("")?.unwrap_or_default();
    let rebate = client.stats("rebate")?;
    let dictionaries =
        if rebate.is_some() { client.dictionaries()? } else { Dictionaries::default() };
    let rebate = rebate.unwrap_or_default();
    Ok(Sample::new(general.into_iter().collect(), rebate.into_iter().collect(), dictionaries))
}

/// Waits, and returns false if the user has ended the command meanwhile.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match end.checked_duration_since(Instant::now()) {
            None => return true,
            Some(left) => std::thread::sleep(left.min(LOOK_EVERY)),
        }
    }
}

fn interval(text: &str) -> Result<Nanos, String> {
    let found: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if (Nanos::millis(100)..=Nanos::secs(3_600)).contains(&found) {
        Ok(found)
    } else {
        Err("an interval has 100ms to 1h".to_owned())
    }
}

/// The longest time after which a signal ends the command.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  rebate top 127.0.0.1:11211
  rebate top cache-1 --interval 10s
  rebate top 127.0.0.1:11211 --count 1 --json";
