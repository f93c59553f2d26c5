//! One side of a near connection: the ring that it writes, and the peer's ring, which it reads. Everything that the
//! peer wrote is read once, checked, and copied before it is used. The caller waits; a pipe never blocks.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use device::lane::Pause;
use device::near::NearCounters;
use units::host_ms;

use super::{OWN_BYTES, PROTOCOL, RING_BYTES};
use crate::shared::handshake::{self, AWAKE};
use crate::shared::memory::{LocalHalf, LocalRing, PeerHalf, Word};
use crate::shared::poller::Poller;
use crate::shared::socket::{self, Greeting, SocketState};
use crate::shared::{cpu, shares_its_core};

/// The memory that this side writes.
pub(super) struct LocalSide {
    half: LocalHalf,
    ring: LocalRing,
}

impl LocalSide {
    pub(super) fn new() -> io::Result<Self> {
        let half = LocalHalf::new()?;
        half.word(Word::Clock).store(host_ms(), Ordering::Relaxed);
        Ok(Self { half, ring: LocalRing::new(RING_BYTES as usize)? })
    }

    /// Sends this side's greeting. From then on, a connection has only the descriptor of its socket.
    pub(super) fn greet(&mut self, socket: &UnixStream) -> io::Result<()> {
        let Self { half, ring } = self;
        socket::greet(socket, &PROTOCOL, half.file(), ring.file(), RING_BYTES)?;
        half.close_file();
        ring.close_file();
        Ok(())
    }
}

/// Returns the memory that the peer has passed, or none if its greeting has not arrived yet.
///
/// # Errors
/// `InvalidData`: the peer sent something else. The text describes it.
pub(super) fn received(socket: &UnixStream) -> io::Result<Option<PeerSide>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let Some(greeting) = socket::greeting(socket, &PROTOCOL).map_err(invalid)? else {
        return Ok(None);
    };
    let Greeting { passed, bytes_max: ring_bytes } = greeting;
    let allowed = RING_BYTES_MIN..=RING_BYTES_MAX;
    if !ring_bytes.is_power_of_two() || !allowed.contains(&ring_bytes) {
        let (least, most) = (RING_BYTES_MIN, RING_BYTES_MAX);
        return Err(invalid(format!(
            "its ring has {ring_bytes} bytes, and a ring has a power of two from {least} to {most}"
        )));
    }
    let half = PeerHalf::map(&passed).map_err(invalid)?;
    if half.region_bytes() as u64 != ring_bytes {
        let bytes = half.region_bytes();
        return Err(invalid(format!("its ring has {bytes} bytes, and it said {ring_bytes}")));
    }
    Ok(Some(PeerSide { half, ring_bytes }))
}

impl std::fmt::Debug for LocalSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSide").finish_non_exhaustive()
    }
}

/// The memory that the peer writes.
pub(super) struct PeerSide {
    half: PeerHalf,
    ring_bytes: u64,
}

/// One side of a near connection.
pub(super) struct Pipe {
    socket: Arc<UnixStream>,
    local: LocalSide,
    peer: PeerSide,
    /// The number of bytes written to the local ring, and of bytes copied from the peer's.
    written: u64,
    read: u64,
    /// The numbers of the peer's last sleeps for which the doorbell was rung: one for bytes, one for room.
    rung: u64,
    rung_blocked: u64,
    /// True if the local count of copied bytes was written without a fence before the next read of the peer's word
    /// `blocked`.
    must_fence_head: bool,
    sleeps: u64,
    /// The value of `sleeps` when doorbells were last read. Earlier sleeps have no unread doorbell.
    sleeps_read: u64,
    /// The values of the local words `asleep` and `cpu`. A write of the same value would only take the word's cache
    /// line away from the peer, which reads it.
    asleep: u64,
    cpu: u64,
    shares_clock: bool,
    /// True once the socket has ended. Bytes that the peer wrote before can still be read.
    is_closed: bool,
    poller: Poller,
    counters: NearCounters,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { socket, written, read, is_closed, .. } = self;
        let mut fields = f.debug_struct("Pipe");
        fields.field("socket", socket).field("written", written).field("read", read);
        fields.field("is_closed", is_closed).finish_non_exhaustive()
    }
}

impl Pipe {
    pub(super) fn new(socket: &Arc<UnixStream>, local: LocalSide, peer: PeerSide) -> Self {
        let made_at_ms = local.half.word(Word::Clock).load(Ordering::Relaxed);
        let shares_clock = made_at_ms.abs_diff(peer.half.word(Word::Clock)) < MEETING_MS_MAX;
        Self {
            socket: Arc::clone(socket),
            local,
            peer,
            written: 0,
            read: 0,
            rung: AWAKE,
            rung_blocked: AWAKE,
            must_fence_head: false,
            sleeps: 0,
            sleeps_read: 0,
            asleep: AWAKE,
            cpu: 0,
            shares_clock,
            is_closed: false,
            poller: Poller::default(),
            counters: NearCounters::default(),
        }
    }

    /// Sets the longest time for which this side looks for bytes before it sleeps.
    pub(super) fn set_poll_max(&mut self, max: Duration) {
        self.poller = Poller::new(max);
    }

    pub(super) fn socket(&self) -> &Arc<UnixStream> {
        &self.socket
    }

    /// Returns whether both sides had the same clock when they met.
    pub(super) const fn shares_clock(&self) -> bool {
        self.shares_clock
    }

    /// Returns the number of bytes that can be read.
    fn available(&mut self) -> io::Result<u64> {
        let bytes = self.peer.half.word(Word::Tail).wrapping_sub(self.read);
        if bytes > self.peer.ring_bytes {
            return Err(self.broken("it claims bytes that cannot be in its ring"));
        }
        Ok(bytes)
    }

    /// Returns the number of bytes for which there is room.
    fn room(&mut self) -> io::Result<u64> {
        let unread = self.written.wrapping_sub(self.peer.half.word(Word::Head));
        if unread > RING_BYTES {
            return Err(self.broken("it claims to have read bytes that were not written"));
        }
        Ok(RING_BYTES - unread)
    }

    #[cold]
    fn broken(&mut self, why: &str) -> io::Error {
        if !self.is_closed {
            self.counters.broken += 1;
            self.shut_down();
        }
        io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
    }

    /// Returns whether a read would not return `WouldBlock`.
    pub(super) fn is_readable(&mut self) -> bool {
        self.is_closed || self.available().map_or(true, |bytes| bytes > 0)
    }

    /// Returns whether a write would not return `WouldBlock`.
    pub(super) fn is_writable(&mut self) -> bool {
        self.is_closed || self.room().map_or(true, |bytes| bytes > 0)
    }

    /// Returns whether the peer has not copied all bytes that were written.
    pub(super) fn has_unread_bytes(&mut self) -> bool {
        self.peer.half.word(Word::Head) != self.written
    }

    /// Copies available bytes, see [`device::near::NearStream::try_read`].
    pub(super) fn try_read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        // The order matters: bytes that were written before the end are seen after it.
        let is_closed = self.is_closed;
        let bytes = self.available()?.min(space.len() as u64) as usize;
        if bytes == 0 {
            return match is_closed || space.is_empty() {
                true => Ok(0),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        self.note_work();
        let at = self.read % self.peer.ring_bytes;
        let until_end = ((self.peer.ring_bytes - at) as usize).min(bytes);
        let (first, second) = space[..bytes].split_at_mut(until_end);
        let is_inside = self.peer.half.copy(at, first) && self.peer.half.copy(0, second);
        assert!(is_inside, "both parts are within the ring");
        self.read = self.read.wrapping_add(bytes as u64);
        self.local.half.word(Word::Head).store(self.read, Ordering::Release);
        // A peer that has waited for room for some time is woken at once. One that began to wait in this moment may be
        // missed, because no fence is between the write above and the read of its word. The fence of the next write or
        // pause serves both, and saves one per message.
        self.must_fence_head = true;
        self.ring_if_blocked();
        Ok(bytes)
    }

    /// Wakes the peer if it waits for room and was not woken since it began to.
    fn ring_if_blocked(&mut self) {
        if handshake::must_ring(self.peer.half.word(Word::Blocked), &mut self.rung_blocked) {
            self.ring();
        }
    }

    /// Completes the write of the local head after a sequentially consistent fence: at least one of both sides now sees
    /// the other's word, as [`handshake`] explains.
    fn head_was_fenced(&mut self) {
        if std::mem::take(&mut self.must_fence_head) {
            self.ring_if_blocked();
        }
    }

    /// Writes the bytes for which there is room, see [`device::near::NearStream::try_write`].
    pub(super) fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut room = self.room()? as usize;
        let before = self.written;
        for slice in slices {
            let part = &slice[..slice.len().min(room)];
            room -= part.len();
            for (turn, piece) in part.chunks(PIECE_BYTES).enumerate() {
                if turn > 0 {
                    self.show_pieces();
                }
                self.put(piece);
            }
        }
        let bytes = self.written.wrapping_sub(before) as usize;
        if bytes == 0 {
            let is_empty = slices.iter().all(|slice| slice.is_empty());
            return if is_empty { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        self.note_cpu();
        let (half, peer, written) = (&self.local.half, &self.peer.half, self.written);
        let must_ring = handshake::publish(
            || half.word(Word::Tail).store(written, Ordering::Release),
            || fence(Ordering::SeqCst),
            || peer.word(Word::Asleep),
            &mut self.rung,
        );
        if must_ring {
            self.ring();
        }
        self.poller.wrote(must_ring);
        self.head_was_fenced();
        Ok(bytes)
    }

    /// Lets a peer that polls read what is in the ring so far, while the rest is copied. A peer that sleeps learns of
    /// it with the last bytes of the write, which alone have a fence.
    fn show_pieces(&self) {
        self.local.half.word(Word::Tail).store(self.written, Ordering::Release);
    }

    /// Copies bytes for which there is room to the ring, unpublished.
    fn put(&mut self, bytes: &[u8]) {
        let at = (self.written % RING_BYTES) as usize;
        let ring = self.local.ring.as_mut();
        let (first, second) = bytes.split_at((RING_BYTES as usize - at).min(bytes.len()));
        ring[at..at + first.len()].copy_from_slice(first);
        ring[..second.len()].copy_from_slice(second);
        self.written = self.written.wrapping_add(bytes.len() as u64);
    }

    fn ring(&mut self) {
        self.counters.doorbells += 1;
        socket::ring(self.socket.as_fd());
    }

    /// Tells the peer on which processor this side runs.
    fn note_cpu(&mut self) {
        let cpu = cpu();
        if self.cpu != cpu {
            self.cpu = cpu;
            self.local.half.word(Word::Cpu).store(cpu, Ordering::Relaxed);
        }
    }

    /// Completes a fall into sleep, whose fence has served the local head as well.
    fn may_sleep(&mut self, may_sleep: bool) -> bool {
        self.head_was_fenced();
        may_sleep
    }

    /// Records the time of a poll that found bytes.
    fn note_work(&mut self) {
        self.poller.found();
    }

    /// Returns the next step after a read that found nothing. Before it returns `Sleep`, it announces the sleep to the
    /// peer, which will ring the doorbell. After `Poll` the caller must look again.
    pub(super) fn pause(&mut self) -> Pause {
        let peer = &self.peer.half;
        if self.poller.goes_on(|| !shares_its_core(peer)) {
            if self.asleep != AWAKE {
                self.asleep = AWAKE;
                self.local.half.word(Word::Asleep).store(AWAKE, Ordering::Relaxed);
            }
            if self.must_fence_head {
                fence(Ordering::SeqCst);
                self.head_was_fenced();
            }
            return Pause::Poll;
        }
        if self.fall_asleep() { Pause::Sleep } else { Pause::Poll }
    }

    /// Announces that only a doorbell tells this side of bytes from now on. Returns false if there are bytes already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let sleep = self.next_sleep();
        self.asleep = sleep;
        let (half, peer, read) = (&self.local.half, &self.peer.half, self.read);
        let may_sleep = handshake::fall_asleep(
            || half.word(Word::Asleep).store(sleep, Ordering::Relaxed),
            || fence(Ordering::SeqCst),
            || peer.word(Word::Tail) != read,
        );
        self.may_sleep(may_sleep)
    }

    /// Announces that only a doorbell tells this side of room from now on. Returns false if there is room already.
    pub(super) fn fall_asleep_blocked(&mut self) -> bool {
        let sleep = self.next_sleep();
        let (half, peer) = (&self.local.half, &self.peer.half);
        let written = self.written;
        let may_sleep = handshake::fall_asleep(
            || half.word(Word::Blocked).store(sleep, Ordering::Relaxed),
            || fence(Ordering::SeqCst),
            || written.wrapping_sub(peer.word(Word::Head)) != RING_BYTES,
        );
        self.may_sleep(may_sleep)
    }

    fn next_sleep(&mut self) -> u64 {
        self.sleeps += 1;
        self.counters.sleeps += 1;
        self.note_cpu();
        self.sleeps
    }

    /// Reads doorbells if many may be unread or if the peer may be gone, and notes whether it is. Fewer reads save
    /// system calls. The caller must be notified of every doorbell even while earlier doorbells are unread.
    pub(super) fn drain_doorbells(&mut self, may_be_closed: bool) {
        // There is at most one doorbell per sleep.
        if may_be_closed || self.sleeps - self.sleeps_read >= socket::UNREAD_MAX {
            self.read_doorbells();
        }
    }

    /// Reads all doorbells, and notes whether the peer is gone.
    pub(super) fn read_doorbells(&mut self) {
        self.sleeps_read = self.sleeps;
        if socket::read_doorbells(self.socket.as_fd()) == SocketState::Closed {
            self.is_closed = true;
        }
    }

    /// Ends the stream in both directions. The peer can still read what was written.
    pub(super) fn shut_down(&mut self) {
        self.is_closed = true;
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Returns the memory that is shared with the peer (bytes).
    pub(super) fn held_bytes(&self) -> u64 {
        OWN_BYTES + self.peer.ring_bytes
    }

    pub(super) fn take_counters(&mut self) -> NearCounters {
        std::mem::take(&mut self.counters)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Another process may have inherited the descriptor.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// The most that the clocks of two sides may differ, because one made its half later (ms).
const MEETING_MS_MAX: u64 = 10_000;

/// The longest part of a value that is copied before the peer can read it: both sides then copy at the same time.
const PIECE_BYTES: usize = 8 << 10;

/// The smallest ring that is accepted from a peer.
const RING_BYTES_MIN: u64 = 4 << 10;

/// The largest ring that is accepted from a peer. A reader may have to provide the pages of a ring that its writer has
/// never touched.
const RING_BYTES_MAX: u64 = 1 << 20;
