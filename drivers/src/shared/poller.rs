//! The polls of a side between two sleeps, one look at a time: counts them, measures them, and asks
//! [`super::adaptive_polling`] whether they pay. The caller looks and sleeps.

use std::time::Instant;

use super::adaptive_polling::{AdaptivePolling, POLL_MAX, POLLS_PER_CLOCK_READ};

/// The polls of one side.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    adaptive_polling: AdaptivePolling,
    polls: Option<Polls>,
}

#[derive(Debug)]
struct Polls {
    since: Instant,
    count: u32,
}

impl Poller {
    /// Returns whether to look again after a look that found nothing, and not to sleep. `may_begin` is asked first if
    /// the side does not poll yet.
    pub(crate) fn goes_on(&mut self, may_begin: impl FnOnce() -> bool) -> bool {
        let goes_on = match &mut self.polls {
            Some(polls) => {
                polls.count = polls.count.wrapping_add(1);
                let is_over = polls.count.is_multiple_of(POLLS_PER_CLOCK_READ)
                    && polls.since.elapsed() >= POLL_MAX;
                if is_over {
                    self.adaptive_polling.missed();
                }
                !is_over
            }
            None => may_begin() && self.adaptive_polling.may_poll(),
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
            self.adaptive_polling.found(polls.since.elapsed());
        }
    }
}
