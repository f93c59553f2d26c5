//! The servers of the matrix: memcached, `rebate memcached`, and `rebate serve` in front of memcached, each without
//! TLS, with TLS, and with users who log in with SASL.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::Process;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rebate_tests::{Port, Server, TIMEOUT, poll_for, rebate_command};
use tempfile::TempDir;

/// The user whom the programs log in as.
const USER: &str = "matrix";
const PASSWORD: &str = "password-of-the-matrix";

/// The names of the servers, in the order of their addresses. The first one is right by definition.
pub(crate) const NAMES: [&str; 3] = ["memcached", "rebate memcached", "rebate serve"];

/// How a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    Tls,
    Sasl,
}

impl Security {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::Sasl => "sasl",
        }
    }
}

/// The files that the servers and clients read.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    /// Writes the certificate of all servers, and the users for each kind of server.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(names).expect("a certificate");
        let files = Self { folder };
        files.write("server.pem", &cert.pem());
        files.write("server.key", &signing_key.serialize_pem());
        let rules = format!(
            "[roles.all]\ncommands = [\"all\"]\n[[users]]\nname = \"{USER}\"\npassword = \
             \"{PASSWORD}\"\nrole = \"all\"\n"
        );
        files.write("access.toml", &rules);
        let database = files.path("users.db");
        files.write(
            "memcached.conf",
            &format!(
                "mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: {}\n",
                database.display()
            ),
        );
        files
    }

    /// Returns the path of a file. `server.pem` is also the certificate that clients trust.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Adds the user to the database of SASL.
    ///
    /// # Panics
    /// `saslpasswd2` is missing or fails.
    pub(crate) fn add_user(&self) {
        let mut child = Command::new("saslpasswd2")
            .args(["-p", "-c", "-a", "memcached", "-f"])
            .arg(self.path("users.db"))
            .arg(USER)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("saslpasswd2 (Debian package sasl2-bin): {error}"));
        let mut input = child.stdin.take().expect("its input");
        input.write_all(PASSWORD.as_bytes()).expect("the password is written");
        drop(input);
        let status = child.wait().expect("it ends");
        assert!(status.success(), "saslpasswd2: {status}");
    }
}

/// One server of each name, which end when this is dropped.
pub(crate) struct Servers {
    pub addresses: [SocketAddr; 3],
    _servers: Vec<Server>,
    _memcached: Option<Process>,
}

impl Servers {
    /// Starts the servers.
    ///
    /// # Panics
    /// One of them does not serve.
    pub(crate) fn start(security: Security, files: &Files) -> Self {
        match security {
            Security::Plain => Self::plain(),
            Security::Tls => Self::tls(files),
            Security::Sasl => Self::sasl(files),
        }
    }

    fn plain() -> Self {
        let (memcached, store) = (Server::memcached(&[]), Server::memcached(&[]));
        let serve = Server::rebate_serve(&store.as_store(), "on", &[]);
        let ours = Server::rebate_memcached(&[]);
        let addresses = [memcached.addr(), ours.addr(), serve.addr()];
        Self { addresses, _servers: vec![memcached, ours, serve, store], _memcached: None }
    }

    fn tls(files: &Files) -> Self {
        let [cert, key] = ["server.pem", "server.key"].map(|name| files.path(name));
        let (cert, key) = (cert.display(), key.display());
        let option = format!("ssl_chain_cert={cert},ssl_key={key}");
        let memcached = Server::memcached(&["-Z", "-o", &option]);
        let ours = Server::rebate_memcached(&["-Z", "-o", &option]);
        let store = Server::memcached(&[]);
        let set = [format!("tls.cert_file={cert}"), format!("tls.key_file={key}")];
        let serve = ["serve", "--listen", "tls://127.0.0.1:0", "--store", &store.as_store()];
        let serve = Server::rebate(&[&serve[..], &["--set", &set[0], "--set", &set[1]]].concat());
        let addresses = [memcached.addr(), ours.addr(), serve.addr()];
        Self { addresses, _servers: vec![memcached, ours, serve, store], _memcached: None }
    }

    fn sasl(files: &Files) -> Self {
        let (memcached, address) = memcached_with_users(files.path("").as_path());
        let store = Server::memcached(&[]);
        let front = ["serve", "--listen", "127.0.0.1:0", "--store", &store.as_store()];
        let alone = ["memcached", "-p", "-1", "-l", "127.0.0.1", "-U", "0", "-u", "root"];
        let start = |arguments: &[&str]| {
            let mut command = rebate_command();
            command.args(arguments).env("REBATE_SERVER__ACCESS_FILE", files.path("access.toml"));
            Server::rebate_with(&mut command, Stdio::piped())
        };
        let (ours, serve) = (start(&alone), start(&front));
        let addresses = [address, ours.addr(), serve.addr()];
        Self { addresses, _servers: vec![ours, serve, store], _memcached: Some(memcached) }
    }
}

/// Starts a memcached that reads its users as the files in this folder say.
fn memcached_with_users(folder: &Path) -> (Process, SocketAddr) {
    let port = Port::free().expect("a port");
    let mut command = Command::new("memcached");
    command.args(["-S", "-l", "127.0.0.1", "-U", "0", "-u", "root"]);
    command.args(["-p", &port.number().to_string()]);
    command.env("SASL_CONF_PATH", folder);
    let process = Process::start(&mut command).unwrap_or_else(|error| panic!("{error}"));
    let connect = || std::net::TcpStream::connect(port.address()).ok();
    assert!(poll_for(TIMEOUT, connect).is_some(), "memcached serves: {}", process.output());
    (process, port.address())
}
