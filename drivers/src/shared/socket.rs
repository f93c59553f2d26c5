//! The Unix socket between two sides that share memory. It carries the greetings, the doorbells, and the end. Each side
//! sends one greeting with its memory. From then on a byte is a doorbell, and the end of the stream means that the peer
//! has ended, whatever the cause.
//!
//! Doorbells are bytes of this socket and not an eventfd, because both holders share the flags of an eventfd.
//! A peer could make it blocking and fill it, and the next doorbell of this side would never return. A socket
//! accepts a non-blocking flag per call. One wait on it also covers both doorbells and the end.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
};
use rustix::process::geteuid;

use super::memory::PassedFiles;

/// The result of a read of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// Nothing is left to read now.
    Open,
    /// The peer is gone.
    Closed,
}

/// The users whose processes may be the peer.
#[derive(Debug)]
pub(crate) struct Users {
    user: u32,
    root: u32,
    /// The user id that the system shows for all users without an id in this process's user namespace. None
    /// if all users have an id.
    overflow_uid: Option<u32>,
}

impl Users {
    pub(crate) fn current() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let overflow_uid = || {
            let number = read("/proc/sys/kernel/overflowuid");
            number.trim().parse().unwrap_or(OVERFLOW_UID_DEFAULT)
        };
        let all = maps_all(&read("/proc/self/uid_map"));
        Self { user: geteuid().as_raw(), root: 0, overflow_uid: (!all).then(overflow_uid) }
    }

    /// Refuses a peer of another user, because lanes are for processes that could read each other's memory
    /// anyway. It calls nix, because rustix cannot represent the process id 0 of a peer in another container.
    pub(crate) fn check(&self, socket: &impl AsFd) -> Result<(), String> {
        let peer = getsockopt(socket, sockopt::PeerCredentials);
        let theirs = peer.map_err(|error| format!("who it is cannot be told: {error}"))?.uid();
        let Self { user, root, overflow_uid } = self;
        if *overflow_uid == Some(theirs) {
            return Err(format!(
                "it runs as user {theirs}, as which the system shows every user that this user \
                 namespace has no number for: run both as another"
            ));
        }
        if theirs != *user && theirs != *root {
            return Err(format!(
                "it runs as user {theirs}, and this memory is for user {user} and root only"
            ));
        }
        Ok(())
    }
}

/// Returns whether a user namespace has an id for every user. Each line has the first id inside, the first id
/// outside, and their count.
fn maps_all(uid_map: &str) -> bool {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    uid_map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

const OVERFLOW_UID_DEFAULT: u32 = 65_534;

/// What two sides say to make sure that they mean the same.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u64,
    /// What the protocol is for, in the plural.
    pub(crate) name: &'static str,
}

/// The message that each peer sends once.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) passed: PassedFiles,
    /// A size, which the protocol gives a meaning (bytes).
    pub(crate) bytes_max: u64,
}

/// Sends the greeting with the local half and the local region.
pub(crate) fn greet(
    socket: impl AsFd,
    protocol: &Protocol,
    half: BorrowedFd<'_>,
    region: BorrowedFd<'_>,
    bytes_max: u64,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [half, region];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "room for two descriptors");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let words = [protocol.magic, protocol.version.to_ne_bytes(), bytes_max.to_ne_bytes()];
    let parts = words.each_ref().map(|word| IoSlice::new(word));
    // A message this short is sent as a whole or not at all.
    sendmsg(socket, &parts, &mut control, flags).map(drop)
}

/// Returns the peer's memory, or none if its greeting has not arrived yet.
///
/// # Errors
/// The peer sent something else. The text describes it.
pub(crate) fn greeting(socket: impl AsFd, protocol: &Protocol) -> Result<Option<Greeting>, String> {
    let mut words = [[0; 8]; 3];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = words.each_mut().map(|word| IoSliceMut::new(word));
    let read = match recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // Unexpected descriptors are closed with the buffer, or by the system if they did not fit.
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if read == 0 {
        return Err("it hung up before its greeting: its own log says why".into());
    }
    let [magic, version, limit] = words;
    if magic != protocol.magic {
        return Err("it does not speak this protocol".into());
    }
    let version = u64::from_ne_bytes(version);
    let Protocol { version: ours, name, .. } = protocol;
    if read != words.as_flattened().len() || version != *ours {
        return Err(format!("it speaks version {version} of {name}, and this process {ours}"));
    }
    let [half, region] = fds
        .try_into()
        .map_err(|_| format!("it sent not the two pieces of memory that {name} have"))?;
    let passed = PassedFiles { half, region };
    Ok(Some(Greeting { passed, bytes_max: u64::from_ne_bytes(limit) }))
}

/// The largest number of doorbells that may be unread. It is far below the capacity of a socket, because a
/// full socket accepts no more.
pub(crate) const UNREAD_MAX: u64 = 32;

/// Wakes the peer. If the socket is full of doorbells, they have already woken the peer. If the socket is closed, a
/// later read reports that.
pub(crate) fn ring(socket: impl AsFd) {
    let _ = send(socket, &[DOORBELL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Reads all doorbells that have arrived, so that a side that waits for new bytes on the socket misses none. A peer
/// that rings without end counts as gone.
pub(crate) fn read_doorbells(socket: impl AsFd) -> SocketState {
    let mut bytes = [0; DOORBELLS_PER_READ];
    for _ in 0..READS_MAX {
        match recv(&socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return SocketState::Closed,
            // The read emptied the socket, so bytes that come later are new.
            Ok((_, read)) if read < DOORBELLS_PER_READ => return SocketState::Open,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return SocketState::Open,
            Err(_) => return SocketState::Closed,
        }
    }
    SocketState::Closed
}

const DOORBELL: u8 = b'!';

/// The size of one read (bytes). An honest peer has at most a few doorbells in the socket.
const DOORBELLS_PER_READ: usize = 1_024;

/// The most reads in a row. Together they exceed the capacity of a socket by far.
const READS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::memory::{LocalHalf, PeerHalf, Region};
    use super::*;

    const PROTOCOL: Protocol = Protocol { magic: *b"REBALANE", version: 3, name: "lanes" };

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("two sockets")
    }

    #[test]
    fn a_greeting_passes_the_memory_and_doorbells_follow() {
        let (here, there) = pair();
        let (local, region) =
            (LocalHalf::new().expect("memory"), Region::new(1 << 20).expect("memory"));
        assert!(greeting(&there, &PROTOCOL).expect("nothing wrong yet").is_none());
        greet(&here, &PROTOCOL, local.file(), region.file(), 12_345).expect("sent");
        ring(&here);
        let greeting = greeting(&there, &PROTOCOL).expect("a greeting").expect("is there");
        assert_eq!(greeting.bytes_max, 12_345);
        PeerHalf::map(&greeting.passed).expect("a half and a region");
        assert_eq!(read_doorbells(&there), SocketState::Open);
        assert_eq!(read_doorbells(&there), SocketState::Open);
        drop(here);
        assert_eq!(read_doorbells(&there), SocketState::Closed);
        ring(&there);
    }

    #[test]
    fn only_this_user_and_root_are_peers() {
        let (here, _there) = pair();
        Users::current().check(&here).expect("this very process");
        let user = geteuid().as_raw();
        let (other, another) = (user + 1, user + 2);
        let allows = |user, root, overflow_uid| Users { user, root, overflow_uid }.check(&here);
        assert_eq!(allows(user, other, None), Ok(()));
        assert_eq!(allows(other, user, Some(another)), Ok(()));
        let refused = allows(other, another, None).expect_err("another user");
        assert!(refused.contains(&format!("it runs as user {user}, and")), "{refused}");
        let refused = allows(user, other, Some(user)).expect_err("whoever it is");
        assert!(refused.contains("no number for"), "{refused}");
    }

    #[test]
    fn full_and_partial_user_namespaces_are_told_apart() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(maps_all("0 1 1\n1 0 1\n2 2 4294967293\n"));
        for some in ["", "0 100000 65536\n", "0 1000 1\n1 100000 65536\n", "?"] {
            assert!(!maps_all(some), "{some}");
        }
    }

    #[test]
    fn anything_else_is_no_greeting() {
        for (sent, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], "does not speak"),
            (&b"REBALANE\x07\0\0\0\0\0\0\0"[..], "version 7"),
            (&b"REB"[..], "does not speak"),
            (&b"REBALANE\x03\0\0\0\0\0\0\0"[..], "version 3"),
            (&b"REBALANE\x03\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0"[..], "not the two pieces"),
            (&[][..], "hung up"),
        ] {
            let (mut here, there) = pair();
            here.write_all(sent).expect("sent");
            drop(here);
            let problem = greeting(&there, &PROTOCOL).expect_err("not a greeting");
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn a_peer_that_does_not_read_cannot_block_a_doorbell() {
        let (here, _there) = pair();
        for _ in 0..100_000 {
            ring(&here);
        }
    }
}
