//! This process as devices see it: its user, its rights, and the memory that it may lock.

use super::field;
use super::files::Files;

/// The facts about this process that devices depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The effective user of the process.
    pub uid: u32,
    /// The groups of the process. The effective group comes first.
    pub gids: Vec<u32>,
    /// The effective capabilities of the process, as the kernel's bits.
    pub capabilities: u64,
    /// The memory that the process may lock, if the kernel states it.
    pub memory_lock: Option<MemoryLock>,
}

/// A capability that devices need (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The right to read and write any file.
    DacOverride = 1,
    /// The right to lock any amount of memory.
    IpcLock = 14,
    /// The right to map a work queue's portal, which is needed since CVE-2024-21823.
    SysRawio = 17,
}

/// The memory that a process may lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLock {
    /// There is no limit.
    Unlimited,
    /// The limit (bytes).
    Bytes(u64),
}

impl Process {
    pub(super) fn read(files: &Files) -> Self {
        let status = files.text("proc/self/status").unwrap_or_default();
        let limits = files.text("proc/self/limits").unwrap_or_default();
        // The order is real, effective, saved, and file system.
        let effective = |name| {
            let ids = field(&status, name)?;
            ids.split_whitespace().nth(1)?.parse::<u32>().ok()
        };
        let more = field(&status, "Groups").unwrap_or_default().split_whitespace();
        let gids = effective("Gid").into_iter().chain(more.filter_map(|gid| gid.parse().ok()));
        let capabilities = field(&status, "CapEff");
        let capabilities = capabilities.and_then(|bits| u64::from_str_radix(bits, 16).ok());
        Self {
            uid: effective("Uid").unwrap_or(UID_NOBODY),
            gids: gids.collect(),
            capabilities: capabilities.unwrap_or_default(),
            memory_lock: memory_lock(&limits),
        }
    }

    /// Returns whether the process has the capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities & (1 << capability as u32) != 0
    }

    /// Returns whether the process may read and write a file with this owner and mode.
    pub(super) fn may_use(&self, uid: u32, gid: u32, mode: u32) -> bool {
        let shift = match () {
            () if self.has(Capability::DacOverride) => return true,
            () if self.uid == uid => 6,
            () if self.gids.contains(&gid) => 3,
            () => 0,
        };
        (mode >> shift) & READ_WRITE == READ_WRITE
    }
}

/// Reads the soft limit of the table's line `Max locked memory`.
fn memory_lock(limits: &str) -> Option<MemoryLock> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(MemoryLock::Unlimited),
        bytes => bytes.parse().ok().map(MemoryLock::Bytes),
    }
}

const READ_WRITE: u32 = 0o6;

/// The user id of a process whose user is unknown. It may use only what all users may use.
const UID_NOBODY: u32 = 65_534;
