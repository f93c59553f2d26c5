//! The transforms of one queue. If the device shares transforms, each kind is made once for all queues. Otherwise
//! each operation has a transform of its own, and idle transforms are reused.

use std::sync::Arc;

use super::port::{Kind, Port, Transform};

/// One queue's transforms.
pub(super) struct Transforms {
    port: Arc<Port>,
    /// The transforms of every kind requested so far if they are shareable, and otherwise the idle
    /// transforms.
    known: Vec<(Kind, Transform)>,
    /// The number of transforms, idle and in use, if they are not shareable.
    owned: usize,
    owned_max: usize,
}

impl Transforms {
    /// Makes an empty set. At most `owned_max` operations have a transform at the same time.
    pub(super) fn new(port: Arc<Port>, owned_max: usize) -> Self {
        Self { port, known: Vec::new(), owned: 0, owned_max }
    }

    /// Returns a transform for one operation, or none if the device makes no more. The caller must pass it to
    /// [`Transforms::release`] afterwards.
    pub(super) fn take(&mut self, kind: Kind) -> Option<Transform> {
        let found = self.known.iter().position(|(known, _)| *known == kind);
        if self.port.shareable {
            if let Some(index) = found {
                return Some(self.known[index].1);
            }
            let transform = self.port.shared(kind)?;
            self.known.push((kind, transform));
            return Some(transform);
        }
        if let Some(index) = found {
            return Some(self.known.swap_remove(index).1);
        }
        if self.owned == self.owned_max {
            let (_, idle) = self.known.pop()?;
            self.port.free(idle);
            self.owned -= 1;
        }
        let transform = self.port.make(kind)?;
        self.owned += 1;
        Some(transform)
    }

    /// Returns the transform of a completed operation to this set, for reuse.
    pub(super) fn release(&mut self, kind: Kind, transform: Transform) {
        if !self.port.shareable {
            self.known.push((kind, transform));
        }
    }
}

impl Drop for Transforms {
    /// Frees the idle transforms. Operations keep the transforms that they still use.
    fn drop(&mut self) {
        if !self.port.shareable {
            for (_, transform) in self.known.drain(..) {
                self.port.free(transform);
            }
        }
    }
}
