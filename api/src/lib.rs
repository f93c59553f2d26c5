//! The gRPC messages and services, generated from `proto/` (`tests/generated.rs` shows how), and the set-up of both
//! ends of a connection: window and frame sizes, addresses, channels, and the logins of callers. The crate implements
//! no service.

mod address;
mod cipher;
mod connection;
mod login;
pub mod wire;

pub use address::{Address, BadAddress};
pub use connection::Connection;
pub use login::{Login, LoginError, LoginFile};
pub use prost;
pub use tonic;

/// The generated code of the package `rebate.v1`.
#[allow(missing_docs, clippy::all, unused_qualifications)]
pub mod v1 {
    include!("generated/rebate.v1.rs");
}

/// The compiled `proto/` files, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
