//! Checks memcached's `-o` suboptions. Most of them tune slabs, the LRU and threads that do not exist here.
//! They are checked as memcached checks them and have no effect. Unknown suboptions are refused, and so are
//! suboptions that would change the nature of the server. `idle_timeout` and the suboptions of TLS have memcached's
//! effect.

use super::number;

/// The result of one `-o`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Suboptions {
    /// Messages about the suboptions that have no effect here.
    pub(super) idle: Vec<String>,
    /// The time after which silent clients lose their connections (s).
    pub(super) idle_timeout_s: Option<i32>,
    /// The buffer of a watcher (KiB).
    pub(super) watcher_kib: Option<u32>,
    /// The suboptions of TLS.
    pub(super) ssl: Ssl,
    /// Warnings that the operator should see at once.
    pub(super) warnings: Vec<String>,
}

/// The suboptions of TLS that have an effect. They are `None` if they were not given.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ssl {
    pub(super) chain_cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) ca_cert: Option<String>,
    pub(super) verify_mode: Option<i32>,
    pub(super) min_version: Option<i32>,
    pub(super) ciphers: Option<String>,
}

impl Ssl {
    /// Takes over the suboptions of a later `-o`.
    pub(super) fn add(&mut self, later: Self) {
        self.chain_cert = later.chain_cert.or(self.chain_cert.take());
        self.key = later.key.or(self.key.take());
        self.ca_cert = later.ca_cert.or(self.ca_cert.take());
        self.verify_mode = later.verify_mode.or(self.verify_mode);
        self.min_version = later.min_version.or(self.min_version);
        self.ciphers = later.ciphers.or(self.ciphers.take());
    }

    fn set(&mut self, name: &str, value: &str) {
        let text = || Some(value.to_owned());
        match name {
            "ssl_chain_cert" => self.chain_cert = text(),
            "ssl_key" => self.key = text(),
            "ssl_ca_cert" => self.ca_cert = text(),
            "ssl_ciphers" => self.ciphers = text(),
            "ssl_verify_mode" => self.verify_mode = Some(number::integer(value)),
            "ssl_min_version" => self.min_version = Some(number::integer(value)),
            _ => {}
        }
    }
}

/// Checks the suboptions of one `-o`.
///
/// # Errors
/// The first suboption that memcached or this server refuses, with the reason.
pub(super) fn check(list: &str) -> Result<Suboptions, String> {
    let mut all = Suboptions::default();
    // A comma at the end does not begin another suboption.
    for suboption in list.strip_suffix(',').unwrap_or(list).split(',') {
        if list.is_empty() {
            break;
        }
        let (name, value) = match suboption.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (suboption, None),
        };
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let (_, rule) = known.ok_or_else(|| format!("Illegal suboption \"{name}\""))?;
        rule.check(name, value)?;
        match rule {
            Rule::AsIs => {}
            // As in memcached, a negative number disables the timeout.
            Rule::IdleTimeout => {
                all.idle_timeout_s = value.map(|value| number::integer(value).max(0));
            }
            Rule::WatcherBuffer => all.watcher_kib = value.and_then(|value| value.parse().ok()),
            Rule::Tls | Rule::TlsWhole(..) => {
                let value = value.unwrap_or_default();
                if name == "ssl_min_version" && number::integer(value) < TLS_12 {
                    let text = "WARNING: TLS 1.0 and 1.1 are not served; the oldest version is 1.2";
                    all.warnings.push(text.to_owned());
                }
                all.ssl.set(name, value);
            }
            _ => all.idle.push(format!("-o {name} has no effect here")),
        }
    }
    Ok(all)
}

/// memcached's number for TLS 1.2 in `ssl_min_version`.
const TLS_12: i32 = 2;

/// The values that memcached accepts for a suboption.
enum Rule {
    /// The suboption requests what this server does anyway.
    AsIs,
    /// The value is optional and ignored.
    Any,
    /// A value is required, and any value is accepted.
    Given,
    /// The value begins with a number of seconds.
    IdleTimeout,
    /// The value is an unsigned number of KiB with nothing behind it.
    WatcherBuffer,
    /// A value is required, which TLS uses.
    Tls,
    /// The same with a whole number within the range.
    TlsWhole(i32, i32),
    /// The value is a whole number within the range.
    Whole(i32, i32),
    /// The value is optional. If given, it is a whole number within the range.
    WholeIfGiven(i32, i32),
    /// The value is an unsigned number with nothing behind it.
    Unsigned,
    /// The value is a number above zero and at most this number.
    Above0(f64),
    /// The value is one of these words.
    Word(&'static [&'static str]),
    /// The suboption is refused for this reason, because it would change the nature of the server.
    Refused(&'static str),
}

const KNOWN: &[(&str, Rule)] = &[
    ("maxconns_fast", Rule::Any),
    ("no_maxconns_fast", Rule::AsIs),
    ("hashpower", Rule::Whole(12, 32)),
    ("no_hashexpand", Rule::Any),
    ("slab_reassign", Rule::Any),
    ("no_slab_reassign", Rule::Any),
    ("slab_automove", Rule::WholeIfGiven(0, 2)),
    ("no_slab_automove", Rule::Any),
    ("slab_automove_ratio", Rule::Above0(1.0)),
    ("slab_automove_window", Rule::Whole(3, i32::MAX)),
    ("slab_automove_freeratio", Rule::Given),
    ("slab_sizes", Rule::Given),
    ("slab_chunk_max", Rule::Unsigned),
    ("no_chunked_items", Rule::Any),
    ("tail_repair_time", Rule::Whole(10, i32::MAX)),
    ("hash_algorithm", Rule::Word(&["jenkins", "murmur3", "xxh3"])),
    ("lru_crawler", Rule::Any),
    ("no_lru_crawler", Rule::Any),
    ("lru_crawler_sleep", Rule::Whole(0, 1_000_000)),
    ("lru_crawler_tocrawl", Rule::Unsigned),
    ("lru_maintainer", Rule::Any),
    ("no_lru_maintainer", Rule::Any),
    ("hot_lru_pct", Rule::Whole(1, 79)),
    ("warm_lru_pct", Rule::Whole(1, 79)),
    ("hot_max_factor", Rule::Above0(f64::MAX)),
    ("warm_max_factor", Rule::Above0(f64::MAX)),
    ("temporary_ttl", Rule::Given),
    ("idle_timeout", Rule::IdleTimeout),
    ("watcher_logbuf_size", Rule::WatcherBuffer),
    ("worker_logbuf_size", Rule::Unsigned),
    ("track_sizes", Rule::Any),
    ("inline_ascii_resp", Rule::Any),
    ("no_inline_ascii_resp", Rule::Any),
    ("modern", Rule::AsIs),
    ("no_modern", Rule::Any),
    ("drop_privileges", Rule::Any),
    ("no_drop_privileges", Rule::AsIs),
    ("relaxed_privileges", Rule::AsIs),
    ("resp_obj_mem_limit", Rule::Any),
    ("read_buf_mem_limit", Rule::Unsigned),
    ("sock_cookie_id", Rule::Any),
    ("ext_path", Rule::Refused("this server has no external storage")),
    ("ext_page_size", Rule::Given),
    ("ext_wbuf_size", Rule::Given),
    ("ext_threads", Rule::Given),
    ("ext_item_size", Rule::Given),
    ("ext_item_age", Rule::Given),
    ("ext_low_ttl", Rule::Given),
    ("ext_drop_unread", Rule::Any),
    ("ext_recache_rate", Rule::Given),
    ("ext_compact_under", Rule::Given),
    ("ext_drop_under", Rule::Given),
    ("ext_max_frag", Rule::Given),
    ("ext_max_sleep", Rule::Given),
    ("ssl_chain_cert", Rule::Tls),
    ("ssl_key", Rule::Tls),
    ("ssl_keyformat", Rule::Word(&["PEM"])),
    ("ssl_verify_mode", Rule::TlsWhole(0, 3)),
    ("ssl_ciphers", Rule::Tls),
    ("ssl_ca_cert", Rule::Tls),
    ("ssl_wbuf_size", Rule::Unsigned),
    ("ssl_session_cache", Rule::Any),
    ("ssl_kernel_tls", Rule::Any),
    ("ssl_min_version", Rule::TlsWhole(0, 3)),
];

impl Rule {
    fn check(&self, name: &str, value: Option<&str>) -> Result<(), String> {
        let optional = matches!(self, Rule::AsIs | Rule::Any | Rule::WholeIfGiven(..));
        if let Rule::Refused(reason) = self {
            return Err(format!("-o {name}: {reason}"));
        }
        let Some(value) = value else {
            let missing = || format!("Missing {name} argument");
            return if optional { Ok(()) } else { Err(missing()) };
        };
        let (good, valid) = match self {
            Rule::AsIs
            | Rule::Any
            | Rule::Given
            | Rule::IdleTimeout
            | Rule::Tls
            | Rule::Refused(_) => (true, String::new()),
            Rule::Whole(min, max) | Rule::WholeIfGiven(min, max) | Rule::TlsWhole(min, max) => {
                let good = (*min..=*max).contains(&number::integer(value));
                (good, format!("a whole number from {min} to {max}"))
            }
            Rule::Unsigned | Rule::WatcherBuffer => {
                (number::is_unsigned(value), "a whole number below 4294967296".to_owned())
            }
            Rule::Above0(max) => {
                let number = number::float(value);
                let bound =
                    if *max < f64::MAX { format!(" and at most {max}") } else { String::new() };
                (number > 0.0 && number <= *max, format!("a number above 0{bound}"))
            }
            Rule::Word(words) => (words.contains(&value), format!("one of {}", words.join(", "))),
        };
        if good { Ok(()) } else { Err(format!("-o {name}={value} is not valid; give {valid}")) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn known_suboptions_pass_and_say_that_they_have_no_effect() {
        let list = "modern,hashpower=20,slab_automove,slab_automove=2,hot_max_factor=0.5,";
        let idle = ["hashpower", "slab_automove", "slab_automove", "hot_max_factor"]
            .map(|name| format!("-o {name} has no effect here"));
        assert_eq!(check(list).unwrap().idle, idle);
        assert_eq!(check("").unwrap(), Suboptions::default());
    }

    #[test]
    fn the_time_that_clients_may_be_silent_is_taken_over() {
        for (list, seconds) in
            [("idle_timeout=30", 30), ("idle_timeout=5x,modern", 5), ("idle_timeout=-1", 0)]
        {
            let expected = Suboptions { idle_timeout_s: Some(seconds), ..Suboptions::default() };
            assert_eq!(check(list).unwrap(), expected, "{list}");
        }
        assert_eq!(check("idle_timeout").unwrap_err(), "Missing idle_timeout argument");
    }

    #[test]
    fn what_memcached_refuses_is_refused() {
        for (list, problem) in [
            ("nonesuch", "Illegal suboption \"nonesuch\""),
            ("modern,,track_sizes", "Illegal suboption \"\""),
            ("hashpower", "Missing hashpower argument"),
            ("hashpower=99", "-o hashpower=99 is not valid; give a whole number from 12 to 32"),
            ("slab_automove=3", "-o slab_automove=3 is not valid; give a whole number from 0 to 2"),
            (
                "slab_automove_ratio=2",
                "-o slab_automove_ratio=2 is not valid; give a number above 0 and at most 1",
            ),
            (
                "hash_algorithm=md5",
                "-o hash_algorithm=md5 is not valid; give one of jenkins, murmur3, xxh3",
            ),
            ("ext_path=/d:5G", "-o ext_path: this server has no external storage"),
        ] {
            assert_eq!(check(list).unwrap_err(), problem);
        }
    }
}
