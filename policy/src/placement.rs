//! The placement contract: the input and the answer of a policy.

use std::ops::{Range, RangeInclusive};

use device::{Class, Dialect, TenantId};
use units::{Nanos, Op};

/// Decides where one job runs and how it is waited for.
pub trait Policy: Send + Sync {
    /// Returns the name that configuration and metrics use.
    fn name(&self) -> &'static str;

    /// Returns whether the policy looks at costs, waiters and the past: estimates and host times of devices, `waiting`
    /// and `gap` of the snapshot, `last` of the job. If not, the caller may leave them out.
    fn uses_costs(&self) -> bool {
        false
    }

    /// Returns the decision. `draw` is the caller's random number, uniform over all of `u64`.
    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice;

    /// Returns the sizes, this one (bytes) among them, of the jobs that are placed alike while the same devices are
    /// open to them. A caller that asks for every job may then use one answer again. Returns none if more counts:
    /// draws, depths, costs, or other facts of a job.
    fn valid_sizes(&self, _work_bytes: usize) -> Option<Range<usize>> {
        None
    }

    /// Returns the same for a policy that uses costs. It says whether this choice is the answer to every job that is
    /// like this one, or larger, from any tenant, in every state between `least` and `most`, if the last such job went
    /// there. Then the caller may use it again, for draws whose lower half is not below the returned number.
    ///
    /// A state lies between them if its eligible devices are all eligible at `least`, and those of `most` are among
    /// them; if estimate, host time and depth of the chosen device lie between those of the two, and the others' are at
    /// least those of `least`; and if at least `least.waiting` wait, and the gap is at most `least.gap`. None is always
    /// right.
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

/// The facts that a policy may know of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobFacts {
    /// The kind of work.
    pub op: Op,
    /// The promise of the stream, if there is one.
    pub dialect: Option<Dialect>,
    /// The uncompressed size (bytes).
    pub work_bytes: usize,
    /// The quality that the job needs.
    pub class: Class,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The time left until the deadline, if it has one.
    pub time_left: Option<Nanos>,
    /// The place where the policy sent the last job of this op and about this size, if it sent one: leaving a place
    /// takes more than staying.
    pub last: Option<(usize, Placement)>,
}

/// The devices as the runtime sees them now. Device 0 is always software on the calling core.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// One entry per device, in the order of the configuration.
    pub devices: &'a [DeviceState],
    /// The number of others that wait for the calling core. They wait for as long as a job keeps it.
    pub waiting: usize,
    /// The time between one job placed here and the next, smoothed over about a hundred, if the runtime knows it. It
    /// tells how many will come while the calling core is kept.
    pub gap: Option<Nanos>,
}

/// Returns the range that the size lies in. The bounds (ascending) divide all sizes into ranges.
pub(crate) fn part(bounds: &[usize], work_bytes: usize) -> Range<usize> {
    let above = bounds.partition_point(|bound| *bound <= work_bytes);
    let from = above.checked_sub(1).map_or(0, |below| bounds[below]);
    from..bounds.get(above).copied().unwrap_or(usize::MAX)
}

impl<'a> Snapshot<'a> {
    /// Makes a snapshot of devices whose core nobody waits for.
    pub const fn new(devices: &'a [DeviceState]) -> Self {
        Self { devices, waiting: 0, gap: None }
    }

    /// Returns the first device beside software that takes the job and has room.
    #[inline]
    pub fn first_open(&self) -> Option<usize> {
        self.first_open_of(1..=self.devices.len())
    }

    /// Returns the first of these devices that takes the job and has room.
    #[inline]
    pub fn first_open_of(&self, devices: RangeInclusive<usize>) -> Option<usize> {
        let open = |state: &DeviceState| state.eligible && state.depth < state.capacity;
        let mut known = devices.filter(|device| *device < self.devices.len());
        known.find(|device| open(&self.devices[*device]))
    }

    /// Returns the reason why no device beside software takes the job.
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

/// The state of one device now.
#[derive(Clone, Copy, Debug)]
pub struct DeviceState {
    /// True if it is healthy, and accepts this job's dialect and size.
    pub eligible: bool,
    /// True if it is not retired.
    pub healthy: bool,
    /// The number of jobs inside.
    pub depth: usize,
    /// The most jobs that it holds.
    pub capacity: usize,
    /// The expected time from submission to completion, if the caller has one. The better it accounts for the depth,
    /// the better the choice.
    pub estimated: Option<Nanos>,
    /// The time that the job would take of the calling core there, without waiting for the core, if the runtime knows
    /// it.
    pub host: Option<Nanos>,
}

/// The kind of place where a job runs, and how it is waited for.
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

    /// Returns the word that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Software => "software",
            Placement::Sync => "sync",
            Placement::Async => "async",
        }
    }
}

/// A policy's answer. It fits in a register: the processor would wait for an answer in memory, written in parts and
/// read as a whole, for longer than a simple policy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    device: u32,
    /// The way to wait for it.
    pub placement: Placement,
    /// The reason.
    pub reason: Reason,
}

impl Choice {
    /// Chooses the device of this index in the snapshot.
    #[inline]
    pub const fn to(device: usize, placement: Placement, reason: Reason) -> Self {
        // An index beyond all devices stays one.
        let device = if device < u32::MAX as usize { device as u32 } else { u32::MAX };
        Self { device, placement, reason }
    }

    /// Chooses software on the calling core.
    pub const fn software(reason: Reason) -> Self {
        Self::to(0, Placement::Software, reason)
    }

    /// Returns the index into the snapshot's devices.
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
    /// The job is below the size from which offload pays.
    Small,
    /// The job is above the size that may run on the calling core.
    Large,
    /// No other device accepts the dialect or the size.
    Ineligible,
    /// The devices that accept it are full.
    QueueFull,
    /// The device that would have run it is gone.
    DeviceLost,
    /// The device failed the job, and it was done again here.
    DeviceFault,
    /// The device did not answer in time, and the job was done again here.
    Timeout,
    /// The configuration forbids another placement for this direction.
    Configured,
    /// The arm is not the preferred one, and was tried on purpose.
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

    /// Returns the word that metrics use.
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
    use crate::list;

    #[test]
    fn indices_match_the_tables() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        for (index, placement) in Placement::ALL.into_iter().enumerate() {
            assert_eq!(placement as usize, index);
        }
    }

    /// Returns software and two devices: each closed, full or open.
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
        for policy in list::tests::all() {
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
