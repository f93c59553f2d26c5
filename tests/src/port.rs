//! Ports of this machine that a test starts servers on, again and again, or nobody at all. It only holds them: who
//! serves there is the test's business.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A port of 127.0.0.1, held until it is dropped. Its socket is bound and does not listen, and lets others bind it who
/// ask as servers do (`SO_REUSEADDR`): while none listens, connections are refused, and the system gives the port to
/// nobody who takes any.
#[derive(Debug)]
pub struct Port {
    addr: SocketAddr,
    _held: OwnedFd,
}

impl Port {
    /// One that nobody uses.
    ///
    /// # Panics
    /// If the system has none.
    pub fn free() -> Self {
        Self::bind().unwrap_or_else(|error| panic!("no free port: {error}"))
    }

    /// Where its server is found, while there is one.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.addr.port()
    }

    fn bind() -> Result<Self> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let held = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&held, true)?;
        rustix::net::bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let addr = rustix::net::getsockname(&held)?.try_into()?;
        Ok(Self { addr, _held: held })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn servers_come_and_go_on_a_port_that_is_held() {
        let port = Port::free();
        for _ in 0..3 {
            assert!(TcpStream::connect(port.addr()).is_err(), "nobody listens");
            let server = TcpListener::bind(port.addr()).expect("it lets servers in");
            TcpStream::connect(port.addr()).expect("the server is found");
            drop(server);
        }
    }
}
