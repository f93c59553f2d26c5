//! CPU-Centric: every accelerator interrupts a core, which decides what follows and submits it.

use super::{Glue, Handoff, Orchestrator, Queues};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Hardware, after };

fn after(_: &Glue, spec: &Spec) -> Handoff {
    Handoff::core(spec.costs.interrupt_ns)
}
