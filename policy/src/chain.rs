//! Where the ops of a chain run: all of them in one trip, or each by itself.

use crate::placement::{Choice, JobFacts, Policy, Snapshot};

/// One decision of a chain: what is placed, and the devices as they are for that.
#[derive(Clone, Copy, Debug)]
pub struct ChainStep<'a> {
    /// The facts about the op. For the whole chain these are the facts about its first op.
    pub job: JobFacts,
    /// The devices. For the whole chain only those are eligible that run all of it in one trip, and their times are
    /// those of the whole chain.
    pub snapshot: Snapshot<'a>,
}

/// The decision for a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainChoice {
    /// All ops run here, and the caller waits once.
    Whole(Choice),
    /// Each op is placed by itself.
    Apart,
}

impl ChainStep<'_> {
    fn place(&self, policy: &(impl Policy + ?Sized), draw: u64) -> Choice {
        policy.place(&self.job, &self.snapshot, draw)
    }
}

/// Decides for a policy that uses no costs. The chain goes where its first op goes, if that device runs all of it. Else
/// it goes to a device that does, because the trip is then paid once. If the policy wants the first op in software, the
/// others go there too, unless it wants one of them elsewhere.
pub(crate) fn by_first_op(
    policy: &(impl Policy + ?Sized),
    whole: &ChainStep<'_>,
    apart: &[ChainStep<'_>],
    draw: u64,
) -> ChainChoice {
    let Some((first, rest)) = apart.split_first() else { return ChainChoice::Apart };
    let choice = first.place(policy, draw);
    if choice.device() == 0 {
        let stays = rest.iter().all(|step| step.place(policy, draw).device() == 0);
        return if stays { ChainChoice::Whole(choice) } else { ChainChoice::Apart };
    }
    let runs_all = |device: usize| {
        let state = whole.snapshot.devices.get(device);
        state.is_some_and(|state| state.eligible && state.depth < state.capacity)
    };
    if runs_all(choice.device()) {
        return ChainChoice::Whole(choice);
    }
    let choice = whole.place(policy, draw);
    match choice.device() != 0 && runs_all(choice.device()) {
        true => ChainChoice::Whole(choice),
        false => ChainChoice::Apart,
    }
}

#[cfg(test)]
mod tests {
    use device::{Class, TenantId};
    use units::{Nanos, Op};

    use super::*;
    use crate::placement::DeviceState;
    use crate::policies::{AlwaysSoftware, AsyncOffload, LeastHostCycles, LeastLatency};

    fn state(eligible: bool, estimated_us: u64, host_us: u64) -> DeviceState {
        DeviceState {
            eligible,
            healthy: true,
            depth: 0,
            capacity: 8,
            estimated: Some(Nanos::micros(estimated_us)),
            host: Some(Nanos::micros(host_us)),
        }
    }

    fn step(op: Op, devices: &[DeviceState]) -> ChainStep<'_> {
        let job = JobFacts {
            op,
            dialect: None,
            work_bytes: 4_096,
            class: Class::LatencyCritical,
            tenant: TenantId::default(),
            time_left: None,
            last: None,
        };
        ChainStep { job, snapshot: Snapshot::new(devices) }
    }

    fn decide(
        policy: &dyn Policy,
        whole: &[DeviceState],
        first: &[DeviceState],
        second: &[DeviceState],
    ) -> Option<usize> {
        let apart = [step(Op::Compress, first), step(Op::Encrypt, second)];
        match policy.place_chain(&step(Op::Compress, whole), &apart, NO_PROBE) {
            ChainChoice::Whole(choice) => Some(choice.device()),
            ChainChoice::Apart => None,
        }
    }

    /// A draw that leads to no probe.
    const NO_PROBE: u64 = u32::MAX as u64;

    #[test]
    fn a_chain_follows_its_first_op_to_a_device_that_runs_it() {
        let offload = AsyncOffload { work_bytes_min: 0 };
        let software = state(true, 50, 50);
        let [yes, no] = [true, false].map(|eligible| state(eligible, 10, 1));
        let all = [software, yes, yes];
        assert_eq!(decide(&offload, &all, &all, &all), Some(1));
        // The first device runs only one of the ops.
        let second_only = [software, no, yes];
        assert_eq!(decide(&offload, &second_only, &all, &second_only), Some(2));
        let none = [software, no, no];
        assert_eq!(decide(&offload, &none, &all, &none), None);
        assert_eq!(decide(&AlwaysSoftware, &all, &all, &all), Some(0));
        // Software compresses, and a device encrypts.
        assert_eq!(decide(&offload, &none, &none, &second_only), None);
    }

    #[test]
    fn costs_of_a_chain_are_compared_with_those_of_its_ops() {
        let latency = LeastLatency { inline_bytes_max: 0 };
        let cycles = LeastHostCycles { latency_max: Nanos::secs(1), inline_bytes_max: 0 };
        let device = |us: u64| [state(true, 200, 200), state(true, us, us / 10)];
        for policy in [&latency as &dyn Policy, &cycles] {
            let name = policy.name();
            assert_eq!(decide(policy, &device(60), &device(40), &device(40)), Some(1), "{name}");
            assert_eq!(decide(policy, &device(100), &device(40), &device(40)), None, "{name}");
        }
    }

    #[test]
    fn a_chain_of_unknown_cost_is_tried() {
        let latency = LeastLatency { inline_bytes_max: 0 };
        let unknown = |known: DeviceState| DeviceState { estimated: None, host: None, ..known };
        let known = [state(true, 200, 200), state(true, 40, 4)];
        let whole = known.map(unknown);
        assert!(decide(&latency, &whole, &known, &known).is_some());
        assert!(decide(&latency, &known, &whole, &known).is_some());
    }
}
