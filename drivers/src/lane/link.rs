//! The client's end of one lane, which its queue and the watcher of its socket share. It has both halves of
//! the memory and the socket, and knows whether the service is still connected. It never reconnects.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use units::ByteCount;

use super::{Counts, PROTOCOL, Problem};
use crate::shared::handshake::{self, AWAKE};
use crate::shared::memory::{ENTRIES, LocalHalf, PeerHalf, Region, Word};
use crate::shared::socket::{self, SocketState, Users};
use crate::shared::{cpu, shares_its_core};

pub(super) struct Link {
    pub(super) local: LocalHalf,
    /// The memory for the inputs of all lanes to this service.
    pub(super) region: Arc<Region>,
    socket: Arc<UnixStream>,
    peer: OnceLock<PeerHalf>,
    disconnected: AtomicBool,
    /// The lock for reading the socket, because the watcher and the queue's owner may both read it.
    reading: Mutex<()>,
    /// The number of jobs without an answer that were not cancelled.
    in_flight: AtomicUsize,
    /// The number of the service's last sleep for which the doorbell was rung.
    rung: Mutex<u64>,
    /// The number of this side's sleeps so far.
    sleeps: AtomicU64,
    /// The value of `sleeps` when doorbells were last read. Earlier sleeps have no unread doorbell.
    sleeps_read: AtomicU64,
    /// Notifies a sleeping watcher that there are jobs to poll for.
    pub(super) submitted: Notify,
    pub(super) counts: Arc<Counts>,
    name: String,
}

impl Link {
    /// Opens the client's end and sends the greeting to the service that accepted `socket` or will accept it.
    pub(super) fn open(
        socket: UnixStream,
        region: &Arc<Region>,
        work_bytes_max: ByteCount,
        counts: &Arc<Counts>,
        name: &str,
    ) -> Result<Self, Problem> {
        Users::current().check(&socket).map_err(Problem::Peer)?;
        let local = LocalHalf::new().map_err(Problem::Memory)?;
        let greeted =
            socket::greet(&socket, &PROTOCOL, local.file(), region.file(), work_bytes_max.0);
        greeted.map_err(|error| Problem::Peer(error.to_string()))?;
        counts.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            local,
            region: Arc::clone(region),
            socket: Arc::new(socket),
            peer: OnceLock::new(),
            disconnected: AtomicBool::new(false),
            reading: Mutex::new(()),
            in_flight: AtomicUsize::new(0),
            rung: Mutex::new(AWAKE),
            sleeps: AtomicU64::new(0),
            sleeps_read: AtomicU64::new(0),
            submitted: Notify::new(),
            counts: Arc::clone(counts),
            name: name.to_owned(),
        })
    }

    pub(super) fn socket(&self) -> &Arc<UnixStream> {
        &self.socket
    }

    /// Returns the service's half, or none before the service's greeting.
    pub(super) fn peer(&self) -> Option<&PeerHalf> {
        self.peer.get()
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_flight(&self, jobs: usize) {
        self.in_flight.store(jobs, Ordering::Relaxed);
    }

    /// Publishes the first `tail` submissions to the service and wakes it if it sleeps.
    pub(super) fn publish(&self, tail: u64) {
        self.local.word(Word::Cpu).store(cpu(), Ordering::Relaxed);
        self.publish_and_wake(|| self.local.word(Word::Tail).store(tail, Ordering::Release));
    }

    fn publish_and_wake(&self, store: impl FnOnce()) {
        let asleep = || self.peer.get().map_or(AWAKE, |peer| peer.word(Word::Asleep));
        let must_ring = {
            let mut rung = self.rung.lock();
            handshake::publish(store, || fence(Ordering::SeqCst), asleep, &mut rung)
        };
        if must_ring {
            self.counts.doorbells.fetch_add(1, Ordering::Relaxed);
            socket::ring(self.socket.as_fd());
        }
    }

    /// Returns whether the service has sent answers that the queue has not read.
    pub(super) fn has_answers(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.word(Word::Tail) != self.answered())
    }

    /// Returns the number of answers that the queue has read.
    pub(super) fn answered(&self) -> u64 {
        self.local.word(Word::Head).load(Ordering::Relaxed)
    }

    /// Declares that only a doorbell wakes this side from now on. Returns false if there are answers to read.
    pub(super) fn fall_asleep(&self) -> bool {
        let number = self.sleeps.fetch_add(1, Ordering::Relaxed) + 1;
        self.local.word(Word::Cpu).store(cpu(), Ordering::Relaxed);
        let store = || self.local.word(Word::Asleep).store(number, Ordering::Relaxed);
        let fence = || fence(Ordering::SeqCst);
        handshake::fall_asleep(store, fence, || self.has_answers())
    }

    /// Declares that this side needs no doorbell from now on.
    pub(super) fn wake_up(&self) {
        self.local.word(Word::Asleep).store(AWAKE, Ordering::Relaxed);
    }

    /// Returns whether the service runs on this thread's core. Also returns true before the service's greeting.
    pub(super) fn shares_its_core(&self) -> bool {
        self.peer.get().is_none_or(shares_its_core)
    }

    /// Reads the socket like [`Link::read_socket`], but only if many doorbells may be unread or the service may be
    /// gone. The calling watcher is notified of every doorbell, even while earlier ones are unread.
    pub(super) fn drain_doorbells(&self, may_be_disconnected: bool) -> bool {
        let sleeps = self.sleeps.load(Ordering::Relaxed);
        // There is at most one doorbell per sleep.
        let unread_max = sleeps - self.sleeps_read.load(Ordering::Relaxed);
        if self.peer.get().is_some() && !may_be_disconnected && unread_max < socket::UNREAD_MAX {
            return true;
        }
        self.sleeps_read.store(sleeps, Ordering::Relaxed);
        self.read_socket()
    }

    /// Reads the socket: first the greeting, then doorbells, then the end. Returns false at the end.
    pub(super) fn read_socket(&self) -> bool {
        let _reading = self.reading.lock();
        if self.is_disconnected() {
            return false;
        }
        if self.peer.get().is_none() {
            match socket::greeting(self.socket.as_fd(), &PROTOCOL).and_then(|received| {
                match received {
                    Some(greeting) => PeerHalf::map(&greeting.passed).map(Some),
                    None => Ok(None),
                }
            }) {
                Ok(None) => {}
                Ok(Some(peer)) => {
                    let _ = self.peer.set(peer);
                    // Before the greeting the service could not be rung for earlier submissions.
                    self.publish_and_wake(|| ());
                }
                Err(why) => {
                    self.disconnect(&why);
                    return false;
                }
            }
            return true;
        }
        if socket::read_doorbells(self.socket.as_fd()) == SocketState::Closed {
            self.disconnect("it hung up");
            return false;
        }
        true
    }

    /// Ends the lane.
    pub(super) fn disconnect(&self, why: &str) {
        if !self.disconnected.swap(true, Ordering::AcqRel) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{}: {why}", self.name);
            self.shut_down();
        }
    }

    pub(super) fn shut_down(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Returns the number of entries in the peer's ring after the first `seen`. Returns none if that number is
/// impossible.
pub(super) fn fresh(tail: u64, seen: u64) -> Option<u64> {
    Some(tail.wrapping_sub(seen)).filter(|fresh| *fresh <= ENTRIES)
}
