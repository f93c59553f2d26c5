//! Turns memcached's flags into configuration. memcached's defaults have the lowest priority of all sources,
//! and its flags have the highest. A file and the environment can set keys for which memcached has no flag,
//! such as the codec and the admin address.

use std::path::Path;

use server::config::{Config, Flag, Sources};
use units::{ByteCount, limits};

use super::flags::{EX_USAGE, Flags};
use super::listen::Listener;
use super::suboptions::Ssl;
use super::{EX_OSERR, Failure, absolute, listen};

/// Returns the configuration of a memcached without flags.
pub(super) fn defaults() -> Result<Config, Failure> {
    let mut config = Config::default();
    config.server.listen = shown(&addresses(None, PORT, false)?);
    config.server.threads = THREADS;
    // Like memcached, it listens everywhere for everybody. It warns about that when it starts.
    config.server.insecure = true;
    Ok(config)
}

/// Returns the sources of a server started with `flags`.
///
/// # Errors
/// A port is invalid, or an address cannot be resolved. Ranges are checked when the sources are loaded.
pub(super) fn sources(
    flags: &Flags,
    environment: Vec<(String, String)>,
) -> Result<Sources, Failure> {
    let mut set = Vec::new();
    let mut push = |name: &str, key: &str, value: String| {
        set.push(Flag { name: name.to_owned(), key: key.to_owned(), value });
    };
    if let Some(path) = &flags.unix_socket {
        let path = absolute(Path::new(path))?;
        push("-s", "server.unix_socket", path.to_string_lossy().into_owned());
        push("-s", "server.listen", String::new());
    } else if flags.port == Some(0) {
        // memcached would keep running although no client could connect.
        let text = "-p 0 turns TCP off and there is no -s: no client could connect (-p -1 takes a free port)";
        return Err(Failure::new(EX_USAGE, text.to_owned()));
    } else if flags.port.is_some() || flags.listen.is_some() || flags.tls {
        let port = flags.port.map_or(Ok(PORT), listen::port);
        let port = port.map_err(|text| Failure::new(EX_USAGE, text))?;
        let listeners = addresses(flags.listen.as_deref(), port, flags.tls)?;
        push("-l/-p", "server.listen", shown(&listeners).join(","));
    }
    if flags.tls {
        tls(&flags.ssl, &mut push)?;
    }
    if let Some(path) = &flags.memory_file {
        let path = absolute(Path::new(path))?;
        push("-e", "store.file", path.to_string_lossy().into_owned());
    }
    if let Some(path) = &flags.token_file {
        let path = absolute(Path::new(path))?;
        push("-Y", "server.token_file", path.to_string_lossy().into_owned());
        push("-Y", "server.protocol", "ascii".to_owned());
    } else if let Some(protocol) = &flags.protocol {
        push("-B", "server.protocol", protocol.clone());
    }
    let mut number = |name: &str, key: &str, value: Option<i64>| {
        if let Some(value) = value {
            push(name, key, value.to_string());
        }
    };
    number("-c", "server.connections_max", flags.connections.map(i64::from));
    number("-t", "server.threads", flags.threads.map(i64::from));
    number("-R", "server.requests_per_turn", flags.requests_per_turn.map(i64::from));
    // For the kernel a negative backlog is the largest that the system allows. The same holds for a large backlog.
    let backlog = flags.backlog.map(|count| if count < 0 { i32::MAX } else { count });
    number("-b", "server.backlog", backlog.map(i64::from));
    number("-m", "store.memory", flags.memory_mib.map(|mib| i64::from(mib) << 20));
    number("-I", "store.item_bytes_max", flags.item_bytes);
    number("-o idle_timeout", "server.idle_timeout_s", flags.idle_timeout_s.map(i64::from));
    if let Some(bits) = flags.unix_mask {
        push("-a", "server.unix_socket_mode", format!("{bits:o}"));
    }
    if let Some(evict) = flags.evict {
        push("-M", "store.evict", evict.to_string());
    }
    if let Some(dump) = flags.dump {
        push("-X", "server.dump", dump.to_string());
    }
    for (flag, key, value) in [
        ("-W", "server.watch", flags.watch),
        ("-F", "server.flush", flags.flush),
        ("-A", "server.shutdown", flags.shutdown),
    ] {
        if let Some(value) = value {
            push(flag, key, value.to_string());
        }
    }
    if let Some(kib) = flags.watcher_kib {
        let bytes = u64::from(kib.clamp(WATCHER_KIB_MIN, WATCHER_KIB_MAX)) << 10;
        push("-o watcher_logbuf_size", "server.watcher_bytes", bytes.to_string());
    }
    let mut defaults = defaults()?;
    // memcached has no bound on bytes in flight, so -I alone must be sufficient.
    let inflight = &mut defaults.runtime.inflight_bytes_max;
    let item = flags.item_bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(ByteCount);
    *inflight = (*inflight).max(item.unwrap_or_default().min(limits::ITEM_BYTES_MAX_HIGHEST));
    Ok(Sources { defaults, file: None, environment, flags: set })
}

/// Turns the suboptions of TLS into configuration.
fn tls(ssl: &Ssl, push: &mut impl FnMut(&str, &str, String)) -> Result<(), Failure> {
    for (name, key, path) in [
        ("-o ssl_chain_cert", "tls.cert_file", &ssl.chain_cert),
        ("-o ssl_key", "tls.key_file", &ssl.key),
        ("-o ssl_ca_cert", "tls.ca_file", &ssl.ca_cert),
    ] {
        if let Some(path) = path {
            let path = absolute(Path::new(path))?;
            push(name, key, path.to_string_lossy().into_owned());
        }
    }
    if ssl.chain_cert.is_none() {
        let text = "-Z needs a certificate: give -o ssl_chain_cert=FILE";
        return Err(Failure::new(EX_USAGE, text.to_owned()));
    }
    if let Some(mode) = ssl.verify_mode {
        // There are no later handshakes on a connection, so "once" is the same as "request".
        let word = ["none", "request", "require", "request"].get(mode as usize).unwrap_or(&"none");
        push("-o ssl_verify_mode", "tls.client_auth", (*word).to_owned());
    }
    if let Some(version) = ssl.min_version {
        let word = if version == TLS_13 { "1.3" } else { "1.2" };
        push("-o ssl_min_version", "tls.min_version", word.to_owned());
    }
    if let Some(ciphers) = &ssl.ciphers {
        push("-o ssl_ciphers", "tls.ciphers", ciphers.replace(':', ","));
    }
    Ok(())
}

/// The range of `server.watcher_bytes` (KiB). memcached has no limits.
const WATCHER_KIB_MIN: u32 = 4;
const WATCHER_KIB_MAX: u32 = 64 << 10;

/// memcached's number for TLS 1.3 in `ssl_min_version`.
const TLS_13: i32 = 3;

fn addresses(list: Option<&str>, port: u16, tls: bool) -> Result<Vec<Listener>, Failure> {
    listen::addresses(list, port, tls).map_err(|problem| {
        let place = list.map_or(String::new(), |list| {
            format!("\nfailed to listen on one of interface(s) {list}")
        });
        Failure::new(EX_OSERR, format!("{problem}{place}"))
    })
}

fn shown(addresses: &[Listener]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// memcached's default port. `THREADS` is its default number of worker threads.
const PORT: u16 = 11211;
const THREADS: usize = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use server::config::{ProtocolName, load};

    use super::super::flags::{Request, parse};
    use super::*;

    fn flags(line: &str) -> Flags {
        let args = line.split(' ').map(str::to_owned).collect();
        let Ok(Request::Serve(flags)) = parse(args) else { panic!("{line}") };
        *flags
    }

    fn config(line: &str) -> Config {
        load(&sources(&flags(line), Vec::new()).unwrap()).unwrap().config
    }

    #[test]
    fn flags_become_configuration() {
        let config = config(
            "-l 127.0.0.1,127.0.0.2:5 -p 7 -m 256 -c 9 -t 3 -R 8 -b -1 -I 128m -M -X -a 666 -o idle_timeout=9 \
             -e /run/m -B binary",
        );
        assert_eq!(config.server.protocol, ProtocolName::Binary);
        assert_eq!(config.store.file.as_deref(), Some("/run/m".as_ref()));
        assert_eq!(config.server.listen, ["127.0.0.1:7", "127.0.0.2:5"]);
        assert_eq!(config.store.memory, ByteCount::mib(256));
        assert_eq!(config.store.item_bytes_max, ByteCount::mib(128));
        assert!(!config.store.evict && !config.server.dump);
        assert_eq!(config.server.connections_max, 9);
        assert_eq!(config.server.threads, 3);
        assert_eq!(config.server.requests_per_turn, 8);
        assert_eq!(config.server.backlog, i32::MAX as u32);
        assert_eq!(config.server.unix_socket_mode, 0o666);
        assert_eq!(config.server.idle_timeout_s, 9);
    }

    #[test]
    fn without_flags_it_listens_where_memcached_does() {
        let config = config("-v");
        assert!(config.server.listen.contains(&"0.0.0.0:11211".to_owned()));
        assert_eq!((config.server.threads, config.server.connections_max), (4, 1024));
    }

    #[test]
    fn tls_has_memcacheds_suboptions() {
        let config = config(
            "-Z -l 127.0.0.1,notls:127.0.0.1:5 -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a \
             -o ssl_verify_mode=2,ssl_min_version=3,ssl_keyformat=PEM,ssl_wbuf_size=16",
        );
        assert_eq!(config.server.listen, ["tls://127.0.0.1:11211", "127.0.0.1:5"]);
        assert_eq!(config.tls.cert_file.as_deref(), Some("/c".as_ref()));
        assert_eq!(config.tls.key_file.as_deref(), Some("/k".as_ref()));
        assert_eq!(config.tls.client_auth, server::config::ClientAuthWord::Require);
        assert_eq!(config.tls.min_version, server::config::TlsVersionWord::Tls13);
        let failure = sources(&flags("-Z"), Vec::new()).unwrap_err();
        assert!(failure.text.contains("ssl_chain_cert=FILE"), "{}", failure.text);
    }

    #[test]
    fn a_unix_socket_turns_tcp_off() {
        let config = config("-s /run/r.sock -p 11211 -l 127.0.0.1");
        assert_eq!(config.server.unix_socket.as_deref(), Some("/run/r.sock".as_ref()));
        assert!(config.server.listen.is_empty());
    }

    #[test]
    fn the_environment_sets_what_no_flag_names_and_flags_win() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment =
            vec![set("REBATE_COMPRESS__CODEC", "lz4"), set("REBATE_SERVER__THREADS", "2")];
        let sources = sources(&flags("-t 3"), environment).unwrap();
        let config = load(&sources).unwrap().config;
        let lz4 = server::config::CodecName::Named(units::Codec::Lz4);
        assert_eq!(config.compress.codec, lz4);
        assert_eq!(config.server.threads, 3);
    }

    #[test]
    fn addresses_out_of_range_fail_with_memcacheds_codes() {
        for (line, code, text) in [
            ("-p 70000", 64, "ERROR: Invalid port number 70000."),
            ("-p 0", 64, "-p 0 turns TCP off"),
            ("-l 127.0.0.1:abc", 71, "Invalid port number: \"abc\"\nfailed to listen on one of"),
        ] {
            let failure = sources(&flags(line), Vec::new()).unwrap_err();
            assert_eq!(failure.code, code, "{line}");
            assert!(failure.text.starts_with(text), "{line}: {}", failure.text);
        }
    }

    #[test]
    fn sizes_out_of_range_name_the_flag() {
        for (line, text) in [
            ("-m 0", "flag -m: store.memory: \"0\" is below 64KiB; give a size from 64KiB"),
            (
                "-I 512",
                "flag -I: store.item_bytes_max: \"512\" is below 1KiB; give a size from 1KiB",
            ),
            ("-I 1025m -m 8192", "flag -I: store.item_bytes_max: \"1074790400\" is above 1GiB;"),
            ("-m 1", "flag -m: store.memory: 1MiB is too little for store.item_bytes_max = 1MiB"),
            (
                "-I 64m",
                "default: store.memory: 64MiB is too little for store.item_bytes_max = 64MiB",
            ),
        ] {
            let errors = load(&sources(&flags(line), Vec::new()).unwrap()).unwrap_err();
            assert!(errors[0].to_string().starts_with(text), "{line}: {errors:?}");
        }
    }
}
