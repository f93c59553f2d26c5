//! Tracks the health of a store. After a failure, requests fail at once for a while (exponential backoff). Also
//! counts what decides whether the store is taken out of the ring: failures in a row, and times of answers.

#[cfg(test)]
use std::cell::RefMut;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use units::Nanos;

use super::Timing;
use super::login::LoginState;

/// The known state of a store.
#[derive(Default)]
pub(super) struct Health {
    state: RefCell<State>,
    /// The time at which the store last answered anything.
    answered: Cell<Option<Nanos>>,
    answers: Cell<u64>,
    /// The requests failed since the last answer to a request that was no probe.
    failures_in_row: Cell<u32>,
    /// Whether the store has refused the login.
    login: LoginState,
    /// The time until which further failed requests are not logged.
    silent_until: Cell<Nanos>,
}

/// The times of the answers on one connection, since they were last taken.
#[derive(Default)]
pub(super) struct AnswerTimes {
    sum: Cell<Nanos>,
    answers: Cell<u64>,
}

impl AnswerTimes {
    #[inline]
    pub(super) fn record(&self, time: Nanos) {
        self.sum.set(self.sum.get() + time);
        self.answers.set(self.answers.get() + 1);
    }

    /// Returns the sum of the times and their number, and begins again.
    pub(super) fn take(&self) -> (Nanos, u64) {
        (self.sum.take(), self.answers.take())
    }
}

#[derive(Default)]
enum State {
    #[default]
    Untried,
    /// The store has answered since it was last down.
    Up,
    Down {
        until: Nanos,
        backoff: Nanos,
        why: String,
    },
}

impl Health {
    /// Returns the reason why requests fail without being sent, if they currently do.
    pub(super) fn down(&self, now: Nanos) -> Option<String> {
        match &*self.state.borrow() {
            State::Down { until, why, .. } if now < *until => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn login(&self) -> &LoginState {
        &self.login
    }

    pub(super) fn mark_up(&self, now: Nanos) {
        self.answered.set(Some(now));
        self.answers.set(self.answers.get().wrapping_add(1));
        if !self.is_up() {
            *self.state.borrow_mut() = State::Up;
        }
    }

    /// Records that a request that was no probe got an answer.
    #[inline]
    pub(super) fn record_success(&self) {
        self.failures_in_row.set(0);
    }

    pub(super) fn record_failures(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.failures_in_row.set(self.failures_in_row.get().saturating_add(requests));
    }

    pub(super) fn failures_in_row(&self) -> u32 {
        self.failures_in_row.get()
    }

    /// Returns whether the store has answered any request within the last `limit`.
    pub(super) fn has_answered(&self, now: Nanos, limit: Duration) -> bool {
        self.answered.get().is_some_and(|answered| now < answered + limit.into())
    }

    /// Returns the number of answers so far.
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

    /// Returns whether a failed request may be logged, which is at most once per second.
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

    /// Returns whether the store is down and has not answered since it failed.
    pub(super) fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), State::Down { .. })
    }

    /// Makes failed requests panic while the returned value is held.
    #[cfg(test)]
    pub(super) fn seize(&self) -> Seized<'_> {
        Seized(self.state.borrow_mut())
    }
}

#[cfg(test)]
pub(super) struct Seized<'a>(#[expect(dead_code, reason = "it is held")] RefMut<'a, State>);

const REPORT_EVERY: Nanos = Nanos(1_000_000_000);
