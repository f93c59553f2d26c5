//! Cohort: a few pairs of accelerators are linked and pass payloads directly. A link handles no branch, no
//! transform and no payload larger than an entry. In all other cases a core takes the result from a queue in
//! shared memory and decides what follows.

use super::{Glue, Handoff, Orchestrator, Queues};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Hardware, after };

fn after(glue: &Glue, spec: &Spec) -> Handoff {
    let pair = glue.to.map(|to| (glue.from, to));
    let linked = pair.is_some_and(|pair| spec.costs.cohort_pairs.contains(&pair));
    if linked && glue.branches + glue.transforms == 0 && !glue.large {
        Handoff::dispatcher(glue, spec, 0, 0)
    } else {
        Handoff::core(spec.costs.cohort_ns)
    }
}
