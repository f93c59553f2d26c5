//! Device profiles: the timing and limits of accelerators, and of software on a stated core, as data
//! files, each number with its source, its range and what we had to assume. Those of `specs/devices/`
//! are compiled in; any other is read from a file. It times and emulates nothing.

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
    /// The name it is asked for by; for a compiled-in profile also its file's.
    pub name: String,
    /// What it is, in one sentence.
    pub about: String,
    /// How jobs reach it and how many it holds. Software on a core has none of this: a job runs where it is asked for.
    pub accelerator: Option<Accelerator>,
    /// The history that it writes and reads with; every profile that compresses or decompresses has one.
    pub window_log2: Option<Figure<u64>>,
    /// The largest input and the largest output of a job (bytes).
    pub transfer_bytes_max: Figure<u64>,
    /// A completion that comes this much after it is due is late: the device's own 99th percentile
    /// over its median.
    pub late_after_ns: Figure<u64>,
    /// Which of the compress curves holds.
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

/// A number with its standing: who says so, how sure it is, and how far off it may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The number.
    pub value: T,
    /// How it came about.
    pub kind: Kind,
    /// The document and the address in it, or "none" where nothing is published.
    pub source: String,
    /// The lowest and the highest that it may be; an assumed or calibrated number always has both.
    pub range: Option<[T; 2]>,
    /// How it was derived or assumed.
    pub assumption: Option<String>,
}

/// How a number came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The source states it.
    Published,
    /// Arithmetic on what the source states.
    Derived,
    /// Fitted to published results, which the assumption names: agreeing with those proves nothing.
    Calibrated,
    /// Nothing published says it.
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

/// Which end of the ranges a profile's costs take.
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

/// Why there is no such profile; the caller who named it must act.
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
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The text is not a profile.
    #[error("device profile {origin}: {error}")]
    Malformed {
        /// The file or the compiled-in name.
        origin: String,
        /// What and where.
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
    /// The names of the compiled-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        COMPILED_IN.iter().map(|(name, _)| *name)
    }

    /// A compiled-in profile by its name, or the file at that path when it ends in `.toml`.
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

    /// Reads a profile from its text; `origin` is what errors call it.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Malformed {
            origin: origin.to_owned(),
            error: Box::new(error),
        })?;
        let invalid = |problem| ProfileError::Invalid { origin: origin.to_owned(), problem };
        check::profile(&profile).map_err(invalid)?;
        Ok(profile)
    }

    /// The profile with its costs at one end of their ranges; its name then says which.
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

    /// Compression with the Huffman code that the profile chose, if it compresses.
    pub fn compress(&self) -> Option<&OpProfile> {
        let compress = self.compress.as_ref()?;
        match self.huffman.as_ref()?.value {
            Huffman::Fixed => compress.fixed.as_ref(),
            Huffman::Dynamic => compress.dynamic.as_ref(),
        }
    }

    /// Whether it is software on a core: nothing to submit to, and the calling core's time is spent.
    pub fn is_core(&self) -> bool {
        self.accelerator.is_none()
    }

    /// What a lone submission of so many bytes costs the calling core.
    pub fn submit(&self, bytes: u64) -> Nanos {
        self.submit_nth(bytes, 1)
    }

    /// What the `nth` of several submissions that go out together costs the calling core; from 1 on.
    pub fn submit_nth(&self, bytes: u64, nth: u64) -> Nanos {
        self.accelerator.as_ref().map_or(Nanos(0), |own| own.submit(bytes, nth))
    }

    /// When the first poll of a typical job pays.
    pub fn expected_poll(&self) -> Nanos {
        let expected_ns = self.accelerator.as_ref().map(|own| own.expected_poll_ns.value);
        Nanos(expected_ns.unwrap_or(0))
    }

    /// How much after its due time a completion is late.
    pub fn late_after(&self) -> Nanos {
        Nanos(self.late_after_ns.value)
    }

    fn costs_mut(&mut self) -> Vec<&mut Figure<u64>> {
        let compress = self.compress.as_mut();
        let codes = compress.into_iter().flat_map(|own| [&mut own.fixed, &mut own.dynamic]);
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
