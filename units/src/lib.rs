//! The words that every crate shares: quantities with their unit in the type, the ops of the datacenter tax, the clock,
//! seeded randomness, and the page of limits. There is no I/O, and there are no helpers without an owner: what only one
//! crate needs lives in that crate.

pub mod clock;
pub mod limits;
pub mod op;
pub mod quantity;
pub mod random;

pub use clock::{Clock, ManualClock, SystemClock};
pub use op::Op;
pub use quantity::{ByteCount, Nanos, NotAByteCount, NotATime};
pub use random::Prng;
