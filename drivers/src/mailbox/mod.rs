//! A mailbox between two threads. It is a ring of messages for one sender and one receiver, and a message moves one
//! cache line between the cores. The mailbox neither waits nor wakes: the receiving thread decides how long to poll.

// Miri provides threads and memory itself, so the model does not run under it.
#[cfg(all(test, not(miri)))]
mod modelled;
mod ring;

pub use ring::{Receiver, Sender, channel};

/// The synchronisation primitives of the ring, from the standard library. `modelled` replaces them.
mod primitives {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64};

    /// The standard library's cell with the model's interface.
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(super) fn with_mut<R>(&self, look: impl FnOnce(*mut T) -> R) -> R {
            look(self.0.get())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn messages_arrive_in_order() {
        let (mut sender, mut receiver) = channel(3);
        assert_eq!(receiver.pop(), None);
        for lap in 0..5 {
            let sent: Vec<_> = (0..).map_while(|at| sender.push((lap, at)).ok()).collect();
            assert_eq!(sent.len(), 4, "places are a power of two");
            assert_eq!(sender.push((lap, 9)), Err((lap, 9)));
            let read: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
            assert_eq!(read, [(lap, 0), (lap, 1), (lap, 2), (lap, 3)]);
        }
    }

    #[test]
    fn what_was_not_read_is_dropped_once() {
        let value = Arc::new(());
        let (mut sender, mut receiver) = channel(4);
        for _ in 0..4 {
            sender.push(Arc::clone(&value)).expect("room");
        }
        drop(receiver.pop());
        sender.push(Arc::clone(&value)).expect("room for one more");
        assert_eq!(Arc::strong_count(&value), 5);
        assert!(!sender.is_abandoned());
        drop(receiver);
        assert!(sender.is_abandoned());
        drop(sender);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_threads_pass_what_they_own() {
        let count = if cfg!(miri) { 100 } else { 20_000 };
        let (mut sender, mut receiver) = channel(8);
        let reader = thread::spawn(move || {
            let mut next = 0u64;
            while next < count {
                match receiver.pop() {
                    Some(number) => {
                        assert_eq!(Box::new(next), number);
                        next += 1;
                    }
                    None => thread::yield_now(),
                }
            }
        });
        for number in 0..count {
            let mut message = Box::new(number);
            while let Err(back) = sender.push(message) {
                message = back;
                thread::yield_now();
            }
        }
        reader.join().expect("all in order");
    }
}
