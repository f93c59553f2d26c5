//! Gets a profile from a server over HTTP.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use harness::Progress;
use load::Address;

use crate::connect::Connector;
use crate::terminal::CliError;

/// The address of a profile.
#[derive(Debug)]
pub(super) struct Url {
    address: Address,
    /// The whole address without credentials, for messages.
    shown: String,
    host: String,
    path: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Url {
    /// Reads an address that begins with http:// or https://. Returns none for other texts. An address without a path
    /// means Rebate's page.
    pub(super) fn parse(text: &str) -> Option<Result<Self, CliError>> {
        let (rest, scheme, port) =
            match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
                (Some(rest), _) => (rest, "", 80),
                (None, Some(rest)) => (rest, "tls://", 443),
                (None, None) => return None,
            };
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(path_at);
        let path = match path {
            "" | "/" => PAGE.to_owned(),
            query if query.starts_with('?') => format!("{PAGE}{query}"),
            path => path.to_owned(),
        };
        let after_ip6 = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let has_port = after_ip6.contains(':');
        let place =
            if has_port { format!("{scheme}{host}") } else { format!("{scheme}{host}:{port}") };
        let wrong = |why: &dyn fmt::Display| CliError::Usage(format!("--profile {text}: {why}"));
        if host.is_empty()
            || host.contains('@')
            || path.contains(|byte: char| byte.is_ascii_control() || byte == ' ')
        {
            return Some(Err(wrong(&"write http://HOST:PORT or http://HOST:PORT/PATH")));
        }
        let address = place.parse().map_err(|error| wrong(&error));
        Some(address.map(|address| Self {
            address,
            shown: text.to_owned(),
            host: host.to_owned(),
            path,
        }))
    }

    /// Gets the bytes. A server begins its profile when it is asked, so the answer takes as long as the profile.
    pub(super) fn fetch(&self) -> Result<Vec<u8>, CliError> {
        let answer = self.answer().map_err(|error| CliError::Failed(format!("{self}: {error}")))?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let head = String::from_utf8_lossy(&answer[..end.unwrap_or(0)]).into_owned();
        let status = head
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .unwrap_or_default();
        let body = end.map_or(&[][..], |end| &answer[end + 4..]);
        if status == "200" {
            return Ok(body.to_vec());
        }
        let why = String::from_utf8_lossy(&body[..body.len().min(WHY_BYTES_MAX)]).into_owned();
        let why = match (status, why.trim()) {
            ("", _) => "no answer of HTTP".to_owned(),
            (status, why) => format!("status {status}: {why}"),
        };
        Err(CliError::Failed(format!("{self}: {why}")))
    }

    fn answer(&self) -> io::Result<Vec<u8>> {
        let mut stream = Connector::default().connect(&self.address, READ_STEP)?;
        // With HTTP/1.0 the body has no chunks and ends with the connection.
        let request = format!("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", self.path, self.host);
        stream.write_all(request.as_bytes())?;
        stream.flush()?;
        let progress = Progress::delayed(WAIT_MAX.as_secs());
        progress.set_part("profile");
        progress.set_message("the server takes its profile");
        let begin = Instant::now();
        let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(answer),
                Ok(count) => answer.extend_from_slice(&piece[..count]),
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() =>
                {
                    return Ok(answer);
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
            progress.set_position(begin.elapsed().as_secs());
            progress.advance(0);
            if answer.len() > ANSWER_MAX {
                return Err(io::Error::other("the answer is longer than a profile may be"));
            }
            if begin.elapsed() > WAIT_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no whole answer within 2 min",
                ));
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

/// The page of Rebate's servers.
const PAGE: &str = "/debug/pprof/profile";

/// The longest wait for a whole answer. Rebate's longest profile takes a minute.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The longest wait between two looks at the time.
const READ_STEP: Duration = Duration::from_millis(500);

/// The longest answer (bytes): the largest profile that is read, and its head.
const ANSWER_MAX: usize = (128 << 20) + (64 << 10);

/// The most bytes of a refusal that are shown.
const WHY_BYTES_MAX: usize = 500;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Url {
        Url::parse(text).unwrap().unwrap()
    }

    #[test]
    fn an_address_without_a_path_means_rebate_s_page() {
        for text in ["http://127.0.0.1:9150", "http://127.0.0.1:9150/"] {
            assert_eq!(parsed(text).path, "/debug/pprof/profile");
        }
        assert_eq!(
            parsed("http://127.0.0.1:9150?seconds=3").path,
            "/debug/pprof/profile?seconds=3"
        );
        assert_eq!(parsed("http://127.0.0.1:9150/x?seconds=3").path, "/x?seconds=3");
    }

    #[test]
    fn schemes_have_their_ports() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(parsed("http://127.0.0.1").address, address("127.0.0.1:80"));
        assert_eq!(parsed("http://[::1]/x").address, address("[::1]:80"));
        assert_eq!(parsed("http://[::1]:9/x").address, address("[::1]:9"));
        assert_eq!(parsed("https://127.0.0.1").address, address("tls://127.0.0.1:443"));
    }

    #[test]
    fn files_are_no_addresses() {
        assert!(Url::parse("profile.pprof").is_none());
        assert!(Url::parse("-").is_none());
    }

    #[test]
    fn addresses_without_a_host_are_refused() {
        for text in ["http://", "http:///x", "http://a@127.0.0.1", "http://127.0.0.1/a b"] {
            assert!(Url::parse(text).unwrap().is_err(), "{text}");
        }
    }
}
