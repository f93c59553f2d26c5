//! RELIEF as its public code has it. The manager decides as in `relief.rs`, and `queues/laxity.rs` has what differs.

use super::{Orchestrator, Queues, relief};

pub(super) const ORCHESTRATOR: Orchestrator =
    Orchestrator { queues: Queues::Laxity, after: relief::after };
