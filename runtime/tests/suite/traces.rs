//! Tests traces on real devices: every template with real payloads, faults of devices, and the executor's limits. The
//! crate `server` tests the service that uses traces.

mod emulated;
mod limits;
mod paths;
mod rig;
mod templates;
