//! Whether a store is worth asking: one that was found dead is left alone for a while, longer each time.

#[cfg(test)]
use std::cell::RefMut;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use units::Nanos;

use super::Timing;

/// What is known of a store.
#[derive(Default)]
pub(super) struct Health {
    state: RefCell<State>,
    /// When it last answered anything.
    answered: Cell<Option<Nanos>>,
    answers: Cell<u64>,
    /// Until when the log has heard enough of failed requests.
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
    /// Why requests fail without being sent, while they do.
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

    /// Whether it has answered anything within the last `limit`.
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

    /// Whether the log may hear of another failed request: once in a second.
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

    /// Whether it was found dead and has not answered since.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down { .. })
    }

    /// Held, it makes the next word about this store a defect.
    #[cfg(test)]
    pub(super) fn seize(&self) -> Seized<'_> {
        Seized(self.state.borrow_mut())
    }
}

#[cfg(test)]
pub(super) struct Seized<'a>(#[expect(dead_code, reason = "it is held")] RefMut<'a, State>);

const REPORT_EVERY: Nanos = Nanos(1_000_000_000);
