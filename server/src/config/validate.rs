//! Validates a configuration: the range of every key and the relations between keys.

use std::net::SocketAddr;

use super::error::{ConfigError, Origin};
use super::keys::keys;
use super::{
    ClientAuthWord, Config, HostPort, LoginScheme, Services, StoreUrl, ValuePath, lookup,
    split_tls, to_table,
};
use units::ByteCount;

use crate::memory::MemoryParts;

/// Returns all errors in `config`. Their origin is always [`Origin::Default`].
pub fn validate(config: &Config) -> Vec<ConfigError> {
    let table = match to_table(config) {
        Ok(table) => table,
        Err(error) => return vec![error],
    };
    let out_of_range = keys().filter_map(|key| {
        let problem = key.check(lookup(&table, key)?).err()?;
        Some(ConfigError::new(Some(key.name), Origin::Default, &problem))
    });
    let mut errors: Vec<_> = out_of_range.collect();
    let mut refuse = |key, problem: String| {
        errors.push(ConfigError::new(Some(key), Origin::Default, &problem));
    };
    check_listeners(config, &mut refuse);
    check_exposure(config, &mut refuse);
    check_sizes(config, &mut refuse);
    check_memory(config, &mut refuse);
    check_tls(config, &mut refuse);
    check_logins(config, &mut refuse);
    check_path(config, &mut refuse);
    errors
}

/// A function that records an error: the key and a description of what is wrong with its value.
type Refuse<'a> = &'a mut dyn FnMut(&'static str, String);

/// Checks that clients can connect to every service of the process.
fn check_listeners(config: &Config, refuse: Refuse<'_>) {
    let (server, programs) = (&config.server, &config.programs);
    let services = Services::from_roles(&server.roles);
    if server.roles.is_empty() {
        refuse("server.roles", "is empty: this process would serve nothing".into());
    }
    if server.lane_listen.is_some() && !services.compression {
        refuse(
            "server.lane_listen",
            "is set and server.roles has no compression: there is nothing to serve there".into(),
        );
    }
    if server.near_listen.is_some() && !services.frontend {
        refuse(
            "server.near_listen",
            "is set and server.roles has no frontend: there is nothing to serve there".into(),
        );
    }
    if !server.thrift_listen.is_empty() && !services.frontend {
        refuse(
            "server.thrift_listen",
            "is set and server.roles has no frontend: there is nothing to serve there".into(),
        );
    }
    let has_programs = !programs.listen.is_empty();
    if has_programs && !services.programs {
        refuse(
            "programs.listen",
            "is set and server.roles has no programs: there is nothing to serve there".into(),
        );
    }
    if let Some(plain) = programs.listen.iter().find(|address| !split_tls(address).0) {
        refuse(
            "programs.listen",
            format!(
                "{plain} has no TLS, from which the keys of callers come; write tls://{plain} and \
                 set tls.cert_file"
            ),
        );
    }
    let is_reachable =
        !server.grpc_listen.is_empty() || server.lane_listen.is_some() || has_programs;
    if !services.frontend && !is_reachable && !server.roles.is_empty() {
        refuse(
            "server.grpc_listen",
            "is empty, as is programs.listen, and server.roles has no frontend: no client could \
             connect"
                .into(),
        );
    }
    let is_on_host = server.unix_socket.is_some() || server.near_listen.is_some();
    let has_address = !server.listen.is_empty() || !server.thrift_listen.is_empty();
    if services.frontend && !has_address && !is_on_host {
        refuse(
            "server.listen",
            "is empty and there is no server.unix_socket, no server.near_listen and no \
             server.thrift_listen: no client could connect"
                .into(),
        );
    }
}

/// Checks that other hosts can reach only a server that knows its clients, unless the operator wants it otherwise.
fn check_exposure(config: &Config, refuse: Refuse<'_>) {
    let server = &config.server;
    if server.access_file.is_some() && server.token_file.is_some() {
        refuse(
            "server.token_file",
            "is set, and so is server.access_file: give only one, and put the users into \
             server.access_file"
                .into(),
        );
    }
    if server.insecure {
        return;
    }
    let has_rules = server.access_file.is_some() || server.token_file.is_some();
    // Permission bits may open a Unix socket to other users of this host.
    let is_private = server.unix_socket_mode & 0o022 == 0;
    let is_guarded =
        |address: &str| is_private && matches!(address.parse(), Ok(api::Address::Unix(_)));
    let grpc = server.grpc_listen.iter().find(|address| !is_guarded(address));
    if let (true, false, Some(address)) = (server.ciphers, has_rules, grpc) {
        refuse(
            "server.ciphers",
            format!(
                "is true, and whoever can connect to {address} could read sealed values: set \
                 server.access_file to say who may, listen on a lane or on a Unix socket with \
                 server.unix_socket_mode = \"700\", or accept it with --insecure \
                 (server.insecure = true)"
            ),
        );
    }
    if let Some((key, address)) = exposed(config) {
        refuse(
            key,
            format!(
                "other hosts can reach {address}, and everybody there could read, change and \
                 remove every item: set server.access_file (or server.token_file) to say who may \
                 do what, listen on 127.0.0.1, or accept it with --insecure (server.insecure = \
                 true)"
            ),
        );
    }
}

/// Returns the first address that other hosts can reach although every client may do everything, with its key. The
/// admin pages are left out, because they change nothing and show no items. So is the listener for programs, which
/// serves only callers of this host unless there are rules.
pub fn exposed(config: &Config) -> Option<(&'static str, &str)> {
    let server = &config.server;
    if server.access_file.is_some() || server.token_file.is_some() {
        return None;
    }
    // A listener that requires certificates knows its clients.
    let is_known =
        |address: &str| config.tls.client_auth == ClientAuthWord::Require && split_tls(address).0;
    let is_frontend = Services::from_roles(&server.roles).frontend;
    let listen = server.listen.iter().map(|address| ("server.listen", address));
    let thrift = server.thrift_listen.iter().map(|address| ("server.thrift_listen", address));
    let listen = listen.chain(thrift).filter(|_| is_frontend);
    let grpc = server.grpc_listen.iter().map(|address| ("server.grpc_listen", address));
    let mut exposed =
        listen.chain(grpc).filter(|(_, address)| !is_known(address) && !is_of_this_host(address));
    exposed.next().map(|(key, address)| (key, address.as_str()))
}

/// Returns whether only this host can reach an address. Names are not resolved: only `localhost` is known.
pub(crate) fn is_of_this_host(address: &str) -> bool {
    if let Ok(api::Address::Unix(_)) = address.parse() {
        return true;
    }
    let Ok(HostPort { host, .. }) = HostPort::parse(address, None) else { return false };
    let is_loopback = |address: std::net::IpAddr| address.to_canonical().is_loopback();
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

/// Checks that there are certificates for the addresses with TLS.
fn check_tls(config: &Config, refuse: Refuse<'_>) {
    let tls = &config.tls;
    let listener = config.tls_listeners().next();
    match (listener, &tls.cert_file) {
        (Some(address), None) => {
            refuse("tls.cert_file", format!("is unset, and {address} needs a certificate"));
        }
        _ if tls.client_auth != ClientAuthWord::None && tls.ca_file.is_none() => {
            let problem = "is unset, and tls.client_auth needs the authorities of clients";
            refuse("tls.ca_file", problem.into());
        }
        _ => {}
    }
    if let (Some(address), None) = (config.tls_upstreams().next(), &tls.upstream_ca_file) {
        let problem = format!("is unset, and the certificate of {address} could not be verified");
        refuse("tls.upstream_ca_file", problem);
    }
}

/// Checks that each login is for somebody.
fn check_logins(config: &Config, refuse: Refuse<'_>) {
    let is_embedded = config.store.url.parse() == Ok(StoreUrl::Embedded);
    if config.store.login_file.is_some() && is_embedded {
        refuse(
            "store.login_file",
            "is set and store.url is embedded: there is nobody to log in to".into(),
        );
    }
    let is_memcached = matches!(config.store.url.parse(), Ok(StoreUrl::Memcached(_)));
    if config.store.login == LoginScheme::Sasl
        && !(is_memcached && config.store.login_file.is_some())
    {
        refuse(
            "store.login",
            "is sasl, which needs store.login_file, and store.url with memcached servers".into(),
        );
    }
}

/// Checks that the path of values can be compiled, and that there are keys if it needs any.
fn check_path(config: &Config, refuse: Refuse<'_>) {
    match ValuePath::compile(&config.values.path) {
        Err(problem) => refuse("values.path", problem),
        Ok(path) if path.seals && config.values.keys.is_none() => refuse(
            "values.path",
            "has encrypt, and values.keys is unset: set it to the file with the keys".into(),
        ),
        Ok(_) => {}
    }
    if config.server.ciphers && config.values.keys.is_none() {
        let problem = "is true, and values.keys is unset: set it to the file with the keys";
        refuse("server.ciphers", problem.into());
    }
    let services = Services::from_roles(&config.server.roles);
    if config.server.ciphers && !services.compression {
        let problem = "is true and server.roles has no compression: there is nothing to serve";
        refuse("server.ciphers", problem.into());
    }
    let server = &config.server;
    if server.ciphers && server.grpc_listen.is_empty() && server.lane_listen.is_none() {
        let problem = "is true, and server.grpc_listen and server.lane_listen are unset: no \
                       frontend could reach the service";
        refuse("server.ciphers", problem.into());
    }
    let runtime = &config.runtime;
    if runtime.compression_ciphers && runtime.compression.is_empty() {
        let problem = "is true, and runtime.compression is empty: no service could do it";
        refuse("runtime.compression_ciphers", problem.into());
    }
    if runtime.compression_ciphers && config.values.keys.is_none() {
        let problem = "is true, and values.keys is unset: there are no keys to do it with";
        refuse("runtime.compression_ciphers", problem.into());
    }
}

/// Checks that each bounded size fits into the size that bounds it.
fn check_sizes(config: &Config, refuse: Refuse<'_>) {
    let store = &config.store;
    let memory_min = store.item_bytes_max.0.saturating_mul(ITEMS_IN_MEMORY_MIN);
    if store.url.parse() == Ok(StoreUrl::Embedded) && store.memory.0 < memory_min {
        let item = store.item_bytes_max;
        let needed = ByteCount(memory_min);
        refuse(
            "store.memory",
            format!(
                "{} is too little for store.item_bytes_max = {item}; give at least {needed} or \
                 lower store.item_bytes_max",
                store.memory
            ),
        );
    }
    if store.file.is_some() && store.url.parse() != Ok(StoreUrl::Embedded) {
        refuse(
            "store.file",
            format!("is set and store.url is {}: only an embedded store can be saved", store.url),
        );
    }
    let hot_share = config.values.hot_share;
    if hot_share > HOT_SHARE_MAX {
        refuse(
            "values.hot_share",
            format!(
                "{hot_share} is above {HOT_SHARE_MAX}; give a number from 0 to {HOT_SHARE_MAX}"
            ),
        );
    }
    if !store.resolver.is_empty() && store.resolver.parse::<SocketAddr>().is_err() {
        refuse(
            "store.resolver",
            format!("{:?} is no IP address with a port, such as 10.0.0.2:53", store.resolver),
        );
    }
    if store.retry_min_ms > store.retry_max_ms {
        refuse(
            "store.retry_min_ms",
            format!("{} is above store.retry_max_ms = {}", store.retry_min_ms, store.retry_max_ms),
        );
    }
    let payload_bytes_max = config.programs.payload_bytes_max;
    let has_programs = !config.programs.listen.is_empty();
    if has_programs && config.runtime.inflight_bytes_max < payload_bytes_max {
        refuse(
            "programs.payload_bytes_max",
            format!(
                "{payload_bytes_max} is above runtime.inflight_bytes_max = {}: the largest request \
                 could never be read",
                config.runtime.inflight_bytes_max
            ),
        );
    }
    if config.runtime.inflight_bytes_max < store.item_bytes_max {
        refuse(
            "runtime.inflight_bytes_max",
            format!(
                "{} is below store.item_bytes_max = {}: the largest item could never be served",
                config.runtime.inflight_bytes_max, store.item_bytes_max
            ),
        );
    }
}

/// Checks that the sum of the memory parts is within `server.memory_max`.
fn check_memory(config: &Config, refuse: Refuse<'_>) {
    let (sum, sum_min) = (config.server.memory_max, MemoryParts::sum_min(config));
    if sum != ByteCount(0) && sum < sum_min {
        let parts = MemoryParts::new(config);
        refuse(
            "server.memory_max",
            format!(
                "{sum} is too little: items take {} (store.memory), connections {} \
                 (server.connections_max = {}), TLS {}, buffers {}, a scheduler {}, the program {}, and values in \
                 flight at least {} for each of {} worker threads; give at least {sum_min}",
                parts.items,
                parts.connections,
                config.server.connections_max,
                parts.tls,
                parts.pools,
                parts.history,
                parts.program,
                config.store.item_bytes_max,
                config.server.threads,
            ),
        );
    }
}

/// Number of items of the largest size that must fit into the memory: 2, as in memcached.
const ITEMS_IN_MEMORY_MIN: u64 = 2;

/// The largest `values.hot_share`. The largest item and what the store needs to move items must fit beside it.
const HOT_SHARE_MAX: f64 = 0.25;
