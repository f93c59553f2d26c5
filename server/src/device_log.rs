//! Logs when workers stop using a device and when they use it again. The runtime is a library that does not
//! log; it only counts these events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use runtime::Metrics;

/// The runtimes of all workers.
type Runtimes = RwLock<Vec<Arc<Metrics>>>;

/// The runtimes' counts for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// The number of times that a worker lost the device, or retired it because it kept a job too long.
    lost: u64,
    /// The number of times that a worker retired the device for wrong results or failed jobs.
    distrusted: u64,
    /// The number of times that a worker took the device into service again.
    restored: u64,
}

/// Compares the counts once a second and logs changes, for as long as the future is polled.
pub(crate) async fn run(runtimes: &Runtimes) {
    let mut last = HashMap::new();
    loop {
        for (device, now) in counts(runtimes) {
            let before = last.insert(device.clone(), now).unwrap_or_default();
            if let Some(reason) = reason(before, now) {
                tracing::warn!(device, reason, "a worker no longer uses the device");
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
        for (device, lost, _) in runtime.losses() {
            sums.entry(device).or_default().lost += lost;
        }
        for (device, _, distrusted) in runtime.verified() {
            sums.entry(device).or_default().distrusted += distrusted;
        }
        for (device, _, restored) in runtime.probes() {
            sums.entry(device).or_default().restored += restored;
        }
    }
    sums
}

/// Returns why a worker stopped using a device between the counts `before` and `now`, if one did.
fn reason(before: Counts, now: Counts) -> Option<&'static str> {
    if now.distrusted > before.distrusted {
        return Some("too many of its results were wrong, or too many of its jobs failed");
    }
    (now.lost > before.lost).then_some("it was lost, or kept a job too long")
}

const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_retirement_is_told() {
        let before = Counts { lost: 1, distrusted: 1, restored: 1 };
        assert_eq!(reason(before, Counts { restored: 2, ..before }), None);
        let lost = reason(before, Counts { lost: 2, ..before });
        assert!(lost.is_some_and(|reason| reason.contains("lost")));
        let wrong = reason(before, Counts { distrusted: 2, ..before });
        assert!(wrong.is_some_and(|reason| reason.contains("wrong")));
    }
}
