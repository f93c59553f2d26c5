//! Reserves a port of this machine for a process that is started later.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A port of 127.0.0.1 that is reserved until it is dropped. Its socket is bound and does not listen. Servers that set
/// `SO_REUSEADDR` can also bind it. Until a server listens, connections are refused, and the system does not give the
/// port to a process that requests any free port.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _held: OwnedFd,
}

impl Port {
    /// Reserves a free port.
    ///
    /// # Errors
    /// The system refuses a socket or has no port left.
    pub fn free() -> std::io::Result<Self> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let held = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&held, true)?;
        rustix::net::bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = rustix::net::getsockname(&held)?.try_into()?;
        Ok(Self { address, _held: held })
    }

    /// Returns the address at which the server will listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port's number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn servers_come_and_go_on_a_port_that_is_held() {
        let port = Port::free().expect("a free port");
        for _ in 0..3 {
            assert!(TcpStream::connect(port.address()).is_err(), "nobody listens");
            let server = TcpListener::bind(port.address()).expect("it lets servers in");
            TcpStream::connect(port.address()).expect("the server is found");
            drop(server);
        }
    }
}
