//! The format and the place of stored values: the frame, the embedded store and the ring.
//! This crate has no codecs, no placement, no sockets, no threads and no clock. Bytes and the time
//! of day are arguments.

mod checksum;
pub mod dictionary_keys;
pub mod embedded;
pub mod frame;
pub mod ring;

pub use embedded::{Embedded, Options};
pub use frame::{Encoding, FrameError, Header, Inspected, SealedHeader, inspect};
pub use ring::{Distribution, Ring, Server};
