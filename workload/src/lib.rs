//! The parts of a workload: value sizes, key names and popularity, arrivals, payload bytes, and the presets of
//! `specs/workloads/`, which hold published numbers. The crate also reads device profiles, which are the published
//! costs of accelerators (`specs/devices/`). [`cpu`] shows where a service's cycles go.
//!
//! Everything is a function of a seed. This crate runs nothing: it has no threads, sockets or clocks, and reads only
//! presets, profiles and corpora from files.

mod arrivals;
mod corpus;
pub mod cpu;
mod generate;
mod hash;
mod keys;
mod popularity;
mod preset;
mod profile;
mod sizes;
mod values;

pub use arrivals::{ArrivalKind, Arrivals};
pub use corpus::{Corpus, CorpusError};
pub use generate::{PayloadClass, UnknownClass};
pub use keys::Keys;
pub use popularity::Popularity;
pub use preset::{Preset, PresetError, Sourced};
pub use profile::{
    Accelerator, Attachment, BatchPoint, ChainsProfile, CompressProfile, DeviceProfile,
    FaultBucket, FaultTail, Figure, Huffman, Kind, LatencyPoint, OpProfile, ProfileError,
    RatioPoint, SubmitBatchPoint, Succession, Variant,
};
pub use sizes::{BadSizes, SizeDist, SizePart, Sizes, Weighting};
pub use values::{Mismatch, Values};
