//! RELIEF as \[AccelFlow\] describes it: every completion interrupts one manager in hardware, which works on one at a
//! time. Branches, transforms and large payloads cost it more. All ops wait in one queue; with queues for each
//! accelerator it is the first step of the ablation. `queues/laxity.rs` has RELIEF as its public code implements it.

use super::{Glue, Handoff, Orchestrator, Queues};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Central, after };
pub(super) const PER_TYPE_QUEUES: Orchestrator = Orchestrator { queues: Queues::PerType, after };

/// A visit to the manager.
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
