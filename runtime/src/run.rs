//! The futures that tasks await: a submitted job, and a yield to the other ready tasks. They work in every
//! executor whose tasks stay on the runtime's thread.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::core::Runtime;
use crate::entry::{Finished, Ticket};

/// A submitted job. Dropping it detaches the job.
pub struct Run {
    core: Rc<RefCell<Runtime>>,
    /// The ticket. It is [`Ticket::SPENT`] after the job was returned.
    ticket: Ticket,
}

impl Run {
    #[inline]
    pub(crate) fn new(core: &Rc<RefCell<Runtime>>, ticket: Ticket) -> Self {
        Self { core: Rc::clone(core), ticket }
    }

    #[cold]
    fn give_up(&self) {
        self.core.borrow_mut().detach(self.ticket);
    }
}

impl Future for Run {
    type Output = Finished;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let claimed = self.core.borrow_mut().claim(self.ticket, context);
        if claimed.is_ready() {
            self.ticket = Ticket::SPENT;
        }
        claimed
    }
}

impl Drop for Run {
    #[inline]
    fn drop(&mut self) {
        if self.ticket != Ticket::SPENT {
            self.give_up();
        }
    }
}

/// A future that lets the tasks that are ready run first.
pub struct YieldNow(pub(crate) bool);

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
