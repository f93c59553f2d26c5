//! Device profiles: the timing and limits of accelerators, and of software on a stated core, as data files. Each number
//! has its source, its range and our assumptions. Those of `specs/devices/` are compiled in. Any other is read from a
//! file. The module times and emulates nothing.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::Nanos;

mod check;
mod curve;
mod fault;
mod submission;

pub use curve::{BatchPoint, LatencyPoint, OpProfile, RatioPoint};
pub use fault::{FaultBucket, FaultTail};
pub use submission::{Accelerator, Attachment, SubmitBatchPoint};

/// An accelerator, or software on a stated core. It does the ops that it has a curve for, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// The name that callers ask for. For a compiled-in profile it is also its file's.
    pub name: String,
    /// A description in one sentence.
    pub about: String,
    /// The way in which jobs reach it, and how many it holds. Software on a core has none of this: a job runs where it
    /// is asked for.
    pub accelerator: Option<Accelerator>,
    /// The history that it writes and reads with; every profile that compresses or decompresses has one.
    pub window_log2: Option<Figure<u64>>,
    /// The largest input and the largest output of a job (bytes).
    pub transfer_bytes_max: Figure<u64>,
    /// A completion that comes this much after it is due is late: the device's own 99th percentile
    /// over its median.
    pub late_after_ns: Figure<u64>,
    /// The compress curve that holds.
    pub huffman: Option<Figure<Huffman>>,
    /// Compression by kind of Huffman code.
    pub compress: Option<CompressProfile>,
    /// Decompression.
    pub decompress: Option<OpProfile>,
    /// Encryption by AES-256-GCM; never without decryption.
    pub encrypt: Option<OpProfile>,
    /// Decryption of it.
    pub decrypt: Option<OpProfile>,
    /// The checksum CRC-32C.
    pub crc32c: Option<OpProfile>,
    /// The checksum CRC-64/XZ.
    pub crc64: Option<OpProfile>,
    /// Copy.
    pub copy: Option<OpProfile>,
    /// Page faults that the device has to wait for; buffers touched beforehand have none.
    pub fault_tail: Option<FaultTail>,
}

/// A number with its standing: its source, how sure it is, and how far off it may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The number.
    pub value: T,
    /// The origin of the number.
    pub kind: Kind,
    /// The paper or page and the address in it, or "none" if nothing is published.
    pub source: String,
    /// The lowest and the highest that it may be; an assumed or calibrated number always has both.
    pub range: Option<[T; 2]>,
    /// The derivation or the assumption.
    pub assumption: Option<String>,
}

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The source states it.
    Published,
    /// The number is arithmetic on what the source states.
    Derived,
    /// Fitted to published results, which the assumption names: agreeing with those proves nothing.
    Calibrated,
    /// Nothing published states it.
    Assumed,
}

/// The code that a compressor writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Huffman {
    /// One pass with the code of RFC 1951.
    Fixed,
    /// A pass for the statistics, then one with a code made for the input.
    Dynamic,
}

/// Compression by kind of Huffman code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressProfile {
    /// With the fixed code.
    pub fixed: Option<OpProfile>,
    /// With a code made for the input.
    pub dynamic: Option<OpProfile>,
}

/// The end of the ranges that a profile's costs take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Every cost with a range at its lowest: the fastest device that the sources leave room for.
    Low,
    /// The numbers as stated.
    #[default]
    Stated,
    /// Every cost with a range at its highest.
    High,
}

/// The reason why there is no such profile. The caller who named it must act.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile of that name is compiled in.
    #[error("no device profile is called {name:?}; known are {known}, or give a .toml file's path")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read device profile {path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The text is not a profile.
    #[error("device profile {origin}: {error}")]
    Malformed {
        /// The file or the compiled-in name.
        origin: String,
        /// The error and its place.
        error: Box<toml::de::Error>,
    },
    /// A number or its standing is not valid.
    #[error("device profile {origin}: {problem}")]
    Invalid {
        /// The file or the compiled-in name.
        origin: String,
        /// The key, its value and the valid range.
        problem: String,
    },
}

impl DeviceProfile {
    /// Returns the names of the compiled-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        COMPILED_IN.iter().map(|(name, _)| *name)
    }

    /// Returns a compiled-in profile by its name, or the file at that path when it ends in `.toml`.
    pub fn find(name: &str) -> Result<Self, ProfileError> {
        if name.ends_with(".toml") {
            return Self::read(Path::new(name));
        }
        let found = COMPILED_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| ProfileError::Unknown {
            name: name.to_owned(),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })?;
        Self::parse(text, name)
    }

    /// Reads a profile from a file.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| ProfileError::Unreadable { path: path.to_owned(), error });
        read.and_then(|_| Self::parse(&text, &path.display().to_string()))
    }

    /// Reads a profile from its text. Errors call it `origin`.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Malformed {
            origin: origin.to_owned(),
            error: Box::new(error),
        })?;
        let invalid = |problem| ProfileError::Invalid { origin: origin.to_owned(), problem };
        check::profile(&profile).map_err(invalid)?;
        Ok(profile)
    }

    /// Returns the profile with its costs at one end of their ranges. Its name then says which.
    pub fn variant(mut self, variant: Variant) -> Self {
        let suffix = match variant {
            Variant::Low => "-low",
            Variant::Stated => return self,
            Variant::High => "-high",
        };
        self.name.push_str(suffix);
        for figure in self.costs_mut() {
            figure.take_end(variant);
        }
        self
    }

    /// Returns compression with the Huffman code that the profile chose, if it compresses.
    pub fn compress(&self) -> Option<&OpProfile> {
        let compress = self.compress.as_ref()?;
        match self.huffman.as_ref()?.value {
            Huffman::Fixed => compress.fixed.as_ref(),
            Huffman::Dynamic => compress.dynamic.as_ref(),
        }
    }

    /// Returns whether it is software on a core: there is nothing to submit to, and the calling core's time is spent.
    pub fn is_core(&self) -> bool {
        self.accelerator.is_none()
    }

    /// Returns the cost of a lone submission of so many bytes for the calling core.
    pub fn submit(&self, bytes: u64) -> Nanos {
        self.submit_nth(bytes, 1)
    }

    /// Returns the cost of the `nth` of several submissions that go out together for the calling core. `nth` counts
    /// from 1.
    pub fn submit_nth(&self, bytes: u64, nth: u64) -> Nanos {
        self.accelerator.as_ref().map_or(Nanos(0), |accelerator| accelerator.submit(bytes, nth))
    }

    /// Returns the time at which the first poll of a typical job pays.
    pub fn expected_poll(&self) -> Nanos {
        let expected_ns =
            self.accelerator.as_ref().map(|accelerator| accelerator.expected_poll_ns.value);
        Nanos(expected_ns.unwrap_or(0))
    }

    /// Returns the time after its due time from which a completion is late.
    pub fn late_after(&self) -> Nanos {
        Nanos(self.late_after_ns.value)
    }

    fn costs_mut(&mut self) -> Vec<&mut Figure<u64>> {
        let compress = self.compress.as_mut();
        let codes =
            compress.into_iter().flat_map(|compress| [&mut compress.fixed, &mut compress.dynamic]);
        let others = [
            &mut self.decompress,
            &mut self.encrypt,
            &mut self.decrypt,
            &mut self.crc32c,
            &mut self.crc64,
            &mut self.copy,
        ];
        let of_ops = codes.chain(others).flatten().flat_map(OpProfile::figures_mut);
        of_ops.chain(self.accelerator.iter_mut().flat_map(Accelerator::figures_mut)).collect()
    }
}

impl Figure<u64> {
    fn take_end(&mut self, variant: Variant) {
        self.value = match (variant, self.range) {
            (Variant::Low, Some([low, _])) => low,
            (Variant::High, Some([_, high])) => high,
            _ => self.value,
        };
    }
}

/// A profile is a few pages of text; a larger file is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

macro_rules! compiled_in {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../specs/devices/", $name, ".toml")))),+]
    };
}

const COMPILED_IN: &[(&str, &str)] = compiled_in!(
    "iaa",
    "qat-4xxx",
    "qat-8970",
    "bluefield2",
    "bluefield2-arm",
    "dsa",
    "epyc7542-isal",
);

#[cfg(test)]
mod tests;
