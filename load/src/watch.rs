//! What a server did between two readings of its pages of statistics, and the page of its dictionaries. This module
//! does not read them, and does not print.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

/// One reading of a server.
pub struct Sample {
    at: Instant,
    general: Page,
    /// Empty for a memcached.
    rebate: Page,
    classes: Vec<Class>,
}

/// The names and values of a page of statistics.
pub type Page = BTreeMap<String, String>;

/// What a server did and holds. Rates are per second; what cannot be known is absent.
#[derive(Debug, Serialize)]
pub struct View {
    /// The version that clients see, which is memcached's.
    pub version: String,
    /// The version of Rebate, if the server is one.
    pub rebate_version: Option<String>,
    /// The time since the start (s).
    pub uptime_s: u64,
    /// The worker threads.
    pub threads: u64,
    /// The open connections of clients.
    pub connections: u64,
    /// The cores that were busy.
    pub cores: f64,
    /// Keys that were read.
    pub gets_per_s: f64,
    /// The share of these keys that were found.
    pub hit_ratio: Option<f64>,
    /// Values that were written.
    pub sets_per_s: f64,
    /// Deletions, touches, counts and flushes.
    pub others_per_s: f64,
    /// Answers that told clients of a failure.
    pub errors_per_s: f64,
    /// What clients sent (bytes/s).
    pub received_bytes_per_s: f64,
    /// What clients got (bytes/s).
    pub sent_bytes_per_s: f64,
    /// The items held.
    pub items: u64,
    /// The bytes held, with overhead.
    pub bytes: u64,
    /// The most bytes that may be held.
    pub limit_bytes: u64,
    /// Items that made way for others.
    pub evictions_per_s: f64,
    /// The stored bytes for each byte that clients wrote.
    pub stored_ratio: Option<f64>,
    /// The forms of values that were written.
    pub written: Vec<Rate>,
    /// The forms of values that were read.
    pub read: Vec<Rate>,
    /// Compressions and decompressions, by device, placement and reason.
    pub jobs: Vec<Rate>,
    /// New connections to the stores behind the server, and what went wrong on them.
    pub upstream: Vec<Rate>,
    /// Classes of keys, those with the most written bytes first.
    pub classes: Vec<ClassRate>,
}

/// How often something happened.
#[derive(Debug, PartialEq, Serialize)]
pub struct Rate {
    /// The name.
    pub name: String,
    /// The rate (1/s).
    pub per_s: f64,
}

/// What was written of a class of keys.
#[derive(Debug, Serialize)]
pub struct ClassRate {
    /// The name.
    pub name: String,
    /// The tenant.
    pub tenant: u16,
    /// The id of its dictionary, `plain` or `undecided`.
    pub form: String,
    /// Values that were written (1/s).
    pub values_per_s: f64,
    /// Their bytes (bytes/s).
    pub bytes_per_s: f64,
    /// The stored bytes for each of these bytes.
    pub stored_ratio: Option<f64>,
}

/// The page `stats dictionaries` of a server.
#[derive(Debug, Default, Serialize)]
pub struct Dictionaries {
    /// The classes of keys.
    pub classes: Vec<Class>,
    /// The dictionaries.
    pub dictionaries: Vec<Entry>,
}

/// A class of keys.
#[derive(Debug, Default, Serialize)]
pub struct Class {
    /// The name.
    pub name: String,
    /// The tenant.
    pub tenant: u16,
    /// The id of its dictionary, `plain` or `undecided`.
    pub form: String,
    /// Values that were written.
    pub values_written: u64,
    /// Their bytes.
    pub logical_bytes: u64,
    /// What is stored for them (bytes).
    pub stored_bytes: u64,
}

/// A dictionary.
#[derive(Debug, Default, Serialize)]
pub struct Entry {
    /// The id.
    pub id: String,
    /// The length of its content (bytes).
    pub bytes: u64,
    /// The memory that it takes, with the tables of its codec (bytes).
    pub memory_bytes: u64,
}

impl Sample {
    /// Makes a reading of the pages `stats`, `stats rebate` and `stats dictionaries`. The last two are empty for a
    /// memcached.
    pub fn new(general: Page, rebate: Page, dictionaries: Dictionaries) -> Self {
        Self { at: Instant::now(), general, rebate, classes: dictionaries.classes }
    }
}

impl View {
    /// Compares two readings of one server. Counters that fell, because it was restarted, count as unchanged.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let elapsed_s = (after.at - before.at).as_secs_f64().max(1e-9);
        let general = Difference { before: &before.general, after: &after.general, elapsed_s };
        let rebate = Difference { before: &before.rebate, after: &after.rebate, elapsed_s };
        let text = |name: &str| after.general.get(name).cloned();
        let sum = |names: &[&str]| names.iter().map(|name| general.rate(name)).sum();
        let now = |name| number(&after.general, name) as u64;
        let gets = general.rate("get_hits") + general.rate("get_misses");
        Self {
            version: text("version").unwrap_or_default(),
            rebate_version: text("rebate_version"),
            uptime_s: now("uptime"),
            threads: now("threads"),
            connections: now("curr_connections"),
            cores: sum(&["rusage_user", "rusage_system"]),
            gets_per_s: gets,
            hit_ratio: share(general.rate("get_hits"), gets),
            sets_per_s: general.rate("cmd_set"),
            others_per_s: sum(&OTHERS),
            errors_per_s: sum(&ERRORS),
            received_bytes_per_s: sum(&["bytes_read"]),
            sent_bytes_per_s: sum(&["bytes_written"]),
            items: now("curr_items"),
            bytes: now("bytes"),
            limit_bytes: now("limit_maxbytes"),
            evictions_per_s: general.rate("evictions"),
            stored_ratio: share(
                rebate.rate("stored_bytes_written"),
                rebate.rate("logical_bytes_written"),
            ),
            written: rebate.named("written_"),
            read: rebate.named("read_"),
            jobs: rebate.named("jobs:"),
            upstream: general.named("upstream_"),
            classes: classes(before, after, elapsed_s),
        }
    }
}

impl Dictionaries {
    /// Adds a line of the page. Its name is `class:TENANT:NAME:WHAT` or `dictionary:ID:WHAT`. A class's name may
    /// contain colons. The first line of a class or a dictionary is that of its form or of its bytes.
    pub fn add(&mut self, name: &str, value: &str) {
        let number = || value.parse().unwrap_or(0);
        let Some((head, what)) = name.rsplit_once(':') else { return };
        if let Some((tenant, name)) =
            head.strip_prefix("class:").and_then(|rest| rest.split_once(':'))
        {
            if what == "form" {
                let (name, form) = (name.to_owned(), value.to_owned());
                let tenant = tenant.parse().unwrap_or(0);
                self.classes.push(Class { name, tenant, form, ..Class::default() });
            }
            match (self.classes.last_mut(), what) {
                (Some(class), "values_written") => class.values_written = number(),
                (Some(class), "logical_bytes") => class.logical_bytes = number(),
                (Some(class), "stored_bytes") => class.stored_bytes = number(),
                _ => {}
            }
        } else if let Some(id) = head.strip_prefix("dictionary:") {
            if what == "bytes" {
                let id = id.to_owned();
                self.dictionaries.push(Entry { id, bytes: number(), memory_bytes: 0 });
            } else if let (Some(entry), "memory_bytes") = (self.dictionaries.last_mut(), what) {
                entry.memory_bytes = number();
            }
        }
    }
}

/// Two readings of a page.
struct Difference<'a> {
    before: &'a Page,
    after: &'a Page,
    elapsed_s: f64,
}

impl Difference<'_> {
    fn rate(&self, name: &str) -> f64 {
        (number(self.after, name) - number(self.before, name)).max(0.0) / self.elapsed_s
    }

    /// Returns the rates of what happened, of the names that begin with `prefix`, the highest first.
    fn named(&self, prefix: &str) -> Vec<Rate> {
        let names = self.after.keys().filter_map(|name| Some((name, name.strip_prefix(prefix)?)));
        let mut rates: Vec<Rate> = names
            .map(|(name, short)| Rate { name: short.to_owned(), per_s: self.rate(name) })
            .filter(|rate| rate.per_s > 0.0)
            .collect();
        rates.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        rates
    }
}

fn classes(before: &Sample, after: &Sample, elapsed_s: f64) -> Vec<ClassRate> {
    let mut found: Vec<ClassRate> = after
        .classes
        .iter()
        .map(|class| {
            let same = |other: &&Class| other.name == class.name && other.tenant == class.tenant;
            let earlier = before.classes.iter().find(same);
            let rate = |count: fn(&Class) -> u64| {
                count(class).saturating_sub(earlier.map_or(0, count)) as f64 / elapsed_s
            };
            let bytes_per_s = rate(|class| class.logical_bytes);
            ClassRate {
                name: class.name.clone(),
                tenant: class.tenant,
                form: class.form.clone(),
                values_per_s: rate(|class| class.values_written),
                bytes_per_s,
                stored_ratio: share(rate(|class| class.stored_bytes), bytes_per_s),
            }
        })
        .collect();
    found.retain(|class| class.values_per_s > 0.0);
    found.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
    found
}

fn number(page: &Page, name: &str) -> f64 {
    page.get(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then_some(part / whole)
}

const OTHERS: [&str; 8] = [
    "delete_hits",
    "delete_misses",
    "cmd_touch",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
    "cmd_flush",
];

const ERRORS: [&str; 5] =
    ["store_too_large", "store_no_memory", "bad_lines", "upstream_errors", "auth_errors"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn page(lines: &[(&str, &str)]) -> Page {
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn sample(at: Instant, general: &[(&str, &str)], rebate: &[(&str, &str)]) -> Sample {
        Sample { at, general: page(general), rebate: page(rebate), classes: Vec::new() }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let start = Instant::now();
        let before = sample(start, &[("get_hits", "10"), ("get_misses", "5")], &[]);
        let after = sample(
            start + Duration::from_secs(2),
            &[("get_hits", "16"), ("get_misses", "7"), ("rusage_user", "1.5")],
            &[("jobs:compress:software", "8"), ("jobs:decompress:software", "0")],
        );
        let view = View::between(&before, &after);
        assert_eq!((view.gets_per_s, view.hit_ratio, view.cores), (4.0, Some(0.75), 0.75));
        assert_eq!(view.jobs, [Rate { name: "compress:software".to_owned(), per_s: 4.0 }]);
        assert_eq!(view.stored_ratio, None);
    }

    #[test]
    fn a_restarted_server_has_no_negative_rates() {
        let start = Instant::now();
        let before = sample(start, &[("cmd_set", "100")], &[]);
        let after = sample(start + Duration::from_secs(1), &[("cmd_set", "3")], &[]);
        assert_eq!(View::between(&before, &after).sets_per_s, 0.0);
    }

    #[test]
    fn a_page_has_classes_with_colons_in_their_names() {
        let mut page = Dictionaries::default();
        for (name, value) in [
            ("class:3:user:*:profile:form", "a1b2c3"),
            ("class:3:user:*:profile:values_written", "7"),
            ("class:3:user:*:profile:logical_bytes", "700"),
            ("class:3:user:*:profile:stored_bytes", "300"),
            ("dictionary:a1b2c3:bytes", "1024"),
            ("dictionary:a1b2c3:memory_bytes", "70000"),
            ("garbage", "1"),
            ("class:", ""),
        ] {
            page.add(name, value);
        }
        let [class] = &page.classes[..] else { panic!("{page:?}") };
        let counts = (class.values_written, class.logical_bytes, class.stored_bytes);
        assert_eq!(
            (class.name.as_str(), class.tenant, counts),
            ("user:*:profile", 3, (7, 700, 300))
        );
        assert_eq!(page.dictionaries[0].memory_bytes, 70_000);
    }
}
