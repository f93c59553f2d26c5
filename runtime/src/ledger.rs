//! Where the books on all jobs of a runtime are kept. A place is used again for the next job, with all the memory that
//! it has; its generation tells the jobs apart. No decisions.

use std::task::Waker;

use crate::entry::{Entry, State, Ticket};

/// The entries of one runtime's jobs.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// The last freed is the first used: it is in the cache, and its waker is likely the next owner's.
    free: Vec<u32>,
}

impl Ledger {
    /// A place for a new job.
    #[inline]
    pub(crate) fn open(&mut self) -> (Ticket, &mut Entry) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[key as usize];
        entry.state = State::Waiting;
        (Ticket::new(key, entry.generation), entry)
    }

    /// The entry, unless its job is gone.
    #[inline]
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Entry> {
        let entry = self.entries.get(ticket.index())?;
        (entry.generation == ticket.generation()).then_some(entry)
    }

    /// As `get`, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(ticket.index())?;
        (entry.generation == ticket.generation()).then_some(entry)
    }

    /// Ends the job's books.
    #[inline]
    pub(crate) fn close(&mut self, ticket: Ticket) {
        let entry = &mut self.entries[ticket.index()];
        entry.generation = entry.generation.wrapping_add(1);
        entry.is_awaited = false;
        entry.met = None;
        entry.again.clear();
        entry.state = State::Free;
        self.free.push(ticket.key());
    }

    /// The tickets of the jobs that pass the test.
    pub(crate) fn find(&self, test: impl Fn(&Entry) -> bool) -> Vec<Ticket> {
        let entries = self.entries.iter().enumerate();
        let found = entries.filter(|(_, entry)| test(entry));
        found.map(|(key, entry)| Ticket::new(key as u32, entry.generation)).collect()
    }
}

impl Entry {
    /// Remembers whom to wake. Wakers stay with the place after their job: the next job there is often the same
    /// owner's, and a waker that is already there costs no clone.
    #[inline]
    pub(crate) fn await_with(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(own) => own.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
        self.is_awaited = true;
    }

    /// Wakes the owner, if it waits.
    #[inline]
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.is_awaited)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }
}
