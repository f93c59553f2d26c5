//! `BoundedOffload` with the parameters that a scheduler fitted: for each op and device, the size from which
//! offloading pays and the device's share. A few jobs go to other devices as probes, so that every device's
//! cost stays known. The policy itself fits no parameters.

use units::Op;

use crate::placement::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};

/// The rule by which jobs of one op go to one accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The kind of work.
    pub op: Op,
    /// The index of the device.
    pub device: usize,
    /// The size below which jobs do not go to the device (bytes).
    pub bytes_min: usize,
    /// The device's share, relative to the shares of the other open accelerators that pay for the job.
    pub weight: u16,
    /// The largest job for which the calling thread waits (bytes). It is 0 if the thread waits for no job.
    pub wait_bytes_max: usize,
}

/// The rule for one op on one accelerator.
#[derive(Clone, Copy, Debug)]
struct Rule {
    bytes_min: usize,
    weight: u16,
    wait_bytes_max: usize,
}

/// Offloads every job to one of the open accelerators that pay for its op and size, in proportion to their
/// weights. The calling thread waits for a job if switching to other work would take longer than waiting.
/// Otherwise it does other work. A job that no accelerator takes runs in software. If that job is larger than
/// `inline_bytes_max`, it goes to the first open device after the accelerators, if there is one.
#[derive(Clone, Debug)]
pub struct FittedOffload {
    accelerators: usize,
    inline_bytes_max: usize,
    /// The number of jobs per probe. With 0, jobs are never used as probes.
    probe_every: u32,
    /// The rules by op, then by accelerator.
    offloads: Vec<Rule>,
}

impl FittedOffload {
    /// Creates the policy for `accelerators` devices after software. For an op and device that `offloads` does not
    /// name, jobs are offloaded from `offload_bytes_min` on, at a weight of 1.
    pub fn new(
        accelerators: usize,
        (offload_bytes_min, inline_bytes_max): (usize, usize),
        probe_every: u32,
        offloads: &[Offload],
    ) -> Self {
        let rule = Rule { bytes_min: offload_bytes_min, weight: 1, wait_bytes_max: 0 };
        let mut table = vec![rule; Op::ALL.len() * accelerators];
        for offload in offloads {
            if (1..=accelerators).contains(&offload.device) {
                let place = offload.op.index() * accelerators + offload.device - 1;
                let Offload { bytes_min, wait_bytes_max, .. } = *offload;
                table[place] = Rule { bytes_min, weight: offload.weight.max(1), wait_bytes_max };
            }
        }
        Self { accelerators, inline_bytes_max, probe_every, offloads: table }
    }

    /// Returns the accelerators that pay for the job, with their weights.
    fn paying(&self, job: &JobFacts) -> impl Iterator<Item = (usize, u64)> + Clone {
        let first = job.op.index() * self.accelerators;
        let by_device = &self.offloads[first..first + self.accelerators];
        let bytes = job.work_bytes;
        let pays = move |(at, rule): (usize, &Rule)| {
            (bytes >= rule.bytes_min).then_some((at + 1, u64::from(rule.weight)))
        };
        by_device.iter().enumerate().filter_map(pays)
    }

    /// Returns how the calling thread waits for a job on this accelerator.
    fn placement(&self, job: &JobFacts, device: usize) -> Placement {
        let rule = &self.offloads[job.op.index() * self.accelerators + device - 1];
        if job.work_bytes <= rule.wait_bytes_max { Placement::Sync } else { Placement::Async }
    }

    /// Returns one of the open accelerators that pay for the job. The upper half of the draw selects it.
    fn offloaded(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Option<usize> {
        let open = self.paying(job).filter(|(device, _)| is_open(snapshot.devices, *device));
        let total: u64 = open.clone().map(|(_, weight)| weight).sum();
        let mut left = ((draw >> 32) * total) >> 32;
        for (device, weight) in open {
            if left < weight {
                return Some(device);
            }
            left -= weight;
        }
        None
    }

    /// Returns another device for the job if the draw's lower half makes it a probe, and the chosen device otherwise.
    fn probe(&self, job: &JobFacts, snapshot: &Snapshot<'_>, chosen: Choice, draw: u64) -> Choice {
        let drawn = draw & u64::from(u32::MAX);
        let is_due = self.probe_every > 0 && drawn * u64::from(self.probe_every) < 1 << 32;
        if !is_due {
            return chosen;
        }
        // A long probe in software would hold the core, and a probe behind a queue would measure the queue.
        let software_open = snapshot.devices.first().is_some_and(|state| state.eligible);
        let software = (software_open && job.work_bytes <= self.inline_bytes_max).then_some(0);
        let free = |device: &usize| {
            let state = snapshot.devices.get(*device);
            state.is_some_and(|state| {
                state.eligible && state.depth < state.capacity.div_ceil(PROBE_QUEUE_DIVISOR)
            })
        };
        let places = software.into_iter().chain((1..=self.accelerators).filter(free));
        let mut others = places.filter(|device| *device != chosen.device());
        let count = others.clone().count() as u64;
        match others.nth((((draw >> 32) * count) >> 32) as usize) {
            Some(0) => Choice::software(Reason::Probe),
            Some(device) => Choice::to(device, Placement::Async, Reason::Probe),
            None => chosen,
        }
    }

    /// Returns the choice for a job that no accelerator takes.
    fn stays(&self, job: &JobFacts, snapshot: &Snapshot<'_>) -> Choice {
        let pays = self.paying(job).next().is_some();
        let why = match pays {
            true => snapshot.reason_without(1..=self.accelerators),
            false if job.work_bytes > self.inline_bytes_max => Reason::Large,
            false => Reason::Small,
        };
        let behind = self.accelerators + 1..=snapshot.devices.len();
        match snapshot.first_open_of(behind) {
            Some(device) if job.work_bytes > self.inline_bytes_max => {
                Choice::to(device, Placement::Async, why)
            }
            _ => Choice::software(why),
        }
    }
}

impl Policy for FittedOffload {
    fn name(&self) -> &'static str {
        "fitted-offload"
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        let chosen = match self.offloaded(job, snapshot, draw) {
            Some(device) => {
                let placement = self.placement(job, device);
                Choice::to(device, placement, Reason::Policy)
            }
            None => self.stays(job, snapshot),
        };
        self.probe(job, snapshot, chosen, draw)
    }
}

fn is_open(devices: &[DeviceState], device: usize) -> bool {
    devices.get(device).is_some_and(|state| state.eligible && state.depth < state.capacity)
}

/// A device is probed only while its depth is below its capacity divided by this number, so that a device
/// that does not answer gets no more jobs.
const PROBE_QUEUE_DIVISOR: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::least_cost::tests::{device, job, software};

    const NO_PROBE: u64 = u64::MAX;

    fn policy(offloads: &[(usize, usize, u16)]) -> FittedOffload {
        let offload = |(device, bytes_min, weight): &(usize, usize, u16)| Offload {
            op: Op::Compress,
            device: *device,
            bytes_min: *bytes_min,
            weight: *weight,
            wait_bytes_max: if *weight == 7 { 1_000 } else { 0 },
        };
        let offloads: Vec<Offload> = offloads.iter().map(offload).collect();
        FittedOffload::new(2, (2_000, 9_000), 128, &offloads)
    }

    fn place(policy: &FittedOffload, work_bytes: usize, depths: [usize; 2], draw: u64) -> Choice {
        let accelerator = |depth| DeviceState { depth, ..device(1, 1) };
        let devices = [software(1), accelerator(depths[0]), accelerator(depths[1]), accelerator(0)];
        policy.place(&JobFacts { work_bytes, ..job() }, &Snapshot::new(&devices), draw)
    }

    #[test]
    fn each_op_and_device_has_its_size() {
        let policy = policy(&[(1, 500, 1), (2, usize::MAX, 1), (7, 1, 1)]);
        let to = |device, reason| Choice::to(device, Placement::Async, reason);
        assert_eq!(place(&policy, 499, [0, 0], NO_PROBE), Choice::software(Reason::Small));
        assert_eq!(place(&policy, 500, [0, 0], NO_PROBE), to(1, Reason::Policy));
        assert_eq!(place(&policy, 9_000, [8, 0], NO_PROBE), Choice::software(Reason::QueueFull));
        assert_eq!(place(&policy, 9_001, [8, 0], NO_PROBE), to(3, Reason::QueueFull));
        let other = JobFacts { op: Op::Decompress, work_bytes: 1_999, ..job() };
        let devices = [software(1), device(1, 1), device(1, 1)];
        let small = policy.place(&other, &Snapshot::new(&devices), NO_PROBE);
        assert_eq!(small, Choice::software(Reason::Small));
    }

    #[test]
    fn long_jobs_without_gain_go_to_workers() {
        let policy = policy(&[(1, usize::MAX, 1), (2, usize::MAX, 1)]);
        let choice = place(&policy, 9_001, [0, 0], NO_PROBE);
        assert_eq!((choice.device(), choice.reason), (3, Reason::Large));
        assert_eq!(place(&policy, 9_000, [0, 0], NO_PROBE), Choice::software(Reason::Small));
    }

    #[test]
    fn jobs_are_shared_by_weight_among_those_that_are_open() {
        let policy = policy(&[(1, 1, 3), (2, 1, 1)]);
        let draws = (0..400_u64).map(|at| (at * (1 << 32) / 400) << 32 | u64::from(u32::MAX));
        let to_first = |depths: [usize; 2]| {
            draws.clone().filter(|draw| place(&policy, 10, depths, *draw).device() == 1).count()
        };
        assert_eq!((to_first([0, 0]), to_first([0, 8]), to_first([8, 0])), (300, 400, 0));
    }

    #[test]
    fn jobs_up_to_a_size_are_waited_for() {
        let policy = policy(&[(1, 100, 7), (2, usize::MAX, 1)]);
        let placement = |bytes| place(&policy, bytes, [0, 0], NO_PROBE).placement;
        assert_eq!((placement(99), placement(100)), (Placement::Software, Placement::Sync));
        assert_eq!((placement(1_000), placement(1_001)), (Placement::Sync, Placement::Async));
    }

    #[test]
    fn probes_go_the_other_way_where_safe() {
        let policy = policy(&[(1, 1_000, 1), (2, usize::MAX, 1)]);
        let due = 1_u64 << 25;
        assert_eq!(place(&policy, 10, [0, 0], due).reason, Reason::Small);
        let probe = place(&policy, 10, [0, 0], due - 1);
        assert_eq!((probe.device(), probe.reason), (1, Reason::Probe));
        let probe = place(&policy, 5_000, [0, 0], 0);
        assert_eq!((probe.device(), probe.reason), (0, Reason::Probe));
        let probe = place(&policy, 5_000, [0, 0], 0xffff_ffff << 32);
        assert_eq!((probe.device(), probe.reason), (2, Reason::Probe));
        let long = place(&policy, 9_001, [0, 2], 0);
        assert_eq!(
            (long.device(), long.reason),
            (1, Reason::Policy),
            "neither the core nor a queue"
        );
        let never = FittedOffload { probe_every: 0, ..policy };
        assert_eq!(place(&never, 10, [0, 0], 0).reason, Reason::Small);
    }
}
