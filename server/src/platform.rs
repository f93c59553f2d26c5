//! The functions of the platform that need foreign code. The program that starts a server passes them to it.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::cipher::KEY_BYTES;
use device::lane::WatchLane;
use device::near::WatchNear;
use device::{Dictionary, Key, Train};

/// Profiles the CPU time of this process for a time, or until the flag is set. Returns a file of pprof.
pub type ProfileCpu = fn(Duration, &AtomicBool) -> io::Result<Vec<u8>>;

/// Functions of the platform that need foreign code.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Serves lanes. If `None`, the server has no lanes.
    pub watch_lane: Option<WatchLane>,
    /// Serves near clients. If `None`, the server has none.
    pub watch_near: Option<WatchNear>,
    /// Returns unused heap memory to the system, and returns whether there was any.
    pub trim_heap: fn() -> bool,
    /// Unmaps the unchanged pages of the program if files take more than so many bytes of the process's memory. Those
    /// that are needed come back. Returns their bytes.
    pub release_program_pages: fn(usize) -> usize,
    /// Trains dictionaries.
    pub train_dictionary: Train,
    /// Takes CPU profiles. If `None`, the server takes none.
    pub profile_cpu: Option<ProfileCpu>,
    /// Expands a key into memory that core dumps leave out and that is wiped.
    pub guard_key: fn(&[u8; KEY_BYTES]) -> io::Result<Key>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            watch_lane: None,
            watch_near: None,
            trim_heap: || false,
            release_program_pages: |_| 0,
            train_dictionary: Dictionary::train,
            profile_cpu: None,
            guard_key: |bytes| Ok(Key::new(bytes)),
        }
    }
}
