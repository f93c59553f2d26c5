//! The memory budget of a worker for values in flight: values that clients send and receive, answers of
//! stores, and jobs of other processes. Bytes are taken from the budget before memory is allocated, and are
//! returned with the last use of that memory. Small requests are served before large ones. Holders that make
//! no progress can see that others wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A limited number of bytes that users may hold. Clones share the same budget.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Shared>);

struct Shared {
    max: u64,
    held: AtomicU64,
    /// The most bytes held since the last call of [`Budget::take_peak`].
    peak: AtomicU64,
    /// The users that wait in [`Budget::take`], the smallest request first. New requests do not overtake them.
    waiting: Mutex<VecDeque<Arc<Waiter>>>,
    /// The number of waiters.
    waiters: AtomicU64,
    wanted: Notify,
    /// True while a user holds bytes beyond the limit, see [`Budget::grow`].
    overdrawn: AtomicBool,
}

/// A user that waits for bytes.
struct Waiter {
    bytes: u64,
    state: Mutex<WaiterState>,
}

enum WaiterState {
    Waiting(Option<Waker>),
    Granted,
}

/// A number of held bytes. Dropping it returns them to the budget.
#[must_use]
pub(crate) struct Permit {
    budget: Budget,
    bytes: u64,
    /// True if the bytes were granted beyond the limit.
    is_overdraft: bool,
}

impl Budget {
    /// Creates a budget of `max` bytes.
    pub(crate) fn new(max: u64) -> Self {
        Self(Arc::new(Shared {
            max,
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waiting: Mutex::default(),
            waiters: AtomicU64::new(0),
            wanted: Notify::new(),
            overdrawn: AtomicBool::new(false),
        }))
    }

    /// Takes bytes for a new request if they are free and no user waits. A quarter of the budget is reserved
    /// for users that already hold bytes. If no bytes are held, one request may take them all.
    pub(crate) fn try_begin(&self, bytes: u64) -> Option<Permit> {
        if self.is_wanted() { None } else { self.begin(bytes) }
    }

    /// Waits for bytes for a new request. Smaller requests are served first, and equal ones in order, so that
    /// many large requests do not delay a small one. The caller must hold no other bytes.
    pub(crate) async fn take(&self, bytes: u64) -> Permit {
        match self.try_begin(bytes) {
            Some(permit) => permit,
            None => Taking::begin(self, bytes.min(self.0.max)).await,
        }
    }

    /// Takes more bytes for a user that already holds some, ahead of users that wait. Does not wait.
    pub(crate) fn try_grow(&self, bytes: u64) -> Option<Permit> {
        self.add(bytes.min(self.0.max), self.0.max)
    }

    /// Waits for more bytes for a user that already holds some. One user at a time gets bytes beyond the
    /// limit, so that users that hold bytes cannot deadlock.
    pub(crate) async fn grow(&self, bytes: u64) -> Permit {
        if let Some(permit) = self.try_grow(bytes) {
            return permit;
        }
        let _growing = Growing::begin(self);
        loop {
            if let Some(permit) = self.try_grow(bytes) {
                return permit;
            }
            if !self.0.overdrawn.swap(true, Ordering::SeqCst) {
                self.0.held.fetch_add(bytes, Ordering::SeqCst);
                return Permit { budget: self.clone(), bytes, is_overdraft: true };
            }
            tokio::time::sleep(GROW_PAUSE).await;
        }
    }

    /// Returns the number of bytes that are held.
    pub(crate) fn held(&self) -> u64 {
        self.0.held.load(Ordering::SeqCst)
    }

    /// Returns the bytes that are held now, and the most that were held since the last call.
    pub(crate) fn take_peak(&self) -> (u64, u64) {
        let held = self.held();
        (held, self.0.peak.swap(held, Ordering::SeqCst).max(held))
    }

    /// Returns the number of bytes that may be held.
    pub(crate) fn max(&self) -> u64 {
        self.0.max
    }

    /// Returns whether any user waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.waiters.load(Ordering::SeqCst) > 0
    }

    /// Completes once a user waits.
    pub(crate) async fn wanted(&self) {
        let notified = self.0.wanted.notified();
        if !self.is_wanted() {
            notified.await;
        }
    }

    fn begin(&self, bytes: u64) -> Option<Permit> {
        let max = self.0.max;
        let reserve = if self.held() == 0 { 0 } else { max / RESERVE_SHARE };
        self.add(bytes.min(max), max - reserve)
    }

    fn add(&self, bytes: u64, max: u64) -> Option<Permit> {
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= max);
        let taken = self.0.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        let before = taken.ok()?;
        self.0.peak.fetch_max(before + bytes, Ordering::SeqCst);
        Some(Permit { budget: self.clone(), bytes, is_overdraft: false })
    }

    /// Returns a permit for bytes that are already counted as held.
    fn granted(&self, bytes: u64) -> Permit {
        Permit { budget: self.clone(), bytes, is_overdraft: false }
    }

    /// Serves users that wait, the smallest request first.
    fn serve(&self) {
        let mut waiting = self.0.waiting.lock();
        while let Some(first) = waiting.front() {
            let Some(permit) = self.begin(first.bytes) else { return };
            // From here on, the waiter owns the bytes.
            permit.keep();
            let first = waiting.pop_front();
            self.0.waiters.fetch_sub(1, Ordering::SeqCst);
            if let Some(WaiterState::Waiting(Some(waker))) = first.map(|waiter| waiter.grant()) {
                waker.wake();
            }
        }
    }
}

impl Waiter {
    fn grant(&self) -> WaiterState {
        std::mem::replace(&mut *self.state.lock(), WaiterState::Granted)
    }
}

impl Permit {
    /// Returns the number of bytes that the permit holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits off up to `bytes` of the held bytes.
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes, is_overdraft: false }
    }

    /// Adds the bytes of another permit to this one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.is_overdraft |= std::mem::take(&mut other.is_overdraft);
        other.keep();
    }

    /// Ties the permit to `bytes`. The permit's bytes return to the budget when the last clone of `bytes` is dropped.
    pub(crate) fn attach(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _permit: self })
    }

    /// Drops the permit without returning its bytes.
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_overdraft {
            self.budget.0.overdrawn.store(false, Ordering::SeqCst);
        }
        if self.bytes > 0 {
            self.budget.0.held.fetch_sub(self.bytes, Ordering::SeqCst);
            if self.budget.is_wanted() {
                self.budget.serve();
            }
        }
    }
}

/// The denominator of the share of a budget that is reserved for users that already hold bytes: 1 in 4.
const RESERVE_SHARE: u64 = 4;

/// The retry interval of users that wait and already hold bytes. They are rare and therefore not queued.
const GROW_PAUSE: Duration = Duration::from_millis(2);

/// The largest value that is not charged to the budget (bytes). It counts as memory of its connection.
pub(crate) const UNCHARGED_BYTES_MAX: usize = 16 << 10;

struct Held {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts a user that already holds bytes as waiting, until this value is dropped.
struct Growing<'a>(&'a Budget);

impl<'a> Growing<'a> {
    fn begin(budget: &'a Budget) -> Self {
        budget.0.waiters.fetch_add(1, Ordering::SeqCst);
        budget.0.wanted.notify_waiters();
        Self(budget)
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.0.waiters.fetch_sub(1, Ordering::SeqCst);
        self.0.serve();
    }
}

/// A wait for bytes. Dropping it leaves the queue and returns any granted bytes.
struct Taking {
    budget: Budget,
    waiter: Arc<Waiter>,
    taken: bool,
}

impl Taking {
    fn begin(budget: &Budget, bytes: u64) -> Self {
        let state = Mutex::new(WaiterState::Waiting(None));
        let waiter = Arc::new(Waiter { bytes, state });
        let mut waiting = budget.0.waiting.lock();
        let place = waiting.partition_point(|other| other.bytes <= bytes);
        waiting.insert(place, Arc::clone(&waiter));
        drop(waiting);
        budget.0.waiters.fetch_add(1, Ordering::SeqCst);
        // Bytes may have been returned between the attempt and this point.
        budget.serve();
        budget.0.wanted.notify_waiters();
        Self { budget: budget.clone(), waiter, taken: false }
    }
}

impl Future for Taking {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let waiter = Arc::clone(&self.waiter);
        let mut state = waiter.state.lock();
        match &mut *state {
            WaiterState::Granted => {
                self.taken = true;
                Poll::Ready(self.budget.granted(waiter.bytes))
            }
            WaiterState::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut waiting = self.budget.0.waiting.lock();
        if let Some(place) = waiting.iter().position(|other| Arc::ptr_eq(other, &self.waiter)) {
            waiting.remove(place);
            self.budget.0.waiters.fetch_sub(1, Ordering::SeqCst);
        }
        drop(waiting);
        if matches!(*self.waiter.state.lock(), WaiterState::Granted) {
            drop(self.budget.granted(self.waiter.bytes));
        } else {
            // The next waiter may fit now.
            self.budget.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(future: Pin<&mut impl Future<Output = Permit>>) -> Option<Permit> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn bytes_come_back_with_their_last_user() {
        let budget = Budget::new(100);
        let held = budget.try_begin(60).map(|permit| permit.attach(Bytes::from_static(b"a")));
        let other = held.clone();
        drop(held);
        assert_eq!(budget.held(), 60);
        drop(other);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn those_who_wait_are_served_once_there_is_room() {
        let budget = Budget::new(100);
        let held = budget.try_begin(100);
        let (mut first, mut second) = (Box::pin(budget.take(50)), Box::pin(budget.take(20)));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        assert!(budget.is_wanted());
        drop(held);
        let small = poll(second.as_mut());
        let large = poll(first.as_mut());
        assert!(small.is_some() && large.is_some());
        assert!(!budget.is_wanted() && budget.held() == 70);
    }

    #[test]
    fn nobody_overtakes_those_who_wait() {
        let budget = Budget::new(100);
        let _held = budget.try_begin(50);
        let mut waiting = Box::pin(budget.take(80));
        assert!(poll(waiting.as_mut()).is_none());
        assert!(budget.try_begin(10).is_none());
        assert!(budget.try_grow(10).is_some(), "who holds some already does");
    }

    #[test]
    fn who_gives_up_waiting_leaves_nothing_behind() {
        let budget = Budget::new(100);
        let held = budget.try_begin(100);
        let (mut first, mut second) = (Box::pin(budget.take(100)), Box::pin(budget.take(10)));
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        drop(held);
        drop(first);
        assert!(poll(second.as_mut()).is_some());
        drop(second);
        assert_eq!(budget.held(), 0);
        assert!(!budget.is_wanted());
    }

    #[test]
    fn more_than_all_takes_all() {
        let budget = Budget::new(100);
        let all = budget.try_begin(1_000);
        assert_eq!(all.as_ref().map(Permit::bytes), Some(100));
        assert!(budget.try_begin(1).is_none());
    }

    #[test]
    fn a_quarter_is_left_to_those_who_hold_some() {
        let budget = Budget::new(100);
        let first = budget.try_begin(70);
        assert!(first.is_some() && budget.try_begin(10).is_none());
        assert!(budget.try_grow(30).is_some());
    }

    #[tokio::test]
    async fn one_at_a_time_goes_on_without_room() {
        let budget = Budget::new(100);
        let (_first, _second) = (budget.try_grow(50), budget.try_grow(50));
        let overdraft = budget.grow(80).await;
        assert_eq!(budget.held(), 180);
        let mut next = Box::pin(budget.grow(80));
        assert!(poll(next.as_mut()).is_none(), "a second one waits");
        drop(overdraft);
        assert_eq!(next.await.bytes(), 80);
        assert!(!budget.is_wanted() && budget.held() == 100);
    }

    #[test]
    fn parts_of_a_permit_add_up() {
        let budget = Budget::new(100);
        let mut all = budget.try_begin(50).expect("there is room");
        let part = all.split(20);
        assert_eq!((all.bytes(), part.bytes(), budget.held()), (30, 20, 50));
        drop(all);
        assert_eq!(budget.held(), 20);
        drop(part);
        assert_eq!(budget.held(), 0);
    }
}
