//! RELIEF as \[AccelFlow\] describes it: every completion interrupts one hardware manager, which handles one
//! interrupt at a time. Branches, transforms and large payloads increase the manager's time. All ops wait in
//! one queue. `PER_TYPE_QUEUES` has one queue per accelerator and is the first step of the ablation.
//! `queues/laxity.rs` has RELIEF as its public code implements it.

use super::{Glue, Handoff, Orchestrator, Queues};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Central, after };
pub(super) const PER_TYPE_QUEUES: Orchestrator = Orchestrator { queues: Queues::PerType, after };

/// Returns the handoff by the manager.
pub(super) fn after(glue: &Glue, spec: &Spec) -> Handoff {
    let costs = &spec.costs;
    let large_ns = if glue.large { costs.manager_large_ns } else { 0.0 };
    Handoff::manager(
        costs.manager_ns
            + f64::from(glue.branches) * costs.manager_branch_ns
            + f64::from(glue.transforms) * costs.manager_transform_ns
            + large_ns,
    )
}
