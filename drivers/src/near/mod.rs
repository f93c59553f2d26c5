//! Near connections: a client and a server on the same host exchange a stream of bytes in each direction through
//! memory that they share. Neither side calls the kernel while both are awake. The bytes are those that a memcached
//! client would send through a socket. Rebate's own client sends packets of the binary protocol, which are flat
//! records: all lengths and numbers come first, at fixed places.
//!
//! # Set-up
//! The client connects to the server's Unix socket and sends a greeting of 24 bytes: `REBANEAR`, the version and the
//! size of its ring (bytes), the last two each a `u64`. The greeting carries two memfds by `SCM_RIGHTS`: the client's
//! **half** with its words, and its **ring**. The server answers with a greeting of the same form, or hangs up. From
//! then on any byte on the socket is a doorbell, and the end of the socket's stream is the end of the connection. All
//! numbers are in the machine's own byte order, because both sides are on one machine.
//!
//! Only the side that made a half or a ring can write it. Seals prevent any later mapping for writing, and prevent it
//! from becoming shorter. Unlike a [lane](crate::lane), a near connection may join different users: the permissions of
//! the socket and the server's rules about clients decide who may connect.
//!
//! # A half
//! 20480 bytes, of which the same words as in a lane are used, with a meaning of their own:
//!
//! | offset (bytes) | what |
//! |---|---|
//! | 0 | `tail`, u64: bytes written to this side's ring since the start; byte `n` is at `n mod size` |
//! | 64 | `head`, u64: bytes of the other ring that this side has copied |
//! | 128 | `asleep`, u64: 0 while this side looks for bytes by itself; else the number of its sleep |
//! | 192 | `cpu`, u64: the last processor that this side ran on, plus 1; 0 before it ran |
//! | 256 | `blocked`, u64: 0 or the number of a sleep in which this side waits for room in its ring |
//! | 320 | `clock`, u64: the time of the host's monotonic clock when this side made its half (ms), or 0 |
//!
//! The packets of a client have deadlines if its clock agrees with the server's (`protocol`, `binary/deadline.rs`).
//!
//! The number of a sleep is never used again. The other side rings once per number: for `asleep` when it has written
//! bytes, for `blocked` when it has copied bytes.
//!
//! # A ring
//! Its size is a power of two from 4 KiB to 1 MiB. This implementation makes rings of 128 KiB. Longer messages pass
//! through in parts.

mod client;
mod pipe;
mod served;

use device::near::NEAR_BYTES_MAX;

pub use client::{NearClient, NearGreeting};
pub use served::watch;

use crate::shared::socket::Protocol;

/// The size of the ring of bytes that each side writes.
pub const RING_BYTES: u64 = 128 << 10;

/// The memory that a side has for one connection (bytes): its ring, and the page of its half that has the words.
const OWN_BYTES: u64 = RING_BYTES + WORDS_BYTES;

const WORDS_BYTES: u64 = 4 << 10;

const _: () = assert!(OWN_BYTES <= NEAR_BYTES_MAX, "servers plan for it");

/// What the greetings of near connections say. The version is that of the greeting and of the layout. The number of a
/// greeting is the size of the ring that it passes (bytes).
const PROTOCOL: Protocol = Protocol { magic: *b"REBANEAR", version: 1, name: "near connections" };
