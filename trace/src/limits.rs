//! The bounds of the language, related to each other.

/// The most invocations of an encoded trace: 4 bits each in a word of 64, as in \[AccelFlow\].
pub const INVOCATIONS_MAX: usize = 16;
/// The deepest nesting of branches and forks: nobody reads deeper, and reading and decoding recurse this far at most.
pub const DEPTH_MAX: usize = 8;
/// The most units of 16 bits for branches, transforms, forks and ends: their count has 8 bits.
pub const GLUE_UNITS_MAX: usize = 255;
/// The most units of one condition.
pub const CONDITION_UNITS_MAX: usize = 31;
/// The most fields of a catalog: a slot has 8 bits.
pub const FIELDS_MAX: usize = 256;
/// The most traces of a catalog. An address has 16 bits; this many are a catalog that somebody wrote.
pub const TRACES_MAX: usize = 4_096;
/// The most services of a catalog.
pub const SERVICES_MAX: usize = 4_096;
/// The most copies that a service runs at once.
pub const PARALLEL_MAX: u32 = 1_024;
/// The longest name.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest text that is read.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(CONDITION_UNITS_MAX < GLUE_UNITS_MAX);
const _: () = assert!(TRACES_MAX <= 1 << 16 && FIELDS_MAX <= 1 << 8);
