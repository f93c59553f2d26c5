//! The pace at which a client must receive its answers and send a value that it has begun, because memory is held
//! meanwhile. A slow client soon loses its connection if others wait for that memory. Otherwise it loses the connection
//! only if it almost stands still.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use device::Buffer;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Session;
use super::connection::{OUT_BYTES_MAX, Transport};
use crate::context::WorkerContext;
use crate::reply_buffer::CALL_BYTES_MAX;

/// The pace of one transfer: the bytes that have moved since its start, and the time of the last move.
pub(super) struct Pace {
    since: Instant,
    moved: Instant,
    bytes: u64,
    /// The time without a byte after which the client loses its connection in any case.
    idle_max: Duration,
    /// Whether the client holds memory that others may wait for.
    is_charged: bool,
}

impl Pace {
    /// Starts the pace of a value that is read into memory of the connection's buffers.
    pub(super) fn uncharged(context: &WorkerContext) -> Self {
        let now = Instant::now();
        let idle_max = context.idle_timeout.map_or(STANDSTILL_MAX, |idle| idle.min(STANDSTILL_MAX));
        Self { since: now, moved: now, bytes: 0, idle_max, is_charged: false }
    }

    /// Starts the pace of a value that has its part of the budget.
    pub(super) fn charged(context: &WorkerContext) -> Self {
        Self { is_charged: true, ..Self::uncharged(context) }
    }

    fn moved(&mut self, bytes: usize) {
        self.moved = Instant::now();
        self.bytes += bytes as u64;
    }

    /// Returns the time at which the client becomes too slow unless more bytes move. The client has `grace` at first.
    fn due(&self, grace: Duration) -> Instant {
        self.since + grace + Duration::from_micros(self.bytes * MICROS_PER_KIB / 1024)
    }
}

impl Session {
    /// Reads a part of a value. Returns zero at the end of the stream.
    pub(super) async fn read_paced(&self, space: &mut [u8], pace: &mut Pace) -> io::Result<usize> {
        let stream = self.stream()?;
        loop {
            match stream.try_read(space) {
                Ok(bytes) => {
                    self.context.counters.commands.bytes_read.add(bytes as u64);
                    pace.moved(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let readable = || poll_fn(|task| stream.poll_readable(task));
            let given_up = pace.due(GRACE).min(pace.moved + pace.idle_max);
            let soon =
                if pace.is_charged { pace.due(GRACE_WANTED).min(given_up) } else { given_up };
            if let Ok(ready) = timeout_at(soon, readable()).await {
                ready?;
                continue;
            }
            tokio::select! {
                biased;
                ready = readable() => ready?,
                () = sleep_until(given_up) => {
                    self.context.counters.commands.slow_kicks.up();
                    return Err(too_slow("sends a value"));
                }
                () = self.context.budget.wanted(), if pace.is_charged => {
                    // Another user may have returned memory in the meantime.
                    if self.context.budget.is_wanted() {
                        self.context.counters.commands.slow_kicks.up();
                        return Err(too_slow("sends a value"));
                    }
                }
            }
        }
    }

    /// Appends more bytes of a long line to `input`. Returns false at the end of the stream.
    pub(super) async fn read_more_paced(
        &self,
        input: &mut Buffer,
        pace: &mut Pace,
    ) -> io::Result<bool> {
        let filled = input.len();
        let bytes = self.read_paced(&mut input.space()[filled..], pace).await?;
        input.set_len(filled + bytes);
        Ok(bytes > 0)
    }

    /// Writes the answers to a client that does not receive them at once.
    pub(super) async fn write_paced(&mut self) -> io::Result<()> {
        let mut due = Instant::now() + GRACE_WANTED;
        let context = Rc::clone(&self.context);
        loop {
            let Self { transport: Transport::Stream(stream), out, .. } = self else {
                return Ok(());
            };
            let is_charged = out.is_charged();
            let writable = poll_fn(|task| stream.poll_writable(task));
            tokio::select! {
                biased;
                ready = writable => ready?,
                () = wanted_after(due, &context), if is_charged => {
                    if context.budget.is_wanted() {
                        context.counters.commands.slow_kicks.up();
                        return Err(too_slow("takes its answers"));
                    }
                    continue;
                }
            }
            let before = out.len();
            if before > OUT_BYTES_MAX {
                context.turns.take(before.min(CALL_BYTES_MAX)).await;
            }
            match out.write(|slices| stream.try_write(slices)) {
                Ok(left) => {
                    let bytes = (before - left) as u64;
                    context.counters.commands.bytes_written.add(bytes);
                    due += Duration::from_micros(bytes * MICROS_PER_KIB / 1024);
                    if left == 0 {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Completes once others wait for memory, and not before `due`.
async fn wanted_after(due: Instant, context: &WorkerContext) {
    sleep_until(due).await;
    context.budget.wanted().await;
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} too slowly"))
}

/// The slowest pace of a client that holds memory for which others wait: 64 KiB per second. A client on the other side
/// of the world is faster.
const MICROS_PER_KIB: u64 = 1_000_000 / 64;

/// The initial time if others wait for the memory. It is enough for a client that reads and writes at all.
const GRACE_WANTED: Duration = Duration::from_millis(100);

/// The initial time if nobody waits for the memory. A client may pause for long, but its value must still come at the
/// slowest pace.
const GRACE: Duration = Duration::from_secs(60);

/// The time without a byte after which a client that has begun a value counts as gone.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
