//! The event loop. Events fire in one total order: by time, then by priority, then by the order in which they were
//! scheduled. The loop knows no stations and keeps no statistics.

use std::ops::ControlFlow;

use crate::{FourAry, Picos};

/// The scheduled events, and the current time.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    now: Picos,
    scheduled: u64,
    fired: u64,
    events: FourAry<E>,
}

/// A system that events change.
pub trait Model {
    /// The type of events. It should be small and plain, because the queue copies events.
    type Event: Copy;

    /// Handles `event`. A break ends the run.
    fn handle(&mut self, event: Self::Event, agenda: &mut Agenda<Self::Event>) -> ControlFlow<()>;
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended the run.
    Stopped,
    /// No event was left.
    Empty,
    /// The limit of events was reached.
    EventLimit,
}

/// Fires events until the model ends the run, no event is left, or `events_max` events have fired.
pub fn run<M: Model>(model: &mut M, agenda: &mut Agenda<M::Event>, events_max: u64) -> End {
    while agenda.fired < events_max {
        let Some(event) = agenda.fire() else { return End::Empty };
        if model.handle(event, agenda).is_break() {
            return End::Stopped;
        }
    }
    End::EventLimit
}

impl<E: Copy> Agenda<E> {
    /// The priority of events that [`Agenda::at`] and [`Agenda::after`] schedule.
    pub const PRIORITY: u8 = 128;

    /// Makes an empty agenda at time zero with capacity for `capacity` events.
    pub fn with_capacity(capacity: usize) -> Self {
        let events = FourAry::with_capacity(capacity);
        Self { now: Picos(0), scheduled: 0, fired: 0, events }
    }

    /// Returns the time of the event that fired last.
    #[inline]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Returns the number of events that have fired.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Schedules `event` at `time`. An event with a time in the past fires now.
    #[inline]
    pub fn at(&mut self, time: Picos, event: E) {
        self.at_priority(time, Self::PRIORITY, event);
    }

    /// Schedules `event` after `delay` from now.
    #[inline]
    pub fn after(&mut self, delay: Picos, event: E) {
        self.at_priority(self.now + delay, Self::PRIORITY, event);
    }

    /// Schedules `event` at `time`. It fires before the events of that time with a larger `priority`.
    #[inline]
    pub fn at_priority(&mut self, time: Picos, priority: u8, event: E) {
        let order = u64::from(priority) << SEQUENCE_BITS | self.scheduled;
        self.scheduled += 1;
        self.events.push(u128::from(time.max(self.now).0) << 64 | u128::from(order), event);
    }

    /// Removes the next event and sets the time to the event's time.
    #[inline]
    pub fn fire(&mut self) -> Option<E> {
        let (key, event) = self.events.pop()?;
        self.now = Picos((key >> 64) as u64);
        self.fired += 1;
        Some(event)
    }
}

/// The number of bits of the sequence number. They allow 7e16 events, enough for 91 years at 25 million
/// events per second.
const SEQUENCE_BITS: u32 = 56;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_fire_by_time_then_priority_then_insertion() {
        let mut agenda = Agenda::with_capacity(4);
        agenda.at(Picos(20), 'e');
        agenda.at(Picos(10), 'c');
        agenda.at(Picos(10), 'd');
        agenda.at_priority(Picos(10), 0, 'b');
        agenda.at(Picos(5), 'a');
        let order: String = std::iter::from_fn(|| agenda.fire()).collect();
        assert_eq!(order, "abcde");
        agenda.at(Picos(1), 'z');
        assert_eq!((agenda.fire(), agenda.now()), (Some('z'), Picos(20)), "the past is now");
    }

    #[test]
    fn a_run_says_why_it_ended() {
        struct Ticks(u32);
        impl Model for Ticks {
            type Event = ();
            fn handle(&mut self, (): (), agenda: &mut Agenda<()>) -> ControlFlow<()> {
                self.0 -= 1;
                agenda.after(Picos(1), ());
                if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
        }
        let started = || {
            let mut agenda = Agenda::with_capacity(1);
            agenda.at(Picos(0), ());
            agenda
        };
        assert_eq!(run(&mut Ticks(3), &mut started(), 100), End::Stopped);
        assert_eq!(run(&mut Ticks(300), &mut started(), 100), End::EventLimit);
        assert_eq!(run(&mut Ticks(3), &mut Agenda::with_capacity(0), 100), End::Empty);
    }
}
