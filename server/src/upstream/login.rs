//! The login of a new connection to a memcached server. A server that refuses it is asked again with back-off, and at
//! once after the file with the password has changed, so that a wrong password does not flood the server's log.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::{Login, LoginFile};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use units::Nanos;

use super::packets;
use crate::config::LoginScheme;

/// A new connection to a server, of any kind.
pub(crate) trait Conversation: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin + ?Sized> Conversation for S {}

/// How this process logs in to the servers of its store.
#[derive(Clone, Debug)]
pub(crate) struct StoreLogin {
    pub(crate) file: Arc<LoginFile>,
    pub(crate) scheme: LoginScheme,
}

/// The error of a connection whose login the server has refused.
#[derive(Debug, thiserror::Error)]
#[error("it refuses the login of user {user:?}: {answer}")]
pub(super) struct LoginRefused {
    user: String,
    answer: String,
}

impl LoginRefused {
    pub(super) fn new(login: &Login, answer: impl fmt::Display) -> Self {
        Self { user: login.user().to_owned(), answer: answer.to_string() }
    }

    fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self)
    }

    /// Returns whether an error of a connection means that the login was refused.
    pub(super) fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Whether a server has refused the login, and when it is tried again.
#[derive(Default)]
pub(super) struct LoginState(RefCell<Option<Refusal>>);

struct Refusal {
    until: Nanos,
    wait: Duration,
    /// The version of the login that was refused.
    version: u64,
    why: String,
}

impl LoginState {
    /// Returns why the login must not be tried now, if it must not.
    pub(super) fn waits(&self, version: u64, now: Nanos) -> Option<String> {
        let refusal = self.0.borrow();
        let refusal = refusal.as_ref()?;
        (refusal.version == version && now < refusal.until).then(|| refusal.why.clone())
    }

    pub(super) fn refused(&self, version: u64, why: String, now: Nanos) {
        let mut refusal = self.0.borrow_mut();
        let wait = match &*refusal {
            // Attempts that ran at the same time count as one.
            Some(last) if last.version == version && now < last.until => return,
            Some(last) if last.version == version => (last.wait * 2).min(WAIT_MAX),
            _ => WAIT_MIN,
        };
        *refusal = Some(Refusal { until: now + wait.into(), wait, version, why });
    }

    pub(super) fn accepted(&self) {
        *self.0.borrow_mut() = None;
    }
}

/// Logs in on a new connection, unless the server asks for no login.
///
/// # Errors
/// Returns [`LoginRefused`] if the server refuses it, or the error of the connection.
pub(super) async fn log_in(
    stream: &mut (impl Conversation + ?Sized),
    login: &Login,
    scheme: LoginScheme,
) -> io::Result<()> {
    match scheme {
        LoginScheme::Text => log_in_as_text(stream, login).await,
        LoginScheme::Sasl => log_in_with_sasl(stream, login).await,
    }
}

/// Logs in as memcached's `-Y` wants it: with a set whose value is user and password.
async fn log_in_as_text(
    stream: &mut (impl Conversation + ?Sized),
    login: &Login,
) -> io::Result<()> {
    // A server without logins would store the password as an item, so it is first asked something harmless.
    let answer = ask(stream, b"mn\r\n").await?;
    match &answer[..] {
        UNAUTHENTICATED => {}
        TOO_MANY_CLIENTS => return Err(io::Error::other("it has too many clients")),
        _ => return Ok(()),
    }
    let value = format!("{} {}", login.user(), login.password());
    let command = format!("set login 0 0 {}\r\n{value}\r\n", value.len());
    let answer = ask(stream, command.as_bytes()).await?;
    if answer == b"STORED" {
        return Ok(());
    }
    let answer = answer[..answer.len().min(SHOWN_BYTES_MAX)].escape_ascii();
    Err(LoginRefused::new(login, answer).into_io())
}

/// Sends a command whose answer is one line, and returns that line without its end.
async fn ask(stream: &mut (impl Conversation + ?Sized), command: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(command).await?;
    stream.flush().await?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() > LINE_BYTES_MAX || stream.read_buf(&mut line).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no answer to the login"));
        }
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

async fn log_in_with_sasl(
    stream: &mut (impl Conversation + ?Sized),
    login: &Login,
) -> io::Result<()> {
    let message = packets::plain(login.user(), login.password());
    let (answer, text) = exchange(stream, &message, LINE_BYTES_MAX).await?;
    match answer.status {
        0 => Ok(()),
        packets::UNKNOWN_COMMAND => Err(LoginRefused::new(login, "it has no SASL").into_io()),
        _ => {
            let text = text[..text.len().min(SHOWN_BYTES_MAX)].escape_ascii();
            Err(LoginRefused::new(login, text).into_io())
        }
    }
}

/// Sends a packet, and returns the header and the body of its answer.
async fn exchange(
    stream: &mut (impl Conversation + ?Sized),
    packet: &[u8],
    body_bytes_max: usize,
) -> io::Result<(packets::Header, Vec<u8>)> {
    stream.write_all(packet).await?;
    stream.flush().await?;
    let mut header = [0; packets::HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let header = packets::Header::parse(&header)?;
    if header.body_bytes > body_bytes_max {
        let problem = format!("an answer of {} bytes; at most {body_bytes_max}", header.body_bytes);
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut body = vec![0; header.body_bytes];
    stream.read_exact(&mut body).await?;
    Ok((header, body))
}

impl StoreLogin {
    /// Logs in on a new connection to an endpoint that is no store, unless it asks for no login.
    ///
    /// # Errors
    /// Returns why the endpoint refuses the login, or the error of the connection.
    pub(crate) async fn log_in(&self, stream: &mut (impl Conversation + ?Sized)) -> io::Result<()> {
        log_in(stream, &self.file.current(), self.scheme).await
    }
}

/// Asks a server that speaks the binary protocol for the value of a key, with any command that returns one. Returns
/// `None` if the server does not know the command or the key.
///
/// # Errors
/// Returns the server's refusal, or the error of the connection.
pub(crate) async fn value_of_packet(
    stream: &mut (impl Conversation + ?Sized),
    (opcode, key): (u8, &[u8]),
    bytes_max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let packet = packets::keyed(opcode, key);
    let (header, mut body) = exchange(stream, &packet, bytes_max).await?;
    match header.status {
        // Header::parse has compared these lengths with that of the body.
        0 => Ok(Some(body.split_off(header.extras_bytes + header.key_bytes))),
        packets::UNKNOWN_COMMAND | packets::NOT_FOUND => Ok(None),
        status => {
            let text = body[..body.len().min(SHOWN_BYTES_MAX)].escape_ascii();
            Err(io::Error::other(format!("it answers with status {status:#x}: {text}")))
        }
    }
}

/// Returns whether an error line of a server means that the connection has to log in first.
pub(crate) fn is_wanted_by(line: &[u8]) -> bool {
    line == UNAUTHENTICATED || line == b"CLIENT_ERROR authentication failure"
}

/// Returns why a server is not used that asks for a login, depending on whether there is one.
pub(crate) const fn wanted(has_login: bool) -> &'static str {
    match has_login {
        false => "it asks for a user and a password: give store.login_file",
        true => "it asks for a user and a password, although store.login_file is set",
    }
}

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated";
const TOO_MANY_CLIENTS: &[u8] = b"ERROR Too many open connections";

/// The longest line of an answer to a login (bytes).
const LINE_BYTES_MAX: usize = 2_048;

/// The bytes of such a line that the log has.
const SHOWN_BYTES_MAX: usize = 80;

/// The waits between two attempts after a refusal: the first, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_waits_longer_each_time_but_not_after_a_change() {
        let state = LoginState::default();
        let at = Nanos::millis;
        assert_eq!(state.waits(0, at(0)), None);
        state.refused(0, "wrong".to_owned(), at(0));
        assert_eq!(state.waits(0, at(499)).as_deref(), Some("wrong"));
        assert_eq!(state.waits(0, at(500)), None);
        state.refused(0, "wrong".to_owned(), at(500));
        assert!(state.waits(0, at(1_499)).is_some());
        assert_eq!(state.waits(1, at(501)), None, "the file has changed");
        for second in [2, 12, 22, 32, 42, 52] {
            state.refused(0, "wrong".to_owned(), at(second * 1_000));
        }
        assert!(state.waits(0, at(61_999)).is_some());
        assert_eq!(state.waits(0, at(62_000)), None);
        state.accepted();
        assert_eq!(state.waits(0, at(0)), None);
    }

    #[test]
    fn attempts_that_are_refused_at_the_same_time_count_as_one() {
        let state = LoginState::default();
        let at = Nanos::millis;
        for _ in 0..20 {
            state.refused(0, "wrong".to_owned(), at(0));
        }
        assert_eq!(state.waits(0, at(500)), None);
        state.refused(1, "wrong".to_owned(), at(10));
        assert!(state.waits(1, at(509)).is_some(), "a new file is a new attempt");
    }
}
