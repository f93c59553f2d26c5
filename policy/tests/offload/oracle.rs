//! Two references for `LeastLatency`. `Oracle` is the same objective in plain code, without probes or
//! hysteresis. It sees the exact times of the current job, so it shows the loss from inexact estimates.
//! `hindsight` uses no objective: it searches for the fixed arms with the least mean latency over a run. It
//! also shows the loss from the objective.

use policy::{Choice, JobFacts, Placement, Policy, Reason, Snapshot};

pub(crate) struct Oracle;

impl Policy for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn place(&self, _job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        let (waiting, gap) = (snapshot.waiting as f64, snapshot.gap.unwrap().0 as f64);
        let least = snapshot.devices.iter().map(|state| state.host.unwrap().0).min().unwrap();
        let idle = (gap - 2.0 * least as f64).max(gap / 8.0);
        let mut best = (f64::INFINITY, 0, Placement::Software);
        for (device, state) in snapshot.devices.iter().enumerate() {
            let took = state.estimated.unwrap().0 as f64;
            let host = state.host.unwrap().0 as f64;
            let added = |core: f64, turns: f64| took + core * (turns + waiting + 2.0 * core / idle);
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

/// Uses a fixed arm for each size class. The jobs of a full device run in software.
#[derive(Clone, Copy)]
pub(crate) struct Fixed([(usize, Placement); CLASSES]);

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        let (device, placement) = self.0[class(job.work_bytes)];
        let state = &snapshot.devices[device];
        if device != 0 && state.depth == state.capacity {
            return Choice::software(Reason::QueueFull);
        }
        Choice::to(device, placement, Reason::Policy)
    }
}

/// Returns the mean latency for the fixed arms that turn out best over a run. It begins with one arm for all sizes, and
/// changes one size class at a time as long as any change helps.
pub(crate) fn hindsight(mean: impl Fn(&dyn Policy) -> f64) -> f64 {
    let judged = |places: Fixed| (mean(&places), places);
    let all_in_one = PLACES.map(|place| judged(Fixed([place; CLASSES])));
    let mut best = all_in_one.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    loop {
        let before = best.0;
        for class in 0..CLASSES {
            let now = best.1.0[class];
            for place in PLACES.into_iter().filter(|place| *place != now) {
                let mut other = best.1;
                other.0[class] = place;
                let other = judged(other);
                best = if other.0 < best.0 { other } else { best };
            }
        }
        if best.0 >= before {
            return best.0;
        }
    }
}

const PLACES: [(usize, Placement); 3] =
    [(0, Placement::Software), (1, Placement::Sync), (1, Placement::Async)];

/// The number of size classes: one for sizes below 128 B, and one for each power of two from 128 B to 16 KiB.
/// The last class also contains larger sizes.
const CLASSES: usize = 9;

fn class(bytes: usize) -> usize {
    (bytes.max(1).ilog2() as usize).clamp(6, 5 + CLASSES) - 6
}
