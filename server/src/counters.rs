//! The server's counters. Each worker writes its own [`Counters`] without contention, and the reader sums
//! them. Counters that memcached also has use memcached's names. The path of each job is counted in the
//! metrics of the runtime.

use std::sync::atomic::{AtomicU64, Ordering};

use policy::RawReason;
use units::Nanos;

use crate::errors::ErrorCounts;

/// A counter with relaxed atomic accesses, because no decision depends on it.
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

    /// Adds one like [`Counter::add_unshared`].
    #[inline]
    pub fn up_unshared(&self) {
        self.add_unshared(1);
    }

    /// Adds `by` to a counter that only the calling thread changes, which is several times as fast. A reset by another
    /// thread in the same nanosecond may be lost.
    #[inline]
    pub fn add_unshared(&self, by: u64) {
        self.0.store(self.read().wrapping_add(by), Ordering::Relaxed);
    }

    /// Sets the value, for gauges.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Subtracts one, for gauges.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds one, and subtracts one when the returned value is dropped.
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
    /// Counts of commands and connections, mostly those that memcached has too.
    Commands {
        /// Connections that are open now.
        curr_connections,
        /// Connections opened since the start.
        total_connections,
        /// Connections refused because of `connections_max`.
        rejected_connections,
        /// Connections closed because of `idle_timeout_s`, and connections to the service of programs closed because
        /// they sent no first request in time.
        idle_kicks,
        /// Connections closed because they moved a value too slowly while they held memory for it.
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
        /// Packets of the binary protocol.
        cmd_binary,
        /// Calls of the Thrift service.
        cmd_thrift,
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
        /// Times that a connection yielded to others between its commands.
        conn_yields,
        /// Command lines and packets that could not be parsed.
        bad_lines,
        /// Connections closed because they speak the binary protocol, which is not served.
        refused_binary,
        /// Connections closed because they speak text, which is not served.
        refused_ascii,
        /// Connections closed because they sent bytes between packets that are no packet, or no call of Thrift.
        bad_magic,
        /// Requests that a memcached server did not answer properly.
        upstream_errors,
        /// Connections made to memcached servers.
        upstream_connects,
        /// Requests to memcached servers that timed out.
        upstream_timeouts,
        /// Sessions that waited because too many bytes were in flight.
        backpressure_waits,
        /// Logins attempted with a password.
        auth_cmds,
        /// Logins that failed.
        auth_errors,
        /// Clients that watch events now.
        log_watchers,
        /// Lines that watchers did not get because they read too slowly.
        log_watcher_skipped,
        /// Lines given to watchers.
        log_watcher_sent,
    }
}

counters! {
    /// Counts of values, by their form and outcome.
    Values {
        /// Values written in compressed form.
        written_compressed,
        /// Values written as one byte because all their bytes are equal.
        written_same_filled,
        /// Values written in a frame without compression.
        written_wrapped,
        /// Values of any of these forms that were sealed too.
        written_sealed,
        /// Values read from compressed frames.
        read_compressed,
        /// Values read from frames that are not compressed.
        read_framed,
        /// Sealed values that were opened. Their forms count as well.
        read_sealed,
        /// Values read that were not frames.
        read_foreign,
        /// Values read from compressed frames that were not decompressed, because their logical values are kept.
        read_hot,
        /// Frames sent as they are stored, to clients that read frames themselves.
        read_as_frame,
        /// Foreign values withheld because of `foreign = "forbid"`.
        foreign_refused,
        /// Values without a seal withheld where only sealed values are served.
        unsealed_refused,
        /// Values that begin like sealed ones and cannot be any. They are misses.
        seal_invalid,
        /// Sealed values whose tag is wrong: altered, of another key or tenant, or sealed with another secret. They are
        /// misses.
        seal_wrong,
        /// Sealed values whose key this process does not have. They are misses.
        seal_key_unknown,
        /// Values that nothing could seal, which were stored so that no reader can open them.
        seals_failed,
        /// Values with a frame's magic and an invalid header. They are misses.
        frame_invalid,
        /// Frames whose payload did not decode to the value that they were made for. They are misses.
        frame_corrupt,
        /// Values whose frame needs a dictionary that this process does not have. They are misses.
        dictionary_missing,
        /// Items deleted under their CAS because their frame was damaged.
        unreadable_deleted,
        /// Results of a device that failed the frame's checksum. If allowed, software repeats such jobs.
        device_corrupt,
        /// Values that no device could read and software was not allowed to read. They are misses.
        no_device,
        /// Logical bytes of values written.
        logical_bytes_written,
        /// Stored bytes of values written.
        stored_bytes_written,
        /// Logical bytes of values read.
        logical_bytes_read,
        /// Stored bytes of values read.
        stored_bytes_read,
        /// Clients' values that were copied at least in part, because that part arrived in one read with other data.
        copies,
        /// Bytes of the copies in `copies`.
        copied_bytes,
        /// Values from remote stores that were copied, at least in part, for the reason given at `copies`.
        stored_copies,
        /// Bytes of the copies in `stored_copies`.
        stored_copied_bytes,
    }
}

counters! {
    /// Clients that were refused or held back by the rules about them.
    Access {
        /// Commands and calls of clients that have no role.
        refused_unauthenticated,
        /// Commands and calls for which the role has no right.
        refused_rights,
        /// Commands and calls with a key outside of the role's prefix.
        refused_key,
        /// Calls of services for other processes from another host, without rules that open them.
        refused_service,
        /// Connections of an identity that had all of its connections.
        refused_connections,
        /// Requests that waited because their identity was over its quota.
        quota_waits,
        /// Requests that got an error because their identity was over its quota.
        quota_refused,
        /// Logins that were answered late because others had failed before.
        logins_delayed,
        /// Lines left out of the audit log, whose rate is bounded.
        audit_lines_left_out,
    }
}

counters! {
    /// Calls over gRPC.
    Grpc {
        /// Connections that are open now.
        connections,
        /// Connections closed because they made no progress while they held memory that others needed.
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
        /// Calls that failed because the server or the store was out of memory.
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
    /// Counts of connections of clients on this host through shared memory.
    NearConnections {
        /// Bytes of memory that the server has for near connections now.
        held_bytes,
        /// Clients that were refused, because their greeting was wrong or late.
        refused,
        /// Connections closed because the client broke the rules of the memory.
        broken,
        /// Packets that were not executed, because their deadline was over.
        late,
        /// Times that a client was woken.
        doorbells,
        /// Times that the server began to sleep until a client's doorbell.
        sleeps,
    }
}

counters! {
    /// Counts of jobs that frontends on this host send over lanes.
    Lanes {
        /// Lanes that are open now.
        open,
        /// Lanes closed because they did not read their answers while they held memory that others needed.
        stalled,
        /// Bytes of inputs and results that lanes hold now.
        held_bytes,
        /// Jobs begun.
        jobs,
        /// Jobs refused for lack of capacity.
        jobs_busy,
        /// Jobs refused because they were malformed or out of range.
        jobs_refused,
        /// Wake-up notifications sent to frontends.
        doorbells,
        /// Inputs copied out of a frontend's memory, and results that had to be copied into it.
        copies,
        /// Bytes of the copies in `copies`.
        copied_bytes,
    }
}

counters! {
    /// Counts of requests that run as programs, and of their connections.
    Programs {
        /// Requests answered.
        requests_answered,
        /// Requests that ended their connection, because they were too long, too slow, unreadable or not
        /// allowed.
        requests_refused,
        /// Requests decoded in software because their trace did not complete.
        received_in_software,
        /// Answers encoded in software because their trace did not complete.
        answered_in_software,
    }
}

counters! {
    /// Counts of TLS at the listeners, and of certificates that were loaded again.
    Tls {
        /// Handshakes completed.
        handshakes,
        /// Handshakes not completed within `tls.handshake_timeout_ms`.
        failed_timeout,
        /// Handshakes given up because they were slow, for others at the limit `tls.handshakes_max`.
        failed_replaced,
        /// Clients that spoke without TLS, or sent bytes that are no TLS.
        failed_plain,
        /// Clients that offered no version of TLS that is allowed here.
        failed_version,
        /// Clients without an accepted certificate, and clients that did not accept ours.
        failed_certificate,
        /// Clients that closed their connection within the handshake.
        failed_closed,
        /// Handshakes that failed for any other reason.
        failed_other,
        /// Times that the certificates of the listeners were loaded again.
        reloads,
        /// Times that these could not be loaded again, so that the old ones stayed.
        reloads_failed,
        /// Times that the certificates of connections to other servers were loaded again.
        reloads_upstream,
        /// Times that these could not be loaded again, so that the old ones stayed.
        reloads_upstream_failed,
    }
}

/// Counts of lost log lines.
#[derive(Debug)]
pub struct LogLosses {
    /// Lines lost because the queue was full: the log's reader is slower than its writers, or has stopped.
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
        /// Restarts of the task that keeps dictionaries in the store.
        restarts_dictionaries,
        /// Restarts of the task that schedules long values.
        restarts_turns,
        /// Connections that ended because their task panicked.
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
        /// Restarts of the export to a collector.
        restarts_otlp,
        /// Restarts of the readiness checks.
        restarts_readiness,
        /// Restarts of the task that keeps the list of the ring's servers.
        restarts_members,
        /// Restarts of the task that returns unused memory.
        restarts_idle_memory,
        /// Restarts of the task that logs the state of devices.
        restarts_device_log,
        /// Restarts of the task that watches the files of certificates.
        restarts_tls_watch,
        /// Reloads of the rules about clients.
        access_reloads,
        /// Reloads of the rules about clients that failed, so that the old rules stayed.
        access_reloads_failed,
        /// Files with logins of this process that were read again.
        login_reloads,
        /// Such files that were wrong, so that the old login stays.
        login_reloads_failed,
        /// Restarts of the task that watches these files.
        restarts_login_watch,
        /// Reads of the file with the keys of values after it had changed.
        value_key_reloads,
        /// Such reads that failed, so that the old keys stay.
        value_key_reloads_failed,
        /// Restarts of the task that watches this file.
        restarts_value_key_watch,
    }
}

/// One worker's counters.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands and connections.
    pub commands: Commands,
    /// Error answers that no server of the ring has caused.
    pub errors: ErrorCounts,
    /// Counts of values.
    pub values: Values,
    /// Clients refused or held back.
    pub access: Access,
    /// Calls over gRPC.
    pub grpc: Grpc,
    /// Jobs over lanes.
    pub lanes: Lanes,
    /// Connections through shared memory.
    pub near: NearConnections,
    /// Requests that run as programs.
    pub programs: Programs,
    /// Tasks that ended unexpectedly.
    pub tasks: Tasks,
    /// Values stored uncompressed, by reason.
    pub raw: [Counter; RawReason::ALL.len()],
    /// The times from parsing a command to composing its reply, by kind of command.
    pub durations: [Histogram; CommandKind::ALL.len()],
    /// The time that requests wait in each stage, without the time of jobs.
    pub stages: [Histogram; Stage::ALL.len()],
}

/// A stage in which a request waits. Waits of jobs are in the metrics of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From composing a request to a remote store until its whole answer is read.
    Store,
    /// From the completion of the last of several gathered replies until the socket has accepted all of them.
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
    /// The number of buckets, including the last one, which has no upper bound.
    pub const BUCKETS: usize = 25;

    /// Counts one duration. Only one thread may do so.
    #[inline]
    pub fn record(&self, duration: Nanos) {
        let micros = duration.0.div_ceil(1_000).max(1);
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        self.buckets[bucket.min(Self::BUCKETS - 1)].up_unshared();
        self.sum_ns.add_unshared(duration.0);
    }

    /// Returns the upper bound of a bucket, or `None` for the last bucket.
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
