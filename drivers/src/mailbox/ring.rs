//! The ring. A message lies on a line together with its number, and the number says that it is there. The receiver
//! looks at the line that the sender writes, so the two share one line per message. A ring whose end is an index of its
//! own has two. The sender asks how far the receiver is only when all places seem taken. The file is compiled twice:
//! for use, and for a model of threads and memory (`modelled`).

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::primitives::{Arc, AtomicBool, AtomicU64, UnsafeCell};

/// A mailbox with room for `places` messages at least: the next power of two.
///
/// # Panics
/// `places` is 0.
pub fn channel<T: Send>(places: usize) -> (Sender<T>, Receiver<T>) {
    assert!(places > 0, "a mailbox without a place");
    let slots = (0..places.next_power_of_two())
        .map(|_| Slot {
            number: AtomicU64::new(0),
            message: UnsafeCell::new(MaybeUninit::uninit()),
        })
        .collect();
    let reader = Reader { read: AtomicU64::new(0), is_gone: AtomicBool::new(false) };
    let ring = Arc::new(Ring { slots, reader });
    (Sender { ring: Arc::clone(&ring), sent: 0, read: 0 }, Receiver { ring, taken: 0 })
}

/// The end where messages go in.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    sent: u64,
    /// The number of messages that were read, as far as this side has asked.
    read: u64,
}

/// The end where messages come out.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    taken: u64,
}

struct Ring<T> {
    slots: Box<[Slot<T>]>,
    reader: Reader,
}

/// A place for one message. It has a line of its own, and is not the neighbour of another's, because processors fetch
/// lines in pairs.
#[repr(align(128))]
struct Slot<T> {
    /// The number of the message that lies here or was read from here, counted from one.
    number: AtomicU64,
    message: UnsafeCell<MaybeUninit<T>>,
}

/// The word that the receiver writes.
#[repr(align(128))]
struct Reader {
    read: AtomicU64,
    is_gone: AtomicBool,
}

// SAFETY: a message is written by the one sender before its number says so and read by the one receiver after, and the
// place is written again only after the receiver has said that it has read; messages go from thread to thread, so
// they are `Send`.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above; `Sender` and `Receiver` have no other way in, change only through `&mut`, and cannot be cloned.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline]
    fn places(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    fn slot(&self, message: u64) -> &Slot<T> {
        // A power of two.
        &self.slots[message as usize & (self.slots.len() - 1)]
    }
}

impl<T> Sender<T> {
    /// Puts a message in.
    ///
    /// # Errors
    /// All places are taken: the message comes back.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), T> {
        if self.sent - self.read == self.ring.places() {
            self.read = self.ring.reader.read.load(Ordering::Acquire);
            if self.sent - self.read == self.ring.places() {
                return Err(message);
            }
        }
        let slot = self.ring.slot(self.sent);
        // SAFETY: fewer messages than places are unread, so what lay here was read (`read`, acquired above or before),
        // and the receiver looks here only once the number below says that there is something.
        slot.message.with_mut(|place| unsafe { (*place).write(message) });
        self.sent += 1;
        slot.number.store(self.sent, Ordering::Release);
        Ok(())
    }

    /// Returns whether the receiver is gone, so that nobody will read what is put in.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.ring.reader.is_gone.load(Ordering::Relaxed)
    }
}

impl<T> Receiver<T> {
    /// Takes the next message, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let slot = self.ring.slot(self.taken);
        if slot.number.load(Ordering::Acquire) != self.taken + 1 {
            return None;
        }
        // SAFETY: the number says that the sender wrote this message before it; it is read once, as `taken` goes on.
        let message = slot.message.with_mut(|place| unsafe { (*place).assume_init_read() });
        self.taken += 1;
        self.ring.reader.read.store(self.taken, Ordering::Release);
        Some(message)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.ring.reader.is_gone.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut next = self.reader.read.load(Ordering::Relaxed);
        while self.slot(next).number.load(Ordering::Relaxed) == next + 1 {
            // SAFETY: sent and not read; both sides are gone, so nobody else can.
            self.slot(next).message.with_mut(|place| unsafe { (*place).assume_init_drop() });
            next += 1;
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("taken", &self.taken).finish_non_exhaustive()
    }
}
