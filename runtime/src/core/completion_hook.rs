//! A hook that handles finished jobs within the turn that finished them, without running a task.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use device::{Capabilities, Job};
use units::Nanos;

use super::{Outstanding, Runtime};
use crate::entry::{Finished, State, Ticket};
use crate::slot::Slot;

/// Handles finished jobs at the end of the turn that finished them.
pub(crate) trait CompletionHook {
    /// Returns when the hook must be called even if none of its jobs has returned. Zero means at once.
    fn due(&self) -> Option<Nanos>;

    /// Handles the finished jobs from [`Runtime::next_hooked`]. It is called at the end of a turn.
    fn on_completions(&mut self, core: &mut Runtime);
}

/// The hook and the tickets of its finished jobs.
#[derive(Default)]
pub(super) struct Hooked {
    hook: Option<Rc<RefCell<dyn CompletionHook>>>,
    finished: VecDeque<Ticket>,
}

impl Runtime {
    /// Sets the hook.
    ///
    /// # Panics
    /// Panics if there is a hook already, because the runtime could not tell which hook owns a job.
    pub(crate) fn set_completion_hook(&mut self, hook: Rc<RefCell<dyn CompletionHook>>) {
        assert!(self.jobs.hooked.hook.is_none(), "a runtime has one executor of traces");
        self.jobs.hooked.hook = Some(hook);
    }

    /// Assigns the unfinished job to the hook instead of to a task that claims it.
    pub(crate) fn assign_to_hook(&mut self, ticket: Ticket) {
        if let Some(entry) = self.jobs.table.get_mut(ticket) {
            entry.state = State::Hooked;
        }
    }

    /// Returns the next finished job of the hook.
    pub(crate) fn next_hooked(&mut self) -> Option<Finished> {
        loop {
            let ticket = self.jobs.hooked.finished.pop_front()?;
            // A job that was detached in the meantime has no entry any more.
            if let Some(finished) = self.take(ticket) {
                return Some(finished);
            }
        }
    }

    /// Returns the job if it is finished.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Finished> {
        let finished = self.jobs.table.get_mut(ticket)?.take_finished()?;
        self.jobs.unclaimed -= 1;
        self.jobs.table.close(ticket);
        Some(finished)
    }

    /// Returns whether devices other than software accept the job and all of these are full.
    pub(crate) fn is_saturated(&self, job: &Job) -> bool {
        let others = &self.devices.slots[1..];
        if !others.iter().any(Slot::is_full) {
            return false;
        }
        let takes = |slot: &&Slot| {
            let accepts = slot.capabilities.accepts(&job.task, job.work_bytes());
            slot.retired.is_none() && accepts
        };
        let mut accepting = others.iter().filter(takes).peekable();
        accepting.peek().is_some() && accepting.all(Slot::is_full)
    }

    /// Returns the capabilities of the devices in use other than software.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Capabilities> {
        self.other_slots().map(|slot| &slot.capabilities)
    }

    /// Returns the devices in use other than software.
    pub(crate) fn other_slots(&self) -> impl Iterator<Item = &Slot> {
        self.devices.slots[1..].iter().filter(|slot| slot.retired.is_none())
    }

    /// Returns the current time. It may be from a recent reading of the clock.
    pub(crate) fn now(&mut self) -> Nanos {
        self.clock.time.now()
    }

    #[cold]
    pub(super) fn finished_hooked(&mut self, ticket: Ticket) {
        self.jobs.hooked.finished.push_back(ticket);
    }

    pub(super) fn call_hook(&mut self) {
        if let Some(hook) = &self.jobs.hooked.hook {
            let hook = Rc::clone(hook);
            hook.borrow_mut().on_completions(self);
        }
    }

    pub(super) fn has_hooked(&self) -> bool {
        !self.jobs.hooked.finished.is_empty() || self.hook_due().is_some()
    }

    /// Adds the hook's jobs and its due time to `outstanding`.
    pub(super) fn with_hooked(&self, mut outstanding: Outstanding) -> Outstanding {
        if !self.jobs.hooked.finished.is_empty() {
            outstanding.jobs += self.jobs.hooked.finished.len();
            outstanding.polled = Some(Nanos(0));
        }
        match self.hook_due() {
            None => {}
            Some(Nanos(0)) => {
                outstanding.jobs += 1;
                outstanding.polled = Some(Nanos(0));
            }
            Some(due) => {
                let left = due.since(self.clock.time.last());
                let is_alone = outstanding.jobs == 0;
                let sooner = outstanding.turn_within.min(left);
                outstanding.turn_within = if is_alone { left } else { sooner };
                outstanding.jobs += 1;
            }
        }
        outstanding
    }

    fn hook_due(&self) -> Option<Nanos> {
        self.jobs.hooked.hook.as_ref().and_then(|hook| hook.borrow().due())
    }
}
