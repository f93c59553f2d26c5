//! Addresses of caches.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;

/// A way to a cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `near:PATH`, the socket of `rebate serve --near-listen PATH` on this host.
    Near(PathBuf),
    /// `unix:PATH`, a Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, with or without `tcp:` in front of it.
    Tcp(String),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |why| Error::Address { address: text.to_owned(), why };
        let path = |path: &str| match path {
            "" => Err(refused("the path is missing")),
            path => Ok(PathBuf::from(path)),
        };
        if let Some(rest) = text.strip_prefix("near:") {
            return path(rest).map(Address::Near);
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            return path(rest).map(Address::Unix);
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port.map(|(_, port)| port.parse::<u16>()) {
            Some(Ok(1..)) => Ok(Address::Tcp(address.to_owned())),
            _ => Err(refused("it is none of near:PATH, unix:PATH and HOST:PORT (port 1 to 65535)")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Near(path) => write!(f, "near:{}", path.display()),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["near:/run/near", "unix:/run/s", "localhost:11211", "[::1]:1"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("tcp:a:1".parse::<Address>().expect("an address").to_string(), "a:1");
        for text in ["", "near:", "unix:", "localhost", "localhost:0", "a:70000", ":1"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
