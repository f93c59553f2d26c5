//! A list of ready work, ordered by laxity: the ready queue of RELIEF's public code. An item that could take its
//! producer's output from the producer's scratchpad may go ahead of others, if the items that it passes can wait for
//! it. The list knows no accelerators, and the caller decides which items may go ahead.

use std::collections::VecDeque;

use crate::Picos;

/// A list of ready work.
#[derive(Clone, Debug)]
pub(crate) struct Laxities<T> {
    ready: VecDeque<Ready<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Ready<T> {
    item: T,
    /// The latest time at which the item can begin and still be in time (ps). An earlier time means less laxity.
    latest_ps: i64,
    is_ahead: bool,
}

/// The deadline of an item, and its expected runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Picos,
    pub(crate) runtime: Picos,
}

/// The place at which an item was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of items in front of the inserted item.
    pub(crate) at: usize,
    /// Whether the item passed items with less laxity.
    pub(crate) is_ahead: bool,
}

impl<T> Laxities<T> {
    pub(crate) fn new() -> Self {
        Self { ready: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the next item.
    pub(crate) fn first(&self) -> Option<&T> {
        self.ready.front().map(|first| &first.item)
    }

    /// Returns the item at an index.
    pub(crate) fn at_mut(&mut self, at: usize) -> Option<&mut T> {
        self.ready.get_mut(at).map(|found| &mut found.item)
    }

    /// Returns whether an item is among the first `count` items.
    pub(crate) fn is_within(&self, count: usize, item: &T) -> bool
    where
        T: PartialEq,
    {
        self.ready.iter().take(count).any(|one| one.item == *item)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.ready.pop_front().map(|first| first.item)
    }

    /// Inserts an item behind all items that have at most its laxity, and returns its place. With `ahead` the
    /// item passes those items, except the ones that went ahead earlier. It passes them only if the first of
    /// them that is not late yet can wait for the new item's runtime. The laxity of all items that have at
    /// most the new item's laxity then falls by this runtime.
    pub(crate) fn insert(&mut self, item: T, due: Due, now: Picos, ahead: bool) -> Place {
        let runtime_ps = signed(due.runtime);
        let latest_ps = signed(due.at) - runtime_ps;
        let behind = self.ready.iter().rev().take_while(|other| other.latest_ps > latest_ps);
        let mut at = self.ready.len() - behind.count();
        let mut left_ps = self.ready.range(..at).map(|passed| passed.latest_ps - signed(now));
        let can_wait = left_ps.find(|left| *left > 0).is_none_or(|left| left >= runtime_ps);
        let is_ahead = ahead && can_wait;
        if is_ahead {
            let passed = self.ready.range_mut(..at);
            at = passed
                .map(|passed| {
                    passed.latest_ps -= runtime_ps;
                    usize::from(passed.is_ahead)
                })
                .sum();
        }
        self.ready.insert(at, Ready { item, latest_ps, is_ahead });
        Place { at, is_ahead }
    }
}

fn signed(time: Picos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at: u64, runtime: u64) -> Due {
        Due { at: Picos(at), runtime: Picos(runtime) }
    }

    fn order(list: &mut Laxities<char>) -> String {
        std::iter::from_fn(|| list.pop()).collect()
    }

    #[test]
    fn least_laxity_goes_first_and_equals_in_order() {
        let mut list = Laxities::new();
        for (item, at, runtime) in [('c', 90, 10), ('a', 50, 20), ('b', 60, 20), ('d', 100, 20)] {
            list.insert(item, due(at, runtime), Picos(0), false);
        }
        assert_eq!((list.ready.len(), list.first()), (4, Some(&'a')));
        assert_eq!(order(&mut list), "abcd");
    }

    #[test]
    fn a_forwardable_op_goes_ahead_if_others_can_wait() {
        let mut list = Laxities::new();
        list.insert('a', due(100, 10), Picos(0), false);
        let place = list.insert('b', due(300, 90), Picos(0), true);
        assert_eq!(place, Place { at: 0, is_ahead: true }, "a can wait until 90");
        // Only the first item that is not late yet is checked. This is b, which went ahead itself.
        let place = list.insert('c', due(400, 1), Picos(0), true);
        assert_eq!(place, Place { at: 1, is_ahead: true });
        assert_eq!(order(&mut list), "bca");
        list.insert('a', due(100, 10), Picos(0), false);
        let place = list.insert('b', due(300, 91), Picos(0), true);
        assert_eq!(place, Place { at: 1, is_ahead: false }, "a cannot wait");
    }

    #[test]
    fn those_that_are_late_already_are_not_asked() {
        let mut list = Laxities::new();
        list.insert('a', due(100, 10), Picos(0), false);
        assert!(list.insert('b', due(300, 200), Picos(95), true).is_ahead);
        assert!(!list.insert('c', due(400, 100), Picos(95), true).is_ahead, "b cannot wait");
        assert_eq!(order(&mut list), "bac");
    }
}
