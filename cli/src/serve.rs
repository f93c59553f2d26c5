//! `rebate serve`: turns flags into the top layer of the configuration and starts the server.

use clap::{ArgAction, Args};
use server::config::{self, Sources};
use units::Codec;

use crate::devices::{DeviceFlags, flag};
use crate::process::{self, Handover, ServeError};
use crate::terminal::{CliError, print_line, warn};
use crate::{devices, log, os};

/// The flags of `rebate serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Services of this process: all, or any of frontend, compression, store, scheduler and programs.
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    role: Vec<String>,
    /// TCP address for memcached clients, HOST:PORT. With port 0, the system chooses a free port.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<String>,
    /// Address for gRPC clients: HOST:PORT, or the path of a Unix socket.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    grpc_listen: Vec<String>,
    /// Unix socket on which frontends of this host set up lanes (shared memory) to the compression service.
    #[arg(long, value_name = "PATH")]
    lane_listen: Option<String>,
    /// Unix socket on which clients of this host connect to exchange requests through shared memory.
    #[arg(long, value_name = "PATH")]
    near_listen: Option<String>,
    /// TCP address for Thrift clients (rpc/idl/memcached.thrift), HOST:PORT.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    thrift_listen: Vec<String>,
    /// Address for callers of the example service of programs, tls://HOST:PORT. Needs tls.cert_file.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    program_listen: Vec<String>,
    /// Only says what to write instead.
    #[arg(long, hide = true)]
    program_secrets: Option<String>,
    /// The old name of --program-listen.
    #[arg(long, hide = true, value_delimiter = ',')]
    trace_listen: Vec<String>,
    /// Only says what to write instead.
    #[arg(long, hide = true)]
    trace_secrets: Option<String>,
    /// Address of the scheduler that gets reports from this process and sends it parameters.
    #[arg(long, value_name = "ADDR")]
    scheduler: Option<String>,
    /// Unix socket for memcached clients. TCP is then off, unless --listen is also given.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// Address for HTTP requests of /metrics, /healthz, /readyz and /config.
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Store: `embedded`, `memcached://HOST[:PORT],...` (a ring), or `grpc://ADDR,...` (store services).
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Memory of the embedded store for items, such as 64MiB.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Maximum uncompressed size of an item, such as 1MiB.
    #[arg(long, value_name = "SIZE")]
    item_bytes_max: Option<String>,
    /// Compression: on; or read-only or off, which write values unchanged. All modes read compressed values.
    #[arg(long, value_name = "MODE")]
    compress: Option<String>,
    #[arg(long, value_name = "CODEC", help = codec_help())]
    codec: Option<String>,
    /// Compression effort: fast, default or high.
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// Handling of stored values that Rebate did not write: serve, or forbid (clients see a miss).
    #[arg(long, value_name = "WHAT")]
    foreign: Option<String>,
    /// Version of the frames of new values: 1, or 2, which is shorter and which older servers cannot read.
    #[arg(long, value_name = "N")]
    frame_version: Option<String>,
    /// Number of worker threads, each with an event loop.
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Number of additional threads for large values; 0 means none.
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Maximum number of client connections.
    #[arg(long, value_name = "N")]
    connections_max: Option<String>,
    /// Roles, identities and quotas of clients. If not given, every client may do everything.
    #[arg(long, value_name = "FILE")]
    access_file: Option<String>,
    /// Listen on addresses that other hosts reach, although every client may do everything.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    devices: DeviceFlags,
    /// Print the effective configuration with the origin of every key, and exit.
    #[arg(long)]
    print_config: bool,
    /// Check the configuration, and exit with 0 if it is valid or 2 if not.
    #[arg(long)]
    check_config: bool,
    /// Form of the log: text, or json with one object per line.
    #[arg(long, value_name = "FORM")]
    log_format: Option<String>,
    /// Least important lines of Rebate to log: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log more; give it twice to log everything. RUST_LOG overrides this flag.
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

fn codec_help() -> String {
    let [names @ .., last] = &Codec::NAMES;
    format!("Codec for new values: auto, {} or {last}", names.join(", "))
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
        server::access::check(&loaded.config).map_err(CliError::Usage)?;
        server::logins::check(&loaded.config).map_err(CliError::Usage)?;
        server::sealing::check(&loaded.config).map_err(CliError::Usage)?;
        if self.check_config {
            print_line("the configuration is valid");
            return Ok(());
        }
        let logged = &loaded.config.server;
        let level = logged.log_level.more(self.verbose);
        log::start(level.name(), self.verbose > 1, logged.log_format);
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
            ("--thrift-listen", "server.thrift_listen", &self.thrift_listen),
            ("--trace-listen", "traces.listen", &self.trace_listen),
            ("--program-listen", "programs.listen", &self.program_listen),
        ] {
            flags.extend((!list.is_empty()).then(|| flag(name, key, &list.join(","))));
        }
        for (name, key, value) in [
            ("--lane-listen", "server.lane_listen", &self.lane_listen),
            ("--near-listen", "server.near_listen", &self.near_listen),
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
            ("--frame-version", "values.frame_version", &self.frame_version),
            ("--threads", "server.threads", &self.threads),
            ("--workers", "runtime.workers", &self.workers),
            ("--connections-max", "server.connections_max", &self.connections_max),
            ("--access-file", "server.access_file", &self.access_file),
            ("--log-format", "server.log_format", &self.log_format),
            ("--log-level", "server.log_level", &self.log_level),
        ] {
            flags.extend(value.as_ref().map(|value| flag(name, key, value)));
        }
        flags.extend(self.insecure.then(|| flag("--insecure", "server.insecure", "true")));
        self.devices.sources(flags)
    }
}

const EXAMPLES: &str = "Examples:
  rebate serve
  rebate serve --memory 4GiB --listen 0.0.0.0:11211 --access-file access.toml --admin-listen 127.0.0.1:9150
  rebate serve --thrift-listen 127.0.0.1:9090
  rebate serve --store memcached://10.0.0.1,10.0.0.2:11212 --compress read-only
  rebate serve --config rebate.toml --set compress.level=high
  rebate serve --config rebate.toml --print-config
  rebate serve --role programs --program-listen tls://127.0.0.1:9300 --set tls.cert_file=server.pem

Every key can also be set as `section.key` in the file, as REBATE_SECTION__KEY in the environment, and with \
--set section.key=VALUE. Flags override the environment, and the environment overrides the file. \
SIGHUP reads the file and the environment again. SIGTERM completes the requests in flight and ends the server.";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Command, FromArgMatches};

    use super::*;

    /// Returns the flags and keys that `arguments` set.
    fn set_by(arguments: &[&str]) -> Vec<(String, String)> {
        let matches = Serve::augment_args(Command::new("serve")).get_matches_from(arguments);
        let serve = Serve::from_arg_matches(&matches).expect("the flags are valid");
        let flags = serve.sources().expect("no --set is given").flags;
        flags.into_iter().map(|flag| (flag.name, flag.key)).collect()
    }

    #[test]
    fn each_flag_sets_the_key_that_names_it() {
        let mut found = BTreeSet::new();
        for argument in Serve::augment_args(Command::new("serve")).get_arguments() {
            let Some(name) = argument.get_long().filter(|name| *name != "set") else { continue };
            let flag = format!("--{name}");
            let value = argument.get_action().takes_values().then_some("x");
            let arguments: Vec<&str> = ["serve", &flag].into_iter().chain(value).collect();
            // Old names are flags that are not shown.
            found.extend(set_by(&arguments).into_iter().filter(|_| !argument.is_hide_set()));
        }
        let flagged = config::keys().filter_map(|key| Some((key.flag?, key.name)));
        let listed: BTreeSet<_> =
            flagged.map(|(flag, key)| (flag.to_owned(), key.to_owned())).collect();
        assert_eq!(found, listed, "flags on the left, the tables of keys on the right");
    }
}
