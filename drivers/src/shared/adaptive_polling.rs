//! Decides whether polling pays. Two sides share memory, such as the client and the service of a lane. A side without
//! work may poll for a short while before it sleeps. Polling pays if the other side answers within the time that a
//! sleep and a wake would take. Otherwise it wastes the core and delays other threads that need the core, which may
//! include the other side. The module measures how long polls take until they find something, and decides by that. It
//! has values only, no clock and no memory.

use std::time::Duration;

/// The measurements of one side: how soon its polls find something.
#[derive(Debug)]
pub(crate) struct AdaptivePolling {
    /// The time after which a poll ends without success (ns).
    max_ns: u64,
    /// The moving average of the durations of polls, with or without success (ns). The latest poll has a
    /// weight of one eighth.
    polls_ns: u64,
    /// The number of sleeps left before the next poll.
    left: u32,
}

impl AdaptivePolling {
    /// Polls take at most `max` each. If it is zero, there are none.
    pub(crate) const fn new(max: Duration) -> Self {
        Self { max_ns: max.as_nanos() as u64, polls_ns: 0, left: 0 }
    }

    /// Returns the time after which a poll ends without success.
    pub(crate) const fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// Returns whether to poll before this sleep. If polling pays, it always returns true. Otherwise it returns true
    /// once in [`TRY_EVERY`] sleeps, to find out whether polling would pay now.
    pub(crate) fn may_poll(&mut self) -> bool {
        if self.max_ns > 0 && (self.pays() || self.left == 0) {
            return true;
        }
        self.left = self.left.saturating_sub(1);
        false
    }

    /// Returns whether recent polls took less time than they save.
    pub(crate) fn pays(&self) -> bool {
        self.polls_ns <= self.worth_ns()
    }

    const fn worth_ns(&self) -> u64 {
        self.max_ns / 5 * 3
    }

    /// Records a poll that found something.
    pub(crate) fn found(&mut self, after: Duration) {
        let after_ns = after.min(self.max()).as_nanos() as u64;
        self.polls_ns = self.polls_ns - self.polls_ns / WEIGHT + after_ns / WEIGHT;
        // After a poll that paid, the next poll follows at once, because the average may be outdated.
        self.left = if after_ns <= self.worth_ns() { 0 } else { TRY_EVERY };
    }

    /// Records a poll that found nothing in its whole time.
    pub(crate) fn missed(&mut self) {
        self.found(self.max());
    }
}

/// The usual time after which a poll ends without success. It equals the longest time that a sleep and the wake that
/// ends it took across cores on the measured machines. A side that polls for this time and then sleeps has spent at
/// most twice the necessary time. Polling pays if a poll takes at most three fifths of it on average, 30 us. This is
/// the time that the two sides together need for a sleep and a wake if the processor's cores are not in an idle state.
/// The measured round trips between two sides that sleep took 26 us or more.
pub(crate) const POLL_MAX: Duration = Duration::from_micros(50);

/// The number of reads of the memory between two reads of the clock, which cost more.
pub(crate) const POLLS_PER_CLOCK_READ: u32 = 8;

const WEIGHT: u64 = 8;

/// If polling does not pay, one in this many sleeps polls first. This takes less than 1 us of processor time per
/// sleep.
const TRY_EVERY: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_follows_its_successes() {
        let mut polling = AdaptivePolling::new(POLL_MAX);
        let polls = |polling: &mut AdaptivePolling, outcome: fn(&mut AdaptivePolling)| {
            let mut polls = 0;
            for _ in 0..10_000 {
                if polling.may_poll() {
                    polls += 1;
                    outcome(polling);
                }
            }
            polls
        };
        let in_vain = polls(&mut polling, AdaptivePolling::missed);
        assert!((100..200).contains(&in_vain), "{in_vain} polls in 10,000 sleeps");
        // A poll of 35 us takes longer than a sleep and a wake, so it does not pay.
        let late = polls(&mut polling, |polling| polling.found(Duration::from_micros(35)));
        assert!((100..200).contains(&late), "{late} polls in 10,000 sleeps");
        let soon = polls(&mut polling, |polling| polling.found(Duration::from_micros(3)));
        assert!(soon > 9_000, "{soon} polls in 10,000 sleeps");
    }

    #[test]
    fn the_bound_decides_what_pays() {
        let mut none = AdaptivePolling::new(Duration::ZERO);
        assert!((0..1_000).all(|_| !none.may_poll()), "no polls without time for them");
        let mut long = AdaptivePolling::new(Duration::from_micros(200));
        for number in 0..1_000 {
            assert!(long.may_poll(), "after {number}");
            long.found(Duration::from_micros(110));
        }
    }

    #[test]
    fn an_occasional_slow_answer_does_not_stop_polling() {
        let mut polling = AdaptivePolling::new(POLL_MAX);
        for number in 0..1_000 {
            assert!(polling.may_poll(), "after {number}");
            polling.found(Duration::from_micros(if number % 8 == 7 { 50 } else { 5 }));
        }
    }
}
