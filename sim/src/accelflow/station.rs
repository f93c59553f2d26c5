//! A station is one accelerator: its PEs, an input queue with an overflow area, an output queue and the dispatcher
//! behind the output queue. The station decides which entries wait, which entry is next, and when a PE must wait for an
//! output entry. The caller decides how long an op takes.
//!
//! An entry is allocated when it is pushed and ready when its data has arrived. PEs take ready entries in the order of
//! allocation. A handoff needs no event of its own: a free PE is assigned to an entry whose data is on the way, and
//! serves it from the arrival on. If the data of another entry arrives earlier, that entry gets the PE. The PE counts
//! as free until the data arrives, and an entry with a PE takes no space in the queue.

use std::collections::VecDeque;

use super::ids::{PeId, TokenId};
use crate::{FourAry, Picos};

/// An op that waits for a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) token: TokenId,
    /// The entry's number in the order of allocation.
    pub(super) turn: u32,
    /// The time at which the entry's data has arrived.
    pub(super) ready: Picos,
}

/// A PE, and the op that it serves or is assigned to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pe {
    /// The op's token, or [`TokenId::NONE`].
    pub(super) token: TokenId,
    turn: u32,
    /// The time at which the service starts. Before that, the PE is free.
    pub(super) start: Picos,
    pub(super) end: Picos,
    /// The tenant that the PE served last.
    pub(super) tenant: u16,
    /// The tenant that the PE served before `tenant`.
    pub(super) tenant_before: u16,
}

/// The time from a start to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: Picos,
    pub(super) end: Picos,
}

/// The result of offering an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A free PE takes the entry.
    Pe(PeId),
    /// A PE takes the entry instead of an entry whose data arrives later. The caller puts the later entry back.
    Instead(PeId),
    /// The entry waits.
    Waits,
    /// The entry waits in the overflow area.
    Overflows,
    /// Neither the queue nor the overflow area has space for the entry.
    Refused,
}

#[derive(Clone, Debug)]
pub(super) struct Station {
    free: Vec<PeId>,
    pub(super) pes: Vec<Pe>,
    /// The latest start of any service so far.
    latest_start: Picos,
    queue: Queue,
    turns: u32,
    entries: usize,
    overflow: VecDeque<(u64, Waiting)>,
    overflow_max: usize,
    /// The number of queue entries held by traces that wait for an answer.
    pub(super) asleep: usize,
    /// The times at which the most recent entries of the output queue are cleared. There are at most as many times as
    /// output entries.
    leaves: Vec<Picos>,
    /// The index of the oldest time in `leaves`, once `leaves` is full.
    oldest: usize,
    output_entries: usize,
    pub(super) dispatcher_free: Picos,
}

#[derive(Clone, Debug)]
enum Queue {
    InOrder(VecDeque<Waiting>),
    /// The waiting entries, by rank and then by arrival. The second list has the entries that a search has passed over.
    Ranked(FourAry<Waiting>, Vec<(u128, Waiting)>),
}

/// The size of a station.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pes: u32,
    pub(super) entries: usize,
    pub(super) overflow_max: usize,
    pub(super) output_entries: usize,
    pub(super) ranked: bool,
}

impl Shape {
    /// Returns the shape of a station that has only PEs. Its ops wait elsewhere.
    pub(super) fn without_queues(pes: u32) -> Self {
        Self { pes, entries: 0, overflow_max: 0, output_entries: 0, ranked: false }
    }
}

impl Station {
    pub(super) fn new(shape: Shape) -> Self {
        let queue = if shape.ranked {
            Queue::Ranked(FourAry::with_capacity(0), Vec::new())
        } else {
            Queue::InOrder(VecDeque::new())
        };
        Self {
            free: (0..shape.pes as u8).rev().map(PeId).collect(),
            pes: vec![Pe::IDLE; shape.pes as usize],
            latest_start: Picos(0),
            queue,
            turns: 0,
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

    /// Returns the next number in the order of allocation.
    #[inline(always)]
    pub(super) fn allocate(&mut self) -> u32 {
        // The number wraps only after more ops than a run may have.
        self.turns = self.turns.wrapping_add(1);
        self.turns
    }

    /// Offers an entry to the station. `may_overflow` is false if a core submits the entry. In a ranked queue the entry
    /// with the smaller `rank` goes first.
    #[inline(always)]
    pub(super) fn offer(&mut self, entry: Waiting, rank: u64, may_overflow: bool) -> Taken {
        if let Some(pe) = self.free.pop() {
            return Taken::Pe(pe);
        }
        if self.overflow.is_empty() && self.waiting() + self.asleep < self.entries {
            if entry.ready < self.latest_start
                && let Some(pe) = self.arriving_after(entry.ready)
            {
                return Taken::Instead(pe);
            }
            self.push(rank, entry);
            return Taken::Waits;
        }
        if !may_overflow || self.overflow.len() >= self.overflow_max {
            return Taken::Refused;
        }
        self.overflow.push_back((rank, entry));
        Taken::Overflows
    }

    /// Returns the PE whose entry arrives last, if it arrives later than `ready`. `ready` is not before the current
    /// time.
    #[inline(never)]
    fn arriving_after(&self, ready: Picos) -> Option<PeId> {
        let (pe, last) = (0..).zip(&self.pes).max_by_key(|(_, pe)| pe.start)?;
        (last.start > ready).then_some(PeId(pe))
    }

    /// Takes the assigned op away from a PE, before the service starts.
    pub(super) fn displace(&mut self, pe: PeId) -> Waiting {
        let served = &mut self.pes[pe.index()];
        served.tenant = served.tenant_before;
        Waiting { token: served.token, turn: served.turn, ready: served.start }
    }

    /// Puts a displaced entry back into the queue, before all entries that were allocated after it.
    pub(super) fn put_back(&mut self, rank: u64, entry: Waiting) {
        match &mut self.queue {
            Queue::InOrder(queue) => {
                let at = queue.iter().position(|other| other.turn > entry.turn);
                queue.insert(at.unwrap_or(queue.len()), entry);
            }
            Queue::Ranked(..) => self.push(rank, entry),
        }
    }

    /// Assigns an op to a PE.
    #[inline(always)]
    pub(super) fn give_to(&mut self, pe: PeId, op: Waiting, tenant: u16, span: Span) {
        let Span { start, end } = span;
        let served = &mut self.pes[pe.index()];
        let (token, turn, tenant_before) = (op.token, op.turn, served.tenant);
        *served = Pe { token, turn, start, end, tenant, tenant_before };
        self.latest_start = self.latest_start.max(start);
    }

    /// Frees `pe` at `now` and returns the entry that it takes next: the first ready entry, or the entry that
    /// arrives first if none is ready. The head of the overflow area then moves into the queue.
    #[inline(always)]
    pub(super) fn release(&mut self, pe: PeId, now: Picos) -> Option<Waiting> {
        let next = match &mut self.queue {
            Queue::InOrder(queue) => match queue.front() {
                Some(first) if first.ready <= now => queue.pop_front(),
                Some(_) => first_arrived(queue, now),
                None => None,
            },
            Queue::Ranked(queue, passed) => first_ranked(queue, passed, now),
        };
        // When the queue is empty and all entries are asleep, the overflow area's head is next.
        let next = next.or_else(|| self.overflow.pop_front().map(|(_, entry)| entry));
        match next {
            None => self.free.push(pe),
            Some(_) => self.refill(),
        }
        next
    }

    /// Takes a free PE, if there is one, for an op from a list of the manager.
    pub(super) fn take(&mut self) -> Option<PeId> {
        self.free.pop()
    }

    /// Returns the number of free PEs.
    pub(super) fn idle(&self) -> usize {
        self.free.len()
    }

    /// Frees a PE without a check of the queue.
    pub(super) fn give(&mut self, pe: PeId) {
        self.free.push(pe);
    }

    /// Moves one entry from the overflow area into the queue if there is space. In most calls nothing has overflowed,
    /// so the function is inlined.
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
            Queue::Ranked(queue, _) => {
                queue.push(u128::from(rank) << 64 | u128::from(entry.turn), entry);
            }
        }
    }

    fn waiting(&self) -> usize {
        match &self.queue {
            Queue::InOrder(queue) => queue.len(),
            Queue::Ranked(queue, _) => queue.len(),
        }
    }

    /// Returns the time at which an entry of the output queue is available to a PE that is done at `now`.
    #[inline]
    pub(super) fn deposit(&self, now: Picos) -> Picos {
        // The new entry replaces the oldest one and waits until that one is cleared.
        match self.leaves.get(self.oldest) {
            Some(leave) if self.leaves.len() == self.output_entries => now.max(*leave),
            _ => now,
        }
    }

    /// Records the time at which the most recent entry of the output queue is cleared.
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

impl Pe {
    const IDLE: Self = Self {
        token: TokenId::NONE,
        turn: 0,
        start: Picos(0),
        end: Picos(0),
        tenant: 0,
        tenant_before: 0,
    };
}

/// Removes the first ready entry, or the entry that arrives first if none is ready.
#[inline(never)]
fn first_arrived(queue: &mut VecDeque<Waiting>, by: Picos) -> Option<Waiting> {
    let ready = queue.iter().position(|entry| entry.ready <= by);
    let arrives = || (0..queue.len()).min_by_key(|at| queue[*at].ready);
    ready.or_else(arrives).and_then(|at| queue.remove(at))
}

/// Removes the ready entry of the lowest rank, or the entry that arrives first if none is ready.
fn first_ranked(
    queue: &mut FourAry<Waiting>,
    passed: &mut Vec<(u128, Waiting)>,
    by: Picos,
) -> Option<Waiting> {
    let mut found = None;
    while let Some((key, entry)) = queue.pop() {
        if entry.ready <= by {
            found = Some(entry);
            break;
        }
        passed.push((key, entry));
    }
    if found.is_none() {
        let first = (0..passed.len()).min_by_key(|at| (passed[*at].1.ready, passed[*at].0));
        found = first.map(|at| passed.swap_remove(at).1);
    }
    passed.drain(..).for_each(|(key, entry)| queue.push(key, entry));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { pes: 1, entries: 2, overflow_max: 1, output_entries: 2, ranked: false };

    fn entry(token: u32) -> Waiting {
        arriving(token, 0)
    }

    fn arriving(token: u32, ready: u64) -> Waiting {
        Waiting { token: TokenId(token), turn: token, ready: Picos(ready) }
    }

    fn begin(station: &mut Station, pe: PeId, entry: Waiting) {
        let span = Span { start: entry.ready, end: entry.ready + Picos(100) };
        station.give_to(pe, entry, 0, span);
    }

    fn next(station: &mut Station, pe: PeId, now: u64) -> Option<u32> {
        station.release(pe, Picos(now)).map(|next| next.token.0)
    }

    #[test]
    fn entries_wait_overflow_and_are_refused_in_turn() {
        let mut station = Station::new(SHAPE);
        let taken: Vec<Taken> = (0..5).map(|n| station.offer(entry(n), 0, true)).collect();
        use Taken::{Overflows, Pe, Refused, Waits};
        assert_eq!(taken, [Pe(PeId(0)), Waits, Waits, Overflows, Refused]);
        assert_eq!(station.offer(entry(9), 0, false), Refused, "cores have no overflow area");
        let order: Vec<u32> = std::iter::from_fn(|| next(&mut station, PeId(0), 0)).collect();
        assert_eq!(order, [1, 2, 3]);
        assert_eq!(station.offer(entry(6), 0, true), Pe(PeId(0)));
    }

    #[test]
    fn ranks_decide_and_sleepers_hold_entries() {
        let mut station = Station::new(Shape { ranked: true, entries: 3, ..SHAPE });
        station.offer(entry(0), 0, true);
        for (token, rank) in [(1, 5), (2, 3), (3, 4)] {
            assert_eq!(station.offer(entry(token), rank, true), Taken::Waits);
        }
        assert_eq!(next(&mut station, PeId(0), 0), Some(2));
        station.asleep = 1;
        assert_eq!(station.offer(entry(4), 0, true), Taken::Overflows);
        assert_eq!(next(&mut station, PeId(0), 0), Some(3));
        assert_eq!(next(&mut station, PeId(0), 0), Some(4), "it came in and goes first");
    }

    #[test]
    fn ready_entries_pass_those_whose_data_is_on_the_way() {
        for ranked in [false, true] {
            let mut station = Station::new(Shape { entries: 8, ranked, ..SHAPE });
            station.offer(entry(0), 0, true);
            begin(&mut station, PeId(0), entry(0));
            for (token, ready) in [(1, 500), (2, 90), (3, 80), (4, 300)] {
                assert_eq!(station.offer(arriving(token, ready), 0, true), Taken::Waits);
            }
            let order = [100, 200, 250, 260].map(|now| next(&mut station, PeId(0), now));
            assert_eq!(order, [Some(2), Some(3), Some(4), Some(1)], "ranked: {ranked}");
        }
    }

    #[test]
    fn a_pe_is_free_until_the_data_has_landed() {
        let mut station = Station::new(Shape { pes: 2, entries: 8, ..SHAPE });
        for (token, ready) in [(1, 500), (2, 400)] {
            let Taken::Pe(pe) = station.offer(arriving(token, ready), 0, true) else {
                panic!("a PE is free")
            };
            begin(&mut station, pe, arriving(token, ready));
        }
        assert_eq!(station.offer(arriving(3, 600), 0, true), Taken::Waits, "it arrives last");
        // An entry that arrives earlier takes the PE of the entry that arrives last. The displaced one goes first among
        // the waiting entries.
        let Taken::Instead(pe) = station.offer(arriving(4, 450), 0, true) else {
            panic!("the first one's PE is free until 500")
        };
        let displaced = station.displace(pe);
        assert_eq!(displaced, arriving(1, 500));
        station.put_back(0, displaced);
        begin(&mut station, pe, arriving(4, 450));
        assert_eq!(station.offer(arriving(5, 450), 0, true), Taken::Waits);
        assert_eq!(next(&mut station, pe, 550), Some(1));
        assert_eq!(next(&mut station, PeId(1 - pe.0), 560), Some(5), "it was ready before 3");
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
