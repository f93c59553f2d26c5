//! Writes the log to stderr. The level comes from RUST_LOG if that is set, otherwise from the command line. Logging
//! only puts a line into a bounded queue, and a separate thread writes it. So a full disk, a closed pipe or a pipe that
//! is never read costs lines, but never blocks or ends the process. Lost lines are counted
//! (`server::counters::LOG_LOSSES`). When the log can be written again, it says how many lines were lost.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, poll};
use server::config::LogFormat;
use server::counters::LOG_LOSSES;
use telemetry::otlp::{LogLine, Severity, put_line};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Starts logging at `level` (`error`, `warn`, `info`, `debug` or `trace`). Libraries log only warnings, or at `level`
/// if `libraries` is set. After this call nothing else may write to stderr. Panics are also logged.
pub(crate) fn start(level: &str, libraries: bool, format: LogFormat) {
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(directives(level, libraries)));
    let is_terminal = io::stderr().is_terminal();
    if let Some(queue) = stderr().and_then(Queue::start) {
        let _ = QUEUE.set(queue);
    }
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Enqueue)
        .log_internal_errors(false);
    match format {
        LogFormat::Text => subscriber.with_ansi(is_terminal).finish().with(Forward).init(),
        LogFormat::Json => {
            IS_JSON.store(true, Ordering::Relaxed);
            let subscriber = subscriber.json().flatten_event(true);
            let subscriber = subscriber.with_current_span(false).with_span_list(false);
            subscriber.finish().with(Forward).init();
        }
    }
    std::panic::set_hook(Box::new(log_panic));
}

/// Returns the filter's text. It names the crates of this workspace, because libraries may log a lot. At `debug` the
/// HTTP/2 library logs every frame.
fn directives(level: &str, libraries: bool) -> String {
    if libraries {
        return level.to_owned();
    }
    let ours = CRATES.map(|name| format!(",{name}={level}"));
    format!("warn{}", ours.concat())
}

/// The crates of this workspace that log.
const CRATES: [&str; 4] = ["rebate", "server", "drivers", "telemetry"];

/// Returns a line with this text that belongs to no event, in the form of the log.
fn formed(text: &str) -> String {
    if !IS_JSON.load(Ordering::Relaxed) {
        return format!("{text}\n");
    }
    let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    let line = serde_json::json!({
        "timestamp": timestamp, "level": "WARN", "target": "rebate", "message": text,
    });
    format!("{line}\n")
}

/// Whether every line of the log is an object of JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Logs a line unchanged at any level, because operators must read it.
pub(crate) fn line(text: &str) {
    match QUEUE.get() {
        Some(queue) => queue.put(formed(text).as_bytes()),
        // Logging has not started. Nothing is served yet, so waiting for stderr does no harm.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Waits until everything logged so far is written, but only for a short time, because the reader may never read.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_LIMIT);
    }
}

/// Opens stderr a second time. The standard library's handle has a lock that a blocked write would hold forever.
fn stderr() -> Option<File> {
    let copy: io::Result<OwnedFd> = io::stderr().as_fd().try_clone_to_owned();
    copy.ok().map(File::from)
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let why = info.payload_as_str().unwrap_or("no message");
    match info.location() {
        Some(location) => tracing::error!("thread {thread} panicked at {location}: {why}"),
        None => tracing::error!("thread {thread} panicked: {why}"),
    }
}

/// The log's queue, once logging has started.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The lines that wait for the thread that writes them.
#[derive(Debug)]
struct Queue {
    entries: Sender<Entry>,
    bytes: &'static AtomicUsize,
}

#[derive(Debug)]
enum Entry {
    Line(Box<[u8]>),
    /// A marker. Its sender is dropped when all earlier lines are written.
    Flushed(#[expect(dead_code, reason = "its end is what tells")] Sender<()>),
}

impl Queue {
    /// Starts the thread that writes to `out`. Returns `None` if the system has no thread for it.
    fn start(out: File) -> Option<Self> {
        let (entries, queued) = bounded(LINES_MAX);
        let bytes: &'static AtomicUsize = Box::leak(Box::default());
        let write = move || Writer { out, torn: false, reported: 0 }.run(&queued, bytes);
        std::thread::Builder::new().name("rebate-log".to_owned()).spawn(write).ok()?;
        Some(Self { entries, bytes })
    }

    /// Queues the line or counts it as lost. It never waits and never fails.
    fn put(&self, line: &[u8]) {
        let queued = self.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let fits = queued + line.len() <= BYTES_MAX;
        if !fits || self.entries.try_send(Entry::Line(line.into())).is_err() {
            self.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            LOG_LOSSES.queue_full.up();
        }
    }

    fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let (flushed, wait) = bounded::<()>(0);
        if self.entries.send_deadline(Entry::Flushed(flushed), deadline).is_ok() {
            let _ = wait.recv_deadline(deadline);
        }
    }
}

/// The state of the writing thread.
struct Writer {
    out: File,
    /// Whether the last write ended in the middle of a line.
    torn: bool,
    /// The number of lost lines that the log has reported.
    reported: u64,
}

impl Writer {
    fn run(mut self, queued: &Receiver<Entry>, bytes: &AtomicUsize) {
        for entry in queued {
            let Entry::Line(line) = entry else { continue };
            let lost = LOG_LOSSES.queue_full.read() + LOG_LOSSES.write_failed.read();
            if lost > self.reported {
                let lines = lost - self.reported;
                let notice = formed(&format!("{lines} log lines were lost before this one"));
                if self.write(notice.as_bytes()).is_ok() {
                    self.reported = lost;
                }
            }
            if self.write(&line).is_err() {
                LOG_LOSSES.write_failed.up();
            }
            bytes.fetch_sub(line.len(), Ordering::Relaxed);
        }
    }

    /// Writes the whole line. If the last line was cut off, it first writes a line end.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write_part(b"\n")?;
            self.torn = false;
        }
        self.write_part(line)
    }

    fn write_part(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_writable(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the pipe can be written. Another process that shares it may have made it non-blocking.
    fn wait_writable(&self) {
        let _ = poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], None);
    }
}

/// A writer that queues each event's text. The subscriber passes the text in one piece.
struct Enqueue;

impl<'w> MakeWriter<'w> for Enqueue {
    type Writer = Enqueue;
    fn make_writer(&'w self) -> Enqueue {
        Enqueue
    }
}

impl Write for Enqueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) => queue.put(line),
            None => LOG_LOSSES.queue_full.up(),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes events on to the exporter of this process, if it exports the log.
struct Forward;

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // Sending a line must not cause the next one.
        if TRANSPORT.iter().any(|library| metadata.target().starts_with(library)) {
            return;
        }
        put_line(|| {
            let mut fields = Fields::default();
            event.record(&mut fields);
            LogLine {
                time: units::unix_time().into(),
                severity: severity(*metadata.level()),
                target: metadata.target().to_owned(),
                message: fields.message,
                fields: fields.others,
            }
        });
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Fields {
    fn add(&mut self, field: &Field, text: String) {
        match field.name() {
            "message" => self.message = text,
            name => self.others.push((name, text)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warn,
        Level::INFO => Severity::Info,
        Level::DEBUG => Severity::Debug,
        Level::TRACE => Severity::Trace,
    }
}

/// The crates that send lines to a collector.
const TRANSPORT: [&str; 6] = ["h2", "hyper", "rustls", "telemetry", "tonic", "tower"];

/// The most lines that wait to be written. At the most detailed level, a process logs as many lines in
/// several seconds, usually a few hundred KiB.
const LINES_MAX: usize = 8_192;
/// The most bytes of all lines that wait to be written.
const BYTES_MAX: usize = 4 << 20;

/// The longest time that an ending process waits for the reader of its log. An active reader needs less time.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn libraries_log_warnings_unless_asked() {
        assert_eq!(
            directives("debug", false),
            "warn,rebate=debug,server=debug,drivers=debug,telemetry=debug"
        );
        assert_eq!(directives("trace", true), "trace");
    }

    #[test]
    fn every_crate_that_logs_is_named() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for folder in std::fs::read_dir(root).unwrap().flatten() {
            let manifest = std::fs::read_to_string(folder.path().join("Cargo.toml"));
            if manifest.unwrap_or_default().lines().any(|line| line.starts_with("tracing = ")) {
                let name = folder.file_name().into_string().unwrap();
                let name = if name == "cli" { "rebate" } else { &*name };
                assert!(CRATES.contains(&name), "{name}");
            }
        }
    }

    /// Checks all cases of lost lines in one test, because the tests of a process share the counters.
    #[test]
    fn lost_lines_are_counted_and_told_of() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::start(File::from(OwnedFd::from(writer))).unwrap();
        let lost = || LOG_LOSSES.queue_full.read();
        let long = vec![b'x'; 1 << 20];
        // The pipe holds 64 KiB of the first line, and the queue holds three more lines.
        for _ in 0..10 {
            queue.put(&long);
        }
        assert!(lost() >= 6, "{} lines were lost", lost());
        queue.flush(Duration::ZERO);
        let wanted = format!("{} log lines were lost before this one\n", lost());
        let reading = std::thread::spawn(move || {
            let (mut all, mut part) = (Vec::new(), [0; 4096]);
            while !all.ends_with(b"after\n") {
                let count = reader.read(&mut part).unwrap();
                assert!(count > 0, "the log ended");
                all.extend_from_slice(&part[..count]);
            }
            String::from_utf8(all).unwrap()
        });
        while queue.bytes.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        queue.put(b"after\n");
        let text = reading.join().unwrap();
        assert!(text.contains(&wanted), "{}", text.trim_start_matches('x'));

        let full = File::options().write(true).open("/dev/full").unwrap();
        let queue = Queue::start(full).unwrap();
        queue.put(b"nowhere to go\n");
        queue.flush(Duration::from_secs(30));
        assert_eq!(LOG_LOSSES.write_failed.read(), 1);
    }
}
