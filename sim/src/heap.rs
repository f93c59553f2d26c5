//! The event queue: a heap with four children per node, ordered by whole keys, smallest first. It does not know that
//! keys contain times. Equal keys have no defined order, so callers put a sequence number into them.

/// A queue of items ordered by key. It allocates no memory unless it grows beyond its largest size so far.
#[derive(Clone, Debug)]
pub struct FourAry<T> {
    /// The nodes. Place `p` is in node `p / 4`. The root is alone in the first node, at [`ROOT`]. The four children of
    /// each place fill one node.
    nodes: Vec<Node<T>>,
    /// The place after the last item.
    end: usize,
    /// Whether the root has been popped and not yet replaced. Most events schedule another event, which then
    /// takes the root's place in one descent. This is cheaper than a removal and an insertion.
    vacant: bool,
}

/// Four siblings. Their keys fill one cache line. The nodes are always complete, so that a search never meets a missing
/// key.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node<T> {
    /// The keys. A place without an item has [`NOTHING`].
    keys: [u128; 4],
    items: [T; 4],
}

impl<T> Node<T> {
    /// Returns the index of the smallest key. The result cannot be predicted, so the code has no branch on it.
    #[inline]
    fn least(&self) -> usize {
        let [a, b, c, d] = &self.keys;
        let left = usize::from(b < a);
        let right = 2 + usize::from(d < c);
        if self.keys[right] < self.keys[left] { right } else { left }
    }
}

impl<T: Copy> FourAry<T> {
    /// Makes an empty queue with capacity for `capacity` items.
    pub fn with_capacity(capacity: usize) -> Self {
        let nodes = Vec::with_capacity((ROOT + capacity).div_ceil(4));
        Self { nodes, end: ROOT, vacant: false }
    }

    /// Returns the number of waiting items.
    pub fn len(&self) -> usize {
        self.end - ROOT - usize::from(self.vacant)
    }

    /// Returns whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `item` at `key`.
    #[inline]
    pub fn push(&mut self, key: u128, item: T) {
        if self.vacant {
            self.vacant = false;
            self.descend(key, item);
        } else {
            self.ascend(key, item);
        }
    }

    /// Removes and returns the item with the smallest key.
    #[inline]
    pub fn pop(&mut self) -> Option<(u128, T)> {
        if self.vacant {
            self.vacant = false;
            self.replace_root();
        }
        if self.end == ROOT {
            return None;
        }
        let first = self.nodes.first()?;
        self.vacant = true;
        Some((first.keys[ROOT], first.items[ROOT]))
    }

    /// Puts the last item in the place of the popped root.
    fn replace_root(&mut self) {
        self.end -= 1;
        if self.end > ROOT {
            let last = &mut self.nodes[self.end / 4];
            let key = std::mem::replace(&mut last.keys[self.end % 4], NOTHING);
            let item = last.items[self.end % 4];
            self.descend(key, item);
        }
    }

    /// Puts an item after the last one and moves it up to its place.
    fn ascend(&mut self, key: u128, item: T) {
        let mut place = self.end;
        self.end += 1;
        if place / 4 == self.nodes.len() {
            self.nodes.push(Node { keys: [NOTHING; 4], items: [item; 4] });
        }
        while place > ROOT {
            let parent = place / 4 + ROOT - 1;
            let above = &self.nodes[parent / 4];
            let (above_key, above_item) = (above.keys[parent % 4], above.items[parent % 4]);
            if above_key <= key {
                break;
            }
            self.set(place, above_key, above_item);
            place = parent;
        }
        self.set(place, key, item);
    }

    /// Puts an item in the root's place and moves it down to its place.
    fn descend(&mut self, key: u128, item: T) {
        let mut place = ROOT;
        loop {
            let below = place - (ROOT - 1);
            let Some(children) = self.nodes.get(below) else { break };
            let child = children.least();
            let (least_key, least_item) = (children.keys[child], children.items[child]);
            if least_key >= key {
                break;
            }
            self.set(place, least_key, least_item);
            place = 4 * below + child;
        }
        self.set(place, key, item);
    }

    #[inline]
    fn set(&mut self, place: usize, key: u128, item: T) {
        let node = &mut self.nodes[place / 4];
        node.keys[place % 4] = key;
        node.items[place % 4] = item;
    }
}

/// The place of the root, which is the last of four places. The children of place `p` are therefore in node `p - 2`,
/// and the parent of all items in node `n` is place `n + 2`.
const ROOT: usize = 3;
/// The key of a place without an item. It is the largest key, so it never moves up.
const NOTHING: u128 = u128::MAX;

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
            // The queue grows and shrinks in waves, so that it is sometimes empty.
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
