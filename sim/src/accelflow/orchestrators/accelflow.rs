//! AccelFlow, whose output dispatchers follow the trace, and two steps of its ablation. In `DIRECT` the
//! dispatchers do only plain handoffs. In `CONTROL_FLOW` they do everything except transforms and large
//! payloads. The manager does the rest.

use super::{Glue, Handoff, Orchestrator, Queues, relief};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Hardware, after };
pub(super) const DIRECT: Orchestrator = Orchestrator { queues: Queues::Hardware, after: direct };
pub(super) const CONTROL_FLOW: Orchestrator =
    Orchestrator { queues: Queues::Hardware, after: control_flow };

fn after(glue: &Glue, spec: &Spec) -> Handoff {
    Handoff::dispatcher(glue, spec, glue.branches, glue.transforms)
}

fn direct(glue: &Glue, spec: &Spec) -> Handoff {
    let plain = glue.branches + glue.transforms == 0 && !glue.large;
    if plain { after(glue, spec) } else { relief::after(glue, spec) }
}

fn control_flow(glue: &Glue, spec: &Spec) -> Handoff {
    if glue.transforms > 0 || glue.large {
        relief::after(&Glue { branches: 0, ..*glue }, spec)
    } else {
        after(glue, spec)
    }
}
