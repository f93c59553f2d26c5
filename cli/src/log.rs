//! Logging to stderr: the level from the command line, or from RUST_LOG where that is set.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging at `level` (`warn`, `info`, `debug` or `trace`).
pub(crate) fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
