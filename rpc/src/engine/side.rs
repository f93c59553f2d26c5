//! One core's two interfaces: what it wrote and the engine has not taken, its reads that wait, and what they returned.
//! Every queue is bounded: a side whose core takes no completions stalls.

use std::collections::VecDeque;

use crate::command::{Address, Code, Completion};

/// A buffer with something in it.
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

    /// News comes of words, and of what was written before: so there is at most twice the depth of it.
    pub(super) fn takes_no_word(&self) -> bool {
        self.news.len() >= self.depth
    }

    /// What is done comes of reads.
    pub(super) fn takes_no_read(&self) -> bool {
        self.done.len() + self.reads.len() >= 2 * self.depth
    }

    /// The next length is of what lies here. A buffer that was armed before it is forgotten: nothing was started on it.
    pub(super) fn arm(&mut self, at: Address) {
        self.armed = Some(at);
    }

    pub(super) fn disarm(&mut self) -> Option<Address> {
        self.armed.take()
    }

    /// What was written and not yet begun.
    pub(super) fn waiting(&self) -> usize {
        self.written.len()
    }

    pub(super) fn push(&mut self, ready: Ready) {
        self.written.push_back(ready);
    }

    /// Begins on the oldest that was written.
    pub(super) fn begin(&mut self) -> Option<Ready> {
        self.written.pop_front()
    }

    /// It could not be begun for want of a place to put it: it is the oldest again.
    pub(super) fn undo(&mut self, ready: Ready) {
        self.written.push_front(ready);
    }

    /// A read, with a buffer for what it returns. News that waits comes first.
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

    /// The read was not needed: it is the oldest again, and tells what came up meanwhile.
    pub(super) fn unclaim(&mut self, buffer: Address) {
        match self.news.pop_front() {
            Some((code, about)) => self.complete(code, 0, buffer, about),
            None => self.reads.push_front(buffer),
        }
    }

    /// Something was refused, or needs no answer: the oldest read tells of it, or the next one.
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
