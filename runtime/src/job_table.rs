//! The entries of all jobs of a runtime. An entry is reused for a later job with all its memory, and its generation
//! distinguishes the jobs. This module decides nothing.

use std::task::{Poll, Waker};

use crate::entry::{Entry, Finished, State, Ticket};

/// The entries of one runtime's jobs.
#[derive(Default)]
pub(crate) struct JobTable {
    entries: Vec<Entry>,
    /// The head of the list of free entries: the index of the entry that was freed last. That entry is likely
    /// in the cache, and its waker is likely the next owner's. If no entry is free, this is the number of
    /// entries.
    free: u32,
}

impl JobTable {
    /// Returns an entry for a new job.
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

    /// Adds one free entry. `free` is already its index.
    #[cold]
    fn grow(&mut self) {
        let next_free = self.free + 1;
        self.entries.push(Entry { next_free, ..Entry::default() });
    }

    /// Returns the finished job and closes its entry, or stores the waker.
    ///
    /// # Panics
    /// Panics if the ticket was claimed or detached before.
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

    /// Returns the entry for changes, unless its job is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(ticket.index())?;
        (entry.generation == ticket.generation()).then_some(entry)
    }

    /// Closes the job's entry.
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
    /// Frees the entry and makes it the first free one.
    #[inline]
    fn end(&mut self, free: &mut u32, ticket: Ticket) {
        self.generation = self.generation.wrapping_add(1);
        self.sample = None;
        self.state = State::Free;
        self.next_free = std::mem::replace(free, ticket.key());
    }

    /// Stores the waker. A waker stays with the entry after its job. The next job there often has the same owner, and
    /// then its waker need not be cloned.
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
