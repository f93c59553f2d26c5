//! Knows whether requests to a store are worth sending. A store that was found dead gets none for a while, longer each
//! time.

#[cfg(test)]
use std::cell::RefMut;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use units::Nanos;

use super::Timing;

/// The known state of a store.
#[derive(Default)]
pub(super) struct Health {
    state: RefCell<State>,
    /// The time at which the store last answered anything.
    answered: Cell<Option<Nanos>>,
    answers: Cell<u64>,
    /// The time until which no further failed requests are logged.
    silent_until: Cell<Nanos>,
}

#[derive(Default)]
enum State {
    #[default]
    Untried,
    /// The store has answered since it was last found in another state.
    Up,
    Down {
        until: Nanos,
        backoff: Nanos,
        why: String,
    },
}

impl Health {
    /// Returns the reason why requests currently fail without being sent, if they do.
    pub(super) fn down(&self, now: Nanos) -> Option<String> {
        match &*self.state.borrow() {
            State::Down { until, why, .. } if now < *until => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn mark_up(&self, now: Nanos) {
        self.answered.set(Some(now));
        self.answers.set(self.answers.get().wrapping_add(1));
        if !self.is_up() {
            *self.state.borrow_mut() = State::Up;
        }
    }

    /// Returns whether the store has answered anything within the last `limit`.
    pub(super) fn has_answered(&self, now: Nanos, limit: Duration) -> bool {
        self.answered.get().is_some_and(|answered| now < answered + limit.into())
    }

    /// Returns the number of answers so far. More answers are a sign of life.
    pub(super) fn answers(&self) -> u64 {
        self.answers.get()
    }

    pub(super) fn mark_down(&self, why: String, timing: Timing, now: Nanos) {
        let mut state = self.state.borrow_mut();
        let backoff = match &*state {
            State::Down { backoff, .. } => (*backoff + *backoff).min(timing.retry_max.into()),
            _ => timing.retry_min.into(),
        };
        *state = State::Down { until: now + backoff, backoff, why };
    }

    /// Returns whether another failed request may be logged. This is so once per second.
    pub(super) fn may_report(&self, now: Nanos) -> bool {
        let may = now >= self.silent_until.get();
        if may {
            self.silent_until.set(now + REPORT_EVERY);
        }
        may
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up)
    }

    /// Returns whether the store was found dead and has not answered since.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down { .. })
    }

    /// Makes the next failed request panic while the returned value is held.
    #[cfg(test)]
    pub(super) fn seize(&self) -> Seized<'_> {
        Seized(self.state.borrow_mut())
    }
}

#[cfg(test)]
pub(super) struct Seized<'a>(#[expect(dead_code, reason = "it is held")] RefMut<'a, State>);

const REPORT_EVERY: Nanos = Nanos(1_000_000_000);
