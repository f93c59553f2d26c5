//! The minimum transfer rate of a client that sends a value or receives answers and so holds memory. If
//! others wait for that memory, a slow client soon loses its connection. Otherwise it loses the connection
//! only if it almost stops.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use device::Buffer;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Session;
use super::connection::{OUT_BYTES_MAX, Transport};
use crate::connection_table::State;
use crate::context::WorkerContext;
use crate::reply_buffer::CALL_BYTES_MAX;

/// The progress of one transfer: its start, the bytes moved since then, and the time of the last move.
pub(super) struct Pace {
    since: Instant,
    moved: Instant,
    bytes: u64,
    /// The time without progress after which the client loses its connection in any case.
    idle_max: Duration,
    /// True if the client holds memory of the budget, for which others may wait.
    is_charged: bool,
}

impl Pace {
    /// Starts a transfer that uses only the connection's buffers.
    pub(super) fn uncharged(context: &WorkerContext) -> Self {
        let now = Instant::now();
        let idle_max = context.idle_timeout.map_or(STANDSTILL_MAX, |idle| idle.min(STANDSTILL_MAX));
        Self { since: now, moved: now, bytes: 0, idle_max, is_charged: false }
    }

    /// Starts a transfer of a value that is charged to the budget.
    pub(super) fn charged(context: &WorkerContext) -> Self {
        Self { is_charged: true, ..Self::uncharged(context) }
    }

    fn moved(&mut self, bytes: usize) {
        self.moved = Instant::now();
        self.bytes += bytes as u64;
    }

    /// Returns the time at which the client is too slow for others who wait for memory, if no more bytes move. The
    /// bytes that it moved quickly give it no right to a long pause.
    fn due_wanted(&self) -> Instant {
        self.due(GRACE_WANTED).min(self.moved + PAUSE_WANTED_MAX)
    }

    /// Returns the time at which the client is too slow if no more bytes move, with an initial `grace`.
    fn due(&self, grace: Duration) -> Instant {
        self.since + grace + Duration::from_micros(self.bytes * MICROS_PER_KIB / 1024)
    }
}

impl Session {
    /// Reads a part of a value at the required rate. Returns 0 at the end of the stream. The sessions of clients that
    /// send long values as fast as they are read take turns, so that others do not wait for the end of a value.
    pub(super) async fn read_paced(&self, space: &mut [u8], pace: &mut Pace) -> io::Result<usize> {
        let stream = self.stream()?;
        let space_bytes = space.len().min(CALL_BYTES_MAX);
        let space = &mut space[..space_bytes];
        loop {
            match stream.try_read(space) {
                Ok(bytes) => {
                    self.context.counters.commands.bytes_read.add(bytes as u64);
                    pace.moved(bytes);
                    if pace.bytes > OUT_BYTES_MAX as u64 {
                        self.context.turns.take(bytes).await;
                    }
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            self.set_state(State::ReadsValue);
            let readable = || poll_fn(|task| stream.poll_readable(task));
            let given_up = pace.due(GRACE).min(pace.moved + pace.idle_max);
            let soon = if pace.is_charged { pace.due_wanted().min(given_up) } else { given_up };
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

    /// Appends bytes of a long line to `input` at the required rate. Returns false at the end of the stream.
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

    /// Writes all answers to a client that does not accept them at once, at the required rate.
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
                    due = due.min(Instant::now() + PAUSE_WANTED_MAX);
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

/// Completes when others wait for memory, but not before `due`.
async fn wanted_after(due: Instant, context: &WorkerContext) {
    sleep_until(due).await;
    context.budget.wanted().await;
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} too slowly"))
}

/// The time per KiB at the minimum rate of a client that holds memory others need: 64 KiB per second (us).
const MICROS_PER_KIB: u64 = 1_000_000 / 64;

/// The initial grace time if others wait for the memory.
const GRACE_WANTED: Duration = Duration::from_millis(100);

/// The longest pause within a value if others wait for the memory.
const PAUSE_WANTED_MAX: Duration = Duration::from_secs(1);

/// The initial grace time if no others wait for the memory. It allows long pauses.
const GRACE: Duration = Duration::from_secs(60);

/// The longest pause within a value.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
