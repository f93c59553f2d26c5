//! A cache in a list of several: the addresses that lead to it, and its name in the ring.

use std::fmt;
use std::str::FromStr;

use crate::{Address, Error};

/// One cache of a [`Cluster`](crate::Cluster). Its text is `ADDRESS|ADDRESS|...`, the preferred address first. A
/// `HOST:PORT` may end in `:WEIGHT`, the cache's share of the keys relative to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The addresses, the preferred one first.
    pub addresses: Vec<Address>,
    /// The share of the keys relative to the other servers, 1 to 65,535.
    pub weight: u32,
}

impl Server {
    /// Returns the server as the ring hashes it: by the first address that other clients on other hosts use too.
    pub(crate) fn hashed(&self) -> store::Server {
        let rank = |address: &&Address| match address {
            Address::Tcp(_) => 0,
            Address::Unix(_) => 1,
            Address::Near(_) => 2,
        };
        let (host, port) = match self.addresses.iter().min_by_key(rank) {
            Some(Address::Tcp(text)) => {
                let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
                (host.to_owned(), port.parse().unwrap_or(0))
            }
            // Unix sockets have no port.
            Some(Address::Unix(path) | Address::Near(path)) => {
                (path.to_string_lossy().into_owned(), 0)
            }
            None => (String::new(), 0),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        store::Server { host, port, weight: self.weight }
    }
}

impl FromStr for Server {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut weight = None;
        let mut addresses = Vec::new();
        for part in text.split('|') {
            let (address, given) = split_weight(part);
            addresses.push(address.parse()?);
            let Some(given) = given else { continue };
            let parsed = given.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
            let weighs = parsed.ok_or_else(|| Error::Weight { address: part.to_owned() })?;
            if weight.replace(weighs).is_some() {
                return Err(Error::Weight { address: text.to_owned() });
            }
        }
        Ok(Self { addresses, weight: weight.unwrap_or(1) })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let bar = if index == 0 { "" } else { "|" };
            write!(f, "{bar}{address}")?;
        }
        Ok(())
    }
}

/// Splits `HOST:PORT:WEIGHT` before the weight. IPv6 addresses are in brackets.
fn split_weight(text: &str) -> (&str, Option<&str>) {
    if text.starts_with("near:") || text.starts_with("unix:") {
        return (text, None);
    }
    let rest = text.strip_prefix("tcp:").unwrap_or(text);
    let port_on = rest.rfind(']').map_or(rest, |end| &rest[end..]);
    match text.rsplit_once(':') {
        Some((address, weight)) if port_on.matches(':').count() == 2 => (address, Some(weight)),
        _ => (text, None),
    }
}

/// The largest weight of a server.
const WEIGHT_MAX: u32 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Server {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_server_is_hashed_by_its_tcp_address() {
        let named = |text| {
            let store::Server { host, port, weight } = parsed(text).hashed();
            (host, port, weight)
        };
        assert_eq!(named("near:/run/n|10.0.0.1:11212"), ("10.0.0.1".to_owned(), 11_212, 1));
        assert_eq!(named("near:/run/n|a:1:300"), ("a".to_owned(), 1, 300));
        assert_eq!(named("[::1]:5:2"), ("::1".to_owned(), 5, 2));
        assert_eq!(named("near:/run/n|unix:/run/s"), ("/run/s".to_owned(), 0, 1));
        assert_eq!(named("near:/run/n"), ("/run/n".to_owned(), 0, 1));
    }

    #[test]
    fn wrong_servers_are_named() {
        for text in ["", "a:1|", "a:1:0", "a:1:x", "a:1:65536", "a:1:2|b:1:2", "near:/n|"] {
            text.parse::<Server>().expect_err(text);
        }
        let error = "a:1:70000".parse::<Server>().expect_err("too heavy").to_string();
        assert!(error.contains("a:1:70000") && error.contains("65535"), "{error}");
    }
}
