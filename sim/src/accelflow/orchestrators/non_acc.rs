//! Non-acc: there are no accelerators, so every op runs on a core and nothing is passed on.

use super::{Handoff, Orchestrator, Queues};

pub(super) const ORCHESTRATOR: Orchestrator =
    Orchestrator { queues: Queues::Software, after: |_, _| Handoff::core(0.0) };
