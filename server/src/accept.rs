//! Listening and accepting: connections are counted against the limit and dealt to the workers in turn.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::umask;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::context::Connections;
use crate::counters::Counters;
use crate::worker::{Accepted, Door, Word, Worker};

/// Deals accepted connections to the workers.
#[derive(Clone)]
pub(crate) struct Dealer {
    pub(crate) workers: Arc<[Worker]>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) next: Arc<AtomicUsize>,
}

impl Dealer {
    fn deal(&self, mut accepted: Accepted) {
        let worker = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        if !self.connections.enter() {
            self.counters[worker].commands.rejected_connections.up();
            let _ = match &mut accepted {
                Accepted::Tcp(stream, Door::Memcached) => stream.write_all(TOO_MANY),
                Accepted::Unix(stream, Door::Memcached) => stream.write_all(TOO_MANY),
                // There is no word for it before the HTTP/2 preface, or over the others; the client sees the end.
                Accepted::Tcp(_, Door::Grpc | Door::Traces)
                | Accepted::Unix(_, Door::Grpc | Door::Traces)
                | Accepted::Lane(_) => Ok(()),
            };
            return;
        }
        if !self.workers[worker].tell(Word::Serve(accepted)) {
            self.connections.leave();
        }
    }
}

/// A TCP listener on every address that the text resolves to.
///
/// # Errors
/// The system's, if none of them could be listened on.
pub(crate) fn listen_tcp(address: &str, backlog: u32) -> io::Result<Vec<std::net::TcpListener>> {
    let tried = address.to_socket_addrs()?.map(|address| listen_on(address, backlog));
    let (bound, failed): (Vec<_>, Vec<_>) = tried.partition(Result::is_ok);
    // As memcached: a name with an address that this machine lacks is served on the others.
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

/// A Unix listener with the given permission bits; a socket that nobody listens on any more is replaced, any other
/// file is left alone.
///
/// # Errors
/// The system's; `AddrInUse` if someone does listen.
pub(crate) fn listen_unix(path: &Path, mode: u32) -> io::Result<std::os::unix::net::UnixListener> {
    if let Ok(there) = path.symlink_metadata() {
        let is_socket = there.file_type().is_socket();
        if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    // Bound under a mask, so that the socket never has more permissions than it should.
    let mask = umask(Mode::from_raw_mode(0o777 & !mode));
    let bound = std::os::unix::net::UnixListener::bind(path);
    umask(mask);
    let listener = bound?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts for as long as it is polled.
pub(crate) async fn accept_tcp(listener: TcpListener, door: Door, dealer: Dealer) {
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                // A host that vanished would otherwise keep its connection for ever.
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
                dealer.deal(Accepted::Tcp(stream, door));
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts for as long as it is polled.
pub(crate) async fn accept_unix(listener: UnixListener, door: Door, dealer: Dealer) {
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => dealer.deal(Accepted::Unix(stream, door)),
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts for as long as it is polled.
pub(crate) async fn accept_lanes(listener: UnixListener, dealer: Dealer) {
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => dealer.deal(Accepted::Lane(stream)),
            Err(error) => pause(&error).await,
        }
    }
}

/// A client that hung up first is nothing; out of descriptors, another try at once would only spin.
pub(crate) async fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "accepting failed");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

const KEEPALIVE_AFTER: Duration = Duration::from_secs(120);

const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// memcached's words (`maxconns_fast`).
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
