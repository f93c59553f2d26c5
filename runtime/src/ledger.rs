//! The entries of all jobs of a runtime. A place is used again for the next job, with all the memory that it has; its
//! generation tells the jobs apart. This module decides nothing.

use std::task::{Poll, Waker};

use crate::entry::{Entry, Finished, State, Ticket};

/// The entries of one runtime's jobs.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// The place that was freed last, and after it those before: the first used is in the cache, and its waker is
    /// likely the next owner's. With none free, the number of places.
    free: u32,
}

impl Ledger {
    /// Returns a place for a new job.
    #[inline]
    pub(crate) fn open(&mut self) -> (Ticket, &mut Entry) {
        let key = self.free;
        if key as usize >= self.entries.len() {
            self.grow();
        }
        let entry = &mut self.entries[key as usize];
        self.free = entry.next_free;
        entry.state = State::Waiting;
        (Ticket::new(key, entry.generation), entry)
    }

    /// Adds one place, which is free. `free` is its index already.
    #[cold]
    fn grow(&mut self) {
        let next_free = self.free + 1;
        self.entries.push(Entry { next_free, ..Entry::default() });
    }

    /// Hands over the finished job and closes its entry, or remembers the waker.
    ///
    /// # Panics
    /// If the ticket was claimed or detached before.
    #[inline]
    pub(crate) fn claim(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Finished> {
        let entry = self.entries.get_mut(ticket.index());
        let entry = entry.filter(|entry| entry.generation == ticket.generation());
        let entry = entry.expect(ONCE);
        if matches!(entry.state, State::Waiting | State::Awaited) {
            entry.await_with(waker);
            return Poll::Pending;
        }
        let finished = entry.take_finished().expect(ONCE);
        entry.end(&mut self.free, ticket);
        Poll::Ready(finished)
    }

    /// Returns the entry, unless its job is gone.
    #[inline]
    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Entry> {
        let entry = self.entries.get(ticket.index())?;
        (entry.generation == ticket.generation()).then_some(entry)
    }

    /// Does the same as `get`, for changes.
    #[inline]
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(ticket.index())?;
        (entry.generation == ticket.generation()).then_some(entry)
    }

    /// Ends the job's books.
    #[inline]
    pub(crate) fn close(&mut self, ticket: Ticket) {
        let entry = &mut self.entries[ticket.index()];
        entry.finished = None;
        entry.again.clear();
        entry.end(&mut self.free, ticket);
    }

    /// Returns the tickets of the jobs that pass the test.
    pub(crate) fn find(&self, test: impl Fn(&Entry) -> bool) -> Vec<Ticket> {
        let entries = self.entries.iter().enumerate();
        let found = entries.filter(|(_, entry)| test(entry));
        found.map(|(key, entry)| Ticket::new(key as u32, entry.generation)).collect()
    }
}

impl Entry {
    /// Frees the place: `free` leads to it.
    #[inline]
    fn end(&mut self, free: &mut u32, ticket: Ticket) {
        self.generation = self.generation.wrapping_add(1);
        self.sample = None;
        self.state = State::Free;
        self.next_free = std::mem::replace(free, ticket.key());
    }

    /// Remembers the waker. Wakers stay with the place after their job: the next job there often has the same owner,
    /// and a waker that is already there costs no clone.
    #[inline]
    pub(crate) fn await_with(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(kept) => kept.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
        self.state = State::Awaited;
    }
}

const ONCE: &str = "a ticket is claimed or detached once";
