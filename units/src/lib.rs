//! The types that all crates share: quantities with their unit in the type, the ops of the datacenter tax, the clock,
//! seeded randomness, and the common limits. The crate does no I/O. Code that only one crate needs belongs to that
//! crate.

pub mod clock;
pub mod limits;
pub mod op;
pub mod quantity;
pub mod random;

pub use clock::{Clock, ManualClock, SystemClock};
pub use op::Op;
pub use quantity::{ByteCount, Nanos, NotAByteCount, NotATime};
pub use random::Prng;
