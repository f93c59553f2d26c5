//! Certificates of a test's own authority, and a client with TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use rebate_tests::{Authority, Server, TIMEOUT};
use tls::{Application, Client, ClientOptions, Session, Wire};

/// An authority, with servers and clients that use it.
pub(crate) struct World(Authority);

impl Deref for World {
    type Target = Authority;

    fn deref(&self) -> &Authority {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self(Authority::new())
    }

    /// Starts a server with a plain listener, a TLS listener and the admin pages. Returns it with its TLS address.
    pub(crate) fn server(&self, args: &[&str]) -> (Server, SocketAddr) {
        let listen = "127.0.0.1:0,tls://127.0.0.1:0";
        let ours = ["serve", "--listen", listen, "--admin-listen", "127.0.0.1:0"];
        let set = self.server_flags();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let mut server = Server::rebate(&[&ours[..], &set, args].concat());
        let secured = server.await_ready(TIMEOUT, "the TLS listener", |process| {
            process.printed("listening on tls://")
        });
        let secured = secured.expect("it listens").parse().expect("an address");
        (server, secured)
    }

    /// Returns a client that trusts the authority, with this certificate.
    pub(crate) fn client(&self, certificate: Option<&str>) -> Arc<Client> {
        let file = |suffix| certificate.map(|name| self.path(&format!("{name}.{suffix}")));
        let options = ClientOptions {
            ca_file: self.path("ca.pem"),
            cert_file: file("pem"),
            key_file: file("key"),
            server_name: None,
        };
        Arc::new(Client::load(options).expect("credentials"))
    }
}

/// A blocking connection with TLS.
pub(crate) struct Line {
    socket: Socket,
    session: Session,
}

struct Socket(TcpStream);

impl Wire for Socket {
    fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(space)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(slices)
    }
}

impl Line {
    /// Connects and performs the handshake.
    pub(crate) fn open(client: &Client, to: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(to)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_nodelay(true)?;
        let mut session = client.session("localhost", Application::Plain)?;
        let socket = Socket(socket);
        while !session.handshake(&socket)? {}
        Ok(Self { socket, session })
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.session.is_resumed()
    }

    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.session.write(&[IoSlice::new(bytes)], &self.socket)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Reads until the bytes end with `end`, or to the end of the connection.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        let mut space = vec![0; 64 << 10];
        while !found.ends_with(end) {
            match self.session.read(&mut space, &self.socket)? {
                0 => break,
                bytes => found.extend_from_slice(&space[..bytes]),
            }
        }
        Ok(found)
    }

    /// Sends a command and returns its answer, which ends with the answer to `mn`.
    pub(crate) fn ask(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.send(&[command, b"mn\r\n"].concat())?;
        self.read_until(b"MN\r\n")
    }
}

/// Returns a number of the metrics page.
pub(crate) fn metric(server: &Server, name: &str) -> f64 {
    let (_, page) =
        rebate_tests::http::page(server.admin().expect("pages"), "/metrics").expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Returns whether the files of a test are where it expects them.
pub(crate) fn openssl_is_here() -> bool {
    Path::new("/usr/bin/openssl").is_file()
}
