//! The measurement of one case. In each round both sides, the watched slices and the microbenchmark take turns, so that
//! a change on the machine affects all of them.

use crate::accelerometer::service::{Calls, QUARTERS, Sample, Stage, Task, Team, What, switch_ns};
use model::Threading;

use super::cases::{Case, Per};
use super::estimate::{Call, Estimate, Unaccelerated, estimate, line};
use super::plan::Plan;
use super::sides::Sides;

/// The rounds of a case.
pub(super) struct Measurements {
    pub(super) case: Case,
    pub(super) rounds: Vec<Round>,
    /// The virtual devices in the path of the accelerated side.
    pub(super) virtuals: Vec<String>,
    /// The reason why the case is invalid, or None if it is valid.
    pub(super) invalid: Option<String>,
}

impl Measurements {
    /// Returns a case without rounds, with the reason why it has none.
    pub(super) fn nothing(case: &Case, why: String) -> Self {
        let (rounds, virtuals) = (Vec::new(), Vec::new());
        Self { case: case.clone(), rounds, virtuals, invalid: Some(why) }
    }
}

/// The measurements of one round.
pub(super) struct Round {
    /// The time of a request without acceleration (ns). `after_ns` is the time with acceleration.
    pub(super) before_ns: f64,
    pub(super) after_ns: f64,
    pub(super) estimate: Estimate,
    /// The time of a request by stage without acceleration (ns). It includes the other threads of the
    /// process. `after` is the time with acceleration.
    pub(super) before: Parts,
    pub(super) after: Parts,
    /// The time that the unaccelerated kernel adds to the rest of a request, measured by the microbenchmark (ns).
    pub(super) beside_ns: f64,
    /// The time of the microbenchmark's filler work, divided by the time of the work that it replaces.
    pub(super) filler: f64,
    /// The time of a watched request without acceleration, less the cost of the clock, divided by the time of an
    /// unwatched request.
    pub(super) watched: f64,
}

/// The time of a request by stage (ns). The last element is the time of the process's other threads.
pub(super) type Parts = [f64; Stage::ALL.len() + 1];

impl Round {
    /// Returns the throughput with acceleration divided by that without.
    pub(super) fn speedup(&self) -> f64 {
        self.before_ns / self.after_ns
    }
}

/// The number of slices in a round.
pub(super) const SLICES: usize = 9;

/// A case that is being measured.
pub(super) struct Bench<'a> {
    case: &'a Case,
    sides: Sides,
    slice_ns: f64,
}

impl<'a> Bench<'a> {
    /// Makes a bench of two sides that are ready.
    pub(super) fn new(case: &'a Case, sides: Sides, plan: Plan) -> Self {
        Self { case, sides, slice_ns: plan.slice.0 as f64 }
    }

    /// Measures all rounds. `tick` is called after each slice, and may end the run.
    ///
    /// # Errors
    /// A request or a job failed, or `tick` failed.
    pub(super) fn run(
        &self,
        rounds: usize,
        tick: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Measurements, String> {
        let mut counts = self.counts()?;
        let before = self.sides.counters();
        let mut found = Vec::new();
        for index in 0..rounds {
            let round = self.round(index as u64, &counts, tick)?;
            counts.follow(round.filler);
            found.push(round);
        }
        let emulated = before.zip(self.sides.counters()).map(|(before, after)| after.since(before));
        let invalid = emulated.filter(|counters| !counters.is_valid()).map(|counters| {
            format!("{:.2} % of the emulated jobs were late", 100.0 * counters.late_share())
        });
        let virtuals = self.sides.virtuals();
        Ok(Measurements { case: self.case.clone(), rounds: found, virtuals, invalid })
    }

    fn round(
        &self,
        index: u64,
        counts: &Counts,
        tick: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Round, String> {
        let seed = 1_000 + index;
        let mut sides = [0.0; 2];
        // The sides take turns at running first.
        for turn in [index as usize % 2, (index as usize + 1) % 2] {
            let task = Task { what: What::Serve, seed, count: counts.requests };
            (_, sides[turn]) = self.cost([&self.sides.a, &self.sides.b][turn], task)?;
            tick()?;
        }
        let [before_ns, after_ns] = sides;
        let watched = self.watch(&self.sides.a, counts.requests, seed)?;
        tick()?;
        let per = self.case.per;
        let before = parts(&watched, before_ns, per);
        let after = parts(&self.watch(&self.sides.b, counts.requests, seed)?, after_ns, per);
        tick()?;
        let filled = self.filled(counts, seed, tick)?;
        let host = unaccelerated(self.case, &watched, &before, filled.beside_ns());
        let call = self.call(&filled, counts, seed)?;
        tick()?;
        let estimate = estimate(host, call, &self.case.design)?;
        let stages = Stage::ALL.into_iter().map(|stage| watched.stages.ns(stage)).sum::<f64>();
        Ok(Round {
            before_ns,
            after_ns,
            estimate,
            before,
            after,
            beside_ns: filled.beside_ns(),
            filler: filled.without_ns / (before_ns - before[self.case.kernel.stage() as usize]),
            watched: stages / watched.count.max(1) as f64 / before_ns,
        })
    }

    /// Runs the microbenchmark: it makes the requests of this round, with filler work in place of the
    /// service. It runs without kernel calls, with the unaccelerated kernel, and with the accelerated kernel.
    fn filled(
        &self,
        counts: &Counts,
        seed: u64,
        tick: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Filled, String> {
        let (a, b) = (&self.sides.a, &self.sides.b);
        let (kernel, count) = (self.case.kernel, counts.requests);
        let task = |calls| {
            let what = What::Filled(kernel, counts.pieces_per_mib, calls);
            Task { what, seed, count }
        };
        let (_, without_ns) = self.cost(a, task(Calls::None))?;
        tick()?;
        let (_, software_ns) = self.cost(a, task(Calls::Made))?;
        tick()?;
        let (sample, accelerated_ns) = self.cost(b, task(Calls::Made))?;
        tick()?;
        let watched = a.run_alone(task(Calls::Watched))?;
        tick()?;
        let kernel_ns = parts(&watched, software_ns, self.case.per)[kernel.stage() as usize];
        let per_request = |value: f64| value / count.max(1) as f64;
        Ok(Filled {
            without_ns,
            software_ns,
            software_kernel_ns: kernel_ns,
            accelerated_ns,
            // The number is never zero: a slice that happens to call no kernel counts as a slice with very few calls.
            calls: per_request(sample.calls as f64).max(f64::MIN_POSITIVE),
            device_ns: sample.device_ns / sample.calls.max(1) as f64,
        })
    }

    /// Runs a task. Returns the sample and the cost per request or call (ns).
    fn cost(&self, team: &Team, task: Task) -> Result<(Sample, f64), String> {
        let (sample, elapsed_ns) = team.run(task)?;
        let ns = match self.case.per {
            Per::Thread => sample.cpu_ns,
            Per::Process => sample.process_ns,
            Per::Wall => elapsed_ns,
        };
        Ok((sample, ns / sample.count.max(1) as f64))
    }

    fn watch(&self, team: &Team, count: usize, seed: u64) -> Result<Sample, String> {
        team.run_alone(Task { what: What::Watch, seed, count: count.max(1) })
    }

    /// Returns the cost of a call of the accelerated kernel. If the core waits for the call, the kernel also
    /// runs alone on inputs of four sizes, to find the part of the cost that does not depend on the size.
    fn call(&self, filled: &Filled, counts: &Counts, seed: u64) -> Result<Call, String> {
        let host_ns = filled.host_ns();
        if self.case.design.threading == Threading::Sync {
            let mut points = Vec::new();
            for quarter in 0..QUARTERS {
                let what = What::Kernel(self.case.kernel, Some(quarter));
                let task = Task { what, seed, count: counts.calls };
                let (sample, ns) = self.cost(&self.sides.b, task)?;
                points.push((sample.bytes as f64 / sample.count as f64, ns));
            }
            let (fixed_ns, bytes_ns) = line(&points);
            let share = fixed_ns / (fixed_ns + bytes_ns);
            let bytes_ns = (host_ns * (1.0 - share)).max(f64::MIN_POSITIVE);
            return Ok(Call::Awaited { fixed_ns: host_ns * share, bytes_ns });
        }
        let switch_ns = match self.case.design.threading {
            Threading::SyncOs | Threading::AsyncDistinct => {
                switch_ns(self.sides.core, counts.filling(SWITCH_NS).min(SWITCHES_MAX))?
            }
            _ => 0.0,
        };
        Ok(Call::Beside { host_ns, switch_ns, device_ns: filled.device_ns })
    }

    /// Finds how many requests and calls fill a slice, and how much filler work replaces the service.
    fn counts(&self) -> Result<Counts, String> {
        let few = |what, count| Task { what, seed: 1, count };
        let slice_ns = self.slice_ns;
        let mut counts = Counts { slice_ns, requests: 0, calls: 0, pieces_per_mib: 0 };
        let (a, b) = (&self.sides.a, &self.sides.b);
        // Both sides make the same number of requests, watched or not, and draw the same requests. A watched slice
        // draws the requests of its seed, as the sides do if they have one thread.
        counts.requests = counts.filling(self.cost(a, few(What::Serve, FEW))?.1);
        let kernel = self.case.kernel;
        if self.case.design.threading == Threading::Sync {
            let what = What::Kernel(kernel, None);
            counts.calls = counts.filling(self.cost(b, few(what, FEW))?.1).div_ceil(QUARTERS);
        }
        // After this loop every input exists, and so does every result that an emulation needs.
        for team in [a, b] {
            let what = What::Filled(kernel, 0, Calls::Made);
            self.cost(team, few(what, FILLED_WARM_PER_KEY * self.case.mix.keys))?;
        }
        let (_, request_ns) = self.cost(a, few(What::Serve, counts.requests))?;
        let watched = self.watch(a, counts.requests, 1)?;
        let kernel_ns = parts(&watched, request_ns, self.case.per)[kernel.stage() as usize];
        counts.pieces_per_mib = self.pieces_per_mib(request_ns - kernel_ns, counts.requests)?;
        Ok(counts)
    }

    /// Returns the number of pieces of filler work per MiB that makes a request take `rest_ns`. This is the time of a
    /// request of the service without its kernel calls.
    fn pieces_per_mib(&self, rest_ns: f64, requests: usize) -> Result<u64, String> {
        let mut pieces = PIECES_FIRST;
        for _ in 0..PIECES_TRIES {
            let what = What::Filled(self.case.kernel, pieces as u64, Calls::None);
            let task = Task { what, seed: 1, count: requests };
            let (_, ns) = self.cost(&self.sides.a, task)?;
            pieces = (pieces * rest_ns / ns.max(1.0)).clamp(1.0, PIECES_MAX);
        }
        Ok(pieces as u64)
    }
}

/// The amount of work that fills a slice.
struct Counts {
    slice_ns: f64,
    requests: usize,
    /// The number of kernel calls in one quarter of the microbenchmark.
    calls: usize,
    /// The number of pieces of filler work for each MiB that a request reads.
    pieces_per_mib: u64,
}

impl Counts {
    /// Returns how many requests or calls fill a slice if each takes `each_ns`.
    fn filling(&self, each_ns: f64) -> usize {
        ((self.slice_ns / each_ns.max(1.0)) as usize).max(LEAST)
    }

    /// Divides the amount of filler work by the square root of `filler`, which is its time divided by the
    /// time of the work that it replaces. The root limits the effect of an outlier.
    fn follow(&mut self, filler: f64) {
        let times = filler.clamp(1.0 / FOLLOWED, FOLLOWED).sqrt();
        self.pieces_per_mib = ((self.pieces_per_mib as f64 / times) as u64).max(1);
    }
}

/// The cost of a request in the microbenchmark, with filler work in place of the service (ns).
struct Filled {
    /// The cost without the kernel.
    without_ns: f64,
    /// The cost with the unaccelerated kernel. `software_kernel_ns` is the kernel's part of it.
    software_ns: f64,
    software_kernel_ns: f64,
    /// The cost with the accelerated kernel.
    accelerated_ns: f64,
    /// The number of kernel calls per request.
    calls: f64,
    /// The time of a call that the device reports (ns).
    device_ns: f64,
}

impl Filled {
    /// Returns the time that the unaccelerated kernel adds to the rest of a request (ns), for example because
    /// it evicts data from the caches.
    fn beside_ns(&self) -> f64 {
        self.software_ns - self.without_ns - self.software_kernel_ns
    }

    /// Returns the whole cost of an accelerated call (ns).
    fn host_ns(&self) -> f64 {
        ((self.accelerated_ns - self.without_ns) / self.calls).max(0.0)
    }
}

/// Returns the average request of the unaccelerated run. The kernel's time is its stage in the watched
/// requests plus `beside_ns`, the time that it adds to the rest of a request.
fn unaccelerated(case: &Case, watched: &Sample, parts: &Parts, beside_ns: f64) -> Unaccelerated {
    let calls = (watched.calls as f64 / watched.count.max(1) as f64).max(f64::MIN_POSITIVE);
    let kernel_ns = (parts[case.kernel.stage() as usize] + beside_ns).max(f64::MIN_POSITIVE);
    Unaccelerated { request_ns: parts.iter().sum(), calls, kernel_ns }
}

/// Returns the time by stage of a watched request (ns). With [`Per::Process`] it includes the process's other threads.
/// A watched request takes longer than `request_ns`, because it reads the clock. This cost is subtracted first, with at
/// most [`LOOK_NS_MAX`] per read. The stages are then scaled so that they add up to `request_ns`, because the machine
/// causes the remaining difference.
fn parts(watched: &Sample, request_ns: f64, per: Per) -> Parts {
    let count = watched.count.max(1) as f64;
    let mut parts = [0.0; Stage::ALL.len() + 1];
    let mut laps = [0.0; Stage::ALL.len() + 1];
    for (index, stage) in Stage::ALL.into_iter().enumerate() {
        parts[index] = watched.stages.ns(stage) / count;
        laps[index] = watched.stages.laps(stage) as f64 / count;
    }
    if per == Per::Process {
        parts[Stage::ALL.len()] = (watched.process_ns - watched.cpu_ns).max(0.0) / count;
    }
    let excess_ns = parts.iter().sum::<f64>() - request_ns;
    let each_ns = (excess_ns / laps.iter().sum::<f64>()).clamp(0.0, LOOK_NS_MAX);
    for (part, laps) in parts.iter_mut().zip(laps) {
        *part = (*part - laps * each_ns).max(0.0);
    }
    let scale = request_ns / parts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    parts.map(|part| part * scale)
}

const FEW: usize = 300;
const LEAST: usize = 60;
/// The initial number of pieces of filler work per MiB. With it, a request processes each byte once.
const PIECES_FIRST: f64 = 1_024.0;
const PIECES_TRIES: usize = 5;
const PIECES_MAX: f64 = 1e9;
/// The greatest factor by which filler work may be off. A slice with a larger factor is an outlier.
const FOLLOWED: f64 = 4.0;
/// The number of warm-up requests per key. After the warm-up, few requests occur for the first time.
const FILLED_WARM_PER_KEY: usize = 5;
/// The greatest cost of reading the clock (ns). The read waits for all earlier instructions, and all later
/// instructions wait for the read.
const LOOK_NS_MAX: f64 = 80.0;
/// The approximate time of a thread switch (ns). It determines the number of switches in a slice.
const SWITCH_NS: f64 = 10e3;
const SWITCHES_MAX: usize = 2_000;
