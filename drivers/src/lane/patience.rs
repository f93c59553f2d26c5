//! Whether polling pays. A side that has nothing to do may look again and again for a short while before it sleeps:
//! that pays where the other side answers within the time that sleeping and waking would take, and is wasted where it
//! does not. Which it is shows in whether earlier looks found something. Values only: no clock, no memory.

use std::time::Duration;

/// What one side of a lane has learnt of the other.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Sleeps without polling first that follow a poll in vain.
    penalty: u32,
    /// How many of them are left.
    left: u32,
}

impl Patience {
    /// Whether to poll before this sleep.
    pub(super) fn may_poll(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        false
    }

    /// Polling found something.
    pub(super) fn found(&mut self) {
        *self = Self::default();
    }

    /// Polling found nothing within [`POLL_MAX`].
    pub(super) fn missed(&mut self) {
        self.penalty = (self.penalty * 2).clamp(1, PENALTY_MAX);
        self.left = self.penalty;
    }
}

/// As long as a sleep and a wake across cores take on the machines that were measured: whoever polls for so long and
/// then sleeps has spent at most twice what was needed.
pub(super) const POLL_MAX: Duration = Duration::from_micros(50);

/// Where polling is always in vain it is tried once in so many sleeps: under 1 us of processor time for each.
const PENALTY_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_vain_it_gets_rare_and_one_success_makes_it_the_rule_again() {
        let mut patience = Patience::default();
        let mut polls = 0;
        for _ in 0..10_000 {
            if patience.may_poll() {
                polls += 1;
                patience.missed();
            }
        }
        assert!((100..200).contains(&polls), "{polls} polls in 10,000 sleeps");
        while !patience.may_poll() {}
        patience.found();
        assert!((0..100).all(|_| patience.may_poll()));
    }
}
