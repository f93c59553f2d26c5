//! The arms for one job, their costs, and the choice that `LeastLatency` and `LeastHostCycles` share. An arm
//! is a device together with a way to wait for it. The choice is the arm with the least cost within a latency
//! limit, with hysteresis and a bounded share of probes. The policies define the cost. This code runs for
//! every job without a valid earlier choice. It therefore reads each arm once and keeps values that fit in
//! registers. Only a probe, about one job in some hundred, reads the arms again.

use device::Class;
use units::Nanos;

use crate::chain::{ChainChoice, ChainStep};
use crate::placement::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};

/// A policy that minimises a cost.
pub(crate) trait CostObjective {
    /// Returns the policy's objective for this job.
    fn objective(
        &self,
        job: &JobFacts,
        snapshot: &Snapshot<'_>,
    ) -> Objective<impl Fn(&Arm) -> f64 + Copy>;
}

/// The objective of a policy.
#[derive(Clone, Copy)]
pub(crate) struct Objective<F> {
    /// The size of the largest job that may hold the calling core if a device is open (bytes).
    pub(crate) inline_bytes_max: usize,
    /// The latency limit. An arm above it is chosen only if all arms are above it. In that case the quickest
    /// arm is chosen. Deadlines are not part of this limit, but of the cost.
    pub(crate) latency_max: Option<Nanos>,
    /// The cost of an arm (ns).
    pub(crate) cost: F,
}

impl<F: Fn(&Arm) -> f64> Objective<F> {
    #[inline(always)]
    fn is_slow(&self, arm: &Arm) -> bool {
        self.latency_max.is_some_and(|max| arm.latency_ns > real(max.0))
    }

    /// Returns an arm's rank. The arm with the lowest rank is chosen. Each slow arm ranks above all arms that are not
    /// slow.
    #[inline(always)]
    fn rank(&self, arm: &Arm) -> f64 {
        if self.is_slow(arm) { SLOW * (1.0 + arm.latency_ns) } else { (self.cost)(arm) }
    }
}

/// A device and a way to wait for it.
#[derive(Clone, Copy)]
pub(crate) struct Arm {
    pub(crate) device: usize,
    pub(crate) placement: Placement,
    /// The time until the job is done (ns).
    pub(crate) latency_ns: f64,
    /// The part of the latency for which the job holds the calling core (ns).
    pub(crate) core_ns: f64,
}

impl Arm {
    /// Returns the arm of the calling core, if its time is known.
    #[inline(always)]
    fn software(software: &DeviceState) -> Option<Self> {
        let latency_ns = real(software.host?.0);
        let placement = Placement::Software;
        Some(Self { device: 0, placement, latency_ns, core_ns: latency_ns })
    }

    /// Returns the arm of another device with asynchronous waiting, if its time is known.
    #[inline(always)]
    fn device(device: usize, state: &DeviceState) -> Option<Self> {
        let latency = state.estimated?;
        let core_ns = real(state.host.unwrap_or(latency).0);
        let placement = Placement::Async;
        Some(Self { device, placement, latency_ns: real(latency.0), core_ns })
    }

    /// Returns the arm of the same device with synchronous waiting, which holds the core.
    #[inline(always)]
    fn as_sync(self) -> Self {
        Self { placement: Placement::Sync, core_ns: self.latency_ns, ..self }
    }

    #[inline(always)]
    fn place(&self) -> ArmKey {
        ArmKey::new(self.device, self.placement)
    }
}

/// The device and the placement of an arm, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ArmKey(usize);

impl ArmKey {
    const NONE: ArmKey = ArmKey(usize::MAX);

    #[inline(always)]
    const fn new(device: usize, placement: Placement) -> Self {
        Self(device << 2 | placement as usize)
    }

    #[inline(always)]
    const fn device(self) -> usize {
        self.0 >> 2
    }

    #[inline(always)]
    const fn placement(self) -> Placement {
        match self.0 & 3 {
            0 => Placement::Software,
            1 => Placement::Sync,
            _ => Placement::Async,
        }
    }
}

/// Returns the time until the job's deadline (ns), which is infinite if it has none.
#[inline(always)]
pub(crate) fn time_left_ns(job: &JobFacts) -> f64 {
    job.time_left.map_or(f64::INFINITY, |left| real(left.0))
}

/// Converts a count or a time to floating point by way of a signed integer, which takes one instruction. A
/// conversion from an unsigned integer takes six.
#[inline(always)]
pub(crate) fn real(count: u64) -> f64 {
    count.min(i64::MAX as u64) as i64 as f64
}

/// Chooses the arm with the least cost, the previous arm if the gain is too small, or a probe.
#[inline(always)]
pub(crate) fn choose(
    policy: &impl CostObjective,
    job: &JobFacts,
    snapshot: &Snapshot<'_>,
    draw: u64,
) -> Choice {
    let objective = policy.objective(job, snapshot);
    let candidates = Candidates::new(job, snapshot, objective.inline_bytes_max);
    let mut ranking = Ranking::new(job);
    let (mut all_known, mut some_open) = (true, false);
    for (device, state) in candidates.open() {
        some_open = true;
        let Some(arm) = Arm::device(device, state) else {
            all_known = false;
            continue;
        };
        if candidates.sync {
            ranking.see(arm.as_sync(), objective);
        }
        ranking.see(arm, objective);
    }
    if let Some(software) = candidates.software(some_open) {
        match Arm::software(software) {
            Some(arm) => ranking.see(arm, objective),
            None => all_known = false,
        }
    }
    let Ranking { best, .. } = ranking;
    if best == ArmKey::NONE {
        return unknown(policy, job, snapshot);
    }
    // Most draws lead to no probe, whatever the arms are. For these draws no arm is read again.
    let every = if all_known { PROBE_EVERY } else { UNKNOWN_PROBE_EVERY };
    if half(draw) < DRAWS / every
        && let Some(probe) = probe(policy, (job, snapshot), draw, best)
    {
        return probe;
    }
    let place = if ranking.stays() { ranking.last } else { best };
    if place.device() == 0 && !some_open {
        return Choice::software(snapshot.reason_for_software());
    }
    Choice::to(place.device(), place.placement(), Reason::Policy)
}

/// Implements [`crate::Policy::place_chain`]: compares the cost of the whole chain with the sum of the costs of its
/// ops, each in its best arm. If a cost is unknown, the whole chain is tried, and its ops in a share of the jobs.
pub(crate) fn place_chain(
    policy: &(impl CostObjective + Policy),
    whole: &ChainStep<'_>,
    apart: &[ChainStep<'_>],
    draw: u64,
) -> ChainChoice {
    let together = || ChainChoice::Whole(policy.place(&whole.job, &whole.snapshot, draw));
    let sum: Option<f64> = apart.iter().map(|step| least_rank(policy, step)).sum();
    match (least_rank(policy, whole), sum) {
        (Some(one_trip), Some(trips)) if one_trip > trips => ChainChoice::Apart,
        (_, None) if half(draw) < DRAWS / APART_PROBE_EVERY => ChainChoice::Apart,
        _ => together(),
    }
}

/// Returns the rank of the best arm that is open, if the cost of one is known.
fn least_rank(policy: &impl CostObjective, step: &ChainStep<'_>) -> Option<f64> {
    let objective = policy.objective(&step.job, &step.snapshot);
    let candidates = Candidates::new(&step.job, &step.snapshot, objective.inline_bytes_max);
    let mut ranking = Ranking::new(&step.job);
    let mut some_open = false;
    for (device, state) in candidates.open() {
        some_open = true;
        let Some(arm) = Arm::device(device, state) else { continue };
        if candidates.sync {
            ranking.see(arm.as_sync(), objective);
        }
        ranking.see(arm, objective);
    }
    let software = candidates.software(some_open).and_then(Arm::software);
    if let Some(arm) = software {
        ranking.see(arm, objective);
    }
    (ranking.best != ArmKey::NONE).then_some(ranking.best_rank)
}

/// Implements [`crate::Policy::valid_between`]. The choice is valid if every other arm in the state `least`
/// costs no less than the chosen arm in the state `most`, and holds the core for no less time. Three facts
/// make this sufficient. The cost of an arm never falls when its times rise. If an arm holds the core for
/// longer than another arm, its extra cost never falls when more jobs wait or arrive, and these are fewest in
/// `least`. The extra cost of waiting for a device never falls when the device takes longer. So the chosen
/// arm is the best in every state between the two, except for rounding errors. These are a part in 10^15, and
/// an arm is left only for a gain of at least a sixteenth.
///
/// Returns none for batch jobs, for jobs with a deadline and for choices other than [`Placement::Async`].
/// Also returns none if an arm's time is unknown, because an unknown arm is probed too often.
pub(crate) fn valid_between(
    policy: &impl CostObjective,
    choice: Choice,
    job: &JobFacts,
    [least, most]: [&Snapshot<'_>; 2],
) -> Option<u32> {
    let is_latency_critical = job.class == Class::LatencyCritical && job.time_left.is_none();
    if !is_latency_critical || choice.placement != Placement::Async {
        return None;
    }
    let state = most.devices.get(choice.device())?;
    let chosen = Arm::device(choice.device(), state)?;
    let objective = policy.objective(job, least);
    if !state.eligible || state.depth >= state.capacity || objective.is_slow(&chosen) {
        return None;
    }
    let beats = |other: Arm| {
        let is_same = other.device == chosen.device;
        let latency_ns = if is_same { other.latency_ns } else { chosen.latency_ns };
        let kept = Arm { latency_ns, ..chosen };
        let is_costlier = || objective.rank(&other) >= objective.rank(&kept);
        objective.is_slow(&other) || (other.core_ns >= kept.core_ns && is_costlier())
    };
    let candidates = Candidates::new(job, least, objective.inline_bytes_max);
    let others = (1..).zip(least.devices.iter().skip(1));
    for (device, state) in others.filter(|(_, state)| state.eligible) {
        let arm = Arm::device(device, state)?;
        if candidates.sync && !beats(arm.as_sync()) || device != chosen.device && !beats(arm) {
            return None;
        }
    }
    match candidates.software(true) {
        Some(software) if !beats(Arm::software(software)?) => None,
        _ => Some((DRAWS / PROBE_EVERY) as u32),
    }
}

/// The best arm so far and the arm of the last similar job, with their ranks.
struct Ranking {
    best: ArmKey,
    best_rank: f64,
    /// The arm of the last similar job.
    last: ArmKey,
    /// The rank of the arm `last`. It is infinite if this arm is not open to the job.
    last_rank: f64,
}

impl Ranking {
    #[inline(always)]
    fn new(job: &JobFacts) -> Self {
        let last = job.last.map_or(ArmKey::NONE, |(device, how)| ArmKey::new(device, how));
        let (best_rank, last_rank) = (f64::INFINITY, f64::INFINITY);
        Self { best: ArmKey::NONE, best_rank, last, last_rank }
    }

    /// Compares an arm with the best arm so far. Of equal arms the first is the best.
    #[inline(always)]
    fn see<F: Fn(&Arm) -> f64>(&mut self, arm: Arm, objective: Objective<F>) {
        let (place, rank) = (arm.place(), objective.rank(&arm));
        if rank < self.best_rank {
            (self.best, self.best_rank) = (place, rank);
        }
        if place == self.last {
            self.last_rank = rank;
        }
    }

    /// Returns whether to choose the arm of the last similar job again, because its rank is close to the best rank.
    #[inline(always)]
    fn stays(&self) -> bool {
        self.last_rank <= self.best_rank + self.best_rank / HYSTERESIS_DIVISOR
    }
}

/// The arms that are open to a job.
#[derive(Clone, Copy)]
struct Candidates<'a> {
    job: &'a JobFacts,
    snapshot: &'a Snapshot<'a>,
    /// Whether the calling core may wait for a device.
    sync: bool,
    /// Whether the job runs on the calling core only if no device is open.
    yields: bool,
}

impl<'a> Candidates<'a> {
    #[inline(always)]
    fn new(job: &'a JobFacts, snapshot: &'a Snapshot<'a>, inline_bytes_max: usize) -> Self {
        let batch = job.class == Class::Batch;
        let long = job.work_bytes > inline_bytes_max;
        // A batch job leaves the core to jobs that wait for it, unless it has a deadline.
        let yields = long || (batch && snapshot.waiting > 0 && job.time_left.is_none());
        Self { job, snapshot, sync: !batch && !long, yields }
    }

    /// Returns software, if it may run the job.
    #[inline(always)]
    fn software(self, some_open: bool) -> Option<&'a DeviceState> {
        let software = self.snapshot.devices.first().filter(|state| state.eligible);
        software.filter(|_| !(self.yields && some_open))
    }

    /// Returns the devices other than software that have capacity for a job of this class. Batch jobs leave half of
    /// each queue to other jobs.
    #[inline(always)]
    fn open(self) -> impl Iterator<Item = (usize, &'a DeviceState)> + Clone {
        let halved = u32::from(self.job.class == Class::Batch);
        let has_queue_space =
            move |state: &DeviceState| state.depth < (state.capacity + halved as usize) >> halved;
        let others = self.snapshot.devices.get(1..).unwrap_or_default();
        let others = (1..).zip(others);
        others.filter(move |(_, state)| state.eligible && has_queue_space(state))
    }

    /// Returns the device that this job could probe, out of those that were not chosen. The draw's upper half picks it.
    fn candidate(self, chosen: usize, draw: u64) -> Option<usize> {
        let some_open = self.open().next().is_some();
        let software = self.software(some_open).map(|_| 0).into_iter();
        let open = software.chain(self.open().map(|(device, _)| device));
        let mut others = open.filter(|device| *device != chosen);
        let count = others.clone().count() as u64;
        others.nth((((draw >> 32) * count) >> 32) as usize)
    }

    /// Returns the arms of a device.
    fn ways(self, device: usize) -> [Option<Arm>; 2] {
        let state = &self.snapshot.devices[device];
        match device {
            0 => [Arm::software(state), None],
            _ => {
                let arm = Arm::device(device, state);
                [arm.filter(|_| self.sync).map(Arm::as_sync), arm]
            }
        }
    }
}

/// Chooses an arm if no arm's cost is known. Prefers software, which always finishes.
#[cold]
#[inline(never)]
fn unknown(policy: &impl CostObjective, job: &JobFacts, snapshot: &Snapshot<'_>) -> Choice {
    let inline_bytes_max = policy.objective(job, snapshot).inline_bytes_max;
    let candidates = Candidates::new(job, snapshot, inline_bytes_max);
    match candidates.open().next() {
        Some((device, _)) if candidates.software(true).is_none() => {
            Choice::to(device, Placement::Async, Reason::Policy)
        }
        Some(_) => Choice::software(Reason::Policy),
        None => Choice::software(snapshot.reason_for_software()),
    }
}

/// Returns the probe of one arm, if the draw's lower half and the limits allow it.
#[cold]
#[inline(never)]
fn probe(
    policy: &impl CostObjective,
    (job, snapshot): (&JobFacts, &Snapshot<'_>),
    draw: u64,
    best: ArmKey,
) -> Option<Choice> {
    let objective = policy.objective(job, snapshot);
    let candidates = Candidates::new(job, snapshot, objective.inline_bytes_max);
    let device = candidates.candidate(best.device(), draw)?;
    let to = |placement| Some(Choice::to(device, placement, Reason::Probe));
    let cost = |arm: &Arm| (objective.cost)(arm);
    let ways = candidates.ways(device).into_iter().flatten();
    let Some(arm) = ways.min_by(|one, other| cost(one).total_cmp(&cost(other))) else {
        let state = &snapshot.devices[device];
        let free = device == 0 || state.depth < state.capacity.div_ceil(UNKNOWN_QUEUE_DIVISOR);
        let placement = if device == 0 { Placement::Software } else { Placement::Async };
        return if free { to(placement) } else { None };
    };
    if half(draw) >= DRAWS / PROBE_EVERY {
        return None;
    }
    let best =
        candidates.ways(best.device()).into_iter().flatten().find(|arm| arm.place() == best)?;
    // This follows `Objective::rank`: for an arm that is too slow, the latency counts.
    let (cost, best_cost) = match objective.is_slow(&arm) {
        false => (cost(&arm), cost(&best)),
        true => (arm.latency_ns, best.latency_ns),
    };
    let cost = cost.max(best_cost).max(1.0);
    let affordable = cost <= PROBE_COST_RATIO_MAX as f64 * best_cost;
    // The share of probes is inversely proportional to the cost, so that probing adds the same small cost whatever the
    // arm costs.
    let due = half(draw) as f64 * PROBE_EVERY as f64 * cost < best_cost * DRAWS as f64;
    let in_time = arm.latency_ns <= time_left_ns(job);
    if due && affordable && in_time { to(arm.placement) } else { None }
}

/// The number of values that [`half`] can return: the lower 32 bits of a draw.
const DRAWS: u64 = 1 << 32;

/// Returns the lower half of a draw.
#[inline(always)]
fn half(draw: u64) -> u64 {
    draw & (DRAWS - 1)
}

/// The factor that lifts the rank of a slow arm above every cost.
const SLOW: f64 = 1e60;

/// The hysteresis: an arm is left only for a gain above a sixteenth of the best cost. Estimates of equal arms
/// differ by about that much from job to job, and staying costs at most that much.
const HYSTERESIS_DIVISOR: f64 = 16.0;

/// The number of jobs per probe while all costs are known. A more expensive arm is probed less often, in
/// inverse proportion to its cost, so the mean cost of probing is below 1/256 of the best cost. The share of
/// probes is well below the 1 % that a 99th percentile shows.
const PROBE_EVERY: u64 = 256;

/// The number of chains per chain whose ops go apart while the cost of one of them is unknown.
const APART_PROBE_EVERY: u64 = 16;

/// The maximum ratio of a probed arm's cost to the best cost. Above this ratio, even one probe would be far
/// too slow. The arm is probed again when its queue is shorter or its estimate has been forgotten.
const PROBE_COST_RATIO_MAX: u64 = 64;

/// The number of jobs per probe while an arm's cost is unknown. It is small, so that the cost is known before
/// many jobs wait for the core. With 16, a start under full load left a queue that the simulated machine
/// could not work off within its run. Deadlines do not prevent these probes. Otherwise, if every job had a
/// deadline, the cost would never become known and more jobs would miss their deadlines.
const UNKNOWN_PROBE_EVERY: u64 = 2;

/// A device of unknown cost is probed only while its depth is below its capacity divided by this number, so
/// that a device that does not answer gets no more jobs. With a larger divisor, a device that is busy with
/// jobs of known sizes would never become known for other sizes.
const UNKNOWN_QUEUE_DIVISOR: usize = 4;

#[cfg(test)]
pub(crate) mod tests {
    use device::TenantId;
    use units::{Op, Prng};

    use super::*;
    use crate::{LeastHostCycles, LeastLatency, Policy};

    /// A draw that leads to no probe.
    pub(crate) const NO_PROBE: u64 = u64::MAX;

    pub(crate) fn job() -> JobFacts {
        JobFacts {
            op: Op::Compress,
            dialect: None,
            work_bytes: 1_000,
            class: Class::LatencyCritical,
            tenant: TenantId(0),
            time_left: None,
            last: None,
        }
    }

    pub(crate) fn software(host_ns: u64) -> DeviceState {
        device(host_ns, host_ns)
    }

    pub(crate) fn device(estimated_ns: u64, host_ns: u64) -> DeviceState {
        let (estimated, host) = (Some(Nanos(estimated_ns)), Some(Nanos(host_ns)));
        let (eligible, healthy, depth, capacity) = (true, true, 0, 8);
        DeviceState { eligible, healthy, depth, capacity, estimated, host }
    }

    fn unknown(depth: usize) -> DeviceState {
        DeviceState { estimated: None, host: None, depth, ..device(0, 0) }
    }

    fn place(job: &JobFacts, devices: &[DeviceState], draw: u64) -> Choice {
        LeastLatency { inline_bytes_max: 1_000 }.place(job, &Snapshot::new(devices), draw)
    }

    /// Returns the number of draws per probe, over evenly spaced lower halves of draws.
    fn probed_one_in(job: &JobFacts, devices: &[DeviceState]) -> u64 {
        let step = (1 << 32) / 65_536;
        let draws = (0..65_536).map(|at: u64| at * step);
        let probes = draws.filter(|draw| place(job, devices, *draw).reason == Reason::Probe);
        65_536 / (probes.count() as u64).max(1)
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_is_not_known_is_tried_where_that_is_safe() {
        let here = Choice::software(Reason::Policy);
        assert_eq!(place(&job(), &[unknown(0), unknown(0)], 0), here);
        assert_eq!(probed_one_in(&job(), &[software(9), unknown(1)]), UNKNOWN_PROBE_EVERY);
        assert_eq!(probed_one_in(&job(), &[unknown(0), device(9, 9)]), UNKNOWN_PROBE_EVERY);
        assert_eq!(place(&job(), &[software(9), unknown(2)], 0), here, "it may never answer");
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn probes_are_rarer_where_a_place_looks_worse() {
        let with = |estimated_ns| [software(1_000), device(estimated_ns, 0)];
        assert_eq!(probed_one_in(&job(), &with(1_001)), PROBE_EVERY);
        assert_eq!(probed_one_in(&job(), &with(8_000)), 8 * PROBE_EVERY);
        let worst = 1_000 * (PROBE_COST_RATIO_MAX + 1);
        assert_eq!(place(&job(), &with(worst), 0).reason, Reason::Policy);
        let urgent = JobFacts { time_left: Some(Nanos(7_999)), ..job() };
        assert_eq!(place(&urgent, &with(8_000), 0).reason, Reason::Policy);
        // With several arms to probe the share stays the same as with one.
        let many = [software(1_000), device(1_001, 0), device(1_001, 0)];
        assert_eq!(probed_one_in(&job(), &many), PROBE_EVERY);
        assert_eq!(place(&job(), &many, 1 << 63).device(), 2);
    }

    #[test]
    fn a_place_is_left_only_for_enough_gain() {
        let last = Some((0, Placement::Software));
        let to = |host_ns| {
            let devices = [software(host_ns), device(1_600, 0)];
            place(&JobFacts { last, ..job() }, &devices, NO_PROBE).device()
        };
        assert_eq!((to(1_700), to(1_701)), (0, 1));
    }

    /// Two states of software and one or two devices, and random states between them.
    struct Between {
        random: Prng,
        ends: [Vec<DeviceState>; 2],
    }

    impl Between {
        fn new(seed: u64) -> Self {
            let mut random = Prng::new(seed);
            let devices = 2 + random.below(2);
            let end = |random: &mut Prng, index| {
                let estimated_ns = 500 << random.below(6);
                let host_ns = if index == 0 { estimated_ns } else { 300 + random.below(600) };
                let is_known = random.below(20) > 0;
                let eligible = random.below(10) > 0;
                let known = device(estimated_ns, host_ns);
                if is_known { DeviceState { eligible, ..known } } else { unknown(0) }
            };
            let least: Vec<_> = (0..devices).map(|index| end(&mut random, index)).collect();
            let most = least.iter().map(|state| {
                let more = |ns: Nanos| Nanos(ns.0 + ns.0 * random.below(100) / 100);
                let host = state.host.map(more);
                let estimated = host.filter(|_| state.host == state.estimated);
                let later = 1_000 * random.below(8);
                let estimated = estimated.or(state.estimated.map(|ns| Nanos(ns.0 + later)));
                let eligible = state.eligible && random.below(20) > 0;
                DeviceState { eligible, depth: random.below(9) as usize, host, estimated, ..*state }
            });
            let most = most.collect();
            Self { random, ends: [least, most] }
        }

        fn count(&mut self, least: u64, most: u64) -> u64 {
            least + self.random.below(most - least + 1)
        }

        /// Returns a random state between the two ends. Only the values of the chosen device have an upper end.
        fn any(&mut self, chosen: usize) -> Vec<DeviceState> {
            let mut any = self.ends[0].clone();
            for (index, (state, mut most)) in any.iter_mut().zip(self.ends[1].clone()).enumerate() {
                if index != chosen {
                    most.estimated = most.estimated.map(|ns| ns + ns);
                    most.host = most.host.map(|ns| ns + ns);
                    most.depth = state.capacity;
                }
                let (least, is_home) = (*state, most.host == most.estimated);
                let mut time = |field: fn(&DeviceState) -> Option<Nanos>| {
                    Some(Nanos(self.count(field(&least)?.0, field(&most)?.0)))
                };
                let host = time(|state| state.host);
                let estimated = if is_home { host } else { time(|state| state.estimated) };
                let depth = self.count(0, most.depth as u64) as usize;
                let eligible = most.eligible || (least.eligible && self.count(0, 1) == 1);
                *state = DeviceState { eligible, depth, host, estimated, ..least };
            }
            any
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_standing_answer_holds_in_every_state_between() {
        let latency_max = Nanos::micros(20);
        let policies: [&dyn Policy; 2] = [
            &LeastLatency { inline_bytes_max: 1_000 },
            &LeastHostCycles { latency_max, inline_bytes_max: 1_000 },
        ];
        let mut stood = [0; 2];
        for (seed, at) in (0..20_000).flat_map(|seed| [(seed, 0), (seed, 1)]) {
            let (policy, mut between) = (policies[at], Between::new(seed));
            let (waiting, gap) = (between.count(0, 3) as usize, Nanos(500 << between.count(0, 8)));
            let facts = JobFacts { work_bytes: 400 + between.count(0, 800) as usize, ..job() };
            let ends = between.ends.clone();
            let [least, most] =
                ends.each_ref().map(|devices| Snapshot { devices, waiting, gap: Some(gap) });
            let choice = policy.place(&facts, &least, NO_PROBE);
            let Some(draws_from) = policy.valid_between(choice, &facts, &least, &most) else {
                continue;
            };
            stood[at] += 1;
            for _ in 0..50 {
                let devices = between.any(choice.device());
                let more = between.count(0, 900) as usize;
                let waiting = waiting + between.count(0, 9) as usize;
                let gap = Some(Nanos(between.count(0, gap.0)));
                let last = Some((choice.device(), choice.placement));
                let work_bytes = facts.work_bytes + more;
                let draw = between.random.bits() | u64::from(draws_from);
                let snapshot = Snapshot { devices: &devices, waiting, gap };
                let answer = policy.place(&JobFacts { work_bytes, last, ..facts }, &snapshot, draw);
                assert_eq!(answer, choice, "{seed} {}: {snapshot:?}", policy.name());
            }
        }
        assert!(stood.iter().all(|stood| (2_000..18_000).contains(stood)), "{stood:?}");
    }

    #[test]
    fn no_answer_stands_for_hurried_jobs() {
        let policy = LeastLatency { inline_bytes_max: 1_000 };
        let devices = [software(9_000), device(5_000, 1_000)];
        let snapshot = Snapshot { gap: Some(Nanos(10_000)), ..Snapshot::new(&devices) };
        let choice = Choice::to(1, Placement::Async, Reason::Policy);
        let valid =
            |choice, facts: JobFacts| policy.valid_between(choice, &facts, &snapshot, &snapshot);
        assert_eq!(valid(choice, job()), Some(1 << 24), "one in 256 draws is a probe");
        assert_eq!(valid(choice, JobFacts { class: Class::Batch, ..job() }), None);
        assert_eq!(valid(choice, JobFacts { time_left: Some(Nanos::secs(1)), ..job() }), None);
        assert_eq!(valid(Choice::to(1, Placement::Sync, Reason::Policy), job()), None);
        assert_eq!(valid(Choice::software(Reason::Policy), job()), None);
    }

    #[test]
    fn a_long_job_prefers_an_open_device() {
        let long = JobFacts { work_bytes: 1_001, ..job() };
        let choice = place(&long, &[software(1), unknown(0)], NO_PROBE);
        assert_eq!((choice.device(), choice.placement), (1, Placement::Async));
        let choice = place(&long, &[software(1), device(9_000, 1)], 0);
        assert_eq!((choice.device(), choice.placement), (1, Placement::Async));
        let full = DeviceState { depth: 8, ..device(1, 1) };
        let choice = place(&long, &[software(1), full], 0);
        assert_eq!(choice, Choice::software(Reason::QueueFull));
        assert_eq!(place(&long, &[software(1)], 0), Choice::software(Reason::OnlyDevice));
    }
}
