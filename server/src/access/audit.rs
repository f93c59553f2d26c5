//! The audit log: one line for each refusal, failed login and administrative command, under the target
//! `server::audit`. Its rate is bounded, so that a client cannot fill the log, and so is that of each host, so that one
//! cannot keep the refusals of others out of it; lines that are left out are counted. A line has the beginning of a
//! key, but never a value or a password.

use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use units::Nanos;

use super::origin::Origin;
use super::quota::Bucket;
use crate::counters::Counter;

/// Writes the audit log of a process.
#[derive(Debug)]
pub(crate) struct Audit {
    /// The rates of refusals and of administrative commands: refusals cannot hide what was done.
    refused: Bucket,
    allowed: Bucket,
    /// The rates of refusals by host. By chance, several hosts share one.
    refused_by_host: Box<[Bucket]>,
    seed: RandomState,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            refused: Bucket::default(),
            allowed: Bucket::default(),
            refused_by_host: (0..HOSTS).map(|_| Bucket::default()).collect(),
            seed: RandomState::new(),
        }
    }
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
        if self.may_log_refusal(origin, now) {
            let key = beginning(key);
            tracing::warn!(target: TARGET, identity, address = %origin, command, key, "refused: {why}");
        } else {
            left_out.up();
        }
    }

    fn may_log_refusal(&self, origin: &Origin, now: Nanos) -> bool {
        let mut hasher = self.seed.build_hasher();
        origin.hash_host(&mut hasher);
        let of_host = &self.refused_by_host[hasher.finish() as usize % HOSTS];
        of_host.take(1, LINES_OF_HOST_PER_S, now, WAIT_MAX).is_some() && may_log(&self.refused, now)
    }

    /// Logs that a client did something administrative.
    pub(crate) fn allowed(&self, event: &Event<'_>, now: Nanos, left_out: &Counter) {
        let Event { identity, origin, command, key } = event;
        if may_log(&self.allowed, now) {
            let key = beginning(key);
            tracing::info!(target: TARGET, identity, address = %origin, command, key, "allowed");
        } else {
            left_out.up();
        }
    }

    /// Logs that a connection was refused before anyone could say who it is.
    pub(crate) fn refused_anonymous(
        &self,
        origin: &Origin,
        command: &str,
        why: &dyn Display,
        now: Nanos,
        left_out: &Counter,
    ) {
        let event = Event { identity: "anonymous", origin, command, key: b"" };
        self.refused(&event, why, now, left_out);
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

fn may_log(rate: &Bucket, now: Nanos) -> bool {
    rate.take(1, LINES_PER_S, now, WAIT_MAX).is_some()
}

/// Returns the beginning of a key in printable form.
fn beginning(key: &[u8]) -> String {
    key[..key.len().min(KEY_BYTES_MAX)].escape_ascii().to_string()
}

const TARGET: &str = "server::audit";

/// The lines of each kind that may be logged each second, for long.
const LINES_PER_S: u64 = 20;

/// The refusals of one host that may be logged each second, for long. It leaves room for those of others.
const LINES_OF_HOST_PER_S: u64 = 5;

/// The number of hosts that are told apart.
const HOSTS: usize = 256;

/// How far the log may be ahead of its rates: a burst of 100 lines, of which one host may have 25.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The bytes of a key that a line has.
const KEY_BYTES_MAX: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn host(number: u8) -> Origin {
        Origin::from_address(format!("192.0.2.{number}").parse().unwrap(), 1)
    }

    #[test]
    fn refusals_of_one_host_leave_room_for_those_of_others() {
        let audit = Audit::default();
        let at = |second: u64| Nanos::secs(100 + second);
        let flood = |now| (0..1_000).filter(|_| audit.may_log_refusal(&host(1), now)).count();
        assert!((20..=30).contains(&flood(at(0))), "a burst");
        for second in 1..60 {
            assert!(flood(at(second)) <= 6);
            // By chance, a few hosts share the bucket of the first one.
            let others =
                (2..=11).filter(|number| audit.may_log_refusal(&host(*number), at(second)));
            assert!(others.count() >= 7, "second {second}");
        }
    }

    #[test]
    fn refusals_of_many_hosts_have_a_limit_too() {
        let audit = Audit::default();
        let all =
            || (0..=255).filter(|number| audit.may_log_refusal(&host(*number), Nanos::secs(9)));
        let logged = (0..10).map(|_| all().count()).sum::<usize>();
        assert!((90..=110).contains(&logged), "{logged} lines at once");
    }
}
