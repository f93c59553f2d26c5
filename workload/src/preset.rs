//! Reads presets, which are published workloads as data files. Each number has its source and our assumptions. The
//! presets of `specs/workloads/` are compiled in. Every other preset is read from a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{BadSizes, PayloadClass, SizeDist, Sizes, Weighting};

/// A workload as published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The name of the preset. The file of a compiled-in preset has the same name.
    pub name: String,
    /// A description in one sentence.
    pub about: String,
    /// Sizes of values.
    pub value_bytes: Sourced<SizeDist>,
    /// Sizes of keys.
    pub key_bytes: Sourced<SizeDist>,
    /// The Zipf exponent of the keys' popularity. An exponent of 0 is uniform.
    pub zipf_alpha: Sourced<f64>,
    /// The fraction of requests that are gets; the others are sets.
    pub get_share: Sourced<f64>,
    /// The kind of bytes that values have.
    pub payload: Sourced<PayloadClass>,
    /// The published mean of the value sizes, against which the distribution is tested (bytes).
    pub mean_value_bytes: Option<Sourced<f64>>,
}

/// A number and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The number.
    pub value: T,
    /// The paper or page and the place in it, or "none" if nothing is published.
    pub source: String,
    /// The assumption beyond the source, if any.
    pub assumption: Option<String>,
}

/// The reason why a preset could not be loaded. The caller must correct the name or the file.
#[derive(Debug, thiserror::Error)]
pub enum PresetError {
    /// No preset of that name is compiled in.
    #[error("no preset is called {name:?}; known are {known}, or give the path of a .toml file")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read preset {path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The text is not a preset.
    #[error("preset {origin}: {error}")]
    Malformed {
        /// The file or the compiled-in name.
        origin: String,
        /// The error and its place.
        error: Box<toml::de::Error>,
    },
    /// A number is out of its range.
    #[error("preset {origin}: {field}: {error}")]
    OutOfRange {
        /// The file or the compiled-in name.
        origin: String,
        /// The name of the number.
        field: &'static str,
        /// The value of the number and the valid range.
        error: BadSizes,
    },
}

impl Preset {
    /// Returns the names of the compiled-in presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        COMPILED_IN.iter().map(|(name, _)| *name)
    }

    /// Returns the compiled-in preset of this name. A name that ends in `.toml` is the path of a file, which is read.
    pub fn find(name: &str) -> Result<Self, PresetError> {
        if name.ends_with(".toml") {
            return Self::read(Path::new(name));
        }
        let found = COMPILED_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| PresetError::Unknown {
            name: name.to_owned(),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })?;
        Self::parse(text, name)
    }

    /// Reads a preset from a file.
    pub fn read(path: &Path) -> Result<Self, PresetError> {
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| PresetError::Unreadable { path: path.to_owned(), error });
        read.and_then(|_| Self::parse(&text, &path.display().to_string()))
    }

    /// Reads a preset from its text. Error messages call the text `origin`.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PresetError> {
        let preset: Self = toml::from_str(text).map_err(|error| PresetError::Malformed {
            origin: origin.to_owned(),
            error: Box::new(error),
        })?;
        preset.check().map_err(|(field, error)| PresetError::OutOfRange {
            origin: origin.to_owned(),
            field,
            error,
        })?;
        Ok(preset)
    }

    fn check(&self) -> Result<(), (&'static str, BadSizes)> {
        let sizes = |field, dist| match Sizes::new(dist, Weighting::Calls) {
            Ok(_) => Ok(()),
            Err(error) => Err((field, error)),
        };
        sizes("value_bytes", &self.value_bytes.value)?;
        sizes("key_bytes", &self.key_bytes.value)?;
        within("zipf_alpha", self.zipf_alpha.value, 10.0, "a number from 0 to 10")?;
        within("get_share", self.get_share.value, 1.0, "a number from 0 to 1")
    }
}

fn within(
    field: &'static str,
    value: f64,
    highest: f64,
    valid: &'static str,
) -> Result<(), (&'static str, BadSizes)> {
    let fits = (0.0..=highest).contains(&value);
    let error = || BadSizes { field: "value", value: value.to_string(), valid };
    if fits { Ok(()) } else { Err((field, error())) }
}

/// The most bytes of a preset file. A preset is one page of text, so a larger file is something else.
const FILE_BYTES_MAX: u64 = 1 << 20;

macro_rules! compiled_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../specs/workloads/", $name, ".toml")))),*]
    };
}

const COMPILED_IN: &[(&str, &str)] = compiled_in![
    "cachelib-cdn",
    "cachelib-kvcache-reg",
    "cachelib-leader-fbobj",
    "cachelib-follower-fbobj",
    "cachelib-leader-assocs",
    "cachelib-follower-assocs",
    "twitter-c4",
    "twitter-c12",
    "twitter-c37",
    "twitter-c53",
    "facebook-etc",
    "fleetbench-flate-compress",
    "fleetbench-snappy-compress",
    "fleetbench-snappy-decompress",
    "accelerometer-cache1",
    "accelerometer-feed1",
    "web-server-8kib",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiled_in_preset_reads_and_has_its_published_mean() {
        for name in Preset::names() {
            let preset = Preset::find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(preset.name, name);
            let sizes = Sizes::new(&preset.value_bytes.value, Weighting::Calls).expect("checked");
            if let Some(published) = &preset.mean_value_bytes {
                let error = sizes.mean_bytes() / published.value - 1.0;
                // A preset says in its file if its quantiles are too far apart for its mean.
                assert!(error.abs() < 0.25, "{name}: {:.0} {error:+.3}", sizes.mean_bytes());
            }
        }
    }

    /// Checks the numbers that follow from the publication: the shares of calls of at least some size, and the mean.
    #[test]
    fn feed1_is_as_published_and_cache1_smaller() {
        let sizes = |name| {
            let preset = Preset::find(name).unwrap_or_else(|error| panic!("{error}"));
            Sizes::new(&preset.value_bytes.value, Weighting::Calls).expect("checked")
        };
        let (feed1, cache1) = (sizes("accelerometer-feed1"), sizes("accelerometer-cache1"));
        let share = |sizes: &Sizes, least_bytes| {
            let draws = (0..10_000).map(|index| sizes.at((f64::from(index) + 0.5) / 10_000.0));
            draws.filter(|bytes| *bytes >= least_bytes).count() as f64 / 10_000.0
        };
        for (least_bytes, published) in [(409, 0.651), (425, 0.642), (2_455, 0.266), (257, 1.0)] {
            let share = share(&feed1, least_bytes);
            assert!((share - published).abs() < 0.002, "{least_bytes} B: {share}");
        }
        assert!((feed1.mean_bytes() / 4_090.0 - 1.0).abs() < 0.01, "{}", feed1.mean_bytes());
        assert!((cache1.mean_bytes() / 2_045.0 - 1.0).abs() < 0.01, "{}", cache1.mean_bytes());
        let small = 1.0 - share(&cache1, 257);
        assert!((0.05..0.2).contains(&small), "{small} of Cache1 is small");
    }

    #[test]
    fn every_file_of_the_folder_is_compiled_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/workloads");
        let files = std::fs::read_dir(folder).expect("the folder exists");
        for file in files {
            let name = file.expect("an entry").file_name().into_string().expect("a plain name");
            let stem = name.strip_suffix(".toml").expect("only presets are here");
            assert!(Preset::names().any(|known| known == stem), "{name}");
        }
    }

    #[test]
    fn errors_name_the_place_the_value_and_the_range() {
        let text = include_str!("../../specs/workloads/twitter-c12.toml");
        let broken = [
            (text.replace("sigma", "sgima"), "sgima"),
            (
                text.replace("value = 0.20", "value = 1.20"),
                "get_share: value is 1.2; a number from 0",
            ),
            (text.replace("name = ", "nom = "), "nom"),
            (text.replace("min_bytes = 1,", "min_bytes = 9999999,"), "min_bytes is 9999999"),
            ("= not toml".to_owned(), "line 1"),
        ];
        for (text, expected) in broken {
            let error = Preset::parse(&text, "x.toml").expect_err(expected).to_string();
            assert!(error.contains("x.toml") && error.contains(expected), "{error}");
        }
        let error = Preset::find("twitter-c99").expect_err("unknown").to_string();
        assert!(error.contains("twitter-c99") && error.contains("twitter-c12"), "{error}");
        let error = Preset::find("/nonexistent.toml").expect_err("unreadable").to_string();
        assert!(error.contains("/nonexistent.toml"), "{error}");
    }
}
