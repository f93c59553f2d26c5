//! Errors in a configuration, with the source of the wrong value.

use std::fmt;
use std::path::PathBuf;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default: no source sets the value.
    Default,
    /// A configuration file.
    File {
        /// The path of the file as the user gave it.
        path: PathBuf,
        /// The line number of the key, if it is known.
        line: Option<usize>,
    },
    /// The environment variable of this name.
    Environment(String),
    /// The command-line flag of this name.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line: None } => write!(f, "{}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A fault of the configuration that the operator must fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The known key that the error concerns, if it concerns one.
    pub key: Option<&'static str>,
    /// The source of the offending value.
    pub origin: Origin,
    /// The offending value and what would be valid.
    pub problem: String,
}

impl ConfigError {
    pub(super) fn new(key: Option<&'static str>, origin: Origin, problem: &str) -> Self {
        Self { key, origin, problem: problem.to_owned() }
    }

    /// Returns the error with the origin that `origin` returns for its key.
    pub(super) fn placed(self, origin: impl Fn(&str) -> Origin) -> Self {
        let origin = self.key.map_or(self.origin, origin);
        Self { origin, ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if let Some(key) = self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.problem)
    }
}
