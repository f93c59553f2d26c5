//! Prepares the process with the operating system before a server starts: limits, identity, daemon, locked memory and
//! pid files. All functions must run before the first thread starts.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::kill;
use nix::unistd::{Pid, Uid, User, setgid, setgroups, setuid};
use server::Config;

/// Raises the limit on open files to what this number of connections needs.
///
/// # Errors
/// The limit cannot be raised and is too low for this number of connections.
pub(crate) fn allow_connections(connections_max: usize) -> Result<(), String> {
    let connections = connections_max as rlim_t;
    let reached = raise_open_files(connections.saturating_add(DESCRIPTORS_RESERVED))?;
    if reached >= connections {
        return Ok(());
    }
    Err(format!(
        "failed to set rlimit for open files: {connections} connections need as many, the limit is {reached}. \
         Raise it (ulimit -n) or ask for fewer connections."
    ))
}

/// Raises the limit on open files to what the configured connections need. If the system does not allow as many,
/// `server.connections_max` is reduced to a number that leaves space for all other files of the process. The returned
/// warning then says so.
pub(crate) fn fit_connections(config: &mut Config) -> Option<String> {
    let wanted = config.server.connections_max;
    let reserved =
        DESCRIPTORS_RESERVED.saturating_add(server::descriptors_reserved(config) as rlim_t);
    let reached = match raise_open_files((wanted as rlim_t).saturating_add(reserved)) {
        Ok(reached) => reached,
        Err(problem) => return Some(problem),
    };
    let fitting = usize::try_from(reached.saturating_sub(reserved).max(reached / 2)).ok()?.max(1);
    if wanted <= fitting {
        return None;
    }
    config.server.connections_max = fitting;
    Some(format!(
        "server.connections_max is {fitting} instead of {wanted}: the limit on open files is {reached} and cannot be \
         raised, and {} of them are for other purposes. Raise it (ulimit -n, LimitNOFILE=) or ask for fewer \
         connections.",
        reached.saturating_sub(fitting as rlim_t)
    ))
}

/// Raises the limit on open files to `needed`, or as far as the system allows. Returns the new limit.
fn raise_open_files(needed: rlim_t) -> Result<rlim_t, String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|error| format!("cannot read the limit on open files: {error}"))?;
    if soft >= needed {
        return Ok(soft);
    }
    if setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).is_ok() {
        return Ok(needed);
    }
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_or(soft, |()| hard))
}

/// Raises the limit on core files as far as the system allows.
pub(crate) fn allow_core_files() -> Result<(), String> {
    let unlimited = nix::sys::resource::RLIM_INFINITY;
    if setrlimit(Resource::RLIMIT_CORE, unlimited, unlimited).is_ok() {
        return Ok(());
    }
    match getrlimit(Resource::RLIMIT_CORE) {
        Ok((_, hard)) if hard > 0 && setrlimit(Resource::RLIMIT_CORE, hard, hard).is_ok() => Ok(()),
        _ => Err("failed to ensure corefile creation".to_owned()),
    }
}

/// The reason why the process could not change its identity.
#[derive(Debug)]
pub(crate) enum IdentityError {
    /// The process is root, and no user was named.
    NoUser,
    /// The system does not know this user.
    Unknown(String),
    /// The system refused to change the identity.
    Refused(String),
}

/// Gives up root for `user`. A process that is not root keeps its identity.
///
/// # Errors
/// The process is root and no user was named, the user is unknown, or the system refuses the change.
pub(crate) fn become_user(user: Option<&str>) -> Result<(), IdentityError> {
    if !Uid::current().is_root() && !Uid::effective().is_root() {
        return Ok(());
    }
    let name = user.filter(|name| !name.is_empty()).ok_or(IdentityError::NoUser)?;
    let found = User::from_name(name).ok().flatten();
    let user = found.ok_or_else(|| IdentityError::Unknown(name.to_owned()))?;
    match setgroups(&[]) {
        // EPERM comes from a container without the capability. The groups are already as few as possible.
        Ok(()) | Err(Errno::EPERM) => {}
        Err(error) => {
            let text = format!("failed to drop supplementary groups: {error}");
            return Err(IdentityError::Refused(text));
        }
    }
    setgid(user.gid).and_then(|()| setuid(user.uid)).map_err(|error| {
        IdentityError::Refused(format!("failed to assume identity of user {name}: {error}"))
    })
}

/// Continues in a child that has no terminal, while the parent exits with success. Must run before the first thread
/// starts.
pub(crate) fn daemonize(keep_directory: bool, keep_output: bool) -> Result<(), String> {
    nix::unistd::daemon(keep_directory, keep_output)
        .map_err(|error| format!("failed to daemon() in order to daemonize: {error}"))
}

/// Keeps all present and future memory of the process from being paged out.
pub(crate) fn lock_memory() -> Result<(), String> {
    mlockall(MlockAllFlags::all())
        .map_err(|error| format!("warning: -k invalid, mlockall() failed: {error}"))
}

/// Writes this process's id to `path` in one step, so that no reader sees an empty file. Returns a warning if the file
/// named a process that still runs.
pub(crate) fn write_pidfile(path: &Path) -> io::Result<Option<String>> {
    let before = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let running = before.filter(|&pid| pid > 0 && kill(Pid::from_raw(pid), None).is_ok());
    replace(path, "tmp", &format!("{}\n", std::process::id()))?;
    Ok(running
        .map(|pid| format!("WARNING: The pid file contained the following (running) pid: {pid}")))
}

/// Replaces the file at `path` in one step: writes the text to `path.suffix`, and renames that file.
pub(crate) fn replace(path: &Path, suffix: &str, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".");
    temporary.push(suffix);
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}

/// The descriptors of the process that are not for clients: listeners, epoll, admin pages and logs.
const DESCRIPTORS_RESERVED: rlim_t = 128;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_running_processs_pid_file_is_replaced_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        assert_eq!(write_pidfile(&path).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert!(write_pidfile(&path).unwrap().unwrap().contains("(running) pid"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn more_connections_than_the_system_allows_are_refused() {
        let refusal = allow_connections(usize::MAX / 2).unwrap_err();
        assert!(refusal.starts_with("failed to set rlimit for open files"), "{refusal}");
    }
}
