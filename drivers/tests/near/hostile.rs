//! Peers that break every rule. They may write any word of their half and any byte of their ring at any time. The
//! attacked end must not panic, must not wait for ever, and must report only errors that end the connection.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use device::near::{NearStream, RING_BYTES};
use drivers::near::NearClient;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use units::Prng;

use super::{Listener, deadline, serve_stream};

/// The offsets of the words in the layout that `drivers::near` describes.
const TAIL: u64 = 0;
const HEAD: u64 = 64;
const WORDS: [u64; 5] = [TAIL, HEAD, 128, 192, 256];
const HALF_BYTES: u64 = 20_480;
const RING: u64 = 4_096;

/// A half and a ring that their owner writes as it likes.
struct Memory {
    half: File,
    ring: File,
}

impl Memory {
    fn new(half_bytes: u64, ring_bytes: u64, seals: SealFlags) -> Self {
        let [half, ring] = [half_bytes, ring_bytes].map(|bytes| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("hostile", flags).expect("a memfd");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, seals).expect("sealed");
            File::from(file)
        });
        Self { half, ring }
    }

    fn set(&self, at: u64, word: u64) {
        self.half.write_all_at(&word.to_ne_bytes(), at).expect("within the half");
    }

    /// Sends a greeting that says that the ring has `ring_bytes`.
    fn greet(&self, socket: &UnixStream, greeting: &[u8; 16], ring_bytes: u64) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [self.half.as_fd(), self.ring.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let ring_bytes = ring_bytes.to_ne_bytes();
        let parts = [IoSlice::new(greeting), IoSlice::new(&ring_bytes)];
        let sent = sendmsg(socket, &parts, &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(24));
    }
}

const GREETING: &[u8; 16] = b"REBANEAR\x01\0\0\0\0\0\0\0";

/// Returns the error with which a server refuses a greeting.
fn refusal(greet: impl FnOnce(&UnixStream)) -> String {
    let (client, server) = UnixStream::pair().expect("two sockets");
    greet(&client);
    let refused = serve_stream(server, async |_: &dyn NearStream| Ok(()));
    refused.expect_err("no client").to_string()
}

#[test]
fn a_wrong_greeting_is_refused() {
    let sealed = SealFlags::SHRINK;
    for (half, ring, says, seals, why) in [
        (HALF_BYTES, 3 * RING, 3 * RING, sealed, "a power of two from 4096"),
        (HALF_BYTES, RING / 2, RING / 2, sealed, "a power of two from 4096"),
        (HALF_BYTES, RING, 2 << 20, sealed, "to 1048576"),
        (HALF_BYTES, RING, 0, sealed, "a power of two"),
        (HALF_BYTES, RING, 2 * RING, sealed, "its ring has 4096 bytes, and it said 8192"),
        (HALF_BYTES / 2, RING, RING, sealed, "not 20480"),
        (HALF_BYTES, RING, RING, SealFlags::GROW, "not sealed"),
    ] {
        let memory = Memory::new(half, ring, seals);
        let refused = refusal(|socket| memory.greet(socket, GREETING, says));
        assert!(refused.contains(why), "{refused}");
    }
    let memory = Memory::new(HALF_BYTES, RING, sealed);
    let other = b"REBALANE\x01\0\0\0\0\0\0\0";
    assert!(refusal(|socket| memory.greet(socket, other, RING)).contains("does not speak"));
    let later = b"REBANEAR\x02\0\0\0\0\0\0\0";
    assert!(refusal(|socket| memory.greet(socket, later, RING)).contains("speaks version 2"));
    assert!(refusal(|socket| drop(socket.shutdown(std::net::Shutdown::Both))).contains("hung up"));
}

/// Returns a number that is usually near the limit `around`, where mistakes show.
fn number(draws: &mut Prng, around: u64) -> u64 {
    match draws.bits() % 8 {
        0 => draws.bits(),
        1 => u64::MAX - draws.bits() % 4,
        2 => around.wrapping_sub(1 + draws.bits() % 3),
        3 => around.wrapping_add(draws.bits() % (2 * RING)),
        _ => around.wrapping_add(draws.bits() % 64),
    }
}

/// Lets a client write words and bytes at random between the calls of a server, until the server gives up.
async fn attack(near: &dyn NearStream, memory: &Memory, draws: &mut Prng) -> io::Result<()> {
    let (mut read, mut written) = (0, 0);
    let mut space = vec![0; 5_000];
    for _ in 0..2_000 {
        let (word, around) = match draws.bits() % 4 {
            0 => (HEAD, written),
            1 => (WORDS[(draws.bits() % 5) as usize], draws.bits() % 3),
            _ => (TAIL, read),
        };
        memory.set(word, number(draws, around));
        let at = draws.bits() % (RING - 8);
        memory.ring.write_all_at(&draws.bits().to_ne_bytes(), at).expect("within the ring");
        match near.try_read(&mut space) {
            Ok(bytes) => {
                assert!(bytes as u64 <= RING, "more than its ring holds");
                read += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let answer = &space[..(draws.bits() % 5_000) as usize];
        match near.try_write(&[IoSlice::new(answer)]) {
            Ok(bytes) => written += bytes as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // Neither must block, whatever the words say.
        let waker = std::task::Waker::noop();
        let mut task = std::task::Context::from_waker(waker);
        let _ = near.poll_readable(&mut task);
        let _ = near.poll_writable(&mut task);
    }
    Ok(())
}

#[test]
fn a_client_that_writes_any_word_ends_only_its_connection() {
    let mut ended = 0;
    for seed in 0..60 {
        let (client, server) = UnixStream::pair().expect("two sockets");
        let memory = Memory::new(HALF_BYTES, RING, SealFlags::SHRINK);
        memory.greet(&client, GREETING, RING);
        let served = serve_stream(server, async |near: &dyn NearStream| {
            let attacked = attack(near, &memory, &mut Prng::new(seed)).await;
            let broken = near.take_counters().broken;
            assert_eq!(broken, u64::from(attacked.is_err()), "seed {seed}");
            attacked
        });
        if let Err(error) = served {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "seed {seed}: {error}");
            ended += 1;
        }
    }
    assert!(ended > 30, "most of these clients are noticed, and {ended} were");
}

#[test]
fn a_server_that_lies_ends_the_client_s_connection() {
    for (word, value) in [(TAIL, RING + 1), (TAIL, u64::MAX), (HEAD, 1), (HEAD, 1 << 63)] {
        let listener = Listener::new();
        let socket = listener.socket.try_clone().expect("a descriptor");
        let lying = std::thread::spawn(move || {
            let (stream, _) = socket.accept().expect("a client");
            let memory = Memory::new(HALF_BYTES, RING, SealFlags::SHRINK);
            memory.set(word, value);
            memory.greet(&stream, GREETING, RING);
            stream
        });
        let mut client = NearClient::connect(&listener.path(), deadline()).expect("connects");
        let error = match word {
            TAIL => client.read(&mut [0; 8], deadline()).map(drop),
            _ => client.write(&[IoSlice::new(b"x")], deadline()).map(drop),
        };
        let error = error.expect_err("it lies");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{word} {value}: {error}");
        const { assert!(RING < RING_BYTES, "the ring of the client has room for the claim") };
        drop(lying.join());
    }
}
