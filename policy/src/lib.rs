//! Placement and codec choice as pure functions.
