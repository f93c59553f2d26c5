//! The engines of a virtual device by op. An op has separate engines if its profile says so. The others share those of
//! the device. Decryption without separate engines shares those of encryption.

use units::Op;
use workload::DeviceProfile;

use super::timeline::Timeline;

pub(super) struct Stations {
    shared: Timeline,
    per_op: [Option<Timeline>; Op::ALL.len()],
}

impl Stations {
    /// Makes the idle engines of an accelerator. Returns none for software on a core.
    pub(super) fn new(profile: &DeviceProfile) -> Option<Self> {
        let accelerator = profile.accelerator.as_ref()?;
        let per_op = Op::ALL.map(|op| {
            let engines = profile.op(op)?.engines.as_ref()?.value as usize;
            let entries = profile.op(op)?.entries_total.as_ref();
            let entries = entries.unwrap_or(&accelerator.entries_total).value as usize;
            Some(Timeline::idle(engines, entries))
        });
        Some(Self { shared: Timeline::new(accelerator), per_op })
    }

    /// Returns the engines that run the op.
    pub(super) fn engines(&self, op: Op) -> &Timeline {
        let engine = |op: Op| self.per_op[op.index()].as_ref();
        let sibling = || (op == Op::Decrypt).then(|| engine(Op::Encrypt)).flatten();
        engine(op).or_else(sibling).unwrap_or(&self.shared)
    }
}
