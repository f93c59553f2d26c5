//! The words every room shares: quantities with their unit in the type, the ops of the datacenter tax,
//! the clock, seeded randomness, and the page of limits.
//! No I/O, no helpers without an owner: what only one room needs lives in that room.

pub mod clock;
pub mod limits;
pub mod op;
pub mod quantity;
pub mod random;

pub use clock::{Clock, ManualClock, SystemClock};
pub use op::Op;
pub use quantity::{ByteCount, Nanos, NotATime};
pub use random::Prng;
