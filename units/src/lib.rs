//! The types that all crates share: quantities with their unit in the type, the ops of the datacenter tax, the codecs,
//! the ids of dictionaries, the structure of zstd frames, the clock, seeded randomness, the cores of a process, and the
//! common limits. The crate does no I/O. Code that only one crate needs belongs to that crate.

pub mod clock;
pub mod codec;
pub mod cores;
pub mod dictionary_id;
pub mod limits;
pub mod op;
pub mod quantity;
pub mod random;
pub mod trace_context;
pub mod zstd_frame;

pub use clock::{Clock, ManualClock, SystemClock, host_ms, unix_time};
pub use codec::Codec;
pub use dictionary_id::DictionaryId;
pub use op::Op;
pub use quantity::{ByteCount, Nanos, NotAByteCount, NotATime};
pub use random::Prng;
pub use trace_context::{NotATraceContext, TraceContext};
pub use zstd_frame::ZstdFrame;
