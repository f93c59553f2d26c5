//! The polls of a side between two sleeps, one look at a time: counts them, measures them, and asks
//! [`super::adaptive_polling`] whether they pay. The caller looks and sleeps.
//!
//! Whether the other side slept when it was last written to is known, because its doorbell was rung then. A peer that
//! was awake answers within a few microseconds, and one that slept must be woken first. Polls are therefore measured
//! apart for the two. Otherwise two sides that both sleep would never find out that polling pays: a poll of one of them
//! would always wait for the other's wake. So one poll that is tried at times is enough, because the other side then
//! writes to a side that is awake.

use std::time::{Duration, Instant};

use super::adaptive_polling::{AdaptivePolling, POLL_MAX, POLLS_PER_CLOCK_READ};

/// The polls of one side.
#[derive(Debug)]
pub(crate) struct Poller {
    /// The polls after the peer was written to while it was awake, and those after its doorbell was rung.
    adaptive_polling: [AdaptivePolling; 2],
    /// Whether the last write rang the peer's doorbell.
    has_rung: bool,
    polls: Option<Polls>,
}

#[derive(Debug)]
struct Polls {
    since: Instant,
    count: u32,
}

impl Default for Poller {
    fn default() -> Self {
        Self::new(POLL_MAX)
    }
}

impl Poller {
    /// Its polls take at most `max` each. If it is zero, there are none.
    pub(crate) const fn new(max: Duration) -> Self {
        let adaptive_polling = [AdaptivePolling::new(max), AdaptivePolling::new(max)];
        Self { adaptive_polling, has_rung: false, polls: None }
    }

    /// Returns whether to look again after a look that found nothing, and not to sleep. `may_begin` is asked first if
    /// the side does not poll yet.
    pub(crate) fn goes_on(&mut self, may_begin: impl FnOnce() -> bool) -> bool {
        let polling = &mut self.adaptive_polling[usize::from(self.has_rung)];
        let goes_on = match &mut self.polls {
            Some(polls) => {
                polls.count = polls.count.wrapping_add(1);
                let is_over = polls.count.is_multiple_of(POLLS_PER_CLOCK_READ)
                    && polls.since.elapsed() >= polling.max();
                if is_over {
                    polling.missed();
                }
                !is_over
            }
            None => may_begin() && polling.may_poll(),
        };
        if goes_on {
            self.polls.get_or_insert_with(|| Polls { since: Instant::now(), count: 0 });
        } else {
            self.polls = None;
        }
        goes_on
    }

    /// Records that a look has found something.
    pub(crate) fn found(&mut self) {
        if let Some(polls) = self.polls.take() {
            self.adaptive_polling[usize::from(self.has_rung)].found(polls.since.elapsed());
        }
    }

    /// Records that the peer was written to, and whether its doorbell was rung for it.
    pub(crate) fn wrote(&mut self, has_rung: bool) {
        self.has_rung = has_rung;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_after_a_doorbell_are_measured_apart() {
        let mut poller = Poller::new(Duration::from_micros(5));
        // A poll that finds nothing in its whole time.
        let misses = |poller: &mut Poller| while poller.goes_on(|| true) {};
        poller.wrote(true);
        for _ in 0..32 {
            misses(&mut poller);
        }
        // One poll in many is tried.
        assert!((0..40).filter(|_| poller.goes_on(|| true)).count() < 40, "they do not pay");
        misses(&mut poller);
        poller.wrote(false);
        assert!(poller.goes_on(|| true), "nothing is known of a peer that is awake");
        assert!(!Poller::default().goes_on(|| false), "not even the first may begin");
    }
}
