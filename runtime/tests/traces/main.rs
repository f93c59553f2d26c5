//! Traces on real devices: every template with real payloads, what devices do to them, and the executor's bounds. The
//! service that is made of them is `server`'s.

#[path = "../common/mod.rs"]
mod common;
mod limits;
mod paths;
mod rig;
mod templates;
