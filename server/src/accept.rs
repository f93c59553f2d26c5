//! Accepts connections, counts them against the limit and assigns them to the workers in turn.

use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, umask};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::context::Connections;
use crate::counters::{Control, Counters};
use crate::inherited::InheritedSockets;
use crate::worker::{Accepted, ListenerProtocol, Plan, Worker, WorkerMessage};

/// Passes accepted connections to the workers.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    pub(crate) workers: Arc<[Worker]>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) errors: Arc<AcceptErrors>,
}

/// Assigns connections to workers in round-robin order, separately for each protocol. Lanes are few and
/// expensive; with one order for all protocols they could all go to one worker.
#[derive(Default)]
pub(crate) struct Turns([AtomicUsize; ListenerProtocol::ALL.len()]);

impl Turns {
    fn next(&self, accepted: &Accepted, workers: usize) -> usize {
        self.0[accepted.protocol() as usize].fetch_add(1, Ordering::Relaxed) % workers
    }
}

impl Dispatcher {
    /// Passes connections to these workers of the plan.
    pub(crate) fn new(plan: &Plan, workers: &Arc<[Worker]>) -> Self {
        Self {
            workers: Arc::clone(workers),
            connections: Arc::clone(&plan.connections),
            counters: Arc::clone(&plan.counters),
            turns: Arc::default(),
            errors: Arc::new(AcceptErrors::new(Arc::clone(&plan.control))),
        }
    }

    /// Passes a connection to the next worker, if the limits allow it.
    pub(crate) fn dispatch(&self, mut accepted: Accepted) {
        let worker = self.turns.next(&accepted, self.workers.len());
        let protocol = accepted.protocol();
        if is_among_the_last(&accepted) || !self.connections.enter(protocol) {
            self.counters[worker].commands.rejected_connections.up();
            let _ = match &mut accepted {
                Accepted::Tcp(stream, _, ListenerProtocol::Memcached) => stream.write_all(TOO_MANY),
                Accepted::Unix(stream, ListenerProtocol::Memcached) => stream.write_all(TOO_MANY),
                Accepted::Simulated(stream, _, ListenerProtocol::Memcached) => {
                    stream.try_write(&[IoSlice::new(TOO_MANY)]).map(drop)
                }
                // Only memcached's protocol has a message for this. Other clients see a closed connection, and so do
                // those of TLS, for whom it would have to be encrypted first.
                Accepted::Tcp(..)
                | Accepted::Tls(..)
                | Accepted::Unix(..)
                | Accepted::Simulated(..)
                | Accepted::Lane(_)
                | Accepted::Near(_) => Ok(()),
            };
            return;
        }
        if !self.workers[worker].send(WorkerMessage::Serve(accepted)) {
            self.connections.leave(protocol);
        }
    }
}

/// Returns whether a connection's file descriptor is among the highest that the process may open. These are
/// reserved for the admin pages and for connections to stores and services.
fn is_among_the_last(accepted: &Accepted) -> bool {
    let descriptor = match accepted {
        Accepted::Tcp(stream, ..) => stream.as_raw_fd(),
        Accepted::Tls(accepted, _) => accepted.socket.as_raw_fd(),
        Accepted::Unix(stream, _) | Accepted::Lane(stream) | Accepted::Near(stream) => {
            stream.as_raw_fd()
        }
        Accepted::Simulated(..) => return false,
    };
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    let kept = (limit / DESCRIPTORS_KEPT_SHARE).min(DESCRIPTORS_KEPT_MAX);
    u64::try_from(descriptor).is_ok_and(|descriptor| descriptor >= limit - kept)
}

/// The denominator of the share of file descriptors that clients cannot use: 1 in 8.
const DESCRIPTORS_KEPT_SHARE: u64 = 8;
/// The maximum number of file descriptors that clients cannot use: the connection limit of the admin pages.
const DESCRIPTORS_KEPT_MAX: u64 = 64;

/// Listens on every address that the text resolves to, with the inherited socket where there is one.
///
/// # Errors
/// Returns the system's error if it cannot listen on any of these addresses.
pub(crate) fn listen_tcp(
    address: &str,
    backlog: u32,
    inherited: &InheritedSockets,
) -> io::Result<Vec<std::net::TcpListener>> {
    let tried = address.to_socket_addrs()?.map(|address| match inherited.take_tcp(address) {
        Some(listener) => Ok(listener),
        None => listen_on(address, backlog),
    });
    let (bound, failed): (Vec<_>, Vec<_>) = tried.partition(Result::is_ok);
    // As in memcached, addresses on which the machine cannot listen are skipped if there are others.
    let first_failure = failed.into_iter().find_map(Result::err);
    match (bound.is_empty(), first_failure) {
        (true, Some(error)) => Err(error),
        _ => Ok(bound.into_iter().flatten().collect()),
    }
}

fn listen_on(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Binds a Unix listener with the given permissions. Replaces only a socket file without a listener.
///
/// # Errors
/// Returns the system's error, or `AddrInUse` if the path has a listener or another kind of file.
pub(crate) fn listen_unix(path: &Path, mode: u32) -> io::Result<std::os::unix::net::UnixListener> {
    if let Ok(there) = path.symlink_metadata() {
        let is_socket = there.file_type().is_socket();
        if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    // The umask ensures that the socket never has more permissions than configured.
    let mask = umask(Mode::from_raw_mode(0o777 & !mode));
    let bound = std::os::unix::net::UnixListener::bind(path);
    umask(mask);
    let listener = bound?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The file of a Unix socket. [`Self::remove`] leaves it if another process has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and inode of the file. No other file has the same identity while the listener is open.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Describes the socket of a listener that was just bound at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: Self::identity(path) }
    }

    /// Removes the file. The listener must still be open.
    pub(crate) fn remove(self) {
        if self.identity.is_some() && self.identity == Self::identity(&self.path) {
            let _ = std::fs::remove_file(self.path);
        }
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        let there = path.symlink_metadata().ok()?;
        Some((there.dev(), there.ino()))
    }
}

/// Accepts connections for as long as the future is polled.
pub(crate) async fn accept_tcp(
    listener: &TcpListener,
    protocol: ListenerProtocol,
    dispatcher: &Dispatcher,
) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, from)| Ok((stream.into_std()?, from))) {
            Ok((stream, from)) => {
                prepare_tcp(&stream);
                dispatcher.dispatch(Accepted::Tcp(stream, from, protocol));
            }
            Err(error) => dispatcher.errors.pause(&error).await,
        }
    }
}

/// Sets the options of a client's socket.
pub(crate) fn prepare_tcp(stream: &impl AsFd) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    // Without keepalive, a host that vanished would keep its connection forever.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

/// Accepts connections for as long as the future is polled.
pub(crate) async fn accept_unix(
    listener: &UnixListener,
    protocol: ListenerProtocol,
    dispatcher: &Dispatcher,
) {
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) if protocol == ListenerProtocol::Lane => {
                dispatcher.dispatch(Accepted::Lane(stream))
            }
            Ok(stream) if protocol == ListenerProtocol::Near => {
                dispatcher.dispatch(Accepted::Near(stream))
            }
            Ok(stream) => dispatcher.dispatch(Accepted::Unix(stream, protocol)),
            Err(error) => dispatcher.errors.pause(&error).await,
        }
    }
}

/// Counts and logs connections that could not be accepted, with at most one log line per second.
pub(crate) struct AcceptErrors {
    pub(crate) control: Arc<Control>,
    logged: Mutex<Option<Instant>>,
}

impl AcceptErrors {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control, logged: Mutex::new(None) }
    }

    /// Waits after a failed accept, so that the acceptor does not spin while there are no free file
    /// descriptors. Returns at once if the client closed the connection first.
    pub(crate) async fn pause(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        self.control.accept_errors.up();
        self.log(error);
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn log(&self, error: &io::Error) {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            tracing::warn!(%error, "accepting failed");
        }
    }
}

const LOG_EVERY: Duration = Duration::from_secs(1);

const KEEPALIVE_AFTER: Duration = Duration::from_secs(120);

const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// memcached's reply to a client above the limit (`maxconns_fast`).
pub(crate) const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lanes_go_to_all_workers_whatever_comes_in_between() {
        let socket = || UnixStream::pair().expect("two sockets").0;
        let turns = Turns::default();
        let assigned = [(); 4].map(|()| {
            let lane = turns.next(&Accepted::Lane(socket()), 2);
            (lane, turns.next(&Accepted::Unix(socket(), ListenerProtocol::Grpc), 2))
        });
        assert_eq!(assigned, [(0, 0), (1, 1), (0, 0), (1, 1)]);
    }

    #[test]
    fn another_process_s_socket_at_the_same_path_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = listen_unix(&path, 0o600).expect("a free path");
        let file = SocketFile::new(&path);
        std::fs::remove_file(&path).expect("it is there");
        let second = listen_unix(&path, 0o600).expect("free again");
        file.remove();
        assert!(path.exists(), "the second's was removed");
        SocketFile::new(&path).remove();
        assert!(!path.exists(), "its own is removed");
        drop((first, second));
    }
}
