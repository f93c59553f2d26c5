//! One case, measured: rounds in which both sides, what is watched and the microbenchmark take turns, so that whatever
//! changes on the machine changes for all of them.

use bench_service::{QUARTERS, Sample, Stage, Task, Team, What, switch_ns};
use model::Threading;

use super::cases::{Case, Per};
use super::estimate::{Call, Estimate, Unaccelerated, estimate, line};
use super::plan::Plan;
use super::sides::Sides;

/// What the rounds of a case came to.
pub(super) struct Found {
    pub(super) case: Case,
    pub(super) rounds: Vec<Round>,
    /// Virtual devices in the path of the accelerated side.
    pub(super) virtuals: Vec<String>,
    /// Why it does not hold.
    pub(super) invalid: Option<String>,
}

impl Found {
    /// Of a case that has no rounds, and why.
    pub(super) fn nothing(case: &Case, why: String) -> Self {
        let (rounds, virtuals) = (Vec::new(), Vec::new());
        Self { case: case.clone(), rounds, virtuals, invalid: Some(why) }
    }
}

/// One round.
pub(super) struct Round {
    /// A request without acceleration, and with it (ns).
    pub(super) before_ns: f64,
    pub(super) after_ns: f64,
    pub(super) estimate: Estimate,
    /// By stage, of a request (ns), and what other threads of the process took.
    pub(super) before: Parts,
    pub(super) after: Parts,
    /// A request without acceleration that is watched, the clock's cost taken out, over one that is not.
    pub(super) watched: f64,
}

/// Time of a request by stage (ns); the last is the other threads'.
pub(super) type Parts = [f64; Stage::ALL.len() + 1];

impl Round {
    /// Throughput with acceleration over that without.
    pub(super) fn speedup(&self) -> f64 {
        self.before_ns / self.after_ns
    }
}

/// Slices of a round.
pub(super) const SLICES: usize = 6;

/// A case under way.
pub(super) struct Bench<'a> {
    case: &'a Case,
    sides: Sides,
    slice_ns: f64,
}

impl<'a> Bench<'a> {
    /// Of both sides, ready.
    pub(super) fn new(case: &'a Case, sides: Sides, plan: Plan) -> Self {
        Self { case, sides, slice_ns: plan.slice.0 as f64 }
    }

    /// All rounds; `tick` is told of each slice, and may end the run.
    ///
    /// # Errors
    /// A request or a job that failed; what `tick` says.
    pub(super) fn run(
        &self,
        rounds: usize,
        tick: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Found, String> {
        let counts = self.counts()?;
        let before = self.sides.counters();
        let rounds: Result<Vec<Round>, String> =
            (0..rounds).map(|index| self.round(index as u64, &counts, tick)).collect();
        let emulated = before.zip(self.sides.counters()).map(|(before, after)| after.since(before));
        let invalid = emulated
            .filter(|own| !own.is_valid())
            .map(|own| format!("{:.2} % of the emulated jobs were late", 100.0 * own.late_share()));
        let virtuals = self.sides.virtuals();
        Ok(Found { case: self.case.clone(), rounds: rounds?, virtuals, invalid })
    }

    fn round(
        &self,
        index: u64,
        counts: &Counts,
        tick: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Round, String> {
        let seed = 1_000 + index;
        let serve = |team: &Team, count| {
            self.cost(team, Task { what: What::Serve, seed, count }).map(|(_, ns)| ns)
        };
        let mut sides = [0.0; 2];
        // Who is first alternates.
        for turn in [index as usize % 2, (index as usize + 1) % 2] {
            let team = [&self.sides.a, &self.sides.b][turn];
            sides[turn] = serve(team, counts.requests)?;
            tick()?;
        }
        let [before_ns, after_ns] = sides;
        let watched = self.watch(&self.sides.a, counts.requests, seed)?;
        tick()?;
        let per = self.case.per;
        let before = parts(&watched, before_ns, per);
        let after = parts(&self.watch(&self.sides.b, counts.requests, seed)?, after_ns, per);
        tick()?;
        let host = unaccelerated(self.case, &watched, before_ns);
        let stages = Stage::ALL.into_iter().map(|stage| watched.stages.of(stage)).sum::<f64>();
        let stages = stages / watched.count.max(1) as f64;
        let call = self.call(host, counts, seed)?;
        tick()?;
        let estimate = estimate(host, call, &self.case.design)?;
        tick()?;
        let watched = stages / before_ns;
        Ok(Round { before_ns, after_ns, estimate, before, after, watched })
    }

    /// A task, and what each of its requests or calls cost (ns).
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

    /// The microbenchmark: the accelerated kernel without the service.
    fn call(&self, host: Unaccelerated, counts: &Counts, seed: u64) -> Result<Call, String> {
        let kernel = self.case.kernel;
        if self.case.design.threading == Threading::Sync {
            let mut points = Vec::new();
            for quarter in 0..QUARTERS {
                let what = What::Kernel(kernel, Some(quarter));
                let task = Task { what, seed, count: counts.calls };
                let (sample, ns) = self.cost(&self.sides.b, task)?;
                points.push((sample.bytes as f64 / sample.count as f64, ns));
            }
            let (fixed_ns, bytes_ns) = line(&points);
            return Ok(Call::Awaited { fixed_ns, bytes_ns });
        }
        // As much other work as the service has for each call.
        let other_ns = (host.request_ns - host.kernel_ns) / host.calls;
        let pieces = (other_ns / counts.piece_ns).round().max(1.0) as u64;
        let count = counts.of(other_ns);
        let filled = |calls| {
            let task = Task { what: What::Filled(kernel, pieces, calls), seed, count };
            self.cost(&self.sides.b, task)
        };
        let (_, without_ns) = filled(false)?;
        let (sample, with_ns) = filled(true)?;
        let switch_ns = match self.case.design.threading {
            Threading::SyncOs | Threading::AsyncDistinct => {
                switch_ns(self.sides.core, counts.of(SWITCH_NS).min(SWITCHES_MAX))?
            }
            _ => 0.0,
        };
        let device_ns = sample.device_ns / sample.calls.max(1) as f64;
        Ok(Call::Beside { host_ns: (with_ns - without_ns).max(0.0), switch_ns, device_ns })
    }

    /// How many requests and calls fill a slice.
    fn counts(&self) -> Result<Counts, String> {
        let few = |what, count| Task { what, seed: 1, count };
        let mut counts = Counts { slice_ns: self.slice_ns, requests: 0, calls: 0, piece_ns: 0.0 };
        let (a, b) = (&self.sides.a, &self.sides.b);
        // As many on both sides, watched or not. Both sides draw the same ones; what is watched draws those of its
        // seed, as the sides do where they have one thread.
        counts.requests = counts.of(self.cost(a, few(What::Serve, FEW))?.1);
        if self.case.design.threading == Threading::Sync {
            let what = What::Kernel(self.case.kernel, None);
            counts.calls = counts.of(self.cost(b, few(what, FEW))?.1).div_ceil(QUARTERS);
        } else {
            let what = What::Filled(self.case.kernel, PIECES, false);
            let task = few(what, FEW);
            self.cost(b, task)?;
            counts.piece_ns = self.cost(b, task)?.1 / PIECES as f64;
        }
        Ok(counts)
    }
}

/// What fills a slice.
struct Counts {
    slice_ns: f64,
    requests: usize,
    /// Calls of the kernel in a quarter of the microbenchmark.
    calls: usize,
    /// A piece of other work (ns).
    piece_ns: f64,
}

impl Counts {
    /// So many that take so long each.
    fn of(&self, each_ns: f64) -> usize {
        ((self.slice_ns / each_ns.max(1.0)) as usize).max(LEAST)
    }
}

/// What the unaccelerated run says of a request. The kernel's share is that of what was watched.
fn unaccelerated(case: &Case, watched: &Sample, request_ns: f64) -> Unaccelerated {
    let count = watched.count.max(1) as f64;
    let kernel_ns = watched.stages.of(case.kernel.stage()) / count;
    // Never none: a slice that happens to call no kernel is one with a very cheap one.
    let calls = (watched.calls as f64 / count).max(f64::MIN_POSITIVE);
    Unaccelerated { request_ns, calls, kernel_ns: kernel_ns.max(f64::MIN_POSITIVE) }
}

/// The stages of what was watched, and the process's other threads where they count, in a request that took so long.
fn parts(watched: &Sample, request_ns: f64, per: Per) -> Parts {
    let mut parts = [0.0; Stage::ALL.len() + 1];
    for (part, stage) in parts.iter_mut().zip(Stage::ALL) {
        *part = watched.stages.of(stage);
    }
    let own: f64 = parts.iter().sum();
    let beside = (watched.process_ns - watched.cpu_ns).max(0.0) / watched.cpu_ns.max(1.0);
    let others = if per == Per::Process { beside * own } else { 0.0 };
    parts[Stage::ALL.len()] = others;
    let scale = request_ns / (own + others).max(f64::MIN_POSITIVE);
    parts.map(|part| part * scale)
}

const FEW: usize = 300;
const LEAST: usize = 60;
const PIECES: u64 = 100;
/// About a switch, to fill a slice with (ns).
const SWITCH_NS: f64 = 10e3;
const SWITCHES_MAX: usize = 2_000;
