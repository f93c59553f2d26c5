//! The ring of a mailbox. A message shares a cache line with its number, which shows that the message has
//! arrived. The receiver reads the line that the sender writes, so the threads share one line per message
//! instead of two as with a separate index. The sender reads the receiver's progress only when all slots seem
//! full. The file is compiled twice: for use, and for a model of threads and memory (`modelled`).

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::primitives::{Arc, AtomicBool, AtomicU64, UnsafeCell};

/// Makes a mailbox with at least `places` slots for messages. The number of slots is the next power of two.
///
/// # Panics
/// Panics if `places` is 0.
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

/// The sending end of a mailbox.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    sent: u64,
    /// The number of messages that were read when this side last checked.
    read: u64,
}

/// The receiving end of a mailbox.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    taken: u64,
}

struct Ring<T> {
    slots: Box<[Slot<T>]>,
    reader: Reader,
}

/// A slot for one message. Slots are two lines apart, because processors fetch lines in pairs.
#[repr(align(128))]
struct Slot<T> {
    /// The number of the message that is here or was read from here. The first message has number 1.
    number: AtomicU64,
    message: UnsafeCell<MaybeUninit<T>>,
}

/// The receiver's state, which only the receiver writes.
#[repr(align(128))]
struct Reader {
    read: AtomicU64,
    is_gone: AtomicBool,
}

// SAFETY: the only sender writes a message before the number announces it, and the only receiver reads it after that.
// A slot is written again only after the receiver has announced that it has read the message. Messages move between
// threads, so they are `Send`.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: the reasons are those for `Send`. `Sender` and `Receiver` have no other access, change only through `&mut`,
// and cannot be cloned.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline]
    fn places(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    fn slot(&self, message: u64) -> &Slot<T> {
        // The number of slots is a power of two.
        &self.slots[message as usize & (self.slots.len() - 1)]
    }
}

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// Returns the message if all slots are full.
    #[inline]
    pub fn push(&mut self, message: T) -> Result<(), T> {
        if self.sent - self.read == self.ring.places() {
            self.read = self.ring.reader.read.load(Ordering::Acquire);
            if self.sent - self.read == self.ring.places() {
                return Err(message);
            }
        }
        let slot = self.ring.slot(self.sent);
        // SAFETY: fewer messages than slots are unread, so the slot's previous message was read (`read`, acquired
        // above or earlier). The receiver accesses the slot only after the number below announces the message.
        slot.message.with_mut(|place| unsafe { (*place).write(message) });
        self.sent += 1;
        slot.number.store(self.sent, Ordering::Release);
        Ok(())
    }

    /// Returns whether the receiver was dropped, so that no one will read further messages.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.ring.reader.is_gone.load(Ordering::Relaxed)
    }
}

impl<T> Receiver<T> {
    /// Returns the next message, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let slot = self.ring.slot(self.taken);
        if slot.number.load(Ordering::Acquire) != self.taken + 1 {
            return None;
        }
        // SAFETY: the number shows that the sender wrote this message before it. The message is read only once,
        // because `taken` advances.
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
            // SAFETY: the message was sent and not read. Both sides were dropped, so nothing else can read it.
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
