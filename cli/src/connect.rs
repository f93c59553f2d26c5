//! Opens a blocking connection to a memcached server, for commands that send a few requests.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use load::{Address, Endpoint};
use planner::estimate::Connection;

/// Connects. A read that gets no byte within `read_max` fails.
pub(crate) fn connect(address: &Address, read_max: Duration) -> io::Result<Box<dyn Connection>> {
    match &address.endpoint {
        Endpoint::Tcp(socket) => {
            let stream = TcpStream::connect_timeout(socket, CONNECT_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(read_max))?;
            stream.set_write_timeout(Some(CONNECT_MAX))?;
            Ok(Box::new(stream))
        }
        Endpoint::Tls { .. } => {
            let problem = "this command connects without TLS: give HOST:PORT or unix:/path";
            Err(io::Error::new(io::ErrorKind::Unsupported, problem))
        }
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(read_max))?;
            stream.set_write_timeout(Some(CONNECT_MAX))?;
            Ok(Box::new(stream))
        }
    }
}

/// The longest wait for the server to accept the connection, or the next bytes.
const CONNECT_MAX: Duration = Duration::from_secs(5);
