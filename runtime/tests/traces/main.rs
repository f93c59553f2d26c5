//! Traces on real devices: every template with real payloads, what devices do to them, the executor's bounds, and the
//! example service over a socket.

#[path = "../../examples/traced_service/by_hand.rs"]
mod by_hand;
#[path = "../../examples/traced_service/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod limits;
mod paths;
mod rig;
#[path = "../../examples/traced_service/server.rs"]
mod server;
mod service;
mod templates;
#[path = "../../examples/traced_service/wire.rs"]
mod wire;
