//! Finds out whether this machine has what a configuration with QPL needs. The library is opened and runs a job, as in
//! a server. Nothing replaces what is missing.

use std::path::Path;

use drivers::{Qpl, QplOptions, qpl};

use super::configuration::Compressor;

/// Returns why this compressor cannot run here, or None if it can. The environment names the library where `library`
/// does not.
pub fn unavailable_reason(compressor: Compressor, library: Option<&Path>) -> Option<String> {
    let path = match compressor {
        Compressor::QplSoftware => qpl::Path::Software,
        Compressor::QplHardware => qpl::Path::Hardware,
        _ => return None,
    };
    let options = QplOptions { library: library.map(Path::to_owned), ..QplOptions::default() };
    Qpl::open(path, &options).err().map(|error| error.to_string())
}
