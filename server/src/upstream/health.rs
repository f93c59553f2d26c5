//! Whether a store is worth asking: one that was found dead is left alone for a while, longer each time.

use std::cell::RefCell;
#[cfg(test)]
use std::cell::RefMut;

use units::Nanos;

use super::Timing;

/// What is known of a store.
#[derive(Default)]
pub(super) struct Health(RefCell<State>);

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
        match &*self.0.borrow() {
            State::Down { until, why, .. } if now < *until => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn mark_up(&self) {
        if !self.is_up() {
            *self.0.borrow_mut() = State::Up;
        }
    }

    pub(super) fn mark_down(&self, why: String, timing: Timing, now: Nanos) {
        let mut state = self.0.borrow_mut();
        let backoff = match &*state {
            State::Down { backoff, .. } => (*backoff + *backoff).min(timing.retry_max.into()),
            _ => timing.retry_min.into(),
        };
        *state = State::Down { until: now + backoff, backoff, why };
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.0.borrow(), State::Up)
    }

    /// Held, it makes the next word about this store a defect.
    #[cfg(test)]
    pub(super) fn seize(&self) -> Seized<'_> {
        Seized(self.0.borrow_mut())
    }
}

#[cfg(test)]
pub(super) struct Seized<'a>(#[expect(dead_code, reason = "it is held")] RefMut<'a, State>);
