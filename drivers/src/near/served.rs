//! The server's end of a near connection, on the executor of its worker.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use device::lane::Pause;
use device::near::{NearCounters, NearStream};

use super::pipe::{LocalSide, Pipe, received};
use crate::shared::doorbell::WatchedSocket;

/// A near connection whose socket an executor watches.
struct ServedNear {
    doorbell: WatchedSocket,
    /// None before the greeting.
    pipe: RefCell<Option<Pipe>>,
}

/// Watches the server's end of a near connection.
///
/// # Errors
/// The system's error if it cannot watch the socket.
pub fn watch(stream: UnixStream) -> io::Result<Box<dyn NearStream>> {
    let doorbell = WatchedSocket::new(&Arc::new(stream))?;
    Ok(Box::new(ServedNear { doorbell, pipe: RefCell::new(None) }))
}

impl ServedNear {
    fn with<T>(&self, act: impl FnOnce(&mut Pipe) -> T) -> T {
        act(self.pipe.borrow_mut().as_mut().expect("the greeting comes first"))
    }

    /// Polls until `is_ready`. `pause` says whether to look again or to sleep until the doorbell.
    fn poll_until(
        &self,
        context: &mut Context<'_>,
        is_ready: fn(&mut Pipe) -> bool,
        pause: fn(&mut Pipe) -> Pause,
    ) -> Poll<io::Result<()>> {
        self.with(|pipe| {
            let mut looks = 0;
            loop {
                if is_ready(pipe) {
                    return Poll::Ready(Ok(()));
                }
                if pause(pipe) == Pause::Poll {
                    looks += 1;
                    if looks < LOOKS_PER_TURN {
                        std::hint::spin_loop();
                        continue;
                    }
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let may_be_closed = ready!(self.doorbell.poll(context))?;
                pipe.drain_doorbells(may_be_closed);
            }
        })
    }
}

impl NearStream for ServedNear {
    fn poll_greeting(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let socket = self.doorbell.socket();
            if let Some(peer) = received(socket)? {
                let mut local = LocalSide::new()?;
                local.greet(socket)?;
                *self.pipe.borrow_mut() = Some(Pipe::new(socket, local, peer));
                return Poll::Ready(Ok(()));
            }
            ready!(self.doorbell.poll(context))?;
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // As a socket does, a connection that is always readable lets the worker's other tasks run at times.
        let turn = ready!(tokio::task::coop::poll_proceed(context));
        let polled = self.poll_until(context, Pipe::is_readable, Pipe::pause);
        if polled.is_ready() {
            turn.made_progress();
        }
        polled
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_until(context, Pipe::is_writable, |pipe| match pipe.fall_asleep_blocked() {
            true => Pause::Sleep,
            false => Pause::Poll,
        })
    }

    fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        self.with(|pipe| pipe.try_read(space))
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.with(|pipe| pipe.try_write(slices))
    }

    fn shut_down(&self) {
        self.with(Pipe::shut_down);
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.doorbell.socket().as_fd()
    }

    fn held_bytes(&self) -> u64 {
        self.with(|pipe| pipe.held_bytes())
    }

    fn take_counters(&self) -> NearCounters {
        self.with(Pipe::take_counters)
    }
}

impl fmt::Debug for ServedNear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedNear").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

/// The number of looks for bytes before the worker's other tasks have a turn. They take about 0.2 us together, and the
/// way through the executor takes as long.
const LOOKS_PER_TURN: u32 = 8;
