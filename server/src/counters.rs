//! The server's counters. Each worker writes one [`Counters`] without contention, and the reader sums them. A counter
//! has memcached's name where memcached has the same counter. The runtime's metrics count the path of each job.

use std::sync::atomic::{AtomicU64, Ordering};

use policy::RawReason;
use units::Nanos;

/// One counter. Its accesses are relaxed, because nothing is decided by it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns a counter that is zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn up(&self) {
        self.add(1);
    }

    /// Adds `by`.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets the current value, for gauges.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Subtracts one, for gauges.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds one, and subtracts it again when the returned value is dropped.
    pub fn during(&self) -> Up<'_> {
        self.up();
        Up(self)
    }

    /// Returns the count.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the counter to zero (`stats reset`).
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Subtracts one from its counter when it is dropped.
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
            /// Returns every counter with its name, in the order of declaration.
            pub fn named(&self) -> Vec<(&'static str, &Counter)> {
                vec![$((stringify!($field), &self.$field),)*]
            }
        }
    };
}

counters! {
    /// Counts that memcached has per command and connection.
    Commands {
        /// Connections that are open now.
        curr_connections,
        /// Connections opened since the start.
        total_connections,
        /// Connections refused because of `connections_max`.
        rejected_connections,
        /// Connections closed because of `idle_timeout_s`, and connections for traces closed because no first request
        /// came.
        idle_kicks,
        /// Connections closed because they sent or received a value too slowly and held its memory meanwhile.
        slow_kicks,
        /// Keys of retrieval commands.
        cmd_get,
        /// Storage commands.
        cmd_set,
        /// flush_all commands.
        cmd_flush,
        /// Keys of touch, gat and gats.
        cmd_touch,
        /// Meta commands.
        cmd_meta,
        /// Keys found.
        get_hits,
        /// Keys not found.
        get_misses,
        /// Deletions of an item that was there.
        delete_hits,
        /// Deletions of an item that was not there.
        delete_misses,
        /// Increments of an item that was there.
        incr_hits,
        /// Increments of an item that was not there.
        incr_misses,
        /// Decrements of an item that was there.
        decr_hits,
        /// Decrements of an item that was not there.
        decr_misses,
        /// cas commands that stored their value.
        cas_hits,
        /// cas commands for an item that was not there.
        cas_misses,
        /// cas commands for another version of the item.
        cas_badval,
        /// touch commands for an item that was there.
        touch_hits,
        /// touch commands for an item that was not there.
        touch_misses,
        /// Values above the item limit.
        store_too_large,
        /// Values for which there was no memory.
        store_no_memory,
        /// Bytes read from clients.
        bytes_read,
        /// Bytes written to clients.
        bytes_written,
        /// Times that a connection let others continue in the middle of its commands.
        conn_yields,
        /// Lines that were not a command.
        bad_lines,
        /// Requests that a memcached server did not answer properly.
        upstream_errors,
        /// Connections made to memcached servers.
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
        /// Values written in compressed form.
        written_compressed,
        /// Values written as one byte.
        written_same_filled,
        /// Values written in a frame without compression.
        written_wrapped,
        /// Values read from compressed frames.
        read_compressed,
        /// Values read from frames that are not compressed.
        read_framed,
        /// Values read that were not frames.
        read_foreign,
        /// Frames sent as they are stored, to clients that read frames themselves.
        read_as_frame,
        /// Foreign values withheld because of `foreign = "forbid"`.
        foreign_refused,
        /// Values with a frame's magic and an invalid header. They are misses.
        frame_invalid,
        /// Frames whose payload did not decode to the value that they were made for. They are misses.
        frame_corrupt,
        /// Items deleted under their CAS because their frame was damaged.
        unreadable_deleted,
        /// Results of a device that failed the frame's checksum. Software repeats the job where it may replace the
        /// device.
        device_corrupt,
        /// Values that no device read and that software may not read. They are misses.
        no_device,
        /// Logical bytes of values written.
        logical_bytes_written,
        /// Stored bytes of values written.
        stored_bytes_written,
        /// Logical bytes of values read.
        logical_bytes_read,
        /// Stored bytes of values read.
        stored_bytes_read,
        /// Clients' values that were copied in whole or in part, because the copied bytes came in one read with other
        /// bytes.
        copies,
        /// Bytes of the copies in `copies`.
        copied_bytes,
        /// Values from stores elsewhere that were copied in whole or in part, for the reason that `copies` gives.
        stored_copies,
        /// Bytes of the copies in `stored_copies`.
        stored_copied_bytes,
    }
}

counters! {
    /// Calls over gRPC.
    Grpc {
        /// Connections that are open now.
        connections,
        /// Connections cut because nothing moved on them while they held memory that others needed.
        stalled,
        /// Calls of the cache service.
        calls_cache,
        /// Calls of the compression service.
        calls_compression,
        /// Calls of the store service.
        calls_store,
        /// Calls of the scheduler service.
        calls_scheduler,
        /// Calls of health and reflection, and of services that do not exist.
        calls_other,
        /// Calls for which memory or the store had no space.
        errors_exhausted,
        /// Calls that were not answered within their deadline.
        errors_deadline,
        /// Calls that cannot be answered: malformed, out of range, or of an unknown method.
        errors_invalid,
        /// Calls that failed because another server did not answer, or because this server ends.
        errors_unavailable,
        /// Calls that ended with any other status.
        errors_other,
    }
}

counters! {
    /// Counts of jobs that frontends on this host send over lanes.
    Lanes {
        /// Lanes that are open now.
        open,
        /// Lanes cut because they left their answers unread while they held memory that others needed.
        stalled,
        /// Bytes of inputs and results that lanes hold now.
        held_bytes,
        /// Jobs begun.
        jobs,
        /// Jobs refused for lack of capacity.
        jobs_busy,
        /// Jobs refused because they were malformed or out of range.
        jobs_refused,
        /// Times that a frontend was woken.
        bells,
        /// Copied values: inputs copied out of a frontend's memory, and results that were made outside of that memory.
        copies,
        /// Bytes of the copies in `copies`.
        copied_bytes,
    }
}

counters! {
    /// Requests that go through traces, as counted on their connections.
    Traced {
        /// Connections closed at their greeting, because the peer is not a caller or its tenant is unknown.
        hellos_refused,
        /// Requests answered.
        requests_answered,
        /// Requests that ended their connection, because they were too long, too slow or unreadable.
        requests_refused,
        /// Requests read by hand (in software) because their trace returned them.
        received_by_hand,
        /// Answers written by hand (in software) because their trace returned them.
        answered_by_hand,
    }
}

/// Counts of lost log lines.
#[derive(Debug)]
pub struct LogLosses {
    /// Lines lost because the queue was full: the reader of the log is slower than its writers, or has stopped.
    pub queue_full: Counter,
    /// Lines lost because the log could not be written: it has no reader, or its disk is full.
    pub write_failed: Counter,
}

/// The losses of the process's log, counted by its writer.
pub static LOG_LOSSES: LogLosses =
    LogLosses { queue_full: Counter::new(), write_failed: Counter::new() };

counters! {
    /// Tasks of one worker that ended unexpectedly.
    Tasks {
        /// Restarts of links to servers.
        restarts_link,
        /// Restarts of the sweep of expired items.
        restarts_sweep,
        /// Restarts of the turns for long values.
        restarts_turns,
        /// Connections that ended because of a defect.
        connections_failed,
    }
}

counters! {
    /// Failures on the control thread.
    Control {
        /// Connections that could not be accepted.
        accept_errors,
        /// Restarts of acceptors for clients.
        restarts_acceptor,
        /// Restarts of acceptors for the admin pages.
        restarts_admin,
        /// Restarts of the reports to the scheduler.
        restarts_reporter,
        /// Restarts of the readiness checks.
        restarts_readiness,
        /// Restarts of the task that returns unused memory.
        restarts_idle_memory,
        /// Restarts of the task that logs the state of devices.
        restarts_device_log,
    }
}

/// One worker's counters.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands and connections.
    pub commands: Commands,
    /// Counts of what happened to values.
    pub values: Values,
    /// Calls over gRPC.
    pub grpc: Grpc,
    /// Jobs over lanes.
    pub lanes: Lanes,
    /// Requests that go through traces.
    pub traced: Traced,
    /// Tasks that ended unexpectedly.
    pub tasks: Tasks,
    /// Values written as they came, by reason.
    pub raw: [Counter; RawReason::ALL.len()],
    /// The times from a command's parse to its reply's composition, by kind.
    pub durations: [Histogram; CommandKind::ALL.len()],
    /// The time that requests wait in each stage, without the time of jobs.
    pub stages: [Histogram; Stage::ALL.len()],
}

/// A stage in which a request waits, outside of jobs. The runtime's metrics have the waits of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The time from the composition of a request to a store elsewhere until its whole answer is read.
    Store,
    /// The time from the end of the last of several gathered replies until the socket has taken all of them.
    Write,
}

impl Stage {
    /// Every stage, in the order of its index.
    pub const ALL: [Stage; 2] = [Stage::Store, Stage::Write];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Store => "store",
            Stage::Write => "write",
        }
    }
}

/// The kinds of commands whose durations are counted separately.
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

    /// Returns the name that metrics use.
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
    /// The number of finite buckets and of the last bucket, which has no bound.
    pub const BUCKETS: usize = 25;

    /// Counts one duration.
    pub fn record(&self, duration: Nanos) {
        let micros = duration.0.div_ceil(1_000).max(1);
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)].up();
        self.sum_ns.add(duration.0);
    }

    /// Returns the upper bound of a bucket; none for the last.
    pub const fn bound(bucket: usize) -> Option<Nanos> {
        if bucket + 1 < Self::BUCKETS { Some(Nanos(1_000 << bucket)) } else { None }
    }

    /// Returns the count of each bucket. The counts are not cumulative.
    pub fn counts(&self) -> [u64; Self::BUCKETS] {
        std::array::from_fn(|bucket| self.buckets[bucket].read())
    }

    /// Returns the sum of the durations.
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
