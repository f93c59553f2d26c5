//! The limits of the language.

/// The maximum number of invocations in an encoded trace. Each takes 4 bits of a word of 64 bits,
/// as in \[AccelFlow\].
pub const INVOCATIONS_MAX: usize = 16;
/// The maximum depth of nested branches and forks. The parser and the decoder recurse at most this
/// far, and people cannot read deeper nesting.
pub const DEPTH_MAX: usize = 8;
/// The maximum number of 16-bit units for branches, transforms, forks and ends in a trace. The
/// encoding has 8 bits for this number.
pub const GLUE_UNITS_MAX: usize = 255;
/// The maximum number of 16-bit units in one condition.
pub const CONDITION_UNITS_MAX: usize = 31;
/// The maximum number of fields in a catalog. A slot has 8 bits.
pub const FIELDS_MAX: usize = 256;
/// The maximum number of traces in a catalog. An address has 16 bits, but this smaller limit is
/// enough for catalogs that people write.
pub const TRACES_MAX: usize = 4_096;
/// The maximum number of services in a catalog.
pub const SERVICES_MAX: usize = 4_096;
/// The maximum number of copies of a path that a service runs at the same time.
pub const PARALLEL_MAX: u32 = 1_024;
/// The maximum length of a name (bytes).
pub const NAME_BYTES_MAX: usize = 64;
/// The maximum length of a text (bytes).
pub const TEXT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(CONDITION_UNITS_MAX < GLUE_UNITS_MAX);
const _: () = assert!(TRACES_MAX <= 1 << 16 && FIELDS_MAX <= 1 << 8);
