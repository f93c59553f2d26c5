//! The devices of a process, tried before they serve: one that gives wrong bytes is not used at all, one that does not
//! answer is, since it costs time at most. Nothing of it is in the counters of jobs. Compression services are not
//! asked: they count whoever asks, and their own processes try the devices behind them; only that software stands in
//! for them is tried.

use std::time::{Duration, Instant};

use runtime::qualification::{qualify, qualify_fallback, withdrawn};

use crate::running::Devices;

impl Devices {
    /// The same devices, those withdrawn that did not qualify; the first behind software are `services` of other
    /// processes.
    #[must_use]
    pub fn qualified(mut self, services: usize) -> Self {
        let start = Instant::now();
        let Some((software, others)) = self.all.split_first_mut() else { return self };
        let mut names = Vec::new();
        for (index, device) in others.iter_mut().enumerate() {
            let name = device.name().to_owned();
            let tried = match index < services {
                true => qualify_fallback(device.capabilities(), software, PATIENCE),
                false => qualify(device, software, PATIENCE),
            };
            match tried {
                Ok(()) if index < services => names.push(format!("{name} (its fallback)")),
                Ok(()) => names.push(name),
                Err(problem) if problem.disqualifies() => {
                    tracing::error!("DEVICE NOT USED: {name}: {problem}; rebate doctor says more");
                    *device = withdrawn(device);
                }
                Err(problem) => tracing::warn!(
                    "{name} is not qualified: {problem}; it is used, and retired when it fails"
                ),
            }
        }
        if !names.is_empty() {
            let took_ms = start.elapsed().as_millis();
            tracing::info!("qualified in {took_ms} ms: {}", names.join(", "));
        }
        self
    }
}

/// For a device's round trip, and again for the way around it: ten times what they take, and no delay of a start that
/// anyone would notice.
const PATIENCE: Duration = Duration::from_millis(30);
