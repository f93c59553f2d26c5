//! The Unix socket beside a lane: set-up, bells, and the end. Each side sends one greeting with its memory; from
//! then on a byte is a bell, and the end of the stream is the end of the peer, however it came to it.
//!
//! Bells are bytes of this socket and not an eventfd, because the flags of an eventfd belong to both who hold it: a
//! peer could make it a blocking one and fill it, and our next bell would never return. A socket is told per call not
//! to block. It also makes bell and end one thing to wait for.

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

use super::memory::Handed;

/// What a read of the socket came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing is left to read now.
    Silence,
    /// The peer is gone.
    End,
}

/// Refuses a peer of another user: lanes are for processes that could read each other's memory anyway. (The call is
/// nix's: in another container the peer's process id is 0, which rustix's type has no room for.)
pub(super) fn check_user(socket: &impl AsFd) -> Result<(), String> {
    let peer = getsockopt(socket, sockopt::PeerCredentials);
    let theirs = peer.map_err(|error| format!("who it is cannot be told: {error}"))?.uid();
    let own = geteuid().as_raw();
    if theirs == own || theirs == ROOT {
        return Ok(());
    }
    Err(format!("it runs as user {theirs}, and a lane is for user {own} and root only"))
}

/// Sends the greeting with the own half and the own region.
pub(super) fn greet(
    socket: impl AsFd,
    half: BorrowedFd<'_>,
    region: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [half, region];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "room for two descriptors");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // So short a message is sent whole or not at all.
    sendmsg(socket, &[IoSlice::new(&GREETING)], &mut control, flags).map(drop)
}

/// The peer's memory, once its greeting is there.
///
/// # Errors
/// What it sent instead.
pub(super) fn greeting(socket: impl AsFd) -> Result<Option<Handed>, String> {
    let mut bytes = [0; GREETING.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let read = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // Descriptors that nobody asked for are closed with the buffer, or by the system where they did not fit.
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(own) = message {
            fds.extend(own);
        }
    }
    if read == 0 {
        return Err("it hung up before its greeting".into());
    }
    if bytes[..8] != GREETING[..8] {
        return Err("it does not speak this protocol".into());
    }
    if read != GREETING.len() || bytes != GREETING {
        let version = u64::from_ne_bytes(bytes[8..].try_into().expect("eight bytes"));
        return Err(format!("it speaks version {version} of lanes, and this process {VERSION}"));
    }
    let [half, region] =
        fds.try_into().map_err(|_| "it sent not the two pieces of memory of a lane")?;
    Ok(Some(Handed { half, region }))
}

/// Bells that may be left unread: far fewer than a socket holds, since one that is full takes no more.
pub(super) const UNREAD_MAX: u64 = 32;

/// Wakes the peer. A socket that is full of bells has woken it; one that is closed is found out by reading.
pub(super) fn ring(socket: impl AsFd) {
    let _ = send(socket, &[BELL], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Reads all the bells that are there, so that whoever waits for news of the socket misses none. A peer that rings
/// without end is as good as gone.
pub(super) fn listen(socket: impl AsFd) -> Heard {
    let mut bytes = [0; BELLS_AT_ONCE];
    for _ in 0..READS_MAX {
        match recv(&socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Heard::End,
            // What comes after a read that emptied the socket is news.
            Ok((_, read)) if read < BELLS_AT_ONCE => return Heard::Silence,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Silence,
            Err(_) => return Heard::End,
        }
    }
    Heard::End
}

const ROOT: u32 = 0;

/// The version of the greeting, the layout and the entries.
const VERSION: u64 = 2;

const GREETING: [u8; 16] = {
    let mut bytes = *b"REBALANE\0\0\0\0\0\0\0\0";
    let version = VERSION.to_ne_bytes();
    let mut at = 0;
    while at < version.len() {
        bytes[8 + at] = version[at];
        at += 1;
    }
    bytes
};

const BELL: u8 = b'!';

/// An honest peer has a few under way at most.
const BELLS_AT_ONCE: usize = 1_024;

/// Far more than a socket holds.
const READS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::memory::{Own, Region, Theirs};
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("two sockets")
    }

    #[test]
    fn a_greeting_hands_over_the_memory_and_bells_follow() {
        let (here, there) = pair();
        let (own, region) = (Own::new().expect("memory"), Region::new(1 << 20).expect("memory"));
        check_user(&here).expect("this very process");
        assert!(greeting(&there).expect("nothing wrong yet").is_none());
        greet(&here, own.file(), region.file()).expect("sent");
        ring(&here);
        let handed = greeting(&there).expect("a greeting").expect("is there");
        Theirs::map(&handed).expect("a half and a region");
        assert_eq!(listen(&there), Heard::Silence);
        assert_eq!(listen(&there), Heard::Silence);
        drop(here);
        assert_eq!(listen(&there), Heard::End);
        ring(&there);
    }

    #[test]
    fn anything_else_is_no_greeting() {
        for (sent, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], "does not speak"),
            (&b"REBALANE\x07\0\0\0\0\0\0\0"[..], "version 7"),
            (&b"REB"[..], "does not speak"),
            (&GREETING[..], "not the two pieces"),
            (&[][..], "hung up"),
        ] {
            let (mut here, there) = pair();
            here.write_all(sent).expect("sent");
            drop(here);
            let problem = greeting(&there).expect_err("not a greeting");
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn a_peer_that_does_not_listen_cannot_block_a_bell() {
        let (here, _there) = pair();
        for _ in 0..100_000 {
            ring(&here);
        }
    }
}
