//! What a server says about itself: its version, its limits, its slab classes and its counters. All of it comes from
//! `version` and `stats`.

use std::collections::HashMap;

use protocol::response::Response;

use super::Error;
use super::link::{Link, excerpt};
use super::memory::{SlabSettings, Slabs};

/// The facts that do not change while the server runs, and the counters at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) slabs: Slabs,
    pub(super) has_cas: bool,
    /// The memory limit (bytes), if the server tells.
    pub(super) limit_bytes: Option<u64>,
    pub(super) counters: Counters,
}

/// Counters since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) items: u64,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) evictions: u64,
    /// The server's time (s since the Unix epoch).
    pub(super) time_s: u64,
    /// The time since the server's start (s).
    pub(super) uptime_s: u64,
}

type Page = HashMap<String, String>;

impl Facts {
    /// Asks the server for its facts. A page that the server does not have is noted, and defaults are used.
    pub(super) fn ask(link: &mut Link<'_>, notes: &mut Vec<String>) -> Result<Self, Error> {
        let answer = link.ask("version")?;
        if answer.contains("unauthenticated") {
            return Err(Error::Failed(format!(
                "the server asks for a password: it answers `version` with {answer:?}. Give --auth-file"
            )));
        }
        let Some(version) = answer.strip_prefix("VERSION ") else {
            return Err(Error::Failed(format!(
                "no memcached: it answers `version` with {answer:?}"
            )));
        };
        let general = page(link, "")?.unwrap_or_default();
        let settings = page(link, "settings")?;
        let slabs = page(link, "slabs")?.unwrap_or_default();
        if settings.is_none() {
            notes.push(
                "The server has no `stats settings`. Slab classes are those of memcached's defaults."
                    .to_owned(),
            );
        }
        let settings = settings.unwrap_or_default();
        // Rebate has one class, which is no chunk size of memcached.
        // A Rebate claims memcached's version, and tells its own version only in its statistics.
        let version = match general.get("rebate_version") {
            Some(rebate_version) => format!("{version}-rebate-{rebate_version}"),
            None => version.to_owned(),
        };
        let is_rebate = version.contains("rebate");
        let known = if is_rebate { Vec::new() } else { chunk_sizes(&slabs) };
        Ok(Self {
            version: version.chars().filter(|char| !char.is_control()).collect(),
            slabs: Slabs::new(slab_settings(&settings), &known),
            has_cas: settings.get("cas_enabled").is_none_or(|text| text != "no"),
            limit_bytes: number(&general, "limit_maxbytes"),
            counters: Counters::from_page(&general),
        })
    }

    /// Returns whether the server is Rebate.
    pub(super) fn is_rebate(&self) -> bool {
        self.version.contains("rebate")
    }
}

impl Counters {
    /// Asks the server for its counters.
    pub(super) fn ask(link: &mut Link<'_>) -> Result<Self, Error> {
        Ok(Self::from_page(&page(link, "")?.unwrap_or_default()))
    }

    fn from_page(page: &Page) -> Self {
        let count = |name| number(page, name).unwrap_or(0);
        Self {
            items: count("curr_items"),
            gets: count("cmd_get"),
            hits: count("get_hits"),
            sets: count("cmd_set"),
            evictions: count("evictions"),
            time_s: count("time"),
            uptime_s: count("uptime"),
        }
    }
}

/// Asks for one page of statistics. Returns none if the server refuses it.
pub(super) fn page(link: &mut Link<'_>, name: &str) -> Result<Option<Page>, Error> {
    let mut request = Vec::new();
    protocol::request::stats(&mut request, name);
    link.send(&request)?;
    let request = excerpt(&request);
    let mut page = Page::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for _ in 0..STATS_MAX {
        let end = link.response(&request, |response| match response {
            Response::Stat { name, value } => {
                page.insert(text(name), text(value));
                Some(None)
            }
            Response::End | Response::Reset => Some(Some(true)),
            Response::Error { .. } => Some(Some(false)),
            _ => None,
        })?;
        if let Some(is_complete) = end {
            return Ok(is_complete.then_some(page));
        }
    }
    Err(Error::Failed(format!("`{request}` has no end within {STATS_MAX} lines")))
}

fn number<T: std::str::FromStr>(page: &Page, name: &str) -> Option<T> {
    page.get(name)?.parse().ok()
}

fn slab_settings(settings: &Page) -> SlabSettings {
    let default = SlabSettings::default();
    SlabSettings {
        growth_factor: number(settings, "growth_factor").unwrap_or(default.growth_factor),
        chunk_bytes_min: number(settings, "chunk_size").unwrap_or(default.chunk_bytes_min),
        chunk_bytes_max: number(settings, "slab_chunk_max").unwrap_or(default.chunk_bytes_max),
    }
}

/// Returns the chunk sizes in `stats slabs`, whose lines are `STAT 5:chunk_size 240`.
fn chunk_sizes(slabs: &Page) -> Vec<u64> {
    let sizes = slabs.iter().filter(|(name, _)| name.ends_with(":chunk_size"));
    sizes.filter_map(|(_, size)| size.parse().ok()).collect()
}

/// The most lines of a page of statistics. A page of 64 slab classes has 1,700.
const STATS_MAX: usize = 10_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::link::tests::{GO_ON, Script, endless, link};
    use super::*;

    const GENERAL: &str =
        "STAT curr_items 7\r\nSTAT cmd_get 9\r\nSTAT limit_maxbytes 100\r\nEND\r\n";

    #[test]
    fn facts_come_from_the_pages() {
        let settings =
            "STAT growth_factor 2.00\r\nSTAT chunk_size 48\r\nSTAT cas_enabled no\r\nEND\r\n";
        let slabs = "STAT 1:chunk_size 104\r\nSTAT active_slabs 1\r\nEND\r\n";
        let script = Script::new(&["VERSION 1.6.18\r\n", GENERAL, settings, slabs]);
        let mut notes = Vec::new();
        let facts = Facts::ask(&mut link(&script), &mut notes).unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!((facts.has_cas, facts.limit_bytes), (false, Some(100)));
        assert_eq!((facts.counters.items, facts.counters.gets), (7, 9));
        let settings = SlabSettings { growth_factor: 2.0, ..SlabSettings::default() };
        assert_eq!(facts.slabs, Slabs::new(settings, &[104]));
    }

    #[test]
    fn a_missing_page_is_noted() {
        let script = Script::new(&["VERSION 1.4\r\n", GENERAL, "ERROR\r\n", "END\r\n"]);
        let mut notes = Vec::new();
        let facts = Facts::ask(&mut link(&script), &mut notes).unwrap();
        assert_eq!(facts.slabs, Slabs::new(SlabSettings::default(), &[]));
        assert!(notes[0].contains("stats settings"), "{notes:?}");
    }

    #[test]
    fn another_server_is_refused() {
        let script = Script::new(&["HTTP/1.1 400 Bad Request\r\n"]);
        let error = Facts::ask(&mut link(&script), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().starts_with("no memcached"), "{error}");
    }

    #[test]
    fn a_page_without_an_end_is_an_error() {
        let error = page(&mut endless(b"STAT a 1\r\n", &GO_ON), "items").unwrap_err();
        assert!(error.to_string().starts_with("`stats items` has no end"), "{error}");
    }

    #[test]
    fn absurd_numbers_are_not_believed() {
        let general = "STAT curr_items -1\r\nSTAT cmd_get 18446744073709551616\r\n\
                       STAT cmd_set 18446744073709551615\r\nEND\r\n";
        let settings = "STAT growth_factor nan\r\nSTAT chunk_size 18446744073709551615\r\n\
                        STAT slab_chunk_max -5\r\nEND\r\n";
        let slabs = "STAT 1:chunk_size 0\r\nSTAT 2:chunk_size 99999999999\r\nEND\r\n";
        let script = Script::new(&["VERSION 1.6\r\n", general, settings, slabs]);
        let facts = Facts::ask(&mut link(&script), &mut Vec::new()).unwrap();
        assert_eq!((facts.counters.items, facts.counters.gets), (0, 0));
        assert!(facts.slabs.item_bytes(100).is_finite());
    }
}
