//! The audit log: one line for each refusal, failed login and administrative command, under the target
//! `server::audit`. Its rate is bounded, so that a client cannot fill the log; lines that are left out are counted. A
//! line has the beginning of a key, but never a value or a password.

use std::fmt::Display;
use std::time::Duration;

use units::Nanos;

use super::origin::Origin;
use super::quota::Bucket;
use crate::counters::Counter;

/// Writes the audit log of a process.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// The rates of refusals and of administrative commands: refusals cannot hide what was done.
    refused: Bucket,
    allowed: Bucket,
}

/// Who did what.
pub(crate) struct Event<'a> {
    pub(crate) identity: &'a str,
    pub(crate) origin: &'a Origin,
    pub(crate) command: &'a str,
    pub(crate) key: &'a [u8],
}

impl Audit {
    /// Logs that a client was refused.
    pub(crate) fn refused(
        &self,
        event: &Event<'_>,
        why: &dyn Display,
        now: Nanos,
        left_out: &Counter,
    ) {
        let Event { identity, origin, command, key } = event;
        if may_log(&self.refused, now, left_out) {
            let key = beginning(key);
            tracing::warn!(target: TARGET, identity, address = %origin, command, key, "refused: {why}");
        }
    }

    /// Logs that a client did something administrative.
    pub(crate) fn allowed(&self, event: &Event<'_>, now: Nanos, left_out: &Counter) {
        let Event { identity, origin, command, key } = event;
        if may_log(&self.allowed, now, left_out) {
            let key = beginning(key);
            tracing::info!(target: TARGET, identity, address = %origin, command, key, "allowed");
        }
    }

    /// Logs what a client did that no rule limits.
    pub(crate) fn allowed_anonymous(
        &self,
        origin: &Origin,
        command: &str,
        now: Nanos,
        left_out: &Counter,
    ) {
        self.allowed(&Event { identity: "anonymous", origin, command, key: b"" }, now, left_out);
    }

    /// Logs that the rules were replaced, which the operator caused.
    pub(super) fn reloaded() {
        tracing::info!(target: TARGET, identity = "operator", command = "reload", "allowed");
    }
}

fn may_log(rate: &Bucket, now: Nanos, left_out: &Counter) -> bool {
    let may = rate.take(1, LINES_PER_S, now, WAIT_MAX).is_some();
    if !may {
        left_out.up();
    }
    may
}

/// Returns the beginning of a key in printable form.
fn beginning(key: &[u8]) -> String {
    key[..key.len().min(KEY_BYTES_MAX)].escape_ascii().to_string()
}

const TARGET: &str = "server::audit";

/// The lines of each kind that may be logged each second, for long.
const LINES_PER_S: u64 = 20;

/// How far the log may be ahead of its rate: a burst of 100 lines.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The bytes of a key that a line has.
const KEY_BYTES_MAX: usize = 16;
