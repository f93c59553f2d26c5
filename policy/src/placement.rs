//! The placement contract: the input and the result of a policy.

use std::ops::{Range, RangeInclusive};

use device::{Class, Dialect, TenantId};
use units::{Nanos, Op};

use crate::chain::{self, ChainChoice, ChainStep};

/// Decides where one job runs and how the calling thread waits for it.
pub trait Policy: Send + Sync {
    /// Returns the name that configuration and metrics use.
    fn name(&self) -> &'static str;

    /// Returns whether the policy uses these inputs: estimates and host times of devices, `waiting` and `gap`
    /// of the snapshot, and `last` of the job. If not, the caller may leave them out.
    fn uses_costs(&self) -> bool {
        false
    }

    /// Returns the decision. `draw` is a random number from the caller, uniform over all of `u64`.
    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice;

    /// Returns the decision for a job with a chain: whether all of its ops run in one trip, and where. `apart` has the
    /// ops one by one.
    fn place_chain(
        &self,
        whole: &ChainStep<'_>,
        apart: &[ChainStep<'_>],
        draw: u64,
    ) -> ChainChoice {
        chain::by_first_op(self, whole, apart, draw)
    }

    /// Returns a range of sizes (bytes) that includes this size. Jobs of these sizes get the same decision as
    /// long as the same devices are open to them. The caller may then reuse one decision instead of calling
    /// the policy for every job. Returns none if the decision depends on anything else.
    fn valid_sizes(&self, _work_bytes: usize) -> Option<Range<usize>> {
        None
    }

    /// Returns a bound on draws if a choice may be reused in every state between `least` and `most`, and none
    /// otherwise. A policy may always return none. The caller may give the choice to a job without asking the
    /// policy if all of this holds:
    /// - The job differs from this one only by a larger size or another tenant.
    /// - The last similar job got the same choice.
    /// - The lower half of the job's draw is at least the returned bound.
    ///
    /// A state is between `least` and `most` under these conditions:
    /// - Its eligible devices are eligible in `least` and include the eligible devices of `most`.
    /// - The estimate, host time and depth of the chosen device are between those in `least` and in `most`.
    /// - The estimates, host times and depths of other devices are at least those in `least`.
    /// - At least `least.waiting` jobs wait for the core, and the gap is at most `least.gap`.
    fn valid_between(
        &self,
        _choice: Choice,
        _job: &JobFacts,
        _least: &Snapshot<'_>,
        _most: &Snapshot<'_>,
    ) -> Option<u32> {
        None
    }
}

/// The facts about a job that a policy may use.
#[derive(Clone, Copy, Debug)]
pub struct JobFacts {
    /// The kind of work.
    pub op: Op,
    /// The dialect of the stream, if there is one.
    pub dialect: Option<Dialect>,
    /// The uncompressed size (bytes).
    pub work_bytes: usize,
    /// The class of the job, which says whether latency or throughput matters.
    pub class: Class,
    /// The tenant of the job.
    pub tenant: TenantId,
    /// The time left until the deadline, if the job has one.
    pub time_left: Option<Nanos>,
    /// The arm to which the policy sent the last job of this op and about this size, if there was one. The
    /// policy leaves this arm only for a sufficient gain.
    pub last: Option<(usize, Placement)>,
}

/// The devices as the runtime sees them now. Device 0 is always software on the calling core.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// One entry per device, in the order of the configuration.
    pub devices: &'a [DeviceState],
    /// The number of other jobs that wait for the calling core while a job holds it.
    pub waiting: usize,
    /// The time between two jobs placed on this core, smoothed over about a hundred jobs, if the runtime
    /// knows it. It gives the number of jobs that arrive while a job holds the calling core.
    pub gap: Option<Nanos>,
}

/// Returns the range that contains the size. The bounds (ascending) divide all sizes into ranges.
pub(crate) fn part(bounds: &[usize], work_bytes: usize) -> Range<usize> {
    let above = bounds.partition_point(|bound| *bound <= work_bytes);
    let from = above.checked_sub(1).map_or(0, |below| bounds[below]);
    from..bounds.get(above).copied().unwrap_or(usize::MAX)
}

impl<'a> Snapshot<'a> {
    /// Creates a snapshot of devices with no waiting jobs and an unknown gap.
    pub const fn new(devices: &'a [DeviceState]) -> Self {
        Self { devices, waiting: 0, gap: None }
    }

    /// Returns the first device other than software that accepts the job and has capacity.
    #[inline]
    pub fn first_open(&self) -> Option<usize> {
        self.first_open_of(1..=self.devices.len())
    }

    /// Returns the first of these devices that accepts the job and has capacity.
    #[inline]
    pub fn first_open_of(&self, devices: RangeInclusive<usize>) -> Option<usize> {
        let open = |state: &DeviceState| state.eligible && state.depth < state.capacity;
        let mut known = devices.filter(|device| *device < self.devices.len());
        known.find(|device| open(&self.devices[*device]))
    }

    /// Returns the reason why no device other than software takes the job.
    pub fn reason_for_software(&self) -> Reason {
        self.reason_without(1..=self.devices.len())
    }

    /// Returns the reason why none of these devices takes the job.
    pub fn reason_without(&self, devices: RangeInclusive<usize>) -> Reason {
        let some = |test: fn(&DeviceState) -> bool| {
            devices.clone().filter_map(|device| self.devices.get(device)).any(test)
        };
        if !some(|_| true) {
            Reason::OnlyDevice
        } else if some(|state| state.eligible) {
            Reason::QueueFull
        } else if some(|state| !state.healthy) {
            Reason::DeviceLost
        } else {
            Reason::Ineligible
        }
    }
}

/// The current state of one device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceState {
    /// Whether the device is healthy and accepts this job's dialect and size.
    pub eligible: bool,
    /// Whether the device is not retired.
    pub healthy: bool,
    /// The number of jobs in flight on the device.
    pub depth: usize,
    /// The maximum number of jobs in flight on the device.
    pub capacity: usize,
    /// The expected time from submission to completion, if the caller has an estimate. A good estimate
    /// accounts for the depth.
    pub estimated: Option<Nanos>,
    /// The time for which the job would hold the calling core with this device, if the runtime knows it. It
    /// does not include the wait for the core.
    pub host: Option<Nanos>,
}

/// The kind of device on which a job runs, and how the calling thread waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The job runs on the calling core, before submission returns.
    Software,
    /// The job runs on a device, and the calling thread waits for it.
    Sync,
    /// The job runs on a device, and the calling thread does other work.
    Async,
}

impl Placement {
    /// Every placement, in the order of its index.
    pub const ALL: [Placement; 3] = [Placement::Software, Placement::Sync, Placement::Async];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Software => "software",
            Placement::Sync => "sync",
            Placement::Async => "async",
        }
    }
}

/// A policy's decision. It fits in a register. If it were written to memory in parts and read as a whole, the
/// stall would take longer than a simple policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    device: u32,
    /// The way in which the calling thread waits for the job.
    pub placement: Placement,
    /// The reason for the decision.
    pub reason: Reason,
}

impl Choice {
    /// Chooses the device of this index in the snapshot.
    #[inline]
    pub const fn to(device: usize, placement: Placement, reason: Reason) -> Self {
        // An index beyond all devices stays beyond all devices.
        let device = if device < u32::MAX as usize { device as u32 } else { u32::MAX };
        Self { device, placement, reason }
    }

    /// Chooses software on the calling core.
    pub const fn software(reason: Reason) -> Self {
        Self::to(0, Placement::Software, reason)
    }

    /// Returns the device's index in the snapshot.
    #[inline]
    pub const fn device(self) -> usize {
        self.device as usize
    }
}

/// The reason why a job ran where it ran. It is part of every completion and every metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The policy prefers this device for this job.
    Policy,
    /// There is no other device.
    OnlyDevice,
    /// The job is below the size from which offloading pays.
    Small,
    /// The job is above the size that may run on the calling core.
    Large,
    /// No other device accepts the dialect or the size.
    Ineligible,
    /// The devices that accept the job are full.
    QueueFull,
    /// The device that would have run the job is no longer available.
    DeviceLost,
    /// The device failed the job, and the job was redone here.
    DeviceFault,
    /// The device did not complete the job in time, and the job was redone here.
    Timeout,
    /// The configuration forbids another placement for this op.
    Configured,
    /// The job is a probe of an arm that the policy does not prefer.
    Probe,
    /// The device would have missed the job's deadline.
    Deadline,
}

impl Reason {
    /// Every reason, in the order of its index.
    pub const ALL: [Reason; 12] = [
        Reason::Policy,
        Reason::OnlyDevice,
        Reason::Small,
        Reason::Large,
        Reason::Ineligible,
        Reason::QueueFull,
        Reason::DeviceLost,
        Reason::DeviceFault,
        Reason::Timeout,
        Reason::Configured,
        Reason::Probe,
        Reason::Deadline,
    ];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Policy => "policy",
            Reason::OnlyDevice => "only_device",
            Reason::Small => "small",
            Reason::Large => "large",
            Reason::Ineligible => "ineligible",
            Reason::QueueFull => "queue_full",
            Reason::DeviceLost => "device_lost",
            Reason::DeviceFault => "device_fault",
            Reason::Timeout => "timeout",
            Reason::Configured => "configured",
            Reason::Probe => "probe",
            Reason::Deadline => "deadline",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::least_cost::tests::job;
    use crate::policies;

    #[test]
    fn indices_match_the_tables() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        for (index, placement) in Placement::ALL.into_iter().enumerate() {
            assert_eq!(placement as usize, index);
        }
    }

    /// Returns software and two devices. Each of the two is closed, full or open.
    fn machines() -> impl Iterator<Item = [DeviceState; 3]> {
        let state = |code: usize| DeviceState {
            eligible: code > 0,
            healthy: true,
            depth: if code == 1 { 8 } else { 0 },
            capacity: 8,
            estimated: None,
            host: None,
        };
        (0..9).map(move |code| [state(2), state(code / 3), state(code % 3)])
    }

    #[test]
    fn what_is_said_to_be_placed_alike_is() {
        let bounds = [0, 1, 255, 256, 257, 999, 1_000, 8_999, 9_000, 9_001, usize::MAX - 1];
        for policy in policies::tests::all() {
            for (devices, size) in machines().flat_map(|machine| bounds.map(|size| (machine, size)))
            {
                let Some(sizes) = policy.valid_sizes(size) else {
                    assert!(policy.uses_costs(), "{}", policy.name());
                    continue;
                };
                assert!(sizes.contains(&size), "{}: {size} not in {sizes:?}", policy.name());
                let place = |work_bytes| {
                    let facts = JobFacts { work_bytes, ..job() };
                    policy.place(&facts, &Snapshot::new(&devices), work_bytes as u64)
                };
                let alike = bounds.into_iter().filter(|other| sizes.contains(other));
                for other in alike {
                    assert_eq!(place(other), place(size), "{}: {other}, {size}", policy.name());
                }
            }
        }
    }
}
