//! Tests the layers, their precedence, and the messages about wrong values. `reference` has the test that writes the
//! tables of docs/operating/configuration.md.

mod json_schema;
mod reference;

use std::collections::BTreeSet;
use std::io::Write;

use store::frame::FrameVersion;
use units::ByteCount;

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn sources(text: &str) -> (tempfile::NamedTempFile, Sources) {
    let file = file(text);
    let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
    (file, sources)
}

fn flag(name: &str, key: &str, value: &str) -> Flag {
    Flag { name: name.into(), key: key.into(), value: value.into() }
}

fn variable(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Returns the message of the only error, without the directory of the temporary file.
fn refusal(sources: &Sources) -> String {
    let errors = load(sources).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].to_string()
}

#[test]
fn each_source_wins_over_the_ones_below_it() {
    let (file, mut sources) =
        sources("[server]\nthreads = 2\nbacklog = 5\n[store]\nevict = false\n");
    sources.environment =
        vec![variable("REBATE_SERVER__THREADS", "3"), variable("REBATE_SERVER__BACKLOG", "6")];
    sources.flags =
        vec![flag("--threads", "server.threads", "4"), flag("-t", "server.threads", "5")];
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.server.threads, 5);
    assert_eq!(loaded.config.server.backlog, 6);
    assert!(!loaded.config.store.evict);
    assert_eq!(*loaded.origin("server.threads"), Origin::Flag("-t".into()));
    let backlog = Origin::Environment("REBATE_SERVER__BACKLOG".into());
    assert_eq!(*loaded.origin("server.backlog"), backlog);
    let evict = Origin::File { path: file.path().to_owned(), line: Some(5) };
    assert_eq!(*loaded.origin("store.evict"), evict);
    assert_eq!(*loaded.origin("store.url"), Origin::Default);
}

#[test]
fn outdated_units_of_sizes_are_read_with_a_warning() {
    let (_file, mut sources) = sources("[store]\nmemory = '1GB'\nitem_bytes_max = '1MiB'\n");
    sources.flags = vec![flag("--instance", "scheduler.instance", "5kb")];
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.store.memory, ByteCount::mib(1_024));
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert!(warning.ends_with(
        ":2: store.memory: 1GB is read as 1GiB; the next version will refuse it: write 1GiB"
    ));
}

#[test]
fn the_environment_names_the_file_unless_a_flag_does() {
    let (named, chosen) = (file("[server]\nthreads = 2\n"), file("[server]\nthreads = 3\n"));
    let path = named.path().to_str().unwrap();
    let mut sources =
        Sources { environment: vec![variable(FILE_VARIABLE, path)], ..Sources::default() };
    assert_eq!(load(&sources).unwrap().config.server.threads, 2);
    sources.file = Some(chosen.path().to_owned());
    assert_eq!(load(&sources).unwrap().config.server.threads, 3);
}

#[test]
fn a_unix_socket_turns_tcp_off_unless_listen_is_set() {
    let (_file, mut sources) = sources("[server]\nunix_socket = '/run/r.sock'\n");
    assert!(load(&sources).unwrap().config.server.listen.is_empty());
    sources.flags = vec![flag("--listen", "server.listen", "127.0.0.1:5")];
    assert_eq!(load(&sources).unwrap().config.server.listen, ["127.0.0.1:5"]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    for (text, line, wrong, meant) in [
        ("[server]\nlisten = []\nthread = 2", 3, "server.thread", "did you mean server.threads?"),
        ("memory = 1", 1, "memory", "did you mean store.memory?"),
        ("[sever]\nlisten = []", 2, "sever.listen", "did you mean server.listen?"),
        ("[compression]\nmode = 'on'", 2, "compression.mode", "did you mean compress.mode?"),
        ("[zzz]", 1, "zzz", "--print-config lists every key"),
        ("server = 5", 1, "server", ""),
    ] {
        let (file, sources) = sources(text);
        let refusal = refusal(&sources);
        let place = format!("{}:{line}: unknown key {wrong:?}", file.path().display());
        assert!(refusal.starts_with(&place) && refusal.ends_with(meant), "{text:?}: {refusal}");
    }
}

#[test]
fn unknown_variables_and_flags_are_refused_too() {
    let sources = Sources {
        environment: vec![
            variable("REBATE_SERVER__LISTN", "x"),
            variable("REBATE_SERVER_THREADS", "1"),
            variable("REBATE_PORT_11211_TCP", "tcp://10.0.0.1:11211"),
        ],
        flags: vec![flag("--set", "store.memry", "1")],
        ..Sources::default()
    };
    let messages: Vec<_> = load(&sources).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "environment REBATE_SERVER__LISTN: unknown key \"server.listn\"; did you mean server.listen?",
            "environment REBATE_SERVER_THREADS: sets nothing; did you mean REBATE_SERVER__THREADS?",
            "flag --set: unknown key \"store.memry\"; did you mean store.memory?",
        ]
    );
}

#[test]
fn wrong_values_name_the_key_and_what_is_valid() {
    for (text, tail) in [
        (
            "[server]\nthreads = 65",
            ":2: server.threads: 65 is not valid; give a whole number from 1 to 64",
        ),
        (
            "[server]\nthreads = 'many'",
            ":2: server.threads: \"many\" is not valid; give a whole number from 1 to 64",
        ),
        (
            "[store]\nitem_bytes_max = '1023'",
            ":2: store.item_bytes_max: \"1023\" is below 1KiB; give a size from 1KiB to 1GiB, in bytes \
             or with k, m or g (4096, 64KiB, 1m, 2GiB)",
        ),
        (
            "[store]\nitem_bytes_max = '1.5m'",
            ":2: store.item_bytes_max: \"1.5m\" is not a whole number of bytes; give a size from 1KiB \
             to 1GiB, in bytes or with k, m or g (4096, 64KiB, 1m, 2GiB)",
        ),
        (
            "[store]\nitem_bytes_max = true",
            ":2: store.item_bytes_max: true is not a size; give a size from 1KiB to 1GiB, in bytes or \
             with k, m or g (4096, 64KiB, 1m, 2GiB)",
        ),
        (
            "[compress]\nmode = 'maybe'",
            ":2: compress.mode: \"maybe\" is not valid; give one of on, off, read-only",
        ),
        (
            "[compress]\nsaving_min = nan",
            ":2: compress.saving_min: nan is not valid; give a number from 0 to 1, such as 0.1",
        ),
        (
            "[store]\nurl = 'memcached://a:99999'",
            ":2: store.url: \"memcached://a:99999\" is not valid; give embedded, \
             memcached://HOST:PORT[:WEIGHT],... with dns+HOST:PORT, dnssrv+NAME and \
             elasticache+HOST:PORT for lists, or grpc://HOST:PORT,... naming each server once",
        ),
    ] {
        let (_file, sources) = sources(text);
        let refusal = refusal(&sources);
        assert!(refusal.ends_with(tail), "{refusal}");
    }
}

#[test]
fn values_of_every_kind_are_read_from_text() {
    let texts = [
        ("server.listen", "127.0.0.1:1, [::1]:2"),
        ("server.lane_listen", "/run/rebate.lane"),
        ("server.unix_socket", "/run/rebate.sock"),
        ("server.near_listen", "/run/rebate.near"),
        ("server.thrift_listen", "127.0.0.1:9090"),
        ("server.unix_socket_mode", "0o640"),
        ("server.admin_listen", ""),
        ("store.memory", "1g"),
        ("store.evict", "off"),
        ("compress.mode", "read-only"),
        ("compress.saving_min", "1"),
        ("compress.readable_by", "iaa"),
    ];
    let flags = texts.iter().map(|(key, value)| flag("--set", key, value)).collect();
    let config = load(&Sources { flags, ..Sources::default() }).unwrap().config;
    assert_eq!(config.server.listen, ["127.0.0.1:1", "[::1]:2"]);
    assert_eq!(config.server.unix_socket_mode, 0o640);
    assert_eq!(config.store.memory, ByteCount::mib(1024));
    assert!(!config.store.evict);
    assert_eq!(config.compress.mode, CompressMode::ReadOnly);
    assert_eq!(config.compress.saving_min, 1.0);
    assert_eq!(config.compress.readable_by.len(), 1);
}

#[test]
fn new_frames_are_read_by_every_process_that_reaches_the_store() {
    let version = |texts: &[(&str, &str)]| {
        let flags = texts.iter().map(|(key, value)| flag("--set", key, value)).collect();
        let loaded = load(&Sources { flags, ..Sources::default() }).unwrap();
        convert::rules(&loaded.config).frame_version.number()
    };
    let grpc = ("server.grpc_listen", "127.0.0.1:0");
    assert_eq!(version(&[]), 2);
    assert_eq!(version(&[("values.frame_version", "1")]), 1);
    assert_eq!(version(&[("store.url", "memcached://10.0.0.1")]), 1);
    assert_eq!(version(&[("store.url", "grpc://10.0.0.1:1")]), 1);
    assert_eq!(version(&[("store.url", "memcached://10.0.0.1"), ("values.frame_version", "2")]), 2);
    assert_eq!(version(&[grpc]), 1, "the role `all` serves the store");
    assert_eq!(version(&[grpc, ("server.roles", "frontend")]), 2);
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    let missing = Sources { file: Some("/nonexistent/rebate.toml".into()), ..Sources::default() };
    assert!(refusal(&missing).starts_with("/nonexistent/rebate.toml: cannot read it"));
    let (_file, broken) = sources("[server]\nthreads = = 2\n");
    assert!(refusal(&broken).contains(":2: "), "{}", refusal(&broken));
    let (_file, huge) = sources(&"#".repeat(2 << 20));
    assert!(refusal(&huge).ends_with("no configuration"));
    let (_file, deep) = sources(&format!("a = {}", "[".repeat(100_000)));
    assert!(load(&deep).is_err());
}

#[test]
fn relations_between_keys_are_checked_and_placed() {
    let (_file, sources) = sources("[store]\nmemory = '1MiB'\nretry_min_ms = 2000\n");
    let messages: Vec<_> = load(&sources).unwrap_err().iter().map(ToString::to_string).collect();
    assert!(messages[0].contains(":2: store.memory: 1MiB is too little"), "{messages:?}");
    assert!(messages[1].contains(":3: store.retry_min_ms: 2000 is above"), "{messages:?}");
}

#[test]
fn a_share_of_hot_values_leaves_room_for_items() {
    let (_file, sources) = sources("[values]\nhot_share = 0.5\n");
    let said = refusal(&sources);
    let expected = ":2: values.hot_share: 0.5 is above 0.25; give a number from 0 to 0.25";
    assert!(said.ends_with(expected), "{said}");
}

#[test]
fn programs_are_served_by_their_role_over_tls() {
    let messages = |text: &str| {
        let (_file, sources) = sources(text);
        let errors = load(&sources).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let served = "[tls]\ncert_file = '/cert'\n[programs]\nlisten = ['tls://127.0.0.1:0']\n";
    let alone = "[server]\nroles = ['programs']\n";
    assert_eq!(messages(&format!("{served}{alone}")), "");
    assert!(messages(alone).contains("no client could connect"));
    let plain = messages(&served.replace("tls://", ""));
    assert!(plain.contains("programs.listen: 127.0.0.1:0 has no TLS"), "{plain}");
    let other = "[server]\nroles = ['frontend']\n";
    assert!(messages(&format!("{served}{other}")).contains("server.roles has no programs"));
    let large = "payload_bytes_max = '64MiB'\n[runtime]\ninflight_bytes_max = '2MiB'\n";
    let said = messages(&format!("{served}{large}"));
    assert!(said.contains(":5: programs.payload_bytes_max: 64MiB is above"), "{said}");
}

#[test]
fn old_names_of_programs_are_read_with_a_warning() {
    let (file, mut sources) =
        sources("[traces]\nlive_max = 5\n[server]\nroles = ['all', 'traces']\n");
    sources.environment = vec![variable("REBATE_TRACES__DUE_US", "7")];
    sources.flags = vec![
        flag("--trace-listen", "traces.listen", "tls://127.0.0.1:0"),
        flag("--set", "tls.cert_file", "/cert"),
    ];
    let Loaded { config, mut warnings, .. } = load(&sources).unwrap();
    let programs = &config.programs;
    assert_eq!((programs.live_max, programs.due_us, programs.listen.len()), (5, 7, 1));
    assert_eq!(config.server.roles, [RoleName::All, RoleName::Programs]);
    warnings.sort();
    let path = file.path().display();
    let named = [
        format!("{path}:2: programs.live_max"),
        format!("{path}:4: programs"),
        "environment REBATE_TRACES__DUE_US: REBATE_PROGRAMS__DUE_US".to_owned(),
        "flag --trace-listen: --program-listen".to_owned(),
    ];
    assert_eq!(warnings, named.map(|name| format!("{name} is the new name; the old one goes")));
    assert_eq!(load(&Sources::default()).unwrap().warnings, [""; 0]);
}

#[test]
fn the_old_switch_of_ketama_is_read_with_a_warning() {
    let distribution = |sources: &Sources| {
        let loaded = load(sources).unwrap();
        (loaded.config.store.distribution, loaded.warnings)
    };
    for (value, name, new) in [
        ("true", DistributionName::KetamaWeighted, "ketama-weighted"),
        ("false", DistributionName::Ketama, "ketama"),
    ] {
        let (file, in_file) = sources(&format!("[store]\nketama_weighted = {value}\n"));
        let goes = format!("{new:?} is the new name; the old one goes");
        let path = file.path().display();
        let said = format!("{path}:2: store.distribution = {goes}");
        assert_eq!(distribution(&in_file), (name, vec![said]));
        let variable = variable("REBATE_STORE__KETAMA_WEIGHTED", value);
        let in_environment = Sources { environment: vec![variable], ..Sources::default() };
        let said = "environment REBATE_STORE__KETAMA_WEIGHTED: REBATE_STORE__DISTRIBUTION";
        assert_eq!(distribution(&in_environment), (name, vec![format!("{said} = {goes}")]));
    }
    let both = "[store]\nketama_weighted = true\ndistribution = 'modula'\n";
    let (_file, both) = sources(both);
    assert_eq!(distribution(&both).0, DistributionName::Modula, "the new name counts");
    let (_file, wrong) = sources("[store]\nketama_weighted = 'yes'\n");
    let said = load(&wrong).unwrap_err()[0].to_string();
    assert!(said.contains("store.ketama_weighted") && said.contains("true or false"), "{said}");
}

#[test]
fn a_key_that_is_gone_says_what_to_write_instead() {
    for (flags, said) in [
        (
            flag("--program-secrets", "programs.secrets_file", "f"),
            "flag --program-secrets: programs.secrets_file is no longer a key: callers of programs \
             are known by their certificates",
        ),
        (
            flag("--trace-secrets", "traces.secrets_file", "f"),
            "traces.secrets_file is no longer a key",
        ),
    ] {
        let problem = refusal(&Sources { flags: vec![flags], ..Sources::default() });
        assert!(problem.contains(said), "{problem}");
    }
}

#[test]
fn the_default_configuration_is_valid() {
    assert_eq!(validate(&Config::default()), []);
}

#[test]
fn what_is_printed_loads_as_the_same_configuration() {
    let (_file, mut sources) =
        sources("[store]\nurl = 'memcached://a,[::1]:2'\n[server]\nlisten=[]\n");
    sources.flags = vec![
        flag("--unix-socket", "server.unix_socket", "/tmp/a \"b\".sock"),
        flag("--set", "compress.readable_by", "iaa"),
    ];
    sources.environment = vec![variable("REBATE_SERVER__THREADS", "7")];
    let loaded = load(&sources).unwrap();
    let text = print(&loaded);
    assert!(text.contains("threads = 7  # environment REBATE_SERVER__THREADS, restart"), "{text}");
    assert!(text.contains("connections_max = 1024  # default, hot"), "{text}");
    assert!(text.contains("unix_socket_mode = 0o700"), "{text}");
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), loaded.config);
    let values = print_values(&Config::default());
    assert_eq!(toml::from_str::<Config>(&values).unwrap(), Config::default());
}

#[test]
fn the_table_of_keys_covers_every_field() {
    let mut config = Config::default();
    config.server.lane_listen = Some("/run/rebate.lane".into());
    config.values.frame_version = Some(FrameVersion::V1);
    config.values.keys = Some("/etc/rebate/keys.toml".into());
    config.server.access_file = Some("/access".into());
    config.store.login_file = Some("/login".into());
    config.runtime.compression_login_file = Some("/login".into());
    config.scheduler.login_file = Some("/login".into());
    config.otlp.headers_file = Some("/headers".into());
    config.server.token_file = Some("/tokens".into());
    config.server.unix_socket = Some("/run/rebate.sock".into());
    config.server.near_listen = Some("/run/rebate.near".into());
    config.store.file = Some("/var/lib/rebate/items".into());
    config.tls = TlsConfig {
        cert_file: Some("/etc/rebate/cert.pem".into()),
        key_file: Some("/etc/rebate/key.pem".into()),
        ca_file: Some("/etc/rebate/ca.pem".into()),
        upstream_ca_file: Some("/etc/rebate/ca.pem".into()),
        upstream_cert_file: Some("/etc/rebate/cert.pem".into()),
        upstream_key_file: Some("/etc/rebate/key.pem".into()),
        ..TlsConfig::default()
    };
    config.scheduler.offload_bytes_min = Some(ByteCount(0));
    config.scheduler.inline_bytes_max = Some(ByteCount(0));
    let table = to_table(&config).unwrap();
    let fields: BTreeSet<String> = table
        .iter()
        .flat_map(|(section, fields)| {
            let names = fields.as_table().unwrap().keys();
            names.map(move |field| format!("{section}.{field}"))
        })
        .collect();
    let keys: BTreeSet<String> = keys().map(|key| key.name.to_owned()).collect();
    assert_eq!(fields, keys);
}

#[test]
fn a_reload_changes_all_keys_or_none() {
    let old = Config::default();
    let mut new = old.clone();
    assert_eq!(diff_for_reload(&old, &new), Ok(vec![]));
    new.compress.mode = CompressMode::Off;
    new.store.timeout_ms = 7;
    assert_eq!(diff_for_reload(&old, &new), Ok(vec!["store.timeout_ms", "compress.mode"]));
    new.server.unix_socket = Some("/run/rebate.sock".into());
    assert_eq!(diff_for_reload(&old, &new), Err(vec!["server.unix_socket"]));
}

#[test]
fn a_reload_changes_the_servers_but_not_the_kind_of_store() {
    let with = |url: &str| Config {
        store: StoreConfig { url: url.to_owned(), ..StoreConfig::default() },
        ..Config::default()
    };
    let (one, two) = (with("memcached://a"), with("memcached://a:11211:2,dns+b"));
    assert_eq!(diff_for_reload(&one, &two), Ok(vec!["store.url"]));
    for other in ["embedded", "grpc://a:1"] {
        let refused = Err(vec!["store.url (to another kind of store)"]);
        assert_eq!(diff_for_reload(&one, &with(other)), refused, "{other}");
    }
}
