//! Where the time of a request goes. Throughput is measured with nobody watching; a watched run tells shares, and the
//! clock's own cost is taken out of them.

use std::time::Instant;

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The load's: choosing a request.
    Load,
    /// Reading the command line.
    Parse,
    /// The table of items.
    KeyValue,
    /// Encryption and decryption.
    SecureIo,
    /// Checksums.
    Checksum,
    /// Compression, or what the host still does of it.
    Compress,
    /// Decompression, or what the host still does of it.
    Decompress,
    /// Composing the reply.
    Reply,
    /// Looking for completions while no more may be under way.
    Wait,
    /// The thread's own sleep: no time of the core.
    Blocked,
}

impl Stage {
    /// Every stage, in the order of a request.
    pub const ALL: [Stage; 10] = [
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

    /// As figures call it.
    pub const fn name(self) -> &'static str {
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

/// Who is told that a stage is over.
pub(crate) trait Watch {
    /// The time since the last call was this stage's.
    fn lap(&mut self, stage: Stage);
}

/// Nobody.
pub(crate) struct Off;

impl Watch for Off {
    fn lap(&mut self, _: Stage) {}
}

/// A clock read at each lap.
pub(crate) struct Clock {
    last: Instant,
    stages: Stages,
}

impl Clock {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self { last: Instant::now(), stages: Stages::default() }
    }

    /// What was found, without what the clock itself took.
    pub(crate) fn stages(&self) -> Stages {
        let cost_ns = cost_ns();
        let mut own = self.stages;
        for (ns, laps) in own.ns.iter_mut().zip(own.laps) {
            *ns = (*ns - cost_ns * laps as f64).max(0.0);
        }
        own
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

/// Time by stage (ns).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    ns: [f64; Stage::ALL.len()],
    laps: [u64; Stage::ALL.len()],
}

impl Stages {
    /// Of one stage (ns).
    pub fn of(&self, stage: Stage) -> f64 {
        self.ns[stage as usize]
    }

    /// How often it was over.
    pub fn laps(&self, stage: Stage) -> u64 {
        self.laps[stage as usize]
    }

    /// Scaled so that what took the core comes to `cpu_ns`: what the system ran in between is in no stage.
    pub fn within(mut self, cpu_ns: f64) -> Self {
        self.ns[Stage::Blocked as usize] = 0.0;
        let all: f64 = self.ns.iter().sum();
        let clocks = cost_ns() * self.laps.iter().sum::<u64>() as f64;
        let scale = ((cpu_ns - clocks) / all.max(1.0)).min(1.0);
        self.ns.iter_mut().for_each(|own| *own *= scale);
        self
    }
}

/// One look at the clock (ns): the median of many pairs.
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
    fn laps_go_to_their_stage_and_sleep_is_no_time_of_the_core() {
        let mut clock = Clock::start();
        std::thread::sleep(std::time::Duration::from_millis(2));
        clock.lap(Stage::Blocked);
        let until = Instant::now() + std::time::Duration::from_millis(1);
        while Instant::now() < until {}
        clock.lap(Stage::Reply);
        let found = clock.stages();
        assert!(found.of(Stage::Blocked) > 1e6 && found.of(Stage::Reply) > 0.9e6);
        let within = found.within(0.5e6);
        assert_eq!(within.of(Stage::Blocked), 0.0);
        assert!(within.of(Stage::Reply) < 0.51e6 && within.of(Stage::Load) == 0.0);
    }
}
