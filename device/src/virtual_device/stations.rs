//! The engines of a virtual device by op. An op has engines of its own if its profile says so. The others share those of
//! the device. Decryption without engines of its own shares those of encryption.

use units::Op;
use workload::DeviceProfile;

use super::timeline::Timeline;

pub(super) struct Stations {
    shared: Timeline,
    own: [Option<Timeline>; Op::ALL.len()],
}

impl Stations {
    /// Makes the idle engines of an accelerator. Returns none for software on a core.
    pub(super) fn new(profile: &DeviceProfile) -> Option<Self> {
        let accelerator = profile.accelerator.as_ref()?;
        let own = Op::ALL.map(|op| {
            let engines = profile.op(op)?.engines.as_ref()?.value as usize;
            let entries = profile.op(op)?.entries_total.as_ref();
            let entries = entries.unwrap_or(&accelerator.entries_total).value as usize;
            Some(Timeline::idle(engines, entries))
        });
        Some(Self { shared: Timeline::new(accelerator), own })
    }

    /// Returns the engines that run the op.
    pub(super) fn of(&self, op: Op) -> &Timeline {
        let own = |op: Op| self.own[op.index()].as_ref();
        let sibling = || (op == Op::Decrypt).then(|| own(Op::Encrypt)).flatten();
        own(op).or_else(sibling).unwrap_or(&self.shared)
    }
}
