//! The queue of events: a heap with four children a node, ordered by whole keys, smallest first. It knows nothing of
//! time; keys that are equal come out in no stated order, so callers put a sequence number into them.

/// Items by key. Nothing is allocated once it has held as many items as it ever will.
#[derive(Clone, Debug)]
pub struct FourAry<T> {
    entries: Vec<Entry<T>>,
    /// The root has been popped and not yet been replaced. An event mostly schedules another, which then takes the
    /// root's place in one descent instead of the two of a removal and an insertion.
    vacant: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    key: u128,
    item: T,
}

impl<T: Copy> FourAry<T> {
    /// An empty queue with room for `capacity` items.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity), vacant: false }
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.entries.len() - usize::from(self.vacant)
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `item` at `key`.
    pub fn push(&mut self, key: u128, item: T) {
        let entry = Entry { key, item };
        if self.vacant {
            self.vacant = false;
            self.descend(entry);
        } else {
            self.entries.push(entry);
            self.ascend(entry);
        }
    }

    /// Takes the item with the smallest key.
    pub fn pop(&mut self) -> Option<(u128, T)> {
        if self.vacant {
            self.vacant = false;
            let last = self.entries.pop()?;
            if !self.entries.is_empty() {
                self.descend(last);
            }
        }
        let first = self.entries.first()?;
        self.vacant = true;
        Some((first.key, first.item))
    }

    /// Moves `entry`, which stands last, up to its place.
    fn ascend(&mut self, entry: Entry<T>) {
        let mut at = self.entries.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.entries[parent].key <= entry.key {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = entry;
    }

    /// Puts `entry` in the root's place and moves it down to its own.
    fn descend(&mut self, entry: Entry<T>) {
        let mut at = 0;
        loop {
            let first = 4 * at + 1;
            let child = match self.entries.get(first..first + 4) {
                Some(four @ [a, b, c, d]) => {
                    let left = usize::from(b.key < a.key);
                    let right = 2 + usize::from(d.key < c.key);
                    first + if four[right].key < four[left].key { right } else { left }
                }
                _ => match self.smallest_from(first) {
                    Some(child) => child,
                    None => break,
                },
            };
            if self.entries[child].key >= entry.key {
                break;
            }
            self.entries[at] = self.entries[child];
            at = child;
        }
        self.entries[at] = entry;
    }

    /// The smallest of the last node's one to three children, if it has any.
    fn smallest_from(&self, first: usize) -> Option<usize> {
        let children = self.entries.get(first..)?;
        let smallest = children.iter().enumerate().min_by_key(|(_, entry)| entry.key)?;
        Some(first + smallest.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use units::Prng;

    use super::*;

    #[test]
    fn agrees_with_the_standard_heap_under_random_pushes_and_pops() {
        let mut prng = Prng::new(11);
        let (mut ours, mut theirs) = (FourAry::with_capacity(0), BinaryHeap::new());
        for sequence in 0..50_000u64 {
            // Grows and shrinks in waves, so that it is empty now and then.
            let push = prng.unit() < if sequence / 500 % 2 == 0 { 0.7 } else { 0.3 };
            if push {
                let key = u128::from(prng.below(1_000)) << 64 | u128::from(sequence);
                ours.push(key, sequence);
                theirs.push(Reverse((key, sequence)));
            } else {
                assert_eq!(ours.pop(), theirs.pop().map(|Reverse(entry)| entry));
            }
            assert_eq!(ours.len(), theirs.len());
        }
        while let Some(Reverse(entry)) = theirs.pop() {
            assert_eq!(ours.pop(), Some(entry));
        }
        assert!(ours.is_empty() && ours.pop().is_none());
    }
}
