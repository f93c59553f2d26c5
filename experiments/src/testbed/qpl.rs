//! Whether this machine has what a configuration with QPL needs: the library is opened and runs a job, as a server
//! would have it. Nothing stands in for what is missing.

use std::path::Path;

use drivers::{Qpl, QplOptions, qpl};

use super::configuration::Work;

/// Why it cannot be run here, if it cannot. The environment names the library where `library` does not.
pub fn why_not(work: Work, library: Option<&Path>) -> Option<String> {
    let path = match work {
        Work::QplSoftware => qpl::Path::Software,
        Work::QplHardware => qpl::Path::Hardware,
        _ => return None,
    };
    let options = QplOptions { library: library.map(Path::to_owned), ..QplOptions::default() };
    Qpl::open(path, &options).err().map(|error| error.to_string())
}
