//! Non-acc: no accelerators; every op runs on a core, and nothing is handed over.

use super::{Handoff, Orchestrator, Queues};

pub(super) const ORCHESTRATOR: Orchestrator =
    Orchestrator { queues: Queues::Software, after: |_, _| Handoff::core(0.0) };
