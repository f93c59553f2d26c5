//! The server's counters: one [`Counters`] per worker, written without contention and summed by the reader. Names are
//! memcached's where it has one. The runtime's own metrics count which path a job took.

use std::sync::atomic::{AtomicU64, Ordering};

use policy::RawReason;
use units::Nanos;

/// One counter; relaxed, because nothing is decided by it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// One more.
    pub fn up(&self) {
        self.add(1);
    }

    /// `by` more.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets the current value, for gauges.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// One less, for gauges.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// One more for as long as what is returned lives, however its scope ends.
    pub fn during(&self) -> Up<'_> {
        self.up();
        Up(self)
    }

    /// The count.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Back to zero (`stats reset`).
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A counter that goes down again when this is dropped.
#[must_use = "what is counted ends when this is dropped"]
pub struct Up<'a>(&'a Counter);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.down();
    }
}

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $name { $($(#[$doc])* pub $field: Counter,)* }

        impl $name {
            /// Every counter with its name, in the order of declaration.
            pub fn named(&self) -> Vec<(&'static str, &Counter)> {
                vec![$((stringify!($field), &self.$field),)*]
            }
        }
    };
}

counters! {
    /// Counts that memcached has per command and connection.
    Commands {
        /// Connections open now.
        curr_connections,
        /// Connections opened since the start.
        total_connections,
        /// Connections refused because of `connections_max`.
        rejected_connections,
        /// Connections closed because of `idle_timeout_s`, or to traces without a first request.
        idle_kicks,
        /// Connections closed because they sent or took a value too slowly, for its memory.
        slow_kicks,
        /// Retrieval commands' keys.
        cmd_get,
        /// Storage commands.
        cmd_set,
        /// flush_all commands.
        cmd_flush,
        /// touch, gat and gats keys.
        cmd_touch,
        /// Meta commands.
        cmd_meta,
        /// Keys found.
        get_hits,
        /// Keys not found.
        get_misses,
        /// Deletions of an item that was there.
        delete_hits,
        /// Deletions of an item that was not.
        delete_misses,
        /// Increments of an item that was there.
        incr_hits,
        /// Increments of an item that was not.
        incr_misses,
        /// Decrements of an item that was there.
        decr_hits,
        /// Decrements of an item that was not.
        decr_misses,
        /// cas that stored.
        cas_hits,
        /// cas of an item that was not there.
        cas_misses,
        /// cas of another version.
        cas_badval,
        /// touch of an item that was there.
        touch_hits,
        /// touch of an item that was not.
        touch_misses,
        /// Values over the item limit.
        store_too_large,
        /// Values for which there was no memory.
        store_no_memory,
        /// Bytes read from clients.
        bytes_read,
        /// Bytes written to clients.
        bytes_written,
        /// Times that a connection gave way to others in the middle of its commands.
        conn_yields,
        /// Lines that were no command.
        bad_lines,
        /// Requests that a memcached server did not answer properly.
        upstream_errors,
        /// Connections to memcached servers made.
        upstream_connects,
        /// Requests to memcached servers that timed out.
        upstream_timeouts,
        /// Sessions that waited because too many bytes were in flight.
        backpressure_waits,
    }
}

counters! {
    /// Counts of what happened to values.
    Values {
        /// Values written compressed.
        written_compressed,
        /// Values written as one byte.
        written_same_filled,
        /// Values written in a frame as they came.
        written_wrapped,
        /// Values read from compressed frames.
        read_compressed,
        /// Values read from other frames.
        read_framed,
        /// Values read that were no frames.
        read_foreign,
        /// Frames answered as they are stored, to clients that read them.
        read_as_frame,
        /// Foreign values withheld because of `foreign = "forbid"`.
        foreign_refused,
        /// Values with the magic and an invalid header: misses.
        frame_invalid,
        /// Frames whose payload did not decode to the value they were sealed for: misses.
        frame_corrupt,
        /// Items deleted under their CAS because their frame is damaged.
        unreadable_deleted,
        /// Results of a device that failed the frame's checksum; redone in software where that may stand in.
        device_corrupt,
        /// Values that no device read, where software may not stand in for one: misses.
        no_device,
        /// Logical bytes of values written.
        logical_bytes_written,
        /// Stored bytes of values written.
        stored_bytes_written,
        /// Logical bytes of values read.
        logical_bytes_read,
        /// Stored bytes of values read.
        stored_bytes_read,
        /// Values of which clients sent something in one read with other things, so that it was copied.
        copies,
        /// Bytes of those copies.
        copied_bytes,
        /// The same of values that stores elsewhere sent.
        stored_copies,
        /// Bytes of those copies.
        stored_copied_bytes,
    }
}

counters! {
    /// Calls over gRPC.
    Grpc {
        /// Connections open now.
        connections,
        /// Connections cut: they held memory that others needed, and nothing moved on them.
        stalled,
        /// Calls of the cache.
        calls_cache,
        /// Calls of compression.
        calls_compression,
        /// Calls of the store.
        calls_store,
        /// Calls of the scheduler.
        calls_scheduler,
        /// Calls of health and reflection, and of services that there are not.
        calls_other,
        /// Calls that found no room, in bytes or in the store.
        errors_exhausted,
        /// Calls that were not answered in their time.
        errors_deadline,
        /// Calls that no one could answer: malformed, out of range, not a method.
        errors_invalid,
        /// Calls that another server kept from being answered, or the end of this one.
        errors_unavailable,
        /// Calls that ended with any other status.
        errors_other,
    }
}

counters! {
    /// Counts of jobs that frontends on this host send over lanes.
    Lanes {
        /// Lanes open now.
        open,
        /// Lanes cut: they held memory that others needed, and left their answers unread.
        stalled,
        /// Bytes that lanes hold now, of inputs and results.
        held_bytes,
        /// Jobs begun.
        jobs,
        /// Jobs for which there was no room.
        jobs_busy,
        /// Jobs that could not be: malformed, out of range.
        jobs_refused,
        /// Times that a frontend was woken.
        bells,
        /// Values copied: inputs out of a frontend's memory, and results that were made elsewhere than in this one's.
        copies,
        /// Bytes of those copies.
        copied_bytes,
    }
}

counters! {
    /// Requests that go through traces, as their connections see them.
    Traced {
        /// Connections ended at their first words: not a caller's, or of an unknown tenant.
        hellos_refused,
        /// Requests answered.
        requests_answered,
        /// Requests that ended their connection: too long, too slow, or not to be read.
        requests_refused,
        /// Requests read by hand because their trace gave them back.
        received_by_hand,
        /// Answers written by hand because their trace gave them back.
        answered_by_hand,
    }
}

/// Lines of the log that are lost.
#[derive(Debug)]
pub struct LogLosses {
    /// The queue had no room: what reads the log is slower than what writes it, or has stopped.
    pub queue_full: Counter,
    /// The log could not be written: no reader, or no room on its disk.
    pub write_failed: Counter,
}

/// The losses of the process's log, counted by its writer.
pub static LOG_LOSSES: LogLosses =
    LogLosses { queue_full: Counter::new(), write_failed: Counter::new() };

counters! {
    /// Tasks of one worker that ended and should not have.
    Tasks {
        /// Links to servers that were started again.
        restarts_link,
        /// Times that the sweep of expired items was started again.
        restarts_sweep,
        /// Times that the turns of long values were started again.
        restarts_turns,
        /// Connections that a defect ended.
        connections_failed,
    }
}

counters! {
    /// Failures on the control thread.
    Control {
        /// Connections that could not be accepted.
        accept_errors,
        /// Clients' acceptors that were started again.
        restarts_acceptor,
        /// Acceptors of the admin pages that were started again.
        restarts_admin,
        /// Times that the reports to the scheduler were started again.
        restarts_reporter,
        /// Times that the questions after readiness were started again.
        restarts_readiness,
        /// Times that the task that gives memory back was started again.
        restarts_idle_memory,
        /// Times that the task that tells the log of devices was started again.
        restarts_device_log,
    }
}

/// One worker's counters.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands and connections.
    pub commands: Commands,
    /// Values.
    pub values: Values,
    /// Calls over gRPC.
    pub grpc: Grpc,
    /// Jobs over lanes.
    pub lanes: Lanes,
    /// Requests that go through traces.
    pub traced: Traced,
    /// Tasks that ended and should not have.
    pub tasks: Tasks,
    /// Values written as they came, by reason.
    pub raw: [Counter; RawReason::ALL.len()],
    /// Time from a command's parse to its reply's composition, by kind.
    pub durations: [Histogram; CommandKind::ALL.len()],
    /// Time of what is waited for on a request's way, jobs apart.
    pub stages: [Histogram; Stage::ALL.len()],
}

/// A wait of a request outside of jobs. The runtime's metrics have the waits of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A request to a store elsewhere, from its composition until its whole answer is read.
    Store,
    /// Gathered replies, from the end of the last of them until the socket has taken all of them.
    Write,
}

impl Stage {
    /// Every stage, in the order of its index.
    pub const ALL: [Stage; 2] = [Stage::Store, Stage::Write];

    /// The word that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Store => "store",
            Stage::Write => "write",
        }
    }
}

/// The kinds of commands whose durations are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CommandKind {
    Get,
    Set,
    Other,
}

impl CommandKind {
    /// Every kind, in the order of its index.
    pub const ALL: [CommandKind; 3] = [CommandKind::Get, CommandKind::Set, CommandKind::Other];

    /// The word that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            CommandKind::Get => "get",
            CommandKind::Set => "set",
            CommandKind::Other => "other",
        }
    }
}

/// A histogram over powers of two from 1 µs to about 8 s.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; Histogram::BUCKETS],
    sum_ns: Counter,
}

impl Histogram {
    /// Finite buckets and the one without bound.
    pub const BUCKETS: usize = 25;

    /// Counts one duration.
    pub fn record(&self, duration: Nanos) {
        let micros = duration.0.div_ceil(1_000).max(1);
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)].up();
        self.sum_ns.add(duration.0);
    }

    /// Upper bound of a bucket (ns); none for the last.
    pub const fn bound(bucket: usize) -> Option<Nanos> {
        if bucket + 1 < Self::BUCKETS { Some(Nanos(1_000 << bucket)) } else { None }
    }

    /// The buckets' counts, each its own and not cumulated.
    pub fn counts(&self) -> [u64; Self::BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].read())
    }

    /// The durations' sum.
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum_ns.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for nanos in [0, 1, 999, 1_000, 1_001, 2_000, 2_001, 1_000_000_000_000] {
            histogram.record(Nanos(nanos));
        }
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[2]), (4, 2, 1));
        assert_eq!(counts[Histogram::BUCKETS - 1], 1);
        assert_eq!(counts.iter().sum::<u64>(), 8);
    }
}
