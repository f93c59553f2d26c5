//! Lists of the stored items for operators: `stats cachedump`, `lru_crawler metadump` and `mgdump`. The
//! embedded store is walked in bounded steps. Lists of memcached servers are forwarded over separate
//! connections, because they may be longer than any other answer.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::rc::Rc;
use std::time::Duration;

use protocol::key::uri_encode;
use protocol::{MetaKey, Tokens, request};
use store::embedded::{CoarseClock, Listed};
use tokio::time::timeout;
use units::limits::ITEM_OVERHEAD_BYTES;

use super::Session;
use super::connection::OUT_BYTES_MAX;
use crate::backend::Backend;
use crate::context::WorkerContext;
use crate::stream::Stream;

/// The format of a requested list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Lines `ITEM key [bytes b; expiry s]` for at most `items_max` items.
    Cache { items_max: u64 },
    /// Lines `key=... exp=... la=... cas=... fetch=... cls=... size=...`.
    Meta,
    /// Lines `mg key`.
    MetaGet,
}

/// The reason why a list ends early.
enum Cut {
    /// An error, whose line replaces the end of the list.
    Line(Vec<u8>),
    /// The client has disconnected or does not read.
    Client,
}

/// A guard that allows one list of the servers' items at a time per worker.
struct ForwardingGuard(Rc<WorkerContext>);

impl Drop for ForwardingGuard {
    fn drop(&mut self) {
        self.0.is_forwarding.set(false);
    }
}

impl Session {
    /// Serves `stats cachedump CLASS LIMIT`. Like memcached, it ignores further arguments.
    pub(super) async fn cachedump(&mut self, mut arguments: Tokens<'_>) {
        let (Some(class), Some(limit)) = (arguments.next(), arguments.next()) else {
            return self.out.text().extend_from_slice(b"CLIENT_ERROR bad command line\r\n");
        };
        let (Some(class), Some(items_max)) = (number(class), number(limit)) else {
            return self.out.text().extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
        };
        if class >= CLASSES {
            return self.out.text().extend_from_slice(b"CLIENT_ERROR Illegal slab id\r\n");
        }
        if !self.context.config.server.dump {
            let line = b"CLIENT_ERROR stats cachedump not allowed\r\n";
            return self.out.text().extend_from_slice(line);
        }
        let items_max = if items_max == 0 { u64::MAX } else { u64::from(items_max) };
        let asked = format!("stats cachedump {class} {limit}\r\n", limit = tell(items_max));
        self.list(Form::Cache { items_max }, class == CLASS, &asked).await;
    }

    /// Serves the forms of `lru_crawler` that produce lists. Returns false for other forms.
    pub(super) async fn crawl(&mut self, mut arguments: Tokens<'_>) -> bool {
        let (form, name) = match arguments.next() {
            Some(b"metadump") => (Form::Meta, "metadump"),
            Some(b"mgdump") => (Form::MetaGet, "mgdump"),
            _ => return false,
        };
        let (Some(classes), None) = (arguments.next(), arguments.next()) else {
            self.out.text().extend_from_slice(b"ERROR\r\n");
            return true;
        };
        let Some(has_ours) = has_our_class(classes) else {
            self.out.text().extend_from_slice(b"BADCLASS invalid class id\r\n");
            return true;
        };
        if !self.context.config.server.dump {
            let _ = write!(self.out.text(), "ERROR {name} not allowed\r\n");
            return true;
        }
        let asked = format!("lru_crawler {name} {}\r\n", String::from_utf8_lossy(classes));
        self.list(form, has_ours, &asked).await;
        true
    }

    async fn list(&mut self, form: Form, has_ours: bool, asked: &str) {
        let backend = self.context.backend.clone();
        let listed = match &backend {
            Backend::Local(local) if has_ours => {
                let time = local.time().clone();
                match local.walk() {
                    Some(walk) => self.walk(form, walk, &time).await,
                    None => Err(Cut::Line(busy(form).to_vec())),
                }
            }
            Backend::Local(_) => Ok(()),
            Backend::Cluster(_) if self.context.is_forwarding.replace(true) => {
                Err(Cut::Line(busy(form).to_vec()))
            }
            Backend::Cluster(_) => {
                let _guard = ForwardingGuard(Rc::clone(&self.context));
                self.forward_lists(form, &backend, asked).await
            }
        };
        match listed {
            Ok(()) => self.out.text().extend_from_slice(form.end()),
            Err(Cut::Line(line)) => self.out.text().extend_from_slice(&line),
            Err(Cut::Client) => self.cut_off(),
        }
    }

    /// Lists the embedded store. Between steps it flushes the lines to the client and yields to other tasks.
    async fn walk(
        &mut self,
        form: Form,
        mut walk: store::embedded::Walk,
        time: &CoarseClock,
    ) -> Result<(), Cut> {
        let mut left = form.items_max();
        loop {
            let out = self.out.text();
            let now_s = time.now_s();
            let more = walk.step(now_s, |item| {
                if left > 0 && form.line(&item, time, now_s, out) {
                    left -= 1;
                }
            });
            self.flush_within_limit().await?;
            if !more || left == 0 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Forwards the list of each server, one server after the other.
    async fn forward_lists(
        &mut self,
        form: Form,
        backend: &Backend,
        asked: &str,
    ) -> Result<(), Cut> {
        let Backend::Cluster(cluster) = backend else { return Ok(()) };
        let mut left = form.items_max();
        for link in cluster.links() {
            if left == 0 {
                break;
            }
            let Some((stream, request_timeout)) = link.dial().await else {
                return Err(Cut::Line(ELSEWHERE.to_vec()));
            };
            let mut lines = match stream {
                Ok(stream) => Lines { stream, request_timeout, input: Vec::new(), start: 0 },
                Err(_) => return Err(Cut::Line(DOWN.to_vec())),
            };
            lines.send(asked).await.map_err(|_| Cut::Line(DOWN.to_vec()))?;
            while left > 0 {
                let Ok(line) = lines.next().await else {
                    return Err(Cut::Line(WENT_AWAY.to_vec()));
                };
                if line.starts_with(form.beginning()) {
                    self.out.text().extend_from_slice(line);
                    left -= 1;
                } else if line == form.end() || line.starts_with(b"NOTSTARTED") {
                    break;
                } else {
                    return Err(Cut::Line(refused(line)));
                }
                if self.out.len() >= OUT_BYTES_MAX {
                    self.flush_within_limit().await?;
                }
            }
        }
        Ok(())
    }

    /// Flushes the gathered lines. Fails if the client does not receive them within [`STALL_MAX`].
    async fn flush_within_limit(&mut self) -> Result<(), Cut> {
        match timeout(STALL_MAX, self.flush()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Cut::Client),
        }
    }
}

impl Form {
    const fn items_max(self) -> u64 {
        match self {
            Form::Cache { items_max } => items_max,
            Form::Meta | Form::MetaGet => u64::MAX,
        }
    }

    const fn beginning(self) -> &'static [u8] {
        match self {
            Form::Cache { .. } => b"ITEM ",
            Form::Meta => b"key=",
            Form::MetaGet => b"mg ",
        }
    }

    const fn end(self) -> &'static [u8] {
        match self {
            Form::Cache { .. } | Form::Meta => b"END\r\n",
            Form::MetaGet => b"EN\r\n",
        }
    }

    /// Appends an item's line. Returns false if the item cannot be listed in this format.
    fn line(self, item: &Listed<'_>, time: &CoarseClock, now_s: u32, out: &mut Vec<u8>) -> bool {
        let date = |at_s: u32| if at_s == 0 { 0 } else { time.unix_at(at_s) };
        match self {
            // An `ITEM` line cannot contain a binary key.
            Form::Cache { .. } if item.key_is_binary => return false,
            Form::Cache { .. } => {
                out.extend_from_slice(b"ITEM ");
                out.extend_from_slice(item.key);
                let _ = write!(out, " [{} b; {} s]\r\n", item.value_bytes, date(item.exptime_s));
            }
            Form::Meta => {
                out.extend_from_slice(b"key=");
                uri_encode(item.key, out);
                let exp = match item.exptime_s {
                    0 => -1,
                    at_s => i64::try_from(date(at_s)).unwrap_or(i64::MAX),
                };
                let fetch = if item.fetched { "yes" } else { "no" };
                let size = ITEM_OVERHEAD_BYTES + item.key.len() + item.value_bytes;
                let la = time.unix_at(now_s).saturating_sub(u64::from(item.idle_s));
                let cas = item.cas;
                let _ = writeln!(
                    out,
                    " exp={exp} la={la} cas={cas} fetch={fetch} cls={CLASS} size={size}"
                );
            }
            Form::MetaGet => {
                if let Ok(key) = MetaKey::new(item.key) {
                    request::meta_get(out, &key).end();
                }
            }
        }
        true
    }
}

/// Reads the lines of a server's list.
struct Lines {
    stream: Stream,
    /// The timeout of each read from the server and write to it.
    request_timeout: Duration,
    input: Vec<u8>,
    start: usize,
}

impl Lines {
    async fn send(&mut self, line: &str) -> io::Result<()> {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            timeout(self.request_timeout, poll_fn(|task| self.stream.poll_writable(task)))
                .await??;
            match self.stream.try_write(&[IoSlice::new(rest)]) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next line, including its line break.
    async fn next(&mut self) -> io::Result<&[u8]> {
        loop {
            let unread = &self.input[self.start..];
            if let Some(at) = unread.iter().position(|byte| *byte == b'\n') {
                let start = self.start;
                self.start += at + 1;
                return Ok(&self.input[start..self.start]);
            }
            if unread.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.input.drain(..self.start);
            self.start = 0;
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        loop {
            timeout(self.request_timeout, poll_fn(|task| self.stream.poll_readable(task)))
                .await??;
            let filled = self.input.len();
            self.input.resize(filled + READ_BYTES, 0);
            let read = self.stream.try_read(&mut self.input[filled..]);
            self.input.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the server's refusal, or a fixed text if `line` is not a known refusal.
fn refused(line: &[u8]) -> Vec<u8> {
    let known: [&[u8]; 5] = [b"BUSY ", b"BADCLASS ", b"ERROR", b"CLIENT_ERROR ", b"SERVER_ERROR "];
    if known.iter().any(|word| line.starts_with(word)) { line.to_vec() } else { NONSENSE.to_vec() }
}

const fn busy(form: Form) -> &'static [u8] {
    match form {
        Form::Cache { .. } => b"SERVER_ERROR another list of the items is being made\r\n",
        Form::Meta | Form::MetaGet => b"BUSY currently processing crawler request\r\n",
    }
}

/// Returns whether a list of classes contains [`CLASS`], or `None` if the text is not a list of classes.
fn has_our_class(classes: &[u8]) -> Option<bool> {
    if matches!(classes, b"all" | b"hash") {
        return Some(true);
    }
    let mut has_ours = false;
    for class in classes.split(|byte| *byte == b',') {
        let class = number(class).filter(|class| (1..CLASSES).contains(class))?;
        has_ours |= class == CLASS;
    }
    Some(has_ours)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn tell(items_max: u64) -> u64 {
    if items_max == u64::MAX { 0 } else { items_max }
}

/// The only slab class of the embedded store. memcached also has a class of this number.
const CLASS: u32 = super::meta::SLAB_CLASS;

/// The number of slab classes in memcached.
const CLASSES: u32 = 64;

/// The timeout for a client to receive a part of a list. Meanwhile, other lists are refused.
const STALL_MAX: Duration = Duration::from_secs(10);

/// The longest line (bytes): a key of 250 bytes, each escaped as three, and some numbers.
const LINE_BYTES_MAX: usize = 2 << 10;
const READ_BYTES: usize = 16 << 10;

const ELSEWHERE: &[u8] =
    b"SERVER_ERROR a store service lists no items: ask the servers behind it\r\n";
const DOWN: &[u8] = b"SERVER_ERROR the store is down\r\n";
const WENT_AWAY: &[u8] = b"SERVER_ERROR the store went away\r\n";
const NONSENSE: &[u8] = b"SERVER_ERROR the store answered nonsense\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_lists_are_those_of_memcached() {
        for (text, has_ours) in [
            ("all", Some(true)),
            ("hash", Some(true)),
            ("1", Some(true)),
            ("2,1", Some(true)),
            ("2", Some(false)),
            ("63", Some(false)),
            ("64", None),
            ("0", None),
            ("x", None),
            ("1,", None),
            ("-1", None),
        ] {
            assert_eq!(has_our_class(text.as_bytes()), has_ours, "{text}");
        }
    }
}
