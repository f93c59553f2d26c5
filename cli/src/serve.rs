//! `rebate serve`: turns flags into the top layer of the configuration and starts the server.

use clap::{ArgAction, Args};
use server::config::{self, Sources};

use crate::devices::{DeviceFlags, flag};
use crate::process::{self, Handover, ServeError};
use crate::terminal::{CliError, print_line, warn};
use crate::{devices, log, os};

/// The flags of `rebate serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// The services of this process: all, or any of frontend, compression, store, scheduler, programs.
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    role: Vec<String>,
    /// Where memcached clients connect, HOST:PORT; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<String>,
    /// Where gRPC clients connect, HOST:PORT or the path of a Unix socket.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    grpc_listen: Vec<String>,
    /// A Unix socket where frontends on this host set up lanes to the compression service.
    #[arg(long, value_name = "PATH")]
    lane_listen: Option<String>,
    /// Where callers of the example service of programs connect, HOST:PORT; needs --program-secrets.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    program_listen: Vec<String>,
    /// The tenants of that service: a file of lines TENANT SECRET.
    #[arg(long, value_name = "FILE")]
    program_secrets: Option<String>,
    /// The old name of --program-listen.
    #[arg(long, hide = true, value_delimiter = ',')]
    trace_listen: Vec<String>,
    /// The old name of --program-secrets.
    #[arg(long, hide = true)]
    trace_secrets: Option<String>,
    /// The scheduler to report to and take parameters from.
    #[arg(long, value_name = "ADDR")]
    scheduler: Option<String>,
    /// A Unix socket for memcached clients; TCP is then off unless --listen is given too.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// HTTP for /metrics, /healthz, /readyz and /config.
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// `embedded`, `memcached://HOST[:PORT],...` for a ring of servers, or `grpc://ADDR,...` for store services.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Memory for items of the embedded store, such as 64MiB.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Largest item by its uncompressed size, such as 1MiB.
    #[arg(long, value_name = "SIZE")]
    item_bytes_max: Option<String>,
    /// on; read-only and off write values as they came. All read compressed values.
    #[arg(long, value_name = "MODE")]
    compress: Option<String>,
    /// auto, deflate, zstd or lz4 for new values.
    #[arg(long, value_name = "CODEC")]
    codec: Option<String>,
    /// fast, default or high.
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// Stored values that Rebate did not write: serve them, or forbid them (a miss).
    #[arg(long, value_name = "WHAT")]
    foreign: Option<String>,
    /// Event loops.
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Threads for large values; 0 for none.
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Client connections at most.
    #[arg(long, value_name = "N")]
    connections_max: Option<String>,
    #[command(flatten)]
    devices: DeviceFlags,
    /// Print the effective configuration with the origin of every key, and end.
    #[arg(long)]
    print_config: bool,
    /// Check the configuration and end: 0 if it can be served, 2 if not.
    #[arg(long)]
    check_config: bool,
    /// Log more; twice for everything. RUST_LOG wins.
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

impl Serve {
    /// Serves until a signal ends it.
    pub(crate) fn run(self) -> Result<(), CliError> {
        let sources = self.sources().map_err(CliError::Usage)?;
        let mut loaded = config::load(&sources).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            CliError::Usage(lines.join("\n"))
        })?;
        loaded.warnings.iter().for_each(|warning| warn(warning));
        if self.print_config {
            print_line(config::print(&loaded).trim_end());
            return Ok(());
        }
        devices::check(&loaded.config.runtime).map_err(CliError::Usage)?;
        server::traces::secrets(&loaded.config.programs)
            .map_err(|problem| CliError::Usage(format!("programs.secrets_file: {problem}")))?;
        if self.check_config {
            print_line("the configuration is valid");
            return Ok(());
        }
        let level = ["info", "debug", "trace"][usize::from(self.verbose.min(2))];
        log::start(level, self.verbose > 1);
        if let Some(warning) = os::fit_connections(&mut loaded.config) {
            tracing::warn!("{warning}");
        }
        let reload = || {
            let mut loaded = config::load(&sources)?;
            os::fit_connections(&mut loaded.config);
            Ok(loaded)
        };
        process::serve(loaded, reload, &Handover::default()).map_err(|error| match error {
            ServeError::NotStarted(problem) => CliError::Failed(problem),
            ServeError::Ended => CliError::Failed(String::new()),
        })
    }

    fn sources(&self) -> Result<Sources, String> {
        let mut flags = Vec::new();
        for (name, key, list) in [
            ("--role", "server.roles", &self.role),
            ("--listen", "server.listen", &self.listen),
            ("--grpc-listen", "server.grpc_listen", &self.grpc_listen),
            ("--trace-listen", "traces.listen", &self.trace_listen),
            ("--program-listen", "programs.listen", &self.program_listen),
        ] {
            flags.extend((!list.is_empty()).then(|| flag(name, key, &list.join(","))));
        }
        for (name, key, value) in [
            ("--lane-listen", "server.lane_listen", &self.lane_listen),
            ("--unix-socket", "server.unix_socket", &self.unix_socket),
            ("--admin-listen", "server.admin_listen", &self.admin_listen),
            ("--trace-secrets", "traces.secrets_file", &self.trace_secrets),
            ("--program-secrets", "programs.secrets_file", &self.program_secrets),
            ("--scheduler", "scheduler.address", &self.scheduler),
            ("--store", "store.url", &self.store),
            ("--memory", "store.memory", &self.memory),
            ("--item-bytes-max", "store.item_bytes_max", &self.item_bytes_max),
            ("--compress", "compress.mode", &self.compress),
            ("--codec", "compress.codec", &self.codec),
            ("--level", "compress.level", &self.level),
            ("--foreign", "compress.foreign", &self.foreign),
            ("--threads", "server.threads", &self.threads),
            ("--workers", "runtime.workers", &self.workers),
            ("--connections-max", "server.connections_max", &self.connections_max),
        ] {
            flags.extend(value.as_ref().map(|value| flag(name, key, value)));
        }
        self.devices.sources(flags)
    }
}

const EXAMPLES: &str = "Examples:
  rebate serve
  rebate serve --memory 4GiB --listen 0.0.0.0:11211 --admin-listen 127.0.0.1:9150
  rebate serve --store memcached://10.0.0.1,10.0.0.2:11212 --compress read-only
  rebate serve --config rebate.toml --set compress.level=high
  rebate serve --config rebate.toml --print-config
  rebate serve --role programs --program-listen 127.0.0.1:9300 --program-secrets secrets

Every key has three more names: `section.key` in the file, REBATE_SECTION__KEY in the environment, and \
--set section.key=VALUE. A flag wins over the environment, which wins over the file. \
SIGHUP reads file and environment again; SIGTERM drains.";
