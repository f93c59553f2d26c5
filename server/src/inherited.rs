//! The listening sockets that a supervisor opened and passed on, as systemd does (socket activation). They stay open
//! while this process is replaced, so clients wait for the next one and are not refused.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Sockets that are already open. The server uses each at the configured address at which it listens, so the
/// configuration alone says what is served where.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    tcp: RefCell<Vec<TcpListener>>,
    unix: RefCell<Vec<UnixListener>>,
}

impl InheritedSockets {
    /// Makes the sockets ready for a server.
    ///
    /// # Errors
    /// A socket cannot be made non-blocking.
    pub fn new(tcp: Vec<TcpListener>, unix: Vec<UnixListener>) -> io::Result<Self> {
        tcp.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        unix.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        Ok(Self { tcp: tcp.into(), unix: unix.into() })
    }

    /// Takes the socket that listens at exactly this address.
    pub(crate) fn take_tcp(&self, address: SocketAddr) -> Option<TcpListener> {
        let mut tcp = self.tcp.borrow_mut();
        let is_there = |listener: &TcpListener| listener.local_addr().is_ok_and(|at| at == address);
        let position = tcp.iter().position(is_there)?;
        Some(tcp.swap_remove(position))
    }

    /// Takes the socket that listens at this path.
    pub(crate) fn take_unix(&self, path: &Path) -> Option<UnixListener> {
        let mut unix = self.unix.borrow_mut();
        let position = unix.iter().position(|listener| path_of(listener).as_deref() == Some(path));
        Some(unix.swap_remove(position?))
    }

    /// Returns the paths of the Unix sockets that nobody took yet.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.unix.borrow().iter().filter_map(path_of).collect()
    }

    /// Returns the addresses of all sockets that nobody took yet.
    pub(crate) fn left(&self) -> Vec<String> {
        let unix = self.paths().into_iter().map(|path| path.display().to_string());
        let tcp = self.tcp.borrow();
        let tcp = tcp.iter().filter_map(|listener| listener.local_addr().ok());
        tcp.map(|address| address.to_string()).chain(unix).collect()
    }
}

fn path_of(listener: &UnixListener) -> Option<PathBuf> {
    Some(listener.local_addr().ok()?.as_pathname()?.to_owned())
}
