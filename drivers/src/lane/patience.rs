//! Whether polling pays. A side that has nothing to do may look again and again for a short while before it sleeps:
//! that pays where the other side answers within the time that sleeping and waking would take, and is wasted where it
//! does not: of the own core, and of whoever waits for it, the other side perhaps. Which it is shows in how long polls
//! take until they find something. Values only: no clock, no memory.

use std::time::Duration;

/// What one side of a lane has learnt of the other.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How long polls take of late until they find something or give up (ns), each later one with an eighth of the
    /// weight.
    polls_ns: u64,
    /// Sleeps without polling first that are left.
    left: u32,
}

impl Patience {
    /// Whether to poll before this sleep: always where it pays, now and then where it does not, to see whether it
    /// would.
    pub(super) fn may_poll(&mut self) -> bool {
        if self.pays() || self.left == 0 {
            return true;
        }
        self.left -= 1;
        false
    }

    /// Whether polls of late took less than what they spare.
    pub(super) fn pays(&self) -> bool {
        self.polls_ns <= WORTH_NS
    }

    /// Polling found something.
    pub(super) fn found(&mut self, after: Duration) {
        let after_ns = after.min(POLL_MAX).as_nanos() as u64;
        self.polls_ns = self.polls_ns - self.polls_ns / WEIGHT + after_ns / WEIGHT;
        // One that paid is tried again at once: what was learnt may be of another time.
        self.left = if after_ns <= WORTH_NS { 0 } else { TRY_EVERY };
    }

    /// Polling found nothing within [`POLL_MAX`].
    pub(super) fn missed(&mut self) {
        self.found(POLL_MAX);
    }
}

/// As long as a sleep and a wake across cores take at their worst on the machines that were measured: whoever polls for
/// so long and then sleeps has spent at most twice what was needed.
pub(super) const POLL_MAX: Duration = Duration::from_micros(50);

/// Up to here polls pay: what a sleep and a wake of either side take together where cores are awake (measured as a
/// round trip of 26 us or more).
const WORTH_NS: u64 = 30_000;

const WEIGHT: u64 = 8;

/// Where polling does not pay it is tried once in so many sleeps: under 1 us of processor time for each.
const TRY_EVERY: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_vain_it_gets_rare_and_enough_successes_make_it_the_rule_again() {
        let mut patience = Patience::default();
        let polls = |patience: &mut Patience, outcome: fn(&mut Patience)| {
            let mut polls = 0;
            for _ in 0..10_000 {
                if patience.may_poll() {
                    polls += 1;
                    outcome(patience);
                }
            }
            polls
        };
        let in_vain = polls(&mut patience, Patience::missed);
        assert!((100..200).contains(&in_vain), "{in_vain} polls in 10,000 sleeps");
        // Answers that come, and later than a sleep and a wake would take: no better.
        let late = polls(&mut patience, |own| own.found(Duration::from_micros(35)));
        assert!((100..200).contains(&late), "{late} polls in 10,000 sleeps");
        let soon = polls(&mut patience, |own| own.found(Duration::from_micros(3)));
        assert!(soon > 9_000, "{soon} polls in 10,000 sleeps");
    }

    #[test]
    fn a_slow_answer_now_and_then_is_borne() {
        let mut patience = Patience::default();
        for number in 0..1_000 {
            assert!(patience.may_poll(), "after {number}");
            patience.found(Duration::from_micros(if number % 8 == 7 { 50 } else { 5 }));
        }
    }
}
