//! RELIEF as its public code implements it. The manager decides as in `relief.rs`, and `queues/laxity.rs` contains the
//! differences.

use super::{Orchestrator, Queues, relief};

pub(super) const ORCHESTRATOR: Orchestrator =
    Orchestrator { queues: Queues::Laxity, after: relief::after };
