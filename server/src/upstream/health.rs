//! Knows whether a store is worth asking. A store that was found dead is left alone for a while, longer each time.

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
    /// The time at which it last answered anything.
    answered: Cell<Option<Nanos>>,
    answers: Cell<u64>,
    /// The time until which the log is told of no further failed requests.
    silent_until: Cell<Nanos>,
}

#[derive(Default)]
enum State {
    #[default]
    Untried,
    /// It answered since it was last found otherwise.
    Up,
    Down {
        until: Nanos,
        backoff: Nanos,
        why: String,
    },
}

impl Health {
    /// Returns why requests fail without being sent, while they do.
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

    /// The answers so far: more of them are a sign of life.
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

    /// Returns whether the log may be told of another failed request: once per second.
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

    /// Makes the next failed request a defect while it is held.
    #[cfg(test)]
    pub(super) fn seize(&self) -> Seized<'_> {
        Seized(self.state.borrow_mut())
    }
}

#[cfg(test)]
pub(super) struct Seized<'a>(#[expect(dead_code, reason = "it is held")] RefMut<'a, State>);

const REPORT_EVERY: Nanos = Nanos(1_000_000_000);
