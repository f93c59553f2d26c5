//! The address at which a gRPC service listens: TCP, TLS over TCP, or a Unix socket. The module does not resolve names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a gRPC service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP address as `HOST:PORT`.
    Tcp(String),
    /// The same with TLS.
    Tls(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The error for a text that is not the address of a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address: give HOST:PORT, tls://HOST:PORT, or a Unix socket as /PATH or unix:PATH"
)]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let bare = text.strip_prefix("grpc://").unwrap_or(text);
        if let Some(path) = bare.strip_prefix("unix:").or(bare.starts_with('/').then_some(bare)) {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        let (is_tls, bare) = match bare.strip_prefix("tls://") {
            Some(rest) => (true, rest),
            None => (false, bare),
        };
        let (host, port) = bare.rsplit_once(':').ok_or_else(bad)?;
        let plain = |c: char| !c.is_whitespace() && !matches!(c, '/' | '@' | '?' | '#' | ',');
        let valid = !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok();
        match (valid, is_tls) {
            (false, _) => Err(bad()),
            (true, false) => Ok(Self::Tcp(bare.to_owned())),
            (true, true) => Ok(Self::Tls(bare.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Tls(address) => write!(f, "tls://{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for (text, shown) in [
            ("127.0.0.1:50051", "127.0.0.1:50051"),
            ("grpc://store:50051", "store:50051"),
            ("[::1]:1", "[::1]:1"),
            ("tls://[::1]:1", "tls://[::1]:1"),
            ("grpc://tls://store:1", "tls://store:1"),
            ("/run/rebate.sock", "unix:/run/rebate.sock"),
            ("unix:/run/rebate.sock", "unix:/run/rebate.sock"),
            ("grpc:///run/rebate.sock", "unix:/run/rebate.sock"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(shown.parse::<Address>(), Ok(address));
        }
        for text in [
            "",
            "host",
            ":1",
            "host:",
            "host:70000",
            "a b:1",
            "grpc://",
            "unix:",
            "h/x:1",
            "tls://h",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }
}
