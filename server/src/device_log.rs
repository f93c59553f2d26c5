//! Tells the log when a device leaves service and when it serves again, which the runtime, a library without a log,
//! only counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use runtime::Metrics;

/// The runtimes of all workers.
type Runtimes = RwLock<Vec<Arc<Metrics>>>;

/// What the runtimes have counted of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Times that a worker retired it.
    retired: u64,
    /// Times that a worker took it into service again.
    restored: u64,
    /// Jobs that it kept too long.
    timeouts: u64,
}

/// Compares the counts once a second, for as long as it is polled.
pub(crate) async fn run(runtimes: &Runtimes) {
    let mut last = HashMap::new();
    loop {
        for (device, now) in counts(runtimes) {
            let before = last.insert(device.clone(), now).unwrap_or_default();
            if let Some(line) = warning(before, now) {
                tracing::warn!(device, "{line}");
            }
            if now.restored > before.restored {
                tracing::info!(device, "a worker uses the device again");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn counts(runtimes: &Runtimes) -> HashMap<String, Counts> {
    let mut sums: HashMap<String, Counts> = HashMap::new();
    for runtime in runtimes.read().iter() {
        for (device, retired, timeouts) in runtime.losses() {
            let sum = sums.entry(device).or_default();
            (sum.retired, sum.timeouts) = (sum.retired + retired, sum.timeouts + timeouts);
        }
        for (device, _, restored) in runtime.probes() {
            sums.entry(device).or_default().restored += restored;
        }
    }
    sums
}

/// What to say of a device that left service since the counts were `before`.
fn warning(before: Counts, now: Counts) -> Option<String> {
    if now.retired == before.retired {
        return None;
    }
    let why = match now.timeouts - before.timeouts {
        0 => "its results were wrong, its jobs failed, or it was lost".to_owned(),
        jobs => format!("it kept {jobs} jobs too long"),
    };
    Some(format!("a worker no longer uses the device: {why}; it is tried again from time to time"))
}

const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_retirement_is_told() {
        let before = Counts { retired: 1, restored: 0, timeouts: 2 };
        assert_eq!(warning(before, before), None);
        let hung = Counts { retired: 2, timeouts: 5, ..before };
        assert!(warning(before, hung).is_some_and(|line| line.contains("3 jobs too long")));
        let wrong = Counts { retired: 2, ..before };
        assert!(warning(before, wrong).is_some_and(|line| line.contains("wrong")));
    }
}
