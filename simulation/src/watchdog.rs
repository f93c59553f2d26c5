//! Ends the process if a run does not end, as when a task never waits. Simulated time does not pass then.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Ends the process with 1 unless it is dropped in time.
pub struct Watchdog {
    _ended: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches the run of a seed.
    pub fn start(seed: u64, limit: Duration) -> Self {
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || {
            // Nothing is ever sent. The sender is dropped at the end of the run.
            if wait.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("WRONG: seed {seed} has not ended after {} s", limit.as_secs());
                eprintln!("Repeat it: scripts/simulate --seed {seed}");
                std::process::exit(1);
            }
        });
        Self { _ended: ended }
    }
}

/// The real time after which a run is taken to never end. It takes about a second; a loaded machine may stop for long.
pub const RUN_MAX: Duration = Duration::from_secs(300);
