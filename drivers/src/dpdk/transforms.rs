//! The transforms of one queue: of a device that shares them each kind is made once for all queues; of any other an
//! operation has one to itself, and those that are idle are used again.

use std::sync::Arc;

use super::port::{Kind, Port, Transform};

/// One queue's transforms.
pub(super) struct Transforms {
    port: Arc<Port>,
    /// Shareable: every kind asked for so far. Else those that no operation has.
    known: Vec<(Kind, Transform)>,
    /// Not shareable: how many there are, idle and in use.
    owned: usize,
    owned_max: usize,
}

impl Transforms {
    /// At most `owned_max` operations have one at the same time.
    pub(super) fn new(port: Arc<Port>, owned_max: usize) -> Self {
        Self { port, known: Vec::new(), owned: 0, owned_max }
    }

    /// A transform for one operation; [`Transforms::give_back`] must follow. None if the device makes no more.
    pub(super) fn take(&mut self, kind: Kind) -> Option<Transform> {
        let found = self.known.iter().position(|(own, _)| *own == kind);
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

    /// The operation is over.
    pub(super) fn give_back(&mut self, kind: Kind, transform: Transform) {
        if !self.port.shareable {
            self.known.push((kind, transform));
        }
    }
}

impl Drop for Transforms {
    /// What operations still have is not here, and stays theirs.
    fn drop(&mut self) {
        if !self.port.shareable {
            for (_, transform) in self.known.drain(..) {
                self.port.free(transform);
            }
        }
    }
}
