//! The connections of a well-behaved client: simulated ones, or TCP to real processes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use server::simulated::Connection;
use tokio::net::TcpStream;

use crate::network::{Endpoint, Host, Net};

/// How a client reaches the servers.
#[derive(Clone, Copy, Debug)]
pub enum Route {
    /// From this host of the simulated network.
    Simulated(Host),
    /// Over TCP, to real processes.
    Tcp,
}

impl Route {
    pub(super) async fn connect(self, net: &Net, address: &str) -> io::Result<Stream> {
        match self {
            Route::Simulated(host) => {
                net.of_host(host).connect_to(address).await.map(Stream::Simulated)
            }
            Route::Tcp => {
                static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream, CONNECTIONS.fetch_add(1, Ordering::Relaxed)))
            }
        }
    }
}

/// An open connection to a server.
pub(super) enum Stream {
    Simulated(Endpoint),
    /// A socket, and the number of the connection.
    Tcp(TcpStream, u64),
}

impl Stream {
    /// Returns the number of the connection.
    pub(super) fn id(&self) -> u64 {
        match self {
            Stream::Simulated(endpoint) => endpoint.id(),
            Stream::Tcp(_, id) => *id,
        }
    }

    /// Reads some bytes. Returns 0 at the end of the stream.
    pub(super) async fn read(&self, space: &mut [u8]) -> io::Result<usize> {
        let stream = match self {
            Stream::Simulated(endpoint) => return endpoint.read(space).await,
            Stream::Tcp(stream, _) => stream,
        };
        loop {
            stream.readable().await?;
            match stream.try_read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    pub(super) fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Simulated(endpoint) => endpoint.try_read(space),
            Stream::Tcp(stream, _) => stream.try_read(space),
        }
    }

    /// Writes all bytes.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let stream = match self {
            Stream::Simulated(endpoint) => return endpoint.write_all(bytes).await,
            Stream::Tcp(stream, _) => stream,
        };
        while !bytes.is_empty() {
            stream.writable().await?;
            match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => bytes = &bytes[written?..],
            }
        }
        Ok(())
    }
}
