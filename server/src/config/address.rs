//! Parses addresses that operators write: `HOST:PORT`, with IPv6 in brackets, and the store's URL with the
//! entries of a ring. This module does not resolve names.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

/// The default port of a memcached server.
const MEMCACHED_PORT: u16 = 11211;

/// The beginning of an address whose connections use TLS.
pub const TLS_PREFIX: &str = "tls://";

/// Returns whether connections at the address use TLS, and the address without [`TLS_PREFIX`].
pub fn split_tls(text: &str) -> (bool, &str) {
    text.strip_prefix(TLS_PREFIX).map_or((false, text), |rest| (true, rest))
}

/// A host name or address, and a port. `Display` writes the form that [`HostPort::parse`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// True if connections use TLS.
    pub is_tls: bool,
}

/// The reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAnAddress(String);

impl HostPort {
    /// Parses `HOST:PORT` or, if there is a default port, `HOST`. Both may follow [`TLS_PREFIX`].
    pub fn parse(text: &str, port_default: Option<u16>) -> Result<Self, NotAnAddress> {
        let (is_tls, text) = split_tls(text);
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
        Ok(Self { host: host.to_owned(), port, is_tls })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_tls {
            f.write_str(TLS_PREFIX)?;
        }
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
    /// A service on any host, reached over gRPC.
    Grpc(api::Address),
    /// A service on this host, reached over shared memory that is set up over this Unix socket.
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

/// One entry in the list of a ring of memcached servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingEntry {
    /// The server or servers.
    pub source: RingSource,
    /// The share of the keys relative to the other servers, from 1 to 65,535. Without it a server weighs 1, or
    /// what its SRV record says.
    pub weight: Option<u32>,
}

/// The servers that an entry of a ring stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RingSource {
    /// One server.
    Server(HostPort),
    /// A server at each address of a name (A and AAAA records), all at the same port.
    Dns(HostPort),
    /// A server for each SRV record of a name.
    Srv(String),
    /// The nodes that an ElastiCache configuration endpoint lists.
    ElastiCache(HostPort),
}

impl RingEntry {
    fn parse(text: &str) -> Result<Self, NotAnAddress> {
        if let Some(name) = text.strip_prefix(SRV) {
            let (name, weight) = match name.split_once(':') {
                Some((name, weight)) => (name, Some(parse_weight(text, weight)?)),
                None => (name, None),
            };
            let name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if name.is_empty() || !name.bytes().all(name_byte) {
                return Err(NotAnAddress(format!("{text:?} has no valid name")));
            }
            return Ok(Self { source: RingSource::Srv(name.to_owned()), weight });
        }
        let found = [DNS, ELASTICACHE].iter().find_map(|prefix| text.strip_prefix(prefix));
        let (server, weight) = split_weight(found.unwrap_or(text));
        let weight = weight.map(|weight| parse_weight(text, weight)).transpose()?;
        let server = HostPort::parse(server, Some(MEMCACHED_PORT))?;
        if server.port == 0 {
            return Err(NotAnAddress(format!("port 0 of {:?} is no server's", server.host)));
        }
        let source = match found {
            None => RingSource::Server(server),
            Some(_) if text.starts_with(DNS) => RingSource::Dns(server),
            Some(_) => RingSource::ElastiCache(server),
        };
        Ok(Self { source, weight })
    }
}

/// Splits `HOST:PORT:WEIGHT` before the weight. IPv6 addresses are in brackets.
fn split_weight(text: &str) -> (&str, Option<&str>) {
    let server = split_tls(text).1;
    let host_end = server.rfind(']').map_or(0, |at| at + 1);
    let is_weighted = match host_end {
        0 => server.matches(':').count() == 2 && !server.starts_with(':') && !server.contains("::"),
        _ => server[host_end..].matches(':').count() == 2,
    };
    match text.rsplit_once(':') {
        Some((server, weight)) if is_weighted => (server, Some(weight)),
        _ => (text, None),
    }
}

fn parse_weight(entry: &str, weight: &str) -> Result<u32, NotAnAddress> {
    let parsed = weight.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    parsed.ok_or_else(|| {
        NotAnAddress(format!("{entry:?} has the weight {weight:?}; give 1 to {WEIGHT_MAX}"))
    })
}

impl RingSource {
    /// Returns the address in the entry. SRV records have the addresses of their entry.
    pub fn host_port(&self) -> Option<&HostPort> {
        match self {
            RingSource::Server(address)
            | RingSource::Dns(address)
            | RingSource::ElastiCache(address) => Some(address),
            RingSource::Srv(_) => None,
        }
    }
}

impl fmt::Display for RingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingSource::Server(server) => write!(f, "{server}"),
            RingSource::Dns(server) => write!(f, "{DNS}{server}"),
            RingSource::Srv(name) => write!(f, "{SRV}{name}"),
            RingSource::ElastiCache(server) => write!(f, "{ELASTICACHE}{server}"),
        }
    }
}

const DNS: &str = "dns+";
const SRV: &str = "dnssrv+";
const ELASTICACHE: &str = "elasticache+";

/// The largest weight of a server: that of an SRV record.
const WEIGHT_MAX: u32 = 65_535;

/// The store that `store.url` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// The store inside this process.
    Embedded,
    /// A ring of memcached servers: at least one entry, in the order given.
    Memcached(Vec<RingEntry>),
    /// A ring of at least one store service, in the order given.
    Grpc(Vec<api::Address>),
}

impl StoreUrl {
    /// Returns the number of servers to reserve memory and file descriptors for. It is a guess for entries that
    /// stand for several servers.
    pub fn servers_expected(&self) -> usize {
        match self {
            StoreUrl::Embedded => 0,
            StoreUrl::Grpc(services) => services.len(),
            StoreUrl::Memcached(entries) => {
                let expected = |entry: &RingEntry| match entry.source {
                    RingSource::Server(_) => 1,
                    _ => SERVERS_EXPECTED,
                };
                entries.iter().map(expected).sum()
            }
        }
    }

    /// Returns whether a reload may replace this store by `other`, because only the list of servers differs.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        *self == *other || std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The number of servers behind a name that memory and file descriptors are reserved for.
const SERVERS_EXPECTED: usize = 16;

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
        let mut list: Vec<RingEntry> = Vec::new();
        for entry in servers.split(',') {
            let entry = RingEntry::parse(entry)?;
            if list.iter().any(|other| other.source == entry.source) {
                return Err(NotAnAddress(format!("{} is named twice", entry.source)));
            }
            list.push(entry);
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
        for text in ["127.0.0.1:11211", "[::1]:0", "cache-1.example:65535", "tls://[::1]:7"] {
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
        let shown: Vec<_> = servers.iter().map(|entry| entry.source.to_string()).collect();
        assert_eq!(shown, ["a:11211", "b:1", "[::1]:11211", "[::1]:2"]);
        assert_eq!("embedded".parse(), Ok(StoreUrl::Embedded));
    }

    #[test]
    fn entries_of_a_ring_have_sources_and_weights() {
        for (text, source, weight) in [
            ("a:1:3", "a:1", Some(3)),
            ("[::1]:2:65535", "[::1]:2", Some(65_535)),
            ("[::1]:2", "[::1]:2", None),
            ("dns+cache.example:1", "dns+cache.example:1", None),
            ("dns+cache.example", "dns+cache.example:11211", None),
            (
                "dnssrv+_memcache._tcp.cache.example:7",
                "dnssrv+_memcache._tcp.cache.example",
                Some(7),
            ),
            ("elasticache+cfg.example:11211", "elasticache+cfg.example:11211", None),
        ] {
            let entry = RingEntry::parse(text).unwrap();
            assert_eq!((entry.source.to_string().as_str(), entry.weight), (source, weight));
        }
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
            "memcached://a:1:2,a:1:3",
            "memcached://a:1:0",
            "memcached://a:1:65536",
            "memcached://::1",
            "memcached://dnssrv+",
            "memcached://dnssrv+a b",
            "memcached://dns+:1",
            "memcached://redis+a",
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
