//! Logins, and the limit on guessing passwords. An attempt counts against its pair of host and user: after a few
//! failures, further attempts are answered late, and then not checked at all. Only the client that attempts waits.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use units::Nanos;

use super::origin::Origin;

/// The recent failures of logins.
pub(super) struct Logins {
    /// For each slot, the time until which its attempts are spent (ns). Several pairs may share a slot.
    slots: Box<[AtomicU64]>,
    seed: RandomState,
}

/// The reservation of one attempt.
pub(super) struct Attempt<'l> {
    slot: &'l AtomicU64,
    /// How long the client waits before its password is checked.
    pub(super) delay: Duration,
    /// False if there were too many failures, so that the password must not be checked.
    pub(super) may_check: bool,
}

impl Default for Logins {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { slots, seed: RandomState::new() }
    }
}

impl Logins {
    /// Reserves an attempt of `user` from `origin`. It counts as failed until [`Attempt::succeeded`].
    pub(super) fn attempt(&self, origin: &Origin, user: &[u8], now: Nanos) -> Attempt<'_> {
        let mut hasher = self.seed.build_hasher();
        origin.hash_host(&mut hasher);
        user.hash(&mut hasher);
        let slot = &self.slots[hasher.finish() as usize % SLOTS];
        let (burst, most) = (Nanos::from(BURST).0, Nanos::from(DELAY_MAX).0);
        let next = |spent_until: u64| {
            let until = spent_until.max(now.0.saturating_sub(burst)) + ATTEMPT_NS;
            (until <= now.0 + most).then_some(until)
        };
        let relaxed = Ordering::Relaxed;
        match slot.fetch_update(relaxed, relaxed, next) {
            Ok(before) => {
                let until = next(before).unwrap_or(now.0);
                let delay = Duration::from_nanos(until.saturating_sub(now.0));
                Attempt { slot, delay, may_check: true }
            }
            Err(_) => Attempt { slot, delay: DELAY_MAX, may_check: false },
        }
    }
}

impl Attempt<'_> {
    /// Takes the attempt back, because its password was right.
    pub(super) fn succeeded(&self) {
        let back = |until: u64| Some(until.saturating_sub(ATTEMPT_NS));
        let _ = self.slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }
}

/// The number of pairs of host and user that are told apart. Each takes 8 bytes.
const SLOTS: usize = 4_096;

/// The time that a failed attempt costs (ns): a pair may fail five times a second for long.
const ATTEMPT_NS: u64 = 200_000_000;

/// The failures of an idle pair that are answered at once: ten.
const BURST: Duration = Duration::from_secs(2);

/// The longest delay of an answer to a login.
const DELAY_MAX: Duration = Duration::from_secs(2);
