//! A port of this machine for a process that is started later. It only holds it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A port of 127.0.0.1, held until it is dropped. Its socket is bound and does not listen, and lets others bind it who
/// ask as servers do (`SO_REUSEADDR`): until one listens, connections are refused, and the system gives the port to
/// nobody who takes any.
pub(crate) struct Port {
    address: SocketAddr,
    _held: OwnedFd,
}

impl Port {
    /// One that nobody uses.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn free() -> Result<Self> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let held = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&held, true)?;
        rustix::net::bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = rustix::net::getsockname(&held)?.try_into()?;
        Ok(Self { address, _held: held })
    }

    /// Where its server is found, once there is one.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
