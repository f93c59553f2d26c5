//! One accelerator: PEs, an input queue with its overflow area, an output queue and the dispatcher behind it. It
//! decides who waits, who is next and who must wait for an output entry; what an op takes is the caller's.
//!
//! An entry is allocated when it is pushed and is ready when its data has landed; entries are taken in the order of
//! allocation. So a hand-over needs no event of its own.

use std::collections::VecDeque;

use crate::{FourAry, Picos};

/// An op that waits for a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) token: u32,
    /// When its data has landed.
    pub(super) ready: Picos,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A PE takes it.
    Pe(u8),
    /// It waits.
    Waits,
    /// It waits in the overflow area.
    Overflows,
    /// There is no place.
    Refused,
}

#[derive(Clone, Debug)]
pub(super) struct Station {
    free: Vec<u8>,
    /// The tenant that each PE worked for last.
    pub(super) tenants: Vec<u16>,
    queue: Queue,
    entries: usize,
    overflow: VecDeque<(u64, Waiting)>,
    overflow_max: usize,
    /// Entries held by traces that wait for an answer.
    pub(super) asleep: usize,
    /// When the last entries of the output queue are cleared, as many as there are places.
    leaves: Vec<Picos>,
    /// The oldest of them, once there are as many.
    oldest: usize,
    output_entries: usize,
    pub(super) dispatcher_free: Picos,
}

#[derive(Clone, Debug)]
enum Queue {
    InOrder(VecDeque<Waiting>),
    /// By rank, then in order.
    Ranked(FourAry<Waiting>, u64),
}

/// How large a station is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pes: u32,
    pub(super) entries: usize,
    pub(super) overflow_max: usize,
    pub(super) output_entries: usize,
    pub(super) ranked: bool,
}

impl Station {
    pub(super) fn new(shape: Shape) -> Self {
        let queue = if shape.ranked {
            Queue::Ranked(FourAry::with_capacity(0), 0)
        } else {
            Queue::InOrder(VecDeque::new())
        };
        Self {
            free: (0..shape.pes as u8).rev().collect(),
            tenants: vec![0; shape.pes as usize],
            queue,
            entries: shape.entries,
            overflow: VecDeque::new(),
            overflow_max: shape.overflow_max,
            asleep: 0,
            leaves: Vec::new(),
            oldest: 0,
            output_entries: shape.output_entries,
            dispatcher_free: Picos(0),
        }
    }

    /// An entry comes; `may_overflow` unless a core brings it. The smaller `rank` goes first where ranks matter.
    #[inline(always)]
    pub(super) fn offer(&mut self, entry: Waiting, rank: u64, may_overflow: bool) -> Taken {
        if let Some(pe) = self.free.pop() {
            return Taken::Pe(pe);
        }
        if self.overflow.is_empty() && self.waiting() + self.asleep < self.entries {
            self.push(rank, entry);
            return Taken::Waits;
        }
        if !may_overflow || self.overflow.len() >= self.overflow_max {
            return Taken::Refused;
        }
        self.overflow.push_back((rank, entry));
        Taken::Overflows
    }

    /// `pe` is free: the entry that it takes next. One from the overflow area follows into the queue.
    #[inline(always)]
    pub(super) fn release(&mut self, pe: u8) -> Option<Waiting> {
        let next = match &mut self.queue {
            Queue::InOrder(queue) => queue.pop_front(),
            Queue::Ranked(queue, _) => queue.pop().map(|(_, entry)| entry),
        };
        // With an empty queue and all entries asleep, the overflow area's head is next.
        let next = next.or_else(|| self.overflow.pop_front().map(|(_, entry)| entry));
        match next {
            None => self.free.push(pe),
            Some(_) => self.refill(),
        }
        next
    }

    /// Takes a PE for the manager's queue, if one is free.
    pub(super) fn take(&mut self) -> Option<u8> {
        self.free.pop()
    }

    /// How many PEs are free.
    pub(super) fn idle(&self) -> usize {
        self.free.len()
    }

    /// Gives a PE back without looking at the queue.
    pub(super) fn give(&mut self, pe: u8) {
        self.free.push(pe);
    }

    /// Mostly nothing has overflowed.
    #[inline]
    fn refill(&mut self) {
        if !self.overflow.is_empty()
            && self.waiting() + self.asleep < self.entries
            && let Some((rank, entry)) = self.overflow.pop_front()
        {
            self.push(rank, entry);
        }
    }

    fn push(&mut self, rank: u64, entry: Waiting) {
        match &mut self.queue {
            Queue::InOrder(queue) => queue.push_back(entry),
            Queue::Ranked(queue, sequence) => {
                queue.push(u128::from(rank) << 64 | u128::from(*sequence), entry);
                *sequence += 1;
            }
        }
    }

    fn waiting(&self) -> usize {
        match &self.queue {
            Queue::InOrder(queue) => queue.len(),
            Queue::Ranked(queue, _) => queue.len(),
        }
    }

    /// When a PE that is done at `now` finds an entry of the output queue free.
    #[inline]
    pub(super) fn deposit(&self, now: Picos) -> Picos {
        // Its place is that of the oldest: it is free when that one is cleared.
        match self.leaves.get(self.oldest) {
            Some(leave) if self.leaves.len() == self.output_entries => now.max(*leave),
            _ => now,
        }
    }

    /// The entry deposited last is cleared at `time`.
    pub(super) fn cleared(&mut self, time: Picos) {
        if self.leaves.len() < self.output_entries {
            self.leaves.push(time);
            return;
        }
        self.leaves[self.oldest] = time;
        self.oldest += 1;
        if self.oldest == self.output_entries {
            self.oldest = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { pes: 1, entries: 2, overflow_max: 1, output_entries: 2, ranked: false };

    fn entry(token: u32) -> Waiting {
        Waiting { token, ready: Picos(0) }
    }

    #[test]
    fn entries_wait_overflow_and_are_refused_in_turn() {
        let mut station = Station::new(SHAPE);
        let taken: Vec<Taken> = (0..5).map(|n| station.offer(entry(n), 0, true)).collect();
        use Taken::{Overflows, Pe, Refused, Waits};
        assert_eq!(taken, [Pe(0), Waits, Waits, Overflows, Refused]);
        assert_eq!(station.offer(entry(9), 0, false), Refused, "cores have no overflow area");
        let order: Vec<u32> =
            std::iter::from_fn(|| station.release(0).map(|next| next.token)).collect();
        assert_eq!(order, [1, 2, 3]);
        assert_eq!(station.offer(entry(6), 0, true), Pe(0));
    }

    #[test]
    fn ranks_decide_and_sleepers_hold_entries() {
        let mut station = Station::new(Shape { ranked: true, entries: 3, ..SHAPE });
        station.offer(entry(0), 0, true);
        for (token, rank) in [(1, 5), (2, 3), (3, 4)] {
            assert_eq!(station.offer(entry(token), rank, true), Taken::Waits);
        }
        assert_eq!(station.release(0).map(|next| next.token), Some(2));
        station.asleep = 1;
        assert_eq!(station.offer(entry(4), 0, true), Taken::Overflows);
        assert_eq!(station.release(0).map(|next| next.token), Some(3));
        assert_eq!(station.release(0).map(|next| next.token), Some(4), "it came in and goes first");
    }

    #[test]
    fn a_full_output_queue_holds_the_pe() {
        let mut station = Station::new(SHAPE);
        assert_eq!(station.deposit(Picos(10)), Picos(10));
        station.cleared(Picos(50));
        station.cleared(Picos(70));
        assert_eq!(station.deposit(Picos(20)), Picos(50), "two are in it");
        assert_eq!(station.deposit(Picos(60)), Picos(60), "one is");
        station.cleared(Picos(90));
        assert_eq!(station.deposit(Picos(61)), Picos(70), "the second's place is next");
    }
}
