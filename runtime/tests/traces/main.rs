//! Tests traces on real devices: every template with real payloads, faults of devices, and the executor's limits. The
//! crate `server` tests the service that uses traces.

#[path = "../common/mod.rs"]
mod common;
mod emulated;
mod limits;
mod paths;
mod rig;
mod templates;
