//! What is known of a connection before its client says who it is: its address, the user of the process at the other
//! end of a Unix socket, and the names of its certificate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt};

use crate::stream::Stream;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
    /// The user of the process at the other end of a Unix socket.
    pub(super) peer: Option<Peer>,
    /// The names of the client's certificate, which was verified: its subject and its alternative names.
    pub(super) certificate: Vec<String>,
}

/// The user and the group of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Origin {
    /// Returns the origin of a connection that was accepted from the address `from`, which a Unix socket does not have.
    /// The address must be that of the accept: a socket that its peer has closed cannot tell it.
    pub(crate) fn new(stream: &Stream, from: Option<SocketAddr>) -> Self {
        let address = |from: SocketAddr| Self::from_address(from.ip(), from.port());
        let origin = from.map(address).unwrap_or_default();
        match stream {
            Stream::Tcp(_) | Stream::Simulated(_) => origin,
            Stream::Tls(stream) => {
                let identity = stream.identity();
                let names =
                    identity.into_iter().flat_map(|one| [one.subject].into_iter().chain(one.names));
                origin.with_certificate(names)
            }
            Stream::Unix(stream) => Self::from_unix(stream),
            Stream::Near(stream) => Self::from_unix(stream.socket()),
        }
    }

    pub(super) fn from_address(address: IpAddr, port: u16) -> Self {
        Self { address: Some(address.to_canonical()), port, ..Self::default() }
    }

    /// Returns the origin of a Unix socket's connection.
    pub(crate) fn from_unix(socket: impl AsFd) -> Self {
        // rustix cannot represent the process id 0, which a peer in another container has.
        let peer = getsockopt(&socket, sockopt::PeerCredentials).ok();
        let peer = peer.map(|peer| Peer { uid: peer.uid(), gid: peer.gid() });
        Self { peer, ..Self::default() }
    }

    /// Adds the names of a client's certificate that was verified: its subject, such as `CN=web`, and its alternative
    /// names, such as `DNS:web.example` or `URI:spiffe://example/web`.
    pub(super) fn with_certificate(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.certificate.extend(names);
        self
    }

    /// Returns whether the client is on this host.
    pub(crate) fn is_local(&self) -> bool {
        self.peer.is_some() || self.address.is_some_and(|address| address.is_loopback())
    }

    /// Feeds what identifies the client's host to `hasher`. IPv6 addresses of one network of 64 bits count as one
    /// host, because a host can choose among them.
    pub(super) fn hash_host(&self, hasher: &mut impl Hasher) {
        match self.address {
            Some(IpAddr::V4(address)) => address.hash(hasher),
            Some(IpAddr::V6(address)) => (address.to_bits() >> 64).hash(hasher),
            None => self.peer.hash(hasher),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.peer) {
            (Some(address), _) => SocketAddr::new(address, self.port).fmt(f),
            (None, Some(Peer { uid, gid })) => write!(f, "unix:uid={uid},gid={gid}"),
            (None, None) => f.write_str("unknown"),
        }
    }
}
