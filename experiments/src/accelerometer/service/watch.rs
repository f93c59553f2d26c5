//! A breakdown of the time of a request. Throughput is measured without watching. A watched run gives the stages'
//! shares, from which the clock's own cost is subtracted.

use std::time::Instant;

/// A part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The load's choice of a request.
    Load,
    /// Parsing the request's line.
    Parse,
    /// The access to the table of items.
    KeyValue,
    /// Encryption and decryption.
    SecureIo,
    /// Checksums.
    Checksum,
    /// Compression, or the host's remaining part of it.
    Compress,
    /// Decompression, or the host's remaining part of it.
    Decompress,
    /// Composing the reply.
    Reply,
    /// The wait for completions while no more jobs may be in flight.
    Wait,
    /// The thread's sleep, which takes no time of the core.
    Blocked,
}

impl Stage {
    /// Every stage, in the order in which a request passes through them.
    pub(crate) const ALL: [Stage; 10] = [
        Stage::Load,
        Stage::Parse,
        Stage::KeyValue,
        Stage::SecureIo,
        Stage::Checksum,
        Stage::Compress,
        Stage::Decompress,
        Stage::Reply,
        Stage::Wait,
        Stage::Blocked,
    ];

    /// Returns the stage's name in figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Stage::Load => "load",
            Stage::Parse => "parse",
            Stage::KeyValue => "key-value store",
            Stage::SecureIo => "secure I/O",
            Stage::Checksum => "checksum",
            Stage::Compress => "compression",
            Stage::Decompress => "decompression",
            Stage::Reply => "reply",
            Stage::Wait => "wait",
            Stage::Blocked => "blocked",
        }
    }
}

/// Receives a notification at the end of each stage.
pub(crate) trait Watch {
    /// Counts the time since the last call as time of `stage`.
    fn lap(&mut self, stage: Stage);
}

/// A watch that ignores everything.
pub(crate) struct Off;

impl Watch for Off {
    fn lap(&mut self, _: Stage) {}
}

/// A watch that reads the clock at each lap.
pub(crate) struct Clock {
    last: Instant,
    stages: Stages,
}

impl Clock {
    /// Starts the first lap.
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), stages: Stages::default() }
    }

    /// Returns the time by stage, without the time of the clock itself.
    pub(crate) fn stages(&self) -> Stages {
        let cost_ns = cost_ns();
        let mut stages = self.stages;
        for (ns, laps) in stages.ns.iter_mut().zip(stages.laps) {
            *ns = (*ns - cost_ns * laps as f64).max(0.0);
        }
        stages
    }
}

impl Watch for Clock {
    fn lap(&mut self, stage: Stage) {
        let now = Instant::now();
        self.stages.ns[stage as usize] += now.duration_since(self.last).as_nanos() as f64;
        self.stages.laps[stage as usize] += 1;
        self.last = now;
    }
}

/// The time by stage (ns).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stages {
    ns: [f64; Stage::ALL.len()],
    laps: [u64; Stage::ALL.len()],
}

impl Stages {
    /// Returns the time of one stage (ns).
    pub(crate) fn ns(&self, stage: Stage) -> f64 {
        self.ns[stage as usize]
    }

    /// Returns how many times the stage has ended.
    pub(crate) fn laps(&self, stage: Stage) -> u64 {
        self.laps[stage as usize]
    }

    /// Scales the stages so that those on the core add up to `cpu_ns`. The stages then exclude the time in which the
    /// system ran other work.
    pub(crate) fn within(mut self, cpu_ns: f64) -> Self {
        self.ns[Stage::Blocked as usize] = 0.0;
        let all: f64 = self.ns.iter().sum();
        let clocks = cost_ns() * self.laps.iter().sum::<u64>() as f64;
        let scale = ((cpu_ns - clocks) / all.max(1.0)).min(1.0);
        self.ns.iter_mut().for_each(|ns| *ns *= scale);
        self
    }
}

/// Returns the time of one read of the clock (ns), as the median of many pairs of reads.
fn cost_ns() -> f64 {
    let mut pairs: [u64; 257] = std::array::from_fn(|_| {
        let first = Instant::now();
        Instant::now().duration_since(first).as_nanos() as u64
    });
    pairs.sort_unstable();
    pairs[128] as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_go_to_their_stage() {
        let mut clock = Clock::start();
        std::thread::sleep(std::time::Duration::from_millis(2));
        clock.lap(Stage::Blocked);
        let until = Instant::now() + std::time::Duration::from_millis(1);
        while Instant::now() < until {}
        clock.lap(Stage::Reply);
        let found = clock.stages();
        assert!(found.ns(Stage::Blocked) > 1e6 && found.ns(Stage::Reply) > 0.9e6);
        let within = found.within(0.5e6);
        assert_eq!(within.ns(Stage::Blocked), 0.0);
        assert!(within.ns(Stage::Reply) < 0.51e6 && within.ns(Stage::Load) == 0.0);
    }
}
