//! Ideal: AccelFlow with branches and transforms that cost nothing.

use super::{Glue, Handoff, Orchestrator, Queues};
use crate::accelflow::spec::Spec;

pub(super) const ORCHESTRATOR: Orchestrator = Orchestrator { queues: Queues::Hardware, after };

fn after(glue: &Glue, spec: &Spec) -> Handoff {
    Handoff::dispatcher(glue, spec, 0, 0)
}
