//! Certificates of a test's own authority, and a client with TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rebate_tests::{Server, TIMEOUT};
use tempfile::TempDir;
use tls::{Application, Client, ClientOptions, Session, Wire};

/// An authority and the files of what it has signed.
pub(crate) struct World {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let world = Self { folder, issuer };
        std::fs::write(world.path("ca.pem"), world.issuer.pem()).expect("it is written");
        world.sign("server", 2100);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes `NAME.pem` and `NAME.key`, valid until the end of this year.
    pub(crate) fn sign(&self, name: &str, year: i32) {
        let (certificate, key) = self.signed(name, year);
        std::fs::write(self.path(&format!("{name}.key")), key).expect("it is written");
        std::fs::write(self.path(&format!("{name}.pem")), certificate).expect("it is written");
    }

    /// Returns a certificate for this host and its key.
    pub(crate) fn signed(&self, name: &str, year: i32) -> (String, String) {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Starts a server with a plain listener, a TLS listener and the admin pages. Returns it with its TLS address.
    pub(crate) fn server(&self, args: &[&str]) -> (Server, SocketAddr) {
        let (cert, key) = (self.text("server.pem"), self.text("server.key"));
        let set = [format!("tls.cert_file={cert}"), format!("tls.key_file={key}")];
        let listen = "127.0.0.1:0,tls://127.0.0.1:0";
        let ours = ["serve", "--listen", listen, "--admin-listen", "127.0.0.1:0"];
        let set = ["--set", &set[0], "--set", &set[1]];
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
