//! What `LeastLatency` is measured against: the same objective written down plainly, without probes or hysteresis, for
//! a machine that shows it the times that the very job will take.

use policy::{Choice, JobFacts, Placement, Policy, Reason, Snapshot};

pub(crate) struct Oracle;

impl Policy for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn place(&self, _job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        let (waiting, gap) = (snapshot.waiting as f64, snapshot.gap.unwrap().0 as f64);
        let mut best = (f64::INFINITY, 0, Placement::Software);
        for (device, state) in snapshot.devices.iter().enumerate() {
            let took = state.estimated.unwrap().0 as f64;
            let host = state.host.unwrap().0 as f64;
            let added = |core: f64, turns: f64| took + core * (turns + waiting + 2.0 * core / gap);
            let ways = match device {
                0 => vec![(added(host, 0.0), Placement::Software)],
                _ if state.depth == state.capacity => vec![],
                _ => {
                    vec![(added(took, 0.0), Placement::Sync), (added(host, 1.0), Placement::Async)]
                }
            };
            for (cost, placement) in ways {
                if cost < best.0 {
                    best = (cost, device, placement);
                }
            }
        }
        Choice::to(best.1, best.2, Reason::Policy)
    }
}
