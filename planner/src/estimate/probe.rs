//! Lists the items of a server and reads a sample of their values, at a bounded rate and without changing the order in
//! which the server evicts. Nothing is written to the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::response::Response;
use protocol::{Key, MetaKey, request};

use super::Error;
use super::facts::page;
use super::link::{Link, excerpt};
use super::listing::Listed;
use super::memory::overhead_bytes;
use super::pace::Pace;

/// The limits within which the server is read.
pub(super) struct Limits<'a> {
    pub(super) requests_per_s: f64,
    pub(super) bytes_per_s: f64,
    /// The longest time for a list of items.
    pub(super) list_max: Duration,
    /// Set if the user wants no more to be read.
    pub(super) stop: &'a AtomicBool,
}

impl Limits<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, unless the user wants an end.
    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_stopped() {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            thread::sleep(rest.min(PAUSE_MAX));
        }
    }
}

/// How a list ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All items were listed.
    Complete,
    /// The time was over, or the server ended the list early.
    Cut,
    /// The server lists nothing, with the beginning of its answer.
    Refused(String),
}

/// Lists items with `lru_crawler metadump`. In the order of hashes, the first part of a list is a random sample.
/// Reading pauses to keep the rate, and the server's crawler then waits.
pub(super) fn metadump(
    link: &mut Link<'_>,
    order: &str,
    limits: &Limits<'_>,
    take: impl FnMut(Listed),
) -> Result<Ending, Error> {
    link.send(format!("lru_crawler metadump {order}\r\n").as_bytes())?;
    Lister::new(limits).list(link, Listed::from_metadump, take)
}

/// Lists items with `stats cachedump`, which shows the most recent items of each slab class. The list is cut if a class
/// has more items than that.
pub(super) fn cachedump(
    link: &mut Link<'_>,
    limits: &Limits<'_>,
    has_cas: bool,
    mut take: impl FnMut(Listed),
) -> Result<Ending, Error> {
    let Some(items) = page(link, "items")? else {
        return Ok(Ending::Refused("no `stats items`".to_owned()));
    };
    let mut lister = Lister::new(limits);
    let mut all = true;
    for (name, count) in &items {
        let class = name.strip_prefix("items:").and_then(|name| name.strip_suffix(":number"));
        let Some(class) = class.filter(|class| class.parse::<u8>().is_ok()) else { continue };
        link.send(format!("stats cachedump {class} 0\r\n").as_bytes())?;
        let mut listed = 0_u64;
        let parse = |line: &[u8]| Listed::from_cachedump(line, overhead_bytes(has_cas));
        let counted = |item| {
            listed += 1;
            take(item);
        };
        match lister.list(link, parse, counted)? {
            Ending::Complete => all &= count.parse() == Ok(listed),
            ending => return Ok(ending),
        }
    }
    Ok(if all { Ending::Complete } else { Ending::Cut })
}

/// Reads lists at the rate, and within the time, that they may take together.
struct Lister<'a> {
    limits: &'a Limits<'a>,
    end: Instant,
    pace: Pace,
}

impl<'a> Lister<'a> {
    fn new(limits: &'a Limits<'a>) -> Self {
        let now = Instant::now();
        let pace = Pace::new(limits.bytes_per_s, now);
        Self { limits, end: now + limits.list_max, pace }
    }

    /// Reads lines up to `END`. The connection can be used again only if the list is complete.
    fn list(
        &mut self,
        link: &mut Link<'_>,
        parse: impl Fn(&[u8]) -> Option<Listed>,
        mut take: impl FnMut(Listed),
    ) -> Result<Ending, Error> {
        let (mut any, mut heard) = (false, Instant::now());
        loop {
            while let Some(line) = link.buffered_line()? {
                match parse(&line) {
                    Some(listed) => take(listed),
                    None if line == b"END" => return Ok(Ending::Complete),
                    None if any => return Ok(Ending::Cut),
                    None => return Ok(Ending::Refused(excerpt(&line))),
                }
                any = true;
            }
            let now = Instant::now();
            if now > self.end || now - heard > SILENCE_MAX || self.limits.is_stopped() {
                return Ok(Ending::Cut);
            }
            if let Some(bytes) = link.read_available()? {
                heard = now;
                self.limits.pause(self.pace.take(bytes as f64, now));
            }
        }
    }
}

/// One value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) class: usize,
    pub(super) key: Vec<u8>,
    pub(super) expires: bool,
    pub(super) has_flags: bool,
    pub(super) bytes: Vec<u8>,
}

/// How values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// `mg` with the flag `u`: the item stays where it is in the order of eviction.
    Unmoved,
    /// `mg` without that flag, for older servers.
    Meta,
    /// `get`, for servers without meta commands.
    Classic,
}

/// Reads the values of these items with their classes, at most [`VALUE_BYTES_MAX`] in total. Leaves out items that are
/// gone by now, and ends early if the caller wants to stop. Returns the values and how they were read. The connection
/// cannot be used again.
pub(super) fn sample(
    link: &mut Link<'_>,
    wanted: &[(usize, Listed)],
    limits: &Limits<'_>,
    mut advance: impl FnMut(usize),
) -> Result<(Vec<Value>, Read), Error> {
    let mut how = Read::Unmoved;
    let mut values = Vec::new();
    let now = Instant::now();
    let mut requests = Pace::new(limits.requests_per_s, now);
    let mut bytes = Pace::new(limits.bytes_per_s, now);
    let mut bytes_left = VALUE_BYTES_MAX;
    // Batches are so small that the server's thread gives other clients a turn every few requests.
    let batch = ((limits.requests_per_s / BATCHES_PER_S) as usize).clamp(1, BATCH_MAX);
    let mut rest = wanted;
    while !rest.is_empty() && !limits.is_stopped() {
        let (now_wanted, later) =
            rest.split_at(if values.is_empty() { 1 } else { batch.min(rest.len()) });
        let size: u64 = now_wanted.iter().map(|(_, listed)| listed.item_bytes).sum();
        let now = Instant::now();
        let wait = requests.take(now_wanted.len() as f64, now).max(bytes.take(size as f64, now));
        limits.pause(wait);
        match fetch(link, now_wanted, how, &mut bytes_left) {
            Ok(Fetched::Values(found)) => values.extend(found),
            Ok(Fetched::TooLong) | Err(Error::Stopped) => break,
            Ok(Fetched::Refused) => {
                how = match how {
                    Read::Unmoved => Read::Meta,
                    Read::Meta => Read::Classic,
                    Read::Classic => {
                        return Err(Error::Failed("the server refuses `get`".to_owned()));
                    }
                };
                continue;
            }
            Err(error) => return Err(error),
        }
        rest = later;
        advance(wanted.len() - rest.len());
    }
    Ok((values, how))
}

/// The result of some requests for values.
enum Fetched {
    Values(Vec<Value>),
    /// The server does not know the command.
    Refused,
    /// A value is longer than what may still be read.
    TooLong,
}

/// Reads some values, and takes their lengths from `bytes_left`.
fn fetch(
    link: &mut Link<'_>,
    wanted: &[(usize, Listed)],
    how: Read,
    bytes_left: &mut u64,
) -> Result<Fetched, Error> {
    let askable = |(_, listed): &&(usize, Listed)| match how {
        Read::Classic => Key::new(&listed.key).is_ok(),
        _ => MetaKey::new(&listed.key).is_ok(),
    };
    let wanted: Vec<&(usize, Listed)> = wanted.iter().filter(askable).collect();
    let mut text = Vec::new();
    for (_, listed) in &wanted {
        write_get(&mut text, &listed.key, how);
    }
    link.send(&text)?;
    let (mut values, mut is_refused) = (Vec::new(), false);
    for (class, listed) in wanted {
        let command = if how == Read::Classic { "get" } else { "mg" };
        let head = link.response(command, |response| head(&response))?;
        let Head::Value { bytes, has_flags } = head else {
            is_refused |= head == Head::Refused;
            continue;
        };
        let Some(left) = bytes_left.checked_sub(bytes) else { return Ok(Fetched::TooLong) };
        *bytes_left = left;
        let bytes = link.value(bytes as usize)?;
        if how == Read::Classic {
            link.line()?;
        }
        let (key, expires) = (listed.key.clone(), listed.expires);
        values.push(Value { class: *class, key, expires, has_flags, bytes });
    }
    Ok(if is_refused { Fetched::Refused } else { Fetched::Values(values) })
}

fn write_get(out: &mut Vec<u8>, key: &[u8], how: Read) {
    if how == Read::Classic {
        request::get(out, Key::new(key).ok(), false);
        return;
    }
    if let Ok(key) = MetaKey::new(key) {
        let line = request::meta_get(out, &key).flag(b'v').flag(b'f');
        if how == Read::Unmoved { line.flag(b'u').end() } else { line.end() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Value { bytes: u64, has_flags: bool },
    Missing,
    Refused,
}

fn head(response: &Response<'_>) -> Option<Head> {
    match response {
        Response::MetaValue { value_bytes, flags } => {
            let has_flags = flags.number(b'f').is_some_and(|flags| flags != 0);
            Some(Head::Value { bytes: *value_bytes, has_flags })
        }
        Response::Value { value_bytes, client_flags, .. } => {
            Some(Head::Value { bytes: *value_bytes, has_flags: *client_flags != 0 })
        }
        Response::MetaMiss { .. } | Response::End => Some(Head::Missing),
        Response::Error { .. } => Some(Head::Refused),
        _ => None,
    }
}

/// The longest pause of a list after which it counts as ended.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The longest sleep between two looks at the user's stop.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The most bytes of values that are read.
pub(super) const VALUE_BYTES_MAX: u64 = 64 << 20;

/// The number of batches in a second at which the rate is kept.
const BATCHES_PER_S: f64 = 200.0;

/// The most requests that are sent at once.
const BATCH_MAX: usize = 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::link::tests::{GO_ON, Script, endless, link};
    use super::*;

    fn limits(stop: &AtomicBool) -> Limits<'_> {
        let list_max = Duration::from_secs(60);
        Limits { requests_per_s: 1e6, bytes_per_s: 1e12, list_max, stop }
    }

    fn wanted(keys: &[&str]) -> Vec<(usize, Listed)> {
        let listed = |key: &&str| {
            let key = key.as_bytes().to_vec();
            (0, Listed { key, expires: false, accessed_s: None, item_bytes: 60 })
        };
        keys.iter().map(listed).collect()
    }

    const LINE: &str = "key=a exp=-1 la=5 cas=2 fetch=no cls=1 size=60\r\n";

    fn dumped(pieces: &[&str]) -> (Ending, usize) {
        let stop = AtomicBool::new(false);
        let mut count = 0;
        let mut link = link(&Script::new(pieces));
        let ending = metadump(&mut link, "hash", &limits(&stop), |_| count += 1).unwrap();
        (ending, count)
    }

    #[test]
    fn a_list_ends_at_its_last_line() {
        assert_eq!(dumped(&[LINE, LINE, "END\r\n"]), (Ending::Complete, 2));
    }

    #[test]
    fn an_error_within_a_list_cuts_it() {
        assert_eq!(dumped(&[LINE, "ERROR gone\r\n"]), (Ending::Cut, 1));
    }

    #[test]
    fn a_refused_list_says_why() {
        let refused = Ending::Refused("ERROR metadump not allowed".to_owned());
        assert_eq!(dumped(&["ERROR metadump not allowed\r\n"]), (refused, 0));
    }

    #[test]
    fn cachedump_asks_for_every_class() {
        let stop = AtomicBool::new(false);
        let items = "STAT items:3:number 2\r\nSTAT items:3:age 1\r\nEND\r\n";
        let script = Script::new(&[items, "ITEM a [5 b; 0 s]\r\nEND\r\n"]);
        let mut found = Vec::new();
        let ending =
            cachedump(&mut link(&script), &limits(&stop), true, |listed| found.push(listed));
        assert_eq!((ending.unwrap(), found.len()), (Ending::Cut, 1));
        let sent = script.sent.borrow().clone();
        assert_eq!(sent, b"stats items\r\nstats cachedump 3 0\r\n");
    }

    #[test]
    fn values_are_read_without_moving_items() {
        let stop = AtomicBool::new(false);
        let script = Script::new(&["VA 2 f3\r\nab\r\n", "EN\r\nVA 1 f0\r\nx\r\n"]);
        let wanted = wanted(&["a", "b", "c d"]);
        let (values, how) = sample(&mut link(&script), &wanted, &limits(&stop), |_| {}).unwrap();
        assert_eq!(how, Read::Unmoved);
        let bytes: Vec<&[u8]> = values.iter().map(|value| value.bytes.as_slice()).collect();
        assert_eq!(bytes, [&b"ab"[..], b"x"]);
        assert!(values[0].has_flags && !values[1].has_flags);
        let sent = script.sent.borrow().clone();
        assert_eq!(sent, b"mg a v f u\r\nmg b v f u\r\nmg YyBk b v f u\r\n");
    }

    #[test]
    fn older_servers_are_asked_in_older_ways() {
        let stop = AtomicBool::new(false);
        let script = Script::new(&[
            "CLIENT_ERROR invalid flag\r\n",
            "ERROR\r\n",
            "VALUE a 0 2\r\nab\r\nEND\r\n",
            "END\r\n",
        ]);
        let (values, how) =
            sample(&mut link(&script), &wanted(&["a", "b"]), &limits(&stop), |_| {}).unwrap();
        assert_eq!((values.len(), how), (1, Read::Classic));
        assert!(script.sent.borrow().ends_with(b"get a\r\nget b\r\n"));
    }

    #[test]
    fn a_stop_keeps_what_was_read() {
        let stop = AtomicBool::new(true);
        let script = Script::new(&[]);
        let (values, _) =
            sample(&mut link(&script), &wanted(&["a"]), &limits(&stop), |_| {}).unwrap();
        assert!(values.is_empty() && script.sent.borrow().is_empty());
    }

    #[test]
    fn a_list_without_an_end_is_cut() {
        let limits = Limits { list_max: Duration::from_millis(50), ..limits(&GO_ON) };
        let mut count = 0_u64;
        let mut link = endless(LINE.as_bytes(), &GO_ON);
        let ending = metadump(&mut link, "hash", &limits, |_| count += 1);
        assert_eq!(ending, Ok(Ending::Cut));
        assert!(count > 1_000, "{count}");
    }

    #[test]
    fn a_stop_cuts_a_list() {
        let stop = AtomicBool::new(true);
        let mut link = endless(LINE.as_bytes(), &stop);
        let ending = metadump(&mut link, "hash", &limits(&stop), |_| {});
        assert_eq!(ending, Ok(Ending::Cut));
    }

    #[test]
    fn a_stop_ends_a_pause() {
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| limits(&stop).pause(Duration::from_secs(600)));
            stop.store(true, Ordering::Relaxed);
        });
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn values_beyond_all_bytes_end_the_sample() {
        let stop = AtomicBool::new(false);
        for length in ["67108865", "18446744073709551615"] {
            let script = Script::new(&["VA 2 f0\r\nab\r\n", &format!("VA {length} f0\r\nab")]);
            let found = sample(&mut link(&script), &wanted(&["a", "b"]), &limits(&stop), |_| {});
            assert_eq!(found.unwrap().0.len(), 1, "{length}");
        }
    }

    #[test]
    fn a_stop_within_a_batch_keeps_earlier_values() {
        let stop = AtomicBool::new(false);
        let script = Script::new(&["VA 2 f0\r\nab\r\n", "VA 2 f0\r\n"]);
        let connect = || Ok(Box::new(script.clone()) as Box<dyn super::super::Connection>);
        let mut link = Link::open(&connect, &stop).unwrap();
        let advance = |_| stop.store(true, Ordering::Relaxed);
        let (values, _) = sample(&mut link, &wanted(&["a", "b"]), &limits(&stop), advance).unwrap();
        assert_eq!(values.len(), 1);
    }
}
