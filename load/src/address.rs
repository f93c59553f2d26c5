//! The address and the protocol of a server. The module opens connections to a server without waiting.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::{Serialize, Serializer};

/// The address and the protocol of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The protocol.
    pub protocol: Protocol,
    /// The socket.
    pub endpoint: Endpoint,
}

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's text protocol.
    Memcached,
    /// gRPC: `rebate.v1.Cache`.
    Grpc,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// The resolved address of `host:port`.
    Tcp(SocketAddr),
    /// The resolved address of `tls://host:port`, and the host that its certificate must name.
    Tls {
        /// The address.
        place: SocketAddr,
        /// The host.
        host: String,
    },
    /// A unix socket's path.
    Unix(PathBuf),
    /// The path of the unix socket on which a server listens for near clients.
    Near(PathBuf),
}

/// An error for a text that is not an address. The caller must correct the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no server address ({reason}); write host, host:port, [::1]:port, unix:/path or \
     near:/path, and for gRPC grpc://host:port or grpc:///path; tls:// before host means TLS"
)]
pub struct BadAddress {
    /// The text that is not an address.
    pub text: String,
    /// The reason why the text is not an address.
    pub reason: String,
}

/// A socket that is connected or connecting.
pub(crate) enum Opening {
    /// The socket is connected.
    Done(OwnedFd),
    /// The socket is connecting. When it becomes writable, it is connected or has failed.
    Pending(OwnedFd),
}

impl Address {
    /// Returns whether requests go through shared memory.
    pub(crate) const fn is_near(&self) -> bool {
        matches!(self.endpoint, Endpoint::Near(_))
    }

    /// Begins a connection without waiting.
    pub(crate) fn open(&self) -> Result<Opening, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = |family| rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let (socket, connected) = match &self.endpoint {
            Endpoint::Tcp(address) | Endpoint::Tls { place: address, .. } => {
                let v4 = address.is_ipv4();
                let socket = socket(if v4 { AddressFamily::INET } else { AddressFamily::INET6 })?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = rustix::net::connect(&socket, address);
                (socket, connected)
            }
            Endpoint::Unix(path) | Endpoint::Near(path) => {
                let socket = socket(AddressFamily::UNIX)?;
                let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) => Ok(Opening::Done(socket)),
            Err(Errno::INPROGRESS) => Ok(Opening::Pending(socket)),
            Err(error) => Err(error),
        }
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    /// Parses `host:port` (or `host` for a memcached at its usual port), `near:/path`, `unix:/path` or an absolute
    /// path, the latter two and the first also with `grpc://` in front of it for gRPC.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (protocol, place) = match text.strip_prefix("grpc://") {
            Some(place) => (Protocol::Grpc, place),
            None => (Protocol::Memcached, text),
        };
        let bad = |reason: String| BadAddress { text: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("near:") {
            let fits = SocketAddrUnix::new(path).map_err(|error| bad(error.to_string()));
            let endpoint = fits.map(|_| Endpoint::Near(path.into()))?;
            return Ok(Self { protocol, endpoint });
        }
        let host = place.strip_prefix("tls://").unwrap_or(place);
        // What follows an IPv6 address in brackets, or all.
        let behind = host.rsplit(']').next().unwrap_or(host);
        let names_a_port = behind.contains(':') || host.is_empty() || host.starts_with('/');
        let with_port = match protocol {
            Protocol::Memcached if !names_a_port => format!("{place}:{MEMCACHED_PORT}"),
            _ => place.to_owned(),
        };
        Ok(Self { protocol, endpoint: read_endpoint(&with_port).map_err(bad)? })
    }
}

fn read_endpoint(text: &str) -> Result<Endpoint, String> {
    if let Some(path) = text.strip_prefix("unix:").or(text.starts_with('/').then_some(text)) {
        let fits = SocketAddrUnix::new(path);
        return fits.map(|_| Endpoint::Unix(path.into())).map_err(|error| error.to_string());
    }
    if let Some(text) = text.strip_prefix("tls://") {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host).to_owned();
        let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
        let place = found.next().ok_or_else(|| "the host has no address".to_owned())?;
        return Ok(Endpoint::Tls { place, host });
    }
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().map(Endpoint::Tcp).ok_or_else(|| "the host has no address".to_owned())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.protocol, &self.endpoint) {
            (Protocol::Memcached, Endpoint::Tcp(address)) => address.fmt(f),
            (protocol, Endpoint::Tls { place, host }) => {
                let grpc = if *protocol == Protocol::Grpc { "grpc://" } else { "" };
                write!(f, "{grpc}tls://{host}:{}", place.port())
            }
            (Protocol::Memcached, Endpoint::Unix(path)) => write!(f, "unix:{}", path.display()),
            (_, Endpoint::Near(path)) => write!(f, "near:{}", path.display()),
            (Protocol::Grpc, Endpoint::Tcp(address)) => write!(f, "grpc://{address}"),
            (Protocol::Grpc, Endpoint::Unix(path)) if path.is_absolute() => {
                write!(f, "grpc://{}", path.display())
            }
            (Protocol::Grpc, Endpoint::Unix(path)) => write!(f, "grpc://unix:{}", path.display()),
        }
    }
}

/// The port of a memcached that names none.
const MEMCACHED_PORT: u16 = 11211;

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_others_are_refused() {
        for text in ["127.0.0.1:11211", "[::1]:80", "unix:/run/cache.sock", "unix:cache.sock"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in ["grpc://127.0.0.1:50051", "grpc:///run/cache.sock", "grpc://unix:cache.sock"] {
            let address: Address = text.parse().expect(text);
            assert_eq!((address.protocol, address.to_string().as_str()), (Protocol::Grpc, text));
        }
        let long = format!("unix:/{}", "x".repeat(200));
        let grpc_long = format!("grpc:///{}", "x".repeat(200));
        for (text, full) in [("127.0.0.1", "127.0.0.1:11211"), ("[::1]", "[::1]:11211")] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), full);
        }
        let bad = ["", "tls://", "127.0.0.1:port", "127.0.0.1:99999", "grpc://", "grpc://a"];
        for text in bad.into_iter().chain([long.as_str(), grpc_long.as_str()]) {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
