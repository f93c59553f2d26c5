//! The files of `store.file`. `FILE` has the snapshot, `FILE.tmp` is a snapshot that is being written, and
//! `FILE.lock` is locked by the process that uses them. The text in `FILE.lock` is the reason why there is
//! no good snapshot; it is empty if there is one. A process writes this text before it serves, so whatever
//! ends it, the next process does not load items that were changed since. This module does not know what a
//! snapshot contains, and touches no file that is not one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::OFlags;
use store::embedded::snapshot::is_snapshot;

use crate::simulated::{Disk, DiskAction};

/// The files, locked by this process.
pub(crate) struct StoreFile {
    path: PathBuf,
    lock: File,
    /// The reason why `FILE` must be left alone, if there is one.
    foreign: Option<String>,
    /// The disk of a simulated host, which decides what fails.
    disk: Option<Arc<dyn Disk>>,
}

/// The reason why the files could not be locked.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process has locked them.
    InUse,
    /// The folder does not exist: a mistake that the operator has to correct.
    NoFolder,
    /// The system refused it for this reason.
    Unusable(String),
}

/// The content of the file.
pub(super) enum Content {
    Snapshot(File),
    Missing,
    Empty,
    /// The last process did not save its items for this reason.
    NotSaved(String),
    /// The file is not ours or cannot be read, for this reason.
    Foreign(String),
}

/// The file at a path.
enum Found {
    Nothing,
    Empty,
    Snapshot(File),
    /// Something that must neither be removed nor replaced, for this reason.
    Foreign(String),
}

impl Found {
    fn at(path: &Path) -> Self {
        // A pipe without a writer would block the open.
        let open = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .and_then(|file| Ok((file.metadata()?, file)));
        let (facts, file) = match open {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::Nothing,
            Err(error) => return Self::Foreign(error.to_string()),
        };
        if !facts.is_file() {
            return Self::Foreign("it is not a regular file".to_owned());
        }
        let mut first = [0; 8];
        match file.read_at(&mut first, 0) {
            Ok(0) => Self::Empty,
            Ok(length) if is_snapshot(&first[..length]) => Self::Snapshot(file),
            Ok(_) => Self::Foreign("it is not a snapshot of a store".to_owned()),
            Err(error) => Self::Foreign(error.to_string()),
        }
    }
}

impl StoreFile {
    /// Locks the files until the process ends.
    pub(super) fn lock(path: &Path, disk: Option<Arc<dyn Disk>>) -> Result<Self, LockError> {
        let path = std::path::absolute(path).map_err(|error| unusable(path, &error))?;
        let lock_path = beside(&path, "lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(&lock_path)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => LockError::NoFolder,
                _ => unusable(&lock_path, &error),
            })?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LockError::InUse,
            TryLockError::Error(error) => unusable(&lock_path, &error),
        })?;
        if !lock.metadata().is_ok_and(|facts| facts.is_file()) {
            let text = format!("{} is not a regular file", lock_path.display());
            return Err(LockError::Unusable(text));
        }
        Ok(Self { path, lock, foreign: None, disk })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn act(&self, action: DiskAction) -> io::Result<()> {
        self.disk.as_ref().map_or(Ok(()), |disk| disk.act(action))
    }

    /// Opens the snapshot, if there is a good one.
    pub(super) fn content(&self) -> Content {
        if let Err(error) = self.act(DiskAction::Read) {
            return Content::Foreign(error.to_string());
        }
        let (found, noted) = match (Found::at(&self.path), self.noted()) {
            (Found::Foreign(reason), _) => return Content::Foreign(reason),
            (_, Err(error)) => {
                return Content::Foreign(format!("its lock cannot be read: {error}"));
            }
            (found, Ok(noted)) => (found, noted),
        };
        match found {
            _ if !noted.is_empty() => Content::NotSaved(noted),
            Found::Snapshot(file) => Content::Snapshot(file),
            Found::Empty => Content::Empty,
            Found::Nothing | Found::Foreign(_) => Content::Missing,
        }
    }

    /// Neither removes nor replaces `FILE` from now on, for this reason.
    pub(super) fn leave_alone(&mut self, reason: String) {
        self.foreign = Some(reason);
    }

    /// Makes sure that no later process loads the snapshot, because its items are about to change.
    ///
    /// # Errors
    /// The snapshot can neither be marked nor removed.
    pub(crate) fn take_over(&self) -> io::Result<()> {
        let marked = self.note("the process before ended without saving its items");
        if self.foreign.is_some() {
            return marked;
        }
        let removed = self.remove(&self.path);
        let cleaned = self.remove(&beside(&self.path, "tmp"));
        // What was removed must not come back after a power failure.
        let synced = self.sync_directory();
        for error in
            [&removed, &cleaned, &synced].into_iter().filter_map(|done| done.as_ref().err())
        {
            tracing::warn!("store.file {}: cannot tidy up: {error}", self.path.display());
        }
        if let Err(error) = &marked {
            tracing::warn!("store.file {}: cannot mark it as used: {error}", self.path.display());
        }
        if removed.is_ok() && synced.is_ok() { Ok(()) } else { marked }
    }

    /// Writes a snapshot and puts it in place in one step. After `deadline`, each further step fails.
    pub(super) fn replace<T>(
        &self,
        deadline: Instant,
        write: impl FnOnce(&mut Timed<OnDisk<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(reason) = &self.foreign {
            return Err(io::Error::other(reason.clone()));
        }
        let temporary = beside(&self.path, "tmp");
        let written = self.write_and_rename(&temporary, deadline, write);
        if written.is_err() {
            let _ = self.remove(&temporary);
        }
        written
    }

    fn write_and_rename<T>(
        &self,
        temporary: &Path,
        deadline: Instant,
        write: impl FnOnce(&mut Timed<OnDisk<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.remove(temporary)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(temporary)?;
        let on_disk = OnDisk { file: &file, disk: self.disk.as_deref() };
        let mut out = Timed { out: on_disk, deadline };
        let result = write(&mut out)?;
        self.act(DiskAction::Sync)?;
        file.sync_all()?;
        out.check()?;
        if let Found::Foreign(reason) = Found::at(&self.path) {
            return Err(io::Error::other(reason));
        }
        self.act(DiskAction::Rename)?;
        fs::rename(temporary, &self.path)?;
        self.sync_directory()?;
        self.note("")?;
        Ok(result)
    }

    /// Removes a file, if it is there.
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.act(DiskAction::Remove)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes renames and removals in the directory of the files last.
    fn sync_directory(&self) -> io::Result<()> {
        self.act(DiskAction::Sync)?;
        let directory = self.path.parent().unwrap_or("/".as_ref());
        match File::open(directory)?.sync_all() {
            // Some file systems cannot do this for directories.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }

    /// Records why there is no good snapshot; an empty reason says that there is one.
    pub(super) fn note(&self, reason: &str) -> io::Result<()> {
        // At no moment is a text that is not empty replaced by an empty one on the way to another text.
        let room = self.disk.as_ref().map_or(Ok(reason.len()), |disk| disk.room(reason.len()))?;
        self.lock.write_all_at(&reason.as_bytes()[..room], 0)?;
        if room < reason.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.act(DiskAction::Sync)?;
        self.lock.set_len(reason.len() as u64)?;
        self.lock.sync_all()
    }

    /// Returns the recorded reason. It may come from anyone, so only its printable characters are returned.
    fn noted(&self) -> io::Result<String> {
        let mut text = [0; REASON_BYTES_MAX];
        let length = self.lock.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let printable: String = text.chars().filter(|letter| !letter.is_control()).collect();
        // Text without any printable character is a reason, too.
        let is_unclear = printable.is_empty() && length > 0;
        Ok(if is_unclear { "its lock file is damaged".to_owned() } else { printable })
    }
}

/// A file that is written, on a disk that may be full.
pub(super) struct OnDisk<'f> {
    file: &'f File,
    disk: Option<&'f dyn Disk>,
}

impl Write for OnDisk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.disk.map_or(Ok(bytes.len()), |disk| disk.room(bytes.len()))?;
        self.file.write(&bytes[..room])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A writer that fails after a deadline.
pub(super) struct Timed<W> {
    out: W,
    deadline: Instant,
}

impl<W> Timed<W> {
    fn check(&self) -> io::Result<()> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::TimedOut, "it took longer than store.save_timeout_ms"))
    }
}

impl<W: Write> Write for Timed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.out.flush()
    }
}

/// Returns the path with a suffix, in the same directory.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn unusable(path: &Path, error: &io::Error) -> LockError {
    LockError::Unusable(format!("cannot lock {}: {error}", path.display()))
}

/// The permission bits of new files: clients' data is for this user alone.
const MODE: u32 = 0o600;

/// The most bytes of a recorded reason that are read.
const REASON_BYTES_MAX: usize = 512;
