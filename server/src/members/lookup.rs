//! Finds the servers behind the entries of `store.url`: addresses of a name, SRV records, and the nodes that an
//! ElastiCache configuration endpoint lists. Every lookup has a time limit. A lookup that fails says so; what
//! happens to the list then is for the caller to decide.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Listed, MemberAddress};
use crate::config::{HostPort, RingEntry, RingSource, StoreUrl, split_tls};

/// The servers that a lookup has found, with the weights that the records give.
pub(super) type Found = Vec<(HostPort, Option<u32>)>;

/// The result of a lookup that has found servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) servers: Found,
    /// The reason why some of the servers are those of the last lookup.
    pub(super) failed: Option<String>,
}

/// Returns the list of a store's servers. `found` has the result of the last lookup of a source, if there is one.
/// A source without a result has no servers. The first entry that names a server decides its weight.
pub(super) fn listed(url: &StoreUrl, found: &dyn Fn(&RingSource) -> Option<Found>) -> Vec<Listed> {
    let mut list: Vec<Listed> = Vec::new();
    let mut add = |address: MemberAddress, weight: u32| {
        if list.len() < SERVERS_MAX && list.iter().all(|other| other.address != address) {
            list.push(Listed { address, weight });
        }
    };
    match url {
        StoreUrl::Embedded => {}
        StoreUrl::Grpc(services) => {
            services.iter().for_each(|one| add(MemberAddress::Service(one.clone()), 1));
        }
        StoreUrl::Memcached(entries) => {
            for RingEntry { source, weight } in entries {
                let servers = match source {
                    RingSource::Server(server) => vec![(server.clone(), None)],
                    source => found(source).unwrap_or_default(),
                };
                for (server, found_weight) in servers {
                    let weight = weight.or(found_weight).unwrap_or(1);
                    add(MemberAddress::Memcached(server), weight);
                }
            }
        }
    }
    list
}

/// Looks names up with the system's configuration, or at one DNS server.
pub(super) struct Resolver(TokioResolver);

impl Resolver {
    /// Creates a resolver that asks `server`, or the servers of `/etc/resolv.conf` if it is empty.
    ///
    /// # Errors
    /// The system's configuration cannot be read, or `server` is no address.
    pub(super) fn new(server: &str) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let mut builder = if server.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| text(&error))?
        } else {
            let server: SocketAddr = server.parse().map_err(|error| text(&error))?;
            let at = |mut connection: ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let mut name_server = NameServerConfig::udp_and_tcp(server.ip());
            name_server.connections =
                vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
            let config = ResolverConfig::from_name_servers(vec![name_server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options: &mut ResolverOpts = builder.options_mut();
        // The operator's interval says how old a list may be.
        options.cache_size = 0;
        options.timeout = DNS_TIMEOUT;
        options.attempts = 1;
        builder.build().map(Self).map_err(|error| text(&error))
    }

    /// Returns the servers behind a source, in an order that does not depend on that of the answer. `last` has the
    /// servers of the last lookup.
    ///
    /// # Errors
    /// The lookup failed, found no server, or took longer than [`LOOKUP_LIMIT`].
    pub(super) async fn find(&self, source: &RingSource, last: &Found) -> Result<Answer, String> {
        let find = async {
            let servers = match source {
                RingSource::Server(server) => vec![(server.clone(), None)],
                RingSource::Dns(name) => return self.addresses(name, last).await,
                RingSource::Srv(name) => self.services(name).await?,
                RingSource::ElastiCache(endpoint) => nodes(endpoint).await?,
            };
            Ok(Answer { servers, failed: None })
        };
        let late = |_| format!("no result within {} s", LOOKUP_LIMIT.as_secs());
        let mut found = tokio::time::timeout(LOOKUP_LIMIT, find).await.map_err(late)??;
        let servers = &mut found.servers;
        if servers.is_empty() {
            return Err("no server".to_owned());
        }
        if servers.len() > SERVERS_MAX {
            return Err(format!("{} servers; at most {SERVERS_MAX}", servers.len()));
        }
        servers.sort_by(|(a, _), (b, _)| (&a.host, a.port).cmp(&(&b.host, b.port)));
        servers.dedup_by(|(a, _), (b, _)| a == b);
        Ok(found)
    }

    /// Looks up both families of addresses. If only one lookup fails, the last addresses of its family stay.
    async fn addresses(&self, name: &HostPort, last: &Found) -> Result<Answer, String> {
        let HostPort { host, port, is_tls } = name;
        let server =
            |ip: IpAddr| (HostPort { host: ip.to_string(), port: *port, is_tls: *is_tls }, None);
        if let Ok(ip) = host.parse() {
            return Ok(Answer { servers: vec![server(ip)], failed: None });
        }
        let resolver = &self.0;
        let (a, aaaa) = tokio::join!(resolver.ipv4_lookup(&**host), resolver.ipv6_lookup(&**host));
        let is_a_of_last = |(server, _): &&(HostPort, _)| {
            server.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4())
        };
        let (last_a, last_aaaa): (Vec<_>, Vec<_>) = last.iter().partition(is_a_of_last);
        let families = [
            Family { kind: "A", found: records(a), last: last_a },
            Family { kind: "AAAA", found: records(aaaa), last: last_aaaa },
        ];
        merge(families, &server)
    }

    /// Returns the targets of the SRV records with the lowest priority number. Their weights count only if they
    /// differ: equal ones change with the number of servers where Kubernetes computes them.
    async fn services(&self, name: &str) -> Result<Found, String> {
        let found = self.0.srv_lookup(name).await.map_err(|error| error.to_string())?;
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(record) => Some(record),
            _ => None,
        });
        let records: Vec<_> = records.collect();
        let first = records.iter().map(|record| record.priority).min();
        let records: Vec<_> =
            records.into_iter().filter(|record| Some(record.priority) == first).collect();
        let is_weighted = records.windows(2).any(|pair| pair[0].weight != pair[1].weight);
        let server = |record: &&hickory_resolver::proto::rr::rdata::SRV| {
            let host = record.target.to_utf8();
            let host = host.trim_end_matches('.').to_owned();
            let weight = is_weighted.then_some(u32::from(record.weight).max(1));
            (HostPort { host, port: record.port, is_tls: false }, weight)
        };
        Ok(records.iter().map(server).collect())
    }
}

/// The result of a lookup of one kind of address.
enum Records {
    Found(Vec<IpAddr>),
    /// The name has no addresses of this kind.
    None,
    /// The name does not exist.
    NoName(String),
    Failed(String),
}

fn records(found: Result<Lookup, NetError>) -> Records {
    match found {
        Ok(found) => {
            let addresses = found.answers().iter().filter_map(|record| record.data.ip_addr());
            Records::Found(addresses.collect())
        }
        Err(error) if error.is_nx_domain() => Records::NoName(error.to_string()),
        Err(error) if error.is_no_records_found() => Records::None,
        Err(error) => Records::Failed(error.to_string()),
    }
}

/// One family of addresses of a name, with the servers that the last lookup has found there.
struct Family<'a> {
    kind: &'static str,
    found: Records,
    last: Vec<&'a (HostPort, Option<u32>)>,
}

/// Merges the results of both families. If one has failed and the other has addresses, those of the last lookup stay.
fn merge(
    families: [Family<'_>; 2],
    server: &dyn Fn(IpAddr) -> (HostPort, Option<u32>),
) -> Result<Answer, String> {
    let is_found = |family: &Family<'_>| matches!(&family.found, Records::Found(_));
    let is_any_found = families.iter().any(is_found);
    let mut answer = Answer::default();
    let mut first_failure = None;
    for Family { kind, found, last } in families {
        let why = match found {
            Records::Found(addresses) => {
                answer.servers.extend(addresses.into_iter().map(server));
                continue;
            }
            Records::None => continue,
            // A resolver that has one family of the name and denies the name for the other contradicts itself.
            Records::NoName(why) | Records::Failed(why) => why,
        };
        first_failure.get_or_insert_with(|| why.clone());
        if is_any_found && !last.is_empty() {
            answer.servers.extend(last.into_iter().cloned());
            answer.failed.get_or_insert_with(|| format!("{kind} records: {why}"));
        }
    }
    match first_failure {
        Some(why) if !is_any_found => Err(why),
        _ => Ok(answer),
    }
}

/// Asks an ElastiCache configuration endpoint for the nodes of its cluster.
async fn nodes(endpoint: &HostPort) -> Result<Found, String> {
    let text = |error: std::io::Error| error.to_string();
    let to = endpoint.to_string();
    let mut stream: Box<dyn Conversation> = match split_tls(&to) {
        (false, to) => Box::new(TcpStream::connect(to).await.map_err(text)?),
        (true, to) => {
            let outgoing = tls::outgoing().map_err(text)?;
            Box::new(outgoing.connect(to, tls::Application::Plain).await.map_err(text)?)
        }
    };
    // Engines older than 1.4.14 have the list under a key.
    for question in ["config get cluster\r\n", "get AmazonElastiCache:cluster\r\n"] {
        stream.write_all(question.as_bytes()).await.map_err(text)?;
        let answer = read_answer(&mut *stream).await?;
        if !answer.starts_with("ERROR") {
            return parse_nodes(&answer, endpoint.is_tls);
        }
    }
    Err("the endpoint knows no `config get cluster`".to_owned())
}

/// A connection to an endpoint, with or without TLS.
trait Conversation: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Conversation for S {}

/// Reads up to the line `END` or an error line.
async fn read_answer(stream: &mut dyn Conversation) -> Result<String, String> {
    let mut answer = Vec::new();
    let is_whole = |answer: &[u8]| {
        answer.ends_with(b"\r\nEND\r\n")
            || answer.ends_with(b"\r\n") && (answer.starts_with(b"ERROR") || answer == b"END\r\n")
    };
    while !is_whole(&answer) {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
        match stream.read_buf(&mut answer).await {
            Ok(0) => return Err("the endpoint closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    String::from_utf8(answer).map_err(|_| "an answer that is no text".to_owned())
}

/// Parses `CONFIG cluster 0 BYTES`, the version of the list, and the list of `HOST|ADDRESS|PORT`. Clients of
/// ElastiCache hash the host if there is one.
fn parse_nodes(answer: &str, is_tls: bool) -> Result<Found, String> {
    let line = answer.lines().nth(2).ok_or_else(|| format!("no list in {answer:?}"))?;
    let node = |node: &str| {
        let mut parts = node.split('|');
        let (host, address, port) = (parts.next()?, parts.next()?, parts.next()?);
        let host = if host.is_empty() { address } else { host };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty()).then(|| (HostPort { host: host.to_owned(), port, is_tls }, None))
    };
    let nodes = line.split_ascii_whitespace();
    nodes.map(|text| node(text).ok_or_else(|| format!("{text:?} is no node"))).collect()
}

/// The most servers of a ring. Each worker has two connections to each server.
const SERVERS_MAX: usize = 1_024;

/// The time limit of a lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(3);

/// The time limit of a question to one DNS server. It leaves time to ask another one.
const DNS_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest list of an ElastiCache endpoint. A node takes less than 300 bytes.
const ANSWER_BYTES_MAX: usize = 512 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_elasticache_are_read_with_their_hosts() {
        let list = "12\na.cache.example|10.0.0.1|11211 |10.0.0.2|11212\n";
        let answer = format!("CONFIG cluster 0 {}\r\n{list}\r\nEND\r\n", list.len());
        let found: Vec<String> =
            parse_nodes(&answer, false).unwrap().iter().map(|(one, _)| one.to_string()).collect();
        assert_eq!(found, ["a.cache.example:11211", "10.0.0.2:11212"]);
    }

    #[test]
    fn lists_that_name_no_nodes_are_refused() {
        for answer in [
            "END\r\n",
            "CONFIG cluster 0 5\r\n12\na|b\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\na|b|0\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\n||11211\n\r\nEND\r\n",
            "CONFIG cluster 0 5\r\n12\na|b|65536\n\r\nEND\r\n",
        ] {
            assert!(parse_nodes(answer, false).is_err(), "{answer:?}");
        }
    }

    fn server(ip: IpAddr) -> (HostPort, Option<u32>) {
        (HostPort { host: ip.to_string(), port: 1, is_tls: false }, None)
    }

    fn merged(a: Records, aaaa: Records) -> Result<(Vec<String>, bool), String> {
        let last = ["10.0.0.1", "fd00::1"].map(|ip| server(ip.parse().unwrap()));
        let families = [
            Family { kind: "A", found: a, last: vec![&last[0]] },
            Family { kind: "AAAA", found: aaaa, last: vec![&last[1]] },
        ];
        let answer = merge(families, &server)?;
        let hosts = answer.servers.into_iter().map(|(server, _)| server.host).collect();
        Ok((hosts, answer.failed.is_some()))
    }

    fn found(ip: &str) -> Records {
        Records::Found(vec![ip.parse().unwrap()])
    }

    #[test]
    fn a_family_that_fails_keeps_its_last_addresses() {
        let kept = |hosts: [&str; 2]| Ok((hosts.map(str::to_owned).to_vec(), true));
        let failed = || Records::Failed("refused".to_owned());
        assert_eq!(merged(found("10.0.0.2"), failed()), kept(["10.0.0.2", "fd00::1"]));
        assert_eq!(merged(failed(), found("fd00::2")), kept(["10.0.0.1", "fd00::2"]));
        let denied = Records::NoName("no such name".to_owned());
        assert_eq!(merged(found("10.0.0.2"), denied), kept(["10.0.0.2", "fd00::1"]));
    }

    #[test]
    fn a_family_without_records_loses_its_addresses() {
        let only_a = Ok((vec!["10.0.0.2".to_owned()], false));
        assert_eq!(merged(found("10.0.0.2"), Records::None), only_a);
    }

    #[test]
    fn a_lookup_fails_if_no_family_is_found() {
        let failed = || Records::Failed("refused".to_owned());
        assert_eq!(merged(failed(), failed()), Err("refused".to_owned()));
        assert_eq!(merged(Records::None, failed()), Err("refused".to_owned()));
        assert_eq!(merged(Records::None, Records::None), Ok((Vec::new(), false)));
    }

    #[test]
    fn a_server_that_two_entries_name_is_listed_once() {
        let url: StoreUrl = "memcached://a:1:3,dns+b:1".parse().unwrap();
        let server =
            |host: &str| (HostPort { host: host.to_owned(), port: 1, is_tls: false }, Some(9));
        let list = listed(&url, &|_| Some(vec![server("a"), server("c")]));
        let list: Vec<_> = list.iter().map(|one| (one.address.to_string(), one.weight)).collect();
        assert_eq!(list, [("a:1".to_owned(), 3), ("c:1".to_owned(), 9)]);
    }
}
