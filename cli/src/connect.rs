//! Opens a blocking connection to a memcached server, for commands that send a few requests: with TLS if the address
//! says so, and with a login if the server asks for one.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::tls::{Application, Session, Wire};
use clap::Args;
use load::{Address, Endpoint};
use planner::estimate::Connection;

use crate::terminal::CliError;
use crate::tls::TlsFlags;

/// The flags of a command that connects to a memcached server.
#[derive(Debug, Default, Args)]
pub(crate) struct ConnectFlags {
    #[command(flatten)]
    tls: TlsFlags,
    /// File whose first line is USER:PASSWORD, for a server that asks for a password. Files of memcached's -Y can be
    /// used.
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
}

/// Opens connections with the credentials of the flags.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    login: Option<Login>,
}

/// The user and the password, as the value of memcached's login: `USER PASSWORD`.
struct Login(Vec<u8>);

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

impl ConnectFlags {
    /// Loads the credentials.
    pub(crate) fn connector(&self) -> Result<Connector, CliError> {
        self.tls.apply()?;
        let login = self.auth_file.as_deref().map(Login::read).transpose()?;
        Ok(Connector { login })
    }
}

impl Login {
    fn read(path: &Path) -> Result<Self, CliError> {
        let wrong = |problem: &dyn std::fmt::Display| {
            CliError::Usage(format!("--auth-file {}: {problem}", path.display()))
        };
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| wrong(&error))?;
        file.take(LOGIN_BYTES_MAX).read_to_end(&mut text).map_err(|error| wrong(&error))?;
        Self::parse(&text).ok_or_else(|| wrong(&"the first line must be USER:PASSWORD"))
    }

    /// Reads the first line. A user has no colon and no space, and a password no line end.
    fn parse(text: &[u8]) -> Option<Self> {
        let line = text.split(|byte| *byte == b'\n').next()?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (user, password) = (&line[..colon], &line[colon + 1..]);
        let is_valid = !user.is_empty() && !user.contains(&b' ') && !password.is_empty();
        is_valid.then(|| Self([user, b" ", password].concat()))
    }
}

impl Connector {
    /// Connects. A read that gets no byte within `read_max` fails.
    pub(crate) fn connect(
        &self,
        address: &Address,
        read_max: Duration,
    ) -> io::Result<Box<dyn Connection>> {
        let mut stream: Box<dyn Connection> = match &address.endpoint {
            Endpoint::Tcp(place) => Box::new(tcp(place, read_max)?),
            Endpoint::Tls { place, host } => Box::new(TlsStream::connect(place, host, read_max)?),
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(read_max))?;
                stream.set_write_timeout(Some(CONNECT_MAX))?;
                Box::new(stream)
            }
            Endpoint::Near(_) => {
                let why = "this command has no shared memory: give a TCP or Unix socket address";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        };
        if let Some(login) = &self.login {
            log_in(&mut stream, login)?;
        }
        Ok(stream)
    }
}

fn tcp(place: &SocketAddr, read_max: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(place, CONNECT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(read_max))?;
    stream.set_write_timeout(Some(CONNECT_MAX))?;
    Ok(stream)
}

/// Logs in if the server asks for it. A login is a `set`, which a server without passwords would store, so the server
/// is asked first.
fn log_in(stream: &mut impl Connection, Login(text): &Login) -> io::Result<()> {
    if ask(stream, b"version\r\n")? != UNAUTHENTICATED {
        return Ok(());
    }
    let head = format!("set login 0 0 {}\r\n", text.len());
    let answer = ask(stream, &[head.as_bytes(), text, b"\r\n"].concat())?;
    if answer == b"STORED" {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let problem = format!("the server refuses the login of --auth-file: {answer:?}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Sends a request and reads the line of its answer, byte by byte, so that nothing behind it is taken.
fn ask(stream: &mut impl Connection, request: &[u8]) -> io::Result<Vec<u8>> {
    let end = Instant::now() + CONNECT_MAX;
    stream.write_all(request)?;
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte == *b"\n" => {
                let text = line.strip_suffix(b"\r").unwrap_or(&line);
                return Ok(text.to_vec());
            }
            Ok(_) => line.extend_from_slice(&byte),
            Err(error) if !may_retry(&error) => return Err(error),
            Err(_) => {}
        }
        if Instant::now() >= end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to the login"));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer to the login has no end"))
}

/// A TLS connection whose reads and writes wait as long as its socket does.
struct TlsStream {
    socket: Socket,
    session: Session,
}

/// A blocking socket under a session. Where its limit of time passes, the session waits for more.
struct Socket(TcpStream);

impl Wire for Socket {
    fn receive(&self, space: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(space)
    }

    fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(slices)
    }
}

impl TlsStream {
    fn connect(place: &SocketAddr, host: &str, read_max: Duration) -> io::Result<Self> {
        let client = ::tls::outgoing().map_err(|_| {
            let problem = "an address with tls:// needs --tls-ca, the authorities of servers";
            io::Error::new(io::ErrorKind::InvalidInput, problem)
        })?;
        let mut session = client.session(host, Application::Plain)?;
        let socket = Socket(tcp(place, read_max)?);
        let end = Instant::now() + CONNECT_MAX;
        loop {
            match session.handshake(&socket) {
                Ok(true) => return Ok(Self { socket, session }),
                Err(error) if !may_retry(&error) => return Err(error),
                _ if Instant::now() >= end => {
                    let problem = format!("no TLS handshake within {CONNECT_MAX:?}");
                    return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
                }
                _ => {}
            }
        }
    }
}

impl Read for TlsStream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.session.read(space, &self.socket)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.write(&[IoSlice::new(bytes)], &self.socket)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.flush(&self.socket)
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.session.close(&self.socket);
    }
}

fn may_retry(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

/// The longest wait for the server to accept the connection, the handshake or the login, and for the next bytes.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The longest file with a login that is read (bytes). memcached reads 8 logins of 256 bytes.
const LOGIN_BYTES_MAX: u64 = 4 << 10;

/// The longest answer to a login (bytes).
const LINE_BYTES_MAX: usize = 1 << 10;

/// The answer of servers that ask for a password to every other command.
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A server whose answers are prepared.
    struct Script {
        answers: VecDeque<u8>,
        sent: Vec<u8>,
    }

    impl Script {
        fn new(answers: &[u8]) -> Self {
            Self { answers: answers.iter().copied().collect(), sent: Vec::new() }
        }
    }

    impl Read for Script {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            self.answers.read(space)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn login() -> Login {
        Login::parse(b"web:a secret:1\r\nother:x\r\n").unwrap()
    }

    #[test]
    fn the_first_line_of_a_file_is_the_login() {
        assert_eq!(login().0, b"web a secret:1");
        for wrong in [&b""[..], b"web", b":secret", b"web:", b"a b:c", b"\nweb:x"] {
            assert!(Login::parse(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_server_without_passwords_gets_none() {
        let mut server = Script::new(b"VERSION 1.6.18\r\n");
        log_in(&mut server, &login()).unwrap();
        assert_eq!(server.sent, b"version\r\n");
    }

    #[test]
    fn a_server_that_asks_gets_the_login() {
        let mut server = Script::new(b"CLIENT_ERROR unauthenticated\r\nSTORED\r\nrest");
        log_in(&mut server, &login()).unwrap();
        assert!(server.sent.ends_with(b"set login 0 0 14\r\nweb a secret:1\r\n"));
        assert_eq!(server.answers, b"rest");
    }

    #[test]
    fn a_refused_login_is_an_error() {
        let refusal = b"CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n";
        let error = log_in(&mut Script::new(refusal), &login()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("authentication failure"), "{error}");
        let closed = log_in(&mut Script::new(b"CLIENT"), &login()).unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    }
}
