//! Whether a store is worth asking: one that was found dead is left alone for a while, longer each time.

use std::cell::RefCell;
#[cfg(test)]
use std::cell::RefMut;
use std::time::{Duration, Instant};

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
        until: Instant,
        backoff: Duration,
        why: String,
    },
}

impl Health {
    /// Why requests fail without being sent, while they do.
    pub(super) fn down(&self) -> Option<String> {
        match &*self.0.borrow() {
            State::Down { until, why, .. } if Instant::now() < *until => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn mark_up(&self) {
        if !self.is_up() {
            *self.0.borrow_mut() = State::Up;
        }
    }

    pub(super) fn mark_down(&self, why: String, timing: Timing) {
        let mut state = self.0.borrow_mut();
        let backoff = match &*state {
            State::Down { backoff, .. } => (*backoff * 2).min(timing.retry_max),
            _ => timing.retry_min,
        };
        *state = State::Down { until: Instant::now() + backoff, backoff, why };
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
