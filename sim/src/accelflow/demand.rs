//! Computes the average demand of the offered load on cores, manager and accelerators, without a simulation.
//! Only a run shows how long ops wait.

use super::AccelFlow;
use super::ids::{ByKind, KINDS, Kind};
use super::orchestrators::Via;
use super::program::{OpStep, Step};
use super::queues::Discipline;
use super::spec::Hardware;

/// The work (ps) that arrives per picosecond for each component.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    pub(super) cores: f64,
    pub(super) manager: f64,
    pub(super) accelerators: ByKind<f64>,
    /// The demand on cores if cores did the ops of each accelerator.
    pub(super) instead: ByKind<f64>,
}

impl Demand {
    /// Returns the reason why the model has no steady state under a discipline, or none if it may have one.
    pub(super) fn overload<D: Discipline>(model: &AccelFlow) -> Option<String> {
        let mut demand = Self::default();
        for (program, arrivals) in model.programs.iter().zip(&model.arrivals) {
            let requests_per_ps = 1e-3 / arrivals.mean_gap_ns();
            for (step, times) in program.steps.iter().zip(&program.times) {
                D::add_demand(model, step, requests_per_ps * times, &mut demand);
            }
        }
        D::overloaded(&demand, &model.spec.hardware)
    }

    /// Returns an error text if the cores or the manager are overloaded. `fallen` is the demand of the ops
    /// that fall back from accelerators to cores.
    pub(super) fn over_servers(&self, fallen: f64, hardware: &Hardware) -> Option<String> {
        over("cores", (self.cores + fallen) / f64::from(hardware.cores))
            .or_else(|| over("the manager", self.manager))
    }

    /// Returns an error text that names an overloaded accelerator, if there is one.
    pub(super) fn over_accelerators(&self, hardware: &Hardware) -> Option<String> {
        let pes = f64::from(hardware.pes);
        let mut loads = self.accelerators.iter().zip(KINDS);
        loads.find_map(|(load, kind)| over(kind.name(), load / pes))
    }

    /// Adds the demand of a step on a server with accelerators, for `per_ps` executions per picosecond.
    pub(super) fn add_accelerated(&mut self, model: &AccelFlow, step: &Step, per_ps: f64) {
        match step {
            Step::Core { ps, submits_ps } => self.cores += per_ps * (ps + submits_ps),
            Step::Op(op) => self.op(op, per_ps, large_share(model, op.next.unwrap_or(op.kind))),
            _ => {}
        }
    }

    /// Adds the demand of an op that is executed `per_ps` times per picosecond. `large` is the share of its
    /// payloads that do not fit an entry.
    fn op(&mut self, op: &OpStep, per_ps: f64, large: f64) {
        self.accelerators[op.kind] += per_ps * op.pe.0 as f64;
        self.instead[op.kind] += per_ps * op.cpu_ps;
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

/// Returns an error text if the load is one or more.
fn over(name: &str, load: f64) -> Option<String> {
    (load >= 1.0).then(|| format!("{name}: {load:.2} times what can be done is asked for"))
}

/// Returns the share of an accelerator's payloads that do not fit an entry.
fn large_share(model: &AccelFlow, kind: Kind) -> f64 {
    let points = model.sizes[kind].points();
    let inline = model.spec.hardware.inline_bytes;
    points.iter().filter(|point| point.bytes > inline).count() as f64 / points.len() as f64
}
