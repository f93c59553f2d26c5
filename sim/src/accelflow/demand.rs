//! The average demand of the offered load on cores, manager and accelerators, known without a run. It draws nothing and
//! knows no queue; the run finds how long ops wait.

use super::AccelFlow;
use super::orchestrators::{Queues, Via};
use super::program::{OpStep, Step};
use super::topology::KINDS;

/// Work that comes in a unit of time, in units of that time.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    cores: f64,
    manager: f64,
    accelerators: [f64; KINDS.len()],
    /// The demand on cores if they did the accelerators' work.
    instead: [f64; KINDS.len()],
}

/// Returns why no steady state can exist: cores or the manager get more work than they can do, or accelerators with
/// unbounded queues do. Where queues are finite, what accelerators cannot do falls back to cores.
pub(super) fn overload(model: &AccelFlow) -> Option<String> {
    let demand = demand(model);
    let hardware = &model.spec.hardware;
    let over = |name: &str, load: f64| {
        (load >= 1.0).then(|| format!("{name}: {load:.2} times what can be done is asked for"))
    };
    let pes = f64::from(hardware.pes);
    let endless = matches!(model.queues, Queues::Central | Queues::PerType | Queues::Laxity);
    let mut accelerators = demand.accelerators.iter().zip(KINDS).filter(|_| endless);
    let loads = demand.accelerators.iter().zip(&demand.instead).filter(|_| !endless);
    let fallen = loads.map(|(load, instead)| instead * f64::max(0.0, 1.0 - pes / load));
    over("cores", (demand.cores + fallen.sum::<f64>()) / f64::from(hardware.cores))
        .or_else(|| over("the manager", demand.manager))
        .or_else(|| accelerators.find_map(|(load, kind)| over(kind.name(), load / pes)))
}

fn demand(model: &AccelFlow) -> Demand {
    let mut demand = Demand::default();
    for (program, arrivals) in model.programs.iter().zip(&model.arrivals) {
        let requests_per_ps = 1e-3 / arrivals.mean_gap_ns();
        for (step, times) in program.steps.iter().zip(&program.times) {
            let per_ps = requests_per_ps * times;
            match step {
                Step::Core { ps, submits_ps } => {
                    let submits_ps = if model.queues == Queues::None { 0.0 } else { *submits_ps };
                    demand.cores += per_ps * (ps + submits_ps);
                }
                Step::Op(op) if model.queues == Queues::None => demand.cores += per_ps * op.cpu_ps,
                Step::Op(op) => {
                    demand.op(op, per_ps, large_share(model, op.next.unwrap_or(op.kind)));
                    if model.queues == Queues::Laxity {
                        // At least what loads its payload.
                        demand.manager += per_ps * model.manager_dma.0 as f64;
                    }
                }
                Step::Fork { .. } | Step::Notify | Step::Arrive | Step::Done => {}
            }
        }
    }
    demand
}

impl Demand {
    /// An op that is made so often, whose payload does not fit an entry for this share.
    fn op(&mut self, op: &OpStep, per_ps: f64, large: f64) {
        self.accelerators[usize::from(op.kind)] += per_ps * op.pe.0 as f64;
        self.instead[usize::from(op.kind)] += per_ps * op.cpu_ps;
        for (handoff, share) in op.after.iter().zip([1.0 - large, large]) {
            let work = per_ps * share * handoff.time.0 as f64;
            match handoff.via {
                Via::Manager => self.manager += work,
                Via::Core => self.cores += work,
                Via::Dispatcher => {}
            }
        }
    }
}

/// The share of an accelerator's payloads that do not fit an entry.
fn large_share(model: &AccelFlow, kind: u8) -> f64 {
    let points = model.sizes[usize::from(kind)].points();
    let inline = model.spec.hardware.inline_bytes;
    points.iter().filter(|point| point.bytes > inline).count() as f64 / points.len() as f64
}
