//! Reads device profiles: the timing and limits of accelerators, and of software on a stated core, as data files. Each
//! number has its source, its range and our assumptions. The profiles of `specs/devices/` are compiled in. Every other
//! profile is read from a file. The module measures and emulates nothing.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::{Nanos, Op};

mod chains;
mod check;
mod curve;
mod fault;
mod submission;

pub use chains::{ChainsProfile, Succession};
pub use curve::{BatchPoint, LatencyPoint, OpProfile, RatioPoint};
pub use fault::{FaultBucket, FaultTail};
pub use submission::{Accelerator, Attachment, SubmitBatchPoint};

/// The profile of an accelerator, or of software on a stated core. The device supports only the ops for which the
/// profile has a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// The name of the profile. The file of a compiled-in profile has the same name.
    pub name: String,
    /// A description in one sentence.
    pub about: String,
    /// The submission path and the capacity of the accelerator. None for software on a core, because a job
    /// then runs on the calling core.
    pub accelerator: Option<Accelerator>,
    /// The base-2 logarithm of the history window with which the device compresses and decompresses (bytes). Every
    /// profile with compression or decompression has one.
    pub window_log2: Option<Figure<u64>>,
    /// The largest input and the largest output of a job (bytes).
    pub transfer_bytes_max: Figure<u64>,
    /// A completion is late if it comes more than this time after its due time (ns). The value is the
    /// difference between the device's 99th percentile and its median.
    pub late_after_ns: Figure<u64>,
    /// The Huffman code of the device, which selects the compression curve that is used.
    pub huffman: Option<Figure<Huffman>>,
    /// The costs of compression, by Huffman code.
    pub compress: Option<CompressProfile>,
    /// The costs of decompression.
    pub decompress: Option<OpProfile>,
    /// The costs of encryption by AES-256-GCM. A profile with encryption also has decryption.
    pub encrypt: Option<OpProfile>,
    /// The costs of decryption by AES-256-GCM.
    pub decrypt: Option<OpProfile>,
    /// The costs of the checksum CRC-32C.
    pub crc32c: Option<OpProfile>,
    /// The costs of the checksum CRC-64/XZ.
    pub crc64: Option<OpProfile>,
    /// The costs of a copy.
    pub copy: Option<OpProfile>,
    /// The costs of serialization into a message.
    pub serialize: Option<OpProfile>,
    /// The costs of deserialization of a message.
    pub deserialize: Option<OpProfile>,
    /// The costs of wrapping a message into a call, and of unwrapping it.
    pub rpc: Option<OpProfile>,
    /// The costs of the choice of the core that continues a request.
    pub load_balance: Option<OpProfile>,
    /// The successions of ops that the device runs in one request.
    pub chains: Option<ChainsProfile>,
    /// The page faults for which the device waits. Buffers that were touched beforehand cause none.
    pub fault_tail: Option<FaultTail>,
}

/// A number with its origin, its source and its uncertainty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure<T> {
    /// The number.
    pub value: T,
    /// The origin of the number.
    pub kind: Kind,
    /// The paper or page and the place in it, or "none" if nothing is published.
    pub source: String,
    /// The lowest and the highest value that the number may have. An assumed or calibrated number always has a range.
    pub range: Option<[T; 2]>,
    /// The derivation of the number, or the assumption behind it.
    pub assumption: Option<String>,
}

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The source states the number.
    Published,
    /// The number is computed from what the source states.
    Derived,
    /// The number is fitted to published results, which the assumption names. Agreement with these results is
    /// no evidence for the number.
    Calibrated,
    /// No publication states the number.
    Assumed,
}

/// The Huffman code that a compressor writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Huffman {
    /// The fixed code of RFC 1951, written in one pass.
    Fixed,
    /// A code made for the input. One pass collects the statistics and a second pass writes.
    Dynamic,
}

/// The costs of compression, by Huffman code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressProfile {
    /// The costs with the fixed code.
    pub fixed: Option<OpProfile>,
    /// The costs with a code made for the input.
    pub dynamic: Option<OpProfile>,
}

/// Selects a value from the range of each cost of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Every cost with a range has its lowest value. This is the fastest device that the sources allow.
    Low,
    /// Every cost has its stated value.
    #[default]
    Stated,
    /// Every cost with a range has its highest value.
    High,
}

/// The reason why a profile could not be loaded. The caller must correct the name or the file.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No profile of that name is compiled in.
    #[error("no device profile is called {name:?}; known are {known}, or give a .toml file's path")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read device profile {path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
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
    /// A number, its source or its range is not valid.
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

    /// Returns the compiled-in profile of this name. A name that ends in `.toml` is the path of a file, which is read.
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

    /// Reads a profile from its text. Error messages call the text `origin`.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError::Malformed {
            origin: origin.to_owned(),
            error: Box::new(error),
        })?;
        let invalid = |problem| ProfileError::Invalid { origin: origin.to_owned(), problem };
        check::profile(&profile).map_err(invalid)?;
        Ok(profile)
    }

    /// Returns the profile with its costs at the lowest, the stated or the highest value of their ranges. The name of a
    /// changed profile ends in `-low` or `-high`.
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

    /// Returns the costs of compression with the Huffman code of the profile, if the device compresses.
    pub fn compress(&self) -> Option<&OpProfile> {
        let compress = self.compress.as_ref()?;
        match self.huffman.as_ref()?.value {
            Huffman::Fixed => compress.fixed.as_ref(),
            Huffman::Dynamic => compress.dynamic.as_ref(),
        }
    }

    /// Returns the costs of an op, if the device has it. Compression has those of the profile's Huffman code, and a
    /// checksum those of CRC-32C.
    pub fn op(&self, op: Op) -> Option<&OpProfile> {
        match op {
            Op::Compress => self.compress(),
            Op::Decompress => self.decompress.as_ref(),
            Op::Encrypt => self.encrypt.as_ref(),
            Op::Decrypt => self.decrypt.as_ref(),
            Op::Checksum => self.crc32c.as_ref(),
            Op::Copy => self.copy.as_ref(),
            Op::Serialize => self.serialize.as_ref(),
            Op::Deserialize => self.deserialize.as_ref(),
            Op::Rpc => self.rpc.as_ref(),
            Op::LoadBalance => self.load_balance.as_ref(),
            Op::Tcp | Op::Notify => None,
        }
    }

    /// Returns whether the profile describes software on a core. Jobs then need no submission and spend the calling
    /// core's time.
    pub fn is_core(&self) -> bool {
        self.accelerator.is_none()
    }

    /// Returns the calling core's time for a single submission of `bytes` bytes.
    pub fn submit(&self, bytes: u64) -> Nanos {
        self.submit_nth(bytes, 1)
    }

    /// Returns the calling core's time for the `nth` submission (from 1) of a batch without polls.
    pub fn submit_nth(&self, bytes: u64, nth: u64) -> Nanos {
        self.accelerator.as_ref().map_or(Nanos(0), |accelerator| accelerator.submit(bytes, nth))
    }

    /// Returns the time from the submission of a typical job to the earliest poll that is worthwhile.
    pub fn expected_poll(&self) -> Nanos {
        let expected_ns =
            self.accelerator.as_ref().map(|accelerator| accelerator.expected_poll_ns.value);
        Nanos(expected_ns.unwrap_or(0))
    }

    /// Returns the time by which a completion may exceed its due time before it counts as late.
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
            &mut self.serialize,
            &mut self.deserialize,
            &mut self.rpc,
            &mut self.load_balance,
        ];
        let of_ops = codes.chain(others).flatten().flat_map(OpProfile::figures_mut);
        let of_ops = of_ops.chain(self.chains.iter_mut().flat_map(ChainsProfile::figures_mut));
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

/// The most bytes of a profile file. A profile is a few pages of text, so a larger file is something else.
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
    "accelflow",
);

#[cfg(test)]
mod tests;
