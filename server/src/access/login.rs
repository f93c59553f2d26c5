//! Logins, and the limit on guessing passwords. An attempt counts against its pair of host and user: after a few
//! failures, further attempts are answered late, and then not checked at all. Only the client that attempts waits. The
//! users of one host share a few slots, so that a host that tries many users spends only its own.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use units::Nanos;

use super::origin::Origin;

/// The recent failures of logins.
pub(super) struct Logins {
    /// The slots of each host. In a slot is the time until which its attempts are spent (ns). Several users of a host
    /// may share a slot, and by chance several hosts share their slots.
    hosts: Box<[[AtomicU64; USER_SLOTS]]>,
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
        let slots = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { hosts: (0..HOSTS).map(|_| slots()).collect(), seed: RandomState::new() }
    }
}

impl Logins {
    /// Reserves an attempt of `user` from `origin`. It counts as failed until [`Attempt::succeeded`].
    pub(super) fn attempt(&self, origin: &Origin, user: &[u8], now: Nanos) -> Attempt<'_> {
        let mut hasher = self.seed.build_hasher();
        origin.hash_host(&mut hasher);
        let slots = &self.hosts[hasher.finish() as usize % HOSTS];
        user.hash(&mut hasher);
        let slot = &slots[hasher.finish() as usize % USER_SLOTS];
        let (burst, most) = (Nanos::from(BURST).0, Nanos::from(DELAY_MAX).0);
        // The clock may have begun just now, when the burst is as free as later.
        let now = now.0 + burst;
        let next = |spent_until: u64| {
            let until = spent_until.max(now - burst) + ATTEMPT_NS;
            (until <= now + most).then_some(until)
        };
        let relaxed = Ordering::Relaxed;
        match slot.fetch_update(relaxed, relaxed, next) {
            Ok(before) => {
                let until = next(before).unwrap_or(now);
                let delay = Duration::from_nanos(until.saturating_sub(now));
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

/// The number of hosts that are told apart. Each takes 1 KiB.
const HOSTS: usize = 512;

/// The number of users of one host that are told apart. A client that guesses the passwords of a few users locks out
/// few others of its host.
const USER_SLOTS: usize = 128;

/// The time that a failed attempt costs (ns): a pair may fail five times a second for long.
const ATTEMPT_NS: u64 = 200_000_000;

/// The failures of an idle pair that are answered at once: ten.
const BURST: Duration = Duration::from_secs(2);

/// The longest delay of an answer to a login.
const DELAY_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn host(number: u8) -> Origin {
        Origin::from_address(format!("192.0.2.{number}").parse().unwrap(), 1)
    }

    #[test]
    fn a_host_that_tries_many_users_delays_no_other_host() {
        let logins = Logins::default();
        for user in 0..100_000_u32 {
            // Nobody waits for these attempts, as of calls that are reset.
            let _ = logins.attempt(&host(1), &user.to_be_bytes(), Nanos(0));
        }
        assert!(!logins.attempt(&host(1), b"web", Nanos(0)).may_check);
        let is_free = |number: &u8| {
            let attempt = logins.attempt(&host(*number), b"web", Nanos(0));
            attempt.may_check && attempt.delay == Duration::ZERO
        };
        // By chance, a few hosts have the same slots as the first one.
        let free = (2..=101).filter(is_free).count();
        assert!(free >= 95, "{free} of 100 hosts may log in");
    }

    #[test]
    fn failures_of_one_user_leave_most_others_of_the_host_alone() {
        let logins = Logins::default();
        for _ in 0..100 {
            let _ = logins.attempt(&host(1), b"victim", Nanos(0));
        }
        let is_free = |user: &u32| {
            logins.attempt(&host(1), &user.to_be_bytes(), Nanos(0)).delay == Duration::ZERO
        };
        let free = (0..40).filter(is_free).count();
        assert!(free >= 20, "{free} of 40 users may log in");
    }

    #[test]
    fn guesses_at_ten_users_leave_most_others_of_the_host_alone() {
        let logins = Logins::default();
        for attempt in 0..1_000_u32 {
            let _ =
                logins.attempt(&host(1), format!("victim {}", attempt % 10).as_bytes(), Nanos(0));
        }
        let is_free = |user: &u32| {
            logins.attempt(&host(1), &user.to_be_bytes(), Nanos(0)).delay == Duration::ZERO
        };
        let free = (0..100).filter(is_free).count();
        assert!(free >= 75, "{free} of 100 users may log in");
    }
}
