//! Peers that break every rule, for both ends of a near connection and for their greetings. They may write any word of
//! their half and any byte of their ring at any time, as `draw` decides. The attacked end must not panic, must not wait
//! for ever, and must report only errors that end the connection. A test draws at random, and the fuzz target `near`
//! draws from its input.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, Waker};

use device::near::NearStream;
use drivers::near::{NearClient, NearGreeting};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The offsets of the words in the layout that `drivers::near` describes.
pub(crate) const TAIL: u64 = 0;
pub(crate) const HEAD: u64 = 64;
const WORDS: [u64; 5] = [TAIL, HEAD, 128, 192, 256];
pub(crate) const HALF_BYTES: u64 = 20_480;
pub(crate) const RING: u64 = 4_096;

pub(crate) const GREETING: &[u8; 16] = b"REBANEAR\x01\0\0\0\0\0\0\0";

/// A half and a ring that their owner writes as it likes.
pub(crate) struct Memory {
    half: File,
    ring: File,
}

impl Memory {
    pub(crate) fn new(half_bytes: u64, ring_bytes: u64, seals: SealFlags) -> Self {
        let [half, ring] = [half_bytes, ring_bytes].map(|bytes| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("hostile", flags).expect("a memfd");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, seals).expect("sealed");
            File::from(file)
        });
        Self { half, ring }
    }

    pub(crate) fn set(&self, at: u64, word: u64) {
        self.half.write_all_at(&word.to_ne_bytes(), at).expect("within the half");
    }

    /// Sends bytes, which may be a greeting, with the first `passed` of both descriptors.
    pub(crate) fn send(&self, socket: &UnixStream, bytes: &[u8], passed: usize) {
        send(socket, bytes, &[self.half.as_fd(), self.ring.as_fd()][..passed]);
    }
}

/// Returns a greeting that says that the ring has `ring_bytes`.
pub(crate) fn greeting(head: &[u8; 16], ring_bytes: u64) -> Vec<u8> {
    [&head[..], &ring_bytes.to_ne_bytes()].concat()
}

/// Sends bytes with up to two descriptors.
fn send(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "room for two");
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
}

/// Returns a number that is usually near the limit `around`, where mistakes show.
fn number(draw: &mut impl FnMut() -> u64, around: u64) -> u64 {
    match draw() % 8 {
        0 => draw(),
        1 => u64::MAX - draw() % 4,
        2 => around.wrapping_sub(1 + draw() % 3),
        3 => around.wrapping_add(draw() % (2 * RING)),
        _ => around.wrapping_add(draw() % 64),
    }
}

/// Writes one word and some bytes. `read` and `written` are what the attacked end has read and written.
fn lie(memory: &Memory, draw: &mut impl FnMut() -> u64, read: u64, written: u64) {
    let (word, around) = match draw() % 4 {
        0 => (HEAD, written),
        1 => (WORDS[(draw() % 5) as usize], draw() % 3),
        _ => (TAIL, read),
    };
    memory.set(word, number(draw, around));
    let at = draw() % (RING - 8);
    memory.ring.write_all_at(&draw().to_ne_bytes(), at).expect("within the ring");
}

/// Attacks the server's end until it gives up.
pub(crate) fn attack_server(
    near: &dyn NearStream,
    memory: &Memory,
    draw: &mut impl FnMut() -> u64,
    steps: usize,
) -> io::Result<()> {
    let (mut read, mut written) = (0, 0);
    let mut space = vec![0; 5_000];
    for _ in 0..steps {
        lie(memory, draw, read, written);
        read += moved(near.try_read(&mut space))?;
        let answer = &space[..(draw() % 5_000) as usize];
        written += moved(near.try_write(&[IoSlice::new(answer)]))?;
        // Neither must block, whatever the words say.
        let mut task = Context::from_waker(Waker::noop());
        let _ = near.poll_readable(&mut task);
        let _ = near.poll_writable(&mut task);
    }
    Ok(())
}

/// Attacks the client's end until it gives up.
pub(crate) fn attack_client(
    near: &mut NearClient,
    memory: &Memory,
    draw: &mut impl FnMut() -> u64,
    steps: usize,
) -> io::Result<()> {
    let (mut read, mut written) = (0, 0);
    let mut space = vec![0; 5_000];
    for _ in 0..steps {
        lie(memory, draw, read, written);
        read += moved(near.try_read(&mut space))?;
        let request = &space[..(draw() % 5_000) as usize];
        written += moved(near.try_write(&[IoSlice::new(request)]))?;
        near.may_sleep(draw().is_multiple_of(2), draw().is_multiple_of(2));
        near.read_doorbells();
        near.has_unread_bytes();
    }
    Ok(())
}

/// Returns the bytes that a call has moved, none if it would block.
fn moved(result: io::Result<usize>) -> io::Result<u64> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        moved => moved.map(|bytes| bytes as u64),
    }
}

/// Sends what may be a greeting. Returns the memory if both ends should accept it.
pub(crate) fn greet_somehow(socket: &UnixStream, draw: &mut impl FnMut() -> u64) -> Option<Memory> {
    let pick = |draw: &mut dyn FnMut() -> u64, usual: u64, others: [u64; 3]| match draw() % 8 {
        index @ 0..3 => others[index as usize],
        _ => usual,
    };
    let half_bytes = pick(draw, HALF_BYTES, [0, HALF_BYTES / 2, HALF_BYTES + 4_096]);
    let ring_bytes = pick(draw, RING, [0, 3 * RING, RING / 2]);
    let says = pick(draw, ring_bytes, [2 << 20, u64::MAX, ring_bytes + 1]);
    let seals = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::empty()];
    let seals = seals[pick(draw, 0, [0, 1, 2]) as usize];
    let memory = Memory::new(half_bytes, ring_bytes, seals);
    let mut bytes = greeting(GREETING, says);
    if draw().is_multiple_of(4) {
        let at = (draw() % bytes.len() as u64) as usize;
        bytes[at] ^= draw() as u8;
    }
    let sent_bytes = if draw().is_multiple_of(4) { 1 + (draw() % 24) as usize } else { 24 };
    let passed = pick(draw, 2, [0, 1, 2]) as usize;
    memory.send(socket, &bytes[..sent_bytes], passed);
    let is_right = bytes == greeting(GREETING, RING)
        && (sent_bytes, passed) == (24, 2)
        && seals == SealFlags::SHRINK
        && (half_bytes, ring_bytes) == (HALF_BYTES, RING);
    is_right.then_some(memory)
}

/// Greets a server, and attacks it if it accepts the greeting. Runs within a tokio runtime.
///
/// # Panics
/// The server accepts a wrong greeting, refuses a right one, or waits for more than was sent.
pub(crate) fn attack_new_server(draw: &mut impl FnMut() -> u64, steps: usize) {
    let (client, server) = UnixStream::pair().expect("two sockets");
    server.set_nonblocking(true).expect("a flag");
    let memory = greet_somehow(&client, draw);
    let near = drivers::near::watch(server).expect("a runtime");
    let mut task = Context::from_waker(Waker::noop());
    let Poll::Ready(greeted) = near.poll_greeting(&mut task) else {
        panic!("it waits for more than one message");
    };
    assert_eq!(greeted.is_ok(), memory.is_some(), "{greeted:?}");
    let Some(memory) = memory else { return };
    let attacked = attack_server(&*near, &memory, draw, steps);
    assert_eq!(near.take_counters().broken, u64::from(attacked.is_err()));
    if let Err(error) = attacked {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}

/// Answers a client's greeting, and attacks the client if it accepts the answer.
///
/// # Panics
/// The client accepts a wrong greeting, refuses a right one, or waits for more than was sent.
pub(crate) fn attack_new_client(draw: &mut impl FnMut() -> u64, steps: usize) {
    let (client, server) = UnixStream::pair().expect("two sockets");
    client.set_nonblocking(true).expect("a flag");
    let mut greeting = NearGreeting::begin(client).expect("it greets");
    let memory = greet_somehow(&server, draw);
    let greeted = greeting.finish();
    assert_eq!(greeted.is_ok(), memory.is_some(), "{greeted:?}");
    let Some(memory) = memory else { return };
    let mut near = greeted.expect("a right greeting").expect("one message");
    if let Err(error) = attack_client(&mut near, &memory, draw, steps) {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
