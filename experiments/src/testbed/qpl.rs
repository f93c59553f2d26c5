//! Checks whether this machine has everything that a configuration with QPL needs. It opens the library and
//! runs a job, as a server does. There is no fallback for a missing part.

use std::path::Path;

use drivers::{Qpl, QplOptions, qpl};

use super::configuration::Compressor;

/// Returns the reason why this compressor cannot run here, or None if it can. If `library` is None, the environment
/// names the library.
pub fn unavailable_reason(compressor: Compressor, library: Option<&Path>) -> Option<String> {
    let path = match compressor {
        Compressor::QplSoftware => qpl::Path::Software,
        Compressor::QplHardware => qpl::Path::Hardware,
        _ => return None,
    };
    let options = QplOptions { library: library.map(Path::to_owned), ..QplOptions::default() };
    Qpl::open(path, &options).err().map(|error| error.to_string())
}
