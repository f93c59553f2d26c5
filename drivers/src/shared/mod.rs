//! Memory that two processes on one host share, and how they wake each other. [`crate::lane`] and [`crate::near`] are
//! made of it. Each side writes memory of its own, which the other side can only read. A Unix socket carries the
//! greetings, the doorbells and the end.

pub(crate) mod adaptive_polling;
pub(crate) mod doorbell;
pub(crate) mod handshake;
pub(crate) mod memory;
pub(crate) mod poller;
pub(crate) mod socket;

use rustix::thread::sched_getcpu;

use memory::{PeerHalf, Word};

/// Returns whether the peer last ran on this thread's core. In that case the peer cannot run while this thread polls.
pub(crate) fn shares_its_core(peer: &PeerHalf) -> bool {
    peer.word(Word::Cpu) == cpu()
}

/// Returns the processor of this thread in the encoding of [`Word::Cpu`].
pub(crate) fn cpu() -> u64 {
    sched_getcpu() as u64 + 1
}
