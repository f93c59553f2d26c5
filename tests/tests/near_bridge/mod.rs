//! A TCP port whose connections go on through shared memory. So the clients of these tests, which speak TCP, become
//! near clients of a server. The bridge does not look at the bytes.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use drivers::near::NearClient;
use rebate_tests::TIMEOUT;
use rustix::event::{PollFd, PollFlags, poll};

/// Listens until the process ends. Each connection is passed to the near socket at `path`.
///
/// # Errors
/// The system has no port.
pub(crate) fn listen(path: PathBuf) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let path = path.clone();
            // An error of one side ends the other, which is what the test then sees.
            thread::spawn(move || Bridge::new(tcp, path)?.pass());
        }
    });
    Ok(addr)
}

struct Bridge {
    tcp: TcpStream,
    near: NearClient,
    /// Bytes on their way to the server and to the client.
    to_near: Vec<u8>,
    to_tcp: Vec<u8>,
    space: Vec<u8>,
}

impl Bridge {
    fn new(tcp: TcpStream, path: PathBuf) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let near = NearClient::connect(&path, Instant::now() + TIMEOUT)?;
        Ok(Self { tcp, near, to_near: Vec::new(), to_tcp: Vec::new(), space: vec![0; SPACE_BYTES] })
    }

    /// Passes bytes in both directions until one side ends.
    fn pass(mut self) -> io::Result<()> {
        loop {
            let space = &mut self.space;
            let from_client = fill(&mut self.to_near, space, |space| self.tcp.read(space))?;
            let to_server =
                drain(&mut self.to_near, |bytes| self.near.try_write(&[IoSlice::new(bytes)]));
            let from_server = fill(&mut self.to_tcp, space, |space| self.near.try_read(space))?;
            let to_client = drain(&mut self.to_tcp, |bytes| self.tcp.write(bytes))?;
            match (from_client, from_server) {
                (Moved::End, _) => return Ok(()),
                (_, Moved::End) if self.to_tcp.is_empty() => return self.end(),
                _ => {}
            }
            // A server that is gone takes no bytes, but its last answers must still be read.
            let to_server = to_server.unwrap_or(Moved::Nothing);
            let moved = [from_client, to_server, from_server, to_client];
            if !moved.contains(&Moved::Some) && self.near.may_sleep(false, !self.to_near.is_empty())
            {
                self.sleep()?;
            }
        }
    }

    /// Waits for bytes, or for room for those that are on their way.
    fn sleep(&mut self) -> io::Result<()> {
        let mut tcp = PollFlags::empty();
        tcp.set(PollFlags::IN, self.to_near.is_empty());
        tcp.set(PollFlags::OUT, !self.to_tcp.is_empty());
        let near = if self.to_tcp.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        poll(&mut [PollFd::new(&self.tcp, tcp), PollFd::new(&self.near, near)], None)?;
        self.near.read_doorbells();
        Ok(())
    }

    /// Ends the stream to the client. What the client still sends is read, because a socket that is closed with unread
    /// bytes takes back what the client has not read.
    fn end(mut self) -> io::Result<()> {
        self.tcp.shutdown(Shutdown::Write)?;
        self.tcp.set_nonblocking(false)?;
        self.tcp.set_read_timeout(Some(TIMEOUT))?;
        io::copy(&mut self.tcp, &mut io::sink()).map(drop)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Some,
    Nothing,
    End,
}

/// Reads into a buffer that is empty.
fn fill(
    buffer: &mut Vec<u8>,
    space: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> io::Result<Moved> {
    if !buffer.is_empty() {
        return Ok(Moved::Nothing);
    }
    match read(space) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Moved::Nothing),
        Err(error) => Err(error),
        Ok(0) => Ok(Moved::End),
        Ok(bytes) => {
            buffer.extend_from_slice(&space[..bytes]);
            Ok(Moved::Some)
        }
    }
}

/// Writes the bytes of a buffer for which there is room.
fn drain(
    buffer: &mut Vec<u8>,
    write: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<Moved> {
    if buffer.is_empty() {
        return Ok(Moved::Nothing);
    }
    match write(buffer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Moved::Nothing),
        Err(error) => Err(error),
        Ok(bytes) => {
            buffer.drain(..bytes);
            Ok(Moved::Some)
        }
    }
}

const SPACE_BYTES: usize = 64 << 10;
