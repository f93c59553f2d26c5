//! Addresses as operators write them: `HOST:PORT`, IPv6 in brackets, and the store's URL. This module knows only the
//! syntax; the code that connects or listens resolves names.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of a memcached server that is named without a port.
const MEMCACHED_PORT: u16 = 11211;

/// A host name or address, and a port. Its display is the form that the standard library resolves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnAddress(String);

impl HostPort {
    /// Reads `HOST:PORT` or, where there is a default port, `HOST`.
    pub fn parse(text: &str, port_default: Option<u16>) -> Result<Self, NotAnAddress> {
        let fail = |why: &str| NotAnAddress(format!("{text:?} {why}"));
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(|| fail("lacks a ]"))?;
                host.parse::<Ipv6Addr>().map_err(|_| fail("has no IPv6 address in brackets"))?;
                let port = match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or_else(|| fail("is no [HOST]:PORT"))?),
                };
                (host, port)
            }
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(fail("is IPv6 without brackets"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || !host.bytes().all(name_byte) {
            return Err(fail("has no valid host"));
        }
        let port = match (port, port_default) {
            (Some(port), _) => port.parse().map_err(|_| fail("has no port from 0 to 65535"))?,
            (None, Some(port)) => port,
            (None, None) => return Err(fail("has no port")),
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The address of a compression service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompressionAddress {
    /// The service is on any host, over gRPC.
    Grpc(api::Address),
    /// The service is on this host, over shared memory that is set up at this Unix socket.
    Lane(PathBuf),
}

impl FromStr for CompressionAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if let Some(path) = text.strip_prefix("lane:") {
            let is_one = path.len() <= SOCKET_PATH_BYTES_MAX && !path.contains('\0');
            let path = PathBuf::from(path);
            let valid = is_one && path.is_absolute() && path.file_name().is_some();
            let problem = || {
                let most = SOCKET_PATH_BYTES_MAX;
                let give = format!("give lane:/PATH, the path of at most {most} bytes");
                NotAnAddress(format!("{text:?} names no socket: {give}"))
            };
            return if valid { Ok(Self::Lane(path)) } else { Err(problem()) };
        }
        let problem = |error: api::BadAddress| NotAnAddress(format!("{error}, or lane:/PATH"));
        text.parse().map(Self::Grpc).map_err(problem)
    }
}

/// The longest path that the system accepts for a Unix socket (bytes).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The store that `store.url` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// The store inside this process.
    Embedded,
    /// A ring of memcached servers, in the order given, at least one.
    Memcached(Vec<HostPort>),
    /// A ring of store services, in the order given, at least one.
    Grpc(Vec<api::Address>),
}

impl FromStr for StoreUrl {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        if text == "embedded" {
            return Ok(StoreUrl::Embedded);
        }
        if let Some(services) = text.strip_prefix("grpc://") {
            let services = services.split(',').map(str::parse::<api::Address>);
            let services: Result<Vec<_>, _> = services.collect();
            let services = services.map_err(|error| NotAnAddress(error.to_string()))?;
            let twice = (1..services.len()).find(|at| services[..*at].contains(&services[*at]));
            return match twice {
                Some(at) => Err(NotAnAddress(format!("{} is named twice", services[at]))),
                None => Ok(StoreUrl::Grpc(services)),
            };
        }
        let servers = text
            .strip_prefix("memcached://")
            .ok_or_else(|| NotAnAddress(format!("{text:?} is no store")))?;
        let mut list: Vec<HostPort> = Vec::new();
        for server in servers.split(',') {
            let server = HostPort::parse(server, Some(MEMCACHED_PORT))?;
            if server.port == 0 {
                return Err(NotAnAddress(format!("port 0 of {:?} is no server's", server.host)));
            }
            if list.contains(&server) {
                return Err(NotAnAddress(format!("{server} is named twice")));
            }
            list.push(server);
        }
        Ok(StoreUrl::Memcached(list))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_text() {
        for text in ["127.0.0.1:11211", "[::1]:0", "cache-1.example:65535"] {
            assert_eq!(HostPort::parse(text, None).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "", ":1", "a", "a:", "a:x", "a:65536", "a:-1", "::1", "[::1", "[::1]", "[x]:1", "a b:1",
        ] {
            assert!(HostPort::parse(text, None).is_err(), "{text:?}");
        }
    }

    #[test]
    fn store_urls_name_servers_with_memcacheds_port_by_default() {
        let StoreUrl::Memcached(servers) = "memcached://a,b:1,[::1],[::1]:2".parse().unwrap()
        else {
            panic!("a ring");
        };
        let shown: Vec<_> = servers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a:11211", "b:1", "[::1]:11211", "[::1]:2"]);
        assert_eq!("embedded".parse(), Ok(StoreUrl::Embedded));
    }

    #[test]
    fn a_compression_service_has_a_grpc_or_lane_address() {
        let lane = CompressionAddress::Lane("/run/rebate/lane".into());
        assert_eq!("lane:/run/rebate/lane".parse(), Ok(lane));
        for text in ["host:1", "/run/grpc", "grpc://host:1"] {
            let address = CompressionAddress::Grpc(text.parse().unwrap());
            assert_eq!(text.parse(), Ok(address));
        }
        let longest = format!("lane:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert!(matches!(longest.parse(), Ok(CompressionAddress::Lane(_))));
        let longer = longest + "x";
        let others = ["", "lane:", "lane:relative", "lane:/", "lane:host:1", "host", "lane:/a\0b"];
        for text in others.into_iter().chain([&longer[..]]) {
            let problem = text.parse::<CompressionAddress>().unwrap_err();
            assert!(problem.to_string().contains("lane:/PATH"), "{problem}");
        }
    }

    #[test]
    fn store_urls_refuse_what_names_no_servers() {
        for text in [
            "",
            "memcached://",
            "memcached://a,,b",
            "memcached://a,a",
            "http://a",
            "a:0",
            "grpc://",
            "grpc://a",
            "grpc://a:1,a:1",
        ] {
            assert!(text.parse::<StoreUrl>().is_err(), "{text:?}");
        }
    }
}
