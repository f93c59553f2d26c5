//! Runs a serving process: it starts the server, prints its addresses, obeys signals and drains. SIGTERM, SIGINT and
//! SIGUSR1 drain the server. A second signal ends the process at once. SIGHUP reads the certificates and the
//! configuration again. The old configuration stays if the new one is wrong or would need a restart. A server that can
//! no longer do its work is also drained, and the process ends with a failure, so that its supervisor starts another.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use server::config::{Config, ConfigError, Loaded, Services, TLS_PREFIX, diff_for_reload};
use server::{Platform, Server, ServerHandle};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::supervisor::{self, Supervisor};
use crate::terminal::print_line;
use crate::{devices, log, os};

/// The files from which other programs learn about a running server.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// The file for the process's id.
    pub(crate) pidfile: Option<PathBuf>,
    /// Whether the file is removed when the process ends.
    pub(crate) remove_pidfile: bool,
    /// The file for the ports, one per line, in memcached's form.
    pub(crate) port_file: Option<PathBuf>,
}

/// The reason why a server ended without a signal.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// The server could not start, for this reason.
    NotStarted(String),
    /// The server could no longer do its work. The log has the reason.
    Ended,
}

/// Serves until a signal ends it. `reload` reads the sources of the configuration again.
///
/// # Errors
/// The server could not start, or it ended without a signal.
pub(crate) fn serve(
    loaded: Loaded,
    reload: impl Fn() -> Result<Loaded, Vec<ConfigError>>,
    handover: &Handover,
) -> Result<(), ServeError> {
    // Keeps large blocks in the heap, because every request allocates and frees values and messages. On systems without
    // glibc the heap stays as it is.
    let _ = drivers::heap::keep_large_blocks();
    let mut signals = stop_signals()
        .map_err(|error| ServeError::NotStarted(format!("cannot handle signals: {error}")))?;
    let mut config = loaded.config;
    let devices = devices::open(&config).map_err(ServeError::NotStarted)?;
    let devices = devices.qualified(config.runtime.compression.len());
    let sockets = supervisor::sockets().map_err(ServeError::NotStarted)?;
    let running = Server::start_on(PLATFORM, sockets, config.clone(), devices)
        .map_err(|error| ServeError::NotStarted(error.to_string()))?;
    announce(&running, &config, handover);
    let supervisor = Supervisor::default();
    supervisor.ready(&client_addresses(&running, &config), running.health());
    // The loop below ends with a signal, or when the server can no longer do its work.
    let handle = signals.handle();
    running.on_failure(Box::new(move || handle.close()));
    for signal in signals.forever() {
        if signal != SIGHUP {
            tracing::info!("draining");
            break;
        }
        supervisor.reloading();
        running.reload_access();
        running.reload_logins();
        running.reload_value_keys();
        running.reload_certificates();
        match reload() {
            Ok(new) => {
                new.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                supervisor.reloaded(&apply(&running, &mut config, new.config));
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!("not reloaded: {error}");
                }
                running.reload_failed();
                let first = errors.first().map(ToString::to_string).unwrap_or_default();
                supervisor.reloaded(&format!("not reloaded: {first}"));
            }
        }
    }
    let failure = running.failure();
    if let Some(what) = &failure {
        tracing::error!("{what}: draining, then this process ends");
    }
    let limit = Duration::from_millis(config.server.drain_timeout_ms);
    supervisor.stopping(limit + Duration::from_millis(config.store.save_timeout_ms) + ENDING);
    let drained = running.drain(limit);
    if let (Some(path), true) = (&handover.pidfile, handover.remove_pidfile)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!("could not remove the pid file {}: {error}", path.display());
    }
    if !drained {
        tracing::warn!("requests were cut off after {} ms", config.server.drain_timeout_ms);
    }
    if failure.is_some() { Err(ServeError::Ended) } else { Ok(()) }
}

/// Returns the process's environment. Variables that are not UTF-8 are skipped.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Registers the stop signals. The caller handles the first signal, and a second signal ends the process.
fn stop_signals() -> std::io::Result<Signals> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGUSR1] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stopping))?;
        flag::register(signal, Arc::clone(&stopping))?;
    }
    Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])
}

/// Returns the addresses for clients of all kinds.
fn client_addresses(running: &ServerHandle, config: &Config) -> Vec<String> {
    let tcp = [
        running.addresses(),
        running.thrift_addresses(),
        running.grpc_addresses(),
        running.program_addresses(),
    ];
    let tcp = tcp.into_iter().flatten().map(ToString::to_string);
    let server = &config.server;
    let unix = server.unix_socket.iter().chain(&server.near_listen).chain(&server.lane_listen);
    tcp.chain(unix.map(|path| path.display().to_string())).collect()
}

/// Prints the addresses. The admin address is printed first, so that a program that waits for `listening on` has read
/// it.
fn announce(running: &ServerHandle, config: &Config, handover: &Handover) {
    let shown = |address: SocketAddr| {
        let prefix = if running.is_tls(address) { TLS_PREFIX } else { "" };
        format!("{prefix}{address}")
    };
    if let Some(address) = running.admin_address() {
        print_line(&format!("admin on {}", shown(address)));
    }
    for address in running.grpc_addresses() {
        print_line(&format!("grpc on {}", shown(*address)));
    }
    for address in config.server.grpc_listen.iter().filter_map(|text| text.parse().ok()) {
        if let api::Address::Unix(_) = &address {
            print_line(&format!("grpc on {address}"));
        }
    }
    for address in running.thrift_addresses() {
        print_line(&format!("thrift on {}", shown(*address)));
    }
    for address in running.program_addresses() {
        print_line(&format!("programs on {}", shown(*address)));
    }
    if let Some(path) = &config.server.lane_listen {
        print_line(&format!("lane on {}", path.display()));
    }
    let frontend = Services::from_roles(&config.server.roles).frontend;
    if let Some(path) = config.server.near_listen.as_ref().filter(|_| frontend) {
        print_line(&format!("near on {}", path.display()));
    }
    let addresses = running.addresses();
    for address in addresses {
        print_line(&format!("listening on {}", shown(*address)));
    }
    if let Some(path) = config.server.unix_socket.as_ref().filter(|_| frontend) {
        print_line(&format!("listening on unix:{}", path.display()));
    }
    let warn = |path: &Path, error| tracing::warn!("could not write {}: {error}", path.display());
    if let Some(path) = &handover.port_file
        && let Err(error) = os::replace(path, "lck", &port_lines(addresses))
    {
        warn(path, error);
    }
    if let Some(path) = &handover.pidfile {
        match os::write_pidfile(path) {
            Ok(warning) => warning.iter().for_each(|text| log::line(text)),
            Err(error) => warn(path, error),
        }
    }
}

/// The functions of this platform that a server calls. They are in `drivers`, because they use foreign code.
const PLATFORM: Platform = Platform {
    watch_lane: Some(drivers::lane::watch),
    watch_near: Some(drivers::near::watch),
    trim_heap: drivers::heap::trim,
    release_program_pages: drivers::program::release_pages,
    train_dictionary: drivers::dictionary::train,
    profile_cpu: Some(drivers::profiler::profile),
    guard_key: drivers::secret::key,
};

fn port_lines(addresses: &[SocketAddr]) -> String {
    let line = |address: &SocketAddr| {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        format!("TCP {family}: {}\n", address.port())
    };
    addresses.iter().map(line).collect()
}

/// Applies a new configuration if that is possible. Returns what was done.
fn apply(running: &ServerHandle, config: &mut Config, new: Config) -> String {
    let done = match diff_for_reload(config, &new) {
        Ok(keys) if keys.is_empty() => "reloaded: nothing changed".to_owned(),
        Ok(keys) => {
            running.reload(new.clone());
            *config = new;
            format!("reloaded: {}", keys.join(", "))
        }
        Err(keys) => {
            let done = format!("not reloaded: {} cannot change without a restart", keys.join(", "));
            tracing::error!("{done}");
            running.reload_failed();
            return done;
        }
    };
    tracing::info!("{done}");
    done
}

/// How long a process that has drained and saved its items may take to end.
const ENDING: Duration = Duration::from_secs(10);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn port_lines_are_memcacheds() {
        let addresses = ["0.0.0.0:7", "[::]:8"].map(|text| text.parse().unwrap());
        assert_eq!(port_lines(&addresses), "TCP INET: 7\nTCP INET6: 8\n");
    }
}
