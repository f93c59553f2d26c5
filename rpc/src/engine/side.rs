//! The two interfaces of one core: the writes that the engine has not begun, the waiting reads, and
//! the results. Every queue is bounded: if the core takes no completions, its side stalls.

use std::collections::VecDeque;

use crate::command::{Address, Code, Completion};

/// A buffer with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) at: Address,
    pub(super) length: usize,
}

#[derive(Debug)]
pub(super) struct Side {
    depth: usize,
    armed: Option<Address>,
    written: VecDeque<Ready>,
    reads: VecDeque<Address>,
    news: VecDeque<(Code, Address)>,
    done: VecDeque<Completion>,
}

impl Side {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            depth,
            armed: None,
            written: VecDeque::new(),
            reads: VecDeque::new(),
            news: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    /// Returns whether the side refuses words now, because too many reports wait for a read.
    /// Reports come from words and from earlier writes, so at most twice the depth can wait.
    pub(super) fn takes_no_word(&self) -> bool {
        self.news.len() >= self.depth
    }

    /// Returns whether the side refuses reads now: waiting reads and untaken completions together
    /// have reached twice the depth.
    pub(super) fn takes_no_read(&self) -> bool {
        self.done.len() + self.reads.len() >= 2 * self.depth
    }

    /// Arms the side: the next length belongs to the buffer `at`. A buffer that was armed earlier
    /// is forgotten, because nothing was started on it.
    pub(super) fn arm(&mut self, at: Address) {
        self.armed = Some(at);
    }

    pub(super) fn disarm(&mut self) -> Option<Address> {
        self.armed.take()
    }

    /// Returns the number of writes that have not begun.
    pub(super) fn waiting(&self) -> usize {
        self.written.len()
    }

    pub(super) fn push(&mut self, ready: Ready) {
        self.written.push_back(ready);
    }

    /// Begins the oldest write.
    pub(super) fn begin(&mut self) -> Option<Ready> {
        self.written.pop_front()
    }

    /// Puts a write back at the front of the queue, because there was no buffer for its result.
    pub(super) fn undo(&mut self, ready: Ready) {
        self.written.push_front(ready);
    }

    /// Accepts a read with a buffer for its result. If a report is waiting, the read completes with
    /// it at once.
    pub(super) fn read(&mut self, buffer: Address) {
        if let Some((code, about)) = self.news.pop_front() {
            self.complete(code, 0, buffer, about);
        } else if self.reads.len() >= self.depth {
            self.complete(Code::QueueFull, 0, buffer, buffer);
        } else {
            self.reads.push_back(buffer);
        }
    }

    pub(super) fn has_read(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Removes the oldest read from the queue, to complete it.
    pub(super) fn claim(&mut self) -> Option<Address> {
        self.reads.pop_front()
    }

    /// Puts a read that was not needed back at the front of the queue. If a report has arrived in
    /// the meantime, the read completes with that report instead.
    pub(super) fn unclaim(&mut self, buffer: Address) {
        match self.news.pop_front() {
            Some((code, about)) => self.complete(code, 0, buffer, about),
            None => self.reads.push_front(buffer),
        }
    }

    /// Reports a refusal, or the end of a request that needs no answer. The oldest waiting read
    /// completes with the report. If no read is waiting, the next read does.
    pub(super) fn tell(&mut self, code: Code, about: Address) {
        match self.claim() {
            Some(buffer) => self.complete(code, 0, buffer, about),
            None => self.news.push_back((code, about)),
        }
    }

    pub(super) fn complete(&mut self, code: Code, length: usize, buffer: Address, about: Address) {
        self.done.push_back(Completion { code, length, buffer, about });
    }

    pub(super) fn take(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}
