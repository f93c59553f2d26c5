//! The pages of `stats`, with memcached's names: the server's counters, summed over workers, and the store's
//! statistics. `stats rebate` has the counts for which memcached has no name, and `stats dictionaries` the classes of
//! keys.

use std::sync::Arc;

use policy::RawReason;
use units::{Clock, Nanos};

use crate::config::{ClientAuthWord, Config, ProtocolName, TlsVersionWord};
use crate::context::Connections;
use crate::counters::Counters;
use crate::dictionaries::Dictionaries;
use crate::restart::Restart;
use crate::session::VERSION;
use crate::tls::Tls;

/// Composes the pages from the counters of all workers. The sessions of a worker share this value.
pub(crate) struct StatsPages {
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) dictionaries: Arc<Dictionaries>,
    pub(crate) runtimes: Arc<parking_lot::RwLock<Vec<Arc<runtime::Metrics>>>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) restart: Option<Arc<Restart>>,
    pub(crate) tls: Arc<Tls>,
}

type Page = Vec<(String, String)>;

impl StatsPages {
    /// Returns the page `name`. `stored` is the store's page of that name.
    pub(crate) fn page(&self, name: &str, stored: &[(String, String)]) -> Page {
        match name {
            "" => self.general(stored),
            "settings" => self.settings(),
            "rebate" => self.rebate(),
            "dictionaries" => self.dictionaries(),
            _ => stored.to_vec(),
        }
    }

    /// Resets the counters, but not the gauges, as `stats reset` does.
    pub(crate) fn reset(&self) {
        for counters in self.counters.iter() {
            for (name, counter) in counters.commands.named() {
                if !matches!(name, "curr_connections" | "log_watchers") {
                    counter.reset();
                }
            }
        }
    }

    fn general(&self, stored: &[(String, String)]) -> Page {
        let unix_s = || units::unix_time().as_secs().to_string();
        // If a single clock decides when items expire, the page shows that clock.
        let store_time = stored.iter().find(|(name, _)| name == "time");
        let time = store_time.map_or_else(unix_s, |(_, time)| time.clone());
        let Nanos(uptime_ns) = self.clock.now();
        let mut page = Page::new();
        let mut stat = |name: &str, value: String| page.push((name.to_owned(), value));
        stat("pid", std::process::id().to_string());
        stat("uptime", (uptime_ns / 1_000_000_000).to_string());
        stat("time", time);
        stat("version", VERSION.to_owned());
        stat("rebate_version", env!("CARGO_PKG_VERSION").to_owned());
        stat("pointer_size", usize::BITS.to_string());
        let usage = process_usage();
        stat("rusage_user", usage.0);
        stat("rusage_system", usage.1);
        stat("max_connections", self.connections.max().to_string());
        for (name, value) in self.commands() {
            stat(name, value.to_string());
        }
        // This server never stops accepting: clients above the limit get an error and are disconnected.
        for (name, value) in [("accepting_conns", "1"), ("listen_disabled_num", "0")] {
            stat(name, value.to_owned());
        }
        stat("connection_structures", self.connections.open().to_string());
        stat("threads", self.config.server.threads.to_string());
        if let Some(since) = self.tls.since_loaded() {
            stat("time_since_server_cert_refresh", since.as_secs().to_string());
        }
        page.extend(stored.iter().filter(|(name, _)| STORED.contains(&&name[..])).cloned());
        page
    }

    fn settings(&self) -> Page {
        let config = &self.config;
        let on = |on: bool| if on { "yes" } else { "no" }.to_owned();
        let port = config.server.listen.first().and_then(|address| address.rsplit(':').next());
        let stats = [
            ("maxbytes", config.store.memory.0.to_string()),
            ("maxconns", self.connections.max().to_string()),
            ("tcpport", port.unwrap_or("0").to_owned()),
            ("udpport", "0".to_owned()),
            ("inter", config.server.listen.join(",")),
            ("verbosity", "0".to_owned()),
            ("evictions", if config.store.evict { "on" } else { "off" }.to_owned()),
            ("umask", format!("{:o}", config.server.unix_socket_mode)),
            ("num_threads", config.server.threads.to_string()),
            ("reqs_per_event", config.server.requests_per_turn.to_string()),
            ("cas_enabled", on(true)),
            ("tcp_backlog", config.server.backlog.to_string()),
            ("binding_protocol", binding_protocol(config.server.protocol).to_owned()),
            ("auth_enabled_sasl", on(false)),
            (
                "auth_enabled_ascii",
                config
                    .server
                    .token_file
                    .as_ref()
                    .map_or_else(|| on(false), |path| path.display().to_string()),
            ),
            ("idle_timeout", config.server.idle_timeout_s.to_string()),
            ("item_size_max", config.store.item_bytes_max.0.to_string()),
            ("maxconns_fast", on(true)),
            ("dump_enabled", on(config.server.dump)),
            ("shutdown_command", on(config.server.shutdown)),
            ("flush_enabled", on(config.server.flush)),
        ];
        let file =
            config.store.file.as_ref().map(|path| ("memory_file", path.display().to_string()));
        let all = stats.into_iter().chain(file).chain(tls_settings(config));
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn rebate(&self) -> Page {
        let mut page = Page::new();
        for (index, (name, _)) in crate::counters::Values::default().named().iter().enumerate() {
            let counts = self.counters.iter().map(|worker| worker.values.named()[index].1.read());
            page.push(((*name).to_owned(), counts.sum::<u64>().to_string()));
        }
        for reason in RawReason::ALL {
            let counts = self.counters.iter().map(|worker| worker.raw[reason as usize].read());
            page.push((format!("written_raw:{}", reason.name()), counts.sum::<u64>().to_string()));
        }
        for (protocol, open, reserved) in self.connections.by_protocol() {
            page.push((format!("connections:{}", protocol.name()), open.to_string()));
            page.push((format!("connections_reserved:{}", protocol.name()), reserved.to_string()));
        }
        page.extend(self.restart.iter().flat_map(|restart| restart.named()));
        for metrics in self.runtimes.read().iter() {
            for path in metrics.paths() {
                let name = format!(
                    "jobs:{}:{}:{}:{}",
                    path.op,
                    path.device,
                    path.placement.name(),
                    path.reason.name()
                );
                match page.iter_mut().find(|(other, _)| *other == name) {
                    None => page.push((name, path.jobs.to_string())),
                    Some((_, jobs)) => {
                        *jobs = (jobs.parse::<u64>().unwrap_or(0) + path.jobs).to_string();
                    }
                }
            }
        }
        page
    }

    /// Returns the classes of keys, the most written first, and the dictionaries, the oldest first.
    fn dictionaries(&self) -> Page {
        let mut page = Page::new();
        let mut stat = |name: String, value: String| page.push((name, value));
        let mut classes = self.dictionaries.classes();
        classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.counts().writes));
        for (_, class) in &classes {
            let name = |what: &str| format!("class:{}:{}:{what}", class.tenant().0, class.name());
            let counts = class.counts();
            stat(name("form"), class.choice().to_string());
            stat(name("values_written"), counts.writes.to_string());
            stat(name("logical_bytes"), counts.logical_bytes.to_string());
            stat(name("stored_bytes"), counts.stored_bytes.to_string());
        }
        for dictionary in self.dictionaries.all() {
            let name = |what: &str| format!("dictionary:{}:{what}", dictionary.id());
            stat(name("bytes"), dictionary.content().len().to_string());
            stat(name("memory_bytes"), dictionary.memory_bytes().to_string());
        }
        page
    }

    fn commands(&self) -> Vec<(&'static str, u64)> {
        let names = crate::counters::Commands::default();
        let names = names.named().into_iter().map(|(name, _)| name).enumerate();
        let sum = |index: usize| {
            self.counters.iter().map(|worker| worker.commands.named()[index].1.read()).sum()
        };
        names.map(|(index, name)| (name, sum(index))).collect()
    }
}

/// Returns memcached's settings of TLS, as far as they exist here.
fn tls_settings(config: &Config) -> Vec<(&'static str, String)> {
    let tls = &config.tls;
    let is_enabled = config.tls_listeners().next().is_some();
    let mut settings = vec![("ssl_enabled", if is_enabled { "yes" } else { "no" }.to_owned())];
    if is_enabled {
        let path = |path: &Option<std::path::PathBuf>| {
            path.as_ref().map_or_else(|| "NULL".to_owned(), |path| path.display().to_string())
        };
        let mode = match tls.client_auth {
            ClientAuthWord::None => "0",
            ClientAuthWord::Request => "1",
            ClientAuthWord::Require => "2",
        };
        let version = match tls.min_version {
            TlsVersionWord::Tls12 => "tlsv1.2",
            TlsVersionWord::Tls13 => "tlsv1.3",
        };
        let ciphers =
            if tls.ciphers.is_empty() { "NULL".to_owned() } else { tls.ciphers.join(":") };
        settings.extend([
            ("ssl_chain_cert", path(&tls.cert_file)),
            ("ssl_key", path(&tls.key_file)),
            ("ssl_verify_mode", mode.to_owned()),
            ("ssl_ciphers", ciphers),
            ("ssl_ca_cert", path(&tls.ca_file)),
            ("ssl_min_version", version.to_owned()),
        ]);
    }
    settings
}

/// Returns memcached's name for the protocols that are served.
const fn binding_protocol(protocol: ProtocolName) -> &'static str {
    match protocol {
        ProtocolName::Auto => "auto-negotiate",
        ProtocolName::Ascii => "ascii",
        ProtocolName::Binary => "binary",
    }
}

/// Returns the user and the system CPU time of this process (s), formatted as in memcached.
fn process_usage() -> (String, String) {
    let ticks = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = ticks.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let mut seconds = || {
        let ticks = fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        format!("{:.6}", ticks / per_second)
    };
    let user = seconds();
    (user, seconds())
}

/// The lines of the store's general page that are included in the server's.
const STORED: [&str; 11] = [
    "curr_items",
    "total_items",
    "bytes",
    "limit_maxbytes",
    "evictions",
    "evicted_unfetched",
    "expired_unfetched",
    "reclaimed",
    "crawler_reclaimed",
    "get_expired",
    "get_flushed",
];
