//! The client's end of one lane, which its queue and the watcher of its socket share. It has both halves of the
//! memory and the socket, and knows whether the service is still connected. It does not reconnect: its end is final.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::thread::sched_getcpu;
use tokio::sync::Notify;
use units::ByteCount;

use super::handshake::{self, AWAKE};
use super::memory::{ENTRIES, LocalHalf, PeerHalf, Region, Word};
use super::socket::{self, Heard, Users};
use super::{Counts, Problem};

pub(super) struct Link {
    pub(super) local: LocalHalf,
    /// The inputs of all lanes to this service.
    pub(super) region: Arc<Region>,
    socket: Arc<UnixStream>,
    peer: OnceLock<PeerHalf>,
    gone: AtomicBool,
    /// The lock for reading the socket, because the watcher and the queue's owner may both read it.
    reading: Mutex<()>,
    /// The number of jobs without an answer that were not cancelled.
    inside: AtomicUsize,
    /// The last sleep of the service that was rung for.
    rung: Mutex<u64>,
    /// The number of this side's sleeps so far.
    sleeps: AtomicU64,
    /// The value of `sleeps` when doorbells were last read. Earlier sleeps have no unread doorbell.
    sleeps_read: AtomicU64,
    /// Tells a sleeping watcher that there are jobs to poll for.
    pub(super) submitted: Notify,
    pub(super) counts: Arc<Counts>,
    name: String,
}

impl Link {
    /// Sends the greeting to the service that accepted `socket` or will accept it.
    pub(super) fn open(
        socket: UnixStream,
        region: &Arc<Region>,
        work_bytes_max: ByteCount,
        counts: &Arc<Counts>,
        name: &str,
    ) -> Result<Self, Problem> {
        Users::here().check(&socket).map_err(Problem::Peer)?;
        let local = LocalHalf::new().map_err(Problem::Memory)?;
        let greeted = socket::greet(&socket, local.file(), region.file(), work_bytes_max.0);
        greeted.map_err(|error| Problem::Peer(error.to_string()))?;
        counts.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            local,
            region: Arc::clone(region),
            socket: Arc::new(socket),
            peer: OnceLock::new(),
            gone: AtomicBool::new(false),
            reading: Mutex::new(()),
            inside: AtomicUsize::new(0),
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

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn inside(&self) -> usize {
        self.inside.load(Ordering::Relaxed)
    }

    pub(super) fn set_inside(&self, jobs: usize) {
        self.inside.store(jobs, Ordering::Relaxed);
    }

    /// Shows the service the first `tail` submissions and wakes it if it sleeps.
    pub(super) fn publish(&self, tail: u64) {
        self.local.word(Word::Cpu).store(cpu(), Ordering::Relaxed);
        self.tell(|| self.local.word(Word::Tail).store(tail, Ordering::Release));
    }

    fn tell(&self, store: impl FnOnce()) {
        let asleep = || self.peer.get().map_or(AWAKE, |peer| peer.word(Word::Asleep));
        let must_ring = {
            let mut rung = self.rung.lock();
            handshake::publish(store, || fence(Ordering::SeqCst), asleep, &mut rung)
        };
        if must_ring {
            self.counts.bells.fetch_add(1, Ordering::Relaxed);
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

    /// Reads the socket like [`Link::listen`], but only occasionally and when the service may be gone. It is for a
    /// watcher that is notified of every doorbell, whether or not earlier doorbells were read.
    pub(super) fn drain_doorbells(&self, may_be_gone: bool) -> bool {
        let sleeps = self.sleeps.load(Ordering::Relaxed);
        // There is at most one doorbell per sleep.
        let unread_max = sleeps - self.sleeps_read.load(Ordering::Relaxed);
        if self.peer.get().is_some() && !may_be_gone && unread_max < socket::UNREAD_MAX {
            return true;
        }
        self.sleeps_read.store(sleeps, Ordering::Relaxed);
        self.listen()
    }

    /// Reads the socket: first the greeting, then doorbells, then the end. Returns false at the end.
    pub(super) fn listen(&self) -> bool {
        let _reading = self.reading.lock();
        if self.is_gone() {
            return false;
        }
        if self.peer.get().is_none() {
            match socket::greeting(self.socket.as_fd()).and_then(|handed| match handed {
                Some(greeting) => PeerHalf::map(&greeting.handed).map(Some),
                None => Ok(None),
            }) {
                Ok(None) => {}
                Ok(Some(peer)) => {
                    let _ = self.peer.set(peer);
                    // Before the greeting the service could not be rung for earlier submissions.
                    self.tell(|| ());
                }
                Err(why) => {
                    self.lose(&why);
                    return false;
                }
            }
            return true;
        }
        if socket::listen(self.socket.as_fd()) == Heard::End {
            self.lose("it hung up");
            return false;
        }
        true
    }

    /// Ends the lane.
    pub(super) fn lose(&self, why: &str) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{}: {why}", self.name);
            self.hang_up();
        }
    }

    pub(super) fn hang_up(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Returns the number of entries in the peer's ring after the first `seen`. Returns none if that number is
/// impossible.
pub(super) fn fresh(tail: u64, seen: u64) -> Option<u64> {
    Some(tail.wrapping_sub(seen)).filter(|fresh| *fresh <= ENTRIES)
}

/// Returns whether the peer last ran on this thread's core. In that case the peer cannot run while this thread polls.
pub(super) fn shares_its_core(peer: &PeerHalf) -> bool {
    peer.word(Word::Cpu) == cpu()
}

/// Returns the processor of this thread in the encoding of [`Word::Cpu`].
pub(super) fn cpu() -> u64 {
    sched_getcpu() as u64 + 1
}
