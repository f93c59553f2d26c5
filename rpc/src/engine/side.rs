//! One core's two interfaces: the writes that the engine has not taken, the reads that wait, and their results. Every
//! queue is bounded: a side whose core takes no completions stalls.

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

    /// Returns whether the side takes no word. Completions come from words, and from writes before them, so there are
    /// at most twice the depth of them.
    pub(super) fn takes_no_word(&self) -> bool {
        self.news.len() >= self.depth
    }

    /// Returns whether the side takes no read. Results come from reads.
    pub(super) fn takes_no_read(&self) -> bool {
        self.done.len() + self.reads.len() >= 2 * self.depth
    }

    /// Arms the side: the next length is of the bytes here. A buffer that was armed before it is forgotten, because
    /// nothing was started on it.
    pub(super) fn arm(&mut self, at: Address) {
        self.armed = Some(at);
    }

    pub(super) fn disarm(&mut self) -> Option<Address> {
        self.armed.take()
    }

    /// Returns the number of writes that are not yet begun.
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

    /// Makes a write the oldest again that could not be begun for lack of a place for its result.
    pub(super) fn undo(&mut self, ready: Ready) {
        self.written.push_front(ready);
    }

    /// Takes a read, with a buffer for its result. A completion that waits comes first.
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

    /// Takes the oldest read, to complete it.
    pub(super) fn claim(&mut self) -> Option<Address> {
        self.reads.pop_front()
    }

    /// Makes a read the oldest again that was not needed. It reports a completion that came up meanwhile.
    pub(super) fn unclaim(&mut self, buffer: Address) {
        match self.news.pop_front() {
            Some((code, about)) => self.complete(code, 0, buffer, about),
            None => self.reads.push_front(buffer),
        }
    }

    /// Reports a refusal, or the end of a request that needs no answer, through the oldest read, or the next one.
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
