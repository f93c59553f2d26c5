//! The places open to one job, what each would cost, and the choice among them that `LeastLatency` and
//! `LeastHostCycles` share: least cost within a latency, with hysteresis and a bounded share of probes. What cost is,
//! the policies say.

use device::Class;
use units::Nanos;

use crate::placement::{Choice, DeviceState, JobFacts, Placement, Reason, Snapshot};

/// What a policy wants of a place.
pub(crate) struct Objective<F> {
    /// The largest job that may hold the calling core where a device is open.
    pub(crate) inline_bytes_max: usize,
    /// Places slower than this are taken only when all are; then the quickest is. Deadlines are a matter of cost.
    pub(crate) latency_max: Option<Nanos>,
    /// The cost of a place (ns).
    pub(crate) cost: F,
}

/// A device and a way to wait for it.
#[derive(Clone, Copy)]
pub(crate) struct Arm {
    pub(crate) device: usize,
    pub(crate) placement: Placement,
    /// Until the job is done (ns).
    pub(crate) latency_ns: u64,
    /// Of that, how long the calling core is held (ns).
    pub(crate) core_ns: u64,
}

impl Arm {
    /// Whether the job would miss its deadline there.
    pub(crate) fn is_late(&self, job: &JobFacts) -> bool {
        job.time_left.is_some_and(|Nanos(left_ns)| self.latency_ns > left_ns)
    }
}

/// The least costly place, the one before it if the gain is too small, or, now and then, a probe.
pub(crate) fn choose<F: Fn(&Arm) -> u64>(
    job: &JobFacts,
    snapshot: &Snapshot<'_>,
    draw: u64,
    objective: &Objective<F>,
) -> Choice {
    let offer = Offer::of(job, snapshot, objective.inline_bytes_max);
    let Some(best) = offer.best(objective) else { return offer.unknown() };
    if let Some(probe) = offer.probe(draw, &best, objective) {
        return probe;
    }
    offer.chosen(offer.staying(&best, objective).unwrap_or(best.arm))
}

/// The least costly place.
struct Best {
    arm: Arm,
    cost: u64,
}

/// What is open to a job.
struct Offer<'a> {
    job: &'a JobFacts,
    snapshot: &'a Snapshot<'a>,
    software: bool,
    /// Whether the calling core may wait for a device.
    sync: bool,
}

impl<'a> Offer<'a> {
    fn of(job: &'a JobFacts, snapshot: &'a Snapshot<'a>, inline_bytes_max: usize) -> Self {
        let batch = job.class == Class::Batch;
        let long = job.work_bytes > inline_bytes_max;
        // A batch job yields the core to whoever waits for it, unless its own deadline may need it.
        let yields = batch && snapshot.waiting > 0 && job.time_left.is_none();
        let mut offer = Self { job, snapshot, software: false, sync: !batch && !long };
        let home = snapshot.devices.first().is_some_and(|state| state.eligible);
        offer.software = home && !((yields || long) && offer.open().next().is_some());
        offer
    }

    /// The devices beside software that have room for a job of this class: batch jobs leave half of a queue to the
    /// others.
    fn open(&self) -> impl Iterator<Item = (usize, &'a DeviceState)> + Clone {
        let batch = self.job.class == Class::Batch;
        let room = move |state: &DeviceState| match batch {
            true => state.depth < state.capacity.div_ceil(2),
            false => state.depth < state.capacity,
        };
        let devices = self.snapshot.devices.iter().enumerate().skip(1);
        devices.filter(move |(_, state)| state.eligible && room(state))
    }

    /// Every place whose cost is known.
    fn known(&self) -> impl Iterator<Item = Arm> {
        let home = self.snapshot.devices.first().filter(|_| self.software);
        let home = home.and_then(|state| state.host).map(|Nanos(host_ns)| Arm {
            device: 0,
            placement: Placement::Software,
            latency_ns: host_ns,
            core_ns: host_ns,
        });
        home.into_iter().chain(self.open().flat_map(|(device, state)| self.arms(device, state)))
    }

    fn arms(&self, device: usize, state: &DeviceState) -> impl Iterator<Item = Arm> + use<> {
        let known = state.estimated.map(|Nanos(latency_ns)| {
            let core_ns = state.host.map_or(latency_ns, |Nanos(host_ns)| host_ns);
            Arm { device, placement: Placement::Async, latency_ns, core_ns }
        });
        let sync = known.filter(|_| self.sync).map(|arm| Arm {
            placement: Placement::Sync,
            core_ns: arm.latency_ns,
            ..arm
        });
        sync.into_iter().chain(known)
    }

    /// The least costly of the places that are quick enough, or the quickest.
    fn best<F: Fn(&Arm) -> u64>(&self, objective: &Objective<F>) -> Option<Best> {
        let ranked = self.known().map(|arm| {
            let cost = (objective.cost)(&arm);
            let rank = match within(&arm, objective.latency_max) {
                true => (false, cost, arm.latency_ns),
                false => (true, arm.latency_ns, cost),
            };
            (rank, Best { arm, cost })
        });
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, best)| best)
    }

    /// Where the last such job went, unless that is the best place or much worse.
    fn staying<F: Fn(&Arm) -> u64>(&self, best: &Best, objective: &Objective<F>) -> Option<Arm> {
        let last = self.job.last.filter(|last| *last != (best.arm.device, best.arm.placement))?;
        let cost_max = best.cost.saturating_add(best.cost / HYSTERESIS_DIVISOR);
        let arm = self.known().find(|arm| (arm.device, arm.placement) == last)?;
        let stays = (objective.cost)(&arm) <= cost_max && within(&arm, objective.latency_max);
        stays.then_some(arm)
    }

    /// Where a job goes of which nothing is known: to software, which always finishes, and is learnt by that.
    fn unknown(&self) -> Choice {
        match self.open().next() {
            Some((device, _)) if !self.software => {
                Choice::to(device, Placement::Async, Reason::Policy)
            }
            Some(_) => Choice::software(Reason::Policy),
            None => Choice::software(self.snapshot.reason_for_software()),
        }
    }

    fn chosen(&self, arm: Arm) -> Choice {
        if arm.device == 0 && self.open().next().is_none() {
            return Choice::software(self.snapshot.reason_for_software());
        }
        Choice::to(arm.device, arm.placement, Reason::Policy)
    }

    /// The one device, of those not chosen, that this job could probe; the draw's upper half picks it.
    fn candidate(&self, chosen: usize, draw: u64) -> Option<usize> {
        let software = self.software.then_some(0).into_iter();
        let open = software.chain(self.open().map(|(device, _)| device));
        let mut others = open.filter(|device| *device != chosen);
        let count = others.clone().count() as u64;
        others.nth((((draw >> 32) * count) >> 32) as usize)
    }

    /// The probe of one place, if the draw's lower half and the bounds allow it.
    fn probe<F: Fn(&Arm) -> u64>(
        &self,
        draw: u64,
        best: &Best,
        objective: &Objective<F>,
    ) -> Option<Choice> {
        let drawn = draw & u64::from(u32::MAX);
        // Most draws are none whatever is there, and so nothing is looked at for them.
        if drawn >= DRAWS / UNKNOWN_PROBE_EVERY {
            return None;
        }
        let device = self.candidate(best.arm.device, draw)?;
        let state = &self.snapshot.devices[device];
        let to = |placement| Some(Choice::to(device, placement, Reason::Probe));
        let known = if device == 0 { state.host } else { state.estimated };
        if known.is_none() {
            let free = device == 0 || state.depth < state.capacity.div_ceil(UNKNOWN_QUEUE_DIVISOR);
            let placement = if device == 0 { Placement::Software } else { Placement::Async };
            return if free { to(placement) } else { None };
        }
        if drawn >= DRAWS / PROBE_EVERY {
            return None;
        }
        let arms = self.known().filter(|arm| arm.device == device);
        let arm = arms.min_by_key(|arm| (objective.cost)(arm))?;
        // As in `best`: of what is too slow, the latency counts.
        let (cost, best_cost) = match within(&arm, objective.latency_max) {
            true => ((objective.cost)(&arm), best.cost),
            false => (arm.latency_ns, best.arm.latency_ns),
        };
        let cost = cost.max(best_cost).max(1);
        let bearable = cost / PROBE_COST_RATIO_MAX <= best_cost;
        // In proportion, so that probing adds the same little whatever the place is like.
        let share = u128::from(best_cost) * u128::from(DRAWS) / u128::from(cost);
        let due = u128::from(drawn) * u128::from(PROBE_EVERY) < share;
        if due && bearable && !arm.is_late(self.job) { to(arm.placement) } else { None }
    }
}

/// As many values has half a draw.
const DRAWS: u64 = 1 << 32;

fn within(arm: &Arm, latency_max: Option<Nanos>) -> bool {
    latency_max.is_none_or(|max| arm.latency_ns <= max.0)
}

/// A place is left for a gain of more than a sixteenth of the best cost: estimates of equal places differ by about so
/// much from job to job, and to stay costs no more than that.
const HYSTERESIS_DIVISOR: u64 = 16;

/// Of the jobs whose best place is known, one in so many probes another, fewer in proportion to how much worse that
/// one looks. The mean cost of probing is then below best / 256, and the jobs it touches are well below the one in a
/// hundred that a 99th percentile sees.
const PROBE_EVERY: u64 = 256;

/// A place that looks worse than this many times the best is not probed: one such job would be a scandal. It is tried
/// again when its queue is shorter or its estimate has been forgotten.
const PROBE_COST_RATIO_MAX: u64 = 64;

/// One job in so many tries a place of which nothing is known, so that it is known before much waits for the core:
/// with one in 16, a start under full load left a queue that took the simulated machine longer than its run to work
/// off. Deadlines do not keep from it: where every job has one, a place would never be known, and more would miss.
const UNKNOWN_PROBE_EVERY: u64 = 2;

/// Such a try is made only while less than this part of a queue is taken: what does not answer gets no more jobs. With
/// less, a device that is busy with sizes that are known would never be known for the others.
const UNKNOWN_QUEUE_DIVISOR: usize = 4;

#[cfg(test)]
pub(crate) mod tests {
    use device::TenantId;
    use units::Op;

    use super::*;
    use crate::{LeastLatency, Policy};

    /// A draw that probes nothing.
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
        LeastLatency { inline_bytes_max: 1_000 }.place(job, &Snapshot::of(devices), draw)
    }

    /// Of the draws' lower halves, one in so many probes.
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
    fn probes_are_rarer_the_worse_a_place_looks_and_never_costly() {
        let with = |estimated_ns| [software(1_000), device(estimated_ns, 0)];
        assert_eq!(probed_one_in(&job(), &with(1_001)), PROBE_EVERY);
        assert_eq!(probed_one_in(&job(), &with(8_000)), 8 * PROBE_EVERY);
        let worst = 1_000 * (PROBE_COST_RATIO_MAX + 1);
        assert_eq!(place(&job(), &with(worst), 0).reason, Reason::Policy);
        let hurried = JobFacts { time_left: Some(Nanos(7_999)), ..job() };
        assert_eq!(place(&hurried, &with(8_000), 0).reason, Reason::Policy);
        // With several places to probe the share stays what it is for one.
        let many = [software(1_000), device(1_001, 0), device(1_001, 0)];
        assert_eq!(probed_one_in(&job(), &many), PROBE_EVERY);
        assert_eq!(place(&job(), &many, 1 << 63).device(), 2);
    }

    #[test]
    fn a_place_is_left_for_a_gain_that_is_worth_it() {
        let last = Some((0, Placement::Software));
        let to = |host_ns| {
            let devices = [software(host_ns), device(1_600, 0)];
            place(&JobFacts { last, ..job() }, &devices, NO_PROBE).device()
        };
        assert_eq!((to(1_700), to(1_701)), (0, 1));
    }

    #[test]
    fn a_long_job_does_not_hold_the_core_where_a_device_is_open() {
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
