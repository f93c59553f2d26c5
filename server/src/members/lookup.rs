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

use super::{Listed, MemberAddress, elasticache};
use crate::config::{HostPort, RingEntry, RingSource, StoreUrl};
use crate::upstream::StoreLogin;

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
pub(super) struct Resolver {
    dns: TokioResolver,
    /// The login at configuration endpoints, which is that of the servers they list.
    login: Option<StoreLogin>,
}

impl Resolver {
    /// Creates a resolver that asks `server`, or the servers of `/etc/resolv.conf` if it is empty.
    ///
    /// # Errors
    /// The system's configuration cannot be read, or `server` is no address.
    pub(super) fn new(server: &str, login: Option<StoreLogin>) -> Result<Self, String> {
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
        let dns = builder.build().map_err(|error| text(&error))?;
        Ok(Self { dns, login })
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
                RingSource::ElastiCache(endpoint) => {
                    elasticache::nodes(endpoint, self.login.as_ref()).await?
                }
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
        let resolver = &self.dns;
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
        let found = self.dns.srv_lookup(name).await.map_err(|error| error.to_string())?;
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

/// The most servers of a ring. Each worker has two connections to each server.
const SERVERS_MAX: usize = 1_024;

/// The time limit of a lookup.
const LOOKUP_LIMIT: Duration = Duration::from_secs(3);

/// The time limit of a question to one DNS server. It leaves time to ask another one.
const DNS_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
