//! The disk of a simulated host. Its files are real ones in the folder for temporary files; it fails what a disk in
//! trouble fails.

use std::io;

use parking_lot::Mutex;
use server::simulated::{Disk, DiskAction};

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// There is no room after some bytes.
    Full,
    /// Nothing can be read.
    Unreadable,
    /// What was written cannot be made to last.
    NoSync,
    /// Files cannot be renamed.
    NoRename,
    /// Files cannot be removed.
    NoRemove,
}

impl DiskTrouble {
    /// Every kind.
    pub const ALL: [DiskTrouble; 5] = [
        DiskTrouble::Full,
        DiskTrouble::Unreadable,
        DiskTrouble::NoSync,
        DiskTrouble::NoRename,
        DiskTrouble::NoRemove,
    ];
}

/// A disk. It outlives the processes that use it.
#[derive(Default)]
pub struct HostDisk(Mutex<State>);

#[derive(Default)]
struct State {
    trouble: Option<DiskTrouble>,
    /// The room that is left on a full disk (bytes).
    left_bytes: usize,
}

impl HostDisk {
    /// Begins a trouble, or ends it with `None`. A full disk has room for so many bytes before it is full.
    pub fn set_trouble(&self, trouble: Option<DiskTrouble>, left_bytes: usize) {
        *self.0.lock() = State { trouble, left_bytes };
    }
}

impl Disk for HostDisk {
    fn room(&self, bytes: usize) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.trouble != Some(DiskTrouble::Full) {
            return Ok(bytes);
        }
        let room = state.left_bytes.min(bytes);
        state.left_bytes -= room;
        if room == 0 && bytes > 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
    }

    fn act(&self, action: DiskAction) -> io::Result<()> {
        let fails = match self.0.lock().trouble {
            None | Some(DiskTrouble::Full) => false,
            Some(DiskTrouble::Unreadable) => action == DiskAction::Read,
            Some(DiskTrouble::NoSync) => action == DiskAction::Sync,
            Some(DiskTrouble::NoRename) => action == DiskAction::Rename,
            Some(DiskTrouble::NoRemove) => action == DiskAction::Remove,
        };
        if fails { Err(io::Error::other("the disk is in trouble")) } else { Ok(()) }
    }
}
