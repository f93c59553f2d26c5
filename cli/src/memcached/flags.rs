//! Parses memcached's command line into values. The flags are checked in memcached's order, so the first
//! wrong flag decides the message and the exit code. The module does not open, resolve or start anything.

use super::getopt::{Options, Spec, Value};
use super::suboptions::{self, Ssl};
use super::{Failure, number};

/// The action that a command line requests.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    Help,
    License,
    Version,
    Serve(Box<Flags>),
}

/// The flags of a server that is to be started. A flag is `None` if it was not given.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flags {
    pub(super) port: Option<i32>,
    /// The values of all `-l`, joined by commas.
    pub(super) listen: Option<String>,
    pub(super) unix_socket: Option<String>,
    pub(super) unix_mask: Option<i64>,
    pub(super) memory_mib: Option<u32>,
    pub(super) evict: Option<bool>,
    pub(super) dump: Option<bool>,
    pub(super) watch: Option<bool>,
    pub(super) flush: Option<bool>,
    pub(super) shutdown: Option<bool>,
    /// The buffer of a watcher (KiB).
    pub(super) watcher_kib: Option<u32>,
    pub(super) connections: Option<i32>,
    pub(super) threads: Option<i32>,
    pub(super) requests_per_turn: Option<i32>,
    pub(super) backlog: Option<i32>,
    /// The protocols of clients: `auto`, `ascii` or `binary`.
    pub(super) protocol: Option<String>,
    pub(super) item_bytes: Option<i64>,
    pub(super) idle_timeout_s: Option<i32>,
    pub(super) user: Option<String>,
    pub(super) pidfile: Option<String>,
    pub(super) memory_file: Option<String>,
    /// The file of users and passwords.
    pub(super) token_file: Option<String>,
    /// True if clients use TLS (`-Z`), except at addresses with `notls:`.
    pub(super) tls: bool,
    /// The values of the `ssl_` suboptions that have an effect.
    pub(super) ssl: Ssl,
    pub(super) daemon: bool,
    pub(super) lock_memory: bool,
    pub(super) core_files: bool,
    pub(super) verbose: u8,
    /// Messages about accepted flags that have no effect, for `-v`.
    pub(super) idle: Vec<String>,
    /// Warnings that the operator should see at once.
    pub(super) warnings: Vec<String>,
}

/// Parses a command line, which does not contain the program's name.
///
/// # Errors
/// The first flag that is not accepted.
pub(super) fn parse(args: Vec<String>) -> Result<Request, Failure> {
    let mut flags = Flags::default();
    for option in Options::new(SPECS, args) {
        let (letter, value) = option.map_err(|problem| {
            Failure::new(1, format!("rebate memcached: {problem}\nIllegal argument \"?\""))
        })?;
        match letter {
            'h' => return Ok(Request::Help),
            'i' => return Ok(Request::License),
            'V' => return Ok(Request::Version),
            _ => flags.set(letter, &value.unwrap_or_default())?,
        }
    }
    // memcached's text login cannot be combined with the binary protocol.
    if flags.token_file.is_some() && flags.protocol.as_deref().is_some_and(|name| name != "ascii") {
        return Err(Failure::new(EX_USAGE, BINARY_WITH_TOKENS.to_owned()));
    }
    Ok(Request::Serve(Box::new(flags)))
}

const BINARY_WITH_TOKENS: &str =
    "ERROR: You cannot allow the BINARY protocol while using ascii authentication tokens.";

impl Flags {
    fn set(&mut self, letter: char, value: &str) -> Result<(), Failure> {
        let whole = || number::integer(value);
        match letter {
            'p' => self.port = Some(whole()),
            'l' => self.add_listen(value),
            's' => self.unix_socket = Some(value.to_owned()),
            'a' => self.unix_mask = Some(number::octal(value) & 0o777),
            'm' => {
                let negative = || Failure::new(EX_USAGE, format!("-m {value}: memory below zero"));
                self.memory_mib = Some(u32::try_from(whole()).map_err(|_| negative())?);
            }
            'M' => self.evict = Some(false),
            'X' => self.dump = Some(false),
            'W' => self.watch = Some(false),
            'F' => self.flush = Some(false),
            'A' => self.shutdown = Some(true),
            'c' => self.connections = Some(above_0(whole(), "Maximum connections")?),
            't' => self.set_threads(above_0(whole(), "Number of threads")?),
            'R' => {
                self.requests_per_turn = Some(above_0(whole(), "Number of requests per event")?);
            }
            'b' => self.backlog = Some(whole()),
            'I' => self.item_bytes = Some(item_bytes(value)),
            'u' => self.user = Some(value.to_owned()),
            'P' => self.pidfile = Some(value.to_owned()),
            'Y' => self.token_file = Some(value.to_owned()),
            'e' => self.memory_file = Some(value.to_owned()),
            'Z' => self.tls = true,
            'd' => self.daemon = true,
            'k' => self.lock_memory = true,
            'r' => self.core_files = true,
            'v' => self.verbose = self.verbose.saturating_add(1),
            'o' => {
                let all = suboptions::check(value).map_err(|text| Failure::new(1, text))?;
                self.idle.extend(all.idle);
                self.idle_timeout_s = all.idle_timeout_s.or(self.idle_timeout_s);
                self.watcher_kib = all.watcher_kib.or(self.watcher_kib);
                self.ssl.add(all.ssl);
                self.warnings.extend(all.warnings);
            }
            _ => return self.set_idle(letter, value),
        }
        Ok(())
    }

    /// Handles two kinds of flags: flags that are checked and have no effect, and flags that are refused because
    /// ignoring them would do harm.
    fn set_idle(&mut self, letter: char, value: &str) -> Result<(), Failure> {
        let refuse = |text: &str| Err(Failure::new(EX_USAGE, text.to_owned()));
        match letter {
            'U' if number::integer(value) != 0 => {
                return refuse("UDP is not served: give -U 0, or leave -U out");
            }
            'B' if !["auto", "ascii", "binary"].contains(&value) => {
                let text = format!(
                    "Invalid value for binding protocol: {value}\n -- should be one of auto, binary, or ascii"
                );
                return refuse(&text);
            }
            'B' => {
                self.protocol = Some(value.to_owned());
                return Ok(());
            }
            'S' => return refuse("This server is not built with SASL support."),
            'f' if number::float(value) <= 1.0 => {
                return Err(Failure::new(1, "Factor must be greater than 1".to_owned()));
            }
            'n' => drop(above_0(number::integer(value), "Chunk size")?),
            'N' => drop(above_0(number::integer(value), "Maximum number of NAPI IDs")?),
            'D' if value.is_empty() => {
                return Err(Failure::new(1, "No delimiter specified".to_owned()));
            }
            'U' => return Ok(()),
            _ => {}
        }
        self.idle.push(format!("-{letter} has no effect here"));
        Ok(())
    }

    /// Adds an address. As in memcached, an address that is already a part of the list is not added again.
    fn add_listen(&mut self, value: &str) {
        match &mut self.listen {
            Some(list) if list.contains(value) => {}
            Some(list) => {
                list.push(',');
                list.push_str(value);
            }
            None => self.listen = Some(value.to_owned()),
        }
    }

    fn set_threads(&mut self, count: i32) {
        if count > THREADS_MAX {
            self.warnings.push(format!(
                "WARNING: {count} worker threads are not recommended; this server runs {THREADS_MAX}.\n \
                 Set this value to the number of cores in your machine or less."
            ));
        }
        self.threads = Some(count.min(THREADS_MAX));
    }
}

/// The exit code for incorrect use of the command (sysexits.h).
pub(super) const EX_USAGE: u8 = 64;

/// The number of threads above which memcached warns.
const THREADS_MAX: i32 = 64;

fn above_0(value: i32, what: &str) -> Result<i32, Failure> {
    if value > 0 {
        Ok(value)
    } else {
        Err(Failure::new(1, format!("{what} must be greater than 0")))
    }
}

/// Parses the value of `-I`: bytes, or KiB and MiB with the suffix `k` or `m`.
fn item_bytes(text: &str) -> i64 {
    let count = i64::from(number::integer(text));
    match text.as_bytes().last() {
        Some(b'k' | b'K') => count << 10,
        Some(b'm' | b'M') => count << 20,
        _ => count,
    }
}

const fn plain(short: char, long: &'static str) -> Spec {
    Spec { short, long, value: Value::None }
}

const fn valued(short: char, long: &'static str) -> Spec {
    Spec { short, long, value: Value::Required }
}

const SPECS: &[Spec] = &[
    valued('a', "unix-mask"),
    plain('A', "enable-shutdown"),
    plain('Z', "enable-ssl"),
    valued('p', "port"),
    valued('s', "unix-socket"),
    valued('U', "udp-port"),
    valued('m', "memory-limit"),
    plain('M', "disable-evictions"),
    valued('c', "conn-limit"),
    plain('k', "lock-memory"),
    plain('h', "help"),
    plain('i', "license"),
    plain('V', "version"),
    plain('r', "enable-coredumps"),
    Spec { short: 'v', long: "verbose", value: Value::Optional },
    plain('d', "daemon"),
    valued('l', "listen"),
    valued('u', "user"),
    valued('P', "pidfile"),
    valued('f', "slab-growth-factor"),
    valued('n', "slab-min-size"),
    valued('t', "threads"),
    plain('L', "enable-largepages"),
    valued('R', "max-reqs-per-event"),
    plain('C', "disable-cas"),
    valued('b', "listen-backlog"),
    valued('B', "protocol"),
    valued('I', "max-item-size"),
    plain('S', "enable-sasl"),
    plain('F', "disable-flush-all"),
    plain('X', "disable-dumping"),
    plain('W', "disable-watch"),
    valued('Y', "auth-file"),
    valued('e', "memory-file"),
    valued('o', "extended"),
    valued('N', "napi-ids"),
    valued('D', ""),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn serve(line: &str) -> Flags {
        match parse(line.split(' ').map(str::to_owned).collect()) {
            Ok(Request::Serve(flags)) => *flags,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn short_long_and_glued_forms_mean_the_same() {
        let expected = Flags {
            port: Some(11212),
            memory_mib: Some(128),
            connections: Some(10),
            threads: Some(2),
            item_bytes: Some(2 << 20),
            requests_per_turn: Some(5),
            backlog: Some(6),
            protocol: Some("ascii".into()),
            user: Some("nobody".into()),
            pidfile: Some("/run/x".into()),
            memory_file: Some("/run/m".into()),
            token_file: Some("/run/t".into()),
            unix_mask: Some(0o770),
            unix_socket: Some("/run/s".into()),
            daemon: true,
            verbose: 2,
            evict: Some(false),
            dump: Some(false),
            watch: Some(false),
            flush: Some(false),
            shutdown: Some(true),
            watcher_kib: Some(8),
            ..Flags::default()
        };
        for line in [
            "-p 11212 -m 128 -c 10 -t 2 -I 2m -R 5 -b 6 -u nobody -P /run/x -a 770 -s /run/s -d -vv -M -X -U 0 \
             -W -F -A -o watcher_logbuf_size=8 -B ascii -e /run/m -Y /run/t",
            "-p11212 -m128 -c10 -t2 -I2m -R5 -b6 -unobody -P/run/x -a770 -s/run/s -dvvMXWFA -U0 \
             -owatcher_logbuf_size=8 -B ascii -e/run/m -Y/run/t",
            "--port=11212 --memory-limit=128 --conn-limit=10 --threads=2 --max-item-size=2048k \
             --max-reqs-per-event=5 --listen-backlog=6 --user=nobody --pidfile=/run/x --unix-mask=770 \
             --unix-socket=/run/s --daemon --verbose --verbose --disable-evictions --disable-dumping --udp-port=0 \
             --disable-watch --disable-flush-all --enable-shutdown --extended=watcher_logbuf_size=8 \
             --protocol=ascii --memory-file=/run/m --auth-file=/run/t",
            "--port 11212 --memory-l 128 --conn 10 --thr 2 --max-item 2m --max-reqs 5 --listen-b 6 --us nobody \
             --pid /run/x --unix-m 770 --unix-s /run/s --dae -v --verb --disable-e --disable-dump --protocol ascii \
             --disable-w --disable-f --enable-sh --ext watcher_logbuf_size=8 \
             --memory-f /run/m --auth-f /run/t",
        ] {
            assert_eq!(serve(line), expected, "{line}");
        }
    }

    #[test]
    fn listen_addresses_add_up() {
        assert_eq!(serve("-l a,b:1 -l [::1] -l a").listen.as_deref(), Some("a,b:1,[::1]"));
    }

    #[test]
    fn values_out_of_range_fail_as_in_memcached() {
        for (line, code, text) in [
            ("-c 0", 1, "Maximum connections must be greater than 0"),
            ("-c -1", 1, "Maximum connections must be greater than 0"),
            ("-t abc", 1, "Number of threads must be greater than 0"),
            ("-R 0", 1, "Number of requests per event must be greater than 0"),
            ("-f 1", 1, "Factor must be greater than 1"),
            ("-n 0", 1, "Chunk size must be greater than 0"),
            ("-D ", 1, "No delimiter specified"),
            ("-o nonesuch", 1, "Illegal suboption \"nonesuch\""),
            ("-U 11211", 64, "UDP is not served"),
            ("-B http", 64, "Invalid value for binding protocol: http"),
            ("-S", 64, "This server is not built with SASL support."),
            ("-o ssl_keyformat=DER", 1, "-o ssl_keyformat=DER is not valid; give one of PEM"),
            ("-Y f -B auto", 64, "ERROR: You cannot allow the BINARY protocol while using ascii"),
            ("-Q", 1, "rebate memcached: invalid option -- 'Q'\nIllegal argument \"?\""),
            ("-p", 1, "rebate memcached: option requires an argument -- 'p'"),
        ] {
            let failure = parse(line.split(' ').map(str::to_owned).collect()).unwrap_err();
            assert_eq!(failure.code, code, "{line}");
            assert!(failure.text.starts_with(text), "{line}: {}", failure.text);
        }
    }

    #[test]
    fn the_first_flag_that_decides_wins() {
        assert_eq!(parse(vec!["-V".into(), "-c0".into()]), Ok(Request::Version));
        assert!(parse(vec!["-c0".into(), "-V".into()]).is_err());
        assert_eq!(parse(vec!["--help".into()]), Ok(Request::Help));
    }

    #[test]
    fn flags_without_effect_are_kept_for_the_log() {
        let flags = serve("-C -L -f 1.5 -n 48 -o modern,track_sizes");
        let idle = ["-C", "-L", "-f", "-n", "-o track_sizes"];
        assert_eq!(flags.idle, idle.map(|flag| format!("{flag} has no effect here")));
        assert!(flags.warnings.is_empty());
        let many = serve("-t 100");
        assert_eq!((many.threads, many.warnings.len()), (Some(64), 1));
    }
}
