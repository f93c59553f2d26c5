//! Mailboxes between the threads of a layout, and the threads themselves. A mailbox is a
//! single-producer single-consumer ring of messages. A message carries a word and, if a buffer
//! changes its owner, the buffer. The threads poll for a while and then sleep until a doorbell
//! wakes them. Two threads never access the same buffer at once, and no message is dropped.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use drivers::mailbox::{self, Receiver, Sender};
use rpc::{Address, Command};

use super::cores::pin;

/// A buffer that moves between threads, with its address in the engine's address space.
pub(super) type Buffer = (Address, Box<[u8]>);

/// A word for an engine. It carries the buffer that the word names if the buffer changes its owner.
pub(super) struct Mail {
    pub(super) word: Command,
    pub(super) buffer: Option<Buffer>,
}

/// Creates a mailbox with capacity for `places` messages. A send to a full mailbox panics, so the
/// capacity must cover all messages that can wait. `doorbell` wakes the reading thread if it sleeps.
pub(super) fn mailbox<T: Send>(
    places: usize,
    doorbell: Option<&Arc<Doorbell>>,
) -> (Outbox<T>, Receiver<T>) {
    let (ring, inbox) = mailbox::channel(places);
    (Outbox { ring, doorbell: doorbell.cloned() }, inbox)
}

/// The sending end of a mailbox.
pub(super) struct Outbox<T> {
    ring: Sender<T>,
    doorbell: Option<Arc<Doorbell>>,
}

impl<T> Outbox<T> {
    pub(super) fn send(&mut self, message: T) {
        // If the push fails, the reader is gone and this thread will end soon.
        if self.ring.push(message).is_err() {
            assert!(self.ring.is_abandoned(), "a mailbox holds more than there are messages");
        }
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }
}

/// Wakes a sleeping thread, and holds the flag that makes the thread end.
#[derive(Debug)]
pub(super) struct Doorbell {
    asleep: AtomicBool,
    over: AtomicBool,
    thread: OnceLock<Thread>,
    sleep: Duration,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::with_sleep(SLEEP)
    }
}

impl Doorbell {
    /// Creates a doorbell for a thread that sleeps for at most `sleep` at a time.
    fn with_sleep(sleep: Duration) -> Self {
        let (asleep, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { asleep, over, thread: OnceLock::new(), sleep }
    }

    fn ring(&self) {
        // The message must be visible before the flag is read. The sleeping thread sets the flag
        // and then polls once more.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Calls `turn` until the thread must end. The thread sleeps after a while without work.
    fn serve(&self, mut turn: impl FnMut() -> bool) {
        let mut idle = 0u32;
        while !self.is_over() {
            if turn() {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < SPINS {
                back_off(idle);
                continue;
            }
            idle = 0;
            self.asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !turn() && !self.is_over() {
                std::thread::park_timeout(self.sleep);
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
    }
}

/// Pauses between two polls that found nothing. `idle` is the number of empty polls so far.
pub(super) fn back_off(idle: u32) {
    if idle.is_multiple_of(YIELD_EVERY) {
        std::thread::yield_now();
    }
    std::hint::spin_loop();
}

/// A thread of a layout. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Worker {
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that calls `turn` repeatedly. The thread is pinned if `core` is given.
    pub(super) fn start(
        name: &str,
        core: Option<usize>,
        doorbell: Arc<Doorbell>,
        turn: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, pinned) = channel();
        let worker_doorbell = Arc::clone(&doorbell);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _ = worker_doorbell.thread.set(std::thread::current());
            let result = pin(core);
            let is_there = result.is_ok();
            let _ = sender.send(result);
            if is_there {
                worker_doorbell.serve(turn);
            }
        })?;
        let worker = Self { doorbell, thread: Some(thread) };
        pinned.recv().unwrap_or_else(|_| Err(io::Error::other("a thread ended at once")))?;
        Ok(worker)
    }

    /// Returns whether the thread is still running. Otherwise it has panicked or could not be
    /// pinned.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.doorbell.over.store(true, Ordering::SeqCst);
        self.doorbell.wake();
        // A panic of the handler was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The number of empty polls before a thread sleeps. They take some tens of microseconds.
const SPINS: u32 = 2_000;
/// The number of empty polls between two yields. If there are few cores, the sending thread may
/// need this core.
const YIELD_EVERY: u32 = 256;
/// The maximum sleep. Correctness does not depend on it, because the doorbell wakes the thread.
const SLEEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn a_sleeping_thread_is_woken_and_loses_nothing() {
        // Only the doorbell wakes the thread within this test's time limit.
        let doorbell = Arc::new(Doorbell::with_sleep(4 * TIMEOUT));
        let (mut there, mut inbox) = mailbox(4, Some(&doorbell));
        let (mut back, mut returned) = mailbox(4, None);
        let worker = Worker::start("echo", None, Arc::clone(&doorbell), move || {
            let Some(number) = inbox.pop() else { return false };
            back.send(number);
            true
        });
        let worker = worker.expect("it starts");
        for number in 0..2_000u32 {
            let begun = Instant::now();
            // Now and then the test waits until the thread sleeps, so that the doorbell is needed.
            while number % 200 == 199 && !doorbell.asleep.load(Ordering::Relaxed) {
                assert!(begun.elapsed() < TIMEOUT, "it never sleeps");
                std::thread::sleep(Duration::from_millis(1));
            }
            there.send(number);
            let mut idle = 0;
            let echoed = loop {
                assert!(begun.elapsed() < TIMEOUT, "{number} woke nobody");
                match returned.pop() {
                    Some(number) => break number,
                    None => back_off(idle),
                }
                idle += 1;
            };
            assert_eq!(echoed, number);
            assert!(worker.is_alive());
        }
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_says_so() {
        let core = rustix::thread::CpuSet::MAX_CPU - 1;
        let worker = Worker::start("nowhere", Some(core), Arc::default(), || false);
        assert!(worker.is_err());
    }
}
