//! The sockets of a server. All are bound before anything else starts, so that a wrong address is known at once.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::accept::{listen_tcp, listen_unix};
use crate::config::{Config, Services, split_tls};
use crate::connection_table::{Address, ConnectionTable};
use crate::inherited::InheritedSockets;
use crate::server::StartError;
use crate::worker::ListenerProtocol;

pub(crate) struct Listeners {
    pub(crate) admin: Vec<std::net::TcpListener>,
    pub(crate) tcp: Vec<TcpSocketListener>,
    pub(crate) unix: Vec<UnixSocketListener>,
    pub(crate) lanes: Option<std::os::unix::net::UnixListener>,
    /// The paths of the Unix sockets that this process bound itself, and therefore removes at its end.
    pub(crate) own_paths: Vec<PathBuf>,
}

/// A TCP listener for clients.
pub(crate) struct TcpSocketListener {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) protocol: ListenerProtocol,
    pub(crate) is_tls: bool,
}

/// A Unix socket for clients.
pub(crate) struct UnixSocketListener {
    pub(crate) listener: std::os::unix::net::UnixListener,
    pub(crate) path: PathBuf,
    pub(crate) protocol: ListenerProtocol,
}

impl Listeners {
    /// Binds every socket that the configuration names, except those that are inherited.
    pub(crate) fn bind(config: &Config, inherited: &InheritedSockets) -> Result<Self, StartError> {
        let server = &config.server;
        let inherited_paths = inherited.paths();
        let listen = |address: &str| {
            let bound = listen_tcp(split_tls(address).1, server.backlog, inherited);
            bound.map_err(|error| StartError::Listen { address: address.to_owned(), error })
        };
        let listen_for = |address: &str, protocol| -> Result<Vec<_>, StartError> {
            let is_tls = split_tls(address).0;
            let listeners = listen(address)?.into_iter();
            Ok(listeners.map(|listener| TcpSocketListener { listener, protocol, is_tls }).collect())
        };
        let admin = match server.admin_listen.is_empty() {
            true => Vec::new(),
            false => listen(&server.admin_listen)?,
        };
        let listen_unix = |path: &Path, protocol| -> Result<_, StartError> {
            let listener = bind_unix(path, server.unix_socket_mode, inherited)?;
            Ok(UnixSocketListener { listener, path: path.to_owned(), protocol })
        };
        let mut tcp = Vec::new();
        let mut unix = Vec::new();
        let is_frontend = Services::from_roles(&server.roles).frontend;
        if is_frontend {
            for address in &server.listen {
                tcp.extend(listen_for(address, ListenerProtocol::Memcached)?);
            }
            if let Some(path) = &server.unix_socket {
                unix.push(listen_unix(path, ListenerProtocol::Memcached)?);
            }
        }
        for address in server.thrift_listen.iter().filter(|_| is_frontend) {
            tcp.extend(listen_for(address, ListenerProtocol::Thrift)?);
        }
        if let Some(path) = server.near_listen.as_ref().filter(|_| is_frontend) {
            unix.push(listen_unix(path, ListenerProtocol::Near)?);
        }
        for address in &server.grpc_listen {
            match address.parse() {
                Ok(api::Address::Unix(path)) => {
                    unix.push(listen_unix(&path, ListenerProtocol::Grpc)?);
                }
                Ok(address @ (api::Address::Tcp(_) | api::Address::Tls(_))) => {
                    tcp.extend(listen_for(&address.to_string(), ListenerProtocol::Grpc)?);
                }
                Err(error) => {
                    return Err(StartError::Config(format!("server.grpc_listen: {error}")));
                }
            }
        }
        for address in &config.programs.listen {
            tcp.extend(listen_for(address, ListenerProtocol::Programs)?);
        }
        let lane = server.lane_listen.as_ref();
        let bind = |path| bind_unix(path, server.unix_socket_mode, inherited);
        let lanes = lane.map(|path| bind(path)).transpose()?;
        if tcp.is_empty() && unix.is_empty() && lanes.is_none() {
            return Err(StartError::Config(
                "nowhere to listen: give an address or a socket".into(),
            ));
        }
        refuse_left(inherited)?;
        let paths = unix.iter().map(|socket| &socket.path).chain(lane);
        let own_paths = paths.filter(|path| !inherited_paths.contains(path)).cloned().collect();
        Ok(Self { admin, tcp, unix, lanes, own_paths })
    }

    /// Lists the listeners whose clients are sessions.
    pub(crate) fn enter(&self, table: &ConnectionTable) {
        let is_ours = |socket: &&TcpSocketListener| {
            matches!(socket.protocol, ListenerProtocol::Memcached | ListenerProtocol::Thrift)
        };
        for socket in self.tcp.iter().filter(is_ours) {
            if let Ok(address) = socket.listener.local_addr() {
                table.listen(socket.listener.as_raw_fd(), Address::Tcp(address));
            }
        }
        for socket in &self.unix {
            let path = Some(socket.path.as_path().into());
            let address = match socket.protocol {
                ListenerProtocol::Memcached => Address::Unix(path),
                ListenerProtocol::Near => Address::Near(path),
                _ => continue,
            };
            table.listen(socket.listener.as_raw_fd(), address);
        }
    }
}

/// Refuses to start if a socket of the supervisor has no use: its clients would connect and wait for ever.
fn refuse_left(inherited: &InheritedSockets) -> Result<(), StartError> {
    let left = inherited.left();
    if left.is_empty() {
        return Ok(());
    }
    Err(StartError::Config(format!(
        "the supervisor passes on the listening socket {}, and no key of the configuration has this \
         address: set server.listen (or server.grpc_listen, server.admin_listen, \
         server.unix_socket, server.near_listen, server.thrift_listen, server.lane_listen, \
         programs.listen) to it, or remove it from the \
         supervisor's sockets",
        left.join(", ")
    )))
}

fn bind_unix(
    path: &Path,
    mode: u32,
    inherited: &InheritedSockets,
) -> Result<std::os::unix::net::UnixListener, StartError> {
    if let Some(listener) = inherited.take_unix(path) {
        return Ok(listener);
    }
    let address = path.display().to_string();
    listen_unix(path, mode).map_err(|error| StartError::Listen { address, error })
}

/// Returns the addresses of TCP listeners.
pub(crate) fn bound<'a>(
    listeners: impl Iterator<Item = &'a TcpSocketListener>,
) -> Result<Vec<SocketAddr>, StartError> {
    let address = |socket: &TcpSocketListener| socket.listener.local_addr();
    listeners.map(address).collect::<Result<_, _>>().map_err(StartError::Thread)
}
