//! Who goes on with a job from within the turn that finished it, without its owner's task in between. It wakes nobody
//! and decides nothing.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use device::Job;
use units::Nanos;

use super::{Outstanding, Runtime};
use crate::entry::{Finished, State, Ticket};
use crate::slot::Slot;

/// Goes on with jobs as turns finish them.
pub(crate) trait Follower {
    /// When it must be called although no job of its own is back; zero is at once.
    fn due(&self) -> Option<Nanos>;

    /// Called at the end of a turn; [`Runtime::next_followed`] has the jobs.
    fn follow(&mut self, core: &mut Runtime);
}

/// The follower and the jobs that are back for it.
#[derive(Default)]
pub(super) struct Followed {
    by: Option<Rc<RefCell<dyn Follower>>>,
    finished: VecDeque<Ticket>,
}

impl Runtime {
    /// From now on this one follows.
    ///
    /// # Panics
    /// If another does: whose a job is would not be known.
    pub(crate) fn set_follower(&mut self, follower: Rc<RefCell<dyn Follower>>) {
        assert!(self.followed.by.is_none(), "a runtime has one executor of traces");
        self.followed.by = Some(follower);
    }

    /// The job, which is not finished, goes to the follower and not to who claims it.
    pub(crate) fn follow(&mut self, ticket: Ticket) {
        if let Some(entry) = self.jobs.get_mut(ticket) {
            entry.state = State::Followed;
        }
    }

    /// The next job that is back for the follower.
    pub(crate) fn next_followed(&mut self) -> Option<Finished> {
        loop {
            let ticket = self.followed.finished.pop_front()?;
            // One that was detached since has no books any more.
            if let Some(finished) = self.take(ticket) {
                return Some(finished);
            }
        }
    }

    /// The job, if it is finished.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Finished> {
        let finished = self.jobs.get_mut(ticket)?.take_finished()?;
        self.unclaimed -= 1;
        self.jobs.close(ticket);
        Some(finished)
    }

    /// Whether devices beside software would take the job, and all of those are full.
    pub(crate) fn is_crowded(&self, job: &Job) -> bool {
        let others = &self.slots[1..];
        if !others.iter().any(Slot::is_full) {
            return false;
        }
        let takes = |slot: &&Slot| {
            let accepts = slot.capabilities.accepts(&job.task, job.work_bytes());
            slot.retired.is_none() && accepts
        };
        let mut takers = others.iter().filter(takes).peekable();
        takers.peek().is_some() && takers.all(Slot::is_full)
    }

    /// The time for one use.
    pub(crate) fn now(&mut self) -> Nanos {
        self.time.now()
    }

    #[cold]
    pub(super) fn finished_followed(&mut self, ticket: Ticket) {
        self.followed.finished.push_back(ticket);
    }

    pub(super) fn call_follower(&mut self) {
        if let Some(follower) = &self.followed.by {
            let follower = Rc::clone(follower);
            follower.borrow_mut().follow(self);
        }
    }

    pub(super) fn has_followed(&self) -> bool {
        !self.followed.finished.is_empty() || self.follower_due().is_some()
    }

    /// Adds what the follower waits for.
    pub(super) fn with_followed(&self, mut outstanding: Outstanding) -> Outstanding {
        if !self.followed.finished.is_empty() {
            outstanding.jobs += self.followed.finished.len();
            outstanding.polled = Some(Nanos(0));
        }
        match self.follower_due() {
            None => {}
            Some(Nanos(0)) => {
                outstanding.jobs += 1;
                outstanding.polled = Some(Nanos(0));
            }
            Some(due) => {
                let left = due.since(self.time.last());
                let is_alone = outstanding.jobs == 0;
                let sooner = outstanding.turn_within.min(left);
                outstanding.turn_within = if is_alone { left } else { sooner };
                outstanding.jobs += 1;
            }
        }
        outstanding
    }

    fn follower_due(&self) -> Option<Nanos> {
        self.followed.by.as_ref().and_then(|follower| follower.borrow().due())
    }
}
