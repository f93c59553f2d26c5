//! The limits of the language.

/// The most invocations of an encoded trace. Each takes 4 bits of a word of 64 bits, as in
/// \[AccelFlow\].
pub const INVOCATIONS_MAX: usize = 16;
/// The deepest nesting of branches and forks. People cannot read deeper nesting, and reading and
/// decoding recurse at most this far.
pub const DEPTH_MAX: usize = 8;
/// The most units of 16 bits for branches, transforms, forks and ends. Their count has 8 bits.
pub const GLUE_UNITS_MAX: usize = 255;
/// The most units of one condition.
pub const CONDITION_UNITS_MAX: usize = 31;
/// The most fields of a catalog. A slot has 8 bits.
pub const FIELDS_MAX: usize = 256;
/// The most traces of a catalog. An address has 16 bits, but a catalog that a person writes stays
/// below this smaller limit.
pub const TRACES_MAX: usize = 4_096;
/// The most services of a catalog.
pub const SERVICES_MAX: usize = 4_096;
/// The most copies of a path that a service runs at once.
pub const PARALLEL_MAX: u32 = 1_024;
/// The longest name (bytes).
pub const NAME_BYTES_MAX: usize = 64;
/// The longest text that is read (bytes).
pub const TEXT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(CONDITION_UNITS_MAX < GLUE_UNITS_MAX);
const _: () = assert!(TRACES_MAX <= 1 << 16 && FIELDS_MAX <= 1 << 8);
